#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Do the engine (`farcall decode`), the tables of engine/PROTOCOL.md (decode.py) and the Wireshark dissector say the same of
the same packets, line by line; and is a table that says something else noticed.

usage: agree.py FARCALL PROTOCOL_TRACE PROTOCOL_TRACE_GENERAL PROTOCOL_FRAMES SOURCE_DIR [programs]

programs: only what these four programs do, for the builds with sanitizers. The tables are Python's and Wireshark's.
"""
import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import decode  # noqa: E402
import lua_tables  # noqa: E402
import tables  # noqa: E402

FARCALL, TRACE, TRACE_GENERAL, FRAMES, SOURCE = sys.argv[1:6]
PROGRAMS_ONLY = sys.argv[6:] == ["programs"]
PROTOCOL = os.path.join(SOURCE, "engine", "PROTOCOL.md")
DISSECTOR = os.path.join(SOURCE, "apps", "wireshark", "farcall.lua")
RECORDED = os.path.join(SOURCE, "tests", "protocol", "recorded.pcap")
PORT = 7000
LIMIT_S = 120
# The first tier of tests/run.sh tries one of so many false tables. All agreements are checked.
LIES = 4 if os.environ.get("FAR_TESTS_BRIEF") == "1" else 1
results = {"passed": 0, "failed": 0, "skipped": 0}
work = tempfile.mkdtemp(prefix="farcall-protocol-")
atexit.register(shutil.rmtree, work, ignore_errors=True)
# Nobody's own plugins and preferences.
ENV = dict(os.environ, HOME=work, XDG_CONFIG_HOME=work, LC_ALL="C.UTF-8")


def check(what, passed, detail=""):
    results["passed" if passed else "failed"] += 1
    if not passed:
        print(f"FAILED: {what}{': ' if detail else ''}{detail}")


def run(*command, **more):
    return subprocess.run(command, capture_output=True, timeout=LIMIT_S, env=ENV, **more)


def lines_of(output):
    return output.decode("utf-8", "backslashreplace").splitlines()


def engine_lines(path, *options):
    return lines_of(run(FARCALL, "decode", *options, path).stdout)


def table_lines(path, protocol=PROTOCOL):
    return list(decode.lines(protocol, path, PORT))


def tshark(path, *options, lua=DISSECTOR):
    done = run("tshark", "-X", f"lua_script:{lua}", "-r", path, *options)
    return [line for line in lines_of(done.stdout) if line]


def dissector_lines(path, lua=DISSECTOR):
    return tshark(path, "-d", f"udp.port=={PORT},farcall", "-T", "fields", "-e", "farcall.line", lua=lua)


def first_difference(a, b):
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y:
            at = next((k for k, (c, d) in enumerate(zip(x, y)) if c != d), min(len(x), len(y)))
            return f"line {i + 1}: ...{x[max(0, at - 40):at + 40]!r} and ...{y[max(0, at - 40):at + 40]!r}"
    return f"{len(a)} lines and {len(b)}"


def agree(what, path):
    ours = engine_lines(path, "--port", str(PORT))
    theirs = {"the tables": table_lines(path)}
    if shutil.which("tshark"):
        theirs["the dissector"] = dissector_lines(path)
    else:
        results["skipped"] += 1
        print(f"SKIP: {what}: tshark is not installed")
    check(f"{what}: there are packets", len(ours) > 100)
    for name, lines in theirs.items():
        check(f"{what}: the engine and {name}", lines == ours, first_difference(ours, lines))
    return ours


def filters(path, lines):
    """Fields by which users filter, and packets that are found by their looks."""
    if not shutil.which("tshark"):
        results["skipped"] += 1
        print("SKIP: filters: tshark is not installed")
        return
    for expression, part in {"farcall.type == 9": " type=RENDEZVOUS ", "farcall.kind == 4": " kind=CONNECT ",
                             "farcall.rendezvous.total == 4000": " total=4000 ", "farcall.retry.seq == 2": " seq=2 ",
                             'farcall.verdict contains "bad"': " bad="}.items():
        wanted = [line for line in lines if part in f"{line} "]
        found = tshark(path, "-d", f"udp.port=={PORT},farcall", "-Y", expression, "-T", "fields", "-e", "farcall.line")
        check(f"tshark -Y '{expression}'", wanted and found == wanted, f"{len(found)}, not {len(wanted)}")
    found = tshark(path, "-T", "fields", "-e", "farcall.line")
    wanted = engine_lines(path)
    check("packets found by their looks", wanted and found == wanted, first_difference(found, wanted))


# ---- everything that the tables list is there to be compared ----


def covered(lines):
    layouts, codes = tables.read(PROTOCOL)
    text = "\n".join(lines)
    for name in lua_tables.LAYOUTS:
        check(f"the trace has a {name}", f"[{name}]" in text)
    for name in ("kind", "type", "status", "executed"):
        for row in codes[name].rows:
            check(f"the trace has {row['name']} of {name}", re.search(rf"=({row['name']})( |$)", text, re.M))
    for name in ("wire_flag", "flag"):
        for row in codes[name].rows:
            check(f"the trace has {row['name']} of {name}", re.search(rf" \w+=(\w+\+)*{row['name']}[+ ]", text))
    for row in codes["engine_fn"].rows:
        for way in ("request", "reply"):
            check(f"the trace has a {way} of {row['name']}", re.search(rf" \[engine\] {way}={row['name']} .*ok$", text, re.M))
    for said in ("REMOTE", "FETCH [values] (9)", 'TYPE [values] ("int")', "CONTROL [statuses] OK,PEER_LOST"):
        check(f"a shard's own reply, {said}", f" [engine] reply={said} ok\n" in text)
    for name in ("REQUEST", "REPLY", "ERROR", "ONEWAY"):
        check(f"the trace has a {name} with fields", re.search(rf" type={name} [^\n]* \[fields\] data=[^\n]* ok$", text, re.M))
    check("the trace has fields that are wrong", re.search(r" bad=fields$", text, re.M))
    for row in codes["rref_kind"].rows:
        check(f"the trace has {row['name']} of rref_kind", f"[rref_op] kind={row['name']} " in text)
    for name in ("values", "statuses", "engine.size", "rref_op.size", "rref_op.kind", "rref_remote.size", "rref_fetch.size",
                 "rref_method.size", "rref_method_remote.size", "hash.size"):
        check(f"the trace has an engine's message that is wrong, {name}", re.search(rf"\[engine\].* bad={name}$", text, re.M))
    for row in codes["dtype"].rows:
        check(f"the trace has {row['name']} of dtype", f"{row['name']}[" in text)


# ---- what is no datagram ----


def frames_text(protocol, frames):
    """What the tables of this file say of the store's frames and of an info."""
    decoder = decode.Decoder(protocol)
    decoder.out = []
    operations, statuses = decoder.codes["store_op"], decoder.codes["store_status"]
    for frame in frames:
        name, data = frame.split()
        values = decoder.read(name, bytes.fromhex(data))
        if name == "store":
            decoder.out.append(f"{operations.name_of(values['operation'] & 127)} {statuses.name_of(values['status'])}")
        if name != "info":
            continue
        rest = values["list"]
        for _ in range(values["addresses"]):
            address = decoder.read("info_address", rest, exact=False)
            rest = rest[3 + address["driver_bytes"] + address["blob_bytes"]:]
        decoder.out.append(f"left={len(rest)}")
    return " ".join(decoder.out)


def frames():
    lines = lines_of(run(FRAMES).stdout)
    text = frames_text(PROTOCOL, lines)
    for op, fields in {"LOGIN": "", "SET": "key=3:6b6579 value=5:76616c7565 expected=0:", "GET": "", "ADD": "number=7",
                       "CAS": "key=3:6b6579 value=5:76616c7565 expected=300:6f6c64", "WAIT": "timeout=5000", "DELETE": "",
                       "HOLD": "value=5:76616c7565", "WATCH": "key=3:6b6579", "PING": "key=0:", "COPY": "value=5:76616c7565",
                       "REPORT": "number=9"}.items():
        before = text.split(f" {op} OK")[0].split("[store]")[-1]
        check(f"a {op} of the store", f" {op} OK" in text and fields in before and "magic=54534346" in before, before)
    for status in ("OK", "MISSING", "DIFFERS", "TIMEOUT", "FULL", "BAD"):
        check(f"a reply of the store, {status}", f" GET {status}" in text)
    check("an info", '[info] version=4 name_bytes=7 shards=3 flags=1 incarnation=0000000000000abc message_max=1048576 '
          'addresses=2 proof=16:00000000000000000000000000000000 name="trainer"' in text and '[info_address] driver_bytes=3 blob_bytes=2 driver="udp" blob=2:0405 left=0'
          in text, text[-300:])
    check("an address of udp", "[udp_address] version=1 queues=2 addresses=2 reserved=0 host=0000000000001234 "
          f"netns=0000000000005678 list=26:581b591b040a000001{'86fd' + 14 * '00' + '09'}" in text, text[-200:])
    with open(PROTOCOL, encoding="utf-8") as file:
        markdown = file.read().split("\n")
    copy = os.path.join(work, "PROTOCOL.md")
    if PROGRAMS_ONLY:
        return
    made = [(n, lie) for n in ("store", "info", "info_address", "udp_address") for lie in layout_lies(markdown, n)]
    made += [(n, lie) for n in ("store_op", "store_status") for lie in codes_lies(markdown, n)]
    for name, (what, lying) in made:
        with open(copy, "w", encoding="utf-8") as file:
            file.write("\n".join(lying))
        try:
            same = frames_text(copy, lines) == text
        except (tables.Wrong, ValueError, KeyError, decode.Bad):
            same = False
        check(f"a lie about {name}, {what}, is noticed", not same)


# ---- the engine's own constants ----

# Of the tables, the enums that they list: where, and what their names begin with.
ENUMS = {"kind": ("engine/transport/wire.h", "wire_kind", "WIRE_"),
         "wire_flag": ("engine/transport/wire.h", "wire_flag", "WIRE_"),
         "type": ("engine/core/packet.h", "packet_type", "PACKET_"),
         "flag": ("engine/core/packet.h", "packet_flag", "PACKET_"),
         "executed": ("include/farcall/status.h", "far_executed", "FAR_EXECUTED_"),
         "value_type": ("engine/value/encoding_layout.h", "wire_type", "WIRE_"),
         "engine_fn": ("engine/features/references/wire.h", "rref_message", "RREF_"),
         "rref_kind": ("engine/features/references/wire.h", "rref_kind", "RREF_"),
         "store_op": ("engine/control/store_wire.h", "store_op", "STORE_"),
         "store_status": ("engine/control/store_wire.h", "store_status", "STORE_")}
NO_CODES = {"OP_COUNT", "STATUS_COUNT"}


def enum_of(path, name, prefix):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    body = re.search(rf"enum {name} \{{(.*?)\}}", text, re.S)[1]
    value, found = -1, set()
    for item in filter(None, map(str.strip, body.split(","))):
        word, _, number = map(str.strip, item.partition("="))
        if number and not number[0].isdigit():  # the name of another
            continue
        value = int(number, 0) if number else value + 1
        found.add((word[len(prefix):], value))
    return {(word, value) for word, value in found if word not in NO_CODES}


def constants():
    """What the engine gets and the document does not list would be shown as a number by all three alike."""
    codes = tables.read(PROTOCOL)[1]
    for name, where in ENUMS.items():
        ours = enum_of(*where)
        rows = {(row["name"], row["value"]) for row in codes[name].rows}
        if name == "value_type":
            ours = {(word.lower(), value) for word, value in ours}
        check(f"codes {name} are enum {where[1]}", ours == rows, str(ours ^ rows))
    with open(os.path.join(SOURCE, "include", "farcall", "status.h"), encoding="utf-8") as file:
        names = re.findall(r"X\((\w+), \"", file.read())
    check("codes status are enum far_status", names == [row["name"] for row in codes["status"].rows])


# ---- tables that say something else ----


def table_at(lines, name):
    """The first row of a table, and behind its last."""
    title = next(i for i, line in enumerate(lines) if re.match(rf"(Layout|Codes) `{name}`", line))
    first = next(i for i in range(title, len(lines)) if lines[i].startswith("|")) + 2
    last = next(i for i in range(first, len(lines)) if not lines[i].startswith("|"))
    return title, first, last


def with_cells(lines, row, **changed):
    cells = [c.strip() for c in lines[row].strip().strip("|").split("|")]
    for at, text in changed.items():
        cells[int(at[1:])] = text
    return lines[:row] + ["| " + " | ".join(cells) + " |"] + lines[row + 1:]


def layout_lies(lines, name):
    title, first, last = table_at(lines, name)
    order = ("big-endian", "little-endian")
    order = order if order[0] in lines[title] else order[::-1]
    yield "its order", lines[:title] + [lines[title].replace(*order)] + lines[title + 1:]
    for row in range(first, last):
        cells = tables.cells_of(lines[row])
        field = cells[2]
        yield f"{field}: its name", with_cells(lines, row, c2=field + "x")
        other = {"number": "id", "id": "number"}.get(cells[3], "number")
        if cells[3] not in ("bytes", "session", "head"):
            yield f"{field}: its encoding", with_cells(lines, row, c3=other)
        if cells[4] != "-" and field not in ("packet_max",):
            yield f"{field}: what it must be", with_cells(lines, row, c4="77")
        if row + 1 == last or not cells[1].isdigit() or int(cells[1]) == 1:
            continue
        after = tables.cells_of(lines[row + 1])
        if after[1].isdigit():
            moved = with_cells(lines, row, c1=str(int(cells[1]) - 1))
            yield f"{field}: where it ends", with_cells(moved, row + 1, c0=str(int(after[0]) - 1), c1=str(int(after[1]) + 1))


def codes_lies(lines, name):
    _, first, last = table_at(lines, name)
    header = tables.cells_of(lines[first - 2])
    for row in range(first, last):
        cells = tables.cells_of(lines[row])
        yield f"{cells[1]}: its name", with_cells(lines, row, c1=cells[1] + "x")
        other = {"flag": "16" if cells[0] == "32" else "32", "wire_flag": "1" if cells[0] == "128" else "128"}.get(name, "99")
        yield f"{cells[1]}: its value", with_cells(lines, row, c0=other)
        if "body" in header:
            at = header.index("body")
            yield f"{cells[1]}: its body", with_cells(lines, row, **{f"c{at}": "acked" if cells[at] != "acked" else "text"})
        for key, others in {"layout": ("rref_op", "reject"), "before": ("more", "values"), "reply": ("statuses", "value"),
                            "head": ("control", "ack")}.items():
            if key in header:
                other = others[cells[header.index(key)] == others[0]]
                yield f"{cells[1]}: its {key}", with_cells(lines, row, **{f"c{header.index(key)}": other})
        if name == "dtype":
            yield f"{cells[1]}: its bytes", with_cells(lines, row, c2=str(int(cells[2]) + 1))


def noticed(path, sent, wanted):
    """Does decoding by the tables of this file fail, or say something else."""
    try:
        decoder = decode.Decoder(path)
    except (tables.Wrong, ValueError):
        return True
    for packet, line in zip(sent, wanted):
        try:
            if decoder.line(*packet) != line:
                return True
        except (KeyError, StopIteration, AttributeError):
            return True
    return False


def lies(pcap):
    with open(PROTOCOL, encoding="utf-8") as file:
        lines = file.read().split("\n")
    copy = os.path.join(work, "PROTOCOL.md")
    honest = decode.Decoder(PROTOCOL)
    # Requests between engines and their answers, in order, undamaged; then the others, short ones first.
    sent = dict.fromkeys((d[5], d[2], d[3]) for d in decode.datagrams(pcap))
    requests = [s for s in sent if "[engine]" in (line := honest.line(*s)) and "crc=00000000" not in line]
    sent = requests + sorted(sent.keys() - set(requests), key=lambda s: (len(s[0]), s))
    honest = decode.Decoder(PROTOCOL)
    wanted = [honest.line(*s) for s in sent]
    block = lua_tables.block(PROTOCOL)
    made = [(name, lie) for name in lua_tables.LAYOUTS for lie in layout_lies(lines, name)]
    made += [(name, lie) for name in lua_tables.CODES for lie in codes_lies(lines, name)]
    for name, (what, text) in made[::LIES]:
        with open(copy, "w", encoding="utf-8") as file:
            file.write("\n".join(text))
        check(f"a lie about {name}, {what}, is noticed", noticed(copy, sent, wanted))
        try:
            same = lua_tables.block(copy) == block
        except (tables.Wrong, ValueError):
            same = False
        check(f"a lie about {name}, {what}, is noticed in the dissector", not same)
    check("there were lies", len(made) > 200, str(len(made)))
    return made


def lies_to_tshark(pcap, lines, made):
    """The dissector reads its tables: with other ones it says other things."""
    if not shutil.which("tshark"):
        results["skipped"] += 1
        return
    copy, lua = os.path.join(work, "PROTOCOL.md"), os.path.join(work, "lying.lua")
    for wanted in ("message ack: where it ends", "request flags: its name", "status REMOTE: its name", "retry its order",
                   "type REQUEST: its body", "dtype f64: its bytes", "rref_op id.number: its name", "engine_fn FETCH: its reply")[::LIES]:
        text = next(t for name, (what, t) in made if f"{name} {what}" == wanted)
        with open(copy, "w", encoding="utf-8") as file:
            file.write("\n".join(text))
        with open(lua, "w", encoding="utf-8") as file:
            file.write(lua_tables.renewed(copy, DISSECTOR))
        said = dissector_lines(pcap, lua)
        check(f"tshark with a lie about {wanted}", said != lines)


# ---- captures that are none ----


def mistake(what, data, words, status=1, args=("-",)):
    done = run(FARCALL, "decode", *args, input=data)
    text = done.stderr.decode("utf-8", "backslashreplace")
    check(f"farcall decode: {what}", done.returncode == status and words in text, f"status {done.returncode}, {text!r}")
    return lines_of(done.stdout)


def captures(pcap):
    with open(pcap, "rb") as file:
        good = file.read()
    whole = mistake("standard input", good, "", 0)
    check("farcall decode: standard input is decoded", whole == engine_lines(pcap))
    swapped = bytearray(good)
    for at in (0, 8, 12, 16, 20):
        swapped[at:at + 4] = good[at:at + 4][::-1]
    swapped[4:8] = good[5:3:-1] + good[7:5:-1]
    at = 24
    while at < len(good):
        size = int.from_bytes(good[at + 8:at + 12], "little")
        for k in range(at, at + 16, 4):
            swapped[k:k + 4] = good[k:k + 4][::-1]
        at += 16 + size
    check("farcall decode: a capture of the other byte order", mistake("swapped", bytes(swapped), "", 0) == whole)
    some = mistake("a capture that is cut", good[:-1], "ends inside a frame")
    check("farcall decode: what was before the cut", some == whole[:-1])
    mistake("a capture cut in the head of a frame", good[:24 + 3], "ends inside the head of a frame")
    mistake("an empty file", b"", "is no pcap file")
    mistake("another file", b"#!/bin/sh\n" * 10, "is no pcap file")
    mistake("pcapng", b"\x0a\x0d\x0d\x0a" + bytes(40), "is a pcapng file; convert it")
    mistake("another link", good[:20] + b"\x69\0\0\0" + good[24:], "link type 105")
    mistake("a frame of 4 GiB", good[:24] + b"\xff" * 16, "the length of frame 1 is 4294967295 bytes")
    mistake("frames that are cut", good[:24] + cut_frame(good), "1 packets were cut", 0)
    mistake("nothing of ours", good[:24], "holds no packet of ours", 0)
    mistake("no such file", b"", "cannot be opened", 1, (os.path.join(work, "none"),))
    mistake("no file", b"", "no capture is named", 2, ())
    mistake("two files", b"", "one capture at a time", 2, ("a", "b"))
    mistake("a port that is none", b"", "--port", 2, ("--port", "0", "a"))
    other_links(good, whole)
    anything(good)


def record(frame):
    return bytes(8) + len(frame).to_bytes(4, "little") * 2 + frame


def frames_of(good):
    at = 24
    while at < len(good):
        size = int.from_bytes(good[at + 8:at + 12], "little")
        yield good[at + 16:at + 16 + size]
        at += 16 + size


def decoded(good, link, frames):
    """What is said of these frames, but for number, time and addresses."""
    data = good[:20] + link.to_bytes(4, "little") + b"".join(map(record, frames))
    done = run(FARCALL, "decode", "-p", str(PORT), "-", input=data)
    check(f"farcall decode: link type {link}", done.returncode == 0, done.stderr.decode())
    return [line.split(" ", 5)[5] for line in lines_of(done.stdout)]


def other_links(good, whole):
    """The same packets under other heads."""
    ether = list(frames_of(good))[:20]
    wanted = [line.split(" ", 5)[5] for line in whole[:20]]
    v6 = [f[:12] + b"\x86\xdd\x60\0\0\0" + (len(f) - 34).to_bytes(2, "big") + b"\x11\x40" + bytes(12)
          + f[26:30] + bytes(12) + f[30:]
          for f in ether]
    ways = {"Ethernet": (1, ether), "a VLAN": (1, [f[:12] + b"\x81\0\0\x07" + f[12:] for f in ether]),
            "two VLANs": (1, [f[:12] + b"\x88\xa8\0\x07\x81\0\0\x08" + f[12:] for f in ether]), "IPv6": (1, v6),
            "raw": (101, [f[14:] for f in ether]), "raw IPv6": (101, [f[14:] for f in v6]),
            "loopback": (0, [b"\x02\0\0\0" + f[14:] for f in ether]),
            "any": (113, [bytes(14) + f[12:] for f in ether]),
            "any, 2": (276, [f[12:14] + bytes(18) + f[14:] for f in v6]),
            "IP options": (1, [f[:14] + b"\x46" + f[15:34] + bytes(4) + f[34:] for f in ether])}
    for name, (link, frames) in ways.items():
        check(f"farcall decode: over {name}", decoded(good, link, frames) == wanted)
    later = [f[:20] + b"\x00\x01" + f[22:] for f in ether]
    check("farcall decode: later fragments are none", decoded(good, 1, later) == [])
    tcp = [f[:23] + b"\x06" + f[24:] for f in ether]
    check("farcall decode: TCP is none", decoded(good, 1, tcp) == [])


def anything(good):
    """Frames with any end, and with any byte changed: an answer, and no more. A sanitizer sees the rest."""
    frame = next(frames_of(good))
    v6 = frame[:12] + b"\x86\xdd\x60\0\0\0" + (len(frame) - 34).to_bytes(2, "big") + b"\x11\x40" + bytes(32) + frame[34:]
    for whole in (frame, v6):
        changed = [whole[:n] for n in range(len(whole))]
        changed += [whole[:n] + bytes([x]) + whole[n + 1:] for n in range(len(whole)) for x in (0, 0x40, 0xff)]
        for link in (0, 1, 101, 113, 276):
            decoded(good, link, changed)


def cut_frame(good):
    size = int.from_bytes(good[32:36], "little") - 5
    return good[24:32] + size.to_bytes(4, "little") + good[36:40 + size]


def same(a, b):
    with open(a, "rb") as one, open(b, "rb") as other:
        return one.read() == other.read()


def main():
    fresh, again, general, damaged, damaged_general = (
        os.path.join(work, f"{n}.pcap") for n in ("fresh", "again", "general", "damaged", "damaged-general"))
    for trace, path, more in ((TRACE, fresh, ()), (TRACE, again, ()), (TRACE_GENERAL, general, ()),
                              (TRACE, damaged, ("damaged",)), (TRACE_GENERAL, damaged_general, ("damaged",))):
        done = run(trace, path, *more)
        if done.returncode:
            sys.exit(f"{trace}: {done.stderr.decode()}")
    check("the trace is the same each time", same(fresh, again))
    check("the trace is the same without the fast path", same(fresh, general) and same(damaged, damaged_general))
    with open(DISSECTOR, encoding="utf-8") as file:
        check("the dissector's tables are those of engine/PROTOCOL.md: tests/protocol/lua_tables.py -i puts them there",
              file.read() == lua_tables.renewed(PROTOCOL, DISSECTOR))
    agree("a recorded trace", RECORDED)
    lines = agree("a fresh trace", fresh)
    agree("damaged packets", damaged)
    if not PROGRAMS_ONLY:
        covered(lines)
        filters(fresh, lines)
        lies_to_tshark(fresh, lines, lies(damaged))
        constants()
    frames()
    captures(fresh)
    print(f"{results['passed']} passed, {results['failed']} failed, {results['skipped']} skipped")
    return 1 if results["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
