#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What tests/suites.py makes of tests that fail: of a build directory with planted ones.

usage: suites.py TESTS/SUITES.PY
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

# Counts its runs in a file of its name, and is the only test that runs, or says so.
COUNT = 'echo "$0" >>runs; n=$(grep -cxF "$0" runs); '
ONCE = COUNT + "[ $n -gt 1 ]"
ALWAYS = COUNT + "exit 1"
WELL = COUNT + "true"
ALONE = COUNT + "if [ $n -gt 1 ]; then [ ! -e busy ]; else exit 1; fi"
BUSY = COUNT + "touch busy; sleep 1; rm busy"
CRASHES = COUNT + "kill -SEGV $$"
TAP_CRASHES = COUNT + "printf 'TAP version 13\\n1..1\\nnot ok - a::b unexpected signal after x.c:3\\n'; exit 1"
TAP_ONCE = COUNT + "printf 'TAP version 13\\n1..2\\nok - a::b\\n'; [ $n -gt 1 ] || exit 1; echo ok - a::c"
OWN_ALWAYS = COUNT + "echo 'FAIL one case'; echo '3 passed, 2 failed, 0 skipped'; exit 1"
SKIPS = COUNT + "echo 'SKIP: case: missing right: root'; echo '1 passed, 0 failed, 1 skipped'"
MAKES = COUNT + "[ $n -gt 1 ] && touch made"
READS = COUNT + "[ -e made ]"

failed = 0


def planted(name, body, suites=("unit",), parallel=True, priority=0):
    return {"name": name, "cmd": ["sh", "-c", body, name], "env": {}, "timeout": 600, "is_parallel": parallel,
            "priority": priority, "suite": ["farcall:" + s for s in suites]}


def text(path):
    return path.read_text(encoding="utf-8") if path.exists() else ""


class Ran:
    """What a run of these tests printed and left."""

    def __init__(self, suites_py, tests, names=("unit",), strict="0"):
        with tempfile.TemporaryDirectory() as d:
            build = pathlib.Path(d)
            (build / "meson-info").mkdir()
            (build / "meson-info" / "intro-tests.json").write_text(json.dumps(tests), encoding="utf-8")
            done = subprocess.run([sys.executable, suites_py, d, "planted", build / "counts", *names], check=True,
                                  env={**os.environ, "FAR_TESTS_STRICT": strict}, stdout=subprocess.PIPE, text=True)
            self.out = done.stdout
            self.counts = text(build / "counts").split("\n")[:-1]
            self.failed = text(build / "counts.failed")
            self.once = text(build / "counts.once")
            self.runs = text(build / "runs").split()
            self.tests = [json.loads(line) for line in text(build / "tests-planted.json").splitlines()]


def check(what, ran, holds):
    global failed
    if not holds:
        failed += 1
        print(f"FAIL {what}\n{ran.out}\ncounts {ran.counts}, failed: {ran.failed!r}, once: {ran.once!r}, runs {ran.runs}")


def main():
    suites_py = sys.argv[1]

    ran = Ran(suites_py, [planted("once", ONCE), planted("well", WELL)])
    check("a test that fails once passes and is named", ran,
          ran.counts == ["2 0 0"] and not ran.failed and "FAILED ONCE: planted, unit: once" in ran.once and
          "UNSTEADY: planted, unit: once" in ran.out and ran.runs.count("once") == 2 and ran.runs.count("well") == 1 and
          [t["second_run"] for t in ran.tests if t["name"] == "once"] == [True] and len(ran.tests) == 2)

    ran = Ran(suites_py, [planted("cases", TAP_ONCE), planted("own", OWN_ALWAYS)])
    check("cases count by the second run", ran,
          ran.counts == ["5 2 0"] and "FAILED: planted, unit: own" in ran.failed and "cases" not in ran.failed)

    ran = Ran(suites_py, [planted(name, ALWAYS) for name in ("a", "b", "c")])
    check("two tests run again, and each failure counts once", ran,
          ran.counts == ["0 3 0"] and len(ran.runs) == 5 and ran.failed.count("FAILED: ") == 3 and "UNSTEADY" not in ran.out)

    ran = Ran(suites_py, [planted("alone", ALONE), planted("busy", BUSY), planted("busy2", BUSY, parallel=False)])
    check("the second run is alone", ran, ran.counts == ["3 0 0"])

    ran = Ran(suites_py, [planted("makes", MAKES, parallel=False), planted("reads", READS, parallel=False, priority=-100)])
    check("the second run comes before tests of lower priority", ran, ran.counts == ["2 0 0"] and ran.runs.count("reads") == 1)

    same = [planted("sim", ONCE, ("sim", "sanitize")), planted("fuzz", ONCE, ("sanitize", "fuzz"))]
    ran = Ran(suites_py, same, names=("sanitize",))
    check("what does the same each time runs once, in whichever suite", ran, ran.counts == ["0 2 0"] and len(ran.runs) == 2)

    ran = Ran(suites_py, [planted("crash", CRASHES), planted("case", TAP_CRASHES)])
    check("a crash is no matter of time", ran, ran.counts == ["0 2 0"] and len(ran.runs) == 2 and not ran.once)

    skips = [planted("skips", SKIPS), planted("exits", COUNT + "exit 77")]
    ran = Ran(suites_py, skips + [planted("once", ONCE)], strict="1")
    check("a skip that counts as a failure does not run again", ran,
          ran.counts == ["2 2 0"] and len(ran.runs) == 4 and "FAILED ONCE: planted, unit: once" in ran.once)
    ran = Ran(suites_py, skips)
    check("a skip is counted as one", ran, ran.counts == ["1 0 2"] and not ran.failed)

    ran = Ran(suites_py, [planted("once", ONCE), planted("well", WELL, ("e2e",))], names=("unit", "e2e"))
    check("each suite has its counts", ran, ran.counts == ["1 0 0", "1 0 0"])
    sys.exit(failed > 0)


main()
