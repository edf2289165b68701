# SPDX-License-Identifier: BSD-3-Clause
"""The exact tables of engine/PROTOCOL.md, read out of its Markdown. What they mean is said there, under "Headers"."""
import functools
import re

TITLE = re.compile(r"(Layout|Codes) `(\w+)`")
SIZE = re.compile(r", (\d+) bytes(?: and what they announce)?, (big|little|native)-endian\.")
RANGE = re.compile(r"\[(\d+), (\d+)\]$")
LAYOUT_HEADER = ["offset", "bytes", "field", "encoding", "must be", "meaning"]
MOST = (1 << 64) - 1


class Wrong(Exception):
    """A table that cannot be read, or does not fit together."""


class Field:
    """One row of a layout: `at` is None behind parts of no fixed size, `size` a number, a field's name or "rest"."""

    def __init__(self, layout, cells):
        offset, size, self.name, encoding, must = cells[:5]
        self.layout = layout
        self.at = None if offset == "…" else int(offset)
        self.size = int(size) if size.isdigit() else size
        self.encoding = encoding
        self.low, self.high = self.range(must)

    @staticmethod
    def range(must):
        m = RANGE.match(must)
        if m:
            return int(m[1]), int(m[2])
        if must == "-":
            return 0, MOST
        if must == "not 0":
            return 1, MOST
        if must.startswith(">= "):
            return int(must[3:]), MOST
        return int(must, 0), int(must, 0)


class Layout:
    def __init__(self, name, size, order, rows):
        self.name, self.size, self.order = name, size, order
        self.fields = [Field(name, cells) for cells in rows]
        self.check()

    def check(self):
        at = 0
        names = [f.name for f in self.fields]
        if len(set(names)) != len(names):
            raise Wrong(f"layout {self.name}: a field has two rows")
        for i, f in enumerate(self.fields):
            if f.at != at:
                raise Wrong(f"layout {self.name}: {f.name} is at {f.at}, not at {at}")
            if isinstance(f.size, int):
                at += f.size
                continue
            if f.size != "rest" and f.size not in names[:i]:
                raise Wrong(f"layout {self.name}: the bytes of {f.name} are those of nothing before it")
            if at is not None and at != self.size:
                raise Wrong(f"layout {self.name}: {at} bytes, not {self.size}")
            at = None
        if at is not None and at != self.size:
            raise Wrong(f"layout {self.name}: {at} bytes, not {self.size}")


class Codes:
    """Rows by value; `flag` and its like have several of one value, each for other types."""

    def __init__(self, name, header, rows):
        self.name = name
        self.rows = [dict(zip(header, cells)) for cells in rows]
        for r in self.rows:
            r["value"] = int(r["value"])
            r["types"] = [t.strip() for t in r["types"].split(",")] if "types" in r else None
        keys = [(r["value"], t) for r in self.rows for t in r["types"] or [None]]
        if len(set(keys)) != len(keys) or len({r["name"] for r in self.rows}) != len(self.rows):
            raise Wrong(f"codes {name}: a value or a name has two rows")

    def row(self, value):
        return next((r for r in self.rows if r["value"] == value), None)

    def name_of(self, value):
        row = self.row(value)
        return row["name"] if row else str(value)

    def value_of(self, name):
        row = next((r for r in self.rows if r["name"] == name), None)
        return row["value"] if row else None

    def bits_text(self, value, message_type):
        names = []
        for r in self.rows:
            if value & r["value"] and (r["types"] is None or message_type in r["types"]):
                names.append(r["name"])
                value &= ~r["value"]
        if value:
            names.append(f"0x{value:x}")
        return "+".join(names) or "-"


def cells_of(line):
    return [c.strip() for c in line.strip().strip("|").split("|")]


@functools.lru_cache(maxsize=1024)
def table(kind, name, title, lines):
    """One table: agree.py reads hundreds of files that differ in one."""
    header = cells_of(lines[0])
    rows = [cells_of(row) for row in lines[2:]]
    for row, cells in zip(lines[2:], rows):
        if len(cells) != len(header):
            raise Wrong(f"{kind} {name}: {row} has not {len(header)} cells")
    if kind == "Codes":
        return Codes(name, header, rows)
    size = SIZE.search(title)
    if not size or header != LAYOUT_HEADER:
        raise Wrong(f"layout {name}: its title says neither bytes nor order, or its columns are others")
    return Layout(name, int(size[1]), size[2], rows)


def read(path):
    """The layouts and the codes of a file, by name."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    layouts, codes = {}, {}
    for i, line in enumerate(lines):
        title = TITLE.match(line)
        if not title:
            continue
        kind, name = title.groups()
        at = next((k for k in range(i + 1, min(i + 5, len(lines))) if lines[k].startswith("|")), None)
        if at is None or name in (layouts if kind == "Layout" else codes):
            raise Wrong(f"{kind} {name}: no table follows, or it is there twice")
        last = next((k for k in range(at + 2, len(lines)) if not lines[k].startswith("|")), len(lines))
        (codes if kind == "Codes" else layouts)[name] = table(kind, name, line, tuple(lines[at:last]))
    for layout in layouts.values():
        for f in layout.fields:
            used = f.encoding.split()[1:]
            if used and used[0] not in codes:
                raise Wrong(f"layout {layout.name}: there are no codes {used[0]}")
    return layouts, codes
