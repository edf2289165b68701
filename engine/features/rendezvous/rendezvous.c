/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Dispatches the packets of messages in fragments and of one-way messages, and does their work of a pass. Shard
 * thread.
 */
#include "features/rendezvous/rendezvous.h"

#include "base/must.h"
#include "base/mutant.h"
#include "core/feature.h"
#include "core/packet.h"
#include "core/reply.h"
#include "core/session.h"
#include "core/shard.h"

#include <stdlib.h>
#include <string.h>

void rendezvous_list(struct shard *s, struct rendezvous_peer *p)
{
	if (p->listed)
		return;
	p->listed = true;
	p->next = NULL;
	*rendezvous_of(s)->last = p;
	rendezvous_of(s)->last = &p->next;
	s->poll_due |= FEATURE_BIT(FEATURE_RENDEZVOUS);
}

void rendezvous_send_control(struct shard *s, struct rendezvous_peer *p, unsigned lane, enum packet_type type,
			     unsigned flags)
{
	struct rendezvous_lane *l = &p->in[lane];
	struct packet_acked acked = {p->packets_received};
	union packet_head h = {
		.grant = {.type = (uint8_t)type, .flags = (uint8_t)flags, .lane = lane, .epoch = l->epoch}};
	if (p->session->state != SESSION_UP)
		return;
	l->refused |= type == PACKET_REFUSE;
	if (type == PACKET_GRANT)
		h.grant.granted = MUTANT(GRANT_DOUBLED) ? 2 * l->total : l->total;
	p->packets_reported = p->packets_received;
	if (answer_packet(s, p->session, &h, &acked, sizeof acked))
		answer_no_room(s, p->session);
}

/* ---- packets ---- */

static bool on_control(struct shard *s, struct rendezvous_peer *p, const union packet_head *h,
		       const struct nic_pkt *pkt)
{
	struct packet_acked acked;
	if (pkt->body_len != sizeof acked)
		return false;
	memcpy(&acked, pkt->body, sizeof acked);
	switch (h->type) {
	case PACKET_CREDIT:
		return oneway_on_credit(s, p, &h->credit, acked.packets);
	case PACKET_GRANT:
		return rendezvous_packets_acked(s, p, acked.packets) && rendezvous_on_grant(s, p, &h->grant);
	default:
		return rendezvous_packets_acked(s, p, acked.packets) && rendezvous_on_refuse(s, p, &h->lane);
	}
}

bool rendezvous_receive(struct shard *s, struct session *se, const union packet_head *h, const struct nic_pkt *pkt)
{
	bool held = false, fits = false;
	switch (h->type) {
	case PACKET_ONEWAY:
		oneway_on_packet(s, se, h, pkt);
		return false;
	case PACKET_CREDIT_REQUEST:
		oneway_send_credit(s, rendezvous_peer_of(s, se), PACKET_REQUESTED);
		return false;
	case PACKET_CREDIT:
	case PACKET_GRANT:
	case PACKET_REFUSE:
		fits = on_control(s, rendezvous_peer_of(s, se), h, pkt);
		break;
	case PACKET_RENDEZVOUS:
		fits = rendezvous_on_announce(s, rendezvous_peer_of(s, se), &h->rendezvous, pkt);
		break;
	case PACKET_DATA:
		fits = rendezvous_on_data(s, rendezvous_peer_of(s, se), &h->data, pkt, &held);
		break;
	case PACKET_ABORT:
		fits = rendezvous_on_abort(s, rendezvous_peer_of(s, se), &h->lane);
		break;
	default:
		break;
	}
	if (!fits) {
		counter_add(&s->counters.packets_dropped, 1);
		session_protocol_error(s, se);
	}
	return held;
}

/* ---- passes ---- */

static bool has_more(const struct rendezvous_peer *p)
{
	bool more = p->queue || p->oneways || p->held_n || p->ready || p->views_n;
	for (unsigned lane = 0; lane < FAR_RENDEZVOUS_LANES; lane++)
		more |= p->out[lane].out || p->out[lane].aborting || p->in[lane].waiting ||
			rendezvous_pulls(&p->in[lane]);
	return more;
}

/*
 * One round over the peers that have something; one fragment is copied each way, for the first peer that has one. Peers
 * that still have something are listed again, behind those that come up meanwhile; the one that was served goes last.
 */
static unsigned rendezvous_pump(struct shard *s)
{
	zero_copy_reap(s);
	struct rendezvous_peer *list = rendezvous_of(s)->first, *p, *served = NULL;
	bool received = false, sent = false;
	unsigned n = 0;
	s->poll_due &= ~FEATURE_BIT(FEATURE_RENDEZVOUS);
	rendezvous_of(s)->first = NULL;
	rendezvous_of(s)->last = &rendezvous_of(s)->first;
	s->send_stalled = false;
	while ((p = list)) {
		list = p->next;
		p->listed = false;
		if (p->session->state != SESSION_UP)
			continue;
		bool took = !received && (rendezvous_copy_one(s, p) || rendezvous_pull_one(s, p));
		rendezvous_views_reap(s, p);
		n += rendezvous_admit(s, p);
		n += oneway_send_queued(s, p);
		n += rendezvous_announce(s, p);
		bool gave = !sent && rendezvous_send_one(s, p);
		received |= took;
		sent |= gave;
		if (!has_more(p))
			continue;
		if ((took || gave) && !served)
			served = p;
		else
			rendezvous_list(s, p);
	}
	if (served)
		rendezvous_list(s, served);
	if (rendezvous_of(s)->zero_copy)
		s->poll_due |= FEATURE_BIT(FEATURE_RENDEZVOUS);
	return n + received + sent;
}

/* ---- sessions ---- */

void rendezvous_clear(struct rendezvous_peer *p)
{
	struct rendezvous_peer *next = p->next;
	bool listed = p->listed;
	memset(p, 0, sizeof *p);
	p->next = next;
	p->listed = listed;
}

struct rendezvous_peer *rendezvous_make(struct shard *s, struct session *se)
{
	se->rendezvous = shard_pool_carve(&rendezvous_of(s)->peers, sizeof *se->rendezvous);
	se->has_rendezvous = se->rendezvous != NULL;
	rendezvous_open(se);
	return se->rendezvous;
}

void rendezvous_open(struct session *se)
{
	struct rendezvous_peer *p = se->rendezvous;
	p->session = se;
	p->queue_tail = &p->queue;
	p->ready_tail = &p->ready;
	p->oneways_tail = &p->oneways;
	p->packets_sent = p->packets_acked = p->packets_received = p->packets_reported = 0;
	p->oneways_sent = p->oneways_acked = p->oneways_received = p->oneways_reported = 0;
	p->credit_requested = false;
	for (unsigned lane = 0; lane < FAR_RENDEZVOUS_LANES; lane++)
		p->out[lane].epoch = 0;
}

void rendezvous_close(struct shard *s, struct session *se)
{
	rendezvous_out_close(s, se->rendezvous);
	rendezvous_in_close(s, se->rendezvous);
	oneway_close(s, se->rendezvous);
}

/* ---- what the core calls ---- */

static bool init(struct shard *s)
{
	struct rendezvous_shard *r = s->state[FEATURE_RENDEZVOUS] = calloc(1, sizeof *r);
	if (!r)
		return false;
	r->last = &r->first;
	r->ins = shard_zeroed(FAR_RENDEZVOUS_IN_MAX, sizeof *r->ins);
	for (unsigned i = 0; r->ins && i < FAR_RENDEZVOUS_IN_MAX; i++) {
		r->ins[i].next = r->free;
		r->free = &r->ins[i];
	}
	return r->ins && shard_pool_init(&r->peers, (size_t)s->world * FAR_SHARDS_MAX, sizeof(struct rendezvous_peer));
}

static void fini(struct shard *s)
{
	struct rendezvous_shard *r = rendezvous_of(s);
	if (!r)
		return;
	shard_pool_fini(&r->peers);
	shard_zeroed_free(r->ins);
	free(r);
}

/* The record of a session before: others may still have it in a list. */
static void session_up(struct shard *s, struct session *se)
{
	(void)s;
	if (!se->rendezvous)
		return;
	rendezvous_clear(se->rendezvous);
	rendezvous_open(se);
}

static void session_detach(struct shard *s, struct session *se)
{
	if (se->rendezvous)
		rendezvous_close(s, se);
}

static bool session_owes_us(const struct session *se)
{
	const struct rendezvous_peer *p = se->rendezvous;
	/* What is acknowledged in batches is not owed before the batch is full. */
	if (p->credit_requested || p->oneways_sent - p->oneways_acked >= FAR_ONEWAYS_BATCH ||
	    p->packets_sent - p->packets_acked >= FAR_RENDEZVOUS_BATCH)
		return true;
	for (unsigned lane = 0; lane < FAR_RENDEZVOUS_LANES; lane++)
		if (p->out[lane].out || p->out[lane].aborting || p->in[lane].open)
			return true;
	return false;
}

static void request_send(struct shard *s, struct session *se, const struct call_start *start,
			 const struct packet_request *head)
{
	struct rendezvous_out *o = rendezvous_out_in(start->ready);
	o->deadline = start->deadline;
	o->head.request = *head;
	if (start->extra)
		rendezvous_out_fields(o, start->extra->tlv);
	rendezvous_send(s, se, o);
}

static bool request_cancel(struct shard *s, struct session *se, uint32_t call, uint32_t gen)
{
	enum call_progress progress;
	return rendezvous_in_cancel(s, se->rendezvous, call, gen) ||
	       rendezvous_out_of_call(s, se->rendezvous, call, gen, PACKET_REPLY, &progress);
}

static void ready_hold(struct far_buf *ready)
{
	rendezvous_out_ref(rendezvous_out_in(ready));
}

static void ready_drop(struct shard *s, struct far_buf *ready)
{
	rendezvous_out_drop(s, rendezvous_out_in(ready));
}

static bool receive_place(const struct session *se, const struct packet_data *h, uint64_t len,
			  struct nic_placement *out)
{
	return rendezvous_place(se->rendezvous, h, len, out);
}

static void oneway_queue(struct shard *s, uint32_t worker, uint32_t shard, struct far_buf *message)
{
	oneway_enqueue(s, worker, shard, buf_data(message));
}

static void ack_request(struct shard *s, struct session *se)
{
	oneway_request_credit(s, rendezvous_peer_of(s, se));
}

const struct shard_feature rendezvous_feature = {
	.name = "rendezvous",
	.init = init,
	.fini = fini,
	.stop = zero_copy_reap,
	.poll = rendezvous_pump,
	.session_up = session_up,
	.session_settled = oneway_session_settled,
	.session_detach = session_detach,
	.only = {.request_send = request_send,
		 .reply_send = rendezvous_reply,
		 .call_detach = rendezvous_detach,
		 .request_cancel = request_cancel,
		 .ready_hold = ready_hold,
		 .ready_drop = ready_drop,
		 .packet = rendezvous_receive,
		 .receive_place = receive_place,
		 .session_owes = session_owes_us,
		 .oneway_queue = oneway_queue,
		 .ack_request = ack_request,
		 .ack_request_all = oneway_request_credit_all},
};
