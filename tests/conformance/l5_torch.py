#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The graphs of group L5 in PyTorch, beside the gradients that the conformance tests had across workers.

usage: l5_torch.py CONFORMANCE.SH PROGRAM

Skips (exit status 77) without PyTorch (Debian's python3-torch).
"""
import os
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError:
    print("SKIP-DATA: conformance-l5-torch: no PyTorch (package python3-torch) to compare with")
    sys.exit(77)


def ramp(rows, cols, start):
    """As ramp() of train.c."""
    values = [start + 0.37 * i - 0.01 * i * i for i in range(rows * cols)]
    return torch.tensor(values, dtype=torch.float32).reshape(rows, cols).requires_grad_()


def full(x):
    return torch.full((2, 2), float(x), requires_grad=True)


def product(size, first, second, operator=torch.mul):
    a, b = ramp(size, size, first), ramp(size, size, second)
    return operator(a, b), [a, b]


def no_grad_on_tensor():
    a = ramp(3, 3, 1)
    return a * 2, [a]


def rref_multi():
    a, b = full(3), full(5)
    return a * b + a * b, [a, b]


def rref_nested():
    a, b, x = full(3), full(5), full(1)
    return x + a * b, [a, b, x]


def round_trips():
    a = full(1)

    def bounce(x, left):
        return 2 * x if left == 0 else bounce(2 * x, left - 1) + x
    return bounce(a, 3), [a]


def dims():
    a, b, d = ramp(4, 6, 0.3), ramp(6, 5, 0.1), ramp(5, 7, 0.9)
    return a @ b @ d, [a, b, d]


def unused():
    a, b = full(1), full(2)
    return a * b, [a, b]


def outputs():
    a = ramp(6, 2, 1)
    return a[0:2] * a[4:6], [a]


def without_rpc():
    a, b = full(2), full(7)
    return a * b, [a, b]


def roots():
    a, b = full(3), full(5)
    return a * b + (a + b), [a, b]


def dtypes():
    a = ramp(3, 3, 0.5)
    return a.double() * a.double(), [a]


def complex_udf():
    a, b = full(3), full(5)
    y = a + b + a
    return y * y, [a, b]


def nested_udf():
    a, b = full(3), full(5)
    return (a + b) * a, [a, b]


def mixed():
    a, b = full(3), full(5).detach()
    return a * b + b * b, [a]


def trainer():
    x = ramp(2, 2, 1)
    return torch.tensor([[0.5, 0.75], [1, 1.25]]) @ x, [x]


GRAPHS = {
    "backward_simple": lambda: product(3, 0.2, -0.7),
    "backward_simple_self": lambda: product(3, 0.2, -0.7),
    "backward_simple_python_udf": lambda: product(3, 0.2, -0.7, torch.matmul),
    "backward_simple_script_call": lambda: product(3, 0.2, -0.7, torch.matmul),
    "backward_no_grad_on_tensor": no_grad_on_tensor,
    "backward_rref": lambda: product(3, 0.1, 0.4),
    "backward_rref_multi": rref_multi,
    "backward_rref_nested": rref_nested,
    "backward_multiple_round_trips": round_trips,
    "backward_different_tensor_dims": dims,
    "backward_unused_tensors": unused,
    "backward_multiple_output_tensors": outputs,
    "backward_without_rpc": without_rpc,
    "backward_multiple_roots": roots,
    "backward_different_dtypes": dtypes,
    "backward_complex_python_udf": complex_udf,
    "backwards_nested_python_udf": nested_udf,
    "mixed_requires_grad": mixed,
    "trainer_ps": trainer,
    "trainer_ps_torchscript_functions": trainer,
}


def measured(directory):
    """Runs the group; gradients by the name of their test, in the order of its checks."""
    path = os.path.join(directory, "gradients")
    ran = subprocess.run(["sh", sys.argv[1], "shm", sys.argv[2], os.path.join(directory, "results"), "--filter", "L5/*"],
                         env={**os.environ, "FAR_CONFORM_GRADIENTS": path}, check=False, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True) # its cases are counted where it runs as a test
    if ran.returncode:
        sys.exit(ran.stdout + "l5_torch.py: group L5 failed")
    gradients = {}
    with open(path, encoding="ascii") as lines:
        for line in lines:
            name, *values = line.split()
            gradients.setdefault(name, []).append([float(v) for v in values])
    return gradients


def main():
    bad = 0
    with tempfile.TemporaryDirectory() as directory:
        gradients = measured(directory)
    if set(gradients) != set(GRAPHS):
        sys.exit(f"l5_torch.py: other graphs: {sorted(set(gradients) ^ set(GRAPHS))}")
    for name, graph in GRAPHS.items():
        y, leaves = graph()
        y.sum().backward()
        want = [leaf.grad.flatten() for leaf in leaves]
        got = [torch.tensor(values) for values in gradients[name]]
        same = len(got) == len(want) and all(g.shape == w.shape and torch.allclose(g, w, rtol=1e-6, atol=1e-6)
                                             for g, w in zip(got, want))
        print(f"{name}: {len(want)} gradients {'as' if same else 'NOT as'} in PyTorch")
        bad += not same
    sys.exit(bad > 0)


main()
