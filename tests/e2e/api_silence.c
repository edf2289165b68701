/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Silence ends no membership. Two workers over udp, each in a network namespace with one cable between them that
 * carries the store's connection, too: first worker 1 stands still for 5 s and more, then the cable is down, both until
 * the calls under way have ended by peer_limit. These fail with PEER_LOST, executed MAYBE; calls made afterwards go
 * through; references that both hold of each other's values keep them, and one that is given back meanwhile is gone;
 * both leave with OK. Skipped where namespaces are not to be had, or iproute2 is not there. Main thread of each
 * process; handlers on shard threads.
 */
#include "../nic/netns.h"
#include "check.h"
#include "handlers.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

enum { WAIT_MS = 20000, ROUNDS = 2, STEPS = 5 };

/* Steps of a round. Who comes to one waits for all three processes: the workers and the one that disturbs them. */
struct shared {
	_Atomic bool ready;
	_Atomic unsigned came[STEPS * ROUNDS];
	_Atomic bool stood_still;    /* this round's silence is worker 1's */
	_Atomic unsigned lost_calls; /* of this round, which the silence has ended */
};
static struct shared *shared;
static struct far_err err;
static struct far_rref *kept;

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void meet(unsigned step, unsigned all)
{
	atomic_fetch_add(&shared->came[step], 1);
	for (int i = 0; i < WAIT_MS && atomic_load(&shared->came[step]) < all; i++)
		nap();
	CHECK(atomic_load(&shared->came[step]) >= all);
}

/* ---- the workers ---- */

static enum far_status keep(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	far_rref_free(kept);
	kept = far_rref_ref(args[0].u.rref);
	return far_return(req, NULL);
}

static struct far_rref *make(struct far_agent *a, int where, int64_t value)
{
	struct far_rref *r = NULL;
	CHECK_STATUS(far_remote_to(a, (struct far_to){where, 0}, "s::echo", FAR_ARGS(value), NULL, &r, &err), FAR_OK,
		     &err);
	CHECK_STATUS(far_rref_wait(r, 0, &err), FAR_OK, &err);
	return r;
}

static void is(struct far_rref *r, int64_t value)
{
	struct far_val v;
	CHECK_STATUS(far_rref_to_here(r, 0, &v, &err), FAR_OK, &err);
	CHECK(v.u.i == value);
	far_val_fini(&v);
}

/* A first call may still meet the session that has ended: it fails, and the next one goes through. */
static void call_again(struct far_agent *a, int other)
{
	struct far_val v;
	enum far_status status = FAR_OK;
	for (int i = 0; i < 20; i++) {
		status = far_rpc_sync_to(a, (struct far_to){other, 0}, "s::echo", FAR_ARGS(41), NULL, &v, &err);
		if (status == FAR_OK) {
			CHECK(v.u.i == 41);
			far_val_fini(&v);
			return;
		}
		CHECK_STATUS(status, FAR_PEER_LOST, &err);
	}
	CHECK_STATUS(status, FAR_OK, &err);
}

static void silence(struct far_agent *a, int rank, unsigned step)
{
	int other = !rank;
	struct far_future *under_way;
	struct far_worker_info info;
	struct far_val none;
	call_again(a, other);
	struct far_rref *theirs = make(a, other, 70 + rank), *ours = make(a, rank, 80 + rank);
	struct far_rref *given_back = make(a, other, 90);
	CHECK_STATUS(far_rpc_sync_to(a, (struct far_to){other, 0}, "s::keep", FAR_ARGS(ours), NULL, &none, &err),
		     FAR_OK, &err);
	far_rref_free(ours); /* only the other one holds it from now on */
	meet(step, 3);
	CHECK_STATUS(far_rpc_async_to(a, (struct far_to){other, 0}, "s::never", FAR_NOARGS, NULL, &under_way, &err),
		     FAR_OK, &err);
	call_again(a, other); /* behind the one that is under way */
	meet(step + 1, 3);
	/* Of worker 1, which stands still, and of the cable. */
	if (rank == 0 || !atomic_load(&shared->stood_still)) {
		CHECK_STATUS(far_future_wait(under_way, FAR_FOREVER, NULL, &err), FAR_PEER_LOST, &err);
		CHECK(err.executed == FAR_EXECUTED_MAYBE);
		atomic_fetch_add(&shared->lost_calls, 1);
	}
	meet(step + 2, 3);
	far_rref_free(given_back);
	CHECK_STATUS(far_worker_by_rank(a, other, &info, &err), FAR_OK, &err);
	CHECK(info.alive);
	call_again(a, other);
	far_future_wait(under_way, FAR_FOREVER, NULL, &err);
	far_future_free(under_way);
	meet(step + 3, 3);
	is(theirs, 70 + rank);
	is(kept, 80 + other);
	far_rref_free(theirs);
	far_rref_free(kept);
	kept = NULL;
	meet(step + 4, 3);
}

static int worker(int rank)
{
	static const struct far_function functions[] = {{"s::echo(int x) -> int", FAR_KIND_INLINE, handler_echo, NULL},
							{"s::keep(rref r) -> none", FAR_KIND_INLINE, keep, NULL},
							{"s::never() -> none", FAR_KIND_FIBER, handler_never, NULL}};
	struct far_opts opts = {.functions = functions,
				.functions_n = 3,
				.security = "none",
				.leaks = FAR_LEAKS_FAIL,
				.peer_limit_ns = 2 * FAR_SEC};
	setenv("MASTER_ADDR", "10.93.0.1", 1);
	setenv("MASTER_PORT", "7078", 1);
	setenv("WORLD_SIZE", "2", 1);
	setenv("RANK", rank ? "1" : "0", 1);
	setenv("FAR_NIC", rank ? "udp:listen=g0" : "udp:listen=f0", 1);
	struct far_agent *a = check_join(&opts);
	for (unsigned round = 0; round < ROUNDS; round++)
		silence(a, rank, STEPS * round);
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
		for (int i = 0; i < WAIT_MS && system("ip link show g0 >/dev/null 2>&1"); i++)
			nap();
		CHECK(ip("link set lo up") && ip("addr add 10.93.0.2/24 dev g0") && ip("link set g0 up"));
	}
	for (int i = 0;
	     i < WAIT_MS && system(rank ? "ip link show g0 | grep -q LOWER_UP" : "ip link show f0 | grep -q LOWER_UP");
	     i++)
		nap();
	_exit(worker(rank));
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
		printf("SKIP: api_silence: missing right: %s\n", missing);
		return 77;
	}
	alarm(HANG_GUARD_S);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	pid_t other = start(1);
	for (int i = 0; i < WAIT_MS && !atomic_load(&shared->ready); i++)
		nap();
	CHECK(ip("link set lo up") && ip("link add f0 type veth peer name g0 netns %d", (int)other) &&
	      ip("addr add 10.93.0.1/24 dev f0") && ip("link set f0 up"));
	pid_t first = start(0);
	for (unsigned round = 0; round < ROUNDS; round++) {
		atomic_store(&shared->stood_still, round == 0);
		atomic_store(&shared->lost_calls, 0);
		meet(STEPS * round, 3);
		meet(STEPS * round + 1, 3);
		CHECK(round ? ip("link set f0 down") : kill(other, SIGSTOP) == 0);
		while (atomic_load(&shared->lost_calls) < (round ? 2 : 1))
			nap(); /* the hang guard bounds it; the store's connection lasts for 10 s */
		sleep(round ? 0 : 3);
		CHECK(round ? ip("link set f0 up") : kill(other, SIGCONT) == 0);
		for (unsigned step = 2; step < STEPS; step++)
			meet(STEPS * round + step, 3);
	}
	ended_well(other);
	ended_well(first);
	return 0;
}
