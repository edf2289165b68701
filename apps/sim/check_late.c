/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Is every delivery in time. Its bound follows from the run's own faults: time that a fault of one of its workers
 * covers, with what the protocol needs to recover from it, does not count; of the rest there is the work of its
 * handlers and history.late_ns. Any thread.
 */
#include "sim/check_inner.h"

#include "base/limits.h"

#include <inttypes.h>
#include <stdlib.h>

#define MS UINT64_C(1000000)
/* After a path is whole again: the longest retransmission timer (FAR_TRANSPORT_RTO_NS_MAX, 100 ms) may just have begun,
 * and its packet be lost. */
#define RESUME_NS (300 * MS)
/* The way of a cable that is down is left, and taken again, by questions that the time-outs bring
 * (FAR_TRANSPORT_FAILBACK_NS).
 */
#define MOVE_NS (1000 * MS)

/* Who has no session with a worker whose host lost its power learns of its death from the store, whose streams give up
 * after 10 s. */
#define NOBODY_NS (10000 * MS)

/** Time that does not count: [from, until). */
struct window {
	uint64_t from, until;
};

/* From the death of a worker until everybody knows: the limit of silence, the quarter that looks are apart, and the
 * questions. */
static uint64_t detect_ns(const struct history *h)
{
	return h->peer_limit_ns + h->peer_limit_ns / 2 + RESUME_NS;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* So long without a word that its end may be taken for death: sessions end, and are made again. */
static bool is_long(const struct history *h, const struct history_incident *i)
{
	return i->kind != INCIDENT_OUTAGE &&
	       (i->until == HISTORY_TIME_NONE || i->until - i->from >= h->peer_limit_ns / 4 * 3);
}

/* Does it concern what is between two workers, or, with `all`, what passes through many. A long cut of one of them has
 * the other side's friends wait, too. */
static bool concerns(const struct history *h, const struct history_incident *i, uint32_t a, uint32_t b, bool all)
{
	if (all || i->a == a || i->a == b)
		return i->kind != INCIDENT_CUT || all || is_long(h, i) || i->b == a || i->b == b;
	return i->kind == INCIDENT_CUT && (i->b == a || i->b == b) && (is_long(h, i) || i->a == a || i->a == b);
}

/* What an incident covers: its beginning and its end may be apart. */
static unsigned windows_of(const struct history *h, const struct history_incident *i, struct window out[2])
{
	uint64_t after = is_long(h, i) ? detect_ns(h) : RESUME_NS;
	switch (i->kind) {
	case INCIDENT_CRASH:
		out[0] = (struct window){i->from, plus(i->from, detect_ns(h) + (i->power ? NOBODY_NS : 0))};
		if (i->until == HISTORY_TIME_NONE)
			return 1;
		out[1] = (struct window){i->until, plus(i->ready, detect_ns(h))};
		return 2;
	case INCIDENT_OUTAGE:
		out[0] = (struct window){i->from, plus(i->from, MOVE_NS)};
		out[1] = (struct window){i->until, plus(i->until, MOVE_NS)};
		return 2;
	default:
		out[0] = (struct window){i->from, plus(i->until, after)};
		return 1;
	}
}

static int by_from(const void *x, const void *y)
{
	const struct window *a = x, *b = y;
	return a->from < b->from ? -1 : a->from > b->from;
}

/* Between `from` and `until`, the time that counts. */
static uint64_t counted(const struct history *h, uint32_t a, uint32_t b, bool all, uint64_t from, uint64_t until)
{
	struct window *w = calloc(2 * h->incidents_n + 1, sizeof *w);
	uint64_t sum = 0;
	size_t n = 0;
	if (!w)
		return 0;
	for (size_t k = 0; k < h->incidents_n; k++)
		if (concerns(h, &h->incidents[k], a, b, all))
			n += windows_of(h, &h->incidents[k], &w[n]);
	qsort(w, n, sizeof *w, by_from);
	for (size_t k = 0; k < n && from < until; k++) {
		if (w[k].from > from)
			sum += (w[k].from < until ? w[k].from : until) - from;
		if (w[k].until > from)
			from = w[k].until;
	}
	free(w);
	return from < until ? sum + until - from : sum;
}

/* Others than its two workers have a part in it. */
static bool is_of_many(const struct history_call *c)
{
	return c->kind == LOAD_NESTED || c->kind == LOAD_FANOUT || c->kind == LOAD_RREF || c->kind == LOAD_REFS;
}

static uint64_t late_by(const struct history *h, const struct history_call *c, uint64_t from, uint64_t until)
{
	uint64_t bound = h->late_ns + c->work_ns;
	if (until <= from || until - from <= bound)
		return 0;
	uint64_t took = counted(h, c->from, c->to, is_of_many(c), from, until);
	return took > bound ? took - bound : 0;
}

/* A one-way message that never ran: until when it should have. 0: it may have been lost with a session. */
static uint64_t owed_until(const struct history *h, const struct history_call *c)
{
	uint64_t until = h->end;
	for (size_t k = 0; k < h->incidents_n; k++) {
		const struct history_incident *i = &h->incidents[k];
		struct window w[2];
		if (!is_long(h, i) && i->kind != INCIDENT_CRASH)
			continue;
		if (!concerns(h, i, c->from, c->to, false))
			continue;
		if (i->from > c->sent) {
			until = i->from < until ? i->from : until;
			continue;
		}
		/* A long cut may end a session for good. */
		if (i->kind != INCIDENT_CRASH || i->from + detect_ns(h) > c->sent ||
		    (windows_of(h, i, w) == 2 && c->sent < w[1].until))
			return 0;
	}
	return until;
}

static bool oneway_late(struct judge *j, const struct history_call *c)
{
	const struct history *h = j->h;
	if (c->orphaned && !c->runs_n)
		return true;
	uint64_t by = late_by(h, c, c->sent, c->runs_n ? c->runs[0].at : owed_until(h, c));
	if (!by)
		return true;
	if (!c->runs_n)
		return check_object(j, c, "it was never delivered, and nothing explains that");
	return check_object(j, c, "it was delivered %" PRIu64 " us after it was sent, %" PRIu64 " us late",
			    (c->runs[0].at - c->sent) / 1000, by / 1000);
}

/* The worker was killed and came back, and it is known that it did: its next incarnation serves. */
static bool lost_again(struct judge *j, const struct history_call *c)
{
	const struct history *h = j->h;
	bool restarts = false;
	if ((c->status != FAR_PEER_LOST && c->status != FAR_UNREACHABLE) || is_of_many(c))
		return true;
	for (size_t k = 0; k < h->incidents_n; k++) {
		const struct history_incident *i = &h->incidents[k];
		if (i->from > c->ended || (!is_long(h, i) && i->kind != INCIDENT_CRASH) ||
		    !concerns(h, i, c->from, c->to, false))
			continue;
		if (i->kind != INCIDENT_CRASH || i->until == HISTORY_TIME_NONE || i->ready == HISTORY_TIME_NONE ||
		    c->begun < plus(i->ready, detect_ns(h)))
			return true;
		restarts = true;
	}
	return !restarts ||
	       check_object(j, c, "%s, and its worker has long been back", far_status_name((enum far_status)c->status));
}

bool check_late(struct judge *j)
{
	for (const struct history_call *c = j->h->calls; c < check_end(j->h); c++) {
		if (c->kind == LOAD_ONEWAY && c->sent != HISTORY_TIME_NONE) {
			if (!oneway_late(j, c))
				return false;
			continue;
		}
		if (c->orphaned || !c->ends)
			continue; /* that it never ended is the deadline's */
		uint64_t by = late_by(j->h, c, c->begun, c->ended);
		if (by)
			return check_object(j, c, "it ended with %s after %" PRIu64 " us, %" PRIu64 " us late",
					    far_status_name((enum far_status)c->status), (c->ended - c->begun) / 1000,
					    by / 1000);
		if (!lost_again(j, c))
			return false;
	}
	return true;
}

/* A handler that waits learns that its caller has died. */
bool check_orphans(struct judge *j)
{
	const struct history *h = j->h;
	for (const struct history_call *c = h->calls; c < check_end(h); c++) {
		if (!c->runs_n || !c->orphaned || c->left == HISTORY_TIME_NONE)
			continue;
		for (size_t k = 0; k < h->incidents_n; k++) {
			const struct history_incident *i = &h->incidents[k];
			if (i->kind != INCIDENT_CRASH || i->a != c->from || i->from < c->runs[0].at ||
			    i->from >= c->left)
				continue;
			/* Its own worker may have stood still, or been cut off. */
			uint64_t took = counted(h, c->to, c->to, false, plus(i->from, detect_ns(h)), c->left);
			if (took > RESUME_NS)
				return check_object(j, c,
						    "its caller died at %" PRIu64 " us, and its handler went on until "
						    "%" PRIu64 " us",
						    i->from / 1000, c->left / 1000);
			break;
		}
	}
	return true;
}
