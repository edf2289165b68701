/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Alternates a measurement with its floor in one pair of processes and computes the ratio of medians. The measuring
 * thread.
 */
#include "rounds.h"
#include <errno.h>

#define WARM_NS  UINT64_C(200000000)
#define QUIET_NS UINT64_C(5000000) /* acknowledgements leave by then */

int rounds_quiet(struct peer *p, const struct perf_opts *o)
{
	bool hold = peer_can_hold(p, o); /* else its own thread polls it */
	int rc = hold ? peer_hold(p, o, true) : 0;
	uint64_t until = floor_now() + QUIET_NS;
	while (rc == 0 && floor_now() < until)
		if (hold)
			far_shard_poll(p->agent);
	return rc;
}

static int nic_round(struct rounds *r, bool rate, uint64_t ns)
{
	const struct perf_opts *o = r->o;
	struct floor_shared *s = r->peer.shared;
	int rc = rounds_quiet(&r->peer, o);
	if (rc)
		return rc;
	ns = ns < FLOOR_NIC_NS_MAX ? ns : FLOOR_NIC_NS_MAX;
	hist_reset(&r->round);
	rc = floor_nic_rtt(s, &r->nic, rate ? ns / 2 : ns, &r->round);
	r->rtt_ns[r->n] = (double)hist_quantile(&r->round, 0.5);
	if (rc == 0 && rate && rounds_bulk(o))
		rc = floor_nic_stream(s, &r->nic, ns / 2, o->bytes * o->inflight, &r->bytes_per_s[r->n]);
	else if (rc == 0 && rate)
		rc = floor_nic_bursts(s, &r->nic, ns / 2, (unsigned)o->inflight, &r->calls_per_s[r->n]);
	if (rc < 0)
		floor_explain(o->what, rc, 0, 0);
	return rc < 0;
}

static int floor_round(struct rounds *r, bool rate, uint64_t ns)
{
	const struct perf_opts *o = r->o;
	struct floor_shared *s = r->peer.shared;
	double *line = &r->line_rtt_ns[r->n], *ring = &r->rtt_ns[r->n];
	if (r->nic.ops)
		return nic_round(r, rate, ns);
	int rc = floor_round_trips(s, rate ? ns / 2 : ns, &r->round, line, ring);
	if (rc == 0 && rate && rounds_bulk(o))
		rc = floor_copy(s, ns / 2, o->bytes, (unsigned)o->inflight, FLOOR_PUSH, &r->bytes_per_s[r->n]);
	else if (rc == 0 && rate)
		rc = floor_bursts(s, ns / 2, (unsigned)o->inflight, &r->calls_per_s[r->n]);
	if (rc == 0 && o->to_self)
		rc = floor_switch(s, FLOOR_REST);
	if (rc < 0)
		floor_explain(o->what, rc, *line, *ring);
	return rc < 0;
}

void rounds_cores(const struct perf_opts *o)
{
	int polling = o->to_self ? 1 : 2 * (int)o->shards;
	/* The agent's own threads poll beside the callers when calls are handed over to them. */
	if (o->via == PERF_VIA_THREAD)
		polling += (int)o->shards;
	if (o->handler == PERF_HANDLER_BLOCKING)
		polling++;
	if (perf_cpus() < polling)
		fprintf(stderr,
			"%s: %d threads poll and there are fewer cores: what follows is the scheduler's figure%s\n",
			o->what, polling, o->compare_via && !o->to_self ? "; --to self needs one core less" : "");
}

static int measure_one(struct rounds *r, bool base, uint64_t ns, rounds_measure_fn *measure, void *ctx)
{
	r->base_now = base;
	r->calls_n = r->busy_ns = 0;
	hist_reset(&r->round);
	return measure(r, ns, ctx);
}

static void keep(struct rounds *r, struct rounds_side *side)
{
	hist_merge(&side->calls, &r->round);
	side->calls_n += r->calls_n;
	side->busy_ns += r->busy_ns;
}

/* What a call of the present measurement took: at the median, or with many in flight the share of one. */
static double cost_ns(const struct rounds *r, bool rate)
{
	if (!rate)
		return (double)hist_quantile(&r->round, 0.5);
	return r->calls_n ? (double)r->busy_ns / (double)r->calls_n : 0;
}

/* The two by turns, so that neither always comes first. */
static int measure_both(struct rounds *r, bool rate, uint64_t ns, rounds_measure_fn *measure, rounds_ratio_fn *ratio,
			void *ctx)
{
	double cost[2] = {0};
	int rc = 0;
	for (unsigned turn = 0; turn < 2 && rc == 0; turn++) {
		bool base = r->base && turn == (r->n & 1);
		if (!r->base && turn)
			break;
		rc = measure_one(r, base, r->base ? ns / 2 : ns, measure, ctx);
		if (rc)
			break;
		keep(r, base ? &r->other : &r->subject);
		cost[base] = cost_ns(r, rate);
		if (!base && r->o->floor)
			r->ratio[r->n] = ratio(r, r->calls_n, r->busy_ns);
	}
	r->cost_ns[r->n] = cost[0];
	r->added_ns[r->n] = cost[0] - cost[1];
	r->added_ratio[r->n] = cost[1] > 0 ? cost[0] / cost[1] : 0;
	r->added_lines[r->n] = r->o->floor && !r->nic.ops ? r->added_ns[r->n] / r->line_rtt_ns[r->n] : 0;
	return rc;
}

int rounds_run(struct rounds *r, bool rate, rounds_measure_fn *measure, rounds_ratio_fn *ratio, void *ctx)
{
	rounds_cores(r->o);
	uint64_t share = r->o->duration_ns / ROUNDS;
	uint64_t floor_ns = r->o->floor ? share / 3 : 0;
	int rc = 0;
	if (peer_floor(&r->peer, r->o, &r->nic))
		return 1;
	if (r->o->to_self && floor_switch(r->peer.shared, FLOOR_REST) < 0) {
		floor_explain(r->o->what, -ETIMEDOUT, 0, 0);
		return 1;
	}
	if (r->base)
		rc = measure_one(r, true, WARM_NS, measure, ctx);
	if (rc == 0)
		rc = measure_one(r, false, WARM_NS, measure, ctx);
	for (; rc == 0 && r->n < ROUNDS; r->n++) {
		if (r->o->floor)
			rc = floor_round(r, rate, floor_ns);
		if (rc == 0)
			rc = measure_both(r, rate, share - floor_ns, measure, ratio, ctx);
		if (rc)
			break;
	}
	r->nic_floor = r->nic.ops != NULL;
	r->nic_lost = r->nic.lost;
	floor_agent_close(&r->nic);
	return rc;
}
