#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The store etcd:// with Debian's etcd, which is unpacked, not installed: operations, a group whose etcd is killed and
# started again with its data, stopped for 10 s, and a cluster of three that loses one; TLS, user and password; errors.
# usage: etcd.sh API_STORE API_STORE_FILE API_DYNAMIC API_LEASE [CASES: all, or errors operations group leases cluster]
set -u
api_store=$1
api_group=$2
api_dynamic=$3
api_lease=$4
cases=${5:-all}
. "$(dirname "$0")/cases.sh"
guard_s=540
export FAR_HANG_GUARD_S=530
unset FAR_ETCD_USER FAR_ETCD_PASSWORD_FILE FAR_ETCD_CA FAR_ETCD_CERT FAR_ETCD_KEY FAR_KEY_FILE FAR_KEY FAR_INIT_METHOD

if ! fetched etcd-server || ! fetched etcd-client; then
	skip_data "etcd" "etcd-server and etcd-client cannot be downloaded: $(tail -n 1 "$dir/err")"
	finish
fi
etcd=$dir/etcd-server/usr/bin/etcd
export ETCDCTL_API=3

members=""
# A number is used once: another process may get it.
all_end() {
	for m in $members; do
		[ -f "$dir/$m.pid" ] && kill -KILL "$(cat "$dir/$m.pid")" 2>/dev/null
		rm -f "$dir/$m.pid"
	done
}
trap 'all_end; rm -rf "$dir"' EXIT

# Starts member $1 with its arguments in $dir/$1.args; `disturb` does the same.
cat >"$dir/disturb" <<'SH'
#!/bin/sh
# disturb DIR ETCD MEMBER KIND fail|serve ROUND; KIND: rounds (restart, then stop), lose, or leases: all end, and
# the three members that live hold their ranks anew
dir=$1 etcd=$2 m=$3
start() {
	# shellcheck disable=SC2046 # words
	setsid "$etcd" $(cat "$dir/$m.args") >>"$dir/$m.log" 2>&1 </dev/null &
	echo $! >"$dir/$m.pid"
}
runs() { grep -q '^State:[^ZX]*$' "/proc/$(cat "$dir/$m.pid")/status"; }
ctl() { "$dir/etcd-client/usr/bin/etcdctl" --endpoints "$(cat "$dir/endpoints")" "$@"; }
kind=$4
[ "$kind" = rounds ] && kind=$([ "$6" = 0 ] && echo restart || echo stop)
case $kind-$5 in
start-*) start ;;
restart-fail | lose-fail)
	kill -KILL "$(cat "$dir/$m.pid")"
	rm "$dir/$m.pid"
	;;
restart-serve) # again if its port was taken meanwhile
	start
	until ctl endpoint health; do
		sleep 0.2
		runs || start
	done
	;;
stop-fail | hang-fail) kill -STOP "$(cat "$dir/$m.pid")" ;;
hang-serve) kill -CONT "$(cat "$dir/$m.pid")" ;;
leases-fail)
	for lease in $(ctl lease list | grep -v found); do ctl lease revoke "$lease"; done
	until [ "$(ctl get --prefix --keys-only farcall/default/rank/ | grep -c rank)" = 3 ]; do sleep 0.1; done
	;;
stop-serve) sleep 10; kill -CONT "$(cat "$dir/$m.pid")" ;;
esac
exit 0
SH
start() { sh "$dir/disturb" "$dir" "$etcd" "$1" start now 0; }

healthy() { # endpoints, options of etcdctl
	e=$1
	shift
	"$dir/etcd-client/usr/bin/etcdctl" --endpoints "$e" --command-timeout 2s "$@" endpoint health >"$dir/out" 2>"$dir/err"
}

# serve <members> [options of etcd]: starts them; sets $endpoints. Another port is chosen if one is taken meanwhile.
serve() {
	members=$1
	shift
	scheme=$([ "$#" -gt 0 ] && echo https || echo http)
	for _ in 1 2 3 4 5; do
		cluster="" endpoints=""
		for m in $members; do
			# shellcheck disable=SC2046
			set_ports $(ports 2)
			cluster=$cluster${cluster:+,}$m=http://127.0.0.1:$peer_port
			endpoints=$endpoints${endpoints:+,}127.0.0.1:$client_port
			echo "--name $m --data-dir $dir/$m.data --listen-client-urls $scheme://127.0.0.1:$client_port
				--advertise-client-urls $scheme://127.0.0.1:$client_port
				--listen-peer-urls http://127.0.0.1:$peer_port
				--initial-advertise-peer-urls http://127.0.0.1:$peer_port $*" >"$dir/$m.args"
			rm -rf "$dir/$m.data"
		done
		for m in $members; do
			echo "--initial-cluster $cluster" >>"$dir/$m.args"
			start "$m"
		done
		echo "$endpoints" >"$dir/endpoints"
		health_options=$([ "$scheme" = https ] && echo "--cacert $dir/ca.pem")
		# shellcheck disable=SC2086
		eventually healthy "$(echo "$endpoints" | sed "s,127[.]0,$scheme://127.0,g")" $health_options && return 0
		all_end
	done
	return 1
}
set_ports() {
	client_port=$1
	peer_port=$2
}
wants() { [ "$cases" = all ] || [ "$cases" = "$1" ]; }

head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$dir/key"
chmod 600 "$dir/key"

refused() { # what, a text of the message, command
	what=$1 text=$2
	shift 2
	bounded "$@"
	[ $rc -eq 1 ] && says "$text"
	ok "refused: $what" $?
}

if wants operations || wants errors; then
	serve a
	ok "etcd starts" $?
	bounded env FAR_KEY_FILE="$dir/key" "$api_store" "etcd://$endpoints"
	ok "operations, watches and a group" $rc
	bounded "$dir/etcd-client/usr/bin/etcdctl" --endpoints "http://$endpoints" get "" --prefix --keys-only
	[ $rc -eq 0 ] && [ ! -s "$dir/out" ]
	ok "nothing is left in etcd" $?
	refused "a group's key that others could read" "make a key with \`farcall key FILE\`" "$api_store" "etcd://$endpoints"
	refused "TLS with an etcd without" "if it serves without TLS, unset FAR_ETCD_CA" \
		env FAR_ETCD_CA=/etc/ssl/certs/ca-certificates.crt "$api_store" "etcd://$endpoints"
	echo secret >"$dir/password"
	chmod 644 "$dir/password"
	refused "a password that others can read" "others can access it; chmod 600" \
		env FAR_ETCD_USER=u FAR_ETCD_PASSWORD_FILE="$dir/password" "$api_store" "etcd://$endpoints"
	chmod 600 "$dir/password"
	refused "a user without a password" "set FAR_ETCD_PASSWORD_FILE" \
		env FAR_ETCD_USER=u "$api_store" "etcd://$endpoints"
	refused "a user of an etcd without users" "unset FAR_ETCD_USER" \
		env FAR_ETCD_USER=u FAR_ETCD_PASSWORD_FILE="$dir/password" "$api_store" "etcd://$endpoints"
	refused "a module that is not there" "unset FAR_MODULE_DIR or correct it" \
		env FAR_MODULE_DIR=/nonexistent "$api_store" "etcd://$endpoints"
	all_end
fi

if wants group; then
	serve a
	bounded env FAR_KEY_FILE="$dir/key" "$api_group" "etcd://$endpoints" "sh $dir/disturb $dir $etcd a leases" 1
	[ $rc -eq 0 ] && [ "$(grep -c "takes another one" "$dir/err")" -ge 3 ]
	ok "leases that have ended are replaced, with the keys" $?
	bounded env FAR_KEY_FILE="$dir/key" "$api_group" "etcd://$endpoints" "sh $dir/disturb $dir $etcd a rounds" 2
	ok "rank 0 is replaced while etcd is down, and while it is stopped for 10 s" $rc
	bounded env FAR_KEY_FILE="$dir/key" "$api_dynamic" "etcd://$endpoints"
	ok "dynamic groups" $rc
	all_end
fi

# Two ports of one process that passes connections on to etcd: with several endpoints a client takes none that hangs for
# all of etcd.
passes() { # port of etcd
	python3 - "$1" >"$dir/ports" 2>"$dir/passes" <<'PY' &
import os, select, socket, sys
ends, listeners = {}, [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
os.write(1, (" ".join(str(s.getsockname()[1]) for s in listeners) + "\n").encode())
while True:
    for s in select.select(listeners + list(ends), [], [])[0]:
        if s in listeners:
            a = s.accept()[0]
            try:
                b = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
            except OSError:
                a.close()
                continue
            ends[a], ends[b] = b, a
        elif s in ends:
            try:
                data = s.recv(65536)
                data and ends[s].sendall(data)
            except OSError:
                data = b""
            if not data:
                other = ends.pop(s)
                ends.pop(other)
                s.close()
                other.close()
PY
	passes_pid=$!
}

if wants leases; then
	serve a
	passes "$client_port"
	eventually test -s "$dir/ports"
	read -r p q <"$dir/ports"
	bounded env FAR_KEY_FILE="$dir/key" "$api_lease" "etcd://$endpoints" "sh $dir/disturb $dir $etcd a" \
		"etcd://127.0.0.1:$p,127.0.0.1:$q" "$passes_pid"
	ok "leases: a member that is stopped, one that is killed, one that is cut off, etcd down and hanging" $rc
	[ $rc -eq 0 ] || cat "$dir/err"
	kill -KILL "$passes_pid"
	all_end
fi

if wants cluster; then
	serve "a b c"
	ok "a cluster of three starts" $?
	bounded env FAR_KEY_FILE="$dir/key" "$api_group" "etcd://$endpoints" "sh $dir/disturb $dir $etcd a lose" 1 killed
	ok "a cluster of three loses one" $rc
	bounded env FAR_KEY_FILE="$dir/key" "$api_store" "etcd://$endpoints"
	ok "operations with two of three" $rc
	all_end
fi

if wants errors; then
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=ca \
		-keyout "$dir/ca.key" -out "$dir/ca.pem" 2>"$dir/err"
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost -keyout "$dir/server.key" \
		-out "$dir/server.csr" 2>"$dir/err"
	printf 'subjectAltName=IP:127.0.0.1' >"$dir/ext"
	openssl x509 -req -in "$dir/server.csr" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -CAcreateserial -days 2 \
		-extfile "$dir/ext" -out "$dir/server.pem" 2>"$dir/err"
	serve a --cert-file "$dir/server.pem" --key-file "$dir/server.key"
	ok "etcd with TLS starts" $?
	ctl() {
		"$dir/etcd-client/usr/bin/etcdctl" --endpoints "https://$endpoints" --cacert "$dir/ca.pem" "$@" \
			>"$dir/out" 2>"$dir/err"
	}
	ctl user add root:rootword && ctl user add u:secret && ctl user grant-role root root && ctl role add r &&
		ctl role grant-permission r --prefix=true readwrite farcall/ &&
		ctl role grant-permission r --prefix=true readwrite farcall-op/ && ctl user grant-role u r && ctl auth enable
	ok "etcd has users" $?
	export FAR_ETCD_CA="$dir/ca.pem"
	bounded env FAR_ETCD_USER=u FAR_ETCD_PASSWORD_FILE="$dir/password" "$api_store" "etcd://$endpoints"
	ok "TLS, user and password; the group agrees on a key in etcd" $rc
	refused "no user" "set FAR_ETCD_USER" "$api_store" "etcd://$endpoints"
	printf wrong >"$dir/password"
	refused "a wrong password" "correct FAR_ETCD_USER and the password" \
		env FAR_ETCD_USER=u FAR_ETCD_PASSWORD_FILE="$dir/password" "$api_store" "etcd://$endpoints"
	refused "another CA" "give the CA that signed its certificate" \
		env FAR_ETCD_CA=/etc/ssl/certs/ca-certificates.crt "$api_store" "etcd://$endpoints"
	refused "no TLS" "if it requires TLS, give the CA" env -u FAR_ETCD_CA "$api_store" "etcd://$endpoints"
	all_end
	refused "nobody listens" "start it, or correct init_method" "$api_store" "etcd://$endpoints"
fi
finish
