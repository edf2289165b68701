#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Operators of libfarcall-ops and their derivatives against PyTorch.

usage: torch_compare.py LIBRARY

Skips (exit status 77) without PyTorch (Debian's python3-torch).
"""
import ctypes
import itertools
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("SKIP-DATA: apps/libops/torch: no PyTorch (package python3-torch) to compare with")
    sys.exit(77)

DTYPES = {torch.float32: 1, torch.float64: 2, torch.int32: 5, torch.int64: 6, torch.bool: 9, torch.bfloat16: 10}
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2}
torch.set_num_threads(1)


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("strides", ctypes.POINTER(ctypes.c_int64)), ("dtype", ctypes.c_uint8),
                ("ndim", ctypes.c_uint8), ("domain", ctypes.c_uint8), ("shape", ctypes.c_uint64 * 8)]


class Work(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


class Err(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("executed", ctypes.c_int), ("code", ctypes.c_int32),
                ("origin", ctypes.c_char * 128), ("text", ctypes.c_char * 384)]


class Conv2d(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32 * 2) for name in ("stride", "padding", "dilation")] + [
        ("groups", ctypes.c_uint32)]


class Cell(ctypes.Structure):
    _fields_ = [(name, ctypes.POINTER(Tensor)) for name in ("w_input", "w_hidden", "bias_input", "bias_hidden")]


class Gradients(ctypes.Structure):
    _fields_ = [(name, ctypes.POINTER(Tensor))
                for name in ("x", "h", "c", "w_input", "w_hidden", "bias_input", "bias_hidden")]


library = ctypes.CDLL(sys.argv[1])
counts = {"passed": 0, "failed": 0}


def view(t):
    """A torch tensor as the library sees it: the same memory, with its strides."""
    x = Tensor(t.data_ptr(), None, DTYPES[t.dtype], t.dim(), 0)
    x.shape[:t.dim()] = list(t.shape)
    x.kept = (ctypes.c_int64 * 8)(*t.stride()), t
    x.strides = ctypes.cast(x.kept[0], ctypes.POINTER(ctypes.c_int64))
    return x


def call(name, *args, work=False):
    """Calls an operator; tensors are passed by reference, and the workspace has the size that it needs."""
    err = Err()
    views = [view(a) if isinstance(a, torch.Tensor) else a for a in args]
    passed = [ctypes.byref(a) if isinstance(a, ctypes.Structure) else a for a in views]
    for _ in range(2 if work else 1):
        extra = []
        if work is not False:
            work = work if isinstance(work, Work) else Work(None, 0)
            if work.bytes:
                memory = ctypes.create_string_buffer(work.bytes)
                work.data = ctypes.addressof(memory)
            extra = [ctypes.byref(work)]
        status = getattr(library, "far_op_" + name)(*passed, *extra, ctypes.byref(err))
        if status != 0:
            raise RuntimeError(f"{name}: status {status}: {err.text.decode()}")


def same(name, found, expected):
    tolerance = TOLERANCE.get(found.dtype, 0)
    ok = found.shape == expected.shape and torch.allclose(found.double(), expected.double(), rtol=tolerance,
                                                          atol=tolerance, equal_nan=True)
    counts["passed" if ok else "failed"] += 1
    if not ok:
        print(f"FAIL: {name}: {found} instead of {expected}")


def rand(dtype, *shape, low=-2.0, high=2.0):
    """Random numbers; half of them seen through a transposed view."""
    x = torch.rand(shape, dtype=torch.float64) * (high - low) + low
    if len(shape) > 1 and torch.rand(1).item() < 0.5:
        return x.to(dtype).transpose(0, -1).contiguous().transpose(0, -1)
    return x.to(dtype)


def derive(out, inputs):
    """A gradient of the result, and torch's gradients of the inputs."""
    grad = torch.rand(out.shape, dtype=torch.float64).to(out.dtype)
    return grad, torch.autograd.grad(out, inputs, grad)


def reference(f, *args, **options):
    """torch's result; of bf16 computed in f32, which not all of its operators know, and rounded once."""
    halves = [a for a in args if isinstance(a, torch.Tensor) and a.dtype == torch.bfloat16]
    wide = [a.float() if isinstance(a, torch.Tensor) and a.dtype == torch.bfloat16 else a for a in args]
    out = f(*wide, **options)
    return out.to(torch.bfloat16) if halves else out


def leaves(*tensors):
    return [t.detach().requires_grad_() for t in tensors]


def empty(like):
    return torch.empty(like.shape, dtype=like.dtype)


def elementwise(dtype):
    pairs = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "min": torch.minimum,
             "max": torch.maximum}
    shapes = [((3, 4), (3, 4)), ((2, 1, 5), (4, 1)), ((), (3,)), ((0, 3), (1,)), ((300, 2), (2,))]
    for (name, f), (sa, sb) in itertools.product(pairs.items(), shapes):
        a, b = leaves(rand(dtype, *sa), rand(dtype, *sb, low=0.5))
        out = f(a, b)
        found, da, db = empty(out), empty(a), empty(b)
        call(name, a.detach(), b.detach(), found)
        same(name, found, out)
        grad, (ga, gb) = derive(out, (a, b))
        call(name + "_backward", grad, a.detach(), b.detach(), da, db)
        same(name + "_backward a", da, ga)
        same(name + "_backward b", db, gb)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        a, b = rand(dtype, 4, 5).round(), rand(dtype, 5).round()
        found = torch.empty(4, 5, dtype=torch.bool)
        call(name, a, b, found)
        same(name, found, getattr(torch, name)(a, b))
    for name, low in (("neg", -3), ("relu", -3), ("sigmoid", -3), ("tanh", -3), ("exp", -3), ("log", 0.1), ("sqrt", 0.1)):
        (x,) = leaves(rand(dtype, 7, 50, low=low, high=3))
        out = getattr(torch, name)(x)
        found, dx = empty(out), empty(x)
        call(name, x.detach(), found)
        same(name, found, out)
        grad, (gx,) = derive(out, (x,))
        kept = [] if name == "neg" else [x.detach() if name == "log" else out.detach()]
        call(name + "_backward", grad, *kept, dx)
        same(name + "_backward", dx, gx)


def reductions(dtype):
    for name, axes, keep in itertools.product(("sum", "mean"), ((0,), (2,), (0, 2), (0, 1, 2)), (False, True)):
        (x,) = leaves(rand(dtype, 4, 5, 6))
        out = getattr(torch, name)(x, dim=axes, keepdim=keep)
        found, dx = empty(out), empty(x)
        array = (ctypes.c_int * len(axes))(*axes)
        call(name, x.detach(), array, ctypes.c_size_t(len(axes)), keep, found)
        same(name, found, out)
        grad, (gx,) = derive(out, (x,))
        call(name + "_backward", grad, x.detach(), array, ctypes.c_size_t(len(axes)), keep, dx)
        same(name + "_backward", dx, gx)
    for axis in range(3):
        for name in ("min", "max"):
            (x,) = leaves(torch.randperm(60).reshape(3, 4, 5).to(dtype))
            out, index = getattr(torch, name)(x, axis)
            found, where, dx = empty(out), empty(index), empty(x)
            call(name + "_axis", x.detach(), axis, False, found, where)
            same(name + "_axis", found, out)
            same(name + "_axis index", where, index)
            grad, (gx,) = derive(out, (x,))
            call(name + "_axis_backward", grad, x.detach(), where, axis, False, dx)
            same(name + "_axis_backward", dx, gx)
        for name in ("softmax", "log_softmax"):
            (x,) = leaves(rand(dtype, 3, 40, 5))
            out = getattr(torch, name)(x, axis)
            found, dx = empty(out), empty(x)
            call(name, x.detach(), axis, found)
            same(name, found, out)
            grad, (gx,) = derive(out, (x,))
            call(name + "_backward", grad, out.detach(), axis, dx)
            same(name + "_backward", dx, gx)


def losses(dtype):
    for code, reduction in enumerate(("none", "mean", "sum")):
        x, y = leaves(rand(dtype, 6, 9), rand(dtype, 6, 9, low=0, high=1))
        target = torch.randint(0, 9, (6,))
        out = reference(F.cross_entropy, x, target, reduction=reduction)
        found, dx = empty(out), empty(x)
        call("cross_entropy", x.detach(), target, code, found)
        same("cross_entropy " + reduction, found, out)
        grad, (gx,) = derive(out, (x,))
        call("cross_entropy_backward", grad, x.detach(), target, code, dx)
        same("cross_entropy_backward " + reduction, dx, gx)
        for name, f in (("bce_with_logits", F.binary_cross_entropy_with_logits), ("mse", F.mse_loss)):
            out = reference(f, x, y, reduction=reduction)
            found, dx, dy = empty(out), empty(x), empty(y)
            call(name, x.detach(), y.detach(), code, found)
            same(f"{name} {reduction}", found, out)
            grad, (gx, gy) = derive(out, (x, y))
            call(name + "_backward", grad, x.detach(), y.detach(), code, dx, dy)
            same(f"{name}_backward x {reduction}", dx, gx)
            same(f"{name}_backward y {reduction}", dy, gy)


def products(dtype):
    shapes = [((3, 4), (4, 5)), ((6,), (6,)), ((4,), (2, 4, 3)), ((2, 3, 4), (4,)), ((2, 1, 3, 4), (3, 4, 2)),
              ((40, 300), (300, 30))]
    for sa, sb in shapes:
        a, b = leaves(rand(dtype, *sa, low=-1, high=1), rand(dtype, *sb, low=-1, high=1))
        out = reference(torch.matmul, a, b)
        found, da, db = empty(out), empty(a), empty(b)
        call("matmul", a.detach(), b.detach(), found, work=True)
        same("matmul", found / 10, out / 10)
        grad, (ga, gb) = derive(out, (a, b))
        call("matmul_backward", grad, a.detach(), b.detach(), da, db, work=True)
        same("matmul_backward a", da / 10, ga / 10)
        same("matmul_backward b", db / 10, gb / 10)
    x, w, b = leaves(rand(dtype, 2, 3, 8), rand(dtype, 5, 8), rand(dtype, 5))
    out = reference(F.linear, x, w, b)
    found, dx, dw, db = empty(out), empty(x), empty(w), empty(b)
    call("linear", x.detach(), w.detach(), b.detach(), found, work=True)
    same("linear", found / 10, out / 10)
    grad, gradients = derive(out, (x, w, b))
    call("linear_backward", grad, x.detach(), w.detach(), dx, dw, db, work=True)
    for name, d, g in zip("xwb", (dx, dw, db), gradients):
        same("linear_backward " + name, d / 10, g / 10)
    for stride, padding, dilation, groups in (((1, 1), (0, 0), (1, 1), 1), ((2, 1), (1, 2), (1, 2), 2)):
        x, w, b = leaves(rand(dtype, 2, 4, 7, 6), rand(dtype, 6, 4 // groups, 3, 2), rand(dtype, 6))
        out = reference(F.conv2d, x, w, b, stride, padding, dilation, groups)
        found, dx, dw, db = empty(out), empty(x), empty(w), empty(b)
        pair = ctypes.c_uint32 * 2
        conv = Conv2d(pair(*stride), pair(*padding), pair(*dilation), groups)
        call("conv2d", x.detach(), w.detach(), b.detach(), conv, found, work=True)
        same("conv2d", found / 10, out / 10)
        grad, gradients = derive(out, (x, w, b))
        call("conv2d_backward", grad, x.detach(), w.detach(), conv, dx, dw, db, work=True)
        for name, d, g in zip("xwb", (dx, dw, db), gradients):
            same("conv2d_backward " + name, d / 50, g / 50)


def cells(dtype):
    if dtype == torch.bfloat16:
        return  # torch rounds the gates
    for name, kind, gates in (("lstm", torch.nn.LSTMCell, 4), ("gru", torch.nn.GRUCell, 3)):
        module = kind(5, 6).to(dtype)
        x, h, c = leaves(rand(dtype, 3, 5), rand(dtype, 3, 6), rand(dtype, 3, 6))
        parameters = [module.weight_ih, module.weight_hh, module.bias_ih, module.bias_hh]
        kept = [view(p.detach()) for p in parameters]
        cell = Cell(*[ctypes.pointer(v) for v in kept])
        saved = torch.empty(3, 24, dtype=dtype)
        h_next, c_next = torch.empty(3, 6, dtype=dtype), torch.empty(3, 6, dtype=dtype)
        if gates == 4:
            out = module(x, (h, c))
            call("lstm_cell", x.detach(), h.detach(), c.detach(), cell, h_next, c_next, saved, work=True)
            same("lstm_cell c", c_next, out[1])
            same("lstm_cell h", h_next, out[0])
            inputs = [x, h, c] + parameters
        else:
            out = (module(x, h),)
            call("gru_cell", x.detach(), h.detach(), cell, h_next, saved, work=True)
            same("gru_cell h", h_next, out[0])
            inputs = [x, h] + parameters
        grads = [torch.rand(3, 6, dtype=dtype) for _ in out]
        expected = torch.autograd.grad(out, inputs, grads)
        results = [empty(i) for i in inputs]
        views = [ctypes.pointer(view(r)) for r in results]
        if gates == 3:
            views.insert(2, None)
        gradients = Gradients(*views)
        if gates == 4:
            call("lstm_cell_backward", *grads, x.detach(), h.detach(), c.detach(), cell, c_next, saved, gradients,
                 work=True)
        else:
            call("gru_cell_backward", *grads, x.detach(), h.detach(), cell, saved, gradients, work=True)
        for i, (r, e) in enumerate(zip(results, expected)):
            same(f"{name}_cell_backward {i}", r, e)


def embeddings(dtype):
    (w,) = leaves(rand(dtype, 9, 4))
    index = torch.randint(0, 9, (3, 5))
    out = reference(F.embedding, index, w)
    found, dw = empty(out), empty(w)
    call("embedding", w.detach(), index, found)
    same("embedding", found, out)
    grad, (gw,) = derive(out, (w,))
    call("embedding_backward", grad, w.detach(), index, dw, work=True)
    same("embedding_backward", dw / 4, gw / 4)
    unique = ctypes.c_size_t()
    indices, sums = torch.empty(15, dtype=torch.int64), torch.empty(15, 4, dtype=dtype)
    call("sparse_sum", index, grad, ctypes.c_uint64(9), indices, sums, ctypes.byref(unique), work=True)
    n = unique.value
    dense = torch.sparse_coo_tensor(index.reshape(1, -1), grad.double().reshape(15, 4), (9, 4)).coalesce()
    same("sparse_sum index", indices[:n], dense.indices()[0])
    same("sparse_sum rows", sums[:n] / 4, dense.values().to(dtype) / 4)
    if dtype == torch.bfloat16:
        return  # torch has no bag of it on a processor
    index, offsets = torch.randint(0, 9, (8,)), torch.tensor([0, 3, 3, 6])
    for code, mode in enumerate(("sum", "mean")):
        out = F.embedding_bag(index, w, offsets, mode=mode)
        found, rows, dw = empty(out), torch.empty(8, 4, dtype=dtype), torch.zeros(9, 4, dtype=dtype)
        call("embedding_bag", w.detach(), index, offsets, code, found)
        same("embedding_bag " + mode, found, out)
        grad, (gw,) = derive(out, (w,))
        call("embedding_bag_backward", grad, index, offsets, code, rows)
        same("embedding_bag_backward " + mode, dw.index_add(0, index, rows), gw)


def conversions():
    x = torch.tensor([0.0, -0.0, 1.5, -2.5, 1e38, 3.4e38, 1e-40, float("inf"), float("nan"), 1.00390625, 1.01171875])
    x = torch.cat([x, torch.randn(1000) * 100])
    found = torch.empty(x.shape, dtype=torch.bfloat16)
    call("copy", x, found)
    same("copy f32 to bf16", found, x.to(torch.bfloat16))
    counts["passed" if torch.equal(found[:8], x.to(torch.bfloat16)[:8]) else "failed"] += 1


def main():
    torch.manual_seed(1)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for part in (elementwise, reductions, losses, products, cells, embeddings):
            part(dtype)
    conversions()
    print(f"{counts['passed']} passed, {counts['failed']} failed, 0 skipped")
    sys.exit(counts["failed"] > 0)


main()
