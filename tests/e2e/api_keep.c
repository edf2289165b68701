/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 2. Main thread of each process; handlers on shard threads and threads for blocking handlers. */
/**
 * far_req_keep(): what is kept stays after the handler, in the request's memory or as a copy, while other requests are
 * served. Every worker calls the next one, then itself.
 */
#include "api_calls.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { KEPT = 4, SHORT = 5, MIDDLE = 5000, LARGE = 600000, ANY = -2 };

static struct far_val kept[KEPT];    /* by the callee */
static _Atomic int kept_n, in_place; /* in_place: not copied */

static const void *bytes_of(const struct far_val *v)
{
	return v->type == FAR_TYPE_TENSOR ? v->u.t.data : v->type == FAR_TYPE_LIST ? NULL : v->u.s.data;
}

/** Keeps one value of a request; returns whether it lies where it was. */
static bool keep(const struct far_req *req, const struct far_val *v)
{
	int at = kept_n++;
	CHECK(at < KEPT);
	CHECK_STATUS(far_req_keep(req, v, &kept[at], NULL), FAR_OK, &err);
	CHECK(kept[at].own && kept[at].type == v->type && far_len(&kept[at]) == far_len(v));
	return bytes_of(v) && bytes_of(v) == bytes_of(&kept[at]);
}

/** Keeps x, and the first item of xs; then answers, and another request may come. */
static enum far_status keeps(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	CHECK(n == 2);
	in_place += keep(req, &args[0]);
	if (far_len(&args[1]) > 0)
		in_place += keep(req, far_list_get(&args[1], 0));
	return far_return_none(req);
}

/** After a wait: a fiber may go on on another thread. */
static enum far_status waits(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_err e;
	CHECK_STATUS(
		far_rpc_sync_to(far_req_agent(req), far_req_from(req), "far::identity", FAR_ARGS(1), NULL, NULL, &e),
		FAR_OK, &e);
	return keeps(req, args, n, user);
}

static enum far_status drop(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_return_none(req);
}

/** Whether kept values hold `fill` alone; forgets them. */
static enum far_status check(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	bool good = true;
	for (int i = 0; i < kept_n; i++) {
		const unsigned char *at = bytes_of(&kept[i]);
		size_t bytes = kept[i].type == FAR_TYPE_TENSOR ? far_tensor_bytes(&kept[i].u.t) : far_len(&kept[i]);
		for (size_t k = 0; at && k < bytes; k++)
			good &= at[k] == (unsigned char)args[0].u.i;
		far_val_fini(&kept[i]);
	}
	int64_t answer = good ? in_place : -1;
	kept_n = in_place = 0;
	return far_return_int(req, answer);
}

static const struct far_function functions[] = {
	{"k::inline(Any x, List xs) -> none", FAR_KIND_INLINE, keeps, NULL},
	{"k::fiber(Any x, List xs) -> none", FAR_KIND_FIBER, keeps, NULL},
	{"k::waits(Any x, List xs) -> none", FAR_KIND_FIBER, waits, NULL},
	{"k::blocking(Any x, List xs) -> none", FAR_KIND_BLOCKING, keeps, NULL},
	{"k::check(int fill) -> int", FAR_KIND_INLINE, check, NULL},
	{"k::drop(bytes x) -> none", FAR_KIND_FIBER, drop, NULL},
	{"k::drop_blocking(bytes x) -> none", FAR_KIND_BLOCKING, drop, NULL},
};

static unsigned char sevens[LARGE], others[LARGE];

/** What `fn` keeps in place, after requests that use any memory that is free. */
static void keeps_in_place(const char *fn, struct far_val x, struct far_val xs, int64_t want)
{
	struct far_val out;
	CHECK_STATUS(call(fn, FAR_ARGS(x, xs), &out), FAR_OK, &err);
	for (int i = 0; i < 12; i++) {
		const char *next = i % 3 == 0 ? "far::identity" : i % 3 == 1 ? "k::drop" : "k::drop_blocking";
		struct far_val other = far_bytes(others, i % 4 == 0 ? SHORT : i % 4 == 1 ? MIDDLE : LARGE);
		CHECK_STATUS(call(next, FAR_ARGS(other), &out), FAR_OK, &err);
		far_val_fini(&out);
	}
	CHECK_STATUS(call("k::check", FAR_ARGS(7), &out), FAR_OK, &err);
	CHECK(out.u.i >= 0);
	if (want != ANY && out.u.i != want)
		fprintf(stderr, "%s of %zu and %zu: %lld in place, not %lld\n", fn, far_len(&x), far_len(&xs),
			(long long)out.u.i, (long long)want);
	CHECK(want == ANY || out.u.i == want);
}

static void all_of(const char *fn, bool keeps_them)
{
	const struct far_val nothing = far_list(NULL, 0);
	struct far_tensor middle = far_tensor_2d(FAR_U8, sevens, MIDDLE / 50, 50),
			  large = far_tensor_1d(FAR_U8, sevens, LARGE);
	struct far_val tensors[2] = {far_tensor_val(&large), far_tensor_val(&middle)};
	char text[MIDDLE + 1] = {0};
	memset(text, 7, MIDDLE);
	keeps_in_place(fn, tensors[1], nothing, keeps_them);
	keeps_in_place(fn, tensors[0], nothing, keeps_them);
	keeps_in_place(fn, far_bytes(sevens, MIDDLE), nothing, keeps_them);
	keeps_in_place(fn, far_bytes(sevens, LARGE), far_list(tensors, 2), keeps_them * 2);
	keeps_in_place(fn, tensors[1], far_list(tensors, 1), keeps_them * 2);
	keeps_in_place(fn, far_list(tensors, 2), nothing, 0);
	keeps_in_place(fn, far_str(text), nothing, 0);
	/* Short requests: of a fiber they are copied, of a thread they need not be. */
	keeps_in_place(fn, far_bytes(sevens, SHORT), nothing, ANY);
	keeps_in_place(fn, far_bytes(sevens, 0), nothing, ANY);
}

int main(void)
{
	const struct far_opts opts = {.functions = functions, .functions_n = sizeof functions / sizeof *functions};
	memset(sevens, 7, sizeof sevens);
	memset(others, 1, sizeof others);
	calls_begin(&opts);
	for (int turn = 0; turn < 2; turn++) {
		all_of("k::inline", false);
		all_of("k::fiber", true);
		all_of("k::waits", true);
		all_of("k::blocking", true);
		CHECK_STATUS(far_barrier(agent, NULL, 0, 0, &err), FAR_OK, &err);
		calls_to_self();
	}
	check_leave(agent);
	return 0;
}
