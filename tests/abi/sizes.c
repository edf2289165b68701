/* SPDX-License-Identifier: BSD-3-Clause */
/** Programs of earlier and later headers, by the sizes and the version that these pass. */
#include "check.h"

static struct far_agent *agent;
static struct far_err err;

/* Options of headers with one more field, which is set or not; and of headers without the last fields. */
static void options(void)
{
	struct {
		struct far_opts opts;
		uint64_t later;
	} o = {.opts = {.calls = 500, .rref_retry_ns = 1}, .later = 1};
	CHECK_STATUS(far_init_rpc_sized(FAR_VERSION_NUMBER, "worker0", 0, 1, &o.opts, sizeof o, &agent, &err),
		     FAR_UNSUPPORTED, &err);
	CHECK_TEXT(&err, "an option is set that farcall " FAR_VERSION " does not have");
	o.later = 0;
	CHECK_STATUS(far_init_rpc_sized(FAR_VERSION_NUMBER, "worker0", 0, 1, &o.opts, sizeof o, &agent, &err),
		     FAR_INVALID, &err);
	CHECK_TEXT(&err, "rref_retry_ns is 1"); /* read; out of range */
	CHECK_STATUS(far_init_rpc_sized(FAR_VERSION_NUMBER + 1000, "worker0", 0, 1, NULL, 0, &agent, &err),
		     FAR_UNSUPPORTED, &err);
	CHECK_TEXT(&err, "built with the headers of farcall 0.2.0, and the library is " FAR_VERSION);
	/* Without rref_retry_ns. */
	CHECK_STATUS(far_init_rpc_sized(FAR_VERSION_NUMBER, "worker%d", 0, 1, &o.opts,
					offsetof(struct far_opts, rref_retry_ns), &agent, &err),
		     FAR_OK, &err);
}

static bool is_filled(const void *p, size_t from, size_t to, unsigned char with)
{
	const unsigned char *bytes = p;
	while (from < to && bytes[from] == with)
		from++;
	return from == to;
}

/* Results of shorter and longer structs. */
static void results(void)
{
	struct {
		struct far_limits value;
		char later[64];
	} limits;
	struct {
		struct far_worker_info value;
		char later[64];
	} workers[2];
	size_t half = offsetof(struct far_limits, deferred);
	memset(&limits, 0xaa, sizeof limits);
	far_limits_read_sized(agent, &limits.value, half);
	CHECK(limits.value.calls == 500 && is_filled(&limits, half, sizeof limits, 0xaa));
	memset(&limits, 0xaa, sizeof limits);
	far_limits_read_sized(agent, &limits.value, sizeof limits);
	CHECK(limits.value.calls == 500 && is_filled(limits.later, 0, sizeof limits.later, 0));
	memset(workers, 0xaa, sizeof workers);
	CHECK(far_workers_sized(agent, &workers[0].value, 2, sizeof workers[0]) == 1);
	CHECK(strcmp(workers[0].value.name, "worker0") == 0 && is_filled(workers[0].later, 0, 64, 0));
	CHECK(is_filled(&workers[1], 0, sizeof workers[1], 0xaa));
}

int main(void)
{
	options();
	results();
	CHECK_STATUS(far_shutdown(agent, 0, &err), FAR_OK, &err);
	return 0;
}
