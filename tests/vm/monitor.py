#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Has the emulator do something, from inside of the machine: one command of QEMU's monitor protocol.

usage: monitor.py DEVICE JSON

DEVICE is the machine's end of the monitor's line. The answer is printed; the exit status is 0 unless the emulator
refused the command, or has not answered within a minute.

The line is not ours alone: the emulator greets on it, an earlier run may have been ended within a word, and what a
person wrote there by hand stands before what comes next. So a command begins on a line of its own, is numbered, is
repeated when the emulator says that it could not read something, and counts when its number comes back.
"""
import json
import os
import select
import sys
import time

LIMIT_S = 60
TRIES = 5  # of a command that the emulator could not read


class Monitor:
    def __init__(self, path):
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self.rest = b""
        self.tries = 0
        self.end = time.monotonic() + LIMIT_S

    def line(self):
        while b"\n" not in self.rest:
            left = self.end - time.monotonic()
            if left <= 0:
                sys.exit("monitor.py: no answer within %d s" % LIMIT_S)
            select.select([self.fd], [], [], min(left, 0.2))
            try:
                self.rest += os.read(self.fd, 4096)
            except BlockingIOError:
                pass
        line, self.rest = self.rest.split(b"\n", 1)
        return line

    def write(self, words):
        while words:
            left = self.end - time.monotonic()
            if left <= 0:
                sys.exit("monitor.py: the emulator has not read a command within %d s" % LIMIT_S)
            select.select([], [self.fd], [], min(left, 0.2))
            try:
                words = words[os.write(self.fd, words):]
            except BlockingIOError:
                pass

    def execute(self, command, number):
        """The answer to it: greetings, events and answers that an earlier run left are passed over."""
        for _ in range(TRIES):
            self.tries += 1
            command["id"] = "%d.%d.%d" % (os.getpid(), number, self.tries)
            self.write(b"\n" + json.dumps(command).encode() + b"\n")
            answer = self.answer(command["id"])
            if answer:
                return answer
        sys.exit("monitor.py: the emulator could not read %s, %d times" % (json.dumps(command), TRIES))

    def answer(self, wanted):
        """The answer of that number; None: the emulator could not read something, maybe the command."""
        while True:
            line = self.line()
            try:
                answer = json.loads(line[max(line.find(b"{"), 0):])
            except ValueError:
                continue
            if answer.get("id") == wanted:
                return answer
            if "error" in answer and "id" not in answer:
                return None


def main():
    device, text = sys.argv[1:]
    monitor = Monitor(device)
    monitor.execute({"execute": "qmp_capabilities"}, 1)  # refused from the second time on
    answer = monitor.execute(json.loads(text), 2)
    print(json.dumps(answer.get("return", answer.get("error"))))
    sys.exit("error" in answer)


main()
