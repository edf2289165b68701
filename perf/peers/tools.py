# SPDX-License-Identifier: BSD-3-Clause
"""The peers' own measurements: how they are started, how their output is read, and whether they agree with ours."""
import re
import statistics

AGREEMENT = 1.15  # a row is INVALID beyond this ratio, in either direction


class Unreadable(Exception):
    pass


def ucx_perftest(output):
    """Round trip of `ucx_perftest -t ucp_am_lat -f`, ns: twice the 50th percentile of one direction."""
    if "%ile" not in output or "latency (usec)" not in output:
        raise Unreadable("no table of latencies")
    for line in reversed(output.splitlines()):
        words = line.replace("Final:", "").split()
        if len(words) >= 8 and all(re.fullmatch(r"[0-9.]+", w) for w in words):
            return positive(2000 * float(words[1]))
    raise Unreadable("no line of results")


def fi_pingpong(output):
    """Round trip of `fi_pingpong -S N`, ns: twice the mean of one direction, which is printed with two digits."""
    lines = [line.split() for line in output.splitlines() if line.strip()]
    for head, line in zip(lines, lines[1:]):
        if "usec/xfer" not in head:
            continue
        if len(line) != len(head):
            raise Unreadable("%d columns under a head of %d" % (len(line), len(head)))
        sent, acked = line[head.index("#sent")], line[head.index("#ack")]
        if acked != "=" + sent:
            raise Unreadable("%s of %s messages came back" % (acked, sent))
        try:
            return positive(2000 * float(line[head.index("usec/xfer")]))
        except ValueError:
            raise Unreadable("\"%s\" is no time" % line[head.index("usec/xfer")])
    raise Unreadable("no line of results")


def positive(ns):
    if ns <= 0:
        raise Unreadable("a round trip of %g ns" % ns)
    return ns


PARSERS = {"ucx_perftest": ucx_perftest, "fi_pingpong": fi_pingpong}
# The field of our own programs that is of the same kind.
SAME = {"ucx_perftest": "p50_ns", "fi_pingpong": "mean_ns"}


def iterations(row, size):
    """As many as take some 30 to 100 ms."""
    return {("shm", True): 20000, ("tcp", True): 4000, ("shm", False): 300, ("tcp", False): 200}[
        row.variant, size <= 64]


# fi_pingpong has no warm-up, and its time includes the set-up of the connection (tens of milliseconds with tcp). The
# second run has this part of the iterations, and the figure is what the others took.
FEWER = {"fi_pingpong": 10}


def without_start(count, mean_ns, fewer, fewer_mean_ns):
    """The mean of the iterations by which two runs differ."""
    return positive((count * mean_ns - fewer * fewer_mean_ns) / (count - fewer))


def commands(row, program, size, count, port, cpus):
    """The command lines of server and client."""
    pin = [["taskset", "-c", str(cpu)] for cpu in cpus]
    if row.tool == "ucx_perftest":
        client = ["-t", "ucp_am_lat", "-s", str(size), "-n", str(count), "-w", str(count // 10 + 1), "-f"]
        return pin[1] + [program, "-p", str(port)], pin[0] + [program, "127.0.0.1", "-p", str(port)] + client
    same = ["-p", row.variant, "-e", "rdm", "-m", "msg", "-I", str(count), "-S", str(size)]
    return (pin[1] + [program] + same + ["-B", str(port)],
            pin[0] + [program] + same + ["-P", str(port), "127.0.0.1"])


def verdict(row, checks):
    """checks: {size: [(our ns, its ns) of each round]}. None if the tool agrees, else why the row is INVALID."""
    for size, pairs in sorted(checks.items()):
        if not pairs:
            return "%s was not compared at %d bytes" % (row.tool, size)
        ratio = statistics.median(ours / its for ours, its in pairs)
        if max(ratio, 1 / ratio) > AGREEMENT:
            return "echo of %d bytes: %.2f us here, %.2f by %s (ratio %.2f)" % (
                size, statistics.median(o for o, _ in pairs) / 1e3, statistics.median(t for _, t in pairs) / 1e3,
                row.tool, ratio)
    return None
