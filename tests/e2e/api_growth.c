/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 2. Main thread of each process; handlers on shard threads. */
/**
 * A million calls, with those among them that end early, and references made, fetched and given back: what either
 * worker has resident grows no more once it has done half of it.
 */
#include "check.h"
#include "handlers.h"

/* Batches, and references in each: those of the first half touch all pages of the tables of references, 15 MiB. */
enum { BATCH = 100, WARM = 6000, ALL = 10000, RREFS_WARM = 30, RREFS = 3 };

#define SLACK_BYTES (UINT64_C(2) << 20)

static struct far_err err;

static uint64_t resident(void)
{
	unsigned long pages, mine;
	FILE *f = fopen("/proc/self/statm", "r");
	CHECK(f && fscanf(f, "%lu %lu", &pages, &mine) == 2);
	fclose(f);
	return (uint64_t)mine * (uint64_t)sysconf(_SC_PAGESIZE);
}

static enum far_status size(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int((int64_t)resident());
	return far_return(req, &v);
}

static const struct far_function functions[] = {
	{"g::echo(Any x) -> Any", FAR_KIND_INLINE, handler_echo, NULL},
	{"g::resident() -> int", FAR_KIND_INLINE, size, NULL},
};
static const struct far_opts opts = {.functions = functions, .functions_n = 2};

static void batch(struct far_agent *agent, int rrefs)
{
	const struct far_to there = {1, -1};
	struct far_future *f[BATCH], *fetched[RREFS_WARM];
	struct far_rref *r[RREFS_WARM];
	struct far_val v;
	static char bytes[3000];
	for (int i = 0; i < BATCH; i++) {
		/* Some are long, some end before they are answered. */
		struct far_call_opts o = {.timeout_ns = i % 50 == 49 ? 1000 : 0};
		struct far_val arg = i % 10 ? far_int(i) : far_bytes(bytes, sizeof bytes);
		CHECK_STATUS(far_rpc_async_to(agent, there, "g::echo", &arg, 1, &o, &f[i], &err), FAR_OK, &err);
	}
	for (int i = 0; i < rrefs; i++) {
		CHECK_STATUS(far_remote_to(agent, there, "g::echo", FAR_ARGS(i), NULL, &r[i], &err), FAR_OK, &err);
		CHECK_STATUS(far_rref_to_here_async(r[i], 0, &fetched[i], &err), FAR_OK, &err);
	}
	for (int i = 0; i < BATCH; i++) {
		enum far_status status = far_future_wait(f[i], 0, &v, &err);
		CHECK(status == FAR_OK || (i % 50 == 49 && status == FAR_TIMEOUT));
		if (!status)
			far_val_fini(&v);
		far_future_free(f[i]);
	}
	for (int i = 0; i < rrefs; i++) {
		CHECK_STATUS(far_future_wait(fetched[i], 0, &v, &err), FAR_OK, &err);
		CHECK(v.u.i == i);
		far_future_free(fetched[i]);
		far_rref_free(r[i]);
	}
}

static void both(struct far_agent *agent, uint64_t *here, uint64_t *there)
{
	struct far_val v;
	CHECK_STATUS(far_rref_flush(agent, 0, &err), FAR_OK, &err);
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "g::resident", FAR_NOARGS, NULL, &v, &err), FAR_OK, &err);
	*there = (uint64_t)v.u.i;
	*here = resident();
}

int main(void)
{
	struct far_agent *agent = check_join(&opts);
	uint64_t here, there, here_end, there_end;
	if (check_rank() == 0) {
		for (int i = 0; i < WARM; i++)
			batch(agent, RREFS_WARM);
		both(agent, &here, &there);
		for (int i = WARM; i < ALL; i++)
			batch(agent, RREFS);
		both(agent, &here_end, &there_end);
		fprintf(stderr, "resident after %d and %d calls: caller %llu and %llu KiB, callee %llu and %llu KiB\n",
			WARM * BATCH, ALL * BATCH, (unsigned long long)here >> 10, (unsigned long long)here_end >> 10,
			(unsigned long long)there >> 10, (unsigned long long)there_end >> 10);
		CHECK(here_end <= here + SLACK_BYTES && there_end <= there + SLACK_BYTES);
		struct far_rref_counts c;
		far_rref_counts_read(agent, &c);
		CHECK(!c.owned && !c.held && !c.forks && !c.pending && !c.unconfirmed);
	}
	check_leave(agent);
	return 0;
}
