/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Control messages about references that are sent later: failed ones, after ever longer waits, and those that are
 * delayed on purpose. Shard thread.
 *
 * There may be as many as references, so each length of wait has a queue of its own, in which the last to come is the
 * last to be due. No reference is the subject of two control messages at once, so none overtakes another.
 */
#include "features/faults/fault.h"

#include "base/must.h"
#include "features/references/rref.h"

static enum far_fault_kind fault_kind(const struct rref_note *note)
{
	switch ((enum rref_kind)note->kind) {
	case RREF_FORK:
		return FAR_FAULT_FORK;
	case RREF_ACCEPT:
		return FAR_FAULT_ACCEPT;
	default: /* FAILED is sent in place of a DELETE */
		return FAR_FAULT_DELETE;
	}
}

static_assert(RREF_LATE_QUEUES == FAULT_SENDS_MAX, "by tries, of which the last is not sent again; 0: on purpose");

#define RREF_RECALL_DOUBLINGS 10u /* of the wait between two RECALLs: about 1 s at most */

/* The queue whose first is due first; NULL: there is none. */
static struct rref_late *first_due(struct rref_shard *rs)
{
	struct rref_late *due = NULL;
	for (struct rref_late *q = rs->late; q < rs->late + RREF_LATE_QUEUES; q++)
		if (q->first && (!due || q->first->due < due->first->due))
			due = q;
	return due;
}

static void on_due(struct shard *s, struct shard_timer *t);

static void arm(struct shard *s)
{
	struct rref_shard *rs = s->rrefs;
	const struct rref_late *q = first_due(rs);
	uint64_t at = q ? q->first->due : 0;
	if (at == rs->say_at)
		return;
	if (rs->say_at)
		timer_disarm(&s->wheel, &rs->say.timer);
	rs->say_at = at;
	rs->say.fn = on_due;
	if (at)
		timer_arm(&s->wheel, &rs->say.timer, at);
}

static void take(struct rref_shard *rs, struct rref_late *q, struct rref_note **at, struct rref_note *before)
{
	struct rref_note *note = *at;
	*at = note->next;
	if (q->last == note)
		q->last = before;
	rs->late_n--;
}

/* Those that are due leave the queues first: sending may add others. */
static void on_due(struct shard *s, struct shard_timer *t)
{
	struct rref_shard *rs = s->rrefs;
	uint64_t now = clock_now(s->config.clock);
	struct rref_note *note, *due = NULL, **due_end = &due;
	struct rref_late *q;
	(void)t;
	rs->say_at = 0;
	while ((q = first_due(rs)) && (note = q->first)->due <= now) {
		take(rs, q, &q->first, NULL);
		note->next = NULL;
		*due_end = note;
		due_end = &note->next;
	}
	while ((note = due)) {
		due = note->next;
		rref_note_say(s, note);
	}
	arm(s);
}

/* `queue`: of those that wait as long. After a delay was made shorter it is looked through once for each. */
static void later(struct shard *s, struct rref_note *note, uint64_t ns, unsigned queue)
{
	struct rref_late *q = &s->rrefs->late[queue];
	struct rref_note **at = q->last ? &q->last->next : &q->first;
	note->due = time_after(clock_now(s->config.clock), ns);
	if (q->last && q->last->due > note->due)
		for (at = &q->first; (*at)->due <= note->due;)
			at = &(*at)->next;
	note->next = *at;
	*at = note;
	if (!note->next)
		q->last = note;
	s->rrefs->late_n++;
	arm(s);
}

bool rref_note_again(struct shard *s, struct rref_note *note)
{
	uint64_t ns = s->config.rref_retry_ns ? s->config.rref_retry_ns : FAR_RREF_RETRY_NS;
	if (s->stopped || ++note->tries >= FAULT_SENDS_MAX)
		return false;
	for (unsigned i = 1; i < note->tries; i++)
		ns += ns / 2;
	later(s, note, ns, note->tries);
	return true;
}

void rref_recall_again(struct shard *s, struct rref_note *note)
{
	later(s, note, FAR_RREF_RETRY_NS << note->tries, 0);
	note->tries += note->tries < RREF_RECALL_DOUBLINGS;
}

bool rref_note_fault(struct shard *s, struct rref_note *note)
{
	static const char text[] =
		"the control message about the reference was made to fail (far_fault_set) as often as it is sent";
	enum far_fault_kind kind = fault_kind(note);
	struct faults *f = s->config.faults;
	if (s->stopped || note->kind == RREF_RECALL || !fault_set_for(f, kind))
		return false;
	const struct fault *fault =
		note->marked ? atomic_load_explicit(&f->of[kind], memory_order_acquire) : fault_of(f, kind);
	if (!fault)
		return false;
	note->marked = true;
	if (note->tries < fault->fail_sends) {
		counter_add_shared(&f->failed[kind], 1);
		if (!rref_note_again(s, note))
			rref_note_done(s, note, FAR_INJECTED, text);
		return true;
	}
	if (!fault->delay_ns || note->delayed)
		return false;
	note->delayed = true;
	counter_add_shared(&f->delayed[kind], 1);
	later(s, note, fault->delay_ns, 0);
	return true;
}

static struct rref_note *take_of_session(struct rref_shard *rs, struct rref_late *q, uint32_t session,
					 struct rref_note *all)
{
	struct rref_note *note, *before = NULL, **at = &q->first;
	while ((note = *at)) {
		if (note->session != session) {
			before = note;
			at = &note->next;
			continue;
		}
		take(rs, q, at, before);
		note->next = all;
		all = note;
	}
	return all;
}

void rref_late_drop(struct shard *s, uint32_t session, enum far_status status, const char *text)
{
	struct rref_note *note, *all = NULL;
	for (unsigned i = 0; i < RREF_LATE_QUEUES; i++)
		all = take_of_session(s->rrefs, &s->rrefs->late[i], session, all);
	while ((note = all)) {
		all = note->next;
		rref_note_done(s, note, status, text);
	}
	arm(s);
}
