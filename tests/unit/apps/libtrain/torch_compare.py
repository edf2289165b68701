#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Optimizers and modules of libfarcall-train against PyTorch: steps with the same gradients; results and gradients of
modules that load the state of PyTorch's.

usage: torch_compare.py LIBRARY

Skips (exit status 77) without PyTorch (Debian's python3-torch).
"""
import ctypes
import json
import os
import struct
import sys
import tempfile

try:
    import torch
except ImportError:
    print("SKIP-DATA: apps/libtrain/torch: no PyTorch (package python3-torch) to compare with")
    sys.exit(77)

DTYPES = {torch.float32: 1, torch.float64: 2, torch.int64: 6, torch.bfloat16: 10}
NAMES = {torch.float32: "F32", torch.float64: "F64", torch.bfloat16: "BF16"}
torch.set_num_threads(1)
torch.manual_seed(1)


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("dtype", ctypes.c_uint8),
                ("ndim", ctypes.c_uint8), ("domain", ctypes.c_uint8), ("shape", ctypes.c_uint64 * 8)]


class Gradient(ctypes.Structure):
    _fields_ = [("values", Tensor), ("index", Tensor)]


class Err(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("executed", ctypes.c_int), ("code", ctypes.c_int32),
                ("origin", ctypes.c_char * 128), ("text", ctypes.c_char * 384)]


class Init(ctypes.Structure):
    _fields_ = [("dtype", ctypes.c_int), ("seed", ctypes.c_uint64), ("stream", ctypes.c_uint64)]


class Opts(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int)] + [
        (name, ctypes.c_bool if name in ("nesterov", "amsgrad", "centered") else ctypes.c_double)
        for name in ("lr weight_decay momentum dampening nesterov beta1 beta2 eps amsgrad lr_decay initial rho alpha centered"
                     " eta_minus eta_plus step_min step_max l1 l2 beta").split()]


library = ctypes.CDLL(sys.argv[1])
library.far_optimizer_defaults.restype = Opts
for pointer in ("tape_input", "tape_mul", "tape_sum", "module_forward", "module_parameter", "var_tensor"):
    getattr(library, "far_" + pointer).restype = ctypes.c_void_p
for name in ("var_free", "tape_free", "tape_reset", "grads_free", "grads_clear", "optimizer_free", "module_free"):
    getattr(library, "far_" + name).argtypes = [ctypes.c_void_p]
    getattr(library, "far_" + name).restype = None
library.far_grads_get.restype = ctypes.c_bool
counts = {"passed": 0, "failed": 0}
KEPT = []  # tensors that the tape refers to


def call(name, *args):
    err = Err()
    if getattr(library, "far_" + name)(*args, ctypes.byref(err)) != 0:
        raise RuntimeError(f"{name}: {err.text.decode()}")


def make(name, *args):
    """Calls a function whose last argument but the error is where the object goes."""
    made = ctypes.c_void_p()
    call(name, *args, ctypes.byref(made))
    return made


def tensor(t):
    t = t.detach().contiguous()
    x = Tensor(t.data_ptr(), None, DTYPES[t.dtype], t.dim(), 0)
    x.shape[:t.dim()] = list(t.shape)
    x.kept = t
    return x


def value(x, dtype):
    """A copy of the elements of a dense tensor of the library."""
    shape = list(x.shape[:x.ndim])
    out = torch.empty(shape, dtype=dtype)
    ctypes.memmove(out.data_ptr(), x.data, out.numel() * out.element_size())
    return out


def var_value(var, dtype):
    return value(Tensor.from_address(library.far_var_tensor(ctypes.c_void_p(var))), dtype)


def same(name, found, expected, tolerance):
    found, expected = found.double(), expected.detach().double()
    ok = found.shape == expected.shape and torch.allclose(found, expected, rtol=tolerance, atol=tolerance)
    counts["passed" if ok else "failed"] += 1
    if not ok:
        print(f"FAIL: {name}: they differ by {(found - expected).abs().max()}")


pool = make("pool_new", ctypes.c_size_t(0))
tape = make("tape_new", pool)
grads = make("grads_new", pool)


# ---- operators ----

SIZE = ctypes.c_size_t
NONE, MEAN, SUM = 0, 1, 2  # reductions
BAG_SUM, BAG_MEAN = 0, 1


def op(name, *args):
    """A variable of an operator; pointers to variables are integers."""
    function = getattr(library, "far_tape_" + name)
    function.restype = ctypes.c_void_p
    return function(tape, *(ctypes.c_void_p(a) if isinstance(a, int) and not isinstance(a, bool) else a for a in args))


def number(n):
    return ctypes.c_int(n)


def shape(*dims):
    return (ctypes.c_uint64 * len(dims))(*dims)


def cell(a):
    return ctypes.byref((ctypes.c_void_p * 4)(*a))


def no_gradient(t):
    """A variable without a gradient; the tensor is kept."""
    x = tensor(t)
    KEPT.append(x)
    return op("input", ctypes.byref(x))


def compare(name, theirs, ours, inputs, dtype=torch.float64):
    """Result and gradients of a weighed sum of it; inputs are shapes, or (shape, low, high)."""
    library.far_tape_reset(tape)
    library.far_grads_clear(grads)
    KEPT.clear()
    mine, leaves = [], []
    for spec in inputs:
        dims, low, high = spec if isinstance(spec[0], tuple) else (spec, -1, 1)
        leaves.append((low + (high - low) * torch.rand(dims, dtype=torch.float64)).to(dtype).requires_grad_())
        mine.append(make("var_new", pool, ctypes.byref(tensor(leaves[-1])), True))
    expected = theirs(*leaves)
    y = ours(*(leaf.value for leaf in mine))
    call("tape_status", tape)
    tolerance = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 3e-2}[dtype]
    copy = op("scale", y, ctypes.c_double(1))  # dense, if the result is a view
    same(f"{name} {dtype}", var_value(copy, expected.dtype), expected, tolerance)
    weights = torch.rand(expected.shape, dtype=torch.float64).to(expected.dtype)
    (expected * weights).sum().backward()
    root = ctypes.c_void_p(op("sum", op("mul", y, no_gradient(weights)), None, SIZE(0), False))
    call("grads_backward", grads, ctypes.byref(root), SIZE(1), None)
    for i, (leaf, var) in enumerate(zip(leaves, mine)):
        gradient = Gradient()
        if not library.far_grads_get(grads, var, ctypes.byref(gradient)):
            raise RuntimeError(f"{name}: input {i} has no gradient")
        same(f"{name} {dtype}, gradient {i}", value(gradient.values, dtype), leaf.grad, tolerance)
        library.far_var_free(var)


def operators():
    f = torch.nn.functional
    ids, starts = torch.tensor([1, 4, 1, 0, 2]), torch.tensor([0, 2])
    classes = torch.tensor([0, 2, 1])
    axis = (ctypes.c_int * 1)(1)
    cases = []
    for name in ("add", "sub", "mul", "div", "min", "max"):
        theirs = {"min": torch.minimum, "max": torch.maximum}.get(name, getattr(torch, name))
        for a, b in (((3, 4), (4,)), ((2, 3, 1), (3, 4)), ((), (2, 2))):
            cases.append((name, theirs, lambda x, y, name=name: op(name, x, y), [(a, -1, 1), (b, 0.5, 2)]))
    for name, low in (("neg", -1), ("relu", -1), ("sigmoid", -3), ("tanh", -2), ("exp", -2), ("log", 0.5), ("sqrt", 0.5)):
        cases.append((name, getattr(torch, name), lambda x, name=name: op(name, x), [((5, 7), low, 3)]))
    for name in ("sum", "mean"):
        theirs = getattr(torch, name)
        cases.append((name, theirs, lambda x, name=name: op(name, x, None, SIZE(0), False), [(3, 4)]))
        cases.append((name + " of an axis", lambda x, f=theirs: f(x, 1, keepdim=True),
                      lambda x, name=name: op(name, x, axis, SIZE(1), True), [(3, 4, 2)]))
    for name in ("min", "max"):
        cases.append((name + " of an axis", lambda x, name=name: getattr(torch, name)(x, 1)[0],
                      lambda x, name=name: op(name + "_axis", x, number(1), False, None), [(3, 4, 2)]))
    for name in ("softmax", "log_softmax"):
        cases.append((name, lambda x, name=name: getattr(f, name)(x, 1),
                      lambda x, name=name: op(name, x, number(1)), [(3, 5, 2)]))
    for reduction, word in ((NONE, "none"), (MEAN, "mean"), (SUM, "sum")):
        cases += [
            ("cross_entropy " + word, lambda x, w=word: f.cross_entropy(x, classes, reduction=w),
             lambda x, r=reduction: op("cross_entropy", x, no_gradient(classes), number(r)), [(3, 4)]),
            ("bce " + word, lambda x, t, w=word: f.binary_cross_entropy_with_logits(x, t, reduction=w),
             lambda x, t, r=reduction: op("bce_with_logits", x, t, number(r)), [(5, 3), ((5, 3), 0, 1)]),
            ("mse " + word, lambda a, b, w=word: f.mse_loss(a, b, reduction=w),
             lambda a, b, r=reduction: op("mse", a, b, number(r)), [(5, 3), (5, 3)]),
        ]
    for mode, word in ((BAG_SUM, "sum"), (BAG_MEAN, "mean")):
        cases.append(("embedding_bag " + word, lambda w, m=word: f.embedding_bag(ids, w, starts, mode=m),
                      lambda w, m=mode: op("embedding_bag", w, no_gradient(ids), no_gradient(starts), number(m), False),
                      [(6, 3)]))
    lstm, gru = torch._VF.lstm_cell, torch._VF.gru_cell
    cases += [
        ("scale", lambda x: x * -2.5, lambda x: op("scale", x, ctypes.c_double(-2.5)), [(5, 7)]),
        ("matmul", torch.matmul, lambda a, b: op("matmul", a, b), [(2, 3, 4), (4, 5)]),
        ("linear", f.linear, lambda x, w, b: op("linear", x, w, b), [(2, 3, 4), (5, 4), (5,)]),
        ("conv2d", f.conv2d, lambda x, w, b: op("conv2d", x, w, b, None), [(2, 2, 5, 4), (3, 2, 3, 2), (3,)]),
        ("embedding", lambda w: f.embedding(ids, w), lambda w: op("embedding", w, no_gradient(ids), False), [(6, 3)]),
        ("reshape", lambda x: x.reshape(6, 2), lambda x: op("reshape", x, ctypes.c_uint(2), shape(6, 2)), [(3, 4)]),
        ("transpose", lambda x: x.transpose(0, 2), lambda x: op("transpose", x, number(0), number(2)), [(2, 3, 4)]),
        ("slice", lambda x: x[:, 1:6:2], lambda x: op("slice", x, number(1), *map(ctypes.c_uint64, (1, 6, 2))), [(3, 7)]),
        ("expand", lambda x: x.expand(2, 3, 4), lambda x: op("expand", x, ctypes.c_uint(3), shape(2, 3, 4)), [(3, 1)]),
        ("cat", lambda a, b: torch.cat((a, b), 1),
         lambda a, b: op("cat", (ctypes.c_void_p * 2)(a, b), SIZE(2), number(1)), [(3, 2), (3, 4)]),
        ("lstm_cell", lambda x, h, c, *p: lstm(x, (h, c), *p)[0],
         lambda x, h, c, *p: op("lstm_cell", x, h, c, cell(p), None), [(2, 3), (2, 4), (2, 4), (16, 3), (16, 4), (16,), (16,)]),
        ("gru_cell", gru, lambda x, h, *p: op("gru_cell", x, h, cell(p)),
         [(2, 3), (2, 4), (12, 3), (12, 4), (12,), (12,)]),
    ]
    for name, theirs, ours, inputs in cases:
        for dtype in (torch.float64, torch.float32):
            compare(name, theirs, ours, inputs, dtype)
    for name, theirs, ours, inputs in cases:
        if name.split()[0] not in ("mse", "embedding_bag"):  # PyTorch 1.13 has none of bf16
            compare(name, theirs, ours, inputs, torch.bfloat16)
    compare("cast", lambda x: x.float(), lambda x: op("cast", x, number(DTYPES[torch.float32])), [(3, 4)])


# ---- optimizers ----

def optimizer_steps(cls, kind, dtype, torch_options, options):
    w = torch.nn.Parameter((torch.rand(40, 30, dtype=torch.float64) - 0.5).to(dtype))
    theirs = cls([w], **torch_options)
    ours = make("var_new", pool, ctypes.byref(tensor(w)), True)
    opts = library.far_optimizer_defaults(kind)
    for key, option in options.items():
        setattr(opts, key, option)
    optimizer = make("optimizer_new", pool, ctypes.byref(opts), ctypes.byref(ours), ctypes.c_size_t(1))
    for step in range(12):
        edited = Tensor()
        call("var_edit", ours, ctypes.byref(edited))
        ctypes.memmove(edited.data, w.data_ptr(), w.numel() * w.element_size())
        w.grad = ((torch.rand(40, 30, dtype=torch.float64) - 0.5) * (1 + step % 3)).to(dtype)
        library.far_grads_clear(grads)
        gradient = Gradient(tensor(w.grad))
        call("grads_add", grads, ours, ctypes.byref(gradient))
        theirs.step()
        call("optimizer_step", optimizer, grads)
        same(f"{cls.__name__} {dtype} {torch_options} step {step + 1}", var_value(ours.value, dtype), w,
             1e-13 if dtype == torch.float64 else 1e-6)
    library.far_optimizer_free(optimizer)
    library.far_var_free(ours)


def optimizers():
    o = torch.optim
    plain = [
        (o.SGD, 0, [{"lr": 0.1}, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True},
                    {"lr": 0.1, "momentum": 0.8, "dampening": 0.3}]),
        (o.Adam, 1, [{}, {"lr": 0.05, "weight_decay": 0.2, "amsgrad": True}]),
        (o.AdamW, 2, [{}, {"lr": 0.05, "weight_decay": 0.2, "amsgrad": True}]),
        (o.Adagrad, 3, [{}, {"lr": 0.1, "lr_decay": 0.3, "weight_decay": 0.1}]),
        (o.Adadelta, 4, [{}, {"lr": 0.5, "rho": 0.7, "weight_decay": 0.1}]),
        (o.RMSprop, 5, [{}, {"alpha": 0.8, "momentum": 0.7, "weight_decay": 0.1},
                        {"alpha": 0.8, "centered": True, "eps": 1e-3}]),
        (o.Adamax, 6, [{}, {"lr": 0.05, "weight_decay": 0.1}]),
        (o.Rprop, 7, [{}, {"lr": 0.1}]),
    ]
    for cls, kind, settings in plain:
        for setting in settings:
            for dtype in (torch.float64, torch.float32):
                optimizer_steps(cls, kind, dtype, setting, setting)


# ---- modules ----

def save(path, state):
    """A safetensors file, as the format is specified."""
    header, data = {}, b""
    for key, t in state.items():
        raw = t.detach().contiguous().view(torch.int16 if t.dtype == torch.bfloat16 else t.dtype).numpy().tobytes()
        header[key] = {"dtype": NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def compare_module(name, theirs, ours, x, run=lambda module, x: module(x)):
    """Loads the state, and compares the result and the gradients of its squares' sum."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state")
        save(path, theirs.state_dict())
        call("module_load", ours, path.encode())
    dtype = next(theirs.parameters()).dtype
    given = tensor(x)
    library.far_tape_reset(tape)
    library.far_grads_clear(grads)
    y = library.far_module_forward(ours, tape, ctypes.c_void_p(library.far_tape_input(tape, ctypes.byref(given))))
    call("tape_status", tape)
    expected = run(theirs, x)
    same(name, var_value(y, dtype), expected, 1e-12)
    expected.pow(2).sum().backward()
    y = ctypes.c_void_p(y)
    square = ctypes.c_void_p(library.far_tape_mul(tape, y, y))
    root = ctypes.c_void_p(library.far_tape_sum(tape, square, None, ctypes.c_size_t(0), False))
    call("grads_backward", grads, ctypes.byref(root), ctypes.c_size_t(1), None)
    for key, parameter in theirs.named_parameters():
        gradient = Gradient()
        var = ctypes.c_void_p(library.far_module_parameter(ours, key.encode()))
        if not library.far_grads_get(grads, var, ctypes.byref(gradient)):
            raise RuntimeError(f"{name}: {key} has no gradient")
        same(f"{name}, gradient of {key}", value(gradient.values, dtype), parameter.grad, 1e-11)
    library.far_module_free(ours)


def modules():
    size = ctypes.c_uint64
    init = Init(2, 1, 0)
    at = ctypes.byref(init)
    nn = torch.nn
    for bias in (True, False):
        compare_module("Linear", nn.Linear(5, 3, bias=bias).double(),
                       make("module_linear", pool, at, size(5), size(3), bias), torch.rand(4, 5).double())
        for kind, theirs in (("lstm", nn.LSTM), ("gru", nn.GRU)):
            compare_module(kind, theirs(4, 6, bias=bias).double(),
                           make("module_" + kind, pool, at, size(4), size(6), bias), torch.rand(7, 3, 4).double(),
                           lambda module, x: module(x)[0])
    kernel = (ctypes.c_uint64 * 2)(3, 2)
    conv = (ctypes.c_uint32 * 7)(2, 1, 1, 0, 1, 2, 2)
    compare_module("Conv2d", nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2).double(),
                   make("module_conv2d", pool, at, size(4), size(6), kernel, conv, True), torch.rand(2, 4, 6, 5).double())
    compare_module("LayerNorm", nn.LayerNorm(9).double(),
                   make("module_layer_norm", pool, at, size(9), ctypes.c_double(1e-5)), torch.rand(4, 3, 9).double())
    compare_module("Embedding", nn.Embedding(10, 3).double(),
                   make("module_embedding", pool, at, size(10), size(3), False), torch.randint(0, 10, (4, 2)))
    parts = (ctypes.c_void_p * 3)(make("module_linear", pool, at, size(5), size(8), True).value,
                                  make("module_map", pool, 1).value,
                                  make("module_linear", pool, at, size(8), size(2), True).value)
    compare_module("Sequential", nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2)).double(),
                   make("module_sequential", pool, parts, ctypes.c_size_t(3)), torch.rand(4, 5).double())


operators()
optimizers()
modules()
library.far_tape_free(tape)
library.far_grads_free(grads)
library.far_pool_free(pool)
print(f"{counts['passed']} passed, {counts['failed']} failed")
sys.exit(counts["failed"] != 0)
