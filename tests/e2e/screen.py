#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs a program on a terminal of 80 columns until it has drawn two screens, presses q, and prints the second screen.
usage: screen.py [--rows N] [--press KEYS] [--resize N] PROGRAM ARGUMENT...
It has 24 rows unless --rows states others; after the first screen it presses KEYS, or makes the terminal N rows high."""
import argparse
import fcntl
import os
import pty
import struct
import sys
import termios

HOME, END = b"\x1b[H", b"\x1b[J"  # a screen begins and ends with them

parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, default=24)
parser.add_argument("--press", default="")
parser.add_argument("--resize", type=int, default=0)
parser.add_argument("command", nargs=argparse.REMAINDER)
given = parser.parse_args()


def size(fd, rows):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80, 0, 0))


pid, terminal = pty.fork()
if pid == 0:
    size(0, given.rows)
    os.execv(given.command[0], given.command)
seen = b""


def screens(n):
    global seen
    while seen.count(END) < n:
        seen += os.read(terminal, 65536)


try:
    screens(1)
    if given.resize:
        size(terminal, given.resize)
    os.write(terminal, given.press.encode())
    screens(2)
    os.write(terminal, b"q")
    while os.read(terminal, 65536):
        pass
except OSError:  # the program has ended
    pass
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
if seen.count(END) < 2:
    sys.exit("screen.py: no two screens: %r" % seen[-500:])
screen = seen.split(HOME)[2].split(END)[0].replace(b"\x1b[K", b"")
print(screen.decode().replace("\r", "").rstrip("\n"))
sys.exit(status)
