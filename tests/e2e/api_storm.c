/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Everything at once, for a while: three workers of two shards call one another from threads that come and go, with
 * handlers of all kinds that call on, cancels, tiny time-outs, repeats, callbacks, waits for several, scopes, lists and
 * dicts, and payloads of 0 bytes to 1 MiB. No function runs twice for a call, every result is the right one, and
 * nothing is left at the end. A variant loses a worker in the middle.
 *
 *   api_storm [together|apart|death|abrupt] [SEED [MILLISECONDS]]
 *
 * abrupt: agents of one process that are shut down one after the other over all kinds of handlers that wait.
 * Without arguments: apart, death, abrupt. What is drawn depends on the seed, the order of events on the machine.
 */
#include "api_storm.h"

/* ---- callers ---- */

static void one_sync(struct client *c)
{
	struct op op;
	struct far_val out = {0};
	struct far_err e;
	op_make(c, &op);
	if (op.hang) {
		op.tiny = true;
		op.opts.timeout_ns = 100000;
	}
	enum far_status status = far_rpc_sync_to(c->agent, op.to, op.function, op.args, op.args_n, &op.opts, &out, &e);
	expect(&op, status, &out, &e);
	far_val_fini(&out);
}

static enum far_status hand_on(struct far_future *parent, struct far_val *out, struct far_err *err, void *user)
{
	atomic_fetch_add((_Atomic int *)user, 1);
	return far_future_value(parent, out, err);
}

static void *cancel_main(void *f)
{
	struct far_err e;
	CHECK_STATUS(far_future_cancel(f, &e), FAR_OK, &e);
	far_future_free(f);
	return NULL;
}

static struct far_future *start(struct client *c, struct op *op)
{
	struct far_future *f = NULL;
	struct far_err e;
	op_make(c, op);
	enum far_status status =
		far_rpc_async_to(c->agent, op->to, op->function, op->args, op->args_n, &op->opts, &f, &e);
	if (status)
		expect(op, status, NULL, &e);
	return f;
}

static void finish(const struct op *op, struct far_future *f)
{
	struct far_val out = {0};
	struct far_err e;
	enum far_status status = far_future_wait(f, FAR_FOREVER, &out, &e);
	expect(op, status, &out, &e);
	far_val_fini(&out);
	far_future_free(f);
}

/* Cancelled here, by another thread or not at all, with a child that gets the result. */
static void one_async(struct client *c)
{
	struct op op;
	struct far_err e;
	_Atomic int children = 0;
	struct far_future *child = NULL, *f = start(c, &op);
	pthread_t canceller;
	if (!f)
		return;
	if (draw(&c->random, 2))
		CHECK_STATUS(far_future_then(f, hand_on, &children, &child, &e), FAR_OK, &e);
	unsigned how = draw(&c->random, 4);
	op.cancelled = op.hang || how < 2;
	if (how == 0) {
		CHECK(pthread_create(&canceller, NULL, cancel_main, far_future_ref(f)) == 0);
		CHECK(pthread_join(canceller, NULL) == 0);
	} else if (op.cancelled) {
		CHECK_STATUS(far_future_cancel(f, &e), FAR_OK, &e);
	}
	if (child)
		finish(&op, child);
	CHECK(!child || atomic_load(&children) == 1);
	finish(&op, f);
}

static void group(struct client *c)
{
	struct op ops[GROUP];
	struct far_future *f[GROUP], *all;
	struct far_err e;
	struct far_scope scope;
	size_t n = 0, index;
	bool scoped = draw(&c->random, 2);
	if (scoped)
		CHECK(far_scope_begin(&scope) == FAR_OK);
	for (int i = 0; i < GROUP; i++)
		if ((f[n] = start(c, &ops[n])))
			n++;
	for (size_t i = 0; i < n; i++)
		if (ops[i].hang) {
			ops[i].cancelled = true;
			CHECK_STATUS(far_future_cancel(f[i], &e), FAR_OK, &e);
		}
	if (n) {
		far_future_wait_all(f, n, draw(&c->random, 100000) + 1, &e);
		CHECK_STATUS(far_future_wait_any(f, n, FAR_FOREVER, &index, &e), FAR_OK, &e);
		CHECK(index < n && far_future_done(f[index]));
		CHECK_STATUS(far_future_collect(f, n, &all, &e), FAR_OK, &e);
		far_future_wait(all, FAR_FOREVER, NULL, &e);
		CHECK(far_future_done(all));
		far_future_free(all);
	}
	if (scoped)
		far_scope_end(&scope, 0, &e);
	for (size_t i = 0; i < n; i++) {
		CHECK(far_future_done(f[i]));
		finish(&ops[i], f[i]);
	}
}

static void *client_main(void *arg)
{
	struct client *c = arg;
	for (int i = 0; i < OPS; i++) {
		switch (draw(&c->random, 4)) {
		case 0:
			group(c);
			break;
		case 1:
			one_async(c);
			break;
		default:
			one_sync(c);
		}
	}
	return NULL;
}

/* ---- a worker ---- */

static void storm(struct far_agent *a, int rank)
{
	struct client clients[THREADS];
	uint64_t end = now_ns() + milliseconds * FAR_MS, round = 0;
	bool dies = with_death && rank == KILLED;
	while (now_ns() < end) {
		for (int i = 0; i < THREADS; i++) {
			clients[i] = (struct client){.agent = a, .rank = rank, .random = seed + round * 7919};
			clients[i].random += (uint64_t)(rank * THREADS + i) * 104729;
			CHECK(pthread_create(&clients[i].thread, NULL, client_main, &clients[i]) == 0);
		}
		if (dies && (usleep((useconds_t)milliseconds * 500), true))
			raise(SIGKILL);
		for (int i = 0; i < THREADS; i++)
			CHECK(pthread_join(clients[i].thread, NULL) == 0);
		round++;
	}
}

/* Everybody has come so far: from now on nobody makes calls but this one. */
static void everybody(struct far_agent *a)
{
	struct far_val out = {0};
	struct far_err e;
	int64_t add = 1, want = with_death ? WORLD - 1 : WORLD;
	do {
		CHECK_STATUS(far_rpc_sync_to(a, (struct far_to){0, 0}, "s::finished", FAR_ARGS(add), NULL, &out, &e),
			     FAR_OK, &e);
		if (out.u.i < want)
			usleep(1000);
		add = 0;
	} while (out.u.i < want);
}

/* The hang guard bounds it. */
static void nothing_active(struct far_agent *a)
{
	struct far_counters c;
	for (;;) {
		far_counters_read(a, &c);
		if (!c.calls_active && !c.requests_active)
			break;
		usleep(1000);
	}
	CHECK(with_death || c.packets_dropped == 0);
}

static void nothing_held(void)
{
	struct far_memory m;
	far_memory_stats(&m);
	if (m.slab_used || m.large_used) {
		fprintf(stderr, "%" PRIu64 " bytes in buffers and %" PRIu64 " of large payloads are left\n",
			m.slab_used, m.large_used);
		_exit(1);
	}
}

static void fill_pattern(void)
{
	for (size_t i = 0; i < sizeof pattern; i++)
		pattern[i] = (uint8_t)(i * 131 >> 3);
}

static struct far_opts options(void)
{
	return (struct far_opts){.functions = functions,
				 .functions_n = sizeof functions / sizeof *functions,
				 .shards = SHARDS,
				 .fibers = 64,
				 .blocking_threads = 2,
				 .connect = seed % 2 ? FAR_CONNECT_LAZY : 0};
}

static int worker(int rank)
{
	struct far_opts opts = options();
	struct far_err e;
	pthread_t answerer;
	fill_pattern();
	CHECK(pthread_create(&answerer, NULL, answer_later, NULL) == 0);
	agents[rank] = check_join(&opts);
	storm(agents[rank], rank);
	everybody(agents[rank]);
	nothing_active(agents[rank]);
	enum far_status status = far_shutdown(agents[rank], FAR_FOREVER, &e);
	CHECK(status == FAR_OK || (with_death && status == FAR_PEER_LOST));
	pthread_mutex_lock(&later.lock);
	later.end = true;
	pthread_mutex_unlock(&later.lock);
	CHECK(pthread_join(answerer, NULL) == 0);
	nothing_held();
	CHECK(atomic_load(&results_right) > 0 && atomic_load(&ended_otherwise) > 0);
	return 0;
}

/* ---- the variants ---- */

static void *together_storm(void *arg)
{
	struct together *t = arg;
	storm(t->agent, t->rank);
	everybody(t->agent);
	nothing_active(t->agent);
	return NULL;
}

static int together(void)
{
	struct together t[WORLD];
	pthread_t answerer;
	alarm(HANG_GUARD_S);
	fill_pattern();
	together_listen();
	CHECK(pthread_create(&answerer, NULL, answer_later, NULL) == 0);
	for (int i = 0; i < WORLD; i++)
		t[i] = (struct together){.opts = options(), .rank = i, .world = WORLD};
	together_all(t, WORLD, together_join);
	together_all(t, WORLD, together_storm);
	together_all(t, WORLD, together_leave);
	pthread_mutex_lock(&later.lock);
	later.end = true;
	pthread_mutex_unlock(&later.lock);
	CHECK(pthread_join(answerer, NULL) == 0);
	nothing_held();
	CHECK(atomic_load(&results_right) > 0 && atomic_load(&ended_otherwise) > 0);
	return 0;
}

/* Everything that is pending ends, once; the handlers that wait are notified, those of other agents of the process too.
 */
static int abrupt_round(int round)
{
	enum { PENDING = 60 };
	static struct op ops[WORLD * PENDING];
	static struct far_future *f[WORLD * PENDING];
	struct together t[WORLD];
	_Atomic int children = 0;
	struct far_err e;
	int n = 0;
	alarm(HANG_GUARD_S);
	together_listen();
	for (int i = 0; i < WORLD; i++)
		t[i] = (struct together){.opts = options(), .rank = i, .world = WORLD};
	together_all(t, WORLD, together_join);
	for (int i = 0; i < WORLD; i++) {
		struct client c = {.agent = t[i].agent, .rank = i, .random = seed * 31 + (uint64_t)i};
		for (int k = 0; k < PENDING; k++) {
			struct far_future *child;
			if (!(f[n] = start(&c, &ops[n])))
				continue;
			CHECK_STATUS(far_future_then(f[n], hand_on, &children, &child, &e), FAR_OK, &e);
			far_future_free(child);
			n++;
		}
	}
	usleep((useconds_t)round * 700);
	for (int i = 0; i < WORLD; i++)
		CHECK_STATUS(far_shutdown_local(t[(i + round) % WORLD].agent, &e), FAR_OK, &e);
	CHECK(atomic_load(&children) == n);
	while (n--) {
		CHECK(far_future_done(f[n]));
		far_future_free(f[n]);
	}
	nothing_held();
	return 0;
}

/* Each in a process of its own: a store's port is not free again at once. */
static int abrupt(void)
{
	enum { ROUNDS = 8 };
	int bad = 0;
	fill_pattern();
	with_death = ends_abruptly = true;
	for (int round = 0; round < ROUNDS; round++, seed++) {
		int status;
		fflush(NULL);
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0)
			exit(abrupt_round(round)); /* where leaks are looked for */
		CHECK(waitpid(pid, &status, 0) == pid);
		if (status)
			fprintf(stderr, "again: api_storm abrupt %" PRIu64 "; round %d, wait status %#x\n",
				seed - (uint64_t)round, round, (unsigned)status);
		bad |= status != 0;
	}
	return bad;
}

static int apart(bool death)
{
	with_death = death;
	struct spawned s = spawn(WORLD, worker);
	int bad = spawn_wait(&s, death ? KILLED : -1);
	if (bad)
		fprintf(stderr, "again: api_storm %s %" PRIu64 " %" PRIu64 "\n", death ? "death" : "apart", seed,
			milliseconds);
	return bad;
}

int main(int argc, char **argv)
{
	const char *variant = argc > 1 ? argv[1] : "";
	if (argc > 2)
		seed = strtoull(argv[2], NULL, 10);
	if (argc > 3)
		milliseconds = strtoull(argv[3], NULL, 10);
	if (strcmp(variant, "together") == 0)
		return together();
	if (strcmp(variant, "abrupt") == 0)
		return abrupt();
	if (strcmp(variant, "death") == 0)
		return apart(true);
	if (strcmp(variant, "apart") == 0)
		return apart(false);
	int bad = apart(false);
	seed++;
	bad |= apart(true);
	with_death = false;
	return bad | abrupt();
}
