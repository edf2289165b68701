# SPDX-License-Identifier: BSD-3-Clause
"""Reads the C++ header for its manual page: the documented types and functions of namespace farcall, without bodies,
private members, and what only the language needs (copies, destructors, promise types). The header is formatted by
clang-format: a body begins and ends with a brace alone on a line."""
import re

UNSHOWN = re.compile(r"~|operator=|= delete;|= default;|friend |using promise_type|_t<|explicit \w+\(far_\w+ \*|"
                     r"\b(\w+)\((const )?\1 &&?\w*\)|\bawait_\w+\(|^class_builder\(")
HIDDEN = ("struct promise_", "template <> struct", "template <typename T> struct type_of")


class Entry:
    """A class, function or constant of namespace farcall."""

    def __init__(self, doc, code, members):
        self.doc, self.code, self.members = doc, code, members


def comment_text(comment):
    return " ".join(" ".join(re.sub(r"^\s*(/\*\*|\*/|\*)", "", line) for line in comment.split("\n")).replace("*/", "").split())


def skip_block(lines, at):
    """Index behind the block whose opening brace is at the end of line `at`."""
    indent = re.match(r"\s*", lines[at])[0]
    while not re.match(re.escape(indent) + r"\}", lines[at]):
        at += 1
    return at + 1


def declaration(lines, at):
    """(declaration in one line, index behind it, 'body', 'class' or ';')."""
    text = []
    while True:
        line = lines[at].strip()
        if line == "{":
            kind = "class" if re.match(r"(template <.*> )?(class|struct|namespace) ", " ".join(text)) else "body"
            return " ".join(text), at, kind
        text.append(line)
        if line.endswith("{"):
            return " ".join(text)[:-1].strip(), at, "class" if "=" not in line else "body"
        at += 1
        if re.search(r";(\s*(//.*|/\*.*\*/))?$", line):
            return " ".join(text), at, ";"


def items(lines, at, end, public):
    """The declarations of lines [at, end), with the comment of each: (doc, code, members)."""
    found, doc = [], ""
    while at < end:
        line = lines[at].strip()
        if line == "namespace detail":
            while not lines[at].startswith("} // namespace detail"):
                at += 1
            at += 1
            continue
        label = re.match(r"(public|private):$", line)
        if label:
            public = label[1] == "public"
        if not line or label or line.startswith(("//", "#")):
            doc, at = "", at + 1
            continue
        if line.startswith("/*"):
            begin = at
            while "*/" not in lines[at]:
                at += 1
            at += 1
            doc = comment_text("\n".join(lines[begin:at]))
            continue
        code, at, kind = declaration(lines, at)
        members = []
        if kind == "class":
            behind = skip_block(lines, at)
            if not code.startswith(HIDDEN):
                members = items(lines, at + 1, behind - 1, not re.search(r"\bclass\b", code))
            at = behind
        elif kind == "body":
            at = skip_block(lines, at)
        code = re.sub(r"(\)(?: const)?(?: noexcept)?) : .*", r"\1", code) if kind == "body" else code
        if public and not code.startswith(HIDDEN) and not UNSHOWN.search(code):
            found.append(Entry(doc, code if kind == ";" else code + (";" if kind == "body" else ""), members))
            doc = ""
    return found


def read(text):
    """(opening comment as lines, entries of namespace farcall)."""
    about = re.search(r"/\*\*\n(.*?)\n \*/", text, re.S)[1]
    about = "\n".join(re.sub(r"^ ?\*? ?", "", line) for line in about.split("\n"))
    entries = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        if lines[at] == "namespace farcall":
            end = at
            while not lines[end].startswith("} // namespace farcall"):
                end += 1
            entries += items(lines, at + 2, end, True)
            at = end
        at += 1
    return about, [e for e in entries if e.doc]
