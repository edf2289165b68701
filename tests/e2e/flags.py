#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Walks over every program and subcommand: --help prints on stdout and returns 0; each flag of a help text refuses what
it cannot take with status 2 and a message that names it. So do the arguments of the examples.
usage: flags.py FARCALL PROGRAM... --examples PROGRAM..."""
import os
import re
import subprocess
import sys

GUARD_S = 60  # a bound against hangs: nothing here measures
WRONG = ["x", "-1", "1e", "nan", "0x10", "1 2", "99999999999999999999999999", "9" * 400]
failures = []
checks = 0


def check(name, holds, shown):
    global checks
    checks += 1
    if not holds:
        failures.append(name)
        print("FAIL %s\n  %s" % (name, shown))


def run(arguments):
    try:
        return subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=GUARD_S)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(arguments, -1, "", "did not end in %d s" % GUARD_S)


def command(program):
    by = {"py": [sys.executable], "sh": ["sh"]}
    return by.get(program.rpartition(".")[2], []) + [program]


def help_of(words):
    r = run(words + ["--help"])
    check("%s --help" % " ".join(words), r.returncode == 0 and r.stdout and not r.stderr, repr(r))
    return r.stdout


def listed(text):
    """Commands of a help text."""
    return re.findall(r"^  ([a-z][a-z0-9_-]*)  ", text, re.M)


def refuses(words, mention):
    r = run(words)
    name = " ".join(w if len(w) < 40 else w[:37] + "..." for w in words[1:])
    remedy = re.search(r"^Try '.* --help'\.$", r.stderr, re.M)
    check(name, r.returncode == 2 and mention in r.stderr and remedy and not r.stdout,
          "status %d: %s" % (r.returncode, r.stderr.strip()[-300:]))


def valued(words, flag):
    empty = run(words + [flag, ""])
    refuses(words + [flag, ""], flag)
    refuses(words + [flag], flag + " needs a value")
    if "the value is empty" not in empty.stderr:  # no text
        for wrong in WRONG:
            refuses(words + [flag, wrong], flag)


def walk(words):
    text = help_of(words)
    refuses(words + ["--frobnicate"], "unknown option --frobnicate")
    refuses(words + ["-Z"], "unknown option -Z")
    for flag, value in re.findall(r"^  (?:-\w, |    )--([a-z0-9-]+)(?: (\S+))? ", text, re.M):
        flag = "--" + flag
        if flag in ("--help", "--version"):
            continue
        if value:
            valued(words, flag)
        else:
            refuses(words + [flag + "=x"], flag + "=x takes no value")


def walk_example(program):
    text = help_of([program])
    name = os.path.basename(program)
    check(name + ": usage", re.match(r"usage: (farcall run .*-- )?\S*/%s( |$)" % name, text.split("\n")[0]), text)
    refuses([program, "--frobnicate"], "unknown option --frobnicate")
    refuses([program, "-Z"], "unknown option -Z")
    arguments = re.findall(r"^  ([A-Z][A-Z.]*)  .*?(?:\(default: (\d+)\))?$", text, re.M)
    given = [default or "x" for _, default in arguments]
    refuses([program] + given + ["more"], "unexpected argument 'more'")
    for i, (argument, default) in enumerate(arguments):
        if default:
            for wrong in WRONG + ["", "0.5"]:
                refuses([program] + given[:i] + [wrong], argument + ": '")
        else:
            refuses([program] + given[:i], argument + " is missing")


def main(farcall, programs, examples):
    top = help_of([farcall])
    for word in listed(top):
        if word == "perf":
            for measurement in listed(help_of([farcall, word])):
                if measurement == "sim":
                    for figure in listed(help_of([farcall, word, measurement])):
                        walk([farcall, word, measurement, figure])
                else:
                    walk([farcall, word, measurement])
        else:
            walk([farcall, word])
    for program in programs:
        help_of(command(program))
    for program in examples:
        walk_example(program)
    print("%d checks, %d failed" % (checks, len(failures)))
    return bool(failures)


if __name__ == "__main__":
    at = sys.argv.index("--examples")
    sys.exit(main(sys.argv[1], sys.argv[2:at], sys.argv[at + 1:]))
