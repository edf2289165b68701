# SPDX-License-Identifier: BSD-3-Clause
"""Measures batch gets of Farcall's tables, Redis and memcached by turns, and prints one table."""
import argparse
import glob
import json
import os
import pwd
import shutil
import statistics
import sys
import tempfile
import time
from collections import namedtuple

import build
import main as peers
import process

# Unpacked to a folder, never installed: installed they would start services.
PACKAGES = {
    "redis": ["redis-server", "redis-tools", "libatomic1", "libhiredis0.14", "libjemalloc2", "liblua5.1-0", "liblzf1",
              "lua-bitop", "lua-cjson"],
    "memcached": ["memcached", "libevent-2.1-7", "libsasl2-2"],
}
Row = namedtuple("Row", "name server about")
ROWS = [
    Row("farcall", None, "farcall perf ps: far_ps_pull() of one server; one batch in flight"),
    Row("redis-mget", "redis", "one MGET a batch; unix socket, no persistence"),
    Row("redis-hmget", "redis", "one HMGET a batch, all keys fields of one hash; the same"),
    Row("memcached", "memcached", "one get a batch; unix socket, one worker thread"),
]
Batch = namedtuple("Batch", "name workload keys bytes")
BATCHES = [Batch("500 x 512 B", "get", 500, 512), Batch("2000 x 64 B", "pull", 2000, 64)]
DEPTHS = (1, 4, 16) # batches in flight; the best rate counts
START_S, LOAD_S, GUARD_S, FETCH_S = 20, 300, 120, 300
EPILOG = """Redis and memcached are fetched with apt-get download and unpacked in --work; nothing is installed. Each runs
on a unix socket of its own in a fresh directory and ends with this command. Keys are uniform. Farcall has one
batch in flight; of the stores the rate is the best of 1, 4 and 16 batches in flight (pipelining), p50 is that of
one. A ratio above 1 means that Farcall is ahead; ratios are medians of the rounds.

Exit status: 0 when every row was measured, 1 when a row is absent or failed, 2 for a wrong option, 130 after a
signal."""


def options(argv):
    names = [r.name for r in ROWS]
    p = peers.Parser(prog="stores.sh", description=__doc__, epilog=EPILOG, allow_abbrev=False,
                     formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--json", action="store_true", help="print one object with every value, not the table")
    p.add_argument("--only", metavar="NAME,...", help="rows: " + ", ".join(names))
    p.add_argument("--rows", metavar="N", type=peers.between(int, 8000, 10 ** 8), default=630000,
                   help="rows of 64 bytes, and an eighth of them of 512 (630000)")
    p.add_argument("--rounds", metavar="N", type=peers.between(int, 1, 101), default=5, help="rounds (5)")
    p.add_argument("--seconds", metavar="S", type=peers.between(float, 0.1, 60), default=0.5,
                   help="of each figure (0.5)")
    p.add_argument("--cpus", metavar="A,B", type=peers.cpu_pair, help="client and server (two cores of this process)")
    p.add_argument("--farcall", metavar="BUILD", help="build of Farcall (build)")
    p.add_argument("--work", metavar="DIR", help="where packages are unpacked (~/.cache/farcall-peers)")
    p.add_argument("--no-fetch", action="store_true", help="fetch nothing: stores that are not in --work are absent")
    o = p.parse_args(argv)
    wanted = [n for n in (o.only or "").split(",") if n]
    unknown = [n for n in wanted if n not in names]
    if unknown:
        p.error("--only: no row \"%s\"; there are %s" % (unknown[0], ", ".join(names)))
    o.selected = [r for r in ROWS if not wanted or r.name in wanted]
    o.farcall = os.path.abspath(o.farcall or os.path.join(build.TOP, "build"))
    o.program = os.path.join(o.farcall, "farcall")
    if not os.path.exists(o.program):
        p.error("--farcall: %s has no farcall; give a directory that meson has built" % o.farcall)
    o.work = os.path.abspath(o.work or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "farcall-peers"))
    return o


def say(text):
    print("stores: " + text, file=sys.stderr, flush=True)


def fetch(server, o):
    """The folder of the unpacked packages; build.Failed."""
    there = os.path.join(o.work, "fetched-" + server)
    if os.path.isdir(there):
        return there
    if o.no_fetch:
        raise build.Failed("not fetched")
    os.makedirs(o.work, exist_ok=True)
    making = tempfile.mkdtemp(dir=o.work)
    os.chmod(making, 0o755) # apt-get's own user reads there
    say("fetching " + " ".join(PACKAGES[server]))
    try:
        build.run(["apt-get", "-q", "download"] + PACKAGES[server], FETCH_S, cwd=making)
        for package in glob.glob(os.path.join(making, "*.deb")):
            build.run(["dpkg-deb", "-x", package, os.path.join(making, "root")], FETCH_S)
        os.rename(os.path.join(making, "root"), there)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return there


class Server:
    """A store on a socket of its own. build.Failed: it did not start."""

    def __init__(self, name, root, directory, cpu, bytes_n):
        self.socket = os.path.join(directory, name)
        libraries = ":".join(glob.glob(os.path.join(root, "usr/lib/*-linux-gnu*")))
        env = dict(os.environ, LD_LIBRARY_PATH=libraries)
        binary = os.path.join(root, "usr/bin", "redis-server" if name.startswith("redis") else "memcached")
        if name.startswith("redis"):
            args = [binary, "--port", "0", "--unixsocket", self.socket, "--save", "", "--appendonly", "no", "--dir",
                    directory]
        else:
            args = [binary, "-s", self.socket, "-t", "1", "-m", str(64 + 4 * bytes_n // 2 ** 20)]
            if os.geteuid() == 0:
                args += ["-u", pwd.getpwuid(0).pw_name]
        self.log = open(os.path.join(directory, name + ".log"), "w+")
        self.child = process.start(["taskset", "-c", str(cpu)] + args, env=env, output=self.log)
        end = time.monotonic() + START_S
        while not os.path.exists(self.socket):
            if self.child.poll() is not None or time.monotonic() > end:
                self.log.seek(0)
                lines = self.log.read().splitlines()
                self.stop()
                raise build.Failed("%s did not start: %s" % (name, lines[-1] if lines else "no output"))
            time.sleep(0.02)

    def stop(self):
        process.stop(self.child)
        self.log.close()


def rows_of(o, batch):
    return o.rows * 64 // batch.bytes


class Store:
    def __init__(self, row, o, batch, directory, root, client, cpus):
        self.row, self.o, self.batch, self.client, self.cpus = row, o, batch, client, cpus
        self.server = Server(row.name, root, directory, cpus[1], rows_of(o, batch) * (batch.bytes + 64))
        self.call("load", [], LOAD_S)

    def call(self, verb, more, seconds):
        args = ["taskset", "-c", str(self.cpus[0]), self.client, verb, self.row.name, self.server.socket, "--rows",
                str(rows_of(self.o, self.batch)), "--bytes", str(self.batch.bytes), "--keys", str(self.batch.keys)]
        return build.run(args + more, seconds)

    def measure(self):
        found = [json.loads(self.call("get", ["--depth", str(d), "--seconds", str(self.o.seconds)], GUARD_S))
                 for d in DEPTHS]
        return {"p50_ns": found[0]["p50_ns"], "per_s": max(f["per_s"] for f in found)}

    def stop(self):
        self.server.stop()


class Farcall:
    def __init__(self, o, batch):
        self.o, self.batch = o, batch

    def measure(self):
        args = [self.o.program, "perf", "ps", "--workload", self.batch.workload, "--keys", "uniform", "--rows",
                str(self.o.rows), "--seconds", str(self.o.seconds), "--json"]
        found = json.loads(build.run(args, GUARD_S))["results"][0]
        if (found["keys_n"], found["row_bytes"]) != (self.batch.keys, self.batch.bytes):
            raise build.Failed("farcall perf ps measured another batch")
        return {"p50_ns": found["p50_ns"], "per_s": found["ops_per_s"]}

    def stop(self):
        pass


def open_rows(o, batch, directory, client, cpus, broken):
    able = {}
    for row in o.selected:
        if row.name in broken:
            continue
        try:
            if row.server:
                able[row.name] = Store(row, o, batch, directory, fetch(row.server, o), client, cpus)
            else:
                able[row.name] = Farcall(o, batch)
        except build.Failed as e:
            broken[row.name] = str(e)
    return able


def measure_batch(o, batch, client, cpus, broken):
    """Values of each row, one a round."""
    values = {row.name: [] for row in o.selected}
    with tempfile.TemporaryDirectory(prefix="farcall-stores-") as directory:
        able = open_rows(o, batch, directory, client, cpus, broken)
        try:
            for number in range(o.rounds):
                say("%s, round %d of %d" % (batch.name, number + 1, o.rounds))
                for name, row in able.items():
                    if name not in broken:
                        try:
                            values[name].append(row.measure())
                        except build.Failed as e:
                            broken[name] = str(e)
        finally:
            for row in able.values():
                row.stop()
    return values


def summarize(values, broken):
    """Medians of each row, and the medians of its rounds' ratios to Farcall's."""
    out = {}
    ours = [] if "farcall" in broken else values.get("farcall", [])
    for name, rounds in values.items():
        if name in broken or not rounds:
            continue
        out[name] = {"p50_ns": statistics.median(r["p50_ns"] for r in rounds),
                     "per_s": statistics.median(r["per_s"] for r in rounds), "rounds": rounds}
        if name != "farcall" and ours:
            out[name]["p50_ratio"] = statistics.median(r["p50_ns"] / f["p50_ns"] for r, f in zip(rounds, ours))
            out[name]["rate_ratio"] = statistics.median(f["per_s"] / r["per_s"] for r, f in zip(rounds, ours))
    return out


def render(o, results, broken):
    lines = ["%-12s" % "" + "".join("%27s   " % b.name for b in BATCHES),
             "%-12s" % "row" + ("%9s %6s %9s %6s" % ("p50 us", "ratio", "batches/s", "ratio") + "%5s" % "") *
             len(BATCHES)]
    for row in o.selected:
        if row.name in broken:
            lines.append("%-12s not measured: %s" % (row.name, broken[row.name]))
            continue
        line = "%-12s" % row.name
        for batch in BATCHES:
            f = results[batch.name][row.name]
            line += "%9.1f %6s %9.0f %6s%5s" % (
                f["p50_ns"] / 1e3, "%.1fx" % f["p50_ratio"] if "p50_ratio" in f else "", f["per_s"],
                "%.1fx" % f["rate_ratio"] if "rate_ratio" in f else "", "")
        lines.append(line.rstrip())
    lines += ["", "%d rows of 64 bytes, %d of 512; %d rounds of %g s" % (o.rows, o.rows // 8, o.rounds, o.seconds)]
    lines += ["%s: %s" % (row.name, row.about) for row in o.selected]
    return lines


def run(o):
    builder = build.Builder(o.work, None, None, say)
    perf = os.path.join(build.TOP, "perf")
    builder.cc("store", ["store.c", os.path.join(perf, "hist.c"), os.path.join(perf, "ps_keys.c")], ["-lm"],
               ["-I", build.TOP])
    cpus = o.cpus or peers.two_cores()[0]
    broken, results = {}, {}
    for batch in BATCHES:
        results[batch.name] = measure_batch(o, batch, builder.path("store"), cpus, broken)
    results = {name: summarize(values, broken) for name, values in results.items()}
    if o.json:
        print(json.dumps({"rows": o.rows, "rounds": o.rounds, "seconds": o.seconds, "batches": results,
                          "not_measured": broken}))
    else:
        print("\n".join(render(o, results, broken)))
    return 1 if broken else 0


def main(argv):
    o = options(argv)
    process.catch_signals()
    try:
        return run(o)
    except process.Interrupted as e:
        say("stopped by %s" % e)
        return 130
    except build.Failed as e:
        say(str(e))
        return 1
    finally:
        process.stop_all()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
