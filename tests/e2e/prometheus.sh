#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Metrics over HTTP, with Debian's prometheus, which is unpacked, not installed: prometheus.py.
# usage: prometheus.sh FARCALL API_METRICS SOURCE_TOP
set -u
farcall=$1
program=$2
top=$3
here=$(dirname "$0")
. "$here/cases.sh"
guard_s=290

if ! fetched prometheus; then
	skip_data "prometheus" "the package prometheus cannot be downloaded: $(tail -n 1 "$dir/err")"
	finish
fi
# Prometheus' own parser of OpenMetrics, beside openmetrics.py.
if fetched python3-prometheus-client; then
	export PYTHONPATH="$dir/python3-prometheus-client/usr/lib/python3/dist-packages"
fi
bounded python3 "$here/prometheus.py" "$farcall" "$program" "$top" "$dir/prometheus/usr/bin/prometheus"
[ $rc -eq 0 ] && has out '^data: '
ok "Prometheus scrapes a group; each query of the dashboard returns data" $?
finish
