/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Dispatches the packets of messages in fragments and of one-way messages, and does their work of a pass. Shard
 * thread.
 */
#include "features/rendezvous/rendezvous.h"

#include "base/must.h"

#include <stdlib.h>
#include <string.h>

void large_list(struct shard *s, struct large_peer *p)
{
	if (p->listed)
		return;
	p->listed = true;
	p->next = NULL;
	*rendezvous_of(s)->last = p;
	rendezvous_of(s)->last = &p->next;
	s->poll_due |= FEATURE_BIT(FEATURE_RENDEZVOUS);
}

void large_tell(struct shard *s, struct large_peer *p, enum head_type type, unsigned lane, uint32_t life,
		uint64_t granted)
{
	struct head_units units = {p->units_received};
	struct shm_head h = {.type = (uint8_t)type,
			     .call = lane,
			     .gen = life,
			     .time_low = (uint32_t)granted,
			     .time_high = (uint32_t)(granted >> 32)};
	if (p->session->state != SESSION_UP)
		return;
	p->units_told = p->units_received;
	if (answer_packet(s, p->session, &h, &units, sizeof units))
		answer_no_room(s, p->session);
}

/* ---- packets ---- */

static bool read_units(const struct nic_pkt *pkt, uint64_t *done)
{
	struct head_units units;
	if (pkt->body_len != sizeof units)
		return false;
	memcpy(&units, pkt->body, sizeof units);
	*done = units.done;
	return true;
}

static bool on_told(struct shard *s, struct large_peer *p, const struct shm_head *h, const struct nic_pkt *pkt)
{
	uint64_t done;
	if (!read_units(pkt, &done))
		return false;
	switch (h->type) {
	case HEAD_CREDIT:
		return post_on_credit(s, p, h, done);
	case HEAD_GRANT:
		return large_units_acked(s, p, done) && large_on_grant(s, p, h);
	default:
		return large_units_acked(s, p, done) && large_on_refuse(s, p, h);
	}
}

bool large_receive(struct shard *s, struct session *se, const struct shm_head *h, const struct nic_pkt *pkt)
{
	bool held = false, fits = false;
	switch (h->type) {
	case HEAD_ONEWAY:
		post_on_packet(s, se, h, pkt);
		return false;
	case HEAD_ASK:
		post_credit(s, large_of(s, se), HEAD_ASKED);
		return false;
	case HEAD_CREDIT:
	case HEAD_GRANT:
	case HEAD_REFUSE:
		fits = on_told(s, large_of(s, se), h, pkt);
		break;
	case HEAD_LARGE:
		fits = large_on_announce(s, large_of(s, se), h, pkt);
		break;
	case HEAD_DATA:
		fits = large_on_data(s, large_of(s, se), h, pkt, &held);
		break;
	case HEAD_ABORT:
		fits = large_on_abort(s, large_of(s, se), h);
		break;
	default:
		break;
	}
	if (!fits) {
		counter_add(&s->counters.packets_dropped, 1);
		session_poisoned(s, se);
	}
	return held;
}

/* ---- passes ---- */

static bool has_more(const struct large_peer *p)
{
	bool more = p->queue || p->posts || p->held_n || p->ready;
	for (unsigned lane = 0; lane < FAR_LARGE_LANES; lane++)
		more |= p->out[lane].out || p->out[lane].aborting || p->in[lane].waiting;
	return more;
}

/*
 * One round over the peers that have something; one fragment is copied each way, for the first peer that has one. Peers
 * that still have something are listed again, behind those that come up meanwhile; the one that was served goes last.
 */
unsigned large_pump(struct shard *s)
{
	large_lent_look(s);
	struct large_peer *list = rendezvous_of(s)->first, *p, *served = NULL;
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
		bool took = !received && large_copy_one(s, p);
		n += large_admit(s, p);
		n += post_send_queued(s, p);
		n += large_announce(s, p);
		bool gave = !sent && large_send_one(s, p);
		received |= took;
		sent |= gave;
		if (!has_more(p))
			continue;
		if ((took || gave) && !served)
			served = p;
		else
			large_list(s, p);
	}
	if (served)
		large_list(s, served);
	if (rendezvous_of(s)->lent)
		s->poll_due |= FEATURE_BIT(FEATURE_RENDEZVOUS);
	return n + received + sent;
}

/* ---- sessions ---- */

void large_clear(struct large_peer *p)
{
	struct large_peer *next = p->next;
	bool listed = p->listed;
	memset(p, 0, sizeof *p);
	p->next = next;
	p->listed = listed;
}

struct large_peer *large_make(struct shard *s, struct session *se)
{
	se->large = shard_pool_carve(&rendezvous_of(s)->peers, sizeof *se->large);
	se->has_large = se->large != NULL;
	large_open(se);
	return se->large;
}

void large_open(struct session *se)
{
	struct large_peer *p = se->large;
	p->session = se;
	p->queue_tail = &p->queue;
	p->ready_tail = &p->ready;
	p->posts_tail = &p->posts;
	p->units_sent = p->units_acked = p->units_received = p->units_told = 0;
	p->posts_sent = p->posts_acked = p->posts_received = p->posts_told = 0;
	p->asked = false;
	for (unsigned lane = 0; lane < FAR_LARGE_LANES; lane++)
		p->out[lane].epoch = 0;
}

void large_close(struct shard *s, struct session *se)
{
	large_out_close(s, se->large);
	large_in_close(s, se->large);
	post_close(s, se->large);
}

/* ---- what the core calls ---- */

static bool init(struct shard *s)
{
	struct rendezvous_shard *r = s->state[FEATURE_RENDEZVOUS] = calloc(1, sizeof *r);
	if (!r)
		return false;
	r->last = &r->first;
	r->ins = shard_zeroed(FAR_LARGE_IN_MAX, sizeof *r->ins);
	for (unsigned i = 0; r->ins && i < FAR_LARGE_IN_MAX; i++) {
		r->ins[i].next = r->free;
		r->free = &r->ins[i];
	}
	return r->ins && shard_pool_init(&r->peers, (size_t)s->world * FAR_SHARDS_MAX, sizeof(struct large_peer));
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
	if (!se->large)
		return;
	large_clear(se->large);
	large_open(se);
}

static void session_detach(struct shard *s, struct session *se)
{
	if (se->large)
		large_close(s, se);
}

static bool session_owes_us(const struct session *se)
{
	const struct large_peer *p = se->large;
	/* What is acknowledged in batches is not owed before the batch is full. */
	if (p->asked || p->posts_sent - p->posts_acked >= FAR_POSTS_BATCH ||
	    p->units_sent - p->units_acked >= FAR_LARGE_BATCH)
		return true;
	for (unsigned lane = 0; lane < FAR_LARGE_LANES; lane++)
		if (p->out[lane].out || p->out[lane].aborting || p->in[lane].open)
			return true;
	return false;
}

static void request_send(struct shard *s, struct session *se, const struct call_start *start,
			 const struct shm_head *head)
{
	struct large_out *o = large_out_in(start->ready);
	o->kind = LARGE_REQUEST;
	o->deadline = start->deadline;
	o->head = *head;
	large_send(s, se, o);
}

static bool request_cancel(struct shard *s, struct session *se, uint32_t call, uint32_t gen)
{
	bool announced;
	return large_in_cancel(s, se->large, call, gen) ||
	       large_out_of_call(s, se->large, call, gen, LARGE_REPLY, &announced);
}

static void ready_hold(struct far_buf *ready)
{
	large_out_ref(large_out_in(ready));
}

static void ready_drop(struct shard *s, struct far_buf *ready)
{
	large_out_drop(s, large_out_in(ready));
}

static bool receive_place(const struct session *se, const struct shm_head *h, uint64_t len, struct nic_place *out)
{
	return large_place(se->large, h, len, out);
}

static void oneway_queue(struct shard *s, uint32_t worker, uint32_t shard, struct far_buf *message)
{
	post_queue(s, worker, shard, buf_data(message));
}

static void ack_request(struct shard *s, struct session *se)
{
	post_ask(s, large_of(s, se));
}

const struct shard_feature rendezvous_feature = {
	.name = "rendezvous",
	.init = init,
	.fini = fini,
	.stop = large_lent_look,
	.poll = large_pump,
	.session_up = session_up,
	.session_settled = post_early,
	.session_detach = session_detach,
	.only = {.request_send = request_send,
		 .reply_send = large_reply,
		 .call_detach = large_detach,
		 .request_cancel = request_cancel,
		 .ready_hold = ready_hold,
		 .ready_drop = ready_drop,
		 .packet = large_receive,
		 .receive_place = receive_place,
		 .session_owes = session_owes_us,
		 .oneway_queue = oneway_queue,
		 .ack_request = ack_request,
		 .ack_request_all = post_ask_all},
};
