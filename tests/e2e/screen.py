#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs a program on a terminal of 80 x 24 until it has drawn two screens, presses q, and prints the second screen.
usage: screen.py PROGRAM ARGUMENT..."""
import fcntl
import os
import pty
import struct
import sys
import termios

HOME = b"\x1b[H"  # a screen begins with it

pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.execv(sys.argv[1], sys.argv[1:])
seen = b""
try:
    while seen.count(HOME) < 3:
        some = os.read(terminal, 65536)
        if not some:
            break
        seen += some
    os.write(terminal, b"q")
    while os.read(terminal, 65536):
        pass
except OSError:  # the program has ended
    pass
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
screens = seen.split(HOME)
if len(screens) < 4:
    sys.exit("screen.py: no two screens: %r" % seen[-500:])
for escape in (b"\x1b[K", b"\x1b[J"):
    screens[2] = screens[2].replace(escape, b"")
print(screens[2].decode().replace("\r", "").rstrip("\n"))
sys.exit(status)
