/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The part of the audit that checks sessions: their lists, the remains of those that have ended, and the totals of
 * the shard. Simulator only, between two passes. Shard thread.
 */
#include "features/audit/audit.h"

#include "core/deferred.h"
#include "core/packet.h"
#include "core/queues.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/waiting.h"
#include "features/faults/fault.h"
#include "features/references/rref.h"
#include "features/rendezvous/rendezvous.h"

#include <inttypes.h>

/* Of all sessions. */
struct totals {
	uint32_t backpressured, unsent_mails, undetached, listed, up[FAR_PORTS_MAX];
	uint64_t rendezvous, sends;
};

static void same(const struct auditor *a, const struct session *se, const char *what, uint64_t count, uint64_t found)
{
	if (count != found && se)
		audit_printf(a, "session with worker %" PRIu32 ", shard %u: %s: counted %" PRIu64 ", found %" PRIu64,
			     se->worker, se->shard, what, count, found);
	else if (count != found)
		audit_printf(a, "%s: counted %" PRIu64 ", found %" PRIu64, what, count, found);
}

static void fits(const struct auditor *a, const struct session *se, bool yes, const char *what)
{
	if (!yes)
		audit_printf(a, "session with worker %" PRIu32 ", shard %u: %s", se->worker, se->shard, what);
}

static uint64_t counter(const _Atomic uint64_t *c)
{
	return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)c, memory_order_relaxed);
}

static uint32_t oneways_of(const struct oneway *oneway)
{
	uint32_t n = 0;
	for (; oneway; oneway = oneway->next)
		n++;
	return n;
}

/* ---- fragments and one-way messages ---- */

static bool has_more(const struct rendezvous_peer *p)
{
	bool more = p->queue || p->oneways || p->held_n || p->ready;
	for (unsigned lane = 0; lane < FAR_RENDEZVOUS_LANES; lane++)
		more |= p->out[lane].out || p->out[lane].aborting || p->in[lane].waiting ||
			rendezvous_pulls(&p->in[lane]);
	return more;
}

/* What of it counts as begun and not ended. */
static uint64_t sends_of(const struct rendezvous_peer *p, uint64_t *rendezvous)
{
	uint64_t n = p->oneways_sent - p->oneways_acked + p->packets_sent - p->packets_acked + oneways_of(p->oneways);
	bool queued = false;
	for (const struct rendezvous_out *o = p->queue; o; o = o->next) {
		queued |= o == p->oneway;
		++*rendezvous;
		n++;
	}
	for (unsigned lane = 0; lane < FAR_RENDEZVOUS_LANES; lane++) {
		*rendezvous += p->out[lane].out != NULL;
		n += p->out[lane].out != NULL;
	}
	return n + queued;
}

static void audit_rendezvous(const struct auditor *a, const struct session *se, struct totals *t)
{
	const struct rendezvous_peer *p = se->rendezvous;
	struct rendezvous_out *const *queue_end = &p->queue;
	struct rendezvous_in *const *ready_end = &p->ready;
	struct oneway *const *oneways_end = &p->oneways;
	uint32_t oneways = 0;
	while (*queue_end)
		queue_end = &(*queue_end)->next;
	while (*ready_end)
		ready_end = &(*ready_end)->next;
	while (*oneways_end)
		oneways_end = &(*oneways_end)->next;
	fits(a, se, p->queue_tail == queue_end && p->ready_tail == ready_end && p->oneways_tail == oneways_end,
	     "a list of rendezvous or one-way messages ends elsewhere");
	for (unsigned i = 0; i < FAR_RENDEZVOUS_IN_MAX; i++)
		oneways +=
			rendezvous_of(a->s)->ins[i].peer == p && rendezvous_of(a->s)->ins[i].head.type == PACKET_ONEWAY;
	same(a, se, "one-way messages that arrive in fragments", p->oneways_n, oneways);
	fits(a, se, p->session == se, "what is kept of its fragments is another session's");
	fits(a, se, se->state != SESSION_UP || p->listed || !has_more(p),
	     "fragments or one-way messages wait, and nobody sees to them");
	t->listed += p->listed;
	t->sends += sends_of(p, &t->rendezvous);
}

/* ---- a session ---- */

static void audit_waiting(const struct auditor *a, const struct session *se, struct totals *t)
{
	bool backpressured = se->backpressured & SESSION_BACKPRESSURED;
	same(a, se, "calls that wait for it", se->waiting_n, waiting_length(se));
	fits(a, se, backpressured == (se->backpressured_head != NULL),
	     "its answers are kept and it is not blocked, or the reverse");
	fits(a, se, !se->paused_n || se->paused, "requests are paused nowhere");
	fits(a, se, !se->draining || se->waiting, "calls that waited for it are to be sent, and there are none");
	for (const struct far_deferred *d = se->open; d; d = d->open_next)
		fits(a, se, d->session == se->index && !d->gone, "an open request is another session's, or gone");
	t->backpressured += backpressured + se->draining;
	t->undetached += se->unsent_mails >> MAIL_DETACHED & 1;
	t->sends += oneways_of(se->oneways_early);
}

/* The next session in its slot must find nothing. */
static void audit_ended(const struct auditor *a, const struct session *se)
{
	const struct rendezvous_peer *p = se->rendezvous;
	fits(a, se, !se->calls_active && !se->calls_max, "it is not up, and has calls or credits");
	fits(a, se, !se->open && !se->open_n && !se->backpressured_head && !se->backpressured && !se->draining,
	     "it is not up, and has open requests or answers");
	fits(a, se, !se->paused && !se->paused_n, "it is not up, and has paused requests");
	fits(a, se, !se->retry_caller && !se->retry_callee, "it is not up, and has calls that may be repeated");
	/* What a member holds outlives its session. */
	fits(a, se, se->worker_alive || !se->rref_forks, "it is not up, and its peer has forks");
	fits(a, se, se->worker_alive || !se->rref_pins, "it is not up, and results wait for its peer to accept them");
	if (!p)
		return;
	fits(a, se, !has_more(p) && !p->oneway && !p->oneways_n, "it is not up, and has fragments or one-way messages");
	fits(a, se, p->oneways_sent == p->oneways_acked && p->packets_sent == p->packets_acked,
	     "it is not up, and awaits acknowledgements");
	for (unsigned lane = 0; lane < FAR_RENDEZVOUS_LANES; lane++)
		fits(a, se, !p->in[lane].open && !p->in[lane].in,
		     "it is not up, and has a rendezvous message that arrives");
}

static void audit_state(const struct auditor *a, const struct session *se, struct totals *t)
{
	audit_waiting(a, se, t);
	if (se->rendezvous)
		audit_rendezvous(a, se, t);
	fits(a, se, se->has_rendezvous == (se->rendezvous != NULL), "its flag of fragments is wrong");
	if (se->state != SESSION_UP) {
		audit_ended(a, se);
		return;
	}
	const struct shard_queue *sq = &a->s->queues[se->port];
	t->up[se->port]++;
	fits(a, se, sq->q == se->q && sq->peer_session[se->peer] == se->index + 1,
	     "what its peer sends is another session's");
}

/* ---- the shard ---- */

static void audit_totals(const struct auditor *a, const struct totals *t)
{
	const struct shard *s = a->s;
	uint32_t listed = 0, unsent_mails = 0, held_back = 0, ins = 0;
	for (const struct rendezvous_peer *p = rendezvous_of(s)->first; p && listed <= t->listed; p = p->next)
		listed++;
	for (const struct session *se = s->unsent_mails; se && unsent_mails <= t->unsent_mails; se = se->next_unsent)
		unsent_mails++;
	for (const struct fault_delayed *l = fault_shard(s)->late; l; l = l->next)
		held_back += !l->answer;
	for (unsigned i = 0; i < FAR_RENDEZVOUS_IN_MAX; i++)
		ins += rendezvous_of(s)->ins[i].peer != NULL;
	same(a, NULL, "sessions that wait for room", s->backpressured_n, t->backpressured);
	same(a, NULL, "sessions with mail for the control thread", t->unsent_mails, unsent_mails);
	same(a, NULL, "sessions that may not open again yet", s->undetached_n, t->undetached);
	same(a, NULL, "peers whose fragments are seen to", t->listed, listed);
	same(a, NULL, "calls that are held back", fault_shard(s)->delayed_calls_n, held_back);
	same(a, NULL, "rendezvous messages in flight", counter(&s->counters.rendezvous_active), t->rendezvous + ins);
	same(a, NULL, "sends that are begun and not ended",
	     counter(&s->counters.sends_begun) - counter(&s->counters.sends_ended),
	     t->sends + counter(&s->rrefs->msgs_n));
	for (unsigned i = 0; i < s->queues_n; i++)
		same(a, NULL, "sessions of a queue", s->queues[i].peers, t->up[i]);
}

void audit_sessions(const struct auditor *a)
{
	struct totals t = {0};
	for (const struct session *se = a->s->known; se; se = se->next_known) {
		t.unsent_mails += se->unsent_mails != 0;
		audit_state(a, se, &t);
	}
	audit_totals(a, &t);
}
