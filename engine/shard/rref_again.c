/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Words about references that are said later: those that failed, after ever longer waits, and those that are late on
 * purpose. They are few, so the list is looked through. What becomes of one reference is never said by two words at
 * once, so none overtakes another that it should not.
 */
#include "shard/fault.h"

#include "base/must.h"
#include "shard/rref.h"

static enum far_fault_kind fault_kind(const struct rref_note *note)
{
	switch ((enum rref_kind)note->kind) {
	case RREF_FORK:
		return FAR_FAULT_FORK;
	case RREF_ACCEPT:
		return FAR_FAULT_ACCEPT;
	default:
		return FAR_FAULT_DELETE;
	}
}

static void arm(struct shard *s);

/* Those that are due leave the list first: what is said may add others. */
static void on_due(struct shard *s, struct shard_timer *t)
{
	uint64_t now = clock_now(s->config.clock);
	struct rref_note *note, *due = NULL, **due_end = &due, **at = &s->rrefs->late;
	(void)t;
	s->rrefs->late_armed = false;
	while ((note = *at)) {
		if (note->due > now) {
			at = &note->next;
			continue;
		}
		*at = note->next;
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

static void arm(struct shard *s)
{
	struct rref_shard *rs = s->rrefs;
	uint64_t at = TIME_NEVER;
	for (const struct rref_note *note = rs->late; note; note = note->next)
		at = note->due < at ? note->due : at;
	if (rs->late_armed)
		timer_disarm(&s->wheel, &rs->say.timer);
	rs->late_armed = at != TIME_NEVER;
	rs->say.fn = on_due;
	if (rs->late_armed)
		timer_arm(&s->wheel, &rs->say.timer, at);
}

static void later(struct shard *s, struct rref_note *note, uint64_t ns)
{
	note->due = time_after(clock_now(s->config.clock), ns);
	note->next = s->rrefs->late;
	s->rrefs->late = note;
	arm(s);
}

bool rref_note_again(struct shard *s, struct rref_note *note)
{
	uint64_t ns = s->config.rref_retry_ns ? s->config.rref_retry_ns : FAR_RREF_RETRY_NS;
	if (s->stopped || ++note->tries >= FAULT_SENDS_MAX)
		return false;
	for (unsigned i = 1; i < note->tries; i++)
		ns += ns / 2;
	later(s, note, ns);
	return true;
}

bool rref_note_fault(struct shard *s, struct rref_note *note)
{
	static const char text[] =
		"the word about the reference was made to fail (far_fault_set) as often as it is said";
	enum far_fault_kind kind = fault_kind(note);
	struct faults *f = s->config.faults;
	if (s->stopped || !fault_set_for(f, kind))
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
	later(s, note, fault->delay_ns);
	return true;
}

void rref_late_drop(struct shard *s, uint32_t session, enum far_status status, const char *text)
{
	struct rref_note *note, *all = NULL, **at = &s->rrefs->late;
	while ((note = *at)) {
		if (note->session != session) {
			at = &note->next;
			continue;
		}
		*at = note->next;
		note->next = all;
		all = note;
	}
	while ((note = all)) {
		all = note->next;
		rref_note_done(s, note, status, text);
	}
	arm(s);
}
