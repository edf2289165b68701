/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A join through address translation, with a key. Two networks with a router between them, which forwards nothing but
 * what it has translated: the published addresses and ports of all members (opts.advertise) lead to others that they
 * have bound, and all packets reach their receiver from an address and a port of the router's. Worker 0 is outside,
 * worker 1 and worker 2, which has two shards, are inside, so that what they send each other turns round at the router.
 * All call all, and leave with OK. No proof may cover an address that was bound or observed. Skipped where network
 * namespaces or the kernel's NAT are not to be had. Main thread of each process; handlers on shard threads.
 */
#include "../nic/netns.h"
#include "check.h"
#include "handlers.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { WORLD = 3, CALLS = 20, LARGE = 256 << 10 };
enum { OUTSIDE, ROUTER, INSIDE, SPACES };

/* Bound at `at`, published as `as`. Ports of queue 0; another one follows. */
static const struct {
	int space;
	unsigned shards, bound, published;
	const char *at, *as;
} members[WORLD] = {{OUTSIDE, 1, 6100, 7200, "10.92.2.2", "203.0.113.2"},
		    {INSIDE, 1, 6110, 7110, "10.92.1.2", "203.0.113.1"},
		    {INSIDE, 2, 6120, 7130, "10.92.1.2", "203.0.113.1"}};

#define STORE_PORT "7711"

static int spaces[SPACES];
static struct far_err err;
static char dir[] = "/tmp/farcall-nat-XXXXXX";
static char key_file[64];

/* ---- the network ---- */

static void enter(int space)
{
	CHECK(setns(spaces[space], CLONE_NEWNET) == 0);
}

static bool nft(const char *format, ...) __attribute__((format(printf, 1, 2)));
static bool nft(const char *format, ...)
{
	char rule[256], command[320];
	va_list args;
	va_start(args, format);
	vsnprintf(rule, sizeof rule, format, args);
	va_end(args);
	snprintf(command, sizeof command, "nft '%s'", rule);
	int status = system(command);
	if (status)
		fprintf(stderr, "%s: status %d\n", command, status);
	return status == 0;
}

static const char *missing_right(void)
{
	if (!netns_enter_new())
		return "no network namespace of our own";
	for (int i = 0; i < SPACES; i++) {
		if (i && unshare(CLONE_NEWNET) < 0)
			return "no second network namespace";
		spaces[i] = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
		CHECK(spaces[i] >= 0);
		CHECK(ip("link set lo up"));
	}
	enter(ROUTER);
	if (!ip("link add probe type veth peer name eborp 2>/dev/null"))
		return "no veth devices";
	if (!set("/proc/sys/net/ipv4/ip_forward", "1"))
		return "/proc/sys/net is read-only";
	if (system("nft 'add table ip probe; add chain ip probe c { type nat hook prerouting priority -100; }; "
		   "add rule ip probe c udp dport 9 dnat to 192.0.2.1:9; delete table ip probe' 2>/dev/null"))
		return "the kernel has no NAT of nf_tables";
	return NULL;
}

/* A cable between the router and `space`: 10.92.<net>.1 and .2. */
static void cable(int space, unsigned net)
{
	enter(ROUTER);
	CHECK(ip("link add r%u type veth peer name f0 netns /proc/%d/fd/%d", net, (int)getpid(), spaces[space]));
	CHECK(ip("addr add 10.92.%u.1/24 dev r%u", net, net) && ip("link set r%u up", net));
	enter(space);
	CHECK(ip("addr add 10.92.%u.2/24 dev f0", net) && ip("link set f0 up"));
	CHECK(ip("route add default via 10.92.%u.1", net));
}

/* Every packet's destination is translated, else it is dropped; then its source becomes the router's. */
static void translate(void)
{
	enter(ROUTER);
	CHECK(nft("add table ip n"));
	CHECK(nft("add chain ip n before { type nat hook prerouting priority -100; }"));
	CHECK(nft("add chain ip n behind { type nat hook postrouting priority 100; }"));
	CHECK(nft("add chain ip n between { type filter hook forward priority 0; policy drop; }"));
	CHECK(nft("add rule ip n between ct status dnat accept"));
	CHECK(nft("add rule ip n behind ct status dnat counter masquerade random"));
	CHECK(nft("add rule ip n before ip daddr %s tcp dport " STORE_PORT " counter dnat to %s:" STORE_PORT,
		  members[0].as, members[0].at));
	for (int i = 0; i < WORLD; i++)
		for (unsigned k = 0; k < members[i].shards; k++)
			CHECK(nft("add rule ip n before ip daddr %s udp dport %u counter dnat to %s:%u", members[i].as,
				  members[i].published + k, members[i].at, members[i].bound + k));
}

/* All of the rules had something to do. */
static bool translated(void)
{
	enter(ROUTER);
	return system("nft list table ip n | grep 'counter packets 0 ' >&2") != 0;
}

/* ---- the members ---- */

static void call(struct far_agent *a, int rank)
{
	static char large[LARGE];
	struct far_val out;
	for (unsigned shard = 0; shard < members[rank].shards; shard++) {
		struct far_to to = {rank, (int)shard};
		for (int64_t i = 0; i < CALLS; i++) {
			CHECK_STATUS(far_rpc_sync_to(a, to, "nat::echo", FAR_ARGS(i), NULL, &out, &err), FAR_OK, &err);
			CHECK(out.u.i == i);
			far_val_fini(&out);
		}
		memset(large, 'a' + rank, sizeof large);
		struct far_val bytes = far_bytes(large, sizeof large);
		CHECK_STATUS(far_rpc_sync_to(a, to, "nat::repeat", &bytes, 1, NULL, &out, &err), FAR_OK, &err);
		CHECK(out.u.s.len == sizeof large && memcmp(out.u.s.data, large, sizeof large) == 0);
		far_val_fini(&out);
	}
}

static int member(int rank)
{
	static const struct far_function functions[] = {
		{"nat::echo(int x) -> int", FAR_KIND_INLINE, handler_echo, NULL},
		{"nat::repeat(bytes x) -> bytes", FAR_KIND_INLINE, handler_echo, NULL}};
	char nic[32], advertise[64];
	struct far_agent *a;
	enter(members[rank].space);
	setenv("MASTER_ADDR", members[rank].space == OUTSIDE ? members[0].at : members[0].as, 1);
	setenv("MASTER_PORT", STORE_PORT, 1);
	setenv("FAR_KEY_FILE", key_file, 1);
	snprintf(nic, sizeof nic, "udp:port=%u", members[rank].bound);
	snprintf(advertise, sizeof advertise, "%s:%u-%u", members[rank].as, members[rank].published,
		 members[rank].published + members[rank].shards - 1);
	struct far_opts opts = {.functions = functions,
				.functions_n = 2,
				.nic = nic,
				.listen = members[rank].at,
				.advertise = advertise,
				.shards = members[rank].shards};
	alarm(HANG_GUARD_S);
	CHECK_STATUS(far_init_rpc(check_name(rank), rank, WORLD, &opts, &a, &err), FAR_OK, &err);
	for (int other = 0; other < WORLD; other++)
		if (other != rank)
			call(a, other);
	check_leave(a);
	return 0;
}

static pid_t start(int rank)
{
	fflush(NULL);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	_exit(member(rank));
}

static void key_make(void)
{
	static const char key[] = "7f3a905b1c64d28e0f9b8a7d6c5e4f30112233445566778899aabbccddeeff01\n";
	CHECK(mkdtemp(dir));
	snprintf(key_file, sizeof key_file, "%s/key", dir);
	int fd = open(key_file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && write(fd, key, sizeof key - 1) == sizeof key - 1 && close(fd) == 0);
}

int main(void)
{
	bool well = true;
	pid_t pids[WORLD];
	if (system("command -v ip >/dev/null && command -v nft >/dev/null")) {
		printf("SKIP: api_nat: missing right: iproute2 and nftables are not installed\n");
		return 77;
	}
	const char *missing = missing_right();
	if (missing) {
		printf("SKIP: api_nat: missing right: %s\n", missing);
		return 77;
	}
	key_make();
	cable(OUTSIDE, 2);
	cable(INSIDE, 1);
	translate();
	for (int i = 0; i < WORLD; i++)
		pids[i] = start(i);
	for (int i = 0; i < WORLD; i++) {
		int status;
		CHECK(waitpid(pids[i], &status, 0) == pids[i]);
		if (status)
			fprintf(stderr, "worker %d: status %d, signal %d\n", i, WEXITSTATUS(status), WTERMSIG(status));
		well = well && status == 0;
	}
	unlink(key_file);
	rmdir(dir);
	CHECK(translated());
	CHECK(well);
	printf("three workers behind address translation joined, called each other and left\n");
	return 0;
}
