# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Sourced by test.sh: an engine to test with. The one that answers, or a private one, which touches nothing outside
# $cache and its own cgroup: no bridge of its own, no firewall rules, no forwarding; it ends with the test.
# Sets `missing` to the right that is missing when there is none.

packages="docker.io containerd runc iptables debootstrap docker-compose debian-archive-keyring"
daemon=    # pid of ours
cgroup=farcall-docker-$$
missing=

install_engine() {
	absent=
	for p in $packages; do
		dpkg -s "$p" 2>/dev/null | grep -q '^Status: install ok installed' || absent="$absent $p"
	done
	[ -n "$absent" ] || return 0
	echo "docker/test.sh: installing:$absent"
	# The packages' own engine is not to start: ours is private, and ends.
	for update in : "apt-get -o DPkg::Lock::Timeout=300 update"; do
		# shellcheck disable=SC2086 # words
		$update >"$dir/apt" 2>&1 </dev/null && env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -o DPkg::Lock::Timeout=300 \
			install -y --no-install-recommends $absent >"$dir/apt" 2>&1 </dev/null && return 0
	done
	missing="installing$absent ($(tail -n 1 "$dir/apt"))"
	return 1
}

answers() { docker info >/dev/null 2>&1; }
engine_up() { answers || ! kill -0 "$daemon" 2>/dev/null; }

# cache DIRECTORY for the engine's data and for the base image.
engine_begin() {
	cache=$1
	if command -v docker >/dev/null && answers; then
		echo "docker/test.sh: with the engine that answers"
		return 0
	fi
	if [ "$(id -u)" -ne 0 ]; then
		missing="root, to start an engine, as none answers (docker info)"
		return 1
	fi
	install_engine || return 1
	mkdir -p "$cache" && cache=$(cd "$cache" && pwd) || return 1
	# A short path: the address of a socket has 107 bytes.
	run=$(mktemp -d /tmp/farcall-docker.XXXXXX)
	DOCKER_HOST=unix://$run/docker.sock
	export DOCKER_HOST
	DOCKER_CONFIG=$run/config # a user's credentials and contexts are not for this
	export DOCKER_CONFIG
	mkdir "$DOCKER_CONFIG"
	unset DOCKER_CONTEXT DOCKER_TLS_VERIFY DOCKER_CERT_PATH
	# It ends with this shell, whatever ends that.
	setpriv --pdeathsig TERM dockerd --host "$DOCKER_HOST" --data-root "$run/data" --exec-root "$run/exec" --pidfile "$run/pid" \
		--bridge none --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false \
		--default-address-pool base=10.213.0.0/16,size=24 --containerd-namespace "$cgroup" \
		--containerd-plugins-namespace "$cgroup-plugins" --cgroup-parent "/$cgroup" \
		--exec-opt native.cgroupdriver=cgroupfs >"$run/log" 2>&1 </dev/null &
	daemon=$!
	for _ in 1 2 3 4; do # up to 40 s
		eventually engine_up && break
	done
	answers && return 0
	missing="what dockerd needs ($(grep -v level=info "$run/log" | tail -n 1))"
	return 1
}

# Is there nothing left of a private engine: processes whose command lines name its directory.
engine_gone() { [ -z "$(engine_pids)" ]; }
engine_pids() { [ -z "${run:-}" ] || pgrep -f -- "$run/" | grep -vx "$$"; }
daemon_gone() { ! kill -0 "$daemon" 2>/dev/null; }

engine_end() {
	[ -n "$daemon" ] || return 0
	kill "$daemon" 2>/dev/null
	eventually daemon_gone || eventually daemon_gone || kill -KILL "$daemon"
	wait "$daemon" 2>/dev/null
	eventually engine_gone || for p in $(engine_pids); do kill -KILL "$p"; done
	eventually engine_gone
	engine_rest=$?
	daemon=
	# What a container that was killed may have left mounted.
	awk -v at="$run/" 'index($2, at) == 1 { print $2 }' /proc/mounts | sort -r | while read -r m; do umount -l "$m"; done
	rm -rf "$run"
	for d in $(find /sys/fs/cgroup -depth -type d -path "*/$cgroup*" 2>/dev/null); do rmdir "$d"; done
	return $engine_rest
}

# The image that docker/Dockerfile begins with, from Debian's packages: a private engine can pull nothing everywhere.
# Without documentation and package lists, as the public one is.
base_image() { # name
	docker image inspect "$1" >/dev/null 2>&1 && return 0
	[ -n "$daemon" ] || return 0 # the user's engine pulls it
	if [ ! -f "$cache/base.tar" ]; then
		mirror=$(apt-get indextargets --format '$(REPO_URI) $(LABEL)' 'Created-By: Packages' 'Origin: Debian' |
			awk '$2 == "Debian" { print $1; exit }')
		rm -rf "$cache/rootfs"
		echo "docker/test.sh: making $1 from ${mirror:=http://deb.debian.org/debian}"
		debootstrap --variant=minbase bookworm "$cache/rootfs" "$mirror" >"$cache/debootstrap.log" 2>&1 || {
			tail -n 5 "$cache/debootstrap.log"
			return 1
		}
		(cd "$cache/rootfs" && rm -rf var/cache/apt/archives/*.deb var/lib/apt/lists/* usr/share/doc/* usr/share/man/* \
			usr/share/info/* usr/share/locale/* usr/share/lintian/* var/log/*)
		tar -C "$cache/rootfs" -cf "$cache/base.tar.part" . && mv "$cache/base.tar.part" "$cache/base.tar" &&
			rm -rf "$cache/rootfs" || return 1
	fi
	docker import "$cache/base.tar" "$1" >/dev/null
}
