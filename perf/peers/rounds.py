# SPDX-License-Identifier: BSD-3-Clause
"""The rounds: one figure of every row by turns, between two measurements of the cache line."""
import json
import os
import shutil
import socket
import tempfile
import time

import catalog
import process
import tools

START_S = 60        # of a program beyond the time it measures
TOOL_S = 60
LISTEN_S = 15
CHECK_S = 0.03      # of our program in a check
ALTERNATIONS = 5    # of a check: the lowest of each side counts, because a preemption only adds time
REPEATS = 3         # of a round that is discarded


class Broken(Exception):
    """A program or a tool did not produce its figure."""


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def ended(code, text):
    return "%s: %s" % ("signal %d" % -code if code < 0 else "exit status %d" % code, last_line(text))


def figure_of(output):
    for line in output.splitlines():
        if line.startswith("{"):
            try:
                return json.loads(line)
            except ValueError:
                raise Broken("the figure is no JSON: %s" % line)
    raise Broken("no figure in the output")


def listening(port):
    """Is a TCP port of this network namespace in state LISTEN, without connecting to it."""
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(name) as f:
                if any(line.split()[1].endswith(":%04X" % port) and line.split()[3] == "0A" for line in
                       list(f)[1:]):
                    return True
        except OSError:
            pass
    return False


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Rounds:
    def __init__(self, builder, rows, cpus, seconds, say):
        self.builder, self.rows, self.cpus = builder, list(rows), cpus
        self.seconds, self.say = seconds, say
        self.broken = {} # row name: why; it is not run again
        self.checks = {} # row name: {size: [(ours, its)]}
        self.clocks = set()
        self.shares = []  # of a core, of each client that polls
        self.lines, self.discarded, self.lost = [], [], 0 # (ns before, ns after) of rounds; rounds without values
        self.dir = tempfile.mkdtemp(prefix="farcall-peers-")

    def close(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def environment(self, row):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("UCX_", "FI_", "FAR_", "GRPC_"))}
        return dict(clean, **row.env)

    def program(self, row, figure, seconds, untouched=False):
        """One figure of one row, as its program prints it."""
        directory = tempfile.mkdtemp(dir=self.dir) # sockets of the last figure are not met again
        args = self.builder.command(row.program) + [
            "--variant", row.variant, "--bytes", str(figure.bytes), "--depth", str(figure.depth),
            "--seconds", str(seconds), "--dir", directory]
        if self.cpus:
            args += ["--cpus", "%d,%d" % self.cpus]
        args += ["--sink"] if figure.sink else ["--untouched"] if untouched else []
        code, out, err = process.run(args, START_S + 2 * seconds, env=self.environment(row))
        shutil.rmtree(directory, ignore_errors=True)
        if code:
            raise Broken(ended(code, err))
        found = figure_of(out)
        self.clocks.add(found["clock"])
        if row.waits == "polls":
            self.shares.append(found.get("core_share", 0))
        if not found.get(figure.value, 0) > 0:
            raise Broken("%s is %s" % (figure.value, found.get(figure.value)))
        return found

    def tool_once(self, row, size, count):
        """Once more if it fails: another process may have taken the port meanwhile."""
        try:
            return self.tool_pair(row, size, count)
        except Broken:
            return self.tool_pair(row, size, count)

    def tool_pair(self, row, size, count):
        port, program = free_port(), self.builder.tool(row)
        server, client = tools.commands(row, program, size, count, port, self.cpus or (0, 0))
        env = self.environment(row)
        with open(os.path.join(self.dir, "tool"), "w+") as log:
            child = process.start(server, env=env, output=log)
            try:
                end = time.monotonic() + LISTEN_S
                while not listening(port) and child.poll() is None and time.monotonic() < end:
                    time.sleep(0.01)
                code, out, err = process.run(client, TOOL_S, env=env)
            finally:
                process.finish(child)
            if code:
                log.seek(0)
                raise Broken("%s: %s" % (row.tool, ended(code, err or out or log.read())))
        return tools.PARSERS[row.tool](out)

    def check(self, row, size):
        """The same operation by the peer's own tool and by our program, by turns: ns of both."""
        figure = catalog.Figure("check", "", "", size, 1, False, tools.SAME[row.tool], 1, True)
        ours, its, shorter = [], [], []
        count, divisor = tools.iterations(row, size), tools.FEWER.get(row.tool)
        for _ in range(ALTERNATIONS):
            ours.append(self.program(row, figure, CHECK_S, untouched=True)[figure.value])
            its.append(self.tool_once(row, size, count))
            if divisor:
                shorter.append(self.tool_once(row, size, count // divisor))
        if not divisor:
            return min(ours), min(its)
        return min(ours), tools.without_start(count, min(its), count // divisor, min(shorter))

    def line(self):
        """ns of the cache line's round trip, or None on one core."""
        if not self.cpus or self.cpus[0] == self.cpus[1]:
            return None
        code, out, err = process.run([self.builder.path("line")] + [str(c) for c in self.cpus], TOOL_S)
        if code:
            raise Broken("the cache line was not measured: %s" % ended(code, err))
        found = json.loads(out)
        self.clocks.add(found["clock"])
        return found["line_ns"]

    def attempt(self, row, function, *args):
        """The result; None if the row is broken now."""
        if row.name in self.broken:
            return None
        try:
            return function(row, *args)
        except (Broken, tools.Unreadable) as e:
            self.broken[row.name] = str(e)
            self.say("%s: %s" % (row.name, e))
            return None

    def column(self, figure):
        """A figure of every row: {(row name, figure name): value}."""
        values = {}
        for row in self.rows:
            found = catalog.measured(row, figure) and self.attempt(row, self.program, figure, self.seconds)
            if found:
                values[row.name, figure.name] = found[figure.value]
        return values

    def compare(self, size):
        """Checks of every row that has a tool: {(row name, size): (ours, its)}."""
        pairs = {}
        for row in self.rows:
            pair = row.tool and self.attempt(row, self.check, size)
            if pair:
                pairs[row.name, size] = pair
        return pairs

    def between_lines(self, function, what, line_ratio):
        """A round: what the function returns, if the lines before and after it differ by at most `line_ratio`. The
        round is repeated up to REPEATS times, then it is lost: None."""
        for _ in range(1 + REPEATS):
            before = self.line()
            values = function(what)
            after = self.line()
            if not before or max(before, after) / min(before, after) <= line_ratio:
                self.lines.append((before, after))
                return values
            self.discarded.append((before, after))
            self.say("round discarded: line %.0f ns before, %.0f ns after" % (before, after))
        self.lost += 1
        return None

    def run(self, wanted, line_ratio):
        """`wanted` rounds of each figure and each check. Returns the values of the rounds that count."""
        kept = []
        for number in range(wanted):
            for figure in catalog.FIGURES:
                if any(catalog.measured(row, figure) for row in self.rows):
                    kept.append(self.between_lines(self.column, figure, line_ratio) or {})
            for size in catalog.CHECKED if any(r.tool for r in self.rows) else ():
                for (name, _), pair in (self.between_lines(self.compare, size, line_ratio) or {}).items():
                    self.checks.setdefault(name, {}).setdefault(size, []).append(pair)
            self.say("round %d of %d" % (number + 1, wanted))
        return kept
