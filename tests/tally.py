#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Counts the test cases of one `meson test`, from its testlog.json, and shows what failed or was skipped.

usage: tally.py LOG LABEL COUNTS

A test that prints TAP (Criterion) counts by its cases; one whose last line is "N passed, N failed, N skipped" counts as
it says; any other is one case. Its skips are the lines "SKIP: ..." (with FAR_TESTS_STRICT=1 they count as failed) and
"SKIP-DATA: ..." (missing external data). Lines "SCRIPT.sh: WARNING: ..." are shown, once. One line of counts is
appended to the file COUNTS. The tests that took longest are named.
"""
import json
import os
import re
import sys

STRICT = os.environ.get("FAR_TESTS_STRICT") == "1"
OWN_COUNT = re.compile(r"(\d+) passed, (\d+) failed, (\d+) skipped$")
WARNING = re.compile(r"[\w-]+\.sh: WARNING: ")
TAP_CASE = re.compile(r"(not )?ok\b(.*)$")
OUTPUT_LINES = 60  # of a failed test
SAID = re.compile(r"(FAIL|not ok)\b")
SAID_LINES = 12  # that say what failed; they come first, as whoever shows this may cut it
SLOW = 6  # tests that are named
SLOW_S = 10.0  # when they took so long at least


def count_own(lines):
    m = OWN_COUNT.match(lines[-1]) if lines else None
    return [int(n) for n in m.groups()] if m else None


def count_tap(lines):
    if not lines or not lines[0].startswith("TAP version"):
        return None
    passed = failed = skipped = 0
    for line in lines:
        m = TAP_CASE.match(line)
        if m and m.group(1):
            failed += 1
        elif m and re.search(r"#\s*SKIP", m.group(2), re.I):
            skipped += 1
        elif m:
            passed += 1
    planned = [int(line[3:]) for line in lines if re.match(r"1\.\.\d+$", line)]
    # Cases that were announced and never came: the program crashed, or was ended by the guard.
    missing = max(0, sum(planned) - passed - failed - skipped)
    return [passed, failed + missing, skipped]


def count_test(test):
    """[passed, failed, skipped] and the lines that tell of skips."""
    lines = test.get("stdout", "").splitlines()
    skips = [line for line in lines if line.startswith(("SKIP:", "SKIP-DATA:"))]
    result = test["result"]
    counts = count_own(lines) or count_tap(lines)
    if counts is None:
        counts = [0, 0, 1] if result == "SKIP" else [1, 0, 0] if result == "OK" else [0, 1, 0]
        if result == "SKIP" and not skips:
            skips = ["SKIP: " + test["name"].split(" / ")[-1] + ": it does not say which right is missing"]
    if result not in ("OK", "SKIP") and counts[1] == 0:
        counts[1] = 1
    if STRICT:
        excused = min(counts[2], sum(line.startswith("SKIP-DATA:") for line in skips))
        counts[1] += counts[2] - excused
        counts[2] = excused
    return counts, skips


def main():
    log, label, out = sys.argv[1:]
    total = [0, 0, 0]
    times = []
    warnings = set()
    with open(log, encoding="utf-8", errors="replace") as f:
        for line in f:
            test = json.loads(line)
            name = test["name"].split(" / ")[-1]
            counts, skips = count_test(test)
            total = [a + b for a, b in zip(total, counts)]
            times.append((test["duration"], name))
            for skip in skips:
                print(skip)
            said = test.get("stdout", "").splitlines() + test.get("stderr", "").splitlines()
            for warning in sorted(set(filter(WARNING.match, said)) - warnings):
                warnings.add(warning)
                print(warning)
            if not counts[1]:
                continue
            print(f"FAILED: {label}: {name} ({test['result'].lower()}, {test['duration']:.1f} s)")
            for text in list(filter(SAID.match, said))[:SAID_LINES]:
                print(f"  {text}")
            for stream in "stdout", "stderr":
                for text in test.get(stream, "").splitlines()[-OUTPUT_LINES:]:
                    print(f"  {text}")
    slow = [f"{name} {s:.0f} s" for s, name in sorted(times, reverse=True)[:SLOW] if s >= SLOW_S]
    if slow:
        print(f"tests: {label}: longest: {', '.join(slow)}")
    with open(out, "a", encoding="utf-8") as f:
        print(*total, file=f)


main()
