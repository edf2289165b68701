# SPDX-License-Identifier: BSD-3-Clause
"""For train.sh: the steps of train_step.c with torch.distributed.autograd, between two processes.

usage: train_torch.py FIGURE SECONDS. Prints "FIGURE MEDIAN_NS STEPS LOSS" as train_step does. One thread for
computation in each process, as there; TensorPipe with its defaults.
"""
import ctypes
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import time

CHECKED, ROWS, WIDTH, IDS, BATCH, MICRO, STAGE, LR = 10, 1000000, 64, 2000, 32, 4, 256, 0.1
SHAPES = {"add": (1, 2), "mlp": (128, WIDTH), "embedding": (ROWS, WIDTH), "pipeline": (STAGE, STAGE), "hop": (1, 2)}
PR_SET_PDEATHSIG = 1
figure = sys.argv[1] if len(sys.argv) == 3 else ""
there = None


def filled(torch, rows, width, salt, grad):
    i = torch.arange(rows * width, dtype=torch.int64)
    x = (((i * 7919 + salt) % 1009).float() / 1009 - 0.5) * 0.25
    return x.reshape(rows, width).requires_grad_(grad)


def init(rank, directory):
    global there
    import torch
    from torch.distributed import rpc
    torch.set_num_threads(1)
    if rank == 1:
        there = filled(torch, *SHAPES[figure], 1, True)
    rpc.init_rpc("worker%d" % rank, rank=rank, world_size=2, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
        init_method="file://%s/torch" % directory, rpc_timeout=60))
    return torch, rpc


def forward(x):
    """Runs on worker 1."""
    import torch
    if figure == "add":
        return x + there
    if figure == "hop":
        return x
    return torch.relu(torch.nn.functional.linear(x, there))


def rows(ids):
    """Runs on worker 1."""
    import torch
    return torch.nn.functional.embedding(ids, there, sparse=True)


def parameter():
    """Runs on worker 1."""
    return there


class Trainer:
    def __init__(self, directory):
        self.torch, self.rpc = init(0, directory)
        from torch.distributed import autograd
        from torch.distributed.optim import DistributedOptimizer
        torch, self.autograd, self.optimizer = self.torch, autograd, None
        shape = {"mlp": (10, 128), "pipeline": (STAGE, STAGE)}.get(figure, (1, 2))
        self.here = filled(torch, *shape, 2, True)
        self.x = filled(torch, BATCH, STAGE if figure == "pipeline" else WIDTH, 3, figure == "mlp")
        self.ids = torch.arange(IDS) * 499 % ROWS
        self.classes = torch.arange(BATCH) % 10
        if figure != "hop":
            params = [self.rpc.remote("worker1", parameter)]
            if figure in ("mlp", "pipeline"):
                params.append(self.rpc.RRef(self.here))
            self.optimizer = DistributedOptimizer(torch.optim.SGD, params, lr=LR)

    def roots(self):
        f = self.torch.nn.functional
        if figure == "mlp":
            y = self.rpc.rpc_sync("worker1", forward, args=(self.x,))
            return [f.cross_entropy(f.linear(y, self.here), self.classes)]
        if figure == "embedding":
            return [self.rpc.rpc_sync("worker1", rows, args=(self.ids,)).square().mean()]
        if figure == "pipeline":
            futures = [self.rpc.rpc_async("worker1", forward, args=(self.torch.relu(f.linear(self.x, self.here)),))
                       for _ in range(MICRO)]
            return [future.wait().square().mean() for future in futures]
        return [self.rpc.rpc_sync("worker1", forward, args=(self.here,)).square().mean()]

    def step(self):
        started = time.perf_counter_ns()
        with self.autograd.context() as context:
            roots = self.roots()
            loss = sum(root.item() for root in roots)
            if figure == "hop":
                started = time.perf_counter_ns()
            self.autograd.backward(context, roots)
            if self.optimizer:
                self.optimizer.step(context)
            over = time.perf_counter_ns()
        return (over if figure == "hop" else time.perf_counter_ns()) - started, loss


def serve(directory):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _, rpc = init(1, directory)
    rpc.shutdown()


def main():
    if sys.argv[1:] == ["--help"]:
        print(__doc__)
        return 0
    if figure not in SHAPES:
        sys.exit("usage: train_torch.py add|mlp|embedding|pipeline|hop SECONDS")
    with tempfile.TemporaryDirectory() as directory:
        server = multiprocessing.get_context("fork").Process(target=serve, args=(directory,))
        server.start()
        trainer = Trainer(directory)
        for _ in range(CHECKED + 1):
            loss = trainer.step()[1]
        ns, until = [], time.monotonic() + float(sys.argv[2])
        while len(ns) < 3 or time.monotonic() < until:
            ns.append(trainer.step()[0])
        print("%s %d %d %.6g" % (figure, statistics.median(ns), len(ns), loss), flush=True)
        trainer.rpc.shutdown()
        server.join()
        return server.exitcode


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.exit(main())
