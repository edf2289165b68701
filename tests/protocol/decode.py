#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Decodes the packets of a capture by the tables of engine/PROTOCOL.md and nothing else, as `farcall decode` prints them.

usage: decode.py PROTOCOL.md FILE.pcap [PORT]

With PORT every UDP datagram from or to it is decoded, else those that look like ours. The capture must be a classic pcap
of Ethernet frames.
"""
import os
import socket
import struct
import sys

import tables

SHOWN = 32  # bytes of data that are printed
FIELDS_MAX = 1024  # bytes of the fields of a message
BATCH_MAX = 928
WINDOW = 256
GRANTS_MAX = 4
EXPOSED, ROOM = 64, 128
LENGTH_MAX = (16 << 20) + 64
RREF_OPS_MAX = 64
RREFS_MAX, CUSTOMS_MAX, DEPTH_MAX, ITEMS_MAX, DICT_MAX, VALUES_MAX, DIMS_MAX = 256, 256, 32, 65536, 1024, 16, 8
LINE = 32  # bytes of a compact payload


class Bad(Exception):
    """The packet breaks a rule."""


def crc32c_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82f63b78 if n & 1 else 0)
        table.append(n)
    return table


CRC_TABLE = crc32c_table()


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xff] ^ crc >> 8
    return crc ^ 0xffffffff


def data_text(data):
    return f"{len(data)}:{data[:SHOWN].hex()}{'..' if len(data) > SHOWN else ''}"


def string_text(data):
    return '"' + "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\x{c:02x}" for c in data) + '"'


def align(at, to):
    return (at + to - 1) // to * to


# ---- typed values ----


class Values:
    """A payload of typed values. Their texts, or Bad."""

    def __init__(self, codes, data):
        self.data, self.at = data, 0
        self.types, self.dtypes = codes["value_type"], codes["dtype"]
        self.customs = self.rrefs = 0
        head = self.byte()
        self.wide = bool(head & 0x80)
        n = head & 0x1f
        if head & 0x40 or n > VALUES_MAX or self.wide != (len(data) > LINE):
            raise Bad("values")
        self.items = None
        if head & 0x20:
            self.items = self.varint()
            if not 0 < self.items <= ITEMS_MAX or self.items > len(data) - self.at:
                raise Bad("values")
        described = [self.value(0) for _ in range(n)]
        if self.items:
            raise Bad("values")
        self.texts = [self.place(v) for v in described]
        if self.at != len(data):
            raise Bad("values")

    def take(self, n):
        if n > len(self.data) - self.at:
            raise Bad("values")
        self.at += n
        return self.data[self.at - n:self.at]

    def byte(self):
        return self.take(1)[0]

    def varint(self):
        x = 0
        for i in range(10):
            b = self.byte()
            x |= (b & 0x7f) << 7 * i
            if b < 0x80:
                if (i and b == 0) or x >> 64:
                    break
                return x
        raise Bad("values")

    def children(self, per, depth):
        n = self.varint()
        if depth == DEPTH_MAX or n * per > (self.items or 0):
            raise Bad("values")
        if n:
            self.items -= n * per
        return [self.value(depth + 1) for _ in range(n * per)]

    def value(self, depth):
        kind = self.types.row(self.byte())
        kind = kind["name"] if kind else None
        if kind == "bool":
            b = self.byte()
            if b > 1:
                raise Bad("values")
            return kind, bool(b)
        if kind == "int":
            x = self.varint()
            return kind, x >> 1 ^ -(x & 1)
        if kind == "float":
            return kind, struct.unpack("<d", self.take(8))[0]
        if kind == "string":
            s = self.take(self.varint())
            if self.byte():
                raise Bad("values")
            return kind, s
        if kind == "bytes":
            return kind, self.varint()
        if kind == "tensor":
            form, domain = self.byte(), self.byte()
            dtype = self.dtypes.row(form >> 4)
            if not dtype or form & 15 > DIMS_MAX or domain:
                raise Bad("values")
            return kind, dtype["name"], int(dtype["bytes"]), [self.varint() for _ in range(form & 15)]
        if kind == "list":
            return kind, self.children(1, depth)
        if kind == "dict":
            items = self.children(2, depth)
            self.check_keys(items[::2])
            return kind, items
        if kind == "custom":
            self.customs += 1
            if self.customs > CUSTOMS_MAX:
                raise Bad("values")
            return kind, struct.unpack("<Q", self.take(8))[0], self.varint()
        if kind == "rref":
            self.rrefs += 1
            if self.rrefs > RREFS_MAX:
                raise Bad("values")
            return kind, struct.unpack("<QQQQQHQ", self.take(50))
        if kind == "none":
            return (kind,)
        raise Bad("values")

    @staticmethod
    def check_keys(keys):
        if len(keys) > DICT_MAX or len(set(keys)) != len(keys):
            raise Bad("values")
        if any(k[0] not in ("bool", "int", "float", "string") or k[1] != k[1] for k in keys):
            raise Bad("values")

    def section(self, to, n):
        if n == 0:
            return b""
        self.at = align(self.at, 64 if self.wide else to)
        return self.take(n)

    def place(self, v):
        kind = v[0]
        if kind == "bool":
            return "true" if v[1] else "false"
        if kind == "int":
            return str(v[1])
        if kind == "float":
            return "nan" if v[1] != v[1] else "%.17g" % v[1]
        if kind == "string":
            return string_text(v[1])
        if kind == "bytes":
            return data_text(self.section(1, v[1]))
        if kind == "tensor":
            _, name, size, shape = v
            for n in shape:
                size *= n
            return f"{name}[{','.join(map(str, shape))}]({data_text(self.section(v[2], size))})"
        if kind == "list":
            return "[" + ",".join([self.place(i) for i in v[1]]) + "]"
        if kind == "dict":
            texts = [self.place(i) for i in v[1]]
            return "{" + ",".join(f"{k}:{x}" for k, x in zip(texts[::2], texts[1::2])) + "}"
        if kind == "custom":
            return f"custom({v[1]:016x},{data_text(self.section(8, v[2]))})"
        if kind == "rref":
            return "rref(%016x,%016x,%016x,%016x,%016x,%04x,%016x)" % v[1]
        return kind


# ---- packets ----


class Decoder:
    def __init__(self, protocol):
        self.layouts, self.codes = tables.read(protocol)
        self.requests = {}  # by call slot, the last request to the engine: (gen, fn)
        self.ends = None, None

    def field_text(self, f, value, raw, message_type):
        encoding = f.encoding
        if encoding == "id":
            return f"{value:0{2 * len(raw)}x}"
        if encoding == "signed":
            return str(int.from_bytes(raw, "little", signed=True))
        if encoding.startswith("code "):
            return self.codes[encoding[5:]].name_of(value)
        if encoding.startswith("bits "):
            return self.codes[encoding[5:]].bits_text(value, message_type)
        return str(value)

    def read(self, name, data, exact=True):
        """The fields of a layout at the beginning of data, by name, and what is printed of them. With `exact` nothing
        may follow."""
        layout = self.layouts[name]
        if len(data) < layout.size:
            raise Bad(f"{name}.size")
        values, at, bad = {}, 0, None
        order = "big" if layout.order == "big" else "little"
        self.out.append(f"[{name}]")
        for f in layout.fields:
            size = f.size if isinstance(f.size, int) else len(data) - at if f.size == "rest" else values[f.size]
            raw = data[at:at + size]
            if len(raw) < size:
                raise Bad(bad or f"{name}.size")
            at += size
            if f.encoding == "head":
                values[f.name] = raw
                continue
            if f.encoding in ("bytes", "text", "session"):
                values[f.name] = raw
                self.out.append(f"{f.name}={string_text(raw) if f.encoding == 'text' else data_text(raw)}")
                continue
            value = values[f.name] = int.from_bytes(raw, order)
            message_type = self.codes["type"].name_of(values["type"]) if "type" in values else None
            self.out.append(f"{f.name}={self.field_text(f, value, raw, message_type)}")
            if not f.low <= value <= f.high:
                bad = bad or f"{name}.{f.name}"
        if bad:
            raise Bad(bad)
        if exact and at != len(data):
            raise Bad(f"{name}.size")
        return values

    def message_head(self, raw):
        """The head of a message; of an unknown type, that alone."""
        row = self.codes["type"].row(raw[0])
        return self.read(row["head"], raw) if row else {"type": raw[0]}

    def note(self, head):
        """If it is a request to the engine, its reply will be known."""
        if self.codes["type"].name_of(head["type"]) == "REQUEST" and self.is_engine_request(head):
            self.requests[(*self.ends, head["slot"])] = head["generation"], head["handler"]

    def announced(self, data):
        if len(data) != self.layouts["request"].size:
            raise Bad("announced.size")
        if self.codes["type"].name_of(data[0]) not in ("REQUEST", "ONEWAY", "REPLY"):
            raise Bad("announced.type")
        self.note(self.message_head(data))

    def is_engine_request(self, head):
        typed = head["flags"] & (self.codes["flag"].value_of("TYPED") or 0)
        return None if typed else self.codes["engine_fn"].row(head["handler"])

    def engine_request(self, row, data):
        self.out += ["[engine]", f"request={row['name']}"]
        name, before = row["layout"], row["before"]
        size = self.layouts[name].size
        if before == "-":
            self.read(name, data)
        elif before == "more":
            if len(data) % size or not 0 < len(data) <= RREF_OPS_MAX * size:
                raise Bad(f"{name}.size")
            for at in range(0, len(data), size):
                self.read(name, data[at:at + size])
        else:
            if len(data) < size:
                raise Bad(f"{name}.size")
            self.read(name, data[len(data) - size:])
            self.values(data[:len(data) - size])

    def reply(self, head, data):
        gen, fn = self.requests.get((*self.ends[::-1], head["slot"]), (None, None))
        if gen != head["generation"]:
            self.payload(data)
            return
        row = self.codes["engine_fn"].row(fn)
        self.out += ["[engine]", f"reply={row['name']}"]
        if row["reply"] == "value":
            self.values(data, one=True)
        elif row["reply"] == "statuses":
            if not 0 < len(data) <= RREF_OPS_MAX:
                raise Bad("statuses")
            self.out += ["[statuses]", ",".join(self.codes["status"].name_of(b) for b in data)]
        elif data:
            raise Bad("engine.size")

    def values(self, data, one=False):
        texts = Values(self.codes, data).texts
        if one and len(texts) != 1:
            raise Bad("values")
        self.out += ["[values]", "(" + ",".join(texts) + ")"]

    def fields(self, head, data):
        """Takes the fields of interceptors off the end of a message. The rest."""
        n = head["tlv_bytes"] if head["flags"] & (self.codes["flag"].value_of("TLV") or 0) else 0
        if not n:
            return data
        if n > min(len(data), FIELDS_MAX):
            raise Bad("fields")
        rest, at = len(data) - n, len(data) - n
        while at < len(data):
            kind, length = int.from_bytes(data[at:at + 2], "little"), int.from_bytes(data[at + 2:at + 4], "little")
            if len(data) - at < 4 or not kind % 32768 or length > len(data) - at - 4:
                raise Bad("fields")
            at += 4 + length
        self.out += ["[fields]", "data=" + data_text(data[rest:])]
        return data[:rest]

    def request(self, head, data):
        flags = head["flags"]
        flag = self.codes["flag"]
        for name, word in (("retry", "RETRY"), ("hash", "HASHED"), ("named", "NAMED"), ("object", "METHOD")):
            if name == "hash":
                data = self.fields(head, data)
            if not flags & (flag.value_of(word) or 0):
                continue
            if name == "object" and flags & (flag.value_of("NAMED") or 0):
                continue
            size = self.layouts[name].size
            if len(data) < size:
                raise Bad(f"{name}.size")
            values = self.read(name, data[len(data) - size:])
            data = data[:len(data) - size]
            if name == "retry" and not values["floor"] <= values["seq"] < values["floor"] + 1024:
                raise Bad("retry.window")
        row = self.is_engine_request(head)
        if row:
            self.engine_request(row, data)
        elif flags & (flag.value_of("TYPED") or 0):
            self.values(data)
        else:
            self.payload(data)

    def payload(self, data):
        if data:
            self.out += ["[payload]", "data=" + data_text(data)]

    def message(self, layout, head, data):
        self.note(head)
        row = self.codes["type"].row(head["type"])
        if not row:
            raise Bad(f"{layout}.type")
        if row["name"] in ("REPLY", "ERROR", "ONEWAY"):
            data = self.fields(head, data)
        if row["body"] == "text":
            self.out += ["[text]", string_text(data)]
        elif row["body"] == "announced":
            self.announced(data)
        elif row["body"] != "payload":
            self.read(row["body"], data)
        elif row["name"] == "REQUEST":
            self.request(head, data)
        elif row["name"] == "REPLY":
            self.reply(head, data)
        else:
            self.payload(data)

    def batch(self, head, first, offset, data):
        end, at = len(data), head["length"]
        if head["packet"] != head["first"] or offset or at >= end or end > BATCH_MAX:
            raise Bad("batch")
        self.message("message", first, data[:at])
        while at < end:
            sub = align(at, 32)
            size = self.layouts["sub"].size
            if sub + size > end:
                raise Bad("sub.size")
            values = self.read("sub", data[sub:sub + size])
            further = self.message_head(values["call"])
            length = values["length"]
            at = sub + size if length <= LINE else align(sub + size, 64)
            if length > end or at > end - length:
                raise Bad("sub.length")
            self.message("sub", further, data[at:at + length])
            at += length

    def bytes_of_message(self, head, data):
        message = self.message_head(head["call"])
        flag = self.codes["wire_flag"]
        piece = head["flags"] & (flag.value_of("FRAGMENT") or 0)
        batch = head["flags"] & (flag.value_of("BATCH") or 0)
        offset, length, n = head["offset"], head["length"], len(data)
        before = (head["packet"] - head["first"]) % (1 << 32)
        if head["flags"] & (flag.value_of("UNORDERED") or 0):
            small = before == 0 and offset != 0
            if piece or (offset > WINDOW or (not batch and n != length) if small else batch):
                raise Bad("unordered")
            offset = 0 if small else offset
        key = None
        if head["lane_phase"] & EXPOSED and n != length:
            size = self.layouts["exposed"].size
            if piece or batch or before or offset or n <= size or length <= ROOM or n - size >= length:
                raise Bad("exposed")
            n -= size
            data, key = data[:n], data[n:]
        if batch:
            if piece:
                raise Bad("batch")
            self.batch(head, message, offset, data)
            return
        if length > LENGTH_MAX or offset + n > length or (n == 0 and length) or before >= 1 << 31:
            raise Bad("fragment")
        if not piece and (offset == 0) != (before == 0):
            raise Bad("fragment")
        if offset == 0 and n == length and not piece:
            self.message("message", message, data)
        else:
            self.note(message)  # each fragment has it
            self.out += ["[fragment]", "data=" + data_text(data)]
            if key:
                self.read("exposed", key)

    def grants(self, data):
        size = self.layouts["grant"].size
        if len(data) % size or len(data) > GRANTS_MAX * size:
            raise Bad("grants")
        for at in range(0, len(data), size):
            self.read("grant", data[at:at + size])

    def handshake(self, data):
        words = self.read("handshake", data)["session"]
        session = self.layouts["session"]
        order = "big" if session.order == "big" else "little"
        if words and (len(words) < session.size or any(
                not f.low <= int.from_bytes(words[f.at:f.at + f.size], order) <= f.high for f in session.fields)):
            raise Bad("session")
        if words:
            self.read("session", words, exact=False)

    def checked(self, packet):
        layout = self.layouts["head"]
        head = self.read("head", packet, exact=False)
        at = next(f.at for f in layout.fields if f.name == "crc")
        if head["crc"] and crc32c(packet[:at] + bytes(4) + packet[at + 4:]) != head["crc"]:
            raise Bad("crc")
        data = packet[layout.size:]
        row = self.codes["kind"].row(head["kind"])
        if not row:
            return
        rest = self.layouts[row["head"]]
        head.update(self.read(row["head"], data, exact=False))
        data = data[rest.size:]
        if row["body"] == "message":
            self.bytes_of_message(head, data)
        elif row["body"] == "handshake":
            self.handshake(data)
        elif row["body"] == "grants":
            self.grants(data)
        else:
            self.read(row["body"], data)

    def line(self, packet, src=None, dst=None):
        """What is printed of one packet from an end to another."""
        self.out = []
        self.ends = src, dst
        try:
            self.checked(packet)
            return " ".join(self.out + ["ok"])
        except Bad as bad:
            return " ".join(self.out + [f"bad={bad}"])


# ---- captures ----


def datagrams(path):
    """(number of the frame, seconds since the first, from, to, ports, payload) of UDP datagrams over Ethernet."""
    with open(path, "rb") as file:
        data = file.read()
    magic = data[:4]
    order = "<" if magic in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    unit = 1000 if magic in (b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4") else 1
    at, n, first = 24, 0, None
    while at + 16 <= len(data):
        sec, frac, size, _ = struct.unpack(order + "4I", data[at:at + 16])
        frame = data[at + 16:at + 16 + size]
        at += 16 + size
        n += 1
        now = sec * 10**9 + frac * unit
        first = now if first is None else first
        kind, = struct.unpack(">H", frame[12:14])
        if kind == 0x0800 and frame[23] == 17:
            udp = 14 + (frame[14] & 15) * 4
            hosts = [socket.inet_ntop(socket.AF_INET, frame[i:i + 4]) for i in (26, 30)]
        elif kind == 0x86dd and frame[20] == 17:
            udp = 54
            hosts = ["[" + socket.inet_ntop(socket.AF_INET6, frame[i:i + 16]) + "]" for i in (22, 38)]
        else:
            continue
        src, dst, length = struct.unpack(">3H", frame[udp:udp + 6])
        payload = frame[udp + 8:udp + length]
        yield n, (now - first) / 1e9, f"{hosts[0]}:{src}", f"{hosts[1]}:{dst}", (src, dst), payload


def looks_ours(payload):
    return len(payload) >= 96 and payload[0] == 3 and 1 <= payload[1] <= 10 and (
        payload[1] > 2 or not any(payload[80:96]))


def lines(protocol, path, port=None):
    decoder = Decoder(protocol)
    for n, seconds, src, dst, ports, payload in datagrams(path):
        if port in ports if port else looks_ours(payload):
            yield f"{n} {seconds:.6f} {src} > {dst} {len(payload)} {decoder.line(payload, src, dst)}"


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    for line in lines(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) == 4 else None):
        print(line)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    main()
