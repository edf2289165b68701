/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Clusters whose workers train while one of them is killed, loses its power or stands still, in each phase of a step:
 * forward, backward, clean-up. A killed one may come back. Workers have hooks that call others in half of the steps.
 * One seed, one cluster. The test's thread.
 *
 * Every step that does not touch this worker succeeds, with the right gradient. Every other one ends within its limit.
 * In the end no worker holds a context, nothing is left in the pools, and all workers that are there train together.
 *
 * usage: train_deaths FROM SEEDS; exit status: 0; 1: a run failed; 2: usage
 */
#include "apps/libtrain/objects.h"
#include "apps/sim/cluster.h"
#include "base/must.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORKERS = 4, FLOWS = 2, STEPS = 6, HOPS_MAX = 4 }; /* FLOWS: applications of a worker that train side by side */
enum { HOOKED = 1 << (2 * HOPS_MAX) }; /* bit of a chain's salt: workers have hooks that make calls */

#define MS       UINT64_C(1000000)
#define LIMIT    (300 * MS) /* of a call and of a backward pass */
#define SLACK    (100 * MS) /* of a worker that is busy, and of timers */
#define PATIENCE (300000 * MS)

enum phase { FORWARD, BACKWARD, CLEAN_UP, PHASES };
enum end { KILLED, KILLED_AND_STARTED, POWER_LOST, PAUSED, ENDS };

static const char *const phase_names[] = {"forward", "backward", "clean-up"};
static const char *const end_names[] = {"killed", "killed and started again", "power lost", "paused"};

/* An incarnation of a worker. */
struct trainer {
	struct far_pool *pool;
	struct far_train *train;
	struct train_opts opts;
};

static struct run {
	uint64_t seed;
	struct cluster *c;
	struct sim_random random;
	struct trainer of[WORKERS];
	unsigned victim;
	enum phase phase; /* in which the victim comes to its end */
	enum end end;
	unsigned wait; /* phases of this kind that begin before */
	bool struck;
	unsigned ok, failed; /* steps */
	unsigned hooks;      /* that ran */
} run;

static uint64_t total_ok, total_failed, total_hooks, total_struck[PHASES][ENDS];

__attribute__((format(printf, 1, 2))) static void wrong(const char *format, ...)
{
	char text[1024];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	cluster_fail(run.c, "%s (worker %u %s in %s)", text, run.victim, end_names[run.end], phase_names[run.phase]);
}

/* ---- the end of the victim ---- */

static void start_again(void *ctx)
{
	(void)ctx;
	cluster_start(cluster_worker(run.c, run.victim));
}

static void strike(void *ctx)
{
	struct cluster_worker *w = cluster_worker(run.c, run.victim);
	(void)ctx;
	run.struck = true;
	if (run.end == PAUSED)
		cluster_pause(w, sim_random_below(&run.random, 5000) * MS);
	else
		cluster_crash(w, run.end == POWER_LOST ? CLUSTER_POWER : CLUSTER_KILL);
}

static void phase_begins(enum phase phase)
{
	if (phase == run.phase && run.wait > 0 && --run.wait == 0)
		sim_at(cluster_sim(run.c), cluster_now(run.c) + sim_random_below(&run.random, 40000), strike, NULL);
}

/* ---- a step ---- */

/** The worker that `rank` calls as the number `left` of a chain, counted down to 0. */
static unsigned next_of(unsigned rank, int64_t left, int64_t salt)
{
	return (rank + 1 + (unsigned)(salt >> (2 * left)) % (WORKERS - 1)) % WORKERS;
}

static bool touches_victim(unsigned rank, int64_t left, int64_t salt)
{
	for (; rank != run.victim && left >= 0; left--)
		rank = next_of(rank, left, salt);
	return rank == run.victim;
}

/** Of the chain: each worker doubles, passes it on, and adds what it received. */
static float gradient_of(int64_t left)
{
	return left == 0 ? 2 : 2 * gradient_of(left - 1) + 1;
}

static enum far_status call(unsigned rank, struct far_context *context, struct far_var *x, int64_t left, int64_t salt,
			    struct far_val *out, struct far_err *err)
{
	struct far_agent *agent = cluster_agent(cluster_worker(run.c, rank));
	const struct far_call_opts opts = {.timeout_ns = LIMIT};
	struct far_val sent = far_context_send(context, x, err);
	if (sent.type == FAR_TYPE_NONE)
		return err->status;
	const struct far_val args[] = {sent, far_int(left), far_int(salt)};
	char name[16];
	snprintf(name, sizeof name, "w%u", next_of(rank, left, salt));
	return far_rpc_sync(agent, name, "t::hop", args, 3, &opts, out, err);
}

FAR_HANDLER(touch)
{
	return far_return_none(req);
}

/** A hook that waits for another worker of the chain. `user`: the worker, and that one. */
static enum far_status touch_hook(void *user, struct far_var *var, struct far_gradient *g, struct far_err *err)
{
	unsigned both = (unsigned)(uintptr_t)user;
	struct far_agent *agent = cluster_agent(cluster_worker(run.c, both / WORKERS));
	char name[16];
	(void)var;
	(void)g;
	snprintf(name, sizeof name, "w%u", both % WORKERS);
	run.hooks++;
	return far_rpc_sync(agent, name, "t::touch", NULL, 0, NULL, NULL, err); /* in the time of the pass */
}

FAR_HANDLER(hop)
{
	unsigned rank = cluster_rank(cluster_here());
	struct trainer *t = &run.of[rank];
	struct far_tape *tape;
	struct far_err err;
	struct far_val out = far_none();
	struct far_context *context = far_context_of(t->train, req, &args[0], &err);
	(void)user;
	(void)n;
	if (!context)
		return far_fail(req, err.status, err.code, "%s", err.text);
	must(far_tape_new(t->pool, &tape, &err) == FAR_OK);
	struct far_var *x = far_tape_recv(tape, context, &args[0]), *y = far_tape_scale(tape, x, 2);
	unsigned to =
		args[1].u.i > 0 ? next_of(rank, args[1].u.i - 1, args[2].u.i) : (unsigned)far_req_from(req).worker;
	if (x && args[2].u.i & HOOKED)
		must(far_var_hook(x, FAR_HOOK_BEFORE, touch_hook, (void *)(uintptr_t)(rank * WORKERS + to), &err) ==
		     FAR_OK);
	if (y && args[1].u.i > 0) {
		if (call(rank, context, y, args[1].u.i - 1, args[2].u.i, &out, &err))
			far_tape_fail(tape, &err);
		else
			y = far_tape_add(tape, far_tape_recv(tape, context, &out), x);
	}
	enum far_status status = far_tape_return(tape, context, y, req);
	far_val_fini(&out);
	far_tape_free(tape);
	far_context_free(context);
	return status;
}

static const struct far_function functions[] = {
	{"t::hop(far::Var x, int left, int salt) -> far::Var", FAR_KIND_FIBER, hop, NULL, 0},
	{"t::touch() -> none", FAR_KIND_INLINE, touch, NULL, 0}};

/** What a wait returned, and when. */
static bool ended(const char *what, uint64_t since, bool may_fail, enum far_status status, const struct far_err *err)
{
	if (cluster_dead())
		return false;
	if (cluster_now(run.c) - since > LIMIT + SLACK && cluster_rank(cluster_here()) != run.victim)
		wrong("%s took %llu ms", what, (unsigned long long)((cluster_now(run.c) - since) / MS));
	if (status && !may_fail)
		wrong("%s: %s", what, err->text);
	return status == FAR_OK;
}

static bool passes(unsigned rank, struct far_context *context, struct far_tape *tape, struct far_var *leaf,
		   int64_t left, int64_t salt)
{
	struct far_val out = far_none();
	struct far_err err = {0};
	struct far_gradient g;
	bool may_fail = touches_victim(rank, left, salt);
	uint64_t since = cluster_now(run.c);
	phase_begins(FORWARD);
	if (!ended("the forward pass", since, may_fail, call(rank, context, leaf, left, salt, &out, &err), &err))
		return false;
	struct far_var *root = far_tape_sum(tape, far_tape_recv(tape, context, &out), NULL, 0, false);
	far_val_fini(&out);
	must(far_tape_status(tape, &err) == FAR_OK);
	since = cluster_now(run.c);
	phase_begins(BACKWARD);
	enum far_status status = far_backward(context, &root, 1, NULL, LIMIT, &err);
	if (!ended("the backward pass", since, may_fail, status, &err))
		return false;
	if (!far_grads_get(far_context_grads(context), leaf, &g) ||
	    ((const float *)g.values.data)[0] != gradient_of(left))
		wrong("a gradient is wrong");
	return true;
}

/** One step; false: it failed. */
static bool step(unsigned rank, int64_t left, int64_t salt)
{
	struct trainer *t = &run.of[rank];
	float one[2] = {1, 1};
	const struct far_tensor value = far_tensor_1d(FAR_F32, one, 2);
	struct far_context *context;
	struct far_tape *tape;
	struct far_var *leaf;
	struct far_err err;
	if (far_context_begin(t->train, &context, &err)) {
		wrong("a context: %s", err.text);
		return false;
	}
	must(far_tape_new(t->pool, &tape, &err) == FAR_OK);
	must(far_var_new(t->pool, &value, true, &leaf, &err) == FAR_OK);
	bool done = passes(rank, context, tape, leaf, left, salt);
	if (cluster_dead()) {
		far_context_free(context); /* a process that dies ends nothing */
	} else {
		phase_begins(CLEAN_UP);
		far_context_end(context);
	}
	far_var_free(leaf);
	far_tape_free(tape);
	return done;
}

static void app(struct cluster_worker *w, void *ctx)
{
	unsigned rank = cluster_rank(w);
	(void)ctx;
	for (int i = 0; i < STEPS && !cluster_dead(); i++) {
		int64_t left = (int64_t)sim_random_below(&run.random, HOPS_MAX);
		int64_t salt = (int64_t)sim_random_below(&run.random, 2 * HOOKED);
		bool done = step(rank, left, salt);
		if (cluster_dead())
			return;
		run.ok += done;
		run.failed += !done;
	}
}

/* ---- incarnations ---- */

static uint64_t world_now(void)
{
	return cluster_now(run.c);
}

/** Handlers of kind blocking would need threads. */
static void on_fibers(struct train_opts *opts)
{
	for (size_t i = 0; i < opts->all.functions_n; i++)
		if (opts->functions[i].kind == FAR_KIND_BLOCKING)
			opts->functions[i].kind = FAR_KIND_FIBER;
	for (size_t i = 1; i < 3; i++)
		opts->objects.optimizer[i].kind = FAR_KIND_FIBER;
	opts->objects.module[0].kind = FAR_KIND_FIBER;
}

static void opts_of(void *ctx, unsigned rank, struct far_opts *opts)
{
	struct trainer *t = &run.of[rank];
	struct far_err err;
	(void)ctx;
	opts->functions = functions;
	opts->functions_n = sizeof functions / sizeof *functions;
	must(far_pool_new(0, &t->pool, &err) == FAR_OK && far_train_new(t->pool, &t->train, &err) == FAR_OK);
	t->train->now_ns = world_now;
	must(train_opts_make(t->train, opts, &t->opts, &err) == FAR_OK);
	on_fibers(&t->opts);
	*opts = t->opts.all;
}

/** What an incarnation held is gone with it. */
static void trainer_free(unsigned rank)
{
	struct trainer *t = &run.of[rank];
	struct far_pool_stats stats;
	if (!t->train)
		return;
	far_train_free(t->train);
	train_opts_free(&t->opts);
	far_pool_get_stats(t->pool, &stats);
	if (stats.used_bytes)
		wrong("%zu bytes of the pool of worker %u are in use", stats.used_bytes, rank);
	else
		far_pool_free(t->pool);
	*t = (struct trainer){0};
}

static void on_state(void *ctx, struct cluster_worker *w, enum cluster_state state)
{
	unsigned rank = cluster_rank(w);
	(void)ctx;
	if (state == CLUSTER_READY)
		atomic_store(&run.of[rank].train->agent, cluster_agent(w));
	if (state != CLUSTER_CRASHED && state != CLUSTER_LEFT)
		return;
	trainer_free(rank);
	if (state == CLUSTER_CRASHED && run.end == KILLED_AND_STARTED)
		sim_at(cluster_sim(run.c), cluster_now(run.c) + sim_random_below(&run.random, 100) * MS, start_again,
		       NULL);
}

/* ---- a run ---- */

static size_t contexts(void)
{
	size_t n = 0;
	for (unsigned i = 0; i < WORKERS; i++)
		n += run.of[i].train ? far_train_contexts(run.of[i].train) : 0;
	return n;
}

static bool apps_end(void)
{
	return cluster_run_apps(run.c, PATIENCE) == CLUSTER_RUN_DONE;
}

static bool all_there(void)
{
	for (unsigned i = 0; i < WORKERS; i++) {
		enum cluster_state state = cluster_state(cluster_worker(run.c, i));
		bool dead = run.struck && i == run.victim && (run.end == KILLED || run.end == POWER_LOST);
		if (state != CLUSTER_READY && !dead)
			return false;
	}
	return true;
}

/** Until those that come back have, and no worker holds a context. */
static bool quiet(void)
{
	uint64_t until = cluster_now(run.c) + PATIENCE;
	while (!cluster_failure(run.c) && (contexts() > 0 || !all_there())) {
		if (cluster_now(run.c) > until) {
			wrong("%zu contexts are held", contexts());
			return false;
		}
		cluster_run_until(run.c, cluster_now(run.c) + 100 * MS);
	}
	return !cluster_failure(run.c);
}

/** Once more, with every worker that is there. */
static void together(struct cluster_worker *w, void *ctx)
{
	unsigned rank = cluster_rank(w);
	bool dead = run.struck && (run.end == KILLED || run.end == POWER_LOST);
	(void)ctx;
	for (int64_t salt = 0; salt < 1 << 4; salt++)
		if (!(dead && touches_victim(rank, 1, salt)) && !step(rank, 1, salt))
			wrong("a step of all at the end failed");
}

static void spawn(cluster_app_fn *fn, unsigned each)
{
	for (unsigned i = 0; i < each * WORKERS; i++)
		if (cluster_state(cluster_worker(run.c, i % WORKERS)) == CLUSTER_READY)
			cluster_spawn(cluster_worker(run.c, i % WORKERS), -1, fn, NULL);
}

static bool all_of_it(void)
{
	cluster_start_all(run.c);
	if (cluster_run_ready(run.c, PATIENCE) != CLUSTER_RUN_DONE)
		return false;
	spawn(app, FLOWS);
	if (!apps_end() || !quiet())
		return false;
	spawn(together, 1);
	if (!apps_end() || !quiet())
		return false;
	cluster_leave_all(run.c, 0);
	return cluster_run_left(run.c, PATIENCE) == CLUSTER_RUN_DONE;
}

static bool one(uint64_t seed)
{
	struct cluster_config config;
	struct nic_err err = {.text = ""};
	run = (struct run){.seed = seed};
	sim_random_init(&run.random, seed, "train", 0);
	run.phase = (enum phase)(seed % PHASES);
	run.end = (enum end)(seed / PHASES % ENDS);
	/* Worker 0 has the store of the group, whose end ends all. */
	run.victim = 1 + (unsigned)sim_random_below(&run.random, WORKERS - 1);
	run.wait = 1 + (unsigned)sim_random_below(&run.random, WORKERS * FLOWS * STEPS / 2);
	cluster_config_init(&config, seed);
	config.workers = WORKERS;
	config.opts_of = opts_of;
	config.on_state = on_state;
	run.c = cluster_create(&config, &err);
	must(run.c != NULL);
	bool done = all_of_it();
	if (!done)
		fprintf(stderr, "train_deaths: seed %llu: %s\n", (unsigned long long)seed,
			cluster_failure(run.c) ? cluster_failure(run.c) : "it took too long");
	total_ok += run.ok;
	total_failed += run.failed;
	total_hooks += run.hooks;
	total_struck[run.phase][run.end] += run.struck;
	cluster_destroy(run.c);
	return done;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return fprintf(stderr, "usage: train_deaths FROM SEEDS\n"), 2;
	uint64_t from = strtoull(argv[1], NULL, 0), n = strtoull(argv[2], NULL, 0), bad = 0;
	for (uint64_t i = 0; i < n; i++)
		bad += !one(from + i);
	for (int phase = 0; phase < PHASES; phase++)
		for (int end = 0; end < ENDS; end++)
			printf("%s in %s: %llu\n", end_names[end], phase_names[phase],
			       (unsigned long long)total_struck[phase][end]);
	printf("%llu steps succeeded, %llu failed, %llu hooks ran, in %llu runs; %llu runs were wrong\n",
	       (unsigned long long)total_ok, (unsigned long long)total_failed, (unsigned long long)total_hooks,
	       (unsigned long long)n, (unsigned long long)bad);
	return bad > 0;
}
