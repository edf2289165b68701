/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Leases of a dynamic group: workers are killed, lose their power, stand still beyond their lease, are cut off from the
 * store or from everybody, and rank 0 dies with the store and comes back, while all call all and keep references to
 * values of worker 0. Clocks show different times and run at different speeds; they jump forward, run faster or slower
 * for a while, and stand still while the machine does (a virtual machine that is stopped or migrated), rank 0's too.
 * A stand-by on a host of its own tries all the time to join with the name and rank of the last worker. One seed, one
 * cluster. The test's thread.
 *
 * A handler never starts at a worker whose own clock shows that its lease has run out. A handler never starts at, and
 * an answer never reaches, an incarnation that the store has ended; an incarnation never serves once another one of its
 * name has. Excepted from these two is a worker whose clock ran at less than 8/9 of the store's speed, until it has had
 * the time to find that out (PROTOCOL.md, "Leases"). A worker that is there joins again by itself: when nothing happens
 * any more, all have the same view of the members. When the others have gone, worker 0 keeps no value for their
 * references.
 *
 * usage: lease_members FROM SEEDS [MUTANT]; exit status: 0; 1: a run failed; 2: usage
 */
#include "agent/agent.h"
#include "agent/env.h"
#include "base/must.h"
#include "base/mutant.h"
#include "control/lease.h"
#include "core/shard.h"
#include "members.h"
#include "planted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 5, STAND_BY = RANKS, WORKERS, ENDS = 12, RETIRED_MAX = 256 };

#define MS            UINT64_C(1000000)
#define LEASE         (400 * MS)
#define LIMIT         (300 * MS)   /* of a call */
#define SLACK         (100 * MS)   /* of a host that is busy, and of its clock */
#define PASSES        (1 * MS)     /* in which a poller that was stopped looks at its timers */
#define SETTLED_PAUSE (1280 * MS)  /* between two calls, or attempts to join, when no disturbance comes any more */
#define SETTLED       (40000 * MS) /* a stream whose other end has no power is given up after 10 s */

enum disturbance {
	KILL,
	POWER,
	PAUSE,
	CUT_STORE,
	CUT_ALL,
	STORE_LOSS,
	LEAVE,
	CLOCK_JUMP,
	CLOCK_SPEED,
	CLOCK_SLOW,
	CLOCK_STOP,
	HOST_STOP,
	DISTURBANCES
};
static const char *const names[] = {"killed",
				    "without power",
				    "paused",
				    "cut from the store",
				    "cut from all",
				    "store lost",
				    "left",
				    "clock jumped",
				    "clock at another speed",
				    "clock at half speed",
				    "stopped with its clock",
				    "host stopped with its clock"};

/* Of a worker, what checkers know of its clock; times of the world. */
struct clock_state {
	uint64_t healed;   /* when its cut ends: a renewal that was sent in it arrives then */
	uint64_t moved;    /* when it last jumped, or the worker last went on */
	uint64_t excepted; /* until then its clock may have shown too little */
	/* The incarnation that this has happened to last, and when. */
	uint64_t slow_incarnation, slow_since;
	uint64_t stopped; /* since when its clock stands still; 0: it does not */
	uint64_t over;    /* when a handler has first found the lease over; 0: it is not */
};

/* Of a rank: the incarnation that has served last, and those before it. */
struct serving {
	uint64_t now, retired[RETIRED_MAX];
	unsigned retired_n;
};

/* The checkers' state of a run. */
static struct {
	struct clock_state clocks[WORKERS];
	struct serving serving[RANKS];
	uint64_t store_began, store_lost; /* when rank 0 has come back last, and when it has ended */
} seen;

/* An attempt to join is a whole agent, and most of a run is those of the loser of the last rank. So it pauses longer,
 * but in each eighth run. Seeds of runs that failed once, which are lower, keep their sequence. */
#define PATIENT_FROM 9000000u
static unsigned patience;

static uint64_t answered, failed_calls, handled, evicted, replaced, happened[DISTURBANCES];

static unsigned rank_of(const struct cluster_worker *w)
{
	return cluster_rank(w) == STAND_BY ? STAND_BY - 1 : cluster_rank(w);
}

static const struct ctl_member *seen_by_host(const struct cluster_worker *w)
{
	struct cluster_worker *host = cluster_worker(run.c, 0);
	return cluster_state(host) == CLUSTER_READY ? &cluster_agent(host)->members[rank_of(w)] : NULL;
}

/* True if the store has the present incarnation of this worker. */
static bool is_member(const struct cluster_worker *w)
{
	const struct ctl_member *m = seen_by_host(w);
	struct far_worker_info self;
	if (!m || cluster_state(w) != CLUSTER_READY)
		return false;
	far_worker_self(cluster_agent(w), &self);
	return atomic_load(&m->alive) && atomic_load(&m->incarnation) == self.incarnation;
}

/* Where the store is lost before the worker has found out, the next one knows nothing of its end. */
static bool is_excepted(const struct cluster_worker *w)
{
	const struct clock_state *clock = &seen.clocks[cluster_rank(w)];
	const struct shard *s = agent_shard_here();
	return cluster_now(run.c) < clock->excepted ||
	       (s && s->config.incarnation == clock->slow_incarnation && seen.store_lost >= clock->slow_since);
}

/* True if the store has ended the incarnation in whose name the running shard works. The host's control thread sees it
 * at once. */
static bool is_evicted(struct cluster_worker *w)
{
	const struct ctl_member *m = seen_by_host(w);
	const struct shard *s = agent_shard_here();
	if (!m || !s || cluster_state(w) != CLUSTER_READY || cluster_rank(w) == 0 || is_excepted(w))
		return false;
	return atomic_load(&m->incarnation) == s->config.incarnation && !atomic_load(&m->alive);
}

/* By the clock of its own host. A poller that was stopped, or whose clock has jumped, looks at it within some passes.
 */
static void check_own_clock(struct cluster_worker *w)
{
	const struct shard *s = agent_shard_here();
	uint64_t until = s && s->config.lease ? atomic_load(s->config.lease) : TIME_NEVER;
	struct clock_state *clock = &seen.clocks[cluster_rank(w)];
	uint64_t now = cluster_now(run.c), since = sim_host_when(cluster_host(w), until);
	if (until != LEASE_OVER && clock_now(sim_host_clock(cluster_host(w))) < until) {
		clock->over = 0;
		return;
	}
	if (until == LEASE_OVER && !clock->over)
		clock->over = now;
	if (until == LEASE_OVER)
		since = clock->over;
	if (now > time_after(since > clock->moved ? since : clock->moved, PASSES))
		wrong("worker %u has started a handler after its own clock had ended its lease", cluster_rank(w));
}

/* A store that rank 0 has begun anew knows of no lease: for one lease, a former member that has not come back yet may
 * serve besides (PROTOCOL.md, "Leases"), and longer if this store is lost before, since no lease ends without one. Then
 * either of the two may be the member in the next store. */
static bool is_store_new(void)
{
	bool is_lost = seen.store_lost > seen.store_began;
	return seen.store_began && (is_lost ? seen.store_lost : cluster_now(run.c)) <= seen.store_began + LEASE + SLACK;
}

/* One incarnation of a name serves. */
static void check_serving(struct cluster_worker *w)
{
	struct serving *v = &seen.serving[rank_of(w)];
	const struct shard *s = agent_shard_here();
	if (!s || v->now == s->config.incarnation || is_excepted(w) || is_store_new())
		return;
	for (unsigned i = 0; i < v->retired_n; i++)
		if (v->retired[i] == s->config.incarnation)
			wrong("worker %u has started a handler after another incarnation of rank %u had served",
			      cluster_rank(w), rank_of(w));
	if (v->now && v->retired_n < RETIRED_MAX)
		v->retired[v->retired_n++] = v->now;
	v->now = s->config.incarnation;
}

FAR_HANDLER(who)
{
	struct cluster_worker *w = cluster_here();
	handled++;
	replaced += cluster_rank(w) == STAND_BY;
	check_own_clock(w);
	check_serving(w);
	if (is_evicted(w))
		wrong("worker %u has started a handler after the store had ended its lease", cluster_rank(w));
	return far_return_int(req, (int64_t)rank_of(w) << 32 | cluster_incarnations(w));
}

static const struct far_function functions[] = {{"t::who() -> int", FAR_KIND_INLINE, who, NULL, 0}};

/* ---- calls ---- */

static void call(struct cluster_worker *w, unsigned rank)
{
	const struct far_call_opts opts = {.timeout_ns = LIMIT};
	uint64_t before = agent_shard_here()->config.incarnation;
	struct far_err err = {0};
	struct far_val out;
	enum far_status status = far_rpc_sync_to(cluster_agent(w), (struct far_to){(int32_t)rank, -1}, "t::who",
						 FAR_NOARGS, &opts, &out, &err);
	if (cluster_dead() || !cluster_agent(w))
		return;
	answered += status == FAR_OK;
	failed_calls += status != FAR_OK;
	if (status == FAR_OK && is_evicted(w))
		wrong("worker %u has got an answer after the store had ended its lease", cluster_rank(w));
	if (status == FAR_OK && before != agent_shard_here()->config.incarnation)
		wrong("worker %u has got an answer to a call of its former incarnation", cluster_rank(w));
	if (status == FAR_OK && out.u.i >> 32 != rank)
		wrong("worker %u has answered for worker %u", (unsigned)(out.u.i >> 32), rank);
	if (status == FAR_BUSY || status == FAR_RESOURCE || status == FAR_INVALID || status == FAR_PROTOCOL)
		wrong("a call of worker %u: %s", rank, err.text);
}

static void app(struct cluster_worker *w, void *ctx)
{
	(void)ctx;
	while (!cluster_dead() && !run.finishing) {
		if (cluster_sleep(sim_random_below(&run.random, run.settled ? SETTLED_PAUSE : 40 * MS)) ||
		    cluster_dead() || !cluster_agent(w))
			return;
		if (cluster_rank(w) && sim_random_below(&run.random, 16) == 0)
			run_keep(cluster_agent(w));
		else
			call(w, (unsigned)sim_random_below(&run.random, RANKS));
	}
}

/* ---- disturbances ---- */

/* A machine that stood still goes on before a process is started on it, which sees no jump. */
static void start(void *ctx)
{
	struct clock_state *clock = &seen.clocks[cluster_rank(ctx)];
	if (!run.finishing && clock->stopped) {
		cluster_set_clock(ctx, 0, 0);
		clock->stopped = 0;
	}
	run_start(ctx);
}

static void cut(struct cluster_worker *w, bool all, bool is_cut)
{
	for (unsigned r = 0; r < (all ? WORKERS : 1); r++) {
		struct cluster_worker *other = cluster_worker(run.c, r);
		if (other == w)
			continue;
		cluster_partition(w, other, is_cut);
		cluster_partition(other, w, is_cut);
	}
}

static void heal(void *ctx)
{
	cut(ctx, true, false);
}

static void later(uint64_t ns, void (*fn)(void *ctx), struct cluster_worker *w)
{
	sim_at(cluster_sim(run.c), cluster_now(run.c) + ns, fn, w);
}

static void cut_for(struct cluster_worker *w, bool all, uint64_t ns)
{
	cut(w, all, true);
	seen.clocks[cluster_rank(w)].healed = cluster_now(run.c) + ns;
	later(ns, heal, w);
}

static void leave(struct cluster_worker *w)
{
	cluster_leave(w, 5000 * MS);
}

/* A worker that stands still is no member any more when the store's time for its lease has passed. */
static struct paused {
	unsigned rank, host_incarnations;
	uint64_t incarnation, since;
} paused[ENDS];
static unsigned paused_n;

static void check_paused(void *ctx)
{
	const struct paused *p = ctx;
	struct cluster_worker *host = cluster_worker(run.c, 0);
	const struct ctl_member *m = seen_by_host(cluster_worker(run.c, p->rank));
	if (seen.clocks[0].moved >= p->since) /* the host's clock stood still */
		return;
	if (m && cluster_incarnations(host) == p->host_incarnations && atomic_load(&m->alive) &&
	    atomic_load(&m->incarnation) == p->incarnation)
		wrong("worker %u stands still beyond its lease and is still a member", p->rank);
}

static void went_on(struct cluster_worker *w, uint64_t ns)
{
	struct clock_state *clock = &seen.clocks[cluster_rank(w)];
	clock->moved = cluster_now(run.c) + ns;
}

static void pause_worker(struct cluster_worker *w, uint64_t ns)
{
	struct cluster_worker *host = cluster_worker(run.c, 0);
	uint64_t ended = lease_with_margin(LEASE) + SLACK;
	const struct ctl_member *m = is_member(w) ? seen_by_host(w) : NULL;
	bool runs = sim_host_state(cluster_host(w)) == SIM_RUNNING;
	cluster_pause(w, ns);
	if (runs)
		went_on(w, ns);
	if (!runs || ns < ended || !m || cluster_now(run.c) < seen.clocks[cluster_rank(w)].healed)
		return;
	struct paused *p = &paused[paused_n++];
	*p = (struct paused){cluster_rank(w), cluster_incarnations(host), atomic_load(&m->incarnation),
			     cluster_now(run.c)};
	sim_at(cluster_sim(run.c), cluster_now(run.c) + ended, check_paused, p);
}

/* ---- clocks ---- */

/* The clock may show too little until `ns` from now, and the worker needs two leases to find out: by its connection to
 * the store, or by its clock. */
static void except(struct cluster_worker *w, uint64_t ns)
{
	struct clock_state *clock = &seen.clocks[cluster_rank(w)];
	uint64_t until = cluster_now(run.c) + ns + 2 * LEASE + SLACK;
	clock->excepted = until > clock->excepted ? until : clock->excepted;
	clock->slow_incarnation = agent_incarnation(cluster_agent(w));
	clock->slow_since = cluster_now(run.c);
}

static void clock_jump(struct cluster_worker *w, uint64_t ns)
{
	cluster_set_clock(w, ns, sim_host_skew(cluster_host(w)));
	went_on(w, 0);
}

static void usual_speed(void *ctx)
{
	cluster_set_clock(ctx, 0, 0);
}

static void clock_speed(struct cluster_worker *w, int64_t ppb, uint64_t ns)
{
	cluster_set_clock(w, 0, ppb);
	later(ns, usual_speed, w);
}

/* After the stop, the clock has caught up all of it, a part, or nothing. */
static void go_on_stopped(void *ctx)
{
	struct cluster_worker *w = ctx;
	struct clock_state *clock = &seen.clocks[cluster_rank(w)];
	uint64_t stopped = cluster_now(run.c) - clock->stopped;
	if (!clock->stopped)
		return;
	clock->stopped = 0;
	cluster_set_clock(w, sim_random_below(&run.random, 2) ? stopped : sim_random_below(&run.random, stopped), 0);
}

static void clock_stop(struct cluster_worker *w, uint64_t ns)
{
	if (sim_host_state(cluster_host(w)) != SIM_RUNNING)
		return;
	seen.clocks[cluster_rank(w)].stopped = cluster_now(run.c);
	cluster_set_clock(w, 0, SIM_CLOCK_STOPPED);
	later(ns, go_on_stopped, w); /* before the worker goes on */
	cluster_pause(w, ns);
	went_on(w, ns);
}

static void disturb_clock(enum disturbance what, struct cluster_worker *w, uint64_t ns)
{
	switch (what) {
	case CLOCK_JUMP:
		clock_jump(w, ns);
		break;
	case CLOCK_SPEED: /* up to half as fast again; or 8 % slower, which the store's margin covers, and cut off from
			     it */
		if (sim_random_below(&run.random, 2)) {
			clock_speed(w, (int64_t)sim_random_below(&run.random, 580000000) - 80000000, 4 * ns);
			break;
		}
		clock_speed(w, -80000000, 4 * ns);
		cut_for(w, false, ns);
		break;
	case CLOCK_SLOW:
		except(w, 4 * ns);
		clock_speed(w, -500000000, 4 * ns);
		break;
	default: /* where rank 0's has stood still, it ends leases late */
		if (cluster_rank(w))
			except(w, ns);
		clock_stop(w, ns);
		break;
	}
}

static void disturb(void *ctx)
{
	(void)ctx;
	enum disturbance what = (enum disturbance)sim_random_below(&run.random, DISTURBANCES);
	struct cluster_worker *w = cluster_worker(
		run.c,
		what == STORE_LOSS || what == HOST_STOP ? 0 : 1 + (unsigned)sim_random_below(&run.random, WORKERS - 1));
	uint64_t ns = LEASE / 2 + sim_random_below(&run.random, 4 * LEASE);
	if (!run.ends)
		return;
	if (cluster_state(w) == CLUSTER_READY) {
		run.ends--;
		happened[what]++;
		if (what == STORE_LOSS)
			seen.store_lost = cluster_now(run.c);
		if (what == KILL || what == STORE_LOSS)
			cluster_crash(w, CLUSTER_KILL);
		else if (what == POWER)
			cluster_crash(w, CLUSTER_POWER);
		else if (what == PAUSE)
			pause_worker(w, ns);
		else if (what == LEAVE)
			leave(w);
		else if (what == CUT_STORE || what == CUT_ALL)
			cut_for(w, what == CUT_ALL, ns);
		else
			disturb_clock(what, w, ns);
	}
	later(sim_random_below(&run.random, 3 * LEASE), disturb, w);
}

static void on_state(void *ctx, struct cluster_worker *w, enum cluster_state state)
{
	struct far_err err;
	(void)ctx;
	if (state == CLUSTER_READY) {
		if (cluster_rank(w) == 0 && cluster_incarnations(w) > 1)
			seen.store_began = cluster_now(run.c);
		for (int i = 0; i < 2; i++)
			cluster_spawn(w, -1, app, NULL);
	} else if (state == CLUSTER_FAILED) {
		/* The store may be lost while a worker joins. */
		enum far_status why = cluster_why(w, &err);
		if (why != FAR_PEER_LOST && why != FAR_TIMEOUT &&
		    !(why == FAR_NOT_UNIQUE && rank_of(w) == STAND_BY - 1))
			wrong("worker %u cannot join: %s", cluster_rank(w), err.text);
	}
	/* Each attempt to join is a whole agent: the loser of the last rank makes fewer after the last disturbance. */
	bool loses = state == CLUSTER_FAILED && rank_of(w) == STAND_BY - 1;
	uint64_t pause = cluster_rank(w) == 0                      ? 3 * LEASE
			 : rank_of(w) == STAND_BY - 1 && !run.ends ? SETTLED_PAUSE * patience
			 : loses                                   ? 50 * MS * patience
								   : 50 * MS;
	if ((state == CLUSTER_LEFT || state == CLUSTER_CRASHED || state == CLUSTER_FAILED) && !run.finishing)
		later(sim_random_below(&run.random, pause), start, w);
}

/* ---- a run ---- */

/* A stand-by may have the last rank. */
static struct cluster_worker *member(unsigned rank)
{
	struct cluster_worker *stand_by = cluster_worker(run.c, STAND_BY);
	return rank == STAND_BY - 1 && is_member(stand_by) ? stand_by : run_ready(rank);
}

static void work(void)
{
	for (unsigned i = 0; i < WORKERS; i++)
		later(i ? sim_random_below(&run.random, 20 * MS) : 0, start, cluster_worker(run.c, i));
	later(100 * MS, disturb, NULL);
	run_finish(SETTLED, leave);
}

static void log_hook(enum far_log_level level, const char *text, const struct far_log_field *fields, size_t n,
		     void *user)
{
	(void)level, (void)fields, (void)n, (void)user;
	evicted += strstr(text, "is no member of group") != NULL;
}

static int run_seed(uint64_t seed)
{
	struct cluster_config config;
	struct nic_err why;
	memset(&run, 0, sizeof run);
	memset(&seen, 0, sizeof seen);
	run.ends = ENDS;
	run.ranks = RANKS;
	run.member = member;
	patience = seed < PATIENT_FROM || seed % 8 == 0 ? 1 : 6;
	paused_n = 0;
	sim_random_init(&run.random, seed, "lease", 0);
	cluster_config_init(&config, seed);
	config.sim.untraced = true;
	config.workers = WORKERS;
	config.dynamic = true;
	config.stand_bys = 1;
	config.on_state = on_state;
	config.clock_offset_ns_max = seed % 3 ? 1000000 * MS : 0;
	config.clock_skew_ppb_max = seed % 4 ? 200000 : 0;
	config.opts = (struct far_opts){.functions = functions,
					.functions_n = 1,
					.leaks = FAR_LEAKS_IGNORE,
					.lease_ns = LEASE,
					.peer_limit_ns = 100 * MS,
					/* Small tables: most of a run is agents that start and end. */
					.calls = 256,
					.deferred = 256,
					.submit_slots = 64,
					.mailbox_slots = 64,
					.fibers = 4,
					.shards = 1 + (unsigned)(seed % 2),
					.connect = seed / 2 % 2 ? FAR_CONNECT_LAZY : FAR_CONNECT_AUTO};
	run.c = cluster_create(&config, &why);
	must(run.c);
	work();
	return run_end(seed);
}

int main(int argc, char **argv)
{
	if ((argc != 3 && argc != 4) || (argc == 4 && !plant(argv[3]))) {
		fprintf(stderr, "usage: lease_members FROM SEEDS [MUTANT, in the build with mutants]\n");
		return 2;
	}
	uint64_t from = strtoull(argv[1], NULL, 10), n = strtoull(argv[2], NULL, 10);
	int failed = 0;
	far_log_set(log_hook, NULL);
	for (uint64_t seed = from; seed < from + n; seed++)
		failed += run_seed(seed);
	printf("%llu seeds: %llu answers, %llu calls failed, %llu handlers; %llu leases lost, %llu handlers of the "
	       "stand-by;",
	       (unsigned long long)n, (unsigned long long)answered, (unsigned long long)failed_calls,
	       (unsigned long long)handled, (unsigned long long)evicted, (unsigned long long)replaced);
	for (int i = 0; i < DISTURBANCES; i++)
		printf(" %s %llu%s", names[i], (unsigned long long)happened[i], i + 1 < DISTURBANCES ? "," : ";");
	printf(" failed %d\n", failed);
	return failed || !answered || !evicted || !replaced;
}
