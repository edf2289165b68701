#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Unpacks Debian's libsodium for arm64 into a directory, once, and prints where its archive is. Nothing is installed: apt
# works on lists of its own.
# usage: arm64_sodium.sh DIRECTORY
set -eu
mkdir -p "$1"
cd "$1"
where=$PWD
archive=$where/root/usr/lib/aarch64-linux-gnu/libsodium.a
if [ ! -s "$archive" ]; then
	mkdir -p lists/partial cache/archives/partial
	: >status
	apt() {
		timeout 300 apt-get -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State="$where" \
			-o Dir::State::status="$where/status" -o Dir::Cache="$where/cache" -o Acquire::Languages=none \
			-o Acquire::http::Timeout=30 -o APT::Sandbox::User=root "$@"
	}
	apt update >&2
	apt download libsodium-dev >&2
	dpkg -x libsodium-dev_*_arm64.deb root
	rm -rf lists cache
fi
echo "$where/root"
