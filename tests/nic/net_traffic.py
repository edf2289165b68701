#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Other people's traffic, beside that of a driver on the same interface, until the file STOP is there.

usage: net_traffic.py tcp-server ADDRESS PORT STOP
       net_traffic.py tcp-client ADDRESS PORT STOP       prints how many bytes came back, and that nothing was lost
       net_traffic.py unexpected IFACE MAC ADDRESS STOP     ping, ARP, broadcast, UDP to other ports, by the kernel and raw
       net_traffic.py malformed IFACE MAC ADDRESS PORT   datagrams for that port that are broken, each in its own way, 20 times

It gives up after a minute.
"""
import os
import socket
import struct
import sys
import time

ROUNDS = 100  # of malformed frames, in a second: a machine that is busy elsewhere for a while loses those of a while
END = time.monotonic() + 60


def going(stop):
    return not os.path.exists(stop) and time.monotonic() < END


def tcp_server(address, port, stop):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, int(port)), family=family) as server:
        server.settimeout(20)
        connection, _ = server.accept()
        connection.settimeout(20)
        while data := connection.recv(65536):
            connection.sendall(data)


def tcp_client(address, port, stop):
    deadline = time.monotonic() + 10
    while True:
        try:
            s = socket.create_connection((address, int(port)), timeout=20)
            break
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    block = bytes(range(256)) * 64
    total = 0
    print("open", flush=True)
    while going(stop) or total == 0:
        s.sendall(block)
        got = b""
        while len(got) < len(block):
            more = s.recv(len(block) - len(got))
            if not more:
                sys.exit("the connection was closed")
            got += more
        if got != block:
            sys.exit("the bytes differ")
        total += len(got)
        time.sleep(0.002)
    s.close()
    print(f"moved {total} bytes")


def sum16(data):
    if len(data) % 2:
        data += b"\0"
    x = sum(struct.unpack(f">{len(data) // 2}H", data))
    while x >> 16:
        x = (x & 0xFFFF) + (x >> 16)
    return x


def mac_bytes(text):
    return bytes(int(x, 16) for x in text.split(":"))


def udp_frame(to_mac, to, port, payload=b"malformed", *, head=b"", ip_len=None, udp_len=None, fragment=0, bad_ip=0, bad_udp=0):
    """Ethernet, IPv4 or IPv6, and UDP, with one thing or another that is wrong."""
    v6 = ":" in to
    family = socket.AF_INET6 if v6 else socket.AF_INET
    dst = socket.inet_pton(family, to)
    src = dst[:-1] + bytes([dst[-1] ^ 0x40])
    length = 8 + len(payload)
    udp = struct.pack(">HHHH", 4000, port, length if udp_len is None else udp_len, 0) + payload
    check = 0xFFFF & ~sum16(src + dst + struct.pack(">HH", 17, length) + udp)
    udp = udp[:6] + struct.pack(">H", (check or 0xFFFF) ^ bad_udp) + udp[8:]
    ether = to_mac + b"\2\0\0\0\0\x99" + (b"\x86\xdd" if v6 else b"\x08\x00")
    if v6:
        return ether + struct.pack(">IHBB", 6 << 28, length if ip_len is None else ip_len, 17, 64) + src + dst + udp
    size = 20 + len(head)
    ip = bytes([0x40 | size // 4, 0]) + struct.pack(">HHHBB", size + length if ip_len is None else ip_len, 1, fragment, 64, 17)
    ip += b"\0\0" + src + dst + head
    ip = ip[:10] + struct.pack(">H", 0xFFFF & ~sum16(ip) ^ bad_ip) + ip[12:]
    return ether + ip + udp


def raw(iface):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    s.bind((iface, 0))
    return s


def malformed(iface, mac, address, port):
    port = int(port)
    mac = mac_bytes(mac)
    frames = [
        udp_frame(mac, address, port, bad_udp=0x1111),
        udp_frame(mac, address, port, udp_len=60),
        udp_frame(mac, address, port, ip_len=300),
        udp_frame(mac, address, port)[:-4],
    ]
    if ":" not in address:
        frames += [
            udp_frame(mac, address, port, bad_ip=0x1111),
            udp_frame(mac, address, port, fragment=0x2000),
            udp_frame(mac, address, port, head=b"\1\1\1\1"),
        ]
    s = raw(iface)
    for _ in range(ROUNDS):
        for frame in frames:
            s.send(frame)
        time.sleep(0.01)
    print(f"sent {len(frames)} kinds")


def unexpected(iface, mac, address, stop):
    v6 = ":" in address
    to_mac = mac_bytes(mac)
    kernel = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM)
    everybody = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    everybody.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    everybody.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, iface.encode() + b"\0")
    ping = socket.socket(kernel.family, socket.SOCK_RAW, socket.IPPROTO_ICMPV6 if v6 else socket.IPPROTO_ICMP)
    s = raw(iface)
    arp = b"\0\1\x08\0\6\4\0\1\2\0\0\0\0\x99\x0a\x00\x00\x63" + b"\0" * 6 + b"\x0a\x00\x00\x64"
    frames = [
        b"\xff" * 6 + b"\2\0\0\0\0\x99\x08\x06" + arp,
        b"\2\0\0\0\0\x77" + udp_frame(to_mac, address, 7000)[6:],  # somebody else's MAC address
        udp_frame(to_mac, address, 9),
        b"\1\x80\xc2\0\0\0\2\0\0\0\0\x99\0\x26" + b"\x42\x42\3" + bytes(35),  # spanning tree
        to_mac + b"\2\0\0\0\0\x99\x88\xb5" + bytes(50),  # a type for experiments
        to_mac + b"\2\0\0\0\0\x99\x81\0\0\5" + udp_frame(to_mac, address, 7000)[12:],  # another VLAN
    ]
    n = 0
    while going(stop):
        n += 1
        kernel.sendto(b"unexpected", (address, 9))
        everybody.sendto(b"to all", ("255.255.255.255", 7000))
        echo = struct.pack(">BBHHH", 128 if v6 else 8, 0, 0, os.getpid() & 0xFFFF, n & 0xFFFF) + b"ping"
        if not v6:
            echo = echo[:2] + struct.pack(">H", 0xFFFF & ~sum16(echo)) + echo[4:]
        ping.sendto(echo, (address, 0))
        for frame in frames:
            s.send(frame)
        time.sleep(0.002)
    print(f"sent {n} of each")


if __name__ == "__main__":
    what = {"tcp-server": tcp_server, "tcp-client": tcp_client, "unexpected": unexpected, "malformed": malformed}
    if len(sys.argv) != 6 and not (len(sys.argv) == 5 and sys.argv[1].startswith("tcp")) or sys.argv[1] not in what:
        sys.exit(__doc__)
    what[sys.argv[1]](*sys.argv[2:])
