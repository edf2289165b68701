#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes tests/conformance/README.md from the results of the conformance tests.

usage: table.py --write|--check|--print RESULTS MODE...

RESULTS/MODE has a file for each test that ran in that mode, "passed" or "failed"; reference.txt beside this program
lists the tests of the reference and what is left out. --check fails when README.md differs from what it would be.
"""
import difflib
import os
import sys
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
README = os.path.join(HERE, "README.md")
HEAD = """# Conformance

The tests of torch.distributed.rpc and paddle.distributed.rpc in C: one function per reference test, under its name. It
asserts the value, the class of the error or the counter that the original asserts. Where a test could pass by accident,
its comment names a defect that it finds. Each test has a group of four workers, one process each, all of them callers
and callees. The group joins, and leaves with no reference left.

`conformance.sh MODE PROGRAM RESULTS [--filter 'I2/*']` runs the tests over one kind of network:

{modes}

Over RDMA devices (soft-RoCE, siw) and network cards (virtio-net and e1000e with DPDK) the tests run in emulated
machines; the suite `vm` runs a part of them. These commands run all of them and have no column below:

| network | arguments of `sh tests/vm/vm.sh --build BUILD --limit 1700` |
|---|---|
| soft-RoCE | `conformance verbs all` |
| iWARP | `--siw conformance iwarp all` |
| cards | `--memory 3072`, twice `--nic virtio-net-pci@hub0 --nic e1000e@hub0`, `conformance cards DRIVER all` |
| soft-RoCE, two machines | `--pair --nic virtio-net-pci@wire conformance_pair all` |

DRIVER is `uio_pci_generic`. The run over cards takes about ten minutes.

`table.py --write` makes this page from the results, and each run compares the page with them. A reference test is
covered when its test passed over every network, except those under "Exceptions". A test that did not run is not
covered.

"""
ALL = (456, 11)  # of torch.distributed.rpc, without those that need a GPU or are about TorchScript alone; of Paddle
ABOUT = {
    "shm": "shared memory",
    "udp": "UDP on the loopback",
    "lossy": "UDP with 1 % each of lost, duplicate, late, reordered and damaged packets",
    "memif": "DPDK, a memif between every two workers",
}


def item(text):
    """A list item in lines of at most 120 columns."""
    return textwrap.fill(text, 120, initial_indent="- ", subsequent_indent="  ", break_long_words=False,
                         break_on_hyphens=False) + "\n"


def read_reference():
    """Groups as (id, behaviour, names), and exceptions as {(test or GROUP.*, mode or None): reason}."""
    groups, excepted = [], {}
    with open(os.path.join(HERE, "reference.txt"), encoding="utf-8") as f:
        for line in f.read().splitlines():
            if line.startswith("except "):
                name, reason = line[len("except "):].split(": ", 1)
                test, _, mode = name.partition("@")
                excepted[test, mode or None] = reason
            elif line and not line.startswith("#"):
                group, behaviour, names = line.split(" | ")
                groups.append((group, behaviour, names.split()))
    return groups, excepted


def read_results(results, mode):
    said = {}
    path = os.path.join(results, mode)
    if not os.path.isdir(path) or not os.listdir(path):
        sys.exit(f"table.py: {path} has no results; run the test conformance-{mode} first")
    for test in os.listdir(path):
        with open(os.path.join(path, test), encoding="utf-8") as f:
            said[test] = f.read().strip()
    return said


def make(results, modes):
    groups, excepted = read_reference()
    said = {mode: read_results(results, mode) for mode in modes}
    known = {f"{group}.{name.replace('.', '_')}" for group, _, names in groups for name in names}
    for mode in modes:
        strange = sorted(set(said[mode]) - known)
        if strange:
            sys.exit(f"table.py: {strange[0]} ran over {mode}, and reference.txt does not have it")
    text = HEAD.format(modes="\n".join(f"- `{mode}`: {ABOUT[mode]}" for mode in modes))
    text += "| id | behaviour | covered | " + " | ".join(modes) + " |\n|---|---|---|" + "---|" * len(modes) + "\n"
    covered_all = total = of_paddle = 0
    lacking = []
    for group, behaviour, names in groups:
        passed = dict.fromkeys(modes, 0)
        covered = 0
        for name in names:
            test = f"{group}.{name.replace('.', '_')}"
            left_out = (test, None) in excepted or (f"{group}.*", None) in excepted
            good = not left_out
            for mode in modes:
                ok = said[mode].get(test) == "passed"
                passed[mode] += ok
                good = good and (ok or (test, mode) in excepted)
            good = good and any(said[mode].get(test) == "passed" for mode in modes)
            covered += good
            if not good and not left_out:
                lacking.append((test, [m for m in modes if said[m].get(test) != "passed"]))
        covered_all += covered
        total += len(names)
        of_paddle += len(names) if group == "Paddle" else 0
        text += f"| {group} | {behaviour} | {covered} of {len(names)} | "
        text += " | ".join(str(passed[mode]) for mode in modes) + " |\n"
    text += "\n## Reference tests\n\n"
    for group, _, names in groups:
        text += item(f"{group}: {', '.join(names)}")
    text += "\n## Exceptions\n\n"
    for (test, mode), reason in excepted.items():
        text += item(f"{test}{' over ' + mode if mode else ''}: {reason}")
    for test, where in lacking:
        what = "there is no such test yet" if len(where) == len(modes) and not any(
            test in said[m] for m in modes) else "did not pass over " + ", ".join(where)
        text += item(f"{test}: {what}")
    if (total - of_paddle, of_paddle) != ALL:
        sys.exit(f"table.py: reference.txt lists {total - of_paddle} tests and {of_paddle} of Paddle; there are {ALL[0]} and {ALL[1]}")
    text += (f"\nAll portable tests of the reference are listed: {total - of_paddle} of torch.distributed.rpc, "
             f"{of_paddle} of paddle.distributed.rpc.\n")
    return text + f"\nreference tests covered: {covered_all} of {total}\n"


def main():
    if len(sys.argv) < 4 or sys.argv[1] not in ("--write", "--check", "--print"):
        sys.exit(__doc__)
    text = make(sys.argv[2], sys.argv[3:])
    if sys.argv[1] == "--write":
        with open(README, "w", encoding="utf-8") as f:
            f.write(text)
    elif sys.argv[1] == "--print":
        print(text, end="")
    else:
        with open(README, encoding="utf-8") as f:
            old = f.read()
        sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), text.splitlines(True), "README.md", "the tests say"))
        if old != text:
            sys.exit("table.py: README.md is not what the tests said; table.py --write renews it")
    print(text.splitlines()[-1], file=sys.stderr)


main()
