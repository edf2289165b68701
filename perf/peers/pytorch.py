#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed.rpc between two processes: the same options and output as the other programs of this folder.

Settings by the documentation of torch.distributed.rpc ("TensorPipe Backend"): TensorPipeRpcBackendOptions with its
defaults, which choose shared memory on one host. echo: torch.add of two tensors of two floats, by rpc_sync alone and by
rpc_async with several in flight. sink: a tensor of `bytes`, written before each call; the callee reads every byte by
sum(), and the caller compares the sum. The calling thread blocks. Time is read by libclock.so, as everywhere here.
"""
import argparse
import collections
import ctypes
import json
import os
import signal
import statistics
import sys
import time
import warnings

GUARD_S = 60
PR_SET_PDEATHSIG = 1


def options():
    p = argparse.ArgumentParser(description="Measures one figure of torch.distributed.rpc and prints it as JSON.")
    p.add_argument("--variant", default="", choices=[""])
    p.add_argument("--bytes", type=int, default=8)
    p.add_argument("--depth", type=int, default=1)
    p.add_argument("--sink", action="store_true")
    p.add_argument("--seconds", type=float, default=0.3)
    p.add_argument("--cpus", default="-1,-1")
    p.add_argument("--dir", default=".")
    p.add_argument("--clock", help="libclock.so")
    p.add_argument("--version", action="store_true")
    return p.parse_args()


def read_all(tensor):
    """Runs in the serving process: reads every byte of the tensor."""
    return tensor.sum()


def pin(cpu):
    if cpu >= 0:
        os.sched_setaffinity(0, {cpu})


def init(name, rank, directory):
    import torch
    from torch.distributed import rpc
    torch.set_num_threads(1)
    rpc.init_rpc(name, rank=rank, world_size=2, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
        init_method="file://%s/torch" % directory, rpc_timeout=30))
    return torch, rpc


class Calls:
    """Calls in flight, oldest first, and what each must return."""

    def __init__(self, o):
        self.torch, self.rpc = init("client", 0, o.dir)
        self.sink = o.sink
        shape, dtype = ((o.bytes // 8,), self.torch.int64) if o.sink else ((2,), self.torch.float32)
        self.idle = [self.torch.ones(shape, dtype=dtype) for _ in range(o.depth)]
        self.two = self.torch.tensor([1.0, 2.0])
        self.flight = collections.deque()
        self.number = 0

    def prepare(self):
        self.number += 1
        tensor = self.idle.pop()
        if self.sink:
            tensor.fill_(self.number)
            return tensor, read_all, (tensor,), self.number * tensor.numel()
        tensor[0] = self.number & 0xffff
        return tensor, self.torch.add, (tensor, self.two), (self.number & 0xffff) + 1

    def check(self, tensor, value, expected):
        found = value.item() if self.sink else value[0].item()
        if found != expected:
            sys.exit("pytorch: a call returned %s, not %s" % (found, expected))
        self.idle.append(tensor)

    def alone(self):
        tensor, function, args, expected = self.prepare()
        self.check(tensor, self.rpc.rpc_sync("server", function, args=args), expected)

    def begin(self):
        tensor, function, args, expected = self.prepare()
        self.flight.append((tensor, self.rpc.rpc_async("server", function, args=args), expected))

    def end(self):
        tensor, future, expected = self.flight.popleft()
        self.check(tensor, future.wait(), expected)


def run(calls, o, seconds, now):
    """Returns the durations of single calls, the number of calls, and the time of all."""
    durations, count, first = [], 0, now()
    after = first
    while after - first < seconds * 1e9:
        before = after if o.depth > 1 else now()
        if o.depth == 1:
            calls.alone()
        else:
            while calls.idle:
                calls.begin()
            calls.end()
        after = now()
        durations.append(after - before)
        count += 1
    while calls.flight:
        calls.end()
    return durations, count, after - first


def measure(o):
    library = ctypes.CDLL(o.clock)
    library.bench_clock.restype = ctypes.c_char_p
    library.bench_now_ns.restype = ctypes.c_double
    clock, now = library.bench_clock().decode(), library.bench_now_ns
    calls = Calls(o)
    run(calls, o, o.seconds / 3, now)
    durations, count, busy = run(calls, o, o.seconds, now)
    figure = {"peer": "pytorch", "variant": "", "bytes": o.bytes, "depth": o.depth,
              "kind": "sink" if o.sink else "echo", "clock": clock, "count": count, "busy_ns": busy,
              "per_s": count * 1e9 / busy, "bytes_per_s": count * o.bytes * 1e9 / busy, "mean_ns": busy / count}
    if o.depth == 1:
        figure["p50_ns"] = statistics.median(durations)
        figure["p99_ns"] = sorted(durations)[int(len(durations) * 0.99)]
    print(json.dumps(figure), flush=True)
    calls.rpc.shutdown()


def serve(o, parent):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    init("server", 1, o.dir)[1].shutdown()


def main():
    o = options()
    warnings.simplefilter("ignore")
    if o.version:
        import torch
        print(torch.__version__)
        return 0
    if o.depth < 1 or o.bytes < 8 or o.bytes % 8 or not 0 < o.seconds <= 600 or not o.clock:
        sys.exit("pytorch: give --clock, --depth of at least 1, and --bytes that are a multiple of 8")
    cpus = [int(c) for c in o.cpus.split(",")]
    os.environ.update(OMP_NUM_THREADS="1", TP_SOCKET_IFNAME="lo", GLOO_SOCKET_IFNAME="lo")
    signal.alarm(int(2 * o.seconds) + GUARD_S)
    parent = os.getpid()
    child = os.fork()
    pin(cpus[1 if child == 0 else 0])
    if child == 0:
        signal.alarm(int(2 * o.seconds) + GUARD_S)
        serve(o, parent)
        return 0
    measure(o)
    end = time.monotonic() + 5
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return 0 if status == 0 else sys.exit("pytorch: the serving process failed")
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    sys.exit("pytorch: the serving process did not end")


if __name__ == "__main__":
    sys.exit(main())
