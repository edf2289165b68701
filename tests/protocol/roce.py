# SPDX-License-Identifier: BSD-3-Clause
"""Packets of RDMA devices: recorded datagrams, put into RoCE v2 as a device would, must be dissected and decoded as they
are in UDP, field by field; and nothing in such a capture may bring `farcall decode` down.
usage: roce.py FARCALL SOURCE_TOP"""

import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

ROCE_PORT = 4791
UD_SEND_ONLY = 0x64
QPN = 17
FIELDS = ["farcall.kind", "farcall.flags", "farcall.packet", "farcall.token", "farcall.length", "farcall.text", "farcall.verdict"]
PCAP_HEADER = 24
RECORD_HEADER = 16


def records(pcap):
    at = PCAP_HEADER
    while at < len(pcap):
        length = struct.unpack_from("<I", pcap, at + 8)[0]
        yield pcap[at : at + RECORD_HEADER], pcap[at + RECORD_HEADER : at + RECORD_HEADER + length]
        at += RECORD_HEADER + length


def udp_at(link, frame):
    """Where the UDP header is, and the IP header before it; None: it is another packet."""
    ip = {1: 14, 101: 0, 113: 16, 276: 20}[link]
    if frame[ip] >> 4 == 4:
        return (ip, ip + 4 * (frame[ip] & 15)) if frame[ip + 9] == 17 else None
    return (ip, ip + 40) if frame[ip + 6] == 17 else None


def in_roce(link, frame):
    """The same datagram as UD SEND Only: BTH, DETH, payload padded to words, ICRC (which nobody here checks)."""
    found = udp_at(link, frame)
    if not found:
        return None
    ip, udp = found
    payload = frame[udp + 8 : udp + struct.unpack_from(">H", frame, udp + 4)[0]]
    pad = -len(payload) % 4
    # Each end has its queue pair: that of its address.
    src, dst = (QPN + frame[at] for at in ((ip + 15, ip + 19) if frame[ip] >> 4 == 4 else (ip + 23, ip + 39)))
    bth = struct.pack(">BBHII", UD_SEND_ONLY, pad << 4, 0xFFFF, dst, 0)
    deth = struct.pack(">II", 0x1234567, src)
    body = bth + deth + payload + bytes(pad) + bytes(4)
    out = bytearray(frame[:udp]) + struct.pack(">HHHH", 0xC000, ROCE_PORT, 8 + len(body), 0) + body
    if frame[ip] >> 4 == 4:
        struct.pack_into(">H", out, ip + 2, len(out) - ip)
        struct.pack_into(">H", out, ip + 10, 0)
    else:
        struct.pack_into(">H", out, ip + 4, len(out) - ip - 40)
    return bytes(out)


def rewrite(pcap):
    """Of a capture: the datagrams alone, as they are, and in RoCE."""
    link = struct.unpack_from("<I", pcap, 20)[0] & 0xFFFF
    plain, roce = bytearray(pcap[:PCAP_HEADER]), bytearray(pcap[:PCAP_HEADER])
    struct.pack_into("<I", plain, 16, 1 << 18)
    struct.pack_into("<I", roce, 16, 1 << 18)
    count = 0
    for header, frame in records(pcap):
        wrapped = in_roce(link, frame)
        if not wrapped:
            continue
        count += 1
        plain += header[:8] + struct.pack("<II", len(frame), len(frame)) + frame
        roce += header[:8] + struct.pack("<II", len(wrapped), len(wrapped)) + wrapped
    return bytes(plain), bytes(roce), count


def dissected(lua, path, home):
    command = ["tshark", "-X", "lua_script:" + lua, "-r", path, "-T", "fields"]
    for field in FIELDS:
        command += ["-e", field]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, env=dict(os.environ, HOME=home))
    if run.returncode:
        sys.exit("FAIL tshark: " + run.stderr)
    return run.stdout.split("\n")[:-1]


def decoded(farcall, path):
    """What farcall decode prints of a capture: for each packet where from and to, its length, and all that follows."""
    run = subprocess.run([farcall, "decode", path], capture_output=True, text=True, timeout=300)
    if run.returncode:
        sys.exit("FAIL farcall decode: status %d: %s" % (run.returncode, run.stderr))
    lines = [line.split(" ", 5) for line in run.stdout.split("\n")[:-1]]
    return [(line[2], line[4]) for line in lines], [line[5] for line in lines]


def record(frame, sent=None):
    return struct.pack("<IIII", 0, 0, len(frame), sent or len(frame)) + frame


class Cases:
    passed = failed = 0

    def check(self, name, good, *said):
        if good:
            self.passed += 1
        else:
            self.failed += 1
        print("PASS" if good else "FAIL", name, *([] if good else said))


def compare(cases, who, plain, roce, count):
    known = sum(line.endswith("ok") for line in plain)
    wrong = [(a, b) for a, b in zip(plain, roce) if a != b]
    cases.check("%s on %d packets in UDP and in RoCE" % (who, count),
                count >= 20 and known >= 20 and len(plain) == len(roce) and not wrong, known, len(plain), len(roce), wrong[:3])


def damaged(cases, farcall, home, roce):
    """Frames that were cut, whose headers lie, or in which anything was changed: none is read beyond its end."""
    header, frames = roce[:PCAP_HEADER], [bytes(frame) for _, frame in records(roce)]
    path = os.path.join(home, "damaged.pcap")
    link = struct.unpack_from("<I", roce, 20)[0] & 0xFFFF

    def lines(out):
        with open(path, "wb") as f:
            f.write(header + b"".join(out))
        return subprocess.run([farcall, "decode", path], capture_output=True, text=True, timeout=300)

    longest = max(frames, key=len)
    udp = udp_at(link, longest)[1]
    run = lines([record(longest[:-40], len(longest))])
    cases.check("a capture that was cut", run.returncode == 0 and "1 packets were cut" in run.stderr, run.stderr)
    for opcode in (0x00, 0x04, 0x64 + 0x20, 0x11):
        other = bytearray(longest)
        other[udp + 8] = opcode
        run = lines([record(bytes(other))])
        cases.check("opcode %#x is none of ours" % opcode, run.returncode == 0 and not run.stdout, run.stdout)
    immediate = bytearray(longest[:udp + 28] + bytes(4) + longest[udp + 28:])
    immediate[udp + 8] = 0x65
    struct.pack_into(">H", immediate, udp + 4, struct.unpack_from(">H", immediate, udp + 4)[0] + 4)
    run = lines([record(longest), record(bytes(immediate))])
    said = [line.split(" ", 4)[4] for line in run.stdout.split("\n")[:-1]]
    cases.check("with an immediate word", len(said) == 2 and said[0] == said[1], run.stdout)
    chance = random.Random(17)
    out = [record(longest[:n], len(longest)) for n in range(len(longest))]
    for _ in range(3000):
        frame = bytearray(chance.choice(frames))
        for _ in range(chance.randrange(1, 4)):
            frame[chance.randrange(len(frame)) if chance.random() < 0.5 else udp + chance.randrange(28)] = chance.randrange(256)
        out.append(record(bytes(frame)))
    run = lines(out)
    cases.check("%d damaged frames" % len(out), run.returncode == 0, run.returncode, run.stderr[-300:])


def main():
    farcall, top = sys.argv[1:]
    cases = Cases()
    with open(os.path.join(top, "tests/protocol/recorded.pcap"), "rb") as f:
        plain, roce, count = rewrite(f.read())
    skipped = 0
    with tempfile.TemporaryDirectory() as home:
        paths = []
        for name, pcap in (("plain.pcap", plain), ("roce.pcap", roce)):
            paths.append(os.path.join(home, name))
            with open(paths[-1], "wb") as f:
                f.write(pcap)
        (_, by_udp), (ends, by_roce) = [decoded(farcall, path) for path in paths]
        compare(cases, "farcall decode", by_udp, by_roce, count)
        cases.check("the queue pairs", ends and all(end.endswith("/qp%d" % (QPN + int(end.split("/")[0].split(".")[-1]))) for pair in ends for end in pair), ends[:2])
        damaged(cases, farcall, home, roce)
        if shutil.which("tshark"):
            lua = os.path.join(top, "apps/wireshark/farcall.lua")
            compare(cases, "tshark", *[dissected(lua, path, home) for path in paths], count)
        else:
            print("SKIP: tshark is not installed")
            skipped = 1
    print("%d passed, %d failed, %d skipped" % (cases.passed, cases.failed, skipped))
    return cases.failed > 0 or skipped and os.environ.get("FAR_TESTS_STRICT") == "1"


sys.exit(main())
