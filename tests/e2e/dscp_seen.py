#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Holds the DSCP of each packet of a capture against the table under "Priorities" of engine/PROTOCOL.md.

usage: dscp_seen.py PROTOCOL.md FILE.pcap FILE.pcap 4|6 [off]

The captures are classic pcaps of Ethernet frames, of what came in at each end of one connection between two workers whose ports say the
class selectors CS0 to CS7; "off": every packet is to have DSCP 0. Exit status 0: each packet is as the table says, and there were some of
each kind.
"""
import collections
import heapq
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "protocol"))
import tables

SMALL_MAX = 4096  # a message that fits a packet, too
UNASKED = [(8192, 6), (65536, 5), (1 << 62, 4)]  # the longest, and its priority
GRANTED_MAX = 3
URGENT = 7
AGAIN_LEAST = 6
LEAST = {"small": 20, "other": 3, "grants": 5, "unsolicited 6": 5, "unsolicited 5": 5, "unsolicited 4": 1, "granted": 50}


class Reader:
    def __init__(self, protocol):
        layouts, codes = tables.read(protocol)
        head, message = layouts["head"], layouts["message"]
        self.head = {f.name: (f.at, f.size) for f in head.fields}
        self.head |= {f.name: (head.size + f.at, f.size) for f in message.fields if isinstance(f.size, int)}
        self.head_bytes = head.size + message.size
        self.grant = {f.name: (f.at, f.size) for f in layouts["grant"].fields}
        self.grant_bytes = layouts["grant"].size
        self.kinds, self.flags = codes["kind"], codes["wire_flag"]

    @staticmethod
    def of(fields, name, data):
        at, size = fields[name]
        return int.from_bytes(data[at:at + size], "little")


def frames(path):
    """Time, version of IP, DSCP, sender, bytes of the UDP payload, as much of it as was captured."""
    with open(path, "rb") as file:
        magic, _, _, _, _, _, link = struct.unpack("<IHHiIII", file.read(24))
        if magic != 0xa1b2c3d4 or link != 1:
            raise SystemExit(f"{path}: no classic pcap of Ethernet frames")
        while head := file.read(16):
            seconds, micros, kept, _ = struct.unpack("<IIII", head)
            frame = file.read(kept)
            kind = struct.unpack_from(">H", frame, 12)[0]
            if kind == 0x0800 and frame[23] == 17:
                at = 14 + (frame[14] & 15) * 4
                yield (seconds, micros), 4, frame[15] >> 2, frame[26:30], struct.unpack_from(">H", frame, at + 4)[0] - 8, frame[at + 8:]
            elif kind == 0x86dd and frame[20] == 17:
                tos = (frame[14] & 15) << 4 | frame[15] >> 4
                yield (seconds, micros), 6, tos >> 2, frame[22:38], struct.unpack_from(">H", frame, 58)[0] - 8, frame[62:]


def expected(reader, granted, sender, payload, length):
    """The kind of packet, and the priorities that it may have."""
    def head(name):
        return reader.of(reader.head, name, payload)

    flags = [r["name"] for r in reader.flags.rows if r["value"] & head("flags")]
    again = set(range(AGAIN_LEAST, URGENT + 1)) if "RETRANSMIT" in flags else set()
    if reader.kinds.name_of(head("kind")) != "MESSAGE":
        grants = payload[reader.head_bytes:length]
        if reader.kinds.name_of(head("kind")) != "ACK" or not grants:
            return "other", {URGENT}
        for at in range(0, len(grants) - reader.grant_bytes + 1, reader.grant_bytes):
            first = reader.of(reader.grant, "first", grants[at:])
            granted[sender, first].add(min(reader.of(reader.grant, "priority", grants[at:]), GRANTED_MAX))
        return "grants", {URGENT}
    body = length - reader.head_bytes
    if "BATCH" in flags or (head("length") == body and body <= SMALL_MAX):
        return "small", {URGENT}
    unsolicited = next(p for most, p in UNASKED if head("length") <= most)
    # The grant was on the cable when this packet left; whether it was heard by then nobody can see.
    other = next((s for s, _ in granted if s != sender), None)
    by_grant = granted.get((other, head("first")), set())
    return f"unsolicited {unsolicited}" if not by_grant else "granted", {unsolicited} | by_grant | again


def main():
    reader = Reader(sys.argv[1])
    family, off = int(sys.argv[4]), sys.argv[5:] == ["off"]
    granted, seen, wrong = collections.defaultdict(set), collections.Counter(), 0
    levels = collections.defaultdict(collections.Counter)
    packets = heapq.merge(frames(sys.argv[2]), frames(sys.argv[3]), key=lambda packet: packet[0])
    for _, version, dscp, sender, length, payload in packets:
        if version != family or length < reader.head_bytes or len(payload) < reader.head_bytes:
            continue
        kind, may = expected(reader, granted, sender, payload, length)
        seen[kind] += 1
        levels[kind][dscp] += 1
        if dscp not in ({0} if off else {p << 3 for p in may}):
            wrong += 1
            if wrong <= 10:
                print(f"DSCP {dscp} of a packet of the kind '{kind}', which may have {sorted(p << 3 for p in may)}: "
                      f"{payload[:reader.head_bytes].hex()}")
    for kind, n in sorted(seen.items()):
        print(f"{kind}: {n} packets, DSCP {dict(sorted(levels[kind].items()))}")
    few = [f"{kind}: {seen[kind]} packets, not {least}" for kind, least in LEAST.items() if seen[kind] < least]
    if not off and not any(0 <= dscp <= GRANTED_MAX << 3 for dscp in levels["granted"]):
        few.append("none that was granted has the priority of its grant")
    for text in few:
        print(f"too few: {text}")
    sys.exit(wrong > 0 or bool(few))


if __name__ == "__main__":
    main()
