/* SPDX-License-Identifier: BSD-3-Clause */
/** The clocks of a table's workers: steps, and workers that are lost. The thread that polls the shard. */
#include "psv_job.h"

#include "ps_mutant.h"
#include "pst_fail.h"

/* The least step of those that are not excused; of all, when all are, the greatest. */
static uint64_t least(const struct psv_table *t)
{
	uint64_t clock = UINT64_MAX, most = 0;
	for (uint32_t w = 0; w < t->schema.workers; w++) {
		const struct psv_clock *c = &t->clocks[w];
		if (!c->excused && c->step < clock)
			clock = c->step;
		most = c->step > most ? c->step : most;
	}
	return clock == UINT64_MAX ? most : clock;
}

static bool is_lost(struct far_agent *agent, const struct psv_clock *c)
{
	struct far_worker_info info;
	return far_worker_by_rank(agent, c->rank, &info, NULL) || !info.alive || info.incarnation != c->incarnation;
}

enum far_status psv_clock_advance(struct psv_shard *s, const struct psv_job *j, struct far_err *err)
{
	struct psv_table *t = j->t;
	struct far_worker_info info;
	if (j->q->worker >= t->schema.workers)
		return pst_fail(err, FAR_INVALID, 0, "worker %u has no clock in table \"%s\", which has %u workers",
				j->q->worker, t->name, t->schema.workers);
	struct psv_clock *c = &t->clocks[j->q->worker];
	if (c->excused || c->step < j->q->clock)
		c->step = j->q->clock;
	if (!PS_MUTANT(EXCUSE_KEPT))
		c->excused = false;
	c->rank = j->from.worker;
	c->incarnation = far_worker_by_rank(s->server->agent, c->rank, &info, NULL) ? 0 : info.incarnation;
	t->clock = least(t);
	return FAR_OK;
}

void psv_clocks_look(struct psv_shard *s)
{
	unsigned n = atomic_load_explicit(&s->tables_n, memory_order_relaxed);
	for (unsigned i = 0; i < n; i++) {
		struct psv_table *t = atomic_load_explicit(&s->table[i], memory_order_relaxed);
		for (uint32_t w = 0; w < t->schema.workers; w++) {
			struct psv_clock *c = &t->clocks[w];
			if (c->incarnation && !c->excused && !PS_MUTANT(DEAD_WAITED))
				c->excused = is_lost(s->server->agent, c);
		}
		if (t->schema.workers)
			t->clock = least(t);
	}
}
