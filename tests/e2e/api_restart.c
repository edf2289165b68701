/* SPDX-License-Identifier: BSD-3-Clause */
/** A worker dies of SIGKILL and is started again under the same name and rank, under traffic, again and again.
 * Main thread of each process; handlers on shard threads. */
#include "api_spawn.h"

#include <dirent.h>
#include <malloc.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum {
	VICTIM = 2,
	WORLD = 4,
	INCARNATIONS = 30,
	SETTLED = 15,
	INCARNATIONS_MORE = 5,
	CALLS_MAX = 1 << 20,
	PENDING = 8
};

/* Bytes that incarnations beyond SETTLED may leave on the heap together: less than half of what a route each would. In
 * those before, the allocator's own lists of freed memory fill, which count as used. */
#define HEAP_SLACK ((size_t)2 << 10)

/* What parent and workers share. */
static struct shared {
	_Atomic int incarnation;    /* that the parent has begun last */
	_Atomic int reached[WORLD]; /* that each worker has had an answer from */
	_Atomic bool stop;
	_Atomic int joined; /* incarnations that have joined */
	_Atomic int winners, losers;
	_Atomic uint8_t ran[WORLD][CALLS_MAX]; /* how often each call ran */
} * shared;

static struct far_agent *agent;
static struct far_err err;
static int incarnation, last_incarnation;
static bool lazy;

/* ---- the victim ---- */

static enum far_status count(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	atomic_fetch_add(&shared->ran[args[0].u.i][args[1].u.i], 1);
	struct far_val out = far_int(incarnation);
	return far_return(req, &out);
}

static enum far_status keep(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_deferred *kept; /* for as long as this incarnation */
	return far_defer(req, &kept);
}

static const struct far_function table[] = {
	{"t::count(int from, int call) -> int", FAR_KIND_INLINE, count, NULL},
	{"t::keep() -> none", FAR_KIND_INLINE, keep, NULL},
};

static struct far_opts options(void)
{
	return (struct far_opts){.functions = table,
				 .functions_n = 2,
				 .connect = lazy ? FAR_CONNECT_LAZY : FAR_CONNECT_AUTO,
				 .init_timeout_ns = 20 * FAR_SEC};
}

static int victim(int rank)
{
	struct far_opts opts = options();
	struct far_val out;
	incarnation = atomic_load(&shared->incarnation);
	agent = check_join(&opts);
	/* It finds everybody, and the others find it. */
	for (int r = 0; r < WORLD; r++) {
		CHECK_STATUS(far_rpc_sync(agent, check_name(r), "far::add", FAR_ARGS(r, 1), NULL, &out, &err), FAR_OK,
			     &err);
		CHECK(out.u.i == r + 1);
	}
	atomic_store(&shared->joined, incarnation + 1);
	while (!atomic_load(&shared->stop))
		usleep(2000);
	check_leave(agent);
	return 0;
}

/* ---- the others ---- */

/* How often a call ran agrees with its caller's result. Returns the incarnation that answered, or −1. */
static int one_call(int rank, int call)
{
	struct far_call_opts opts = {.timeout_ns = 10 * FAR_SEC, .retry = call % 2};
	struct far_val out;
	enum far_status status = far_rpc_sync(agent, "worker2", "t::count", FAR_ARGS(rank, call), &opts, &out, &err);
	int ran = atomic_load(&shared->ran[rank][call]);
	if (status == FAR_OK) {
		CHECK(ran == 1);
		return (int)out.u.i;
	}
	if (status != FAR_PEER_LOST)
		far_err_print(stderr, &err);
	CHECK(status == FAR_PEER_LOST);
	CHECK(strcmp(err.origin, "worker2") == 0);
	CHECK(err.executed == FAR_EXECUTED_NO ? ran == 0 : ran <= 1);
	CHECK(err.executed != FAR_EXECUTED_YES);
	return -1;
}

/* Every call that was pending on an incarnation has ended with it. */
static void ended(struct far_future **pending)
{
	for (int i = 0; i < PENDING; i++) {
		CHECK_STATUS(far_future_wait(pending[i], 10 * FAR_SEC, NULL, &err), FAR_PEER_LOST, &err);
		CHECK(err.executed != FAR_EXECUTED_YES);
		CHECK(strcmp(err.origin, "worker2") == 0);
		far_future_free(pending[i]);
	}
}

static void start(struct far_future **pending)
{
	for (int i = 0; i < PENDING; i++) {
		enum far_status status = FAR_BUSY;
		struct far_call_opts opts = {.timeout_ns = FAR_FOREVER, .retry = i % 2};
		status = far_rpc_async(agent, "worker2", "t::keep", FAR_NOARGS, &opts, &pending[i], &err);
		/* It may die before all are begun: these never are. */
		if (status == FAR_PEER_LOST) {
			for (int k = 0; k < i; k++)
				far_future_free(pending[k]);
			pending[0] = NULL;
			return;
		}
		CHECK_STATUS(status, FAR_OK, &err);
	}
}

/* Descriptors and mappings of this process: what incarnations leave behind. */
static unsigned held(void)
{
	unsigned n = 0;
	DIR *dir = opendir("/proc/self/fd");
	FILE *maps = fopen("/proc/self/maps", "r");
	CHECK(dir && maps);
	while (readdir(dir))
		n++;
	for (int c; (c = getc(maps)) != EOF;)
		n += c == '\n';
	fclose(maps);
	closedir(dir);
	return n;
}

/* Bytes of the heap: what an incarnation adds there grows without bound in a long-lived group. */
static size_t heap(void)
{
	return mallinfo2().uordblks;
}

static int other(int rank)
{
	struct far_opts opts = options();
	struct far_future *pending[PENDING] = {NULL};
	struct far_worker_info before = {0}, info;
	int seen = -1, call = 0;
	unsigned early = 0;
	size_t heap_early = 0;
	agent = check_join(&opts);
	while (seen < last_incarnation) {
		CHECK(call < CALLS_MAX);
		int got = one_call(rank, call++);
		if (got <= seen) {
			if (got < 0)
				usleep(200);
			continue;
		}
		if (pending[0])
			ended(pending);
		seen = got;
		/* An incarnation has a number of its own. */
		CHECK_STATUS(far_worker_by_name(agent, "worker2", &info, &err), FAR_OK, &err);
		CHECK(info.incarnation != before.incarnation);
		CHECK(strcmp(info.name, "worker2") == 0 && info.shards == 1);
		before = info;
		if (seen == 2)
			early = held();
		if (seen == SETTLED)
			heap_early = heap();
		if (seen < last_incarnation)
			start(pending);
		else
			pending[0] = NULL;
		atomic_store(&shared->reached[rank], seen + 1);
	}
	CHECK(info.alive);
	while (!atomic_load(&shared->stop))
		CHECK(one_call(rank, call++) == last_incarnation);
	/* Less than one for each incarnation; a session may be on its way out at either moment of looking. */
	while (last_incarnation >= INCARNATIONS && held() > early + 8)
		usleep(1000);
	while (last_incarnation >= INCARNATIONS && heap() > heap_early + HEAP_SLACK)
		usleep(1000);
	check_leave(agent);
	return 0;
}

static int either(int rank)
{
	return rank == VICTIM ? victim(rank) : other(rank);
}

/* ---- the parent ---- */

static void shared_new(void)
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(shared != MAP_FAILED);
}

static void all_reach(int wanted)
{
	for (int r = 0; r < WORLD; r++)
		while (r != VICTIM && atomic_load(&shared->reached[r]) < wanted)
			usleep(500);
	while (atomic_load(&shared->joined) < wanted)
		usleep(500);
}

static void killed(pid_t pid)
{
	int status;
	CHECK(kill(pid, SIGKILL) == 0);
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
}

static int again_and_again(int incarnations)
{
	shared_new();
	last_incarnation = incarnations;
	struct spawned s = spawn(WORLD, either);
	for (int i = 1; i <= incarnations; i++) {
		all_reach(i);
		if (i % 3 == 0)
			usleep(1000); /* calls fly at other moments */
		killed(s.pids[VICTIM]);
		atomic_store(&shared->incarnation, i);
		s.pids[VICTIM] = spawn_one(&s, VICTIM, -1, victim);
	}
	all_reach(incarnations + 1);
	atomic_store(&shared->stop, true);
	return spawn_wait(&s, -1);
}

/* ---- who wants a rank that somebody has ---- */

static int contender(int rank)
{
	struct far_opts opts = options();
	alarm(HANG_GUARD_S);
	enum far_status status = check_init(check_name(VICTIM), FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err);
	if (status == FAR_OK) {
		atomic_fetch_add(&shared->winners, 1);
		while (!atomic_load(&shared->stop))
			usleep(2000);
		check_leave(agent);
		return 0;
	}
	CHECK_STATUS(status, FAR_NOT_UNIQUE, &err);
	CHECK_TEXT(&err, "rank 2 of group");
	CHECK_TEXT(&err, "is taken by worker \"worker2\"");
	atomic_fetch_add(&shared->losers, 1);
	return 0;
}

/* Another name, or another number of shards. */
static int second_of_a_name(int rank)
{
	struct far_opts opts = options();
	alarm(HANG_GUARD_S);
	CHECK_STATUS(check_init("second_of_a_name", FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err), FAR_NOT_UNIQUE,
		     &err);
	CHECK_TEXT(&err, "rank 2 of group");
	CHECK_TEXT(&err, "worker2");
	opts.shards = 2;
	CHECK_STATUS(check_init("worker2", FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "start it with as many, not 2");
	return 0;
}

static int bystander(int rank)
{
	struct far_opts opts = options();
	struct far_val out;
	agent = check_join(&opts);
	while (!atomic_load(&shared->stop)) {
		CHECK_STATUS(
			far_rpc_sync(agent, rank ? "worker0" : "worker1", "far::add", FAR_ARGS(1, 2), NULL, &out, &err),
			FAR_OK, &err);
		usleep(1000);
	}
	check_leave(agent);
	return 0;
}

static int joins_and_waits(int rank)
{
	return rank == VICTIM ? contender(rank) : bystander(rank);
}

static int ended_well(pid_t pid)
{
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	return status != 0;
}

static int one_wins(void)
{
	int bad = 0;
	shared_new();
	struct spawned s = spawn(WORLD, joins_and_waits);
	while (atomic_load(&shared->winners) < 1)
		usleep(500);
	/* It is running: nobody gets its rank, and the group goes on. */
	bad |= ended_well(spawn_one(&s, VICTIM, -1, contender));
	CHECK(atomic_load(&shared->losers) == 1);
	killed(s.pids[VICTIM]);
	bad |= ended_well(spawn_one(&s, VICTIM, -1, second_of_a_name));
	pid_t two[2];
	for (int i = 0; i < 2; i++)
		two[i] = spawn_one(&s, VICTIM, -1, contender);
	while (atomic_load(&shared->losers) < 2 || atomic_load(&shared->winners) < 2)
		usleep(500);
	CHECK(atomic_load(&shared->losers) == 2 && atomic_load(&shared->winners) == 2);
	atomic_store(&shared->stop, true);
	s.pids[VICTIM] = two[0];
	bad |= ended_well(two[1]);
	return spawn_wait(&s, -1) || bad;
}

/* ---- without a session ---- */

/* Nobody has a session with it when it dies: over a network nobody would answer a set-up, for half a minute. */
static int calls_the_dead(int rank)
{
	struct far_opts opts = options();
	struct far_call_opts within = {.timeout_ns = 20 * FAR_SEC};
	struct far_val out;
	agent = check_join(&opts);
	atomic_fetch_add(&shared->joined, 1);
	if (rank == VICTIM && !incarnation)
		for (;;)
			pause();
	while (!atomic_load(&shared->incarnation))
		usleep(500);
	if (rank != VICTIM && atomic_load(&shared->incarnation) == 1) {
		CHECK_STATUS(far_rpc_sync(agent, "worker2", "far::add", FAR_ARGS(1, 2), &within, &out, &err),
			     FAR_PEER_LOST, &err);
		CHECK(err.executed == FAR_EXECUTED_NO && strcmp(err.origin, "worker2") == 0);
		atomic_fetch_add(&shared->reached[rank], 1);
	}
	while (!atomic_load(&shared->stop))
		usleep(500);
	enum far_status status;
	while ((status = far_rpc_sync(agent, "worker2", "far::add", FAR_ARGS(1, 2), &within, &out, &err)) ==
	       FAR_PEER_LOST)
		usleep(500);
	CHECK_STATUS(status, FAR_OK, &err);
	check_leave(agent);
	return 0;
}

static int dead_without_a_session(void)
{
	shared_new();
	struct spawned s = spawn(WORLD, calls_the_dead);
	while (atomic_load(&shared->joined) < WORLD)
		usleep(500);
	killed(s.pids[VICTIM]);
	atomic_store(&shared->incarnation, 1);
	for (int r = 0; r < WORLD; r++)
		while (r != VICTIM && !atomic_load(&shared->reached[r]))
			usleep(500);
	incarnation = 1;
	s.pids[VICTIM] = spawn_one(&s, VICTIM, -1, calls_the_dead);
	while (atomic_load(&shared->joined) <= WORLD)
		usleep(500);
	atomic_store(&shared->stop, true);
	return spawn_wait(&s, -1);
}

/* ---- the way out ---- */

static int leaves_early(int rank)
{
	struct far_opts opts = options();
	agent = check_join(&opts);
	if (rank == VICTIM)
		for (;;)
			pause();
	atomic_fetch_add(&shared->joined, 1);
	while (!atomic_load(&shared->stop) || (rank == 1 && !atomic_load(&shared->losers)))
		usleep(1000);
	/* The dead are named, and nobody waits for them. */
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_PEER_LOST, &err);
	CHECK_TEXT(&err, "worker2");
	return 0;
}

/* It comes while the others leave: once rank 0 does, nobody is taken in any more. */
static int comes_late(int rank)
{
	struct far_opts opts = options();
	enum far_status status;
	alarm(HANG_GUARD_S);
	opts.init_timeout_ns = 300 * FAR_MS;
	while ((status = check_init("worker2", FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err)) == FAR_OK)
		CHECK(far_shutdown_local(agent, &err) == FAR_OK);
	CHECK_STATUS(status, FAR_TIMEOUT, &err);
	CHECK_TEXT(&err, "rank 0");
	atomic_store(&shared->losers, 1);
	return 0;
}

static int dead_at_the_end(void)
{
	shared_new();
	struct spawned s = spawn(WORLD, leaves_early);
	while (atomic_load(&shared->joined) < WORLD - 1)
		usleep(500);
	kill(s.pids[VICTIM], SIGKILL);
	atomic_store(&shared->stop, true);
	pid_t late = spawn_one(&s, VICTIM, -1, comes_late);
	return spawn_wait(&s, VICTIM) || ended_well(late);
}

int main(void)
{
	alarm(HANG_GUARD_S);
	if (again_and_again(INCARNATIONS))
		return 1;
	lazy = true;
	if (again_and_again(INCARNATIONS_MORE))
		return 1;
	if (dead_without_a_session())
		return 1;
	if (one_wins())
		return 1;
	return dead_at_the_end();
}
