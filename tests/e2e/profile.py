#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""farcall run --profile: one file of all workers, in both formats, as ui.perfetto.dev and OpenTelemetry read them.

usage: profile.py FARCALL API_PROFILE
"""

import json
import os
import re
import subprocess
import sys
import tempfile

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"  # that api_profile accepts
PARENT = "00f067aa0ba902b7"
OUTER = "rpc_sync#t::outer(worker0 -> worker1)#remote_op: "
NESTED = OUTER + "rpc_sync#t::seen(worker1 -> worker2)#remote_op: t::seen"
farcall, program = sys.argv[1:]


def check(what, holds):
    if not holds:
        sys.exit(f"FAIL {what}")
    print(f"PASS {what}")


def run(*args):
    return subprocess.run([farcall, "run", *args], capture_output=True, text=True, timeout=120)


def profile(directory, name):
    path = os.path.join(directory, name)
    with open(path + ".0", "w", encoding="ascii") as old:
        old.write("of an earlier run")
    done = run("-n", "3", "--profile", path, "--", program)
    check(f"{name}: the program runs as without: {done.stderr}", done.returncode == 0)
    check(f"{name}: one file is left of those of the workers", os.listdir(directory) == [name])
    with open(path, encoding="utf-8") as f:
        content = json.load(f)
    os.remove(path)
    return content


def nested(slices):
    """Whether each lies inside of the one that is open, or behind it: times are in us with three digits."""
    open_ends = []
    for begin, length in sorted(slices, key=lambda s: (s[0], -s[1])):
        while open_ends and open_ends[-1] <= begin + 0.0005:
            open_ends.pop()
        if open_ends and begin + length > open_ends[-1] + 0.0015:
            return False
        open_ends.append(begin + length)
    return True


def chrome(events):
    names = {(e["name"], e["pid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    check("chrome: processes are the workers", [names["process_name", i] for i in range(3)] == [f"worker{i}" for i in range(3)])
    slices = [e for e in events if e["ph"] == "X"]
    check("chrome: spans have what Perfetto needs", all(
        isinstance(e["pid"], int) and isinstance(e["tid"], int) and e["ts"] > 1e15 and e["dur"] >= 0 for e in slices))
    threads = {}
    for e in slices:
        threads.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["dur"]))
    check("chrome: spans of a thread are nested", all(nested(s) for s in threads.values()))
    named = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    check("chrome: every thread has a name", named == set(threads))
    by_name = {}
    for e in slices:
        by_name.setdefault(e["name"], []).append(e)
    # The third call of t::outer is in a profile of its own.
    check("chrome: calls", len(by_name["rpc_sync#t::outer(worker0 -> worker1)"]) == 2)
    check("chrome: nested calls came back", len(by_name[NESTED]) == 2 and by_name[NESTED][0]["pid"] == 2)
    check("chrome: ranges, with any bytes in their names", len(by_name[OUTER + 'work "\\\x01\xff']) == 2)
    check("chrome: a range that ends with a future", 
          by_name["inner"][0]["dur"] >= by_name["rpc_async#t::seen(worker0 -> worker1)"][0]["dur"] > 0)
    check("chrome: a message", by_name["message#1(worker0 -> worker1)"][0]["args"]["mode"] == "message")
    check("chrome: arguments", all(
        {"status", "mode", "queued_us", "wire_us", "running_us", "completing_us"} == set(e["args"]) for e in slices))
    call = by_name["rpc_sync#t::outer(worker0 -> worker1)"][0]
    parts = sum(call["args"][k] for k in ("queued_us", "wire_us", "running_us", "completing_us"))
    check("chrome: times of a call", 0 < parts <= call["dur"] + 0.005 and call["args"]["running_us"] > 0)
    starts, ends = ([e["id"] for e in events if e["ph"] == ph] for ph in "sf")
    check("chrome: arrows from calls to handlers", sorted(starts) == sorted(ends) and len(set(starts)) == len(starts) > 0)


def otlp(resources):
    attributes = [{a["key"]: a["value"]["stringValue"] for a in r["resource"]["attributes"]} for r in resources]
    check("otlp: resources are the workers", {a["service.name"] for a in attributes} == {f"worker{i}" for i in range(3)})
    spans = [s for r in resources for scope in r["scopeSpans"] for s in scope["spans"]]
    check("otlp: ids", all(
        re.fullmatch("[0-9a-f]{32}", s["traceId"]) and re.fullmatch("[0-9a-f]{16}", s["spanId"])
        and int(s["traceId"], 16) and int(s["spanId"], 16) for s in spans))
    by_id = {(s["traceId"], s["spanId"]): s for s in spans}
    check("otlp: each span has an id of its own", len(by_id) == len(spans))
    above = [s for s in spans if "parentSpanId" in s and (s["traceId"], s["parentSpanId"]) not in by_id]
    check("otlp: parents are spans of the same trace, or the accepted one",
          above and all((s["traceId"], s["parentSpanId"]) == (TRACE, PARENT) for s in above))
    roots = [s for s in spans if "parentSpanId" not in s]
    check("otlp: each call of no trace begins one", len({s["traceId"] for s in roots}) == len(roots) > 3)
    check("otlp: times", all(0 < int(s["startTimeUnixNano"]) <= int(s["endTimeUnixNano"]) for s in spans))
    check("otlp: kinds and states", {s["kind"] for s in spans} == {1, 2, 3} and all(s["status"]["code"] == 1 for s in spans))
    depth = [s for s in spans if s["name"] == NESTED]
    span, levels = depth[0], 0
    while "parentSpanId" in span and span["parentSpanId"] != PARENT:
        span, levels = by_id[span["traceId"], span["parentSpanId"]], levels + 1
    check("otlp: a nested handler is below call, handler, range and call", levels == 4)


with tempfile.TemporaryDirectory() as where:
    chrome(profile(where, "calls.json")["traceEvents"])
    otlp(profile(where, "calls.otlp.json")["resourceSpans"])
    missing = run("-n", "1", "--profile", os.path.join(where, "x.json"), "--", "true")
    check("a program without workers: status 1, and which worker", missing.returncode == 1 and
          "worker 0 wrote no profile" in missing.stderr and os.listdir(where) == [])
    both = run("--hosts", "a,b", "--profile", "x.json", "--", "true")
    check("--hosts and --profile are refused", both.returncode == 2 and "FAR_PROFILE" in both.stderr)
