/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Cuts of the network in a dynamic group over udp. Three workers in network namespaces of their own, between them a
 * router that drops what a cut names: rank 0, which has the store, and two that call each other.
 * Main thread of each process; handlers on shard threads.
 *
 * One worker is cut off from everybody: it serves nobody once its lease has run out, logs that, and is a member again
 * as another incarnation when the cut ends. Two are cut off from each other: calls between them fail, nobody is
 * evicted, and calls go through afterwards. Rank 0 is cut off from both: calls go on, a join waits. Skipped where
 * namespaces are not to be had, or iproute2 is not there.
 */
#include "../nic/netns.h"
#include "check.h"
#include "handlers.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { HOST, FIRST, SECOND, LATE, PROCESSES };

#define SHORT  (3 * FAR_SEC)  /* the lease of who is to lose it */
#define ENDURE (60 * FAR_SEC) /* one that no cut outlasts */

static const char *const names[] = {"host", "first", "second", "late"};

/* Of all processes of a case. */
static struct shared {
	_Atomic bool apart[PROCESSES], wired[PROCESSES],
		joined[PROCESSES];                     /* process i has a namespace, an address, ... */
	_Atomic bool ready;                            /* the second has calls under way */
	_Atomic bool cut;                              /* the case's cut is there */
	_Atomic bool logged, refused, failed, went_on; /* what the cut leads to */
	_Atomic bool healed, again[PROCESSES], done;
} * shared;

static struct far_err err;
static struct far_agent *agent;
static _Atomic int lost_n;
static char lost[FAR_NAME_MAX], lost_why[64];

#define AWAIT(condition)                                                                                               \
	do {                                                                                                           \
		while (!(condition))                                                                                   \
			usleep(1000);                                                                                  \
	} while (0)

/* ---- the workers ---- */

static void on_log(enum far_log_level level, const char *text, const struct far_log_field *fields, size_t n, void *user)
{
	if (strstr(text, "is no member of group"))
		atomic_store(&shared->logged, true);
}

static void on_member(struct far_agent *a, enum far_member_event event, const struct far_worker_info *w, void *user)
{
	if (event == FAR_MEMBER_JOINED)
		return;
	memcpy(lost, w->name, sizeof lost);
	memcpy(lost_why, w->lost_why, sizeof lost_why);
	atomic_fetch_add(&lost_n, 1);
}

static void joins(int i, uint64_t lease_ns)
{
	static const struct far_function functions[] = {{"s::echo(int x) -> int", FAR_KIND_INLINE, handler_echo, NULL},
							{"s::never() -> none", FAR_KIND_FIBER, handler_never, NULL}};
	const struct far_opts opts = {.functions = functions,
				      .functions_n = 2,
				      .security = "none",
				      .nic = "udp:listen=far0",
				      .lease_ns = lease_ns,
				      .peer_limit_ns = FAR_SEC,
				      .init_timeout_ns = 50 * FAR_SEC};
	CHECK_STATUS(far_init_rpc(names[i], i == HOST ? 0 : FAR_RANK_ANY, FAR_WORLD_DYNAMIC, &opts, &agent, &err),
		     FAR_OK, &err);
	CHECK_STATUS(far_on_member(agent, on_member, NULL, &err), FAR_OK, &err);
	atomic_store(&shared->joined[i], true);
}

static void leaves(void)
{
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_OK, &err);
}

static enum far_status calls(const char *to)
{
	const struct far_call_opts opts = {.timeout_ns = 3 * FAR_SEC};
	struct far_val out;
	enum far_status status = far_rpc_sync(agent, to, "s::echo", FAR_ARGS(41), &opts, &out, &err);
	CHECK(status || out.u.i == 41);
	return status;
}

static void calls_again(const char *to)
{
	AWAIT(calls(to) == FAR_OK);
}

static uint64_t incarnation_of(const char *name)
{
	struct far_worker_info w;
	CHECK_STATUS(far_worker_wait(agent, name, FAR_FOREVER, &w, &err), FAR_OK, &err);
	return w.incarnation;
}

static struct far_future *under_way(const char *to)
{
	const struct far_call_opts forever = {.timeout_ns = FAR_FOREVER};
	struct far_future *f = NULL;
	AWAIT(far_rpc_async(agent, to, "s::never", FAR_NOARGS, &forever, &f, &err) == FAR_OK);
	calls_again(to); /* it has arrived */
	return f;
}

static void is_lost(struct far_future *f)
{
	CHECK_STATUS(far_future_wait(f, FAR_FOREVER, NULL, &err), FAR_PEER_LOST, &err);
	CHECK(err.executed == FAR_EXECUTED_MAYBE);
	far_future_free(f);
}

static void serves(int i, uint64_t lease_ns)
{
	joins(i, lease_ns);
	AWAIT(atomic_load(&shared->done));
	leaves();
}

/* ---- one worker is cut off from everybody ---- */

static void off_first(void)
{
	far_log_set(on_log, NULL);
	joins(FIRST, SHORT);
	uint64_t before = incarnation_of("first");
	calls_again("first");
	AWAIT(atomic_load(&shared->logged) && calls("first")); /* it does not even serve itself */
	CHECK(calls("first"));
	atomic_store(&shared->refused, true);
	AWAIT(atomic_load(&shared->healed));
	calls_again("first");
	calls_again("second");
	CHECK(incarnation_of("first") != before);
	atomic_store(&shared->again[FIRST], true);
	AWAIT(atomic_load(&shared->done));
	leaves();
}

static void off_second(void)
{
	joins(SECOND, ENDURE);
	calls_again("first");
	uint64_t before = incarnation_of("first");
	struct far_future *f = under_way("first");
	atomic_store(&shared->ready, true);
	is_lost(f);
	AWAIT(atomic_load(&lost_n));
	CHECK(strcmp(lost, "first") == 0 && strstr(lost_why, "lease"));
	CHECK(calls("first"));
	CHECK(calls("second") == FAR_OK);
	calls_again("host");
	atomic_store(&shared->failed, true);
	AWAIT(atomic_load(&shared->healed));
	calls_again("first");
	CHECK(incarnation_of("first") != before && atomic_load(&lost_n) == 1);
	atomic_store(&shared->again[SECOND], true);
	AWAIT(atomic_load(&shared->done));
	leaves();
}

/* ---- two are cut off from each other, then rank 0 from both ---- */

static void apart_first(void)
{
	joins(FIRST, ENDURE);
	AWAIT(atomic_load(&shared->again[SECOND]));
	CHECK(atomic_load(&lost_n) == 0);
	atomic_store(&shared->again[FIRST], true);
	AWAIT(atomic_load(&shared->done));
	leaves();
}

static void apart_second(void)
{
	joins(SECOND, ENDURE);
	calls_again("first");
	uint64_t before = incarnation_of("first"), own = incarnation_of("second");
	struct far_future *f = under_way("first");
	atomic_store(&shared->ready, true);
	is_lost(f);
	AWAIT(atomic_load(&shared->cut));
	CHECK(calls("first"));
	calls_again("host");
	CHECK(incarnation_of("first") == before);
	atomic_store(&shared->failed, true);
	AWAIT(atomic_load(&shared->healed));
	calls_again("first");
	CHECK(incarnation_of("first") == before && incarnation_of("second") == own && atomic_load(&lost_n) == 0);
	atomic_store(&shared->again[SECOND], true);
	AWAIT(atomic_load(&shared->done));
	leaves();
}

static void storeless_second(void)
{
	joins(SECOND, ENDURE);
	calls_again("first");
	uint64_t before = incarnation_of("first");
	calls_again("host");
	struct far_future *f = under_way("host");
	atomic_store(&shared->ready, true);
	is_lost(f); /* calls to rank 0 fail as others do */
	AWAIT(atomic_load(&shared->cut));
	for (int i = 0; i < 1000; i++)
		calls_again("first");
	CHECK(incarnation_of("first") == before);
	atomic_store(&shared->went_on, true);
	AWAIT(atomic_load(&shared->healed));
	calls_again("late");
	calls_again("host");
	CHECK(incarnation_of("first") == before && atomic_load(&lost_n) == 0);
	atomic_store(&shared->again[SECOND], true);
	AWAIT(atomic_load(&shared->done));
	leaves();
}

/* ---- namespaces ---- */

static const char *missing(void)
{
	const char *lacks = netns_enter_for_veth();
	if (lacks)
		return lacks;
	if (!ip("rule add pref 5 iif probe to 10.94.9.0/24 blackhole 2>/dev/null"))
		return "no rules of routing";
	if (!set("/proc/sys/net/ipv4/ip_forward", "1"))
		return "to forward packets between namespaces";
	return NULL;
}

static pid_t pids[PROCESSES];

/* A worker that fails ends the case. */
static void on_child(int signal, siginfo_t *info, void *context)
{
	for (int i = 0; i < PROCESSES; i++)
		if (info->si_pid == pids[i] && (info->si_code != CLD_EXITED || info->si_status))
			_exit(1);
}

/* The process in a namespace of its own, whose address is 10.94.(i + 1).2. */
static pid_t start(int i, void (*body)(void))
{
	fflush(NULL);
	pid_t parent = getpid(), pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		CHECK(unshare(CLONE_NEWNET) == 0);
		atomic_store(&shared->apart[i], true);
		AWAIT(atomic_load(&shared->wired[i]));
		CHECK(ip("link set lo up") && ip("addr add 10.94.%d.2/24 dev far0", i + 1) && ip("link set far0 up") &&
		      ip("route add default via 10.94.%d.1", i + 1));
		AWAIT(system("ip link show far0 | grep -q LOWER_UP") == 0);
		body();
		_exit(0);
	}
	AWAIT(atomic_load(&shared->apart[i]));
	CHECK(ip("link add v%d type veth peer name far0 netns %d", i, (int)pid) &&
	      ip("addr add 10.94.%d.1/24 dev v%d", i + 1, i) && ip("link set v%d up", i));
	atomic_store(&shared->wired[i], true);
	return pid;
}

static void drop(int from, int to, bool is_cut)
{
	CHECK(ip("rule %s pref 10 iif v%d to 10.94.%d.0/24 blackhole", is_cut ? "add" : "del", from, to + 1));
}

static void drop_both(int a, int b, bool is_cut)
{
	drop(a, b, is_cut);
	drop(b, a, is_cut);
}

/* ---- the cases ---- */

static void off_host(void)
{
	serves(HOST, SHORT);
}

static void enduring_host(void)
{
	serves(HOST, ENDURE);
}

static void late(void)
{
	serves(LATE, ENDURE);
}

static void begin(void (*host)(void), void (*first)(void), void (*second)(void))
{
	void (*const bodies[])(void) = {host, first, second};
	memset(shared, 0, sizeof *shared);
	for (int i = 0; i < LATE; i++) {
		pids[i] = start(i, bodies[i]);
		AWAIT(atomic_load(&shared->joined[i]));
	}
	AWAIT(atomic_load(&shared->ready));
}

static void ended_well(int i)
{
	int status;
	CHECK(waitpid(pids[i], &status, 0) == pids[i]);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void end(int n)
{
	AWAIT(atomic_load(&shared->again[FIRST]) && atomic_load(&shared->again[SECOND]));
	atomic_store(&shared->done, true);
	for (int i = 0; i < n; i++)
		ended_well(i);
}

static void cut_off(void)
{
	begin(off_host, off_first, off_second);
	CHECK(ip("link set v%d down", FIRST));
	AWAIT(atomic_load(&shared->refused) && atomic_load(&shared->failed));
	CHECK(ip("link set v%d up", FIRST));
	atomic_store(&shared->healed, true);
	end(LATE);
}

static void cut_apart(void)
{
	begin(enduring_host, apart_first, apart_second);
	drop_both(FIRST, SECOND, true);
	atomic_store(&shared->cut, true);
	AWAIT(atomic_load(&shared->failed));
	drop_both(FIRST, SECOND, false);
	atomic_store(&shared->healed, true);
	end(LATE);
}

static void cut_store(void)
{
	begin(enduring_host, apart_first, storeless_second);
	drop_both(HOST, FIRST, true);
	drop_both(HOST, SECOND, true);
	drop_both(HOST, LATE, true);
	atomic_store(&shared->cut, true);
	pids[LATE] = start(LATE, late);
	AWAIT(atomic_load(&shared->went_on));
	CHECK(!atomic_load(&shared->joined[LATE]));
	drop_both(HOST, FIRST, false);
	drop_both(HOST, SECOND, false);
	drop_both(HOST, LATE, false);
	atomic_store(&shared->healed, true);
	AWAIT(atomic_load(&shared->joined[LATE]));
	end(PROCESSES);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {{"off", cut_off}, {"apart", cut_apart}, {"store", cut_store}};
	const char *why = missing();
	if (why) {
		printf("SKIP: api_cut: missing right: %s\n", why);
		return 77;
	}
	alarm(HANG_GUARD_S);
	sigaction(SIGCHLD, &(struct sigaction){.sa_sigaction = on_child, .sa_flags = SA_SIGINFO | SA_RESTART}, NULL);
	setenv("MASTER_ADDR", "10.94.1.2", 1);
	setenv("MASTER_PORT", "7078", 1);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED && ip("link set lo up"));
	for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++) {
		if (strcmp(argv[1], cases[i].name) == 0) {
			cases[i].run();
			return 0;
		}
	}
	fprintf(stderr, "usage: api_cut off|apart|store\n");
	return 2;
}
