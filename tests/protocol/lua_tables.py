#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes the tables of the Wireshark dissector from those of engine/PROTOCOL.md.

usage: lua_tables.py PROTOCOL.md farcall.lua        prints the dissector with the tables of today
       lua_tables.py -i PROTOCOL.md farcall.lua     puts them into it
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tables  # noqa: E402

# What travels in packets; the other tables are of the store and of shared memory.
LAYOUTS = ["head", "message", "ack", "control", "sub", "grant", "exposed", "handshake", "reject", "session", "request", "reply", "error", "cancel",
           "cancelled", "oneway", "credit", "rendezvous", "data", "lane_grant", "lane", "acked", "hash", "named", "object", "retry",
           "rref_remote", "rref_fetch", "rref_method", "rref_method_remote", "rref_op"]
CODES = ["kind", "wire_flag", "type", "flag", "status", "executed", "value_type", "dtype", "engine_fn", "rref_kind"]
BEGIN = "-- The tables of engine/PROTOCOL.md, put here by tests/protocol/lua_tables.py.\n"
END = "-- The end of the tables.\n"


def field_text(f):
    parts = [f'name = "{f.name}"', f"bytes = {f.size}" if isinstance(f.size, int) else f'bytes = "{f.size}"',
             f'as = "{f.encoding}"']
    if f.low:
        parts.append(f'low = "{f.low}"')
    if f.high != tables.MOST:
        parts.append(f'high = "{f.high}"')
    return "{ " + ", ".join(parts) + " }"


def code_text(row):
    parts = [f"value = {row['value']}", f'name = "{row["name"]}"']
    for key in ("head", "body", "bytes", "layout", "before", "reply"):
        if key in row:
            parts.append(f'{key} = {row[key]}' if row[key].isdigit() else f'{key} = "{row[key]}"')
    if row["types"]:
        parts.append("types = { " + ", ".join(f"{t} = true" for t in row["types"]) + " }")
    return "{ " + ", ".join(parts) + " }"


def block(protocol):
    layouts, codes = tables.read(protocol)
    out = [BEGIN, "local layouts = {\n"]
    for name in LAYOUTS:
        layout = layouts[name]
        little = "true" if layout.order == "little" else "false"
        out.append(f"\t{name} = {{ size = {layout.size}, little = {little}, fields = {{\n")
        out += [f"\t\t{field_text(f)},\n" for f in layout.fields]
        out.append("\t} },\n")
    out.append("}\nlocal codes = {\n")
    for name in CODES:
        out.append(f"\t{name} = {{\n")
        out += [f"\t\t{code_text(r)},\n" for r in codes[name].rows]
        out.append("\t},\n")
    out += ["}\n", END]
    return "".join(out)


def renewed(protocol, lua):
    """The dissector with these tables."""
    with open(lua, encoding="utf-8") as file:
        text = file.read()
    new, n = re.subn(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: block(protocol), text, flags=re.S)
    if n != 1:
        raise tables.Wrong(f"{lua} has no place for the tables, or two")
    return new


def main():
    inplace = sys.argv[1:2] == ["-i"]
    names = sys.argv[2:] if inplace else sys.argv[1:]
    if len(names) != 2:
        sys.exit(__doc__)
    text = renewed(*names)
    if not inplace:
        sys.stdout.write(text)
        return
    with open(names[1], "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
