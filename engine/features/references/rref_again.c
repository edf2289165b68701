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
#include "core/shard.h"
#include "core/timer.h"
#include "features/references/rref.h"

static enum far_fault_kind fault_kind(const struct rref_msg *msg)
{
	switch ((enum rref_kind)msg->kind) {
	case RREF_FORK:
		return FAR_FAULT_FORK;
	case RREF_ACCEPT:
		return FAR_FAULT_ACCEPT;
	default: /* FAILED is sent in place of a DELETE */
		return FAR_FAULT_DELETE;
	}
}

static_assert(RREF_DELAYED_QUEUES == FAULT_SENDS_MAX, "by tries, the last is not sent again; 0: on purpose");

#define RREF_RECALL_DOUBLINGS 10u /* of the wait between two RECALLs: about 1 s at most */

/* The queue whose first is due first; NULL: there is none. */
static struct rref_delayed *first_due(struct rref_shard *rs)
{
	struct rref_delayed *due = NULL;
	for (struct rref_delayed *q = rs->late; q < rs->late + RREF_DELAYED_QUEUES; q++)
		if (q->first && (!due || q->first->due < due->first->due))
			due = q;
	return due;
}

static void on_due(struct shard *s, struct shard_timer *t);

static void arm(struct shard *s)
{
	struct rref_shard *rs = s->rrefs;
	const struct rref_delayed *q = first_due(rs);
	uint64_t at = q ? q->first->due : 0;
	if (at == rs->due_at)
		return;
	if (rs->due_at)
		timer_disarm(&s->wheel, &rs->due_timer.timer);
	rs->due_at = at;
	rs->due_timer.fn = on_due;
	if (at)
		timer_arm(&s->wheel, &rs->due_timer.timer, at);
}

static void take(struct rref_shard *rs, struct rref_delayed *q, struct rref_msg **at, struct rref_msg *before)
{
	struct rref_msg *msg = *at;
	*at = msg->next;
	if (q->last == msg)
		q->last = before;
	rs->late_n--;
}

/* Those that are due leave the queues first: sending may add others. */
static void on_due(struct shard *s, struct shard_timer *t)
{
	struct rref_shard *rs = s->rrefs;
	uint64_t now = clock_now(s->config.clock);
	struct rref_msg *msg, *due = NULL, **due_end = &due;
	struct rref_delayed *q;
	(void)t;
	rs->due_at = 0;
	while ((q = first_due(rs)) && (msg = q->first)->due <= now) {
		take(rs, q, &q->first, NULL);
		msg->next = NULL;
		*due_end = msg;
		due_end = &msg->next;
	}
	while ((msg = due)) {
		due = msg->next;
		rref_msg_resend(s, msg);
	}
	arm(s);
}

/* `queue`: of those that wait as long. After a delay was made shorter it is looked through once for each. */
static void later(struct shard *s, struct rref_msg *msg, uint64_t ns, unsigned queue)
{
	struct rref_delayed *q = &s->rrefs->late[queue];
	struct rref_msg **at = q->last ? &q->last->next : &q->first;
	msg->due = time_after(clock_now(s->config.clock), ns);
	if (q->last && q->last->due > msg->due)
		for (at = &q->first; (*at)->due <= msg->due;)
			at = &(*at)->next;
	msg->next = *at;
	*at = msg;
	if (!msg->next)
		q->last = msg;
	s->rrefs->late_n++;
	arm(s);
}

bool rref_msg_retry(struct shard *s, struct rref_msg *msg)
{
	uint64_t ns = s->config.rref_retry_ns ? s->config.rref_retry_ns : FAR_RREF_RETRY_NS;
	if (s->stopped || ++msg->tries >= FAULT_SENDS_MAX)
		return false;
	for (unsigned i = 1; i < msg->tries; i++)
		ns += ns / 2;
	later(s, msg, ns, msg->tries);
	return true;
}

void rref_recall_again(struct shard *s, struct rref_msg *msg)
{
	later(s, msg, FAR_RREF_RETRY_NS << msg->tries, 0);
	msg->tries += msg->tries < RREF_RECALL_DOUBLINGS;
}

bool rref_msg_fault(struct shard *s, struct rref_msg *msg)
{
	static const char text[] =
		"the control message about the reference was made to fail (far_fault_set) as often as it is sent";
	enum far_fault_kind kind = fault_kind(msg);
	struct faults *f = s->config.faults;
	if (s->stopped || msg->kind == RREF_RECALL || !fault_set_for(f, kind))
		return false;
	const struct fault *fault =
		msg->marked ? atomic_load_explicit(&f->of[kind], memory_order_acquire) : fault_of(f, kind);
	if (!fault)
		return false;
	msg->marked = true;
	if (msg->tries < fault->fail_sends) {
		counter_add_shared(&f->failed[kind], 1);
		if (!rref_msg_retry(s, msg))
			rref_msg_done(s, msg, FAR_INJECTED, text);
		return true;
	}
	if (!fault->delay_ns || msg->delayed)
		return false;
	msg->delayed = true;
	counter_add_shared(&f->delayed[kind], 1);
	later(s, msg, fault->delay_ns, 0);
	return true;
}

static struct rref_msg *take_of_session(struct rref_shard *rs, struct rref_delayed *q, uint32_t session,
					struct rref_msg *all)
{
	struct rref_msg *msg, *before = NULL, **at = &q->first;
	while ((msg = *at)) {
		if (msg->session != session) {
			before = msg;
			at = &msg->next;
			continue;
		}
		take(rs, q, at, before);
		msg->next = all;
		all = msg;
	}
	return all;
}

void rref_delayed_drop(struct shard *s, uint32_t session, enum far_status status, const char *text)
{
	struct rref_msg *msg, *all = NULL;
	for (unsigned i = 0; i < RREF_DELAYED_QUEUES; i++)
		all = take_of_session(s->rrefs, &s->rrefs->late[i], session, all);
	while ((msg = all)) {
		all = msg->next;
		rref_msg_done(s, msg, status, text);
	}
	arm(s);
}
