#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The tables of engine/SETTINGS.md against the source: every variable of the environment that the code reads, every
limit of the public headers and of the options, with its value; and the reverse.
usage: settings.py SOURCE_TOP [SED-COMMAND of a change to the page, to see that it is found]"""
import pathlib
import re
import subprocess
import sys

READERS = r"(?:secure_getenv|getenv|from_env|env_text|env_number)"  # functions that read the variable they are given
FOLDERS = ("engine", "nic", "apps", "perf")


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def variables(top):
    """Names that the code reads; an error for a read that this does not understand."""
    names, wrong, macros, texts = set(), [], {}, {}
    for folder in FOLDERS:
        for path in sorted((top / folder).rglob("*.[ch]")):
            texts[path] = without_comments(path.read_text(encoding="utf-8"))
            macros.update(re.findall(r'#define (\w+_ENV)\s+"([A-Z_]+)"', texts[path]))
    for path, text in texts.items():
        for name in re.findall(r"\b" + READERS + r'\((?:[^()"]*,\s*)?"([A-Z_]+)"', text):
            names.add(name)
        for word in re.findall(r"\b(?:secure_)?getenv\((\w+[^)]*)\)", text):
            if word in macros:
                names.add(macros[word])
            elif word == "environment[i]":
                names |= set(re.findall(r'"([A-Z_]+)"', re.search(r"environment\[\] = \{(.*?)\}", text, re.S)[1]))
            elif path.name == "settings.c":  # every option of its table
                names |= {"FAR_" + n.upper() for n in re.findall(r"\bSETTING\((\w+), SETTING", text)}
            elif word != "name" or not re.search(r"\b(?:from_env|env_text|env_number)\(", text):
                wrong.append(f"{path}: getenv({word}): not understood")
    return names, wrong


def value(expression, macros):
    expression = re.sub(r"\(size_t\)|\bUINT64_C\b|(?<=\d)[uUlL]+\b", "", expression)
    expression = re.sub(r"[A-Z]\w+", lambda m: str(value(macros[m[0]], macros)), expression)
    return eval(expression)  # a constant of the source


def limits(top):
    """Limits with their numbers: (largest,) of a macro, (default, largest) of an option."""
    found, macros = {}, {}
    public = "".join(without_comments(p.read_text(encoding="utf-8")) for p in sorted((top / "include/farcall").glob("*.h")))
    base = without_comments((top / "engine/base/limits.h").read_text(encoding="utf-8"))
    for name, text in re.findall(r"#define (FAR_\w+)[ \t]+([^\n]+)", base + public):
        macros[name] = text.strip()
    for name in re.findall(r"#define (FAR_\w+_MAX)\b", public):
        found[name] = (value(macros[name], macros),)
    for name in ("FAR_WORLD_MAX", "FAR_MEM_REGIONS_MAX", "FAR_SHARED_MAX", "FAR_SHARED_MAPPED_MAX", "FAR_REFERRED_MAX",
                 "FAR_REFERRED_BYTES"):
        found[name] = (value(macros[name], macros),)
    bounds = (top / "engine/agent/limits.c").read_text(encoding="utf-8")
    for name, default, largest in re.findall(r"BOUND\((\w+), (\w+), (\w+),", bounds):
        found[name] = (value(default, macros), value(largest, macros))
    return found


def tables(page):
    listed, numbers = set(), {}
    for row in re.findall(r"^\| `(\w+)` \|(.*)\|$", page, flags=re.M):
        cells = [c.strip() for c in row[1].split("|")]
        if re.fullmatch(r"[\d ]*", cells[0]) and len(cells) == 3:
            numbers[row[0]] = tuple(int(c) for c in cells[:2] if c)
        else:
            listed.add(row[0])
    return listed, numbers


def main(top, change=None):
    top = pathlib.Path(top)
    page = (top / "engine/SETTINGS.md").read_text(encoding="utf-8")
    if change:
        page = subprocess.run(["sed", change], input=page, text=True, capture_output=True, check=True).stdout
    names, wrong = variables(top)
    listed, numbers = tables(page)
    wrong += [f"SETTINGS.md has no {name}, which the code reads" for name in sorted(names - listed)]
    wrong += [f"SETTINGS.md has {name}, which no code reads" for name in sorted(listed - names)]
    source = limits(top)
    for name in sorted(source.keys() | numbers.keys()):
        if source.get(name) != numbers.get(name):
            wrong.append(f"{name}: {source.get(name)} in the source, {numbers.get(name)} in SETTINGS.md")
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong or not names or not source else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
