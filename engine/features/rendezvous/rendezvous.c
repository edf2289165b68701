/* SPDX-License-Identifier: BSD-3-Clause */
/** Fragments and one-way messages: the packets' ways in, and what a pass does for them. */
#include "features/rendezvous/rendezvous.h"

#include "base/must.h"

#include <string.h>

void large_list(struct shard *s, struct large_peer *p)
{
	if (p->listed)
		return;
	p->listed = true;
	p->next = NULL;
	*s->large_last = p;
	s->large_last = &p->next;
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
	struct large_peer *list = s->large_first, *p, *served = NULL;
	bool received = false, sent = false;
	unsigned n = 0;
	s->large_first = NULL;
	s->large_last = &s->large_first;
	s->large_stalled = false;
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
	se->large = shard_pool_carve(&s->large_peers, sizeof *se->large);
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
		p->out[lane].life = 0;
}

void large_close(struct shard *s, struct session *se)
{
	large_out_close(s, se->large);
	large_in_close(s, se->large);
	post_close(s, se->large);
}
