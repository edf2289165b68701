# SPDX-License-Identifier: BSD-3-Clause
"""Measures Farcall and other libraries of Debian 12 doing the same work, by turns, and prints one table."""
import argparse
import json
import os
import platform
import statistics
import sys

import build
import catalog
import process
import rounds
import table
import tools

LINE_RATIO = 1.25
SHARE_MIN = 0.95 # of a core, below which the machine is called busy
SECONDS, SHORT_SECONDS = 0.3, 0.03
EPILOG = """Installs the packages of the peers with apt-get, builds a program for each, and runs them and Farcall by
turns for several rounds of each figure. The round trip of a cache line is measured before and after each
round; a round whose two lines differ by more than --line-ratio is discarded and repeated, at most %d times.
Where a peer has a measurement of its own (ucx_perftest, fi_pingpong), it runs beside ours in each round; if
the two differ by more than %d %% the row says INVALID. perf/peers/README.md defines every figure.

Exit status: 0 when every row was measured, 1 when a row is absent, failed or INVALID or when rounds are
missing, 2 for a wrong option, 130 after a signal.""" % (rounds.REPEATS, round(100 * tools.AGREEMENT) - 100)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, "run.sh: %s; run.sh --help lists the options\n" % message)


def between(kind, low, high):
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError("\"%s\" is not between %g and %g" % (text, low, high))
        return value
    return parse


def cpu_pair(text):
    try:
        a, b = (int(c) for c in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError("\"%s\" is no pair of CPUs, such as 0,1" % text)
    allowed = os.sched_getaffinity(0)
    if a not in allowed or b not in allowed:
        raise argparse.ArgumentTypeError("this process may use the CPUs %s" % sorted(allowed))
    return a, b


def options(argv):
    names = ", ".join(r.name for r in catalog.ROWS)
    p = Parser(prog="run.sh", description=__doc__, epilog=EPILOG, allow_abbrev=False,
               formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--json", action="store_true", help="print one object with every value, not the table")
    p.add_argument("--only", metavar="NAME,...", help="rows or families of rows: " + names)
    p.add_argument("--ucx", metavar="PREFIX", help="an installed UCX, measured too: ucx-shm+ and ucx-tcp+")
    p.add_argument("--rounds", metavar="N", type=between(int, 1, 101), default=5, help="rounds of each figure (5)")
    p.add_argument("--seconds", metavar="S", type=between(float, 0.001, 60), help="of each figure (0.3)")
    p.add_argument("--short", action="store_true", help="0.03 s for each figure: a test of the programs")
    p.add_argument("--line-ratio", metavar="R", type=between(float, 1, 1e9), default=LINE_RATIO,
                   help="largest ratio of the two lines of a round (%g)" % LINE_RATIO)
    p.add_argument("--cpus", metavar="A,B", type=cpu_pair, help="client and server (two cores of this process)")
    p.add_argument("--farcall", metavar="BUILD", help="build of Farcall (build, else one is made in --work)")
    p.add_argument("--work", metavar="DIR", help="where the programs are built (~/.cache/farcall-peers)")
    p.add_argument("--no-install", action="store_true", help="install nothing: rows of missing packages are absent")
    o = p.parse_args(argv)
    o.rows = catalog.ROWS
    if o.ucx:
        o.ucx = os.path.abspath(o.ucx)
        problem = build.prefix_problem(o.ucx)
        if problem:
            p.error("--ucx: " + problem)
        o.rows = o.rows + catalog.with_prefix(o.rows)
    try:
        o.rows = catalog.select(o.rows, [n for n in (o.only or "").split(",") if n])
    except ValueError as e:
        p.error("--only: %s" % e)
    if o.farcall and not os.path.exists(os.path.join(o.farcall, "engine", "libfarcall.so")):
        p.error("--farcall: %s has no engine/libfarcall.so; give a directory that meson has built" % o.farcall)
    o.seconds = o.seconds or (SHORT_SECONDS if o.short else SECONDS)
    o.work = os.path.abspath(o.work or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "farcall-peers"))
    return o


def two_cores():
    """Two CPUs of different cores if there are, and a note if not."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        return (allowed[0], allowed[0]), ("one CPU: both processes share it, and a process that polls keeps the other "
                                          "from running; these figures are the scheduler's")
    siblings = str(allowed[0])
    try:
        with open("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list" % allowed[0]) as f:
            siblings = f.read().strip()
    except OSError:
        pass
    same = set()
    for part in siblings.split(","):
        low, _, high = part.partition("-")
        same.update(range(int(low), int(high or low) + 1))
    others = [c for c in allowed[1:] if c not in same]
    if others:
        return (allowed[0], others[0]), None
    return (allowed[0], allowed[1]), "the two CPUs are hardware threads of one core"


def processor():
    try:
        with open("/proc/cpuinfo") as f:
            return next(line.split(":")[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def say(text):
    print("peers: " + text, file=sys.stderr, flush=True)


def prepare(o, builder, results, versions):
    """Installs and builds; the rows that can run."""
    why, able = {}, []
    if not o.no_install:
        packages = [p for row in o.rows for p in row.packages]
        failure = build.install(list(dict.fromkeys(packages)), say)
        if failure: # one of them may be the cause: each row alone
            for row in o.rows:
                why[row.name] = build.install(row.packages, say)
    for row in o.rows:
        lacking = build.missing(row.packages)
        if lacking:
            reason = "; " + why[row.name] if why.get(row.name) else ""
            results[row.name] = {"state": "absent", "why": "not installed: %s%s" % (", ".join(lacking), reason)}
            continue
        try:
            builder.build(row.program)
            if row.program not in versions:
                versions[row.program] = builder.version(row)
            able.append(row)
        except build.Failed as e:
            results[row.name] = {"state": "failed", "why": "cannot be built: %s" % e}
    builder.cc("line", ["line.c"])
    return able


def conclude(row, runner, kept, results):
    figures = {f.name: table.summarize(row, f, kept) for f in catalog.FIGURES if catalog.measured(row, f)}
    checks = runner.checks.get(row.name, {})
    results[row.name] = result = {
        "state": "measured", "figures": {name: f for name, f in figures.items() if f},
        "checks": [{"bytes": size, "ours_ns": ours, "its_ns": its} for size, pairs in checks.items()
                   for ours, its in pairs]}
    if row.name in runner.broken:
        result.update(state="failed", why=runner.broken[row.name])
    elif None in figures.values():
        result.update(state="failed", why="no round counts in column " + ", ".join(
            f.head for f in catalog.FIGURES if figures.get(f.name, f) is None))
    elif row.tool:
        why = tools.verdict(row, {size: checks.get(size, []) for size in catalog.CHECKED})
        if why:
            result.update(state="invalid", why=why)
        else:
            result["check"] = "%s agrees within %d %% at %s" % (
                row.tool, round(100 * tools.AGREEMENT) - 100,
                " and ".join("%d bytes" % size for size in catalog.CHECKED))


def describe(o, runner, note, cpus):
    lines = [ns for pair in runner.lines for ns in pair if ns]
    machine = "%s, Linux %s, CPUs %d and %d; clock %s" % (
        processor(), platform.release(), *cpus, " and ".join(sorted(runner.clocks)) or "not read")
    if lines:
        machine += "; cache line round trip %.0f to %.0f ns" % (min(lines), max(lines))
    machine += "; %g s for each figure; rounds discarded and repeated because of their lines: %d" % (
        o.seconds, len(runner.discarded) - runner.lost)
    notes = [note] if note else []
    share = statistics.median(runner.shares or [1])
    if share < SHARE_MIN:
        notes.append("the machine is busy: clients that poll had %.0f %% of their core (median); these figures are no "
                     "figures of the libraries" % (100 * share))
    if lines and max(lines) / min(lines) > o.line_ratio:
        notes.append("the rounds ran in different states of the machine: trust the ratios, not the medians")
    if runner.lost:
        notes.append("%d of %d rounds are missing: the machine changed its state in each repetition" % (
            runner.lost, runner.lost + len(runner.lines)))
    if "CLOCK_MONOTONIC" in runner.clocks:
        notes.append("the TSC is not invariant: time is read from CLOCK_MONOTONIC, which takes longer")
    if o.short:
        notes.append("--short: no figures to compare")
    return machine, notes


def measure(o, results, versions):
    builder = build.Builder(o.work, o.farcall, o.ucx, say)
    able = prepare(o, builder, results, versions)
    cpus, note = (o.cpus, None) if o.cpus else two_cores()
    runner = rounds.Rounds(builder, able, cpus, o.seconds, say)
    try:
        kept = runner.run(o.rounds, o.line_ratio) if able else []
        for row in able:
            conclude(row, runner, kept, results)
    finally:
        runner.close()
    machine, notes = describe(o, runner, note, cpus)
    return {"rounds": o.rounds, "rounds_lost": runner.lost, "seconds": o.seconds, "line_ratio": o.line_ratio,
            "lines_ns": runner.lines, "discarded_lines_ns": runner.discarded, "core_shares": runner.shares,
            "cpus": list(cpus), "clock": sorted(runner.clocks), "machine": machine, "notes": notes,
            "versions": versions}


def main(argv):
    o = options(argv)
    process.catch_signals()
    results, versions = {}, {}
    try:
        run = measure(o, results, versions)
    except process.Interrupted as e:
        say("stopped by %s" % e)
        return 130
    except (build.Failed, rounds.Broken) as e:
        say(str(e))
        return 1
    finally:
        process.stop_all()
    closing = table.closing(o.rows, results)
    if o.json:
        print(json.dumps({"run": run, "rows": {r.name: results[r.name] for r in o.rows}, "summary": closing}))
    else:
        print("\n".join(table.render(o.rows, results, run)))
    whole = all(results[r.name]["state"] == "measured" for r in o.rows) and not run["rounds_lost"]
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
