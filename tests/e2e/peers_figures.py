#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""perf/peers without peers: outputs of tools, agreement, medians and ratios, the table, rounds, deadlines.

usage: peers_figures.py PERF_PEERS
"""
import os
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv.pop(1))
import catalog  # noqa: E402
import main  # noqa: E402
import process  # noqa: E402
import rounds  # noqa: E402
import table  # noqa: E402
import tools  # noqa: E402

UCX_HEAD = """\
+--------------+--------------+------------------------------+---------------------+-----------------------+
|              |              |        latency (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
|     Test     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
"""
UCX_LINE = "                   200    113.402   402.655   402.655     2483.52    2483.52        2484        2484\n"
UCX_STAGES = """\
[thread 0]            205591      0.581     2.431     2.431       12.55      12.55      411282      411282
Final:                300000      0.576     2.238     2.371       13.63      12.87      446778      421828
"""
FI_HEAD = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n"
FI_LINE = "32      100k    =100k    6.1m        0.93s      6.90       4.64       0.22\n"

ROWS = {r.name: r for r in catalog.ROWS}
RTT, RATE = catalog.FIGURES[:2]


class Outputs(unittest.TestCase):
    def test_ucx_perftest_reports_twice_the_median(self):
        self.assertAlmostEqual(tools.ucx_perftest(UCX_HEAD + UCX_LINE), 226804)
        self.assertAlmostEqual(tools.ucx_perftest(UCX_HEAD + UCX_STAGES), 1152)

    def test_fi_pingpong_reports_twice_the_mean(self):
        self.assertAlmostEqual(tools.fi_pingpong(FI_HEAD + FI_LINE), 9280)

    def test_unreadable_outputs(self):
        for text in ("", UCX_HEAD, UCX_LINE, UCX_HEAD + UCX_LINE.replace("113.402", "-nan"),
                     UCX_HEAD + UCX_LINE.replace("113.402", "0.000"), UCX_HEAD + "200 113.402\n",
                     UCX_HEAD.replace("usec", "nsec") + UCX_LINE):
            with self.subTest(text), self.assertRaises(tools.Unreadable):
                tools.ucx_perftest(text)
        for text in ("", FI_HEAD, FI_LINE, FI_HEAD + FI_LINE.replace("=100k", "-3"),
                     FI_HEAD + FI_LINE.replace("4.64", "nan?"), FI_HEAD + FI_LINE.replace("4.64", "0.00"),
                     FI_HEAD + "32 100k =100k\n"):
            with self.subTest(text), self.assertRaises(tools.Unreadable):
                tools.fi_pingpong(text)

    def test_commands_name_the_same_operation(self):
        for name in ("ucx-shm", "libfabric-tcp"):
            server, client = tools.commands(ROWS[name], "/opt/tool", 1 << 20, 500, 4711, (2, 3))
            self.assertEqual(server[:4], ["taskset", "-c", "3", "/opt/tool"])
            self.assertEqual(client[:4], ["taskset", "-c", "2", "/opt/tool"])
            self.assertIn("4711", server)
            self.assertTrue({"4711", "1048576", "500", "127.0.0.1"} <= set(client))


class Start(unittest.TestCase):
    def test_a_short_run_that_took_longer_is_none(self):
        self.assertAlmostEqual(tools.without_start(1000, 12.0, 100, 30.0), 10)
        with self.assertRaises(tools.Unreadable):
            tools.without_start(1000, 12.0, 100, 130.0)


class Agreement(unittest.TestCase):
    def verdict(self, small, large):
        return tools.verdict(ROWS["ucx-shm"], {32: small, 1 << 20: large})

    def test_within_15_percent_either_way(self):
        self.assertIsNone(self.verdict([(1149, 1000)], [(1000, 1149)]))
        self.assertIsNone(self.verdict([(1000, 1000), (9000, 1000), (1000, 1000)], [(5, 5)]))

    def test_beyond(self):
        for small, large, size in (([(1160, 1000)], [(1, 1)], "32"), ([(1000, 1160)], [(1, 1)], "32"),
                                   ([(1, 1)], [(2000, 1000), (2000, 1000), (1000, 1000)], "1048576")):
            why = self.verdict(small, large)
            self.assertRegex(why, "^echo of %s bytes: .* by ucx_perftest" % size)

    def test_a_comparison_that_never_ran_is_none(self):
        self.assertIn("not compared at 1048576", self.verdict([(1, 1)], []))


class Statistics(unittest.TestCase):
    def test_ratio_above_one_means_farcall_is_ahead(self):
        self.assertEqual(table.ratio(RTT, 100, 250), 2.5)
        self.assertEqual(table.ratio(RATE, 100, 250), 0.4)

    def test_ratio_is_the_median_of_rounds(self):
        each = [{("farcall-shm", "round_trip"): ours, ("ucx-shm", "round_trip"): theirs}
                for ours, theirs in ((100, 200), (10, 40), (1, 3))]
        s = table.summarize(ROWS["ucx-shm"], RTT, each)
        self.assertEqual((s["median"], s["ratio"], s["against"]), (40, 3, "farcall-shm"))
        self.assertNotIn("ratio", table.summarize(ROWS["farcall-shm"], RTT, each))
        self.assertIsNone(table.summarize(ROWS["nng"], RTT, each))

    def test_rows_are_compared_with_their_kind(self):
        sink = catalog.FIGURES[2]
        self.assertEqual(catalog.reference(ROWS["libfabric-tcp"], RTT), "farcall-udp")
        self.assertEqual(catalog.reference(ROWS["pytorch"], RTT), "farcall-typed")
        self.assertEqual(catalog.reference(ROWS["pytorch"], sink), "farcall-shm")
        self.assertFalse(catalog.measured(ROWS["raw-udp"], sink))

    def test_noise(self):
        self.assertIsNone(table.noise([5]))
        self.assertAlmostEqual(table.noise([90, 110]), 0.2)
        self.assertAlmostEqual(table.noise([100, 1000, 98, 102, 1]), 0.04)

    def test_columns_of_the_issue(self):
        self.assertEqual([(f.bytes, f.depth, f.sink) for f in catalog.FIGURES],
                         [(32, 1, False), (32, 64, False)] +
                         [(size, depth, True) for size in (65536, 1 << 20, 8 << 20) for depth in (1, 4)])


def figures():
    return {f.name: {"median": 123456789.0, "noise": 1.5, "ratio": 1234.5, "values": []} for f in catalog.FIGURES}


class Table(unittest.TestCase):
    about = {"rounds": 3, "machine": "a machine " * 40, "notes": ["a note"], "versions": {"ucx": "1.0"}}

    def test_no_line_beyond_120_columns(self):
        results = {r.name: {"state": "measured", "figures": figures()} for r in catalog.ROWS}
        results["nng"] = {"state": "failed", "why": "because " * 60}
        lines = table.render(catalog.ROWS, results, self.about)
        self.assertLessEqual(max(map(len, lines)), 120)
        self.assertEqual(lines[-1], "%d of %d rows measured; failed: nng" % (len(ROWS) - 1, len(ROWS)))

    def test_a_row_that_is_not_measured_shows_no_figure(self):
        for state, label in (("invalid", "INVALID"), ("failed", "FAILED"), ("absent", "absent")):
            lines = table.lines_of(ROWS["ucx-shm"], {"state": state, "why": "a reason", "figures": figures()})
            self.assertEqual(lines, ["ucx-shm        %s: a reason" % label])

    def test_units(self):
        one = {"round_trip": {"median": 612.3, "noise": None}, "rate": {"median": 5.1e6, "noise": 0.034, "ratio": 2}}
        first, second = table.lines_of(ROWS["ucx-shm"], {"state": "measured", "figures": one})
        self.assertEqual(first.split(), ["ucx-shm", "polls", "0.612", "5.100"] + ["-"] * 6)
        self.assertEqual(second.split(), ["3%", "2.000x"])


class Conclusion(unittest.TestCase):
    def conclude(self, broken=None, checks=None, without=None):
        runner = type("Runner", (), {"broken": broken or {}, "checks": {"ucx-shm": checks or {}}})
        results = {}
        kept = [{("ucx-shm", f.name): 700.0} if f.name != without else {} for f in catalog.FIGURES]
        main.conclude(ROWS["ucx-shm"], runner, kept, results)
        return results["ucx-shm"]

    def test_states(self):
        good = {32: [(100, 100)], 1 << 20: [(100, 100)]}
        self.assertEqual(self.conclude(checks=good)["state"], "measured")
        self.assertIn("agrees within 15 %", self.conclude(checks=good)["check"])
        self.assertEqual(self.conclude(checks={**good, 32: [(200, 100)]})["state"], "invalid")
        self.assertEqual(self.conclude()["state"], "invalid")
        self.assertEqual(self.conclude(broken={"ucx-shm": "no"}, checks=good)["state"], "failed")
        self.assertEqual(self.conclude(checks=good, without="rate")["why"], "no round counts in column 32 B x 64")


class Notes(unittest.TestCase):
    def notes(self, shares=(1,), lines=((110, 111),), lost=0, clock="tsc"):
        o = main.options(["--rounds", "1"])
        runner = type("Runner", (), {"shares": list(shares), "lines": list(lines), "lost": lost, "clocks": {clock},
                                     "discarded": []})
        return main.describe(o, runner, None, (0, 1))[1]

    def test_a_quiet_run_has_none(self):
        self.assertEqual(self.notes(shares=(1, 0.2, 1)), [])

    def test_each_has_its_cause(self):
        self.assertIn("had 40 % of their core", self.notes(shares=(0.4, 0.3, 1))[0])
        self.assertIn("different states", self.notes(lines=((110, 112), (440, 450)))[0])
        self.assertIn("2 of 3 rounds are missing", self.notes(lost=2)[0])
        self.assertIn("not invariant", self.notes(clock="CLOCK_MONOTONIC")[0])


class Selection(unittest.TestCase):
    def test_names_and_families(self):
        names = [r.name for r in catalog.select(catalog.ROWS, ["zeromq", "raw", "ucx-tcp"])]
        self.assertEqual(names, ["raw-tcp", "raw-udp", "ucx-tcp", "zeromq"])
        self.assertEqual(len(catalog.select(catalog.ROWS, [])), len(catalog.ROWS))
        with self.assertRaisesRegex(ValueError, "no peer \"tcp\""):
            catalog.select(catalog.ROWS, ["tcp"])

    def test_another_ucx_has_rows_of_its_own(self):
        rows = catalog.with_prefix(catalog.ROWS)
        self.assertEqual([(r.name, r.program) for r in rows], [("ucx-shm+", "ucx+"), ("ucx-tcp+", "ucx+")])
        self.assertEqual(len(catalog.select(catalog.ROWS + rows, ["ucx"])), 4)


class Planted(rounds.Rounds):
    """Rounds whose lines and figures are given."""

    def __init__(self, ns, row="raw-udp", script=None):
        super().__init__(self, [ROWS[row]], (0, 1), 0.001, lambda text: None)
        self.ns, self.script, self.begun = list(ns), script, 0

    def command(self, program):
        return ["/bin/sh", "-c", self.script, program]

    def line(self):
        return self.ns.pop(0) if self.ns else 1

    def program(self, row, figure, seconds, untouched=False):
        if self.script:
            return super().program(row, figure, seconds, untouched)
        self.begun += 1
        return {figure.value: float(self.begun), "clock": "tsc"}

    def tool_once(self, row, size, count):
        """10 ns an iteration, and a start that takes as long as 1000 of them."""
        return 10.0 + (10.0 * 1000 / count if row.tool == "fi_pingpong" else 0)


class Rounds(unittest.TestCase):
    def test_a_round_between_two_states_is_repeated(self):
        p = Planted([110, 110, 110, 450, 450, 115, 450, 440])
        kept = p.run(1, 1.25)
        p.close()
        self.assertEqual(kept, [{("raw-udp", "round_trip"): 1.0}, {("raw-udp", "rate"): 4.0}])
        self.assertEqual((p.discarded, p.lost), ([(110, 450), (450, 115)], 0))

    def test_repeats_are_bounded(self):
        p = Planted([1, 9] * 1000)
        kept = p.run(2, 1.25)
        p.close()
        columns = 2 * 2 # raw-udp has two figures
        self.assertEqual((kept, p.lost, p.lines), ([{}] * columns, columns, []))
        self.assertEqual(len(p.discarded), columns * (1 + rounds.REPEATS))

    def test_checks_take_the_lowest_of_each_side_without_the_start(self):
        for name in ("ucx-tcp", "libfabric-shm"):
            p = Planted([], name)
            p.run(1, 1.25)
            p.close()
            first = len(catalog.FIGURES) + 1
            for size, ours in ((32, first), (1 << 20, first + rounds.ALTERNATIONS)):
                [(found, its)] = p.checks[name][size]
                self.assertEqual(found, ours)
                self.assertAlmostEqual(its, 10)

    def program(self, script):
        p = Planted([], script=script)
        try:
            return p.attempt(ROWS["raw-udp"], p.program, RTT, 0.001), p.broken.get("raw-udp")
        finally:
            p.close()
            self.assertFalse(os.path.exists(p.dir))

    def test_programs(self):
        found, why = self.program("""echo '{"p50_ns": 5.5, "clock": "tsc", "core_share": 1}'""")
        self.assertEqual((found["p50_ns"], why), (5.5, None))
        for script, text in (("echo it broke >&2; exit 3", "exit status 3: it broke"),
                             ("kill -9 $$", "signal 9"),
                             ("echo hello", "no figure"),
                             ("""echo '{"p50_ns": inf}'""", "no JSON"),
                             ("""echo '{"p50_ns": 0, "clock": "tsc"}'""", "p50_ns is 0")):
            found, why = self.program(script)
            self.assertIsNone(found)
            self.assertIn(text, why)


class Deadlines(unittest.TestCase):
    def ends(self, pid):
        """Within 10 s the process is gone, or a zombie that is still to be reaped."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            try:
                with open("/proc/%d/stat" % pid) as f:
                    if f.read().rsplit(")", 1)[1].split()[0] == "Z":
                        return True
            except OSError:
                return True
            time.sleep(0.01)
        return False

    def test_the_whole_group_ends(self):
        with tempfile.NamedTemporaryFile("r") as pid:
            script = "sleep 4711 & echo $! >%s; exec sleep 4712" % pid.name
            code, _, err = process.run(["/bin/sh", "-c", script], 1)
            self.assertEqual((code, err), (124, "no end within 1 s"))
            self.assertTrue(self.ends(int(pid.read())))
        self.assertEqual(process.groups, set())

    def test_what_a_program_leaves_behind_ends(self):
        code, out, _ = process.run(["/bin/sh", "-c", "sleep 4713 >/dev/null 2>&1 & echo $!"], 10)
        self.assertEqual(code, 0)
        self.assertTrue(self.ends(int(out)))

    def test_a_program_that_is_missing(self):
        code, _, err = process.run(["/no/such/program"], 5)
        self.assertEqual(code, 127)
        self.assertIn("/no/such/program", err)


if __name__ == "__main__":
    program = unittest.main(exit=False, verbosity=2)
    failed = len(program.result.failures) + len(program.result.errors)
    print("%d passed, %d failed, 0 skipped" % (program.result.testsRun - failed, failed))
    sys.exit(failed > 0)
