/* SPDX-License-Identifier: BSD-3-Clause */
/** Barriers and functions of a simulated parameter server: clients that come to a barrier, and the check of who has
 * passed; functions that count, fail and read. On fibers. */
#include "ps_world.h"

#define LATE_ANSWER (3000 * MS) /* after its client has given up, a request may still wait at the server */

/* ---- Functions ---- */

/* Adds 1 to a counter. */
static enum far_status count(const struct far_ps_fn_args *a, void *user)
{
	(void)user;
	a->values[0] = (double)++a->row[0];
	return FAR_OK;
}

static enum far_status refuse(const struct far_ps_fn_args *a, void *user)
{
	(void)user;
	a->row[0] += 1000;
	return FAR_DENIED;
}

static enum far_status peek(const struct far_ps_fn_args *a, void *user)
{
	(void)user;
	a->values[0] = (double)a->row[0];
	a->row[0] += 1000;
	return FAR_OK;
}

bool functions_register(void)
{
	static const struct far_ps_fn fns[] = {{.name = "count", .run = count, .width = 1},
					       {.name = "refuse", .run = refuse, .width = 1},
					       {.name = "peek", .run = peek, .width = 1, .reads = true}};
	for (unsigned i = 0; i < sizeof fns / sizeof *fns; i++)
		if (far_ps_fn_register(&fns[i], NULL))
			return false;
	return true;
}

/* ---- Barriers ---- */

/* Whether `o` can have been at the barrier at some time of the wait. */
static bool was_there(const struct meetings *o, uint64_t begin, uint64_t end)
{
	for (unsigned i = 0; i < o->n; i++) {
		const struct meeting *m = &o->meeting[i];
		if (m->begin <= end && (m->end == PS_NEVER || m->end + (m->passed ? 0 : LATE_ANSWER) >= begin))
			return true;
	}
	return false;
}

/* Whether `o` had died, and had not come back to the barrier. */
static bool was_excused(const struct meetings *o, uint64_t begin, uint64_t end)
{
	for (unsigned d = 0; d < o->deaths; d++) {
		bool back = false;
		for (unsigned i = 0; i < o->n; i++)
			back = back ||
			       (o->meeting[i].passed && o->meeting[i].begin > o->death[d] && o->meeting[i].end < begin);
		if (o->death[d] <= end && !back)
			return true;
	}
	return false;
}

/* At the end of the run. */
void meetings_check(void)
{
	for (unsigned c = 0; c < PS_CLIENTS; c++)
		for (unsigned i = 0; i < run.client[c].meetings.n; i++) {
			const struct meeting *m = &run.client[c].meetings.meeting[i];
			for (unsigned other = 0; m->passed && other < PS_CLIENTS; other++) {
				const struct meetings *o = &run.client[other].meetings;
				if (!was_there(o, m->begin, m->end) && !was_excused(o, m->begin, m->end))
					wrong("client %u has passed the barrier at %llu to %llu ms without client %u",
					      c, (unsigned long long)(m->begin / MS), (unsigned long long)(m->end / MS),
					      other);
			}
		}
}

void meetings_died(unsigned c)
{
	struct meetings *m = &run.client[c].meetings;
	if (m->n && m->meeting[m->n - 1].end == PS_NEVER)
		m->meeting[m->n - 1].end = cluster_now(run.c);
	if (m->deaths < DEATHS_MAX)
		m->death[m->deaths++] = cluster_now(run.c);
}

/* One attempt. False: the client is dead. */
static bool come(unsigned c, struct far_ps *ps, uint64_t timeout_ns, bool *passed)
{
	struct meetings *all = &run.client[c].meetings;
	struct far_err err = {0};
	struct far_future *f;
	if (all->n == MEETINGS_MAX)
		return true;
	struct meeting *m = &all->meeting[all->n++];
	*m = (struct meeting){.begin = cluster_now(run.c), .end = PS_NEVER};
	enum far_status status = far_ps_barrier(ps, "meeting", c, PS_CLIENTS, timeout_ns, &f, &err);
	if (!status) {
		status = far_future_wait(f, FAR_FOREVER, NULL, &err);
		far_future_free(f);
	}
	if (cluster_dead())
		return false;
	m->end = cluster_now(run.c);
	m->passed = status == FAR_OK;
	*passed = m->passed;
	run.meetings += m->passed;
	if (run.calm && !m->passed)
		wrong("a barrier failed, and nothing is disturbed: %s", err.text);
	return true;
}

bool meet(unsigned c, struct far_ps *ps)
{
	bool passed = false, alive = true;
	for (int i = 0; alive && !passed && i < (run.calm ? 1 : 3); i++)
		alive = come(c, ps, (run.calm ? 60000 : 50 + sim_random_below(&run.random, 300)) * MS, &passed);
	return alive;
}
