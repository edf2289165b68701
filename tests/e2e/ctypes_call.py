# SPDX-License-Identifier: BSD-3-Clause
"""Loads libfarcall.so as ctypes does and calls itself through it: messages, a typed call, memory.

usage: farcall run -n 1 -- python3 ctypes_call.py LIBRARY
"""
import ctypes as c
import sys
import threading

far = c.CDLL(sys.argv[1])
VERSION = 1000  # 0.1.0
ECHO, KIND_INLINE, TYPE_BYTES, OK, NO_FUNCTION, INVALID = 1, 1, 5, 0, 3, 1
MSG_FN = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p)
FN = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p)


class To(c.Structure):
    _fields_ = [("worker", c.c_int32), ("shard", c.c_int32)]


class MsgHandler(c.Structure):
    _fields_ = [("id", c.c_uint16), ("kind", c.c_int), ("fn", MSG_FN), ("user", c.c_void_p), ("flags", c.c_uint)]


class Function(c.Structure):
    _fields_ = [("signature", c.c_char_p), ("kind", c.c_int), ("fn", FN), ("user", c.c_void_p), ("flags", c.c_uint)]


class Err(c.Structure):
    _fields_ = [("status", c.c_int), ("executed", c.c_int), ("code", c.c_int32),
                ("origin", c.c_char * 128), ("text", c.c_char * 384)]


class Text(c.Structure):
    _fields_ = [("data", c.c_void_p), ("len", c.c_size_t)]


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_uint8), ("ndim", c.c_uint8), ("domain", c.c_uint8),
                ("shape", c.c_uint64 * 8)]


class Payload(c.Union):
    _fields_ = [("i", c.c_int64), ("f", c.c_double), ("s", Text), ("t", Tensor)]


class Val(c.Structure):
    _fields_ = [("type", c.c_uint8), ("kw", c.c_char_p), ("own", c.c_void_p), ("u", Payload)]


class Memory(c.Structure):
    _fields_ = [(name, c.c_uint64) for name in ("reserved", "committed", "slab_committed", "slab_used",
                                               "large_committed", "large_used", "retained")]
    _fields_ += [("allocator", c.c_char_p), ("allocator_why", c.c_char_p)]


for name, result, args in [
        ("far_init_rpc_sized", c.c_int, [c.c_uint32, c.c_char_p, c.c_int, c.c_int, c.c_void_p, c.c_size_t, c.c_void_p,
                                         c.POINTER(Err)]),
        ("far_shutdown", c.c_int, [c.c_void_p, c.c_uint64, c.POINTER(Err)]),
        ("far_register_message", c.c_int, [c.c_void_p, c.POINTER(MsgHandler), c.POINTER(Err)]),
        ("far_register_function", c.c_int, [c.c_void_p, c.POINTER(Function), c.POINTER(Err)]),
        ("far_reply", c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t]),
        ("far_return", c.c_int, [c.c_void_p, c.c_void_p]),
        ("far_msg_call", c.c_int, [c.c_void_p, To, c.c_uint16, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p,
                                   c.c_size_t, c.POINTER(c.c_size_t), c.POINTER(Err)]),
        ("far_rpc_sync", c.c_int, [c.c_void_p, c.c_char_p, c.c_char_p, c.POINTER(Val), c.c_size_t, c.c_void_p,
                                   c.POINTER(Val), c.POINTER(Err)]),
        ("far_val_fini", None, [c.POINTER(Val)]),
        ("far_alloc", c.c_void_p, [c.c_size_t, c.POINTER(Err)]),
        ("far_alloc_size", c.c_size_t, [c.c_void_p]),
        ("far_free", None, [c.c_void_p]),
        ("far_memory_stats_sized", None, [c.POINTER(Memory), c.c_size_t])]:
    function = getattr(far, name)
    function.restype, function.argtypes = result, args

err = Err()


def check(status, want=OK):
    assert status == want, (status, err.text.decode())


@MSG_FN
def echo(req, data, size, user):
    far.far_reply(req, data, size)


@FN
def same(req, args, n, user):
    return far.far_return(req, args)


def echo_once(agent, size, e):
    out, back, got = far.far_alloc(size, c.byref(e)), far.far_alloc(size, c.byref(e)), c.c_size_t()
    assert out and back and out % 64 == 0 and far.far_alloc_size(out) >= size
    c.memset(out, size % 251, size)
    check(far.far_msg_call(agent, To(0, -1), ECHO, out, size, None, back, size, c.byref(got), c.byref(e)))
    assert got.value == size and c.string_at(back, size) == bytes([size % 251]) * size
    far.far_free(out)
    far.far_free(back)


def typed_call(agent, name, payload):
    arg, out = Val(type=TYPE_BYTES), Val()
    arg.u.s = Text(c.cast(c.c_char_p(payload), c.c_void_p), len(payload))
    status = far.far_rpc_sync(agent, b"python", name, c.byref(arg), 1, None, c.byref(out), c.byref(err))
    if status != OK:
        return status, err.text
    result = c.string_at(out.u.s.data, out.u.s.len)
    far.far_val_fini(c.byref(out))
    return status, result


agent = c.c_void_p()
check(far.far_init_rpc_sized(VERSION, b"python", -1, 0, None, 0, c.byref(agent), c.byref(err)))
check(far.far_register_message(agent, c.byref(MsgHandler(ECHO, KIND_INLINE, echo, None)), c.byref(err)))
check(far.far_register_function(agent, c.byref(Function(b"py::same(bytes b) -> bytes", KIND_INLINE, same, None)), c.byref(err)))
for size in (1, 32, 33, 1000, 65536, 1 << 20, 16 << 20):
    echo_once(agent, size, err)
threads = [threading.Thread(target=lambda: [echo_once(agent, 5000 + i, Err()) for i in range(50)]) for _ in range(4)]
failures = []
threading.excepthook = lambda args: failures.append(args.exc_value)
for t in threads:
    t.start()
for t in threads:
    t.join()
assert not failures, failures
assert typed_call(agent, b"py::same", b"x" * 100000) == (OK, b"x" * 100000)
status, text = typed_call(agent, b"py::nothing", b"")
assert status == NO_FUNCTION and b"py::nothing" in text, (status, text)
memory = Memory()
far.far_memory_stats_sized(c.byref(memory), c.sizeof(memory))
assert memory.allocator == b"page runs" and memory.large_used == 0, (memory.allocator, memory.large_used)
check(far.far_shutdown(agent, 0, c.byref(err)))
print("called itself")
