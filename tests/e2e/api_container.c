/* SPDX-License-Identifier: BSD-3-Clause */
/* Two workers in one container of 96 MiB, which the starter has made: what does not fit is an error with the numbers,
 * both processes live on, and what fits goes through afterwards.
 * Main thread of each process; handlers on shard threads; threads that it starts. */
#include "check.h"
#include <pthread.h>

#define MIB     ((size_t)1 << 20)
#define THREADS 6
#define ROUNDS  4
#define HELD    64

#define APPLICATION (32 * MIB)

static struct far_agent *agent;

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

/* What a call may end with when the memory is used up. */
static bool is_refusal(enum far_status status)
{
	return status == FAR_RESOURCE || status == FAR_BUSY;
}

static enum far_status query(size_t bytes, struct far_val *out, struct far_err *err)
{
	enum far_status status =
		far_rpc_sync(agent, check_name(1), "c::make", FAR_ARGS((int64_t)bytes), NULL, out, err);
	if (status == FAR_OK) {
		const uint8_t *d = out->u.t.data;
		for (size_t i = 0; i < bytes; i += 4095)
			CHECK(d[i] == (uint8_t)i);
	}
	return status;
}

static void a_reply_beyond_the_bound(void)
{
	struct far_val v;
	struct far_err err;
	CHECK_STATUS(query(64 * MIB, &v, &err), FAR_RESOURCE, &err);
	CHECK_TEXT(&err, "64.0 MiB requested");
	CHECK_TEXT(&err, "of at most 48 MiB");
	CHECK_TEXT(&err, "FAR_MEMORY_MAX");
	CHECK(err.executed == FAR_EXECUTED_YES);
}

/* Each of both has room for it within its bound: beside what the application has, the container has not. */
static void a_reply_beyond_the_container(void)
{
	struct far_val v;
	struct far_err err = {0};
	uint8_t *own = malloc(APPLICATION);
	CHECK(own);
	for (size_t i = 0; i < APPLICATION; i += 512)
		own[i] = (uint8_t)(i >> 9 | 1);
	enum far_status status = query(32 * MIB, &v, &err);
	CHECK_STATUS(status, FAR_RESOURCE, &err);
	CHECK_TEXT(&err, "32.0 MiB requested");
	CHECK_TEXT(&err, "of the container's 96 MiB");
	CHECK(own[APPLICATION / 2] & 1);
	free(own);
}

static void results_are_held(size_t bytes)
{
	static struct far_val held[HELD];
	struct far_err err;
	enum far_status status = FAR_OK;
	size_t n = 0;
	while (n < HELD && (status = query(bytes, &held[n], &err)) == FAR_OK)
		n++;
	CHECK_STATUS(status, FAR_RESOURCE, &err);
	fprintf(stderr, "%zu results of %zu KiB were held: %s\n", n, bytes >> 10, err.text);
	CHECK(n > 0 && n < HELD);
	CHECK_TEXT(&err, "of at most 48 MiB are in use");
	while (n > 0)
		far_val_fini(&held[--n]);
}

static void *many(void *arg)
{
	size_t bytes = (size_t)(uintptr_t)arg;
	for (int i = 0; i < ROUNDS; i++) {
		struct far_val v;
		struct far_err err;
		enum far_status status = query(bytes, &v, &err);
		if (status == FAR_OK)
			far_val_fini(&v);
		else
			CHECK_STATUS(status, is_refusal(status) ? status : FAR_OK, &err);
	}
	return NULL;
}

static void several_at_once(size_t bytes)
{
	pthread_t t[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, many, (void *)(uintptr_t)bytes) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
}

static void what_fits_goes_through(void)
{
	static const size_t sizes[] = {0, 100, 10000, MIB, 8 * MIB, 20 * MIB};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct far_val v;
		struct far_err err;
		CHECK_STATUS(query(sizes[i], &v, &err), FAR_OK, &err);
		far_val_fini(&v);
	}
}

int main(void)
{
	static const struct far_function f = {"c::make(int bytes) -> Tensor", FAR_KIND_INLINE, make, NULL};
	agent = check_join(&(struct far_opts){.functions = &f, .functions_n = 1});
	if (check_rank() == 0) {
		what_fits_goes_through();
		a_reply_beyond_the_bound();
		a_reply_beyond_the_container();
		what_fits_goes_through();
		results_are_held(6 * MIB);
		results_are_held(17 * MIB);
		what_fits_goes_through();
		several_at_once(12 * MIB);
		several_at_once(30 * MIB);
		what_fits_goes_through();
	}
	check_leave(agent);
	return 0;
}
