#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints the frequency of this host's time stamp counter in kHz, measured over a fifth of a second; nothing on other
processors than x86-64.

usage: tsc_khz.py
"""
import ctypes
import mmap
import platform
import time

RDTSC = b"\x0f\x31\x48\xc1\xe2\x20\x48\x09\xd0\xc3"  # rdtsc; shl $32, %rdx; or %rdx, %rax; ret
TRIES = 200  # the one between the closest two readings of the clock counts


def now(counter):
    tries = []
    for _ in range(TRIES):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        ticks = counter()
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        tries.append((after - before, ticks, (before + after) // 2))
    return min(tries)[1:]


def main():
    if platform.machine() != "x86_64":
        return
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(RDTSC)
    counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    ticks, ns = now(counter)
    time.sleep(0.2)
    ticks_then, ns_then = now(counter)
    print(round((ticks_then - ticks) * 1_000_000 / (ns_then - ns)))


main()
