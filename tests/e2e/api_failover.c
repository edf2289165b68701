/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Two workers with two networks between them: cables that are pulled while calls run. Each in a network namespace that
 * this program makes, with a udp port at each of two cables; a third one is the store's. Skipped where namespaces are
 * not to be had, or iproute2 is not there. Main thread of each process; handlers on shard threads.
 */
#include "../nic/netns.h"
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

enum { CALLS_MAX = 4000000, WAIT_MS = 20000, STORE = 0, FIRST, SECOND, CABLES };

struct shared {
	_Atomic bool ready, stop;
	_Atomic unsigned done; /* calls that have ended well */
	char address[128], why[192];
	_Atomic uint8_t runs[CALLS_MAX]; /* of the handler, by call */
};
static struct shared *shared;
static struct far_err err;

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void has_carrier(char name, int k)
{
	char command[80];
	snprintf(command, sizeof command, "ip link show %c%d | grep -q LOWER_UP", name, k);
	for (int i = 0; i < WAIT_MS && system(command); i++)
		nap();
}

/* ---- the workers ---- */

static void count(struct far_req *req, const void *data, size_t len, void *user)
{
	uint32_t call;
	CHECK(len == 1000);
	memcpy(&call, data, sizeof call);
	CHECK(call < CALLS_MAX);
	atomic_fetch_add(&shared->runs[call], 1);
	CHECK(far_reply(req, data, len) == FAR_OK);
}

static void one_call(struct far_agent *a, uint32_t call)
{
	uint8_t sent[1000], got[1000];
	size_t n = 0;
	memset(sent, (int)call, sizeof sent);
	memcpy(sent, &call, sizeof call);
	CHECK_STATUS(far_msg_call(a, (struct far_to){0, 0}, 1, sent, sizeof sent, NULL, got, sizeof got, &n, &err),
		     FAR_OK, &err);
	CHECK(n == sizeof sent && memcmp(sent, got, n) == 0);
	CHECK(atomic_load(&shared->runs[call]) == 1);
}

static int worker(int rank)
{
	static const struct far_msg_handler handlers[] = {{1, FAR_KIND_INLINE, count, NULL}};
	struct far_opts opts = {.messages = handlers, .messages_n = 1, .security = "none"};
	struct far_worker_info info;
	setenv("MASTER_ADDR", "10.92.0.1", 1);
	setenv("MASTER_PORT", "7077", 1);
	setenv("WORLD_SIZE", "2", 1);
	setenv("RANK", rank ? "1" : "0", 1);
	setenv("FAR_NIC", rank ? "udp:listen=g1;udp:listen=g2" : "udp:listen=f1;udp:listen=f2", 1);
	struct far_agent *a = check_join(&opts);
	for (uint32_t call = 0; rank == 1 && !atomic_load(&shared->stop) && call < CALLS_MAX; call++) {
		one_call(a, call);
		CHECK_STATUS(far_worker_by_rank(a, 0, &info, &err), FAR_OK, &err);
		if (strcmp(shared->address, info.nic_address) != 0) {
			snprintf(shared->address, sizeof shared->address, "%s", info.nic_address);
			snprintf(shared->why, sizeof shared->why, "%s", info.nic_why);
		}
		atomic_store(&shared->done, call + 1);
	}
	uint64_t path_migrations = 0;
	for (unsigned port = 0; port < far_nic_ports(a); port++) {
		struct far_nic_stats stats;
		CHECK_STATUS(far_nic_stats_read(a, port, &stats, &err), FAR_OK, &err);
		path_migrations += stats.path_migrations;
	}
	CHECK(rank == 0 || path_migrations > 0);
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
	if (rank == 1) {
		CHECK(unshare(CLONE_NEWNET) == 0);
		atomic_store(&shared->ready, true);
		/* The cables are there when the last one is up. */
		for (int i = 0; i < WAIT_MS && system("ip link show g2 >/dev/null 2>&1"); i++)
			nap();
		CHECK(ip("link set lo up"));
		for (int k = 0; k < CABLES; k++)
			CHECK(ip("addr add 10.92.%d.2/24 dev g%d", k, k) && ip("link set g%d up", k));
		for (int k = 0; k < CABLES; k++)
			has_carrier('g', k);
	}
	_exit(worker(rank));
}

/* ---- the cables ---- */

static void connect_to(pid_t other)
{
	for (int i = 0; i < WAIT_MS && !atomic_load(&shared->ready); i++)
		nap();
	CHECK(atomic_load(&shared->ready) && ip("link set lo up"));
	for (int k = 0; k < CABLES; k++)
		CHECK(ip("link add f%d type veth peer name g%d netns %d", k, k, (int)other) &&
		      ip("addr add 10.92.%d.1/24 dev f%d", k, k) && ip("link set f%d up", k));
	for (int k = 0; k < CABLES; k++)
		has_carrier('f', k);
}

/* So many more calls end, whatever was done to the network before. */
static void goes_on(unsigned more, const char *what)
{
	unsigned until = atomic_load(&shared->done) + more;
	for (int i = 0; i < WAIT_MS && atomic_load(&shared->done) < until; i++)
		nap();
	if (atomic_load(&shared->done) < until)
		fprintf(stderr, "no call ends any more: %s\n", what);
	CHECK(atomic_load(&shared->done) >= until);
}

static void cable(int k, bool up)
{
	CHECK(ip("link set f%d %s", k, up ? "up" : "down"));
}

/* Waits until the path that worker 1 reports leads over this cable. */
static void leads_by(const char *address, const char *why)
{
	bool leads = false;
	for (int i = 0; i < WAIT_MS && !leads; i++) { /* worker 1 writes one text behind the other */
		nap();
		leads = strstr(shared->address, address) && strstr(shared->why, why);
	}
	if (!leads)
		fprintf(stderr, "by %s: %s\n", shared->address, shared->why);
	CHECK(leads);
}

static void pull(void)
{
	goes_on(200, "at the beginning");
	leads_by("10.92.1.1", "");
	cable(FIRST, false);
	goes_on(500, "the first cable is down");
	leads_by("10.92.2.1", "no reply over");
	cable(FIRST, true);
	goes_on(500, "the first cable is back");
	leads_by("10.92.1.1", "");
	cable(SECOND, false);
	goes_on(500, "the second cable is down");
	cable(SECOND, true);
	for (int i = 0; i < 10; i++) {
		cable(FIRST, false);
		goes_on(50, "flapping: down");
		cable(FIRST, true);
		goes_on(50, "flapping: up");
	}
}

static void ended_well(pid_t pid)
{
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
	const char *missing = netns_enter_for_veth();
	if (missing) {
		printf("SKIP: api_failover: missing right: %s\n", missing);
		return 77;
	}
	alarm(HANG_GUARD_S);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	pid_t other = start(1);
	connect_to(other);
	pid_t first = start(0);
	pull();
	atomic_store(&shared->stop, true);
	ended_well(other);
	ended_well(first);
	for (unsigned call = 0; call < CALLS_MAX; call++)
		CHECK(atomic_load(&shared->runs[call]) <= 1);
	return 0;
}
