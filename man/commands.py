#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the manual pages of section 1 and the shell completions from what the program prints for --help.

usage: commands.py FARCALL VERSION MAN1 BASH ZSH

Runs FARCALL --help and, for each word that a help lists as a command, measurement or figure, the help of that. MAN1 is
a directory and made anew; BASH and ZSH are files."""
import pathlib
import re
import shutil
import subprocess
import sys

from functions import escape

ABOUT = {"farcall": "remote procedure calls for low-latency networks"}
LISTS = ("commands", "measurements", "figures")
COMMON = [("h", "help", "", "print the help and exit"), ("V", "version", "", "print the version and exit")]


class Help:
    """The help of one command: usage, paragraphs, options, subcommands."""

    def __init__(self, program, words):
        self.words = words
        text = subprocess.run([program, *words, "--help"], check=True, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL).stdout
        head, *rest = text.rstrip("\n").split("\n")
        if not head.startswith("usage: "):
            sys.exit(f"farcall {' '.join(words)} --help prints no usage: {head}")
        self.usage = head[len("usage: "):]
        self.paragraphs, self.options, self.below = [[]], [], []
        place = None
        for line in rest:
            title = re.fullmatch(r"([a-z]+):", line)
            option = re.match(r"  (?:-(\w), |    )--([\w-]+) ?(\S+)?(?:\s+(.*))?$", line)
            entry = re.match(r"  ([a-z]+) {2,}(\S.*)$", line)
            if title and title[1] in (*LISTS, "options"):
                place = title[1]
            elif place == "options" and option:
                self.options.append([option[1] or "", option[2], option[3] or "", option[4] or ""])
            elif place == "options" and re.match(r" {12,}\S", line):
                self.options[-1][3] = (self.options[-1][3] + " " + line.strip()).strip()
            elif place in LISTS and entry:
                self.below.append((entry[1], entry[2]))
            elif line == "":
                place = None if place in LISTS or place is None else place
                self.paragraphs.append([])
            else:
                self.paragraphs[-1].append(line)
        self.options = [o for o in self.options if o[1] not in ("help", "version")] + [list(o) for o in COMMON]
        self.paragraphs = [p for p in self.paragraphs if p]

    @property
    def page(self):
        return "-".join(["farcall", *self.words])


def walk(program, words=()):
    page = Help(program, list(words))
    yield page
    for name, _ in page.below:
        yield from walk(program, (*words, name))


def bold(text):
    return "\\fB" + escape(text) + "\\fP"


def usage(text):
    """Words in capitals are to be replaced; the others are typed."""
    return " ".join(re.sub(r"[A-Z][A-Z_]*[A-Z]|\bN\b", lambda m: "\\fI" + m[0] + "\\fP", escape(word)) for word in text.split())


def write_page(folder, page, about, pages, version):
    out = ['.\\" Written from the output of --help by man/commands.py.',
           '.TH "%s" "1" "" "farcall %s" "Farcall"' % (page.page.upper(), version),
           ".SH NAME", "%s \\- %s" % (escape(page.page).replace("\\-", "-"), escape(about)),
           ".SH SYNOPSIS", usage(page.usage), ".SH DESCRIPTION"]
    for paragraph in page.paragraphs:
        indented = all(line.startswith("  ") for line in paragraph)
        out += [".PP"] + ([".nf"] if indented else [])
        lines = paragraph if indented else [" ".join(paragraph)]
        out += ["\\&" + escape(line) for line in lines] + ([".fi"] if indented else [])
    if page.below:
        out += [".SH COMMANDS"]
        for name, text in page.below:
            out += [".TP", bold(page.page.replace("-", " ") + " " + name), escape(text) +
                    ": \\fB%s\\-%s\\fP(1)" % (escape(page.page), name)]
    out += [".SH OPTIONS"]
    for letter, name, value, text in page.options:
        flag = bold("--" + name) + (" \\fI" + escape(value) + "\\fP" if value else "")
        out += [".TP", (bold("-" + letter) + ", " if letter else "") + flag, "\\&" + escape(text)]
    near = [p.page for p in pages if p is not page and (p.words[:-1] == page.words[:-1] or p.words == page.words[:-1])]
    if page.page == "farcall":
        out += [".SH ENVIRONMENT", "SETTINGS.md of the documentation names every variable."]
    refs = ["\\fB%s\\fP(1)" % escape(name) for name in near] + ["\\fBfarcall\\fP(7)"]
    out += [".SH SEE ALSO", ",\n".join(refs)]
    (folder / (page.page + ".1")).write_text("\n".join(out) + "\n", encoding="utf-8")


def quote(text):
    return "'" + text.replace("'", "'\\''") + "'"


def bash(pages):
    out = ["# bash completion for farcall. Written from the output of --help by man/commands.py.", "",
           "_farcall()", "{", '\tlocal current=${COMP_WORDS[COMP_CWORD]} command="" i word words',
           "\tfor ((i = 1; i < COMP_CWORD; i++)); do", "\t\tword=${COMP_WORDS[i]}",
           '\t\tif [[ $word == -- ]]; then', '\t\t\tif declare -F _command_offset >/dev/null; then',
           "\t\t\t\t_command_offset $((i + 1))", "\t\t\telse", '\t\t\t\tmapfile -t COMPREPLY < <(compgen -c -- "$current")',
           "\t\t\tfi", "\t\t\treturn", "\t\tfi", '\t\tcase "$command $word" in']
    for page in pages:
        for name, _ in page.below:
            before = " ".join(page.words)
            out.append("\t\t%s) command=%s ;;" % (quote(before + " " + name), quote(" ".join([*page.words, name]))))
    out += ["\t\tesac", "\tdone", "\tcase $command in"]
    for page in pages:
        words = [name for name, _ in page.below] + ["--" + o[1] for o in page.options]
        out += ["\t%s) words=%s ;;" % (quote(" ".join(page.words)), quote(" ".join(words)))]
    out += ["\tesac", '\tmapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")',
            '\tif [[ ${#COMPREPLY[@]} -eq 0 || -n $command && -z $current ]]; then',
            '\t\tmapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$current")', "\tfi", "}",
            "complete -o filenames -F _farcall farcall", ""]
    return "\n".join(out)


def zsh(pages):
    def clean(text):
        return re.sub(r"([\[\]:\\])", r"\\\1", text)

    out = ["#compdef farcall", "# zsh completion for farcall. Written from the output of --help by man/commands.py.", ""]
    for page in pages:
        out += ["%s() {" % ("_" + page.page.replace("-", "_"))]
        specs = []
        for letter, name, value, text in page.options:
            value = ":%s:%s" % (clean(value), "_files" if value == "FILE" else " ") if value else ""
            body = "[%s]%s" % (clean(text), value)
            specs += [quote("(-%s --%s)" % (letter, name)) + "{-%s,--%s}" % (letter, name) + quote(body) if letter else
                      quote("--" + name + body)]
        if page.below:
            specs += [quote("1:command:->command"), quote("*::argument:->argument")]
            out += ["\tlocal context state state_descr line", "\ttypeset -A opt_args"]
        elif " -- PROGRAM" in page.usage:
            specs += [quote("(-)*:::program:_normal")]
        else:
            specs += [quote("*:file:_files")]
        out += ["\t_arguments -s -S \\" if not page.below else "\t_arguments -C \\"]
        out += ["\t\t" + spec + " \\" for spec in specs[:-1]] + ["\t\t" + specs[-1]]
        if page.below:
            out += ["\tcase $state in", "\tcommand)", "\t\tlocal -a commands=("]
            out += ["\t\t\t" + quote(name + ":" + clean(text)) for name, text in page.below]
            out += ["\t\t)", "\t\t_describe command commands", "\t\t;;", "\targument)", "\t\tcase $words[1] in"]
            out += ["\t\t%s) _%s_%s ;;" % (name, page.page.replace("-", "_"), name) for name, _ in page.below]
            out += ["\t\tesac", "\t\t;;", "\tesac"]
        out += ["}", ""]
    return "\n".join(out + ['_farcall "$@"', ""])


def main(program, version, man1, to_bash, to_zsh):
    pages = list(walk(program))
    about = {"-".join([page.page, name]): text for page in pages for name, text in page.below} | ABOUT
    folder = pathlib.Path(man1)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for page in pages:
        write_page(folder, page, about[page.page], pages, version)
    pathlib.Path(to_bash).write_text(bash(pages), encoding="utf-8")
    pathlib.Path(to_zsh).write_text(zsh(pages), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
