/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 2. Main thread of each process; handlers on shard threads. */
/** Large messages and the memory they take: rank 0 calls, rank 1 answers; both in a small region. Built once over the
 * page runs and once over jemalloc. */
#include "check.h"

enum { ECHO = 1 };

#define MIB         ((size_t)1 << 20)
#define REGION      (96 * MIB)
#define RETAINED    (64 * MIB)
#define LARGE       (12 * MIB)
#define HELD_MAX    64
#define SMALL_CALLS 100

static struct far_err err;

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	CHECK(far_reply(req, data, len) == FAR_OK);
}

/* A tensor of so many bytes, each the lowest byte of its index. */
static enum far_status make(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	void *at;
	uint64_t bytes = (uint64_t)args[0].u.i;
	enum far_status status = far_return_tensor(req, FAR_U8, 1, &bytes, &at);
	for (uint64_t i = 0; status == FAR_OK && i < bytes; i++)
		((uint8_t *)at)[i] = (uint8_t)i;
	return status;
}

static struct far_memory memory(void)
{
	struct far_memory m;
	far_memory_stats(&m);
	CHECK(m.committed == m.slab_committed + m.large_committed + m.retained);
	CHECK(m.reserved == REGION && m.committed <= m.reserved);
	CHECK(m.slab_used <= m.slab_committed);
	return m;
}

static void payloads(struct far_agent *a)
{
	static const size_t sizes[] = {1, 32, 33, MIB, 2 * MIB, 2 * MIB + 1, 16 * MIB};
	const struct far_to to = {1, -1};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		uint8_t *out = far_alloc(sizes[i], &err), *in = far_alloc_aligned(4096, sizes[i], &err);
		size_t len = 0;
		CHECK(out && in);
		for (size_t k = 0; k < sizes[i]; k++)
			out[k] = (uint8_t)(k * 7 + i);
		CHECK_STATUS(far_msg_call(a, to, ECHO, out, sizes[i], NULL, in, sizes[i], &len, &err), FAR_OK, &err);
		CHECK(len == sizes[i] && memcmp(in, out, len) == 0);
		far_free(out);
		far_free(in);
	}
	CHECK(memory().large_used == 0);
}

/* Results are held until the region is used up: that is an error of one call, and small calls go on meanwhile. */
static void exhaustion(struct far_agent *a)
{
	static struct far_val held[HELD_MAX];
	enum far_status status = FAR_OK;
	size_t n = 0;
	while (n < HELD_MAX && status == FAR_OK) {
		status = far_rpc_sync(a, "worker1", "t::make", FAR_ARGS(LARGE), NULL, &held[n], &err);
		n += status == FAR_OK;
	}
	CHECK(n > 2 && n < HELD_MAX);
	CHECK_STATUS(status, FAR_RESOURCE, &err);
	CHECK_TEXT(&err, "FAR_MEMORY_MAX");
	CHECK(err.executed == FAR_EXECUTED_YES);
	CHECK(memory().large_used >= n * LARGE);
	/* A result takes a little more than its bytes: where none fits there may be room for one payload. */
	void *more[3];
	size_t more_n = 0;
	while (more_n < 3 && (more[more_n] = far_alloc(LARGE, &err)))
		more_n++;
	CHECK(more_n < 3 && err.status == FAR_RESOURCE);
	while (more_n > 0)
		far_free(more[--more_n]);
	for (int i = 0; i < SMALL_CALLS; i++) {
		struct far_val v;
		CHECK_STATUS(far_rpc_sync(a, "worker1", "t::make", FAR_ARGS(1000), NULL, &v, &err), FAR_OK, &err);
		far_val_fini(&v);
	}
	while (n > 0) {
		const uint8_t *d = held[--n].u.t.data;
		for (size_t i = 0; i < LARGE; i += 4097)
			CHECK(d[i] == (uint8_t)i);
		far_val_fini(&held[n]);
	}
	CHECK(memory().large_used == 0);
	CHECK(memory().retained <= RETAINED);
	CHECK_STATUS(far_rpc_sync(a, "worker1", "t::make", FAR_ARGS(LARGE), NULL, &held[0], &err), FAR_OK, &err);
	far_val_fini(&held[0]);
}

int main(void)
{
	static const struct far_function f = {"t::make(int bytes) -> Tensor", FAR_KIND_INLINE, make, NULL};
	static const struct far_msg_handler m = {ECHO, FAR_KIND_INLINE, echo, NULL};
	struct far_opts opts = {.functions = &f, .functions_n = 1, .messages = &m, .messages_n = 1};
	CHECK_STATUS(far_memory_limit(REGION, &err), FAR_OK, &err);
	struct far_agent *a = check_join(&opts);
	CHECK(strncmp(memory().allocator, WANT_ALLOCATOR, strlen(WANT_ALLOCATOR)) == 0);
	CHECK(far_memory_limit(2 * REGION, &err) == FAR_ALREADY_INITIALIZED);
	if (check_rank() == 0) {
		payloads(a);
		exhaustion(a);
		payloads(a);
	}
	check_leave(a);
	return 0;
}
