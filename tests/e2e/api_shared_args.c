/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Arguments in memory of far_alloc_shared(): read in place by each kind of function, written over as soon as they are
 * released; those that are copied; requests that are held back; ends of either process while a handler reads.
 * usage: api_shared_args calls | copies | back | holds | death0 | death1 | together
 *
 * Main thread of each process; handlers on shard threads and threads for blocking handlers.
 */
#include "api_together.h"
#include "pattern.h"

#include <farcall/testing.h>
#include <stdatomic.h>

enum { MIB = 1 << 20, MEMORY = 64 * MIB, AT_ONCE = 12 };

static struct far_agent *agent;
static struct far_err err;
static int killed_rank = -1; /* worker that dies */
static _Atomic int reading, go;

/* ---- the callee ---- */

static bool right(const struct far_val *args)
{
	const struct far_tensor *x = &args[0].u.t, *few = &args[2].u.t;
	uint64_t seed = (uint64_t)args[3].u.i;
	return (uintptr_t)x->data % 64 == 0 && (uintptr_t)few->data % 64 == 0 && x->dtype == FAR_U8 &&
	       far_tensor_count(few) == 3 && ((const double *)few->data)[2] == 0.5 &&
	       strcmp(args[4].u.s.data, "name") == 0 && pattern_holds(x->data, far_tensor_count(x), seed) &&
	       pattern_holds(args[1].u.s.data, args[1].u.s.len, seed + 1);
}

FAR_HANDLER(check)
{
	return far_return_int(req, right(args));
}

/* What is kept stays right when the caller has its memory back. */
static struct far_val kept;

FAR_HANDLER(keep)
{
	bool ok = right(args) && far_req_keep(req, &args[0], &kept, NULL) == FAR_OK;
	return far_return_int(req, ok);
}

FAR_HANDLER(check_kept)
{
	bool ok = pattern_holds(kept.u.t.data, far_tensor_count(&kept.u.t), (uint64_t)args[0].u.i);
	far_val_fini(&kept);
	return far_return_int(req, ok);
}

static bool is_alive(int rank)
{
	struct far_worker_info info = {.alive = true};
	return far_worker_by_rank(agent, rank, &info, NULL) == FAR_OK && info.alive;
}

/* Reads until "go", or until the caller is lost. */
FAR_HANDLER(read_on)
{
	bool ok = true;
	atomic_fetch_add(&reading, 1);
	do {
		ok &= right(args);
		usleep(1000);
	} while (!atomic_load(&go) && (killed_rank != 0 || is_alive(0)));
	ok &= right(args);
	CHECK(ok);
	far_return_int(req, ok);
	atomic_fetch_sub(&reading, 1);
	return FAR_OK;
}

FAR_HANDLER(by_reference)
{
	struct far_counters c;
	far_counters_read(far_req_agent(req), &c);
	return far_return_int(req, (int64_t)c.bytes_by_reference);
}

FAR_HANDLER(readers)
{
	atomic_store(&go, (int)args[0].u.i);
	return far_return_int(req, atomic_load(&reading));
}

FAR_HANDLER(items)
{
	const struct far_val *first = &args[0].u.list.items[0];
	return far_return_int(req, pattern_holds(first->u.s.data, first->u.s.len, 1));
}

/* Holds the answers of the next requests back. */
FAR_HANDLER(delay)
{
	const struct far_fault late = {.delay_ns = 2 * FAR_MS};
	return far_fault_set(far_req_agent(req), FAR_FAULT_REPLY, &late, NULL) ? FAR_SYSTEM : far_return_int(req, 1);
}

FAR_HANDLER(die)
{
	raise(SIGKILL);
	return FAR_OK;
}

#define CHECKED(name) "t::" name "(Tensor x, bytes tail, Tensor few, int seed, str name) -> int"
static const struct far_function functions[] = {
	{CHECKED("inline"), FAR_KIND_INLINE, check, NULL, 0},
	{CHECKED("fiber"), FAR_KIND_FIBER, check, NULL, 0},
	{CHECKED("blocking"), FAR_KIND_BLOCKING, check, NULL, 0},
	{CHECKED("keep"), FAR_KIND_BLOCKING, keep, NULL, 0},
	{CHECKED("read_on"), FAR_KIND_BLOCKING, read_on, NULL, 0},
	{"t::check_kept(int seed) -> int", FAR_KIND_FIBER, check_kept, NULL, 0},
	{"t::by_reference() -> int", FAR_KIND_INLINE, by_reference, NULL, 0},
	{"t::readers(int go) -> int", FAR_KIND_INLINE, readers, NULL, 0},
	{"t::items(List all) -> int", FAR_KIND_FIBER, items, NULL, 0},
	{"t::delay() -> int", FAR_KIND_BLOCKING, delay, NULL, 0},
	{"t::die() -> int", FAR_KIND_INLINE, die, NULL, 0},
};
static const struct far_opts options = {.functions = functions,
					.functions_n = sizeof functions / sizeof *functions,
					.blocking_threads = AT_ONCE + 1,
					.peer_limit_ns = 5 * FAR_SEC};

/* ---- the caller ---- */

/* A call, its memory, what became of it. */
struct call {
	uint8_t *at;
	size_t len, tail;
	_Atomic int released;
	struct far_future *future;
};

/* No handler reads it any more: it is something else from now on. */
static void on_release(void *user)
{
	struct call *c = user;
	memset(c->at, 0xff, c->len);
	atomic_fetch_add(&c->released, 1);
}

static int64_t ask(const char *function, const struct far_val *args, size_t n)
{
	struct far_val v;
	CHECK_STATUS(far_rpc_sync(agent, "worker1", function, args, n, NULL, &v, &err), FAR_OK, &err);
	return v.u.i;
}

/* Element 0 is `len` bytes at `at`, argument 1 the last `tail` of them, both as the seed wants them. */
static void start(struct call *c, const char *function, uint8_t *at, size_t len, size_t tail,
		  const struct far_call_opts *opts)
{
	static const double few[3] = {2, 1, 0.5};
	struct far_tensor x = far_tensor_1d(FAR_U8, at, len - tail), small = far_tensor_1d(FAR_F64, few, 3);
	*c = (struct call){.at = at, .len = len, .tail = tail};
	pattern_fill(at, 0, len - tail, len);
	pattern_fill(at + len - tail, 0, tail, len + 1);
	const struct far_val args[] = {far_tensor_val(&x), far_bytes(at + len - tail, tail), far_tensor_val(&small),
				       far_int((int64_t)len), far_str("name")};
	const struct far_zero_copy_call call = {.to = {1, -1},
						.function = function,
						.args = args,
						.args_n = 5,
						.release = on_release,
						.release_user = c,
						.opts = opts};
	CHECK_STATUS(far_rpc_async_zero_copy(agent, &call, &c->future, &err), FAR_OK, &err);
}

static enum far_status end(struct call *c)
{
	struct far_val v = {.type = FAR_TYPE_NONE};
	enum far_status status = far_future_wait(c->future, FAR_FOREVER, &v, &err);
	CHECK(status || v.u.i == 1);
	far_future_free(c->future);
	return status;
}

/* The hang guard bounds the wait. */
static void await_release(struct call *c)
{
	while (!atomic_load(&c->released))
		usleep(200);
	CHECK(atomic_load(&c->released) == 1);
}

static int64_t one(const char *function, uint8_t *at, size_t len, size_t tail)
{
	static struct call c;
	int64_t before = ask("t::by_reference", NULL, 0);
	start(&c, function, at, len, tail, NULL);
	CHECK_STATUS(end(&c), FAR_OK, &err);
	await_release(&c);
	if (strcmp(function, "t::keep") == 0)
		CHECK(ask("t::check_kept", FAR_ARGS((int64_t)len)) == 1);
	return ask("t::by_reference", NULL, 0) - before;
}

static uint8_t *memory(void)
{
	uint8_t *at = far_alloc_shared(MEMORY, &err);
	CHECK(at);
	return at;
}

/* Calls until the callee has mapped the memory, and knows the function. */
static void introduce(uint8_t *at)
{
	static const char *const kinds[] = {"t::inline", "t::fiber", "t::blocking", "t::keep", "t::read_on"};
	atomic_store(&go, 1);
	ask("t::readers", FAR_ARGS(1));
	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
		while (one(kinds[i], at, MIB, 0) < MIB)
			;
	ask("t::readers", FAR_ARGS(0));
}

static size_t longest = MEMORY; /* arguments of calls() */

static void calls(void)
{
	static const size_t lens[] = {64 * 1024, 64 * 1024 + 1, MIB, MIB + 17, 17 * MIB, MEMORY};
	static const char *const kinds[] = {"t::inline", "t::fiber", "t::blocking", "t::keep"};
	uint8_t *at = memory();
	introduce(at);
	for (unsigned i = 0; i < sizeof lens / sizeof *lens && lens[i] <= longest; i++)
		for (unsigned k = 0; k < sizeof kinds / sizeof *kinds; k++) {
			CHECK(one(kinds[k], at, lens[i], 0) >= (int64_t)lens[i]);
			if (lens[i] >= MIB) /* the short one is copied */
				CHECK(one(kinds[k], at, lens[i], 20) >= (int64_t)lens[i] - 20);
			if (lens[i] >= 2 * MIB) /* both stay */
				CHECK(one(kinds[k], at, lens[i] / 64 * 64, MIB) >= (int64_t)(lens[i] / 64 * 64));
		}
	for (int i = 0; i < 100; i++) /* more than there are pieces for descriptors: they come back */
		CHECK(one("t::inline", at, 64 * 1024, 0) >= 64 * 1024);
	far_free(at);
}

/* Nothing by reference: too short, beside a multiple of 64, no room for the rest, sent again, in a list, not shared. */
static void copies(void)
{
	static struct call c;
	struct far_call_opts again = {.retry = true};
	uint8_t *at = memory(), *own = calloc(1, 4 * MIB);
	CHECK(own);
	introduce(at);
	CHECK(one("t::fiber", at, 64 * 1024 - 1, 0) == 0);
	CHECK(one("t::fiber", at + 8, MIB, 0) == 0);
	CHECK(one("t::fiber", at, MIB + 2000, 2000) == 0);
	CHECK(one("t::fiber", own, MIB, 0) == 0);
	int64_t before = ask("t::by_reference", NULL, 0);
	start(&c, "t::fiber", at, MIB, 0, &again);
	CHECK(atomic_load(&c.released) == 1);
	CHECK_STATUS(end(&c), FAR_OK, &err);
	pattern_fill(at, 0, MIB, 1);
	c = (struct call){.at = at, .len = MIB};
	struct far_val item = far_bytes(at, MIB), list = far_list(&item, 1);
	struct far_zero_copy_call call = {.to = {1, -1},
					  .function = "t::items",
					  .args = &list,
					  .args_n = 1,
					  .release = on_release,
					  .release_user = &c};
	CHECK_STATUS(far_rpc_async_zero_copy(agent, &call, &c.future, &err), FAR_OK, &err);
	CHECK(atomic_load(&c.released) == 1);
	CHECK_STATUS(end(&c), FAR_OK, &err);
	CHECK(ask("t::by_reference", NULL, 0) == before);
	/* What fails has released. */
	call.function = "t::unknown";
	CHECK(far_rpc_async_zero_copy(agent, &call, &c.future, &err) == FAR_NO_FUNCTION);
	CHECK(atomic_load(&c.released) == 2);
	call.release = NULL;
	CHECK(far_rpc_async_zero_copy(agent, &call, &c.future, &err) == FAR_INVALID);
	CHECK(far_rpc_async_zero_copy(agent, NULL, &c.future, &err) == FAR_INVALID);
	far_free(at);
	free(own);
}

/* Requests that the callee holds back are read later, in one piece. */
static void back(void)
{
	static struct call c[AT_ONCE];
	uint8_t *at = memory();
	introduce(at);
	CHECK(ask("t::delay", NULL, 0) == 1);
	for (int i = 0; i < AT_ONCE; i++)
		start(&c[i], i % 2 ? "t::inline" : "t::fiber", at + i * MIB, MIB, 30, NULL);
	for (int i = 0; i < AT_ONCE; i++) {
		CHECK_STATUS(end(&c[i]), FAR_OK, &err);
		await_release(&c[i]);
	}
	far_free(at);
}

/* Handlers that read on: calls go by meanwhile; the memory stays, also of a call that has ended. */
static void holds(void)
{
	static struct call c[4];
	struct far_call_opts soon = {.timeout_ns = FAR_SEC / 2};
	uint8_t *at = memory();
	introduce(at);
	for (int i = 0; i < 4; i++)
		start(&c[i], "t::read_on", at + i * MIB, MIB, 9, i == 3 ? &soon : NULL);
	while (ask("t::readers", FAR_ARGS(0)) < 4)
		;
	CHECK(end(&c[3]) == FAR_TIMEOUT);
	for (int i = 0; i < 50; i++)
		CHECK(one("t::inline", at + 8 * MIB, MIB, 0) > 0);
	for (int i = 0; i < 4; i++)
		CHECK(!atomic_load(&c[i].released));
	ask("t::readers", FAR_ARGS(1));
	for (int i = 0; i < 4; i++) {
		if (i < 3)
			CHECK_STATUS(end(&c[i]), FAR_OK, &err);
		await_release(&c[i]);
	}
	far_free(at);
}

static void (*body)(void);

static int worker(int rank)
{
	agent = check_join(&options);
	if (rank == 0)
		body();
	check_leave(agent);
	return 0;
}

/* Worker 0 has calls that are read on; one of the two dies meanwhile. */
static int death_worker(int rank)
{
	static struct call c[AT_ONCE];
	struct far_future *f;
	agent = check_join(&options);
	if (rank == 0) {
		uint8_t *at = memory();
		introduce(at);
		for (int i = 0; i < AT_ONCE; i++)
			start(&c[i], "t::read_on", at + i * MIB, MIB, 0, NULL);
		while (ask("t::readers", FAR_ARGS(0)) < AT_ONCE)
			;
		if (killed_rank == 0)
			raise(SIGKILL);
		CHECK_STATUS(far_rpc_async(agent, "worker1", "t::die", NULL, 0, NULL, &f, &err), FAR_OK, &err);
		CHECK(far_future_wait(f, FAR_FOREVER, NULL, &err) == FAR_PEER_LOST);
		far_future_free(f);
		for (int i = 0; i < AT_ONCE; i++) {
			CHECK(end(&c[i]) == FAR_PEER_LOST);
			await_release(&c[i]);
		}
		far_free(at);
	}
	while (is_alive(killed_rank) || atomic_load(&reading))
		usleep(1000);
	CHECK_STATUS(far_shutdown(agent, 5 * FAR_SEC, &err), FAR_PEER_LOST, &err);
	return 0;
}

/* Both workers in one process: a race detector, which is slow, sees both sides. */
static int together(void)
{
	struct together t[2];
	longest = MIB + 17;
	together_begin(t, 2, &options);
	agent = t[0].agent;
	calls();
	holds();
	together_all(t, 2, together_leave);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*body)(void);
		int killed;
	} groups[] = {{"calls", calls, -1}, {"copies", copies, -1}, {"back", back, -1},
		      {"holds", holds, -1}, {"death0", NULL, 0},    {"death1", NULL, 1}};
	const char *what = argc > 1 ? argv[1] : "calls";
	for (unsigned i = 0; i < sizeof groups / sizeof *groups; i++)
		if (strcmp(what, groups[i].name) == 0) {
			killed_rank = groups[i].killed;
			body = groups[i].body;
			struct spawned s = spawn(2, body ? worker : death_worker);
			return spawn_wait(&s, killed_rank);
		}
	if (strcmp(what, "together") == 0)
		return together();
	fprintf(stderr, "unknown group %s\n", what);
	return 2;
}
