#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Measures Farcall beside other libraries of Debian 12: sh perf/peers/run.sh --help
here=$(cd "$(dirname "$0")" && pwd) || exit 1
# Debian's own interpreter: python3-torch installs for it alone.
python=/usr/bin/python3
[ -x "$python" ] || python=$(command -v python3) || {
	echo "run.sh: python3 is not installed; apt-get install python3" >&2
	exit 1
}
exec "$python" -B "$here/main.py" "$@"
