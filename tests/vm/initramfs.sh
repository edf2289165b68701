#!/bin/busybox sh
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=dash
# The first process: has the host's root, which it cannot write to, under a layer of memory that takes what is written,
# and goes on with tests/vm/init.sh in it. What can fail ends in a panic, which ends the machine.
bb=/bin/busybox
$bb mount -t proc proc /proc
$bb mount -t sysfs sys /sys
$bb mount -t devtmpfs dev /dev
for m in $($bb cat /modules/order); do
	$bb insmod "/modules/$m" || $bb echo "@@ LOG the module $m cannot be loaded"
done
$bb mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro host /lower || exit 1
$bb mount -t tmpfs -o size=70% upper /upper || exit 1
$bb mkdir /upper/written /upper/work
$bb mount -t overlay -o lowerdir=/lower,upperdir=/upper/written,workdir=/upper/work root /root || exit 1
for word in $($bb cat /proc/cmdline); do
	case $word in
	vm_init=*) init=${word#vm_init=} ;;
	esac
done
$bb mkdir -p /root/proc /root/sys /root/dev
for d in proc sys dev; do
	$bb mount -o move "/$d" "/root/$d"
done
exec $bb switch_root /root /bin/sh "$init"
