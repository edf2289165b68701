#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs suites of a build directory, prints their progress, counts their test cases.

usage: suites.py BUILD LABEL COUNTS SUITE...
       suites.py --targets BUILD SUITE...    what ninja has to build for these suites
       suites.py --objects BUILD SUITE...    the objects of all other programs and libraries
       suites.py --times BUILD/tests-LABEL.json...    seconds and processor seconds of a former run, by suite and test

Tests of all these suites run side by side: as many as there are cores, and beside them as many of the suite "sleeps",
which wait most of the time. While cores are idle, more start, four a second at most, up to twice as many as there are
cores; but no more tests with emulated machines than cores. A test with `is_parallel: false` runs alone, after the
others. The test with the highest priority starts first. A test runs as `meson test` runs it: in a session of its own,
with the time limit that meson.build gives it, and with MALLOC_PERTURB_. SUITE!OTHER: the tests of SUITE that are not of
OTHER.

A test that fails and depends on real time runs once more, alone, after the tests that share the machine: at most two
tests in a run, none of the simulator's or the models', which do the same each time, and none that crashed or was skipped.
If it passes then, it counts as passed, is printed as UNSTEADY, and its first output is in COUNTS.once: a fault of the
test, of the product or of the machine, to be found.

A test that prints TAP (Criterion) counts by its cases. One whose last line is "N passed, N failed, N skipped" counts as
this line says. Any other is one case; exit status 77 is a skip. The lines "SKIP: ..." name what was skipped (with
FAR_TESTS_STRICT=1 such skips count as failures), and "SKIP-DATA: ..." names missing external data. Lines
"SCRIPT.sh: WARNING: ..." are printed, once.

One line of counts per suite is appended to the file COUNTS, and what failed to COUNTS.failed. BUILD/tests-LABEL.json
keeps, for each test, its result, seconds, processor seconds and output.
"""
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

STRICT = os.environ.get("FAR_TESTS_STRICT") == "1"
OWN_COUNT = re.compile(r"(\d+) passed, (\d+) failed, (\d+) skipped$")
WARNING = re.compile(r"[\w-]+\.sh: WARNING: ")
TAP_CASE = re.compile(r"(not )?ok\b(.*)$")
FAILURE = re.compile(r"FAIL\b|not ok\b|SKIP:")
# What is printed of a failed test: the end of its output comes first, because a reader may see only the beginning.
FAILURE_LINES = 12
AGAIN_LINES = 6  # of the end of its output, in COUNTS.failed
END_LINES = 40
OUTPUT_LINES = 80  # before the end
SLOW = 6  # tests that are named
SLOW_S = 10.0  # if they took this long
PROGRESS_S = 20.0  # between two lines of progress
KILL_S = 5.0  # from SIGTERM to SIGKILL, when the time limit of a test is over
IDLE_S = 0.25  # the time over which idle cores are counted
IDLE_CORES = 0.3  # as many idle start one more test
TICK_S = 1.0  # a longer gap between two looks at the tests is time in which the machine stood still
SKIPPED = 77
SECOND_RUNS = 2  # tests that run once more after a failure
SAME_EACH_TIME = {"sim", "sim-long", "fuzz", "models", "arm64", "install", "debian"}  # suites: once is enough
# How a program, `farcall run`, a shell and Criterion report one of these signals, which no slow machine sends.
CRASHES = {signal.SIGILL, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV}
CRASH = re.compile(r"not ok .*unexpected signal|.*was killed by signal (4|7|8|11)\b")


class Test:
    def __init__(self, t, suite):
        self.name = t["name"]
        self.suite = suite
        self.cmd = t["cmd"]
        self.env = t["env"]
        self.limit = t["timeout"] or None
        self.alone = not t["is_parallel"]
        self.priority = t["priority"]
        suites = {s.split(":")[-1] for s in t["suite"]}
        self.sleeps = "sleeps" in suites
        self.emulates = bool(suites & {"vm", "vm-sanitize"})
        self.same_each_time = bool(suites & SAME_EACH_TIME)
        self.process = None
        self.out = self.err = None
        self.began = self.duration = self.processor = 0.0
        self.result = ""
        self.used = 0.0  # seconds of its time limit
        self.ended_at = None  # `used` when its time limit ended it
        self.second = False  # it failed and runs once more

    def start(self, build):
        env = {**os.environ, **self.env}
        env.setdefault("MALLOC_PERTURB_", str(random.randint(1, 255)))
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.began = time.monotonic()
        self.process = subprocess.Popen(self.cmd, cwd=build, env=env, stdin=subprocess.DEVNULL, stdout=self.out,
                                        stderr=self.err, start_new_session=True)

    def kill(self, how):
        try:
            os.killpg(self.process.pid, how)
        except (ProcessLookupError, PermissionError):
            pass

    def again(self):
        self.second = self.alone = True
        self.used, self.ended_at = 0.0, None

    def crashed(self):
        code = self.process.returncode
        return (-code if code < 0 else code - 128) in CRASHES or any(map(CRASH.match, self.stdout + self.stderr))

    def may_run_again(self):
        """After it counted as failed, which under FAR_TESTS_STRICT a skip does."""
        return not (self.second or self.same_each_time or self.result in ("ok", "skip") or self.crashed())

    def bound(self, elapsed):
        """Ends a test whose time is over, after `elapsed` seconds in which the machine ran."""
        self.used += elapsed
        if self.ended_at is None and self.limit and self.used > self.limit:
            self.ended_at = self.used
            self.kill(signal.SIGTERM)
        elif self.ended_at is not None and self.used - self.ended_at > KILL_S:
            self.kill(signal.SIGKILL)

    def poll(self, elapsed):
        """Whether it has ended."""
        self.bound(elapsed)
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        if not pid:
            return False
        self.kill(signal.SIGKILL)  # what it left behind in its session
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.duration = time.monotonic() - self.began
        self.processor += usage.ru_utime + usage.ru_stime
        code = self.process.returncode
        self.result = ("timeout" if self.ended_at is not None else "ok" if code == 0 else "skip" if code == SKIPPED else
                       f"killed by signal {-code}" if code < 0 else f"exit status {code}")
        self.stdout, self.stderr = self.text(self.out), self.text(self.err)
        return True

    @staticmethod
    def text(file):
        file.seek(0)
        text = file.read().decode("utf-8", "replace")
        file.close()
        return text.splitlines()


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
    # A case that was announced and has no result: the program crashed, or its time limit ended it.
    missing = max(0, sum(planned) - passed - failed - skipped)
    return [passed, failed + missing, skipped]


def count_test(test):
    """[passed, failed, skipped] and the lines that name skips."""
    skips = [line for line in test.stdout if line.startswith(("SKIP:", "SKIP-DATA:"))]
    counts = count_own(test.stdout) or count_tap(test.stdout)
    if counts is None:
        counts = [0, 0, 1] if test.result == "skip" else [1, 0, 0] if test.result == "ok" else [0, 1, 0]
        if test.result == "skip" and not skips:
            skips = ["SKIP: " + test.name + ": it does not print which right is missing"]
    if test.result not in ("ok", "skip") and counts[1] == 0:
        counts[1] = 1
    if STRICT:
        excused = min(counts[2], sum(line.startswith("SKIP-DATA:") for line in skips))
        counts[1] += counts[2] - excused
        counts[2] = excused
    return counts, skips


def say(*words):
    print("tests:", *words, flush=True)


class Suite:
    """The tests of one suite, and what came of them."""

    def __init__(self, name, label, failed):
        self.name = name
        self.failed = failed  # a file
        self.once = failed.replace(".failed", ".once")  # a file
        self.label = f"{label}, {name}"
        self.tests = []
        self.left = 0
        self.began = None
        self.counts = [0, 0, 0]
        self.warnings = set()

    def started(self):
        if self.began is None:
            self.began = time.monotonic()
            say(f"{self.label}: begins, {len(self.tests)} tests")

    def take(self, test):
        counts, skips = count_test(test)
        self.counts = [a + b for a, b in zip(self.counts, counts)]
        for skip in skips:
            print(skip, flush=True)
        lines = test.stdout + test.stderr
        for warning in sorted(set(filter(WARNING.match, lines)) - self.warnings):
            self.warnings.add(warning)
            print(warning, flush=True)
        if counts[1]:
            self.show("FAILED", test, self.failed)
        self.left -= 1
        if not self.left:
            self.ended()

    def show(self, what, test, kept):
        lines = test.stdout + test.stderr
        begin = [f"{what}: {self.label}: {test.name} ({test.result}, {test.duration:.1f} s)"]
        begin += [f"  {text}" for text in filter(FAILURE.match, lines)][:FAILURE_LINES]
        print("\n".join(begin))
        with open(kept, "a", encoding="utf-8") as f:
            f.writelines(f"{text}\n" for text in begin + [f"  ... {text}" for text in lines[-AGAIN_LINES:]])
        for text in lines[-END_LINES:] + ["before that:"] + lines[-OUTPUT_LINES - END_LINES:-END_LINES]:
            print(f"  {text}")
        sys.stdout.flush()

    def ended(self):
        slow = sorted(((t.duration, t.name) for t in self.tests if t.duration >= SLOW_S), reverse=True)[:SLOW]
        if slow:
            say(f"{self.label}: longest: {', '.join(f'{name} {s:.0f} s' for s, name in slow)}")
        say("{}: {} passed, {} failed, {} skipped, {:.0f} s, {:.0f} s of processors".format(
            self.label, *self.counts, time.monotonic() - self.began, sum(t.processor for t in self.tests)))


def suite_of(t, names):
    """The first of these suites that a test belongs to, or None."""
    of = {s.split(":")[-1] for s in t["suite"]}
    for name in names:
        wanted, _, other = name.partition("!")
        if wanted in of and other not in of:
            return wanted
    return None


def read_suites(build, label, names, failed):
    """The suites, each with its tests; a test of several belongs to the first."""
    suites = {name: Suite(name, label, failed) for name in (n.partition("!")[0] for n in names)}
    for t in described(build, "tests"):
        name = suite_of(t, names)
        if name:
            suites[name].tests.append(Test(t, suites[name]))
    return list(suites.values())


def idle_s():
    """Seconds that all cores together were idle, or busy at a low priority, since the machine started."""
    with open("/proc/stat", encoding="ascii") as f:
        counts = f.readline().split()
    # Of niced processes, idle, and idle while a disk is busy.
    return sum(int(counts[i]) for i in (2, 4, 5)) / os.sysconf("SC_CLK_TCK")


class Line:
    """Tests that wait and tests that run."""

    def __init__(self, build, suites):
        self.build = build
        tests = [t for suite in suites for t in suite.tests]
        self.waiting = sorted(tests, key=self.order)
        self.all = len(tests)
        self.running = []
        self.cores = os.cpu_count() or 1
        self.began = self.reported = time.monotonic()
        self.counted = (self.began, idle_s())
        self.more = False
        self.second_runs = 0

    @staticmethod
    def order(test):
        return test.alone, -test.priority

    def count_idle(self):
        """Allows one test more than there are cores, if cores were idle since the last time."""
        (then, idle_then), now = self.counted, time.monotonic()
        if now - then < IDLE_S:
            return
        self.counted = (now, idle_s())
        self.more = self.counted[1] - idle_then > IDLE_CORES * (now - then)

    def fits(self, test):
        if test.alone or any(t.alone for t in self.running):
            return not self.running
        if test.emulates and sum(t.emulates for t in self.running) >= self.cores:
            return False
        beside = sum(t.sleeps == test.sleeps for t in self.running)
        return beside < self.cores or (self.more and not test.sleeps and beside < 2 * self.cores)

    def start(self):
        # The next test that runs alone lets no other one pass.
        for test in list(self.waiting):
            if self.fits(test):
                self.waiting.remove(test)
                test.suite.started()
                test.start(self.build)
                self.running.append(test)
                self.more = False
            elif test.alone:
                break

    def progress(self):
        now = time.monotonic()
        if now - self.reported < PROGRESS_S:
            return
        self.reported = now
        done = self.all - len(self.waiting) - len(self.running)
        names = ", ".join(f"{t.name} ({now - t.began:.0f} s)" for t in self.running)
        say(f"{done} of {self.all} tests done, {now - self.began:.0f} s; running: {names}")

    def run(self):
        polled = time.monotonic()
        while self.waiting or self.running:
            self.count_idle()
            self.start()
            now = time.monotonic()
            if now - polled > 10 * TICK_S:
                say(f"WARNING: the machine stood still for {now - polled:.0f} s; no time limit counts them")
            elapsed, polled = min(now - polled, TICK_S), now
            for test in [t for t in self.running if t.poll(elapsed)]:
                self.running.remove(test)
                if not self.again(test):
                    yield test
            self.progress()
            time.sleep(0.02)

    def again(self, test):
        """Whether this test, which has ended, runs once more."""
        failed = count_test(test)[0][1] > 0
        if test.second and not failed:
            say(f"UNSTEADY: {test.suite.label}: {test.name} failed, and passed when it ran once more, alone")
        if not failed or not test.may_run_again() or self.second_runs == SECOND_RUNS:
            return False
        self.second_runs += 1
        test.suite.show("FAILED ONCE", test, test.suite.once)
        test.again()
        # Before those of lower priority, which may read what it writes.
        self.waiting.append(test)
        self.waiting.sort(key=self.order)
        return True

    def stop(self):
        for test in self.running:
            test.kill(signal.SIGTERM)
        time.sleep(1)
        for test in self.running:
            test.kill(signal.SIGKILL)


def times(path):
    with open(path, encoding="utf-8") as f:
        tests = [json.loads(line) for line in f]
    print(f"{path}\n  seconds  processor  tests")
    for suite in sorted({t["suite"] for t in tests}):
        of = sorted((t for t in tests if t["suite"] == suite), key=lambda t: -t["processor"])
        print("{:9.0f} {:10.0f} {:6}  {}: {}".format(
            sum(t["duration"] for t in of), sum(t["processor"] for t in of), len(of), suite,
            ", ".join(f"{t['name']} {t['processor']:.0f}" for t in of[:SLOW])))


def described(build, name):
    with open(os.path.join(build, "meson-info", f"intro-{name}.json"), encoding="utf-8") as f:
        return json.load(f)


def needed(build, names):
    """Targets that the tests of these suites name, and all shared objects: programs load them when they need them."""
    named = {d for t in described(build, "tests") if suite_of(t, names) for d in t["depends"]}
    return [t for t in described(build, "targets") if t["id"] in named or
            (t["type"] in ("shared library", "shared module") and t["build_by_default"])]


def targets(build, names):
    for t in needed(build, names):
        print(*(os.path.relpath(name, build) for name in t["filename"]))


def objects(build, names):
    """Each belongs to a target FILE, and is below FILE.p/."""
    left = {t["id"] for t in needed(build, names)}
    of = tuple(os.path.relpath(name, build) + ".p/" for t in described(build, "targets")
               if t["build_by_default"] and t["id"] not in left for name in t["filename"])
    for rule in "c_COMPILER", "cpp_COMPILER":
        listed = subprocess.run(["ninja", "-C", build, "-t", "targets", "rule", rule], check=True, text=True,
                                stdout=subprocess.PIPE).stdout.splitlines()
        print(*(name for name in listed if name.startswith(of)))


def main():
    if sys.argv[1] in ("--targets", "--objects"):
        (targets if sys.argv[1] == "--targets" else objects)(os.path.realpath(sys.argv[2]), sys.argv[3:])
        return
    if sys.argv[1] == "--times":
        for path in sys.argv[2:]:
            times(path)
        return
    build, label, counts, *names = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    suites = read_suites(build, label, names, counts + ".failed")
    for suite in suites:
        suite.left = len(suite.tests)
        if not suite.tests:
            say(f"FAILED: {suite.label}: it has no test")
            with open(suite.failed, "a", encoding="utf-8") as f:
                print(f"FAILED: {suite.label}: it has no test", file=f)
            suite.counts[1] = 1
    line = Line(build, suites)
    kept = os.path.join(build, "tests-" + re.sub(r"\W+", "-", label) + ".json")
    try:
        with open(kept, "w", encoding="utf-8") as log:
            for test in line.run():
                test.suite.take(test)
                print(json.dumps({
                    "name": test.name, "suite": test.suite.name, "result": test.result, "second_run": test.second,
                    "duration": round(test.duration, 2), "processor": round(test.processor, 2),
                    "stdout": test.stdout, "stderr": test.stderr}), file=log, flush=True)
    finally:
        line.stop()
    with open(counts, "a", encoding="utf-8") as f:
        for suite in suites:
            print(*suite.counts, file=f)


main()
