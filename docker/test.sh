#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The containers for real: builds the image, trains with docker/compose.yaml over udp and over shared memory, and looks at
# what comes out and at what is left. Without an engine that answers it starts one of its own, as root.
# usage: sh docker/test.sh [--cache DIRECTORY]
set -u
top=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)

usage() {
	cat <<'END'
usage: sh docker/test.sh [--cache DIRECTORY]

Builds the image of docker/Dockerfile, runs docker/compose.yaml with each of its profiles, and checks the results, the
health, and that nothing is left. Uses the Docker engine that answers, or installs and starts a private one (root; ended
again in any case), for which it makes debian:bookworm-slim with debootstrap, once: it is kept in DIRECTORY (default:
build-docker/ at the top of the tree, or below FAR_TESTS_BUILD).
The last line is 'N passed, N failed, N skipped'.
END
}

cache=${FAR_TESTS_BUILD:-$top}/build-docker
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help)
		usage
		exit 0
		;;
	--cache)
		cache=${2:?--cache needs a directory}
		shift
		;;
	*)
		echo "docker/test.sh: unknown option $1; --help lists them" >&2
		exit 2
		;;
	esac
	shift
done

. "$top/tests/e2e/cases.sh"
. "$top/docker/engine.sh"
guard_s=1200 # the build of the image shares the cores with those of the sanitizers
base=debian:bookworm-slim
project=farcalltest$$
IMAGE=farcall-test:$$
export IMAGE
unset COMPOSE_PROFILES COMPOSE_FILE COMPOSE_PROJECT_NAME MORE_SERVERS WORKERS TRAIN

end() {
	for profile in udp shm; do
		compose --profile $profile down -v --remove-orphans -t 1 >/dev/null 2>&1
	done
	docker rmi -f "$IMAGE" >/dev/null 2>&1
	engine_end
	rm -rf "$dir"
}

engine_begin "$cache" || {
	skip "containers" "$missing"
	engine_end
	finish
}
if docker compose version >/dev/null 2>&1; then composer="docker compose"; else composer=docker-compose; fi
compose() { (cd "$top/docker" && exec $composer -p "$project" "$@"); }
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

network=
[ -z "$daemon" ] || network="--network host" # ours has no bridge
proxy=$(apt-config dump Acquire::http::Proxy 2>/dev/null | sed -n 's/.*"\(.*\)";/\1/p')

# ---- the image ----

base_image $base
ok "the base image" $?
# shellcheck disable=SC2086 # words
bounded docker build $network ${proxy:+--build-arg http_proxy=$proxy} -t "$IMAGE" -f "$top/docker/Dockerfile" "$top"
[ $rc -eq 0 ]
ok "docker build" $?
[ $rc -eq 0 ] || finish

size_of() { docker image inspect -f '{{.Size}}' "$1"; }
mine=$(size_of "$IMAGE")
below=$(size_of $base)
echo "the image has $((mine / 1000000)) MB, $(((mine - below) / 1000)) kB of them above $base"
[ $((mine - below)) -gt 0 ] && [ $((mine - below)) -lt 10000000 ]
ok "the image adds less than 10 MB to its base" $?

run() { bounded docker run --rm --network none "$@"; }
run --entrypoint sh "$IMAGE" -c 'id -u; for p in cc gcc clang meson ninja ld; do command -v $p; done; ls -ld /run/farcall'
[ $rc -eq 0 ] && [ "$(head -n 1 "$dir/out")" = 10001 ] && [ "$(lines_of_out)" -eq 2 ] && has out '^drwx------.*farcall farcall'
ok "it runs as a user of its own, and has no compiler" $?
run "$IMAGE" --version
[ $rc -eq 0 ] && has out '^farcall [0-9.]*$'
ok "farcall --version" $?
run "$IMAGE" train --rows 2000 --test-rows 1000 --epochs 2 --json
[ $rc -eq 0 ] && json '0.5 < j["test_auc"] <= 1'
ok "one container, without a network: farcall train" $?
run --cpus 0.5 --memory 512m "$IMAGE" info --json
[ $rc -eq 0 ] && json 'j["cpu_quota"] == 0.5 and not j["busy_polling"] and j["memory_max"] == 256 << 20'
ok "docker run --cpus and --memory: farcall info shows them" $?

node() { # name, text on stderr, variables and role
	name=$1
	text=$2
	shift 2
	run --entrypoint farcall-node "$@"
	[ $rc -eq 2 ] && says "$text"
	ok "farcall-node: $name" $?
}
node "no role" "usage: farcall-node" "$IMAGE"
node "workers that are no number" "WORKERS is 'x'; give a number from 1 to 255" -e WORKERS=x "$IMAGE" worker
node "no worker" "WORKERS is 0; give a number" -e WORKERS=0 "$IMAGE" first
node "too many servers" "MORE_SERVERS is 300; give a number from 0 to 255" -e MORE_SERVERS=300 "$IMAGE" first
node "a server where there is none" "MORE_SERVERS is 0: there is no server but the first" -e MORE_SERVERS=0 "$IMAGE" server
node "a word that security does not know" "--security: \"all\" is not one of its values" -e FAR_SECURITY=all "$IMAGE" first

# ---- the cluster ----

up() { compose --profile "$profile" up -d --no-build >"$dir/out" 2>"$dir/err" </dev/null; rc=$?; }
down() { compose --profile "$profile" down -v -t 1 >"$dir/out" 2>"$dir/err" </dev/null; rc=$?; }
ids() { docker ps -aq --filter "label=com.docker.compose.project=$project" "$@"; }
service() { ids --filter "label=com.docker.compose.service=$1$suffix"; }
nothing_of_it() {
	[ -z "$(ids)$(docker network ls -q --filter "label=com.docker.compose.project=$project")$(docker volume ls -q \
		--filter "label=com.docker.compose.project=$project")" ]
}
all_ended() { [ -z "$(ids --filter status=running)" ]; }
ended_in_time() { for _ in 1 2 3 4 5 6 7 8 9; do eventually all_ended && return; done; } # 90 s
is() { [ "$(docker inspect -f "$1" $(ids) | sort -u | tr '\n' ' ')" = "$2 " ]; }
all_healthy() { is '{{.State.Health.Status}}' healthy; }
any_ended() { [ -n "$(ids --filter status=exited)" ]; }
settled() { all_healthy || any_ended; }
healthy_in_time() { # 60 s
	for _ in 1 2 3 4 5 6; do eventually settled && break; done
	all_healthy
}
different() { # a namespace
	n=$(for c in $(ids); do docker exec "$c" readlink "/proc/self/ns/$1"; done | sort -u | wc -l)
	[ "$n" -eq "$(ids | wc -l)" ]
}
logs() { for c in $(ids); do docker logs "$c" 2>&1 | sed "s/^/$(docker inspect -f '{{.Name}}' "$c" | tr -d /): /"; done; }

trains() { # more servers, workers
	MORE_SERVERS=$1
	WORKERS=$2
	TRAIN="--json $3"
	export MORE_SERVERS WORKERS TRAIN
	what="$profile, $((1 + $1)) servers, $2 workers${3:+, $3}"
	up
	[ $rc -eq 0 ] && [ "$(service server | wc -l)" -eq "$1" ] && [ "$(service worker | wc -l)" -eq "$2" ]
	ok "$what: docker-compose up" $?
	ended_in_time
	[ $? -eq 0 ] && is '{{.State.ExitCode}}' 0
	ok "$what: every container ends well" $?
	logs >"$dir/err"
	docker logs "$(service first)" >"$dir/out" 2>/dev/null
	json "j['settings']['servers'] == $((1 + $1)) and j['settings']['workers'] == $2 and
		j['bayes_auc'] - 0.01 < j['test_auc'] < j['bayes_auc'] + 0.005 and
		j['test_logloss'] < j['bayes_logloss'] + 0.01"
	ok "$what: AUC and log loss close to the best there can be" $?
	down
	[ $rc -eq 0 ] && nothing_of_it
	ok "$what: docker-compose down leaves nothing" $?
}

# Trains without end, until a worker is killed.
endless() {
	MORE_SERVERS=1
	WORKERS=2
	TRAIN="--epochs 1000000"
	export MORE_SERVERS WORKERS TRAIN
	up
	healthy_in_time
	ok "$profile: every container becomes healthy" $?
	is '{{.Config.User}} {{.HostConfig.PidMode}}{{.HostConfig.Privileged}}{{.HostConfig.ReadonlyRootfs}}' '10001:10001 falsetrue' &&
		[ "$(for c in $(ids); do docker exec "$c" id -u; done | sort -u)" = 10001 ]
	ok "$profile: none runs as root, or may write its image" $?
	different pid && different net && different ipc
	ok "$profile: pids, network and IPC are each container's own" $?
	docker exec "$(service first)" sh -c 'cat /proc/[0-9]*/cmdline' 2>/dev/null | tr '\0' ' ' | grep -q -- "--nic $profile "
	ok "$profile: is what they use" $?
	[ "$(docker network inspect -f '{{.Internal}}' "${project}_cluster")" = true ]
	ok "$profile: the network has no way out" $?
	docker kill "$(service worker | head -n 1)" >/dev/null
	ended_in_time
	ok "$profile: when a worker is killed, all others end" $?
	logs >"$dir/err"
	[ -z "$(ids --filter exited=0)" ] && says "before the job was done; see its last log lines"
	ok "$profile: and name the worker that they lost" $?
	up
	healthy_in_time
	ok "$profile: the same containers can be started again" $?
	compose --profile "$profile" stop -t 30 >"$dir/out" 2>"$dir/err" </dev/null
	logs >"$dir/err"
	[ -z "$(ids --filter exited=137)$(ids --filter exited=0)$(ids --filter status=running)" ]
	ok "$profile: docker-compose stop needs no kill" $?
	down
	[ $rc -eq 0 ] && nothing_of_it
	ok "$profile: nothing is left of it" $?
}

# The first alone: it waits, and logs that.
says_it_waits() {
	bounded docker exec "$(service first)" farcall health
	[ $rc -eq 1 ] && has out '^unhealthy: .*rank 0 has not joined yet: it waits for the other 3 members$'
}
waits() {
	unset MORE_SERVERS WORKERS TRAIN
	compose --profile "$profile" up -d --no-build "first$suffix" >"$dir/out" 2>"$dir/err" </dev/null
	eventually says_it_waits
	ok "$profile: the first alone is not healthy: it waits for the others" $?
	bounded docker stop -t 30 "$(service first)"
	is '{{.State.ExitCode}}' 143
	ok "$profile: it can be stopped while it waits" $?
	down
}

profile=shm
suffix=-shm
waits
endless
trains 2 3 "--mode bsp"
trains 0 1 ""
profile=udp
suffix=
endless
trains 1 2 ""

docker rmi -f "$IMAGE" >"$dir/out" 2>&1
if [ -n "$daemon" ]; then
	volumes=$(docker volume ls -q)$(docker ps -aq)
	engine_end
	[ $? -eq 0 ] && [ -z "$volumes" ] && ! grep -q "$run" /proc/mounts
	ok "the private engine is gone, with all that it made" $?
fi
finish
