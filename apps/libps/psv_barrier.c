/* SPDX-License-Identifier: BSD-3-Clause */
/** Barriers of a service: members that come, rounds that end, members that are lost. The thread that polls the shard.
 */
#include "psv_barrier.h"

#include "pst_fail.h"
#include "psv_job.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMED_MAX 8u /* missing members that an error names */

static struct psv_request *request_of(const struct psv_waiter *w)
{
	return (struct psv_request *)(void *)(uintptr_t)w->data;
}

/* `q->token` is the round that the request waits for; 0: it has not joined. */
static bool is_in_round(const struct psv_request *q, const struct psv_barrier *b)
{
	return q->kind == PSV_BARRIER && q->table == b->id && q->token == b->round;
}

static struct psv_barrier *find(struct psv_shard *s, uint64_t id)
{
	struct psv_barrier *b = s->barriers;
	while (b && b->id != id)
		b = b->next;
	return b;
}

static bool has_waiter(const struct psv_shard *s, const struct psv_barrier *b)
{
	for (const struct psv_waiter *w = s->waiters; w; w = w->next)
		if (is_in_round(request_of(w), b))
			return true;
	return false;
}

static void remove_barrier(struct psv_shard *s, struct psv_barrier *b)
{
	struct psv_barrier **at = &s->barriers;
	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	s->barriers_n--;
	free(b);
}

/* Makes room for one barrier: the one that was made first, of those that nobody waits at, is forgotten. */
static bool make_room(struct psv_shard *s)
{
	struct psv_barrier *oldest = NULL;
	if (s->barriers_n < FAR_PS_BARRIERS_MAX)
		return true;
	for (struct psv_barrier *b = s->barriers; b; b = b->next)
		if (!has_waiter(s, b))
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
	b->round = 1;
	b->members = q->bags;
	b->next = s->barriers;
	s->barriers = b;
	s->barriers_n++;
	*out = b;
	return FAR_OK;
}

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

static enum far_status join(struct psv_shard *s, struct psv_waiter *w, struct far_err *err)
{
	struct psv_request *q = request_of(w);
	enum far_status status = check(s, q, w->len, err);
	if (status)
		return status;
	struct psv_barrier *b = find(s, q->table);
	if (b && b->members != q->bags && !has_waiter(s, b)) {
		remove_barrier(s, b);
		b = NULL;
	}
	status = b ? FAR_OK : make(s, q, (const char *)(q + 1), &b, err);
	if (status)
		return status;
	if (b->members != q->bags)
		return pst_fail(err, FAR_INVALID, 0, "barrier \"%s\" has %u members, not %u", b->name, b->members,
				q->bags);
	struct far_worker_info info;
	struct psv_member *m = &b->member[q->worker];
	m->rank = w->from.worker;
	m->incarnation = far_worker_by_rank(s->server->agent, m->rank, &info, NULL) ? 0 : info.incarnation;
	q->token = b->round;
	return FAR_OK;
}

bool psv_barrier_waits(struct psv_shard *s, struct psv_waiter *w, enum far_status *status, struct far_err *err)
{
	const struct psv_request *q = request_of(w);
	*status = q->token ? FAR_OK : join(s, w, err);
	if (*status)
		return false;
	const struct psv_barrier *b = find(s, q->table);
	return b && is_in_round(q, b);
}

static bool is_lost(struct far_agent *agent, const struct psv_member *m)
{
	struct far_worker_info info;
	return m->incarnation &&
	       (far_worker_by_rank(agent, m->rank, &info, NULL) || !info.alive || info.incarnation != m->incarnation);
}

static void see_members(struct psv_shard *s, struct psv_barrier *b)
{
	for (uint32_t m = 0; m < b->members; m++)
		b->member[m].here = false;
	for (const struct psv_waiter *w = s->waiters; w; w = w->next)
		if (is_in_round(request_of(w), b))
			b->member[request_of(w)->worker].here = true;
}

static bool is_missing(const struct psv_shard *s, const struct psv_member *m)
{
	return !m->here && !is_lost(s->server->agent, m);
}

/* A round needs one member that is not lost. */
static bool is_over(const struct psv_shard *s, const struct psv_barrier *b)
{
	bool some = false;
	for (uint32_t m = 0; m < b->members; m++) {
		if (is_missing(s, &b->member[m]))
			return false;
		some = some || b->member[m].here;
	}
	return some;
}

bool psv_barriers_look(struct psv_shard *s)
{
	bool ended = false;
	for (struct psv_barrier *b = s->barriers; b; b = b->next) {
		see_members(s, b);
		if (!is_over(s, b))
			continue;
		b->round++;
		ended = true;
	}
	return ended;
}

static size_t put(char *text, size_t size, size_t at, const char *format, uint32_t number)
{
	int n = at < size ? snprintf(text + at, size - at, format, number) : 0;
	return at + (n > 0 ? (size_t)n : 0);
}

void psv_barrier_late(struct psv_shard *s, const struct psv_waiter *w, char *text, size_t size)
{
	struct psv_barrier *b = find(s, request_of(w)->table);
	uint32_t missing = 0;
	snprintf(text, size, "the request waited until its deadline");
	if (!b || !request_of(w)->token)
		return;
	see_members(s, b);
	b->member[request_of(w)->worker].here = true;
	size_t at = (size_t)snprintf(text, size, "barrier \"%s\" of %u members lacks", b->name, b->members);
	for (uint32_t m = 0; m < b->members; m++)
		if (is_missing(s, &b->member[m]) && ++missing <= NAMED_MAX)
			at = put(text, size, at, missing == 1 ? " %u" : ", %u", m);
	if (missing > NAMED_MAX)
		(void)put(text, size, at, " and %u more", missing - NAMED_MAX);
}

void psv_barriers_free(struct psv_shard *s)
{
	while (s->barriers)
		remove_barrier(s, s->barriers);
}
