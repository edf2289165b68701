#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Has the emulator do something, from inside of the machine: one command of QEMU's monitor protocol.

usage: monitor.py DEVICE JSON

DEVICE is the machine's end of the monitor's line. The answer is printed; the exit status is 0 unless the emulator
refused the command, or has not answered within a minute.
"""
import json
import os
import select
import sys
import time

LIMIT_S = 60


class Monitor:
    def __init__(self, path):
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self.rest = b""
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

    def ask(self, command, number):
        """The answer to it: greetings, events and answers that an earlier run left are passed over."""
        command["id"] = "%d.%d" % (os.getpid(), number)
        os.write(self.fd, json.dumps(command).encode() + b"\n")
        while True:
            try:
                answer = json.loads(self.line())
            except ValueError:
                continue
            if answer.get("id") == command["id"]:
                return answer


def main():
    device, text = sys.argv[1:]
    monitor = Monitor(device)
    monitor.ask({"execute": "qmp_capabilities"}, 1)  # refused from the second time on
    answer = monitor.ask(json.loads(text), 2)
    print(json.dumps(answer.get("return", answer.get("error"))))
    sys.exit("error" in answer)


main()
