#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs a list of commands of nic/SETUP.md as root, and compares what they print with what the page has below them.

usage: setup_page.py PAGE NAME [FROM=TO]...

The list is the block of code behind `<!-- tested: NAME -->`. FROM and TO are names of interfaces and addresses of cards:
the page's, and this machine's. Below a command, behind `# `, are lines of its output in their order, others between them
left out; `*` stands for anything. The exit status is 0 when every command succeeded and every line was there.
"""
import re
import subprocess
import sys

LIMIT_S = 120  # of one command


def block(page, name):
    found = re.search(r"<!-- tested: %s -->\n```\n(.*?)```\n" % re.escape(name), page, re.S)
    if not found:
        sys.exit("setup_page.py: the page has no list '%s'" % name)
    steps = []
    for line in found.group(1).splitlines():
        if line.startswith("# "):
            steps.append((line[2:], []))
        elif not steps:
            sys.exit("setup_page.py: '%s' begins with output" % name)
        else:
            steps[-1][1].append(line)
    if len(steps) < 3 or sum(bool(lines) for _, lines in steps) < 2:
        sys.exit("setup_page.py: '%s' has too little to show anything" % name)
    return steps


def pattern(line):
    return re.compile(".*".join(re.escape(part) for part in line.rstrip().split("*")))


def compare(wanted, printed):
    """The first line of the page that is not there; None: all are."""
    at = 0
    for line in wanted:
        fits = pattern(line)
        while at < len(printed) and not fits.fullmatch(printed[at].rstrip()):
            at += 1
        if at == len(printed):
            return line
        at += 1
    return None


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        page = file.read()
    names = dict(word.split("=", 1) for word in sys.argv[3:])
    for command, wanted in block(page, sys.argv[2]):
        for before, after in names.items():
            command = command.replace(before, after)
            wanted = [line.replace(before, after) for line in wanted]
        print("#", command, flush=True)
        run = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             stdin=subprocess.DEVNULL, timeout=LIMIT_S)
        print(run.stdout, flush=True)
        if run.returncode:
            sys.exit("setup_page.py: '%s' ended with status %d" % (command, run.returncode))
        missing = compare(wanted, run.stdout.splitlines())
        if missing is not None:
            sys.exit("setup_page.py: '%s' has not printed, or not in this order: %s" % (command, missing))


main()
