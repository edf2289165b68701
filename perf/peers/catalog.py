# SPDX-License-Identifier: BSD-3-Clause
"""The rows and the columns of the table."""
from collections import namedtuple

KIB, MIB = 1 << 10, 1 << 20

# `value`: the field of a program's output that is the figure; `scale`: what it is multiplied by for the table.
Figure = namedtuple("Figure", "name head unit bytes depth sink value scale lower_is_better")

FIGURES = [
    Figure("round_trip", "32 B", "p50 us", 32, 1, False, "p50_ns", 1e-3, True),
    Figure("rate", "32 B x 64", "M calls/s", 32, 64, False, "per_s", 1e-6, False),
] + [
    Figure("%s_depth_%d" % (name.replace(" ", "").lower(), depth), "%s x %d" % (name, depth), "GB/s", size, depth,
           True, "bytes_per_s", 1e-9, False)
    for name, size in (("64 KiB", 64 * KIB), ("1 MiB", MIB), ("8 MiB", 8 * MIB)) for depth in (1, 4)
]

# Echo of these sizes, with buffers that neither side writes or reads, is compared with the peer's own tool.
CHECKED = (32, MIB)

# against: the rows of Farcall whose small and large figures this row is divided by.
# tool: the peer's own measurement; None: Debian packages none.
Row = namedtuple("Row", "name program variant waits packages env tool against sinks settings")

UCX = ["libucx-dev", "ucx-utils"]
FABRIC = ["libfabric-dev", "libfabric-bin"]
SHM, UDP, TYPED = ("farcall-shm",) * 2, ("farcall-udp",) * 2, ("farcall-typed", "farcall-shm")

ROWS = [
    Row("farcall-shm", "farcall", "shm", "polls", [], {}, None, None, True,
        "far_msg_send() to an inline handler, far_reply(); each process holds and polls its shard; nic shm "
        "(include/farcall/message.h, agent.h)"),
    Row("farcall-udp", "farcall", "udp", "polls", [], {}, None, None, True, "the same; nic udp over the loopback"),
    Row("farcall-typed", "farcall", "typed", "polls", [], {}, None, None, False,
        "far_rpc_sync() of far::add, two tensors of two floats; 64 in flight: far_rpc_async(); nic shm "
        "(include/farcall/rpc.h)"),
    Row("raw-tcp", "raw", "tcp", "polls", [], {}, None, UDP, True,
        "no requests, a stream; TCP_NODELAY (tcp(7)), MSG_DONTWAIT (send(2), recv(2))"),
    Row("raw-udp", "raw", "udp", "polls", [], {}, None, UDP, False,
        "no requests, a datagram each; MSG_DONTWAIT; a datagram holds 65507 bytes at most (udp(7), ip(7))"),
    Row("ucx-shm", "ucx", "shm", "polls", UCX, {"UCX_TLS": "shm"}, "ucx_perftest", SHM, True,
        "UCP active messages, UCS_THREAD_MODE_SINGLE, UCX_TLS=shm (UCX documentation, FAQ, \"List of main "
        "transports and aliases\"; ucp.h, ucp_am_send_nbx())"),
    Row("ucx-tcp", "ucx", "tcp", "polls", UCX, {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"}, "ucx_perftest", UDP, True,
        "the same; UCX_TLS=tcp UCX_NET_DEVICES=lo (UCX documentation, FAQ, \"Which network devices "
        "does UCX use?\")"),
    Row("libfabric-shm", "libfabric", "shm", "polls", FABRIC, {}, "fi_pingpong", SHM, True,
        "FI_EP_RDM, FI_MSG, fi_cq_read(); provider shm (fi_shm(7), fi_endpoint(3), fi_cq(3))"),
    Row("libfabric-tcp", "libfabric", "tcp", "polls", FABRIC, {"FI_TCP_IFACE": "lo"}, "fi_pingpong", UDP, True,
        "the same; provider tcp under ofi_rxm (fi_tcp(7), fi_rxm(7), FI_TCP_IFACE)"),
    Row("grpc", "grpc", "", "blocks", ["libgrpc++-dev", "libprotobuf-dev", "protobuf-compiler",
                                       "protobuf-compiler-grpc"], {}, None, SHM, True,
        "asynchronous API, one completion queue and thread, unix socket (grpc.io, \"Performance Best Practices\", "
        "C++)"),
    Row("zeromq", "zeromq", "", "blocks", ["libzmq3-dev"], {}, None, SHM, True,
        "DEALER and ROUTER, ipc, one I/O thread (zmq_socket(3), zmq_ipc(7), zmq_msg_init_data(3), zmq_ctx_set(3))"),
    Row("nng", "nng", "", "blocks", ["libnng-dev"], {}, None, SHM, True,
        "pair0, ipc, buffers for 64 messages (nng_pair(7), nng_ipc(7), nng_options(5))"),
    Row("capnp", "capnp", "", "blocks", ["capnproto", "libcapnp-dev"], {}, None, SHM, True,
        "two-party RPC over a socket pair, size hints (capnproto.org/cxxrpc.html, \"Starting a server\"; "
        "capnp/capability.h)"),
    Row("pytorch", "pytorch", "", "blocks", ["python3-torch"], {}, None, TYPED, True,
        "rpc_sync of torch.add, two tensors of two floats; 64 in flight: rpc_async; large: a tensor that the callee "
        "sums; TensorPipe with its defaults (torch.distributed.rpc, \"TensorPipe Backend\")"),
]


def with_prefix(rows):
    """The rows of UCX once more, for a build of another version; their names end in +."""
    return [row._replace(name=row.name + "+", program="ucx+", packages=[]) for row in rows if row.program == "ucx"]


def select(rows, only):
    """The rows named by `only`, by name or family ("ucx"), in the order of the table. ValueError: no such row."""
    if not only:
        return rows
    for name in only:
        if not any(name in (r.name, r.name.split("-")[0]) for r in rows):
            families = sorted({r.name.split("-")[0] for r in rows})
            raise ValueError("no peer \"%s\"; there are %s, and %s" % (
                name, ", ".join(r.name for r in rows), ", ".join(f for f in families if f not in
                                                                 {r.name for r in rows})))
    return [r for r in rows if any(name in (r.name, r.name.split("-")[0]) for name in only)]


def measured(row, figure):
    return row.sinks or not figure.sink


def reference(row, figure):
    """The name of the row of Farcall that a figure is compared with, or None."""
    return row.against and row.against[1 if figure.sink else 0]
