/* SPDX-License-Identifier: BSD-3-Clause */
/** Audit of one peer and its ring set. Poller, or any thread while no poller runs. */
#include "transport/audit_peer.h"

#include "transport/path.h"
#include "transport/port.h"
#include "transport/rings.h"

#define same(what, count, found) transport_audit_same(a, p, what, count, found)
#define fits(condition, what)    transport_audit_fits(a, p, condition, what)

/* No list of a peer is longer; a longer one has a cycle. */
#define LIST_MAX (FAR_TRANSPORT_SLOTS + FAR_TRANSPORT_WINDOW)

/* ---- sending ---- */

/* Counts of the messages that are sent to a peer, to compare with those that it keeps. */
struct out_found {
	uint32_t n, strict, open; /* all; those that keep their order; those with numbered packets */
	uint64_t bytes;           /* charged to the window */
};

/* Walks a list of messages; returns the last. */
static const struct transport_message *out_list(struct transport_auditor *a, const struct transport_peer *p,
						const struct transport_message *m, struct out_found *found)
{
	const struct transport_message *last = NULL;
	for (; m && found->n <= LIST_MAX; last = m, m = m->next) {
		found->n++;
		found->bytes += m->charged;
		found->strict += m->order != NIC_ORDER_NONE;
		found->open += m->done != 0;
		fits(m->charged == (m->buf ? m->len : 0), "a message is charged with other bytes than its body's");
		fits(!m->zero_copy || m->buf, "a zero-copy message has no owner");
		fits(!m->onesided || a->q->onesided.entry[m->onesided - 1].owner == m,
		     "an exposed message is not the owner of its entry");
	}
	return last;
}

/* Packets that are not acknowledged. */
static void audit_sent(struct transport_auditor *a, const struct transport_peer *p, struct out_found *all)
{
	const struct transport_rings *r = p->rings;
	uint64_t flying = 0, lines = 0;
	fits(p->next - p->una <= FAR_TRANSPORT_WINDOW, "more packets are unacknowledged than the window takes");
	for (uint32_t number = p->una; number != p->next && number - p->una < FAR_TRANSPORT_WINDOW; number++) {
		const struct transport_sent *e = &r->sent[number % FAR_TRANSPORT_WINDOW];
		flying += e->arrived ? 0 : e->len;
		fits(e->message != NULL, "a packet that is not acknowledged has no message");
		if (e->last)
			out_list(a, p, e->message, all);
		lines += e->lines;
	}
	same("bytes in flight", r->flying, flying);
	same("lines in flight", r->lines_flying, lines);
	fits(r->lane.room + lines <= TRANSPORT_LINES, "more lines are free than the lane has");
}

/* Messages of the first list, each of one packet. */
static void audit_small(struct transport_auditor *a, const struct transport_peer *p, struct out_found *all)
{
	const struct transport_rings *r = p->rings;
	struct out_found small = {0};
	const struct transport_message *last = out_list(a, p, r->out_next, &small);
	same("small messages that wait", r->small_n - r->small_sent, small.n);
	fits(!r->out_next || r->out_last == last, "the list of small messages ends elsewhere");
	all->n += small.n;
	all->bytes += small.bytes;
}

/* Messages of the second list; some are numbered in part. */
static void audit_bulk(struct transport_auditor *a, const struct transport_peer *p, struct out_found *all)
{
	const struct transport_rings *r = p->rings;
	struct out_found bulk = {0};
	const struct transport_message *last = out_list(a, p, r->bulk_next, &bulk);
	same("larger messages that keep an order", r->bulk_strict, bulk.strict);
	same("larger messages that are numbered in part", r->bulk_open, bulk.open);
	fits(r->bulk_open <= FAR_TRANSPORT_OPEN_MAX, "more larger messages are numbered in part than may be");
	fits(!r->bulk_next || r->bulk_last == last, "the list of larger messages ends elsewhere");
	uint32_t n = 0;
	for (const struct transport_message *m = r->bulk_next; m && n++ <= LIST_MAX; m = m->next) {
		fits(m->done < m->len || m->len == 0, "a larger message waits, and all of it is numbered");
		fits(r->small_n - m->after <= INT32_MAX, "a larger message waits for more small ones than there were");
		fits(!m->done || m->order == NIC_ORDER_NONE || r->small_sent - m->after <= INT32_MAX,
		     "a larger message has begun before small ones that it must not pass");
	}
	all->n += bulk.n;
	all->bytes += bulk.bytes;
}

static void audit_out(struct transport_auditor *a, const struct transport_peer *p)
{
	struct out_found all = {0};
	audit_sent(a, p, &all);
	audit_small(a, p, &all);
	audit_bulk(a, p, &all);
	same("messages to be sent or acknowledged", p->out_n, all.n);
	same("bytes of bodies to be sent or acknowledged", p->out_bytes, all.bytes);
	fits(p->out_n <= FAR_TRANSPORT_SLOTS, "more messages are out than there are slots");
	fits(p->out_bytes <= FAR_TRANSPORT_OUT_BYTES, "more bytes of bodies are out than may be");
	a->out_n += all.n;
}

/* ---- receiving ---- */

/* Walks a list of received messages. */
static uint32_t in_list(struct transport_auditor *a, const struct transport_peer *p, const struct transport_message *m)
{
	uint32_t n = 0;
	for (; m && n <= LIST_MAX; m = m->next, n++) {
		a->in_bytes += m->charged;
		fits(m->peer == p, "a message that arrived is of another peer");
	}
	return n;
}

static bool is_assembled(const struct transport_rings *r, const struct transport_message *m)
{
	bool found = false;
	for (unsigned i = 0; i < FAR_TRANSPORT_ASSEMBLIES; i++)
		found |= r->assembling[i] == m;
	return found;
}

/* Packets out of order. */
static void audit_arrived(struct transport_auditor *a, const struct transport_peer *p)
{
	const struct transport_rings *r = p->rings;
	uint32_t early = 0, unordered = 0;
	for (uint32_t i = 0; i < FAR_TRANSPORT_WINDOW; i++) {
		const struct transport_message *m = r->arrived[(p->rx_next + i) % FAR_TRANSPORT_WINDOW].message;
		if (!m)
			continue;
		early++;
		fits(i != 0 || p->dead, "the packet that is due has come and was not taken");
		if (m == &transport_handed_up)
			continue;
		unordered += m->unordered;
		if (!is_assembled(r, m))
			in_list(a, p, m);
	}
	same("packets before their turn", p->early_n, early);
	same("packets that wait for one that they may not pass", r->unordered_n, unordered);
}

/* Incomplete messages. */
static void audit_assembling(struct transport_auditor *a, const struct transport_peer *p)
{
	const struct transport_rings *r = p->rings;
	uint32_t begun = 0;
	for (unsigned i = 0; i < FAR_TRANSPORT_ASSEMBLIES; i++) {
		const struct transport_message *m = r->assembling[i];
		uint64_t early = 0;
		if (!m)
			continue;
		begun += m->begun;
		a->in_bytes += m->charged;
		fits(m->peer == p, "a message that is not whole is of another peer");
		for (uint32_t k = 0; k < FAR_TRANSPORT_WINDOW; k++)
			early += r->arrived[k].message == m ? r->arrived[k].len : 0;
		same("bytes of a message before their turn", m->early, early);
		fits(m->done <= m->len && m->granted <= m->len, "more of a message came or was granted than there is");
		fits(m->transfer != TRANSPORT_RX_READING ||
			     (m->onesided && a->q->onesided.reading[m->onesided - 1].message == m),
		     "a message that is read has no entry");
	}
	same("messages that have begun", p->begun_n, begun);
	fits(begun <= FAR_TRANSPORT_OPEN_MAX, "more messages have begun than may");
	a->begun_n += begun;
	a->senders_n += begun != 0;
}

static void audit_held(struct transport_auditor *a, const struct transport_peer *p)
{
	const struct transport_rings *r = p->rings;
	struct transport_message *const *end = &r->held_first;
	in_list(a, p, r->held_first);
	for (uint32_t n = 0; *end && n <= LIST_MAX; n++)
		end = &(*end)->next;
	fits(r->held_last == end, "the list of messages that wait for their session ends elsewhere");
	fits(!p->attached || !r->held_first, "messages wait for a session that is there");
}

/* ---- lists of the queue ---- */

bool transport_audit_delayed_ack(const struct transport_peer *p)
{
	return p->owed && p->started && !p->dead && !p->loop && !p->active && !p->ack_now;
}

/* A peer with a timer is active, or has a delayed acknowledgement. */
static void audit_timers(struct transport_auditor *a, const struct transport_peer *p)
{
	const struct transport_queue *q = a->q;
	bool alive = p->started && !p->dead && !p->loop;
	a->active_n += p->active;
	a->backlogged_n += p->backlogged;
	a->acks_n += p->ack_now;
	a->kicks_n += p->kick;
	a->failed_over_n += p->failed_over;
	fits(!p->active || (p->active_at < q->actives_n && q->actives[p->active_at] == p),
	     "it is active, and has another's place among them");
	if (!alive)
		return;
	a->awake_n += !q->port->lower_caps.wake && !p->sleep_sent;
	fits(p->una == p->next || p->active, "packets are unacknowledged, and nobody looks at the time");
	fits((!p->early_n && !p->begun_n) || p->active, "a message has come in part, and nobody looks at the time");
	fits(!transport_has_unsent(p) || !p->confirmed || p->backlogged || p->active,
	     "messages are to be sent, and nobody sends them");
	a->owed_n += transport_audit_delayed_ack(p);
}

static void audit_ways(struct transport_auditor *a, const struct transport_peer *p)
{
	const struct transport_paths *paths = p->paths;
	if (!paths) {
		fits(p->via == p->queue && !p->secondary && !p->current_path,
		     "it goes by a path that it does not have");
		return;
	}
	for (unsigned k = 1; k <= FAR_TRANSPORT_SECONDARY_PATHS_MAX; k++)
		fits((p->secondary >> k & 1) == (paths->path[k].via && paths->path[k].attached),
		     "a path is among those that can be used and is not attached, or the reverse");
	fits(p->via == paths->path[p->current_path].via && p->lower_peer == paths->path[p->current_path].lower_peer,
	     "what it is sent by is not the path that is taken");
}

void transport_audit_peer(struct transport_auditor *a, const struct transport_peer *p)
{
	uint32_t ready = 0;
	fits(p->queue == a->q, "it is another queue's");
	for (const struct transport_message *m = a->q->ready_first; m; m = m->next)
		ready += m->peer == p;
	same("complete messages that are to be delivered", p->ready_n, ready);
	audit_timers(a, p);
	audit_ways(a, p);
	fits(!p->dead || !p->begun_n, "it is dead, and messages of it are granted");
	/* Before START the window is the control thread's. */
	fits(!p->started || (p->window <= FAR_TRANSPORT_WINDOW && p->window_bulk <= p->window),
	     "its window is beyond what may be");
	if (p->loop) {
		a->loops = true;
		return;
	}
	if (p->rings) {
		a->rings_n++;
		fits(p->rings->peer == p, "its set is another's");
		audit_out(a, p);
		audit_arrived(a, p);
		audit_assembling(a, p);
		audit_held(a, p);
	} else {
		fits(p->una == p->next && !p->out_n && !p->out_bytes && !p->early_n && !p->begun_n && !p->fragments,
		     "something is under way, and it has no set");
	}
}
