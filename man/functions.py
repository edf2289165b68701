#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the manual pages of the public functions from the comments of the headers.

usage: functions.py HEADERS VERSION DEPFILE MAN3 MAN7

One page of section 3 for each function, exported or inline; one page of section 7 for each header, with its opening
comment, its functions, types and macros; one for the C++ header. MAN3 and MAN7 are directories and made anew. Every function needs a comment:
a `/** … */` above it or above the declarations before it without an empty line between. A comment `/* ---- … ---- */`
names the threads that may call the functions below it."""
import pathlib
import re
import shutil
import sys
import textwrap

import cpp

PUBLISHED = "Farcall"
WIDTH = 84  # of prototypes and types in a page
NAME_MAX = 150  # bytes of a page's one-line description
NEAR_MAX = 12  # functions under the same heading that a page refers to
LIBRARIES = {"ops": "ops", "ps": "ps", "ps_schema": "ps", "autograd": "train", "module": "train", "optim": "train",
             "train": "train"}
CORE = ("status", "value")  # types of these headers are explained in the header's page alone

TOKEN = re.compile(r"""
	(?P<comment>/\*.*?\*/)
	| (?P<directive>^[ \t]*\#(?:[^\\\n]|\\\n|\\.)*)
	| (?P<blank>\n[ \t]*(?=\n))
	| (?P<space>\s+)
	| (?P<code>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[A-Za-z_]\w*|.)
""", re.S | re.M | re.X)


class Item:
    """A function, type or macro of a header."""

    def __init__(self, kind, name, code, doc, heading):
        self.kind, self.name, self.code, self.doc, self.heading = kind, name, code, doc, heading
        self.group = [self]  # those that share the comment


class Header:
    def __init__(self, path):
        self.name, self.about, self.items = path.stem, "", []
        self.read(path.read_text(encoding="utf-8"))

    def read(self, text):
        """Splits the header into items, as a C compiler sees it: __cplusplus is undefined."""
        active, doc, heading, code, group = [], "", "", [], None
        depth = 0
        for match in TOKEN.finditer(text):
            kind, token = match.lastgroup, match.group()
            if kind == "directive":
                word = re.match(r"\s*#\s*(\w+)\s*(.*)", token, re.S)
                if word[1] in ("if", "ifdef", "ifndef"):
                    active.append("__cplusplus" not in word[2] or word[1] == "ifndef")
                elif word[1] == "else":
                    active[-1] = not active[-1]
                elif word[1] == "endif":
                    active.pop()
                elif word[1] == "define" and all(active) and depth == 0:
                    name = re.match(r"(\w+)", word[2])[1]
                    if not re.match(r"FARCALL_\w+_H$|FAR_(MAP|CAT|COUNT)", name):
                        self.items.append(Item("macro", name, token.strip(), doc, heading))
                elif depth:
                    code.append("\n" + token + "\n")
                continue
            if not all(active):
                continue
            if depth == 0 and not code:
                if kind == "comment":
                    body = plain(token)
                    if token.startswith("/* ----"):
                        heading, doc, group = body.replace("----", "", 1).replace(" ----", "", 1).strip(), "", None
                    elif token.startswith("/**"):
                        doc, group = body, None
                        if not self.about:
                            self.about, doc = body, ""
                    continue
                if kind == "blank":
                    doc, group = "", None
                    continue
                if kind == "space":
                    continue
            code.append(token)
            depth += (token in "{(" and len(token) == 1) - (token in "})" and len(token) == 1)
            ended = depth == 0 and (token == ";" or token == "}" and is_function("".join(code)))
            if ended:
                item = self.item("".join(code).strip(), doc, heading)
                code = []
                if item:
                    if group is not None and group.kind == item.kind == "function":
                        item.group = group.group
                        item.group.append(item)
                    group = item
                    self.items.append(item)

    def item(self, code, doc, heading):
        code = re.sub(r"__attribute__\(\(.*?\)\)\)?\s*", "", code)
        code = re.sub(r"^(?:(?:FAR_[A-Z_]+)\s+)+", "", code)  # visibility
        if code.startswith('extern "C'):
            return None
        match = re.match(r"typedef\b.*?\b(far_\w+)\s*\(", code, re.S)
        if match:
            return Item("type", match[1], code, doc, heading)
        match = re.match(r"(?:struct|enum|union)\s+(far_\w+)\s*\{", code)
        if match:
            return Item("type", match[1], code, doc, heading)
        if re.match(r"(?:struct|enum|union)\s+far_\w+\s*;", code):
            return None
        match = re.match(r"(static inline\s+)?[\w\s\*]*?\b(far_\w+)\s*\(", code)
        if match:
            code = re.sub(r"\s*\{.*", ";", code, flags=re.S).replace("static inline ", "")
            return Item("function", match[2], code, doc, heading)
        return None

    def functions(self):
        return [i for i in self.items if i.kind == "function"]


def is_function(code):
    """Is the text up to a closing brace a function with its body."""
    return re.match(r"(?:static inline\b)[^{=]*\)\s*\{", code) is not None


def plain(comment):
    """The text of a comment without its marks."""
    lines = comment[2:-2].lstrip("*").split("\n")
    lines = [re.sub(r"^[ \t]*\* ?", "", line).rstrip() for line in lines]
    return "\n".join([lines[0].strip()] + lines[1:]).strip()


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return text.replace("^", "\\(ha").replace("~", "\\(ti")


def inline(text, own=()):
    """A line of prose: `words` and names of the interface in bold, other functions as references to their pages."""
    out = []
    for part in re.split(r"(`[^`]+`|\bfar_\w+\(\)|\bFAR_[A-Z][A-Z0-9_]*\b|<farcall/\w+\.h>)", text):
        if re.fullmatch(r"far_\w+\(\)", part):
            name = part[:-2]
            out.append("\\fB%s\\fP%s" % (name, "()" if name in own or name.endswith("_") else "(3)"))
        elif re.fullmatch(r"<farcall/\w+\.h>", part):
            out.append("\\fBfarcall_%s.h\\fP(7)" % part[9:-3])
        elif len(part) > 2 and part[0] == part[-1] == "`" or re.fullmatch(r"FAR_[A-Z][A-Z0-9_]*", part):
            out.append("\\fB%s\\fP" % escape(part.strip("`")))
        else:
            out.append(escape(part))
    line = "".join(out)
    return "\\&" + line if line[:1] in ".'" or line.startswith("\\(aq") else line


def prose(text, own=()):
    """Paragraphs, lists, and indented lines and tables as they are."""
    out, paragraph, verbatim, item = [], [], [], False

    def flush():
        nonlocal verbatim
        if paragraph:
            out.append(inline(" ".join(" ".join(paragraph).split()), own))
            paragraph.clear()
        if verbatim:
            lines = textwrap.dedent("\n".join(verbatim).expandtabs(8)).split("\n")
            out.extend([".PP", ".nf"] + ["\\&" + escape(line) for line in lines] + [".fi"])
            verbatim = []

    for line in text.split("\n"):
        if re.match(r"\t|  +\S|\|", line) and not (item and paragraph):
            if paragraph:
                flush()
            verbatim.append(line)
            continue
        if verbatim and line:
            flush()
            out.append(".PP")
        if not line:
            if verbatim:
                verbatim.append("")
                continue
            flush()
            item = False
            out.append(".PP")
        elif line.startswith("- "):
            flush()
            out.append(".IP \\(bu 2")
            paragraph.append(line[2:])
            item = True
        else:
            paragraph.append(line.strip())
    while verbatim and not verbatim[-1]:
        verbatim.pop()
    flush()
    while out and out[-1] == ".PP":
        out.pop()
    return [line for i, line in enumerate(out) if not (line == ".PP" and out[i + 1:i + 2] == [".PP"])]


def code_lines(code):
    """A declaration as it is in the header, in lines of WIDTH."""
    lines = code.expandtabs(8).split("\n")
    return ["\\&" + escape(line) for line in lines]


def prototype(code):
    """A prototype in lines of WIDTH, arguments below each other."""
    flat = " ".join(code.split())
    head, rest = flat.split("(", 1)
    head, args = head + "(", rest.rsplit(")", 1)[0]
    parts, depth, part = [], 0, ""
    for c in args:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(part.strip() + ",")
            part = ""
        else:
            part += c
    parts.append(part.strip() + ");")
    indent = len(head) if len(head) + max(map(len, parts)) <= WIDTH else 8
    lines, line = [], head
    for part in parts:
        if line.strip() and line != head and len(line) + 1 + len(part) > WIDTH:
            lines.append(line)
            line = " " * indent + part
        elif line == head and len(line) + len(part) > WIDTH:
            lines.append(line)
            line = " " * indent + part
        else:
            line += part if line in (head, " " * indent) else " " + part
    lines.append(line)
    return ["\\fB" + escape(line) + "\\fP" for line in lines]


def sentences(text):
    return re.split(r"(?<=[.;])\s+(?=[A-Z`])", " ".join(text.split()))


def summary(item):
    """The first sentence, for the NAME section."""
    if item.name.endswith("_backward"):
        return escape("derivative of %s()" % item.name[:-len("_backward")])
    text = sentences(item.doc)[0].rstrip(".;").replace("`", "")
    if len(text) > NAME_MAX:
        text = re.split(r"[:;] (?![^(\[]*[)\]])", text)[0]
    if len(text) > NAME_MAX:
        text = text[:NAME_MAX].rsplit(" ", 1)[0].rstrip(",") + " …"
    if re.match(r"(?!A )[A-Z]([a-z]|[ ,.])", text):
        text = text[0].lower() + text[1:]
    return escape(text)


def split_errors(doc):
    """The comment in two: what the function does, and its errors, which begin with a sentence "Errors…"."""
    match = re.search(r"(?:(?<=^)|(?<=[.\n]\n)|(?<=[.)]\s)|(?<=\n\n))(?=(?:Errors|Further errors)\b[^.:]{0,80}:)", doc)
    if not match:
        return doc, ""
    return doc[:match.start()].rstrip(), doc[match.start():]


def title(name, section, version):
    return ['.TH "%s" "%s" "" "farcall %s" "%s"' % (name.upper(), section, version, PUBLISHED)]


def uses(items):
    words = set()
    for item in items:
        words |= set(re.findall(r"\bfar_\w+", item.code))
    return words


def function_page(item, header, types, version):
    own = {i.name for i in item.group}
    library = "farcall\\-" + LIBRARIES[header.name] if header.name in LIBRARIES else "farcall"
    out = title(item.name, "3", version)
    out += [".SH NAME", "%s \\- %s" % (item.name, summary(item))]
    out += [".SH LIBRARY", "\\fBlib%s\\fP; \\fBpkg\\-config \\-\\-cflags \\-\\-libs %s\\fP" % (library, library)]
    out += [".SH SYNOPSIS", ".nf", "\\fB#include <farcall/%s.h>\\fP" % header.name]
    for one in [item] + [i for i in item.group if i is not item]:
        out += [".PP"] + prototype(one.code)
    out += [".fi", ".SH DESCRIPTION"]
    what, errors = split_errors(item.doc)
    out += prose(what, own)
    shown = [t for name, (t, h) in sorted(types.items()) if name in uses(item.group) and h.name not in CORE]
    for t in shown:
        out += [".SS %s" % ("\\fB" + t.name + "\\fP")]
        out += prose(t.doc, own) if t.doc else []
        out += [".PP", ".nf"] + code_lines(t.code) + [".fi"]
    if "enum far_status" in item.code.split("(")[0]:
        out += [".SH RETURN VALUE",
                "\\fBFAR_OK\\fP, or the status of an error." +
                (" \\fB*err\\fP then holds its text and cause." if "struct far_err *" in item.code else "")]
    if errors:
        out += [".SH ERRORS"] + prose(errors, own)
    if item.heading:
        out += [".SH THREADS AND BLOCKING"] + prose(item.heading[0].upper() + item.heading[1:], own)
        if out[-1][-1:] not in ".:":
            out[-1] += "."
    near = [i.name for i in header.functions() if i.heading == item.heading and i.name not in own]
    if item.name.endswith("_backward"):
        near.insert(0, item.name[:-len("_backward")])
    refs = ["\\fBfarcall_%s.h\\fP(7)" % h for h in dict.fromkeys((header.name,) + CORE)]
    refs += ["\\fB%s\\fP(3)" % name for name in near[:NEAR_MAX]]
    return out + [".SH SEE ALSO", ",\n".join(refs)]


def header_page(header, version):
    page = "farcall_%s.h" % header.name
    first = sentences(header.about)[0].rstrip(".")
    out = title(page, "7", version)
    out += [".SH NAME", "%s \\- %s" % (page, escape(re.sub(r"`", "", first)))]
    out += [".SH SYNOPSIS", "\\fB#include <farcall/%s.h>\\fP" % header.name, ".SH DESCRIPTION"] + prose(header.about)
    heading = None
    for item in header.functions():
        if item.heading != heading or heading is None:
            heading = item.heading
            line = re.split(r"\n\n", heading)[0] if heading else "Functions"
            out += [".SS " + '"%s"' % escape(" ".join(line.split())).replace('"', '\\(dq')]
        out += [".TP", "\\fB%s\\fP(3)" % item.name, summary(item)]
    for kind, name in (("type", "TYPES"), ("macro", "MACROS")):
        items = [i for i in header.items if i.kind == kind]
        if items:
            out += [".SH " + name]
        for item in items:
            if item.doc:
                out += [".PP"] + prose(item.doc)
            out += [".PP", ".nf"] + code_lines(item.code) + [".fi"]
    return out + [".SH SEE ALSO", "\\fBfarcall\\fP(7)"]


def cpp_page(text, version):
    """The page of <farcall/farcall.hpp>: its opening comment, then each class with its public members."""
    about, entries = cpp.read(text)
    first = sentences(about)[0].rstrip(".")
    out = title("farcall.hpp", "7", version)
    out += [".SH NAME", "farcall.hpp \\- %s" % escape(first), ".SH SYNOPSIS", "\\fB#include <farcall/farcall.hpp>\\fP",
            ".SH DESCRIPTION"] + prose(about)

    def lines(entry, depth):
        indent = "    " * depth
        if depth and entry.doc:
            yield from textwrap.wrap("/* %s */" % entry.doc, WIDTH, initial_indent=indent, subsequent_indent=indent + "   ")
        code = entry.code + (" {" if entry.members else "" if entry.code.endswith((";", "*/")) or "//" in entry.code else ";")
        yield from textwrap.wrap(code, WIDTH, initial_indent=indent, subsequent_indent=indent + "        ")
        for member in entry.members:
            yield from lines(member, depth + 1)
        if entry.members:
            yield indent + "};"

    for entry in entries:
        name = re.search(r"(?:class|struct) (\w+)|(\w+)(?:\(| =)", re.sub(r"^template <.*?> (?=class|struct|void)", "", entry.code))
        out += [".SS " + (name[1] or name[2])] + prose(entry.doc)
        out += [".PP", ".nf"] + ["\\&" + escape(line) for line in lines(entry, 0)] + [".fi"]
    return out + [".SH SEE ALSO", "\\fBfarcall\\fP(7)"]


def index_page(headers, version):
    out = title("farcall", "7", version)
    out += [".SH NAME", "farcall \\- RPC engine for low\\-latency networks: the interface in C", ".SH DESCRIPTION",
            "Each header has a page here, each function one in section 3. \\fB<farcall/farcall.h>\\fP includes every "
            "header of \\fBlibfarcall\\fP; the others belong to libraries of their own. \\fBfarcall.hpp\\fP(7) describes "
            "the interface in C++."]
    for header in headers:
        out += [".TP", "\\fBfarcall_%s.h\\fP(7)" % header.name, inline(sentences(header.about)[0])]
        names = [i.name for i in header.functions()]
        out += [".br", ",\n".join("\\fB%s\\fP(3)" % n for n in names)] if names else []
    return out + [".SH SEE ALSO", "\\fBfarcall\\fP(1)"]


def write(folder, name, lines):
    text = "\n".join(lines) + "\n"
    (folder / name).write_text('.\\" Written from the headers by man/functions.py.\n' + text, encoding="utf-8")


def main(headers, version, depfile, man3, man7):
    paths = sorted(pathlib.Path(headers).glob("*.h"))
    all_headers = [Header(p) for p in paths if p.stem != "farcall"]
    types = {i.name: (i, h) for h in all_headers for i in h.items if i.kind == "type"}
    for header in all_headers:
        for item in header.functions():
            if not item.doc and item.group[0].doc:
                item.doc = item.group[0].doc
    missing = [f"{h.name}.h: {i.name} has no comment" for h in all_headers for i in h.functions() if not i.doc]
    if missing:
        sys.exit("\n".join(missing))
    folders = [pathlib.Path(man3), pathlib.Path(man7)]
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for header in all_headers:
        for item in header.functions():
            write(folders[0], item.name + ".3", function_page(item, header, types, version))
        write(folders[1], f"farcall_{header.name}.h.7", header_page(header, version))
    write(folders[1], "farcall.7", index_page(all_headers, version))
    paths.append(pathlib.Path(headers) / "farcall.hpp")
    write(folders[1], "farcall.hpp.7", cpp_page(paths[-1].read_text(encoding="utf-8"), version))
    depends = " ".join(str(p).replace(" ", "\\ ") for p in [*paths, pathlib.Path(headers)])
    pathlib.Path(depfile).write_text(f"{man3} {man7}: {depends}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
