#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Measures batch gets of Farcall's tables beside Redis and memcached of Debian 12: sh perf/peers/stores.sh --help
here=$(cd "$(dirname "$0")" && pwd) || exit 1
python=$(command -v python3) || {
	echo "stores.sh: python3 is not installed; apt-get install python3" >&2
	exit 1
}
exec "$python" -B "$here/stores.py" "$@"
