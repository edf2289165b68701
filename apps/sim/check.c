/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Checks the history of a simulated run: executed once, right bytes, right errors, nothing left behind. After the run,
 * one thread.
 */
#include "sim/check_inner.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Deadlines are rounded to the wheel of timers, and the callee's clock may be the first. */
#define EARLY_NS UINT64_C(2000000)

__attribute__((format(printf, 2, 3))) static bool object(struct judge *j, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(j->text, CHECK_TEXT_MAX, format, args);
	va_end(args);
	return false;
}

bool check_object(struct judge *j, const struct history_call *c, const char *format, ...)
{
	va_list args;
	int n = snprintf(j->text, CHECK_TEXT_MAX,
			 "call %zu (%s, %" PRIu32 " to %" PRIu32 ", at %" PRIu64 ".%09" PRIu64 " s): ",
			 (size_t)(c - j->h->calls), load_kind_names[c->kind], c->from, c->to, c->begun / 1000000000,
			 c->begun % 1000000000);
	va_start(args, format);
	if (n > 0 && n < CHECK_TEXT_MAX)
		n += vsnprintf(j->text + n, (size_t)(CHECK_TEXT_MAX - n), format, args);
	va_end(args);
	if (n > 0 && n < CHECK_TEXT_MAX && c->error_text[0])
		snprintf(j->text + n, (size_t)(CHECK_TEXT_MAX - n), " (\"%s\")", c->error_text);
	return false;
}

static unsigned runs_kept(const struct history_call *c)
{
	return c->runs_n < HISTORY_RUNS ? c->runs_n : HISTORY_RUNS;
}

/* ---- what incidents excuse ---- */

static bool touches(const struct history_incident *i, uint32_t a, uint32_t b)
{
	if (i->kind == INCIDENT_CUT)
		return (i->a == a && i->b == b) || (i->a == b && i->b == a);
	return i->a == a || i->a == b;
}

static uint64_t lasted(const struct history_incident *i)
{
	return i->until == HISTORY_TIME_NONE ? HISTORY_TIME_NONE : i->until - i->from;
}

/* Has something happened between the two, up to `when`, for which a side may give the other up. A quarter of the limit
 * is what looks at silence are apart. */
static bool death_excused(const struct history *h, uint32_t a, uint32_t b, uint64_t when)
{
	for (size_t k = 0; k < h->incidents_n; k++) {
		const struct history_incident *i = &h->incidents[k];
		bool long_cut = i->kind == INCIDENT_CUT && lasted(i) >= h->peer_limit_ns / 4 * 3;
		/* Who is given up by one may be taken out of the group. */
		if (i->from <= when &&
		    (long_cut ? i->a == a || i->b == a || i->a == b || i->b == b
			      : touches(i, a, b) && i->kind != INCIDENT_CUT && i->kind != INCIDENT_OUTAGE &&
					(i->kind == INCIDENT_CRASH || lasted(i) >= h->peer_limit_ns / 4 * 3)))
			return true;
	}
	return false;
}

/* The same of anybody: references pass through many hands. */
static bool any_death_excused(const struct history *h, uint64_t when)
{
	for (size_t k = 0; k < h->incidents_n; k++)
		if (death_excused(h, h->incidents[k].a, h->incidents[k].b, when))
			return true;
	return false;
}

/* Nobody is to blame for a call over this time that took longer, or was lost. */
static bool disturbed(const struct history *h, uint32_t a, uint32_t b, uint64_t from, uint64_t until)
{
	for (size_t k = 0; k < h->incidents_n; k++) {
		const struct history_incident *i = &h->incidents[k];
		if (touches(i, a, b) && i->from <= until && (i->until == HISTORY_TIME_NONE || i->until >= from))
			return true;
	}
	return death_excused(h, a, b, until);
}

/* Time from `from` on that a worker stood still, with what it needed to see that. */
static uint64_t paused(const struct history *h, uint32_t worker, uint64_t from)
{
	uint64_t sum = 0;
	for (size_t k = 0; k < h->incidents_n; k++) {
		const struct history_incident *i = &h->incidents[k];
		if (i->kind != INCIDENT_PAUSE || i->a != worker || i->until == HISTORY_TIME_NONE || i->until <= from)
			continue;
		sum += i->until - (i->from > from ? i->from : from);
	}
	return sum;
}

/* Of no calls there is no array. */
const struct history_call *check_end(const struct history *h)
{
	return h->calls ? h->calls + h->calls_n : NULL;
}

/* ---- the checkers ---- */

static bool check_once(struct judge *j)
{
	if (j->h->strays)
		return object(j, "%" PRIu64 " requests arrived that no worker sent", j->h->strays);
	for (const struct history_call *c = j->h->calls; c < check_end(j->h); c++) {
		if (c->runs_n > 1)
			return check_object(j, c, "its handler ran %" PRIu32 " times", c->runs_n);
		if (c->ends && c->status == FAR_OK && c->kind != LOAD_ONEWAY && !c->fetches && c->runs_n != 1)
			return check_object(j, c, "it ended well, and its handler never ran");
		if (c->runs_n && c->runs[0].worker != c->to)
			return check_object(j, c, "its handler ran on worker %" PRIu32, c->runs[0].worker);
		if (c->runs_n && c->runs[0].shard != c->to_shard)
			return check_object(j, c, "its handler ran on shard %u, it was for %u", c->runs[0].shard,
					    c->to_shard);
		if (c->wrong_function)
			return check_object(j, c, "another function ran than it was for");
		if (c->runs_n && c->runs[0].at < c->begun)
			return check_object(j, c, "its handler ran before it was made");
	}
	return true;
}

static bool check_reply(struct judge *j)
{
	for (const struct history_call *c = j->h->calls; c < check_end(j->h); c++)
		if (c->wrong_reply)
			return check_object(j, c, "the reply is not the one that its handler made");
	return true;
}

static bool check_bytes(struct judge *j)
{
	for (const struct history_call *c = j->h->calls; c < check_end(j->h); c++)
		if (c->wrong_request)
			return check_object(j, c, "the request arrived with other bytes");
	return true;
}

static bool check_deadline(struct judge *j)
{
	for (const struct history_call *c = j->h->calls; c < check_end(j->h); c++) {
		if (c->orphaned)
			continue;
		if (c->ends > 1)
			return check_object(j, c, "it ended %u times", c->ends);
		uint64_t limit = c->deadline + j->checks->slack_ns + paused(j->h, c->from, c->begun);
		if (!c->ends && c->kind != LOAD_ONEWAY && j->h->end > limit)
			return check_object(j, c, "it never ended");
		if (c->ends && c->ended > limit)
			return check_object(j, c, "it ended %" PRIu64 " us after its deadline (%s)",
					    (c->ended - c->deadline) / 1000,
					    far_status_name((enum far_status)c->status));
	}
	return true;
}

/* Has another incarnation of the worker than the first begun. */
static bool restarted(const struct history *h, uint32_t worker, uint64_t when)
{
	for (size_t k = 0; k < h->incidents_n; k++)
		if (h->incidents[k].kind == INCIDENT_CRASH && h->incidents[k].a == worker &&
		    h->incidents[k].until <= when)
			return true;
	return false;
}

static bool class_fits(struct judge *j, const struct history_call *c)
{
	const char *name = far_status_name((enum far_status)c->status);
	switch (c->status) {
	case FAR_OK:
		return c->kind != LOAD_FAIL || check_object(j, c, "its handler failed, and it ended well");
	case FAR_REMOTE:
		return c->kind == LOAD_FAIL || c->kind == LOAD_NESTED ||
		       check_object(j, c, "REMOTE, and its handler does not fail");
	case FAR_TIMEOUT:
		return c->ended + EARLY_NS >= c->deadline ||
		       (c->excused_from && c->ended + EARLY_NS >= c->excused_from) ||
		       check_object(j, c, "TIMEOUT %" PRIu64 " us before its deadline",
				    (c->deadline - c->ended) / 1000);
	case FAR_PEER_LOST:
	case FAR_UNREACHABLE:
		return death_excused(j->h, c->from, c->to, c->ended) ||
		       (c->kind == LOAD_RREF && death_excused(j->h, c->third, c->to, c->ended)) ||
		       (c->kind == LOAD_REFS && any_death_excused(j->h, c->ended)) ||
		       check_object(j, c, "%s, and nothing has happened to either", name);
	case FAR_NO_FUNCTION:
		return (c->kind == LOAD_SOME &&
			(restarted(j->h, c->from, c->ended) || restarted(j->h, c->to, c->ended))) ||
		       check_object(j, c, "%s, and every incarnation so far had it", name);
	case FAR_CANCELLED:
		return c->cancelled <= c->ended || check_object(j, c, "CANCELLED without a request to cancel");
	default:
		return check_object(j, c, "%s, which nothing explains", name);
	}
}

static bool check_class(struct judge *j)
{
	for (const struct history_call *c = j->h->calls; c < check_end(j->h); c++)
		if (c->ends && !class_fits(j, c))
			return false;
	return true;
}

static bool check_executed(struct judge *j)
{
	for (const struct history_call *c = j->h->calls; c < check_end(j->h); c++) {
		if (!c->ends || c->status == FAR_OK)
			continue;
		const char *name = far_status_name((enum far_status)c->status);
		if (c->executed == FAR_EXECUTED_NO && c->runs_n)
			return check_object(j, c, "%s, executed NO, and its handler ran", name);
		if (c->executed == FAR_EXECUTED_YES && !c->runs_n)
			return check_object(j, c, "%s, executed YES, and its handler never ran", name);
		if (c->executed > FAR_EXECUTED_YES)
			return check_object(j, c, "%s, executed %u", name, c->executed);
	}
	return true;
}

/* True if this incarnation of the caller had a session with that worker before, so its messages wait for no set-up. */
static bool was_connected(const struct history *h, const struct history_call *c, uint64_t before)
{
	for (const struct history_call *k = h->calls; k < c; k++)
		if (k->from == c->from && k->from_incarnation == c->from_incarnation && k->to == c->to && k->ends &&
		    k->status == FAR_OK && k->kind != LOAD_ONEWAY && k->ended < c->begun && k->ended < before)
			return true;
	return false;
}

static bool check_incarnation(struct judge *j)
{
	const struct history *h = j->h;
	for (const struct history_call *c = h->calls; c < check_end(h); c++) {
		for (unsigned r = 0; r < runs_kept(c); r++)
			for (size_t k = 0; k < h->incidents_n; k++) {
				const struct history_incident *i = &h->incidents[k];
				bool between = i->kind == INCIDENT_CRASH && i->a == c->to && c->begun < i->from &&
					       c->runs[r].at >= i->until;
				if (between && was_connected(h, c, i->from))
					return check_object(j, c,
							    "it was sent to an incarnation that ended, and ran in "
							    "incarnation %" PRIu32,
							    c->runs[r].incarnation);
				/* A new session ends what is left of the one before. */
				if (i->kind == INCIDENT_CRASH && i->a == c->from && c->begun < i->from &&
				    i->until != HISTORY_TIME_NONE && c->runs[r].at > i->until + h->peer_limit_ns)
					return check_object(j, c, "its caller died, and it ran long after");
			}
	}
	return true;
}

static bool later(const struct history_call *a, const struct history_call *b)
{
	return a->from == b->from && a->from_incarnation == b->from_incarnation && a->to == b->to &&
	       a->from_shard == b->from_shard && a->to_shard == b->to_shard && a->sequence > b->sequence;
}

/* Per pair the last one that ran, in order of time of running: quadratic in the pairs, not in the calls. */
static int by_run(const void *x, const void *y)
{
	const struct history_call *a = *(const struct history_call *const *)x;
	const struct history_call *b = *(const struct history_call *const *)y;
	if (a->from != b->from)
		return a->from < b->from ? -1 : 1;
	if (a->from_incarnation != b->from_incarnation)
		return a->from_incarnation < b->from_incarnation ? -1 : 1;
	if (a->to != b->to)
		return a->to < b->to ? -1 : 1;
	if (a->from_shard != b->from_shard)
		return a->from_shard < b->from_shard ? -1 : 1;
	if (a->to_shard != b->to_shard)
		return a->to_shard < b->to_shard ? -1 : 1;
	return a->sequence < b->sequence ? -1 : a->sequence > b->sequence;
}

static bool check_order(struct judge *j)
{
	const struct history *h = j->h;
	const struct history_call **sorted = malloc((h->calls_n + 1) * sizeof(struct history_call *));
	size_t n = 0;
	bool fits = true;
	if (!sorted)
		return object(j, "no memory for the checkers");
	for (const struct history_call *c = h->calls; c < check_end(h); c++)
		if (c->kind == LOAD_ONEWAY && c->runs_n)
			sorted[n++] = c;
	qsort(sorted, n, sizeof *sorted, by_run);
	for (size_t i = 1; i < n && fits; i++)
		if (later(sorted[i], sorted[i - 1]) && sorted[i]->runs[0].order < sorted[i - 1]->runs[0].order)
			fits = check_object(j, sorted[i], "it ran before call %zu, which was sent earlier",
					    (size_t)(sorted[i - 1] - h->calls));
	free(sorted);
	return fits;
}

static bool check_delivered(struct judge *j)
{
	for (const struct history_call *c = j->h->calls; c < check_end(j->h); c++)
		if (c->kind == LOAD_ONEWAY && !c->ends && !c->runs_n && !c->orphaned &&
		    !disturbed(j->h, c->from, c->to, c->begun, j->h->end))
			return check_object(j, c, "it was never delivered");
	return true;
}

static bool check_findings(struct judge *j, enum checker checker)
{
	for (size_t i = 0; i < j->h->findings_n; i++)
		if (j->h->findings[i].checker == checker)
			return object(j, "%s", j->h->findings[i].text);
	return true;
}

static bool check_without(struct judge *j, enum far_status a, enum far_status b)
{
	for (const struct history_call *c = j->h->calls; c < check_end(j->h); c++)
		if (c->ends && (c->status == a || c->status == b))
			return check_object(j, c, "%s", far_status_name((enum far_status)c->status));
	return true;
}

static bool check_resends(struct judge *j)
{
	return j->h->resends <= j->checks->resends ||
	       object(j, "%" PRIu64 " packets were sent again, %" PRIu32 " at most should be", j->h->resends,
		      j->checks->resends);
}

static bool judge_by(struct judge *j, enum checker checker)
{
	static bool (*const judges[CHECKS])(struct judge *) = {
		[CHECK_ONCE] = check_once,
		[CHECK_REPLY] = check_reply,
		[CHECK_BYTES] = check_bytes,
		[CHECK_DEADLINE] = check_deadline,
		[CHECK_CLASS] = check_class,
		[CHECK_EXECUTED] = check_executed,
		[CHECK_INCARNATION] = check_incarnation,
		[CHECK_ORDER] = check_order,
		[CHECK_DELIVERED] = check_delivered,
		[CHECK_RESENDS] = check_resends,
		[CHECK_LATE] = check_late,
		[CHECK_ORPHANS] = check_orphans,
	};
	if (judges[checker] && !judges[checker](j))
		return false;
	if (checker == CHECK_NO_DEATH && !check_without(j, FAR_PEER_LOST, FAR_UNREACHABLE))
		return false;
	if (checker == CHECK_NO_TIMEOUT && !check_without(j, FAR_TIMEOUT, FAR_TIMEOUT))
		return false;
	return check_findings(j, checker);
}

unsigned check_history(const struct history *h, const struct checks *checks, struct check_failure *out, unsigned max)
{
	unsigned n = 0;
	for (unsigned c = 0; c < CHECKS; c++) {
		char text[CHECK_TEXT_MAX] = "";
		struct judge j = {h, checks, text};
		if (!(checks->check >> c & 1) || judge_by(&j, (enum checker)c))
			continue;
		if (n < max) {
			out[n].checker = (enum checker)c;
			memcpy(out[n].text, text, sizeof text);
		}
		n++;
	}
	return n;
}
