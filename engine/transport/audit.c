/* SPDX-License-Identifier: BSD-3-Clause */
/** Audit of a queue: lists, sums over all peers, ring sets. Poller, or any thread while no poller runs. */
#include "transport/audit.h"

#include "transport/audit_peer.h"
#include "transport/port.h"
#include "transport/rings.h"

#include <inttypes.h>
#include <stdarg.h>

#define same(what, count, found) transport_audit_same(a, NULL, what, count, found)
#define fits(condition, what)    transport_audit_fits(a, NULL, condition, what)

void transport_audit_printf(struct transport_auditor *a, const struct transport_peer *p, const char *format, ...)
{
	char text[256];
	va_list args;
	int n = p ? snprintf(text, sizeof text, "transport %s, queue %" PRIu32 ", peer %" PRIu32 ": ",
			     a->q->port->ops.name, a->q->index, p->index)
		  : snprintf(text, sizeof text, "transport %s, queue %" PRIu32 ": ", a->q->port->ops.name, a->q->index);
	va_start(args, format);
	if (n > 0 && (size_t)n < sizeof text)
		vsnprintf(text + n, sizeof text - (size_t)n, format, args);
	va_end(args);
	a->found++;
	a->report(a->ctx, text);
}

void transport_audit_same(struct transport_auditor *a, const struct transport_peer *p, const char *what, uint64_t count,
			  uint64_t found)
{
	if (count != found)
		transport_audit_printf(a, p, "%s: counted %" PRIu64 ", found %" PRIu64, what, count, found);
}

void transport_audit_fits(struct transport_auditor *a, const struct transport_peer *p, bool fits, const char *what)
{
	if (!fits)
		transport_audit_printf(a, p, "%s", what);
}

/* ---- sets and messages ---- */

static void audit_sets(struct transport_auditor *a)
{
	const struct transport_queue *q = a->q;
	uint32_t idle = 0;
	for (const struct transport_rings *r = q->rings_free; r && idle <= q->rings_carved; r = r->next_free, idle++) {
		fits(!r->peer, "a free set has a peer");
		fits(transport_rings_are_new(r), "a free set is not as a new one");
	}
	same("sets that are taken", q->rings_n, a->rings_n);
	same("sets that were ever used", q->rings_carved, a->rings_n + idle);
}

static void audit_messages(struct transport_auditor *a)
{
	const struct transport_queue *q = a->q;
	uint32_t out_free = 0, in_free = 0;
	for (const struct transport_message *m = q->out_free; m && out_free <= q->carved; m = m->next)
		out_free++;
	for (const struct transport_message *m = q->free; m && in_free <= q->free_n; m = m->next)
		in_free++;
	same("free messages of those that arrive", q->free_n, in_free);
	/* Loopback messages are delivered as they are, and the engine may hold some. */
	if (a->loops)
		fits(out_free + a->out_n <= q->carved, "there are more messages to be sent than were made");
	else
		same("messages to be sent that were ever used", q->carved, out_free + a->out_n);
}

static void audit_ready(struct transport_auditor *a)
{
	const struct transport_queue *q = a->q;
	struct transport_message *const *end = &q->ready_first;
	uint64_t bytes = a->in_bytes + q->handed_bytes;
	for (; *end; end = &(*end)->next) {
		const struct transport_peer *p = (*end)->peer;
		bytes += (*end)->own ? (*end)->charged : 0;
		fits(p && q->peers[p->index] == p, "a complete message is of a peer that is gone");
	}
	fits(q->ready_last == end, "the list of complete messages ends elsewhere");
	for (const struct transport_message *m = q->burst; m; m = m->next)
		bytes += m->own ? m->charged : 0;
	same("bytes of messages that arrived", q->in_bytes, bytes);
	fits(q->in_bytes <= FAR_TRANSPORT_IN_BYTES, "more bytes of messages have arrived than may");
}

/* ---- lists of peers ---- */

static void audit_backlog(struct transport_auditor *a)
{
	const struct transport_queue *q = a->q;
	const struct transport_peer *last = NULL;
	uint32_t n = 0;
	for (const struct transport_peer *p = q->backlog_first; p && p->rings && n <= a->backlogged_n; n++) {
		fits(p->backlogged, "the backlog has a peer that is not marked as in it");
		last = p;
		p = p->rings->next_backlog;
	}
	same("peers of the backlog", a->backlogged_n, n);
	fits(q->backlog_last == last, "the backlog ends elsewhere");
}

static void audit_owing(struct transport_auditor *a)
{
	const struct transport_queue *q = a->q;
	uint32_t n = 0;
	uint64_t at = 0;
	bool sorted = q->delayed_n <= FAR_TRANSPORT_PEERS_MAX;
	for (uint32_t i = 0; sorted && i < q->delayed_n; i++) {
		const struct transport_delayed_ack *o = &q->delayed[(q->delayed_first + i) % FAR_TRANSPORT_PEERS_MAX];
		n += transport_audit_delayed_ack(o->peer) && o->at == o->peer->ack_at;
		sorted = o->at >= at;
		at = o->at;
	}
	fits(sorted, "acknowledgements that are owed are not in the order of time");
	fits(n >= a->owed_n, "an acknowledgement is owed, and nobody sends it");
}

static void audit_peer_lists(struct transport_auditor *a)
{
	const struct transport_queue *q = a->q;
	bool ours = true, awake = true;
	same("active peers", q->actives_n, a->active_n);
	same("peers that are to be acknowledged", q->acks_n, a->acks_n);
	same("peers that are to be kicked", q->kicks_n, a->kicks_n);
	same("peers that go by other paths", q->failed_over_n, a->failed_over_n);
	for (uint32_t i = 0; i < q->actives_n; i++)
		ours &= q->actives[i]->active;
	for (uint32_t i = 0; i < q->acks_n; i++)
		ours &= q->acks[i]->ack_now;
	for (uint32_t i = 0; i < q->kicks_n; i++)
		ours &= q->kicks[i]->kick;
	for (uint32_t i = 0; i < q->awake_n; i++)
		awake &= !q->awake[i]->sleep_sent && q->peers[q->awake[i]->index] == q->awake[i];
	fits(ours, "a list has a peer that is not marked as in it");
	fits(awake, "a peer is listed as unaware of the sleep, and was notified or is gone");
	fits(q->awake_n >= a->awake_n, "a peer is unaware of the sleep, and is in no list");
	audit_backlog(a);
	audit_owing(a);
	fits(!q->batch.peer || q->peers[q->batch.peer->index] == q->batch.peer,
	     "a packet of several messages is handed up whose peer is gone");
}

/* ---- grants ---- */

static void audit_chosen(struct transport_auditor *a)
{
	const struct transport_grants *g = &a->q->grants;
	bool listed = g->chosen_n <= FAR_TRANSPORT_GRANTED_MAX, timed = !g->timed;
	for (unsigned i = 0; listed && i < g->chosen_n; i++) {
		const struct transport_message *m = g->first;
		while (m && m != g->chosen[i])
			m = m->in_next;
		listed = m != NULL;
	}
	for (const struct transport_message *m = g->first; m && !timed; m = m->in_next)
		timed = m == g->timed;
	fits(listed, "a message is chosen for grants that is not in their list");
	fits(timed, "a message is timed that is not in the list of grants");
}

static void audit_grants(struct transport_auditor *a)
{
	const struct transport_grants *g = &a->q->grants;
	const struct transport_message *before = NULL;
	uint64_t out = 0;
	uint32_t n = 0;
	for (const struct transport_message *m = g->first; m && n <= g->n; before = m, m = m->in_next, n++) {
		fits(m->begun && m->in_prev == before, "the list of grants has a message that has not begun");
		out += !m->stalled && m->granted > m->done ? m->granted - m->done : 0;
	}
	fits(g->last == before, "the list of grants ends elsewhere");
	same("messages of the list of grants", g->n, n);
	same("messages that are granted, of all peers", g->n, a->begun_n);
	same("peers that send messages that are granted", g->senders_n, a->senders_n);
	same("bytes granted that have not come", g->out, out);
	audit_chosen(a);
}

/* ---- messages that are read ---- */

static void audit_reading(struct transport_auditor *a, uint32_t i)
{
	const struct transport_onesided_table *o = &a->q->onesided;
	const struct transport_reading *r = &o->reading[i];
	const struct transport_message *m = r->message;
	uint32_t out = 0;
	if (!m)
		return;
	for (uint32_t k = 0; k < FAR_TRANSPORT_ONESIDED; k++)
		out += o->entry[k].state == TRANSPORT_ONESIDED_READING && o->entry[k].owner == m;
	fits(m->onesided == i + 1 && m->transfer == TRANSPORT_RX_READING,
	     "an entry of what is read is of another message");
	same("reads of a message that are under way", r->out, out);
}

static void audit_onesided(struct transport_auditor *a)
{
	const struct transport_onesided_table *o = &a->q->onesided;
	uint32_t n = 0, exposed = 0;
	for (uint32_t i = 0; i < FAR_TRANSPORT_ONESIDED; i++) {
		const struct transport_onesided *e = &o->entry[i];
		const struct transport_message *m = e->owner;
		bool reads = e->state == TRANSPORT_ONESIDED_READING, gone = e->state == TRANSPORT_ONESIDED_WITHDRAWING;
		audit_reading(a, i);
		if (e->state == TRANSPORT_ONESIDED_FREE) {
			fits(!m && !e->buf, "a free entry of what is exposed or read has memory");
			continue;
		}
		n++;
		exposed += !reads;
		fits(e->buf != NULL, "an entry of what is exposed or read has no memory");
		fits(!gone || !m, "what was withdrawn has an owner");
		fits(reads || gone || (m && m->onesided == i + 1), "what is exposed is not its message's");
	}
	same("entries of what is exposed or read", o->n, n);
	same("entries of what is exposed", o->exposed_n, exposed);
	fits(exposed <= FAR_TRANSPORT_EXPOSED, "more messages are exposed than may be");
}

/* ---- all of it ---- */

static uint64_t audit(struct transport_auditor *a)
{
	const struct transport_queue *q = a->q;
	for (uint32_t i = 0; i < q->peers_end; i++)
		if (q->peers[i])
			transport_audit_peer(a, q->peers[i]);
	audit_sets(a);
	audit_messages(a);
	audit_ready(a);
	audit_peer_lists(a);
	audit_grants(a);
	audit_onesided(a);
	return a->found;
}

void transport_audit_queue(const struct transport_queue *q, transport_audit_report *report, void *ctx)
{
	struct transport_auditor a = {.q = q, .report = report, .ctx = ctx};
	audit(&a);
}

void transport_audit_port(const struct nic_port *port, transport_audit_report *report, void *ctx)
{
	if (transport_lower((struct nic_port *)(uintptr_t)port) == port)
		return;
	const struct transport_port *p = (const struct transport_port *)port;
	for (uint32_t i = 0; i < p->queues_n; i++)
		transport_audit_queue(p->queues[i], report, ctx);
}

static void to_stderr(void *ctx, const char *text)
{
	(void)ctx;
	fprintf(stderr, "farcall: %s\n", text);
}

bool transport_audit_paused;

bool transport_audit_agrees(const struct transport_queue *q)
{
	if (transport_audit_paused)
		return true;
	struct transport_auditor a = {.q = q, .report = to_stderr};
	return audit(&a) == 0;
}
