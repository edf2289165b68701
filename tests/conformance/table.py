#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes tests/conformance/README.md of what the conformance tests said.

usage: table.py --write|--check|--print RESULTS MODE...

RESULTS/MODE has a file for each test that ran in that mode, "passed" or "failed"; reference.txt beside this program
lists the tests of the reference and what is left out. --check fails when README.md differs from what it would be.
"""
import difflib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
README = os.path.join(HERE, "README.md")
HEAD = """# Conformance

The tests of torch.distributed.rpc and paddle.distributed.rpc, in C: one function for each, under its name, that asserts the value, the class of the
error or the counter which the original asserts; the comment of those that were easily passed by accident names a defect that they find. Four workers, each a process, all of them caller and callee; every test has a group of its own, joins,
and leaves with nothing of any reference left. `conformance.sh MODE PROGRAM RESULTS [--filter 'I2/*']` runs them over one sort of network:

{modes}

Over RDMA devices (soft-RoCE) and network cards (virtio-net and e1000e by DPDK) they run in an emulated machine, a part of them in the suite `vm`; all of them by
`sh tests/vm/vm.sh --build BUILD --limit 1700 conformance verbs all`, and with `--memory 3072` and four cards, `--nic virtio-net-pci@hub0 --nic e1000e@hub0` twice,
`conformance cards uio_pci_generic all`, about ten minutes; with `--siw` `conformance iwarp all`; and between two machines, two workers in each, by soft-RoCE
`--pair --nic virtio-net-pci@wire conformance_pair all`. All 290 had passed by each of them before some came to assert more; by soft-RoCE in one machine and in two, and by siw, with ASan and
UBSan, too. They have no column.

This page is made by `table.py --write` of what the tests said, and compared with it in each run of them. A reference test is covered when its test
passed over every network, but for the exceptions below; one that did not run is not covered.

"""
ALL = (456, 11)  # of torch.distributed.rpc, without those that need a GPU or are about TorchScript alone; of Paddle
ABOUT = {
    "shm": "shared memory",
    "udp": "UDP on the loopback",
    "lossy": "the same, where 1 % of the packets each are lost, repeated, late, out of order and damaged",
    "memif": "DPDK, a memif between each two workers",
}


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
        text += f"- {group}: {', '.join(names)}\n"
    text += "\n## Exceptions\n\n"
    for (test, mode), reason in excepted.items():
        text += f"- {test}{' over ' + mode if mode else ''}: {reason}\n"
    for test, where in lacking:
        what = "there is no such test yet" if len(where) == len(modes) and not any(
            test in said[m] for m in modes) else "did not pass over " + ", ".join(where)
        text += f"- {test}: {what}\n"
    if (total - of_paddle, of_paddle) != ALL:
        sys.exit(f"table.py: reference.txt lists {total - of_paddle} tests and {of_paddle} of Paddle; there are {ALL[0]} and {ALL[1]}")
    text += f"\nAll portable tests of the reference are listed: {total - of_paddle} of torch.distributed.rpc, {of_paddle} of paddle.distributed.rpc.\n"
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
