# SPDX-License-Identifier: BSD-3-Clause
"""The dissector on packets of RDMA devices: recorded datagrams, put into RoCE v2 as a device would, must be dissected
as they are in UDP, field by field. usage: roce.py SOURCE_TOP"""

import os
import shutil
import struct
import subprocess
import sys
import tempfile

ROCE_PORT = 4791
UD_SEND_ONLY = 0x64
QPN = 17
FIELDS = ["farcall.kind", "farcall.marks", "farcall.packet", "farcall.token", "farcall.length", "farcall.text", "farcall.verdict"]
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
    bth = struct.pack(">BBHII", UD_SEND_ONLY, pad << 4, 0xFFFF, QPN, 0)
    deth = struct.pack(">II", 0x1234567, QPN + 1)
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


def main():
    top = sys.argv[1]
    if not shutil.which("tshark"):
        print("SKIP: tshark is not installed")
        return 0 if not os.environ.get("FAR_TESTS_STRICT") else 1
    with open(os.path.join(top, "tests/protocol/recorded.pcap"), "rb") as f:
        plain, roce, count = rewrite(f.read())
    with tempfile.TemporaryDirectory() as home:
        lines = []
        for name, pcap in (("plain.pcap", plain), ("roce.pcap", roce)):
            path = os.path.join(home, name)
            with open(path, "wb") as f:
                f.write(pcap)
            lines.append(dissected(os.path.join(top, "apps/wireshark/farcall.lua"), path, home))
    failed = 0
    known = sum(line.endswith("ok") for line in lines[0])
    if count < 20 or known < 20 or len(lines[0]) != count or len(lines[1]) != count:
        failed += 1
        print("FAIL %d packets, %d and %d lines, %d of them ok" % (count, len(lines[0]), len(lines[1]), known))
    for number, (udp, rdma) in enumerate(zip(*lines), 1):
        if udp != rdma:
            failed += 1
            if failed < 10:
                print("FAIL packet %d: by udp %r, by RoCE %r" % (number, udp, rdma))
    if not failed:
        print("PASS %d packets are dissected alike in UDP and in RoCE" % count)
    print("%d passed, %d failed, 0 skipped" % (not failed, failed))
    return failed > 0


sys.exit(main())
