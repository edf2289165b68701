#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# In a mount namespace of its own: runs a command for which DPDK has the drivers of memif alone.
# usage: fewer_pmds.sh DIRECTORY COMMAND...    the directory is made here; DPDK wants one that root alone may write to
set -u
few=$1
shift
mkdir -m 755 "$few" || exit 1
for pmds in /usr/lib/*/dpdk/pmds-*; do
	[ -d "$pmds" ] || continue
	for name in bus_pci bus_vdev mempool_ring net_memif; do
		cp -a "$pmds/librte_$name".so* "$few/" || exit 1
	done
	mount --bind "$few" "$pmds" || exit 1
done
exec "$@"
