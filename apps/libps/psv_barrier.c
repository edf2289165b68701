/* SPDX-License-Identifier: BSD-3-Clause */
/** Barriers of a service: members that come, rounds that end, members that are lost. The thread that polls the shard.
 */
#include "psv_barrier.h"

#include "ps_mutant.h"
#include "pst_fail.h"
#include "psv_job.h"
#include <farcall/rpc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMED_MAX 8u /* missing members that an error names */

struct psv_member {
	uint64_t incarnation; /* of the worker that came last as this member; 0: none has come */
	int32_t rank;         /* of that worker */
	uint32_t waiting;     /* requests of this member that wait */
	bool lost;            /* that worker was lost at the last look, and nobody has come since */
};

struct psv_barrier {
	struct psv_barrier *next; /* in its chain */
	char name[FAR_PS_NAME_MAX];
	uint64_t id;                /* psv_name_id() */
	uint64_t made;              /* its number */
	struct psv_waiter *waiters; /* of this round; the last one first */
	uint32_t members, here;     /* here: members with a request that waits */
	uint32_t lost;              /* members that are lost and not here */
	struct psv_member member[];
};

static struct psv_request *request_of(const struct psv_waiter *w)
{
	return (struct psv_request *)(void *)(uintptr_t)w->data;
}

/* ---- Names ---- */

static struct psv_barrier **chain_of(struct psv_shard *s, uint64_t id)
{
	return &s->barriers.chain[id % PSV_BARRIER_CHAINS];
}

static struct psv_barrier *find(struct psv_shard *s, uint64_t id)
{
	struct psv_barrier *b = *chain_of(s, id);
	while (b && b->id != id)
		b = b->next;
	return b;
}

static void remove_barrier(struct psv_shard *s, struct psv_barrier *b)
{
	struct psv_barrier **at = chain_of(s, b->id);
	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	s->barriers.n--;
	free(b);
}

/* Makes room for one barrier: the one that was made first, of those that nobody waits at, is forgotten. */
static bool make_room(struct psv_shard *s)
{
	struct psv_barrier *oldest = NULL;
	if (s->barriers.n < FAR_PS_BARRIERS_MAX)
		return true;
	for (unsigned i = 0; i < PSV_BARRIER_CHAINS; i++)
		for (struct psv_barrier *b = s->barriers.chain[i]; b; b = b->next)
			if (!b->waiters && (!oldest || b->made < oldest->made))
				oldest = b;
	if (oldest)
		remove_barrier(s, oldest);
	return oldest != NULL;
}

static enum far_status make(struct psv_shard *s, const struct psv_request *q, const char *name,
			    struct psv_barrier **out, struct far_err *err)
{
	if (!make_room(s))
		return pst_fail(err, FAR_RESOURCE, 0, "clients wait at %u barriers; a service has no more",
				FAR_PS_BARRIERS_MAX);
	struct psv_barrier *b = calloc(1, sizeof *b + q->bags * sizeof *b->member);
	if (!b)
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for a barrier of %u members", q->bags);
	memcpy(b->name, name, sizeof b->name);
	b->id = q->table;
	b->made = ++s->barriers.made;
	b->members = q->bags;
	b->next = *chain_of(s, b->id);
	*chain_of(s, b->id) = b;
	s->barriers.n++;
	*out = b;
	return FAR_OK;
}

/* ---- Arrivals ---- */

static enum far_status check(const struct psv_shard *s, const struct psv_request *q, size_t len, struct far_err *err)
{
	const char *name = (const char *)(q + 1);
	if (q->n || len != sizeof *q + PSV_NAME_BYTES || !psv_name_ok(name) || psv_name_id(name) != q->table)
		return pst_fail(err, FAR_PROTOCOL, 0, "%zu bytes that are no request of a barrier", len);
	if (!q->bags || q->bags > FAR_PS_WORKERS_MAX || q->worker >= q->bags)
		return pst_fail(err, FAR_INVALID, 0, "member %u of %u; a barrier has 1 to %d members", q->worker,
				q->bags, FAR_PS_WORKERS_MAX);
	if (s->slot != 0)
		return pst_fail(err, FAR_INVALID, 0, "shard %d does not have the barriers of service \"%s\"",
				s->self.shard, s->server->name);
	return FAR_OK;
}

/* The barrier of a request, which was made if there was none. */
static enum far_status barrier_of(struct psv_shard *s, const struct psv_waiter *w, struct psv_barrier **out,
				  struct far_err *err)
{
	const struct psv_request *q = request_of(w);
	enum far_status status = check(s, q, w->len, err);
	if (status)
		return status;
	struct psv_barrier *b = find(s, q->table);
	if (b && b->members != q->bags && !b->waiters) {
		remove_barrier(s, b);
		b = NULL;
	}
	if (b && b->members != q->bags)
		return pst_fail(err, FAR_INVALID, 0, "barrier \"%s\" has %u members, not %u", b->name, b->members,
				q->bags);
	*out = b;
	return b ? FAR_OK : make(s, q, (const char *)(q + 1), out, err);
}

static void join(struct psv_shard *s, struct psv_barrier *b, struct psv_waiter *w)
{
	struct far_worker_info info;
	struct psv_member *m = &b->member[request_of(w)->worker];
	m->rank = w->from.worker;
	m->incarnation = far_worker_by_rank(s->server->agent, m->rank, &info, NULL) ? 0 : info.incarnation;
	b->here += m->waiting++ == 0;
	b->lost -= m->lost;
	m->lost = false;
	w->next = b->waiters;
	b->waiters = w;
}

/* A round needs one member that is here. */
static void end_if_over(struct psv_shard *s, struct psv_barrier *b)
{
	if (!b->here || b->here + b->lost + (PS_MUTANT(BARRIER_EARLY) ? 1 : 0) < b->members)
		return;
	struct psv_waiter *w = b->waiters;
	b->waiters = NULL;
	b->here = 0;
	for (uint32_t m = 0; m < b->members; m++)
		b->member[m].waiting = 0;
	while (w) {
		struct psv_waiter *next = w->next;
		psv_waiter_serve(s, w);
		w = next;
	}
}

void psv_barrier_arrive(struct psv_shard *s, struct psv_waiter *w)
{
	struct psv_barrier *b = NULL;
	struct far_err err;
	if (barrier_of(s, w, &b, &err)) {
		psv_waiter_fail(s, w, &err);
		return;
	}
	join(s, b, w);
	end_if_over(s, b);
}

/* ---- Looks ---- */

static bool is_lost(struct far_agent *agent, const struct psv_member *m)
{
	struct far_worker_info info;
	return m->incarnation &&
	       (far_worker_by_rank(agent, m->rank, &info, NULL) || !info.alive || info.incarnation != m->incarnation);
}

static size_t put(char *text, size_t size, size_t at, const char *format, uint32_t number)
{
	int n = at < size ? snprintf(text + at, size - at, format, number) : 0;
	return at + (n > 0 ? (size_t)n : 0);
}

/* The error of a request that has waited until its deadline: the members that are missing. */
static void late(const struct psv_shard *s, const struct psv_barrier *b, struct far_err *err)
{
	uint32_t missing = 0;
	size_t size = sizeof err->text;
	*err = (struct far_err){.status = FAR_TIMEOUT};
	size_t at = (size_t)snprintf(err->text, size, "barrier \"%s\" of %u members lacks", b->name, b->members);
	for (uint32_t m = 0; m < b->members; m++)
		if (!b->member[m].waiting && !is_lost(s->server->agent, &b->member[m]) && ++missing <= NAMED_MAX)
			at = put(err->text, size, at, missing == 1 ? " %u" : ", %u", m);
	if (missing > NAMED_MAX)
		(void)put(err->text, size, at, " and %u more", missing - NAMED_MAX);
}

/* Takes a request off its barrier and answers it, if its time or its view has passed. False: it goes on waiting. */
static bool look_at(struct psv_shard *s, struct psv_barrier *b, struct psv_waiter **at, uint64_t now, bool stopping)
{
	struct psv_waiter *w = *at;
	struct psv_member *m = &b->member[request_of(w)->worker];
	bool stale = request_of(w)->epoch != s->view->epoch;
	struct far_err err;
	if (!stopping && !stale && now < w->deadline_ns)
		return false;
	if (stopping)
		(void)pst_fail(&err, FAR_SHUTDOWN, 0, "service \"%s\" stops", s->server->name);
	else if (!stale)
		late(s, b, &err);
	*at = w->next;
	b->here -= --m->waiting == 0;
	if (stopping || !stale)
		psv_waiter_fail(s, w, &err);
	else
		psv_waiter_serve(s, w);
	return true;
}

static void look(struct psv_shard *s, struct psv_barrier *b, bool stopping)
{
	uint64_t now = psv_now_ns();
	for (struct psv_waiter **at = &b->waiters; *at;)
		if (!look_at(s, b, at, now, stopping))
			at = &(*at)->next;
	b->lost = 0;
	for (uint32_t i = 0; b->here && i < b->members; i++) {
		struct psv_member *m = &b->member[i];
		m->lost = !m->waiting && is_lost(s->server->agent, m);
		b->lost += m->lost;
	}
	end_if_over(s, b);
}

void psv_barriers_look(struct psv_shard *s, bool stopping)
{
	for (unsigned i = 0; s->barriers.n && i < PSV_BARRIER_CHAINS; i++)
		for (struct psv_barrier *b = s->barriers.chain[i]; b; b = b->next)
			if (b->waiters)
				look(s, b, stopping);
}

void psv_barriers_free(struct psv_shard *s)
{
	for (unsigned i = 0; i < PSV_BARRIER_CHAINS; i++)
		while (s->barriers.chain[i]) {
			struct psv_waiter *w = s->barriers.chain[i]->waiters;
			while (w) {
				struct psv_waiter *next = w->next;
				free(w);
				w = next;
			}
			remove_barrier(s, s->barriers.chain[i]);
		}
}
