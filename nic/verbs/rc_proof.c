/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Proofs of the group's key in the private data of connections. Control thread.
 *
 * The proof of a connect request covers the names of both queues, so a replay fails at another queue, and an increasing
 * number, whose last value the acceptor keeps for each pair of queues, so a replay fails at the same queue. The proof
 * of an accept covers the request. The two proofs use different labels, so neither can replace the other.
 */
#include "nic/verbs/rc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- proofs ---- */

/* NULL: no key, or not known yet. */
static const struct auth_key *key_of(struct verbs_port *p)
{
	struct verbs_rc *rc = p->rc;
	const struct auth_key *group = p->key && !rc->key_known ? group_key_get(p->key) : NULL;
	if (group) {
		auth_derive(&rc->key, group, "transport", "");
		rc->key_known = true;
	}
	return rc->key_known ? &rc->key : NULL;
}

static void prove_request(const struct auth_key *key, const struct verbs_connect_request *w,
			  uint8_t out[AUTH_PROOF_BYTES])
{
	struct auth_mac m;
	auth_mac_begin(&m, key, "farcall verbs request");
	auth_mac_add(&m, w, offsetof(struct verbs_connect_request, proof));
	auth_mac_end(&m, out);
}

static void prove_accept(const struct auth_key *key, const struct verbs_connect_request *w,
			 const struct verbs_accept *a, uint8_t out[AUTH_PROOF_BYTES])
{
	struct auth_mac m;
	auth_mac_begin(&m, key, "farcall verbs accept");
	auth_mac_add(&m, w, sizeof *w);
	auth_mac_add(&m, a, offsetof(struct verbs_accept, proof));
	auth_mac_end(&m, out);
}

/* ---- refusals ---- */

static const char *const reasons[VERBS_REFUSALS] = {
	[VERBS_REFUSED_LAYOUT] = "refused a connect request of another version of farcall, or of another program",
	[VERBS_REFUSED_PROOF] = "refused a connect request that does not prove this group's key: its sender has "
				"another key or none; give all members the same FAR_KEY_FILE",
	[VERBS_REFUSED_REPEATED] =
		"refused a replay of an earlier connect request: someone on the network replays requests",
	[VERBS_REFUSED_ACCEPT] = "ended a connection whose accept does not prove this group's key: the peer has "
				 "another key or none; give all members the same FAR_KEY_FILE",
	[VERBS_REFUSED_BY_PEER] = "the peer rejected our connect request: its group has another key; give all members "
				  "the same FAR_KEY_FILE",
};

/* Logs each reason once, so that a sender without the key cannot fill the log. */
static void log_once(struct verbs_port *p, enum verbs_refusal why)
{
	if (!reasons[why] || p->rc->logged[why])
		return;
	p->rc->logged[why] = true;
	fprintf(stderr, "farcall: verbs: %s: %s (reported once; counted as refused)\n", p->on.device, reasons[why]);
}

void verbs_refusal_count(struct verbs_port *p, enum verbs_refusal why)
{
	verbs_count(&p->rc->refused[why], 1);
	log_once(p, why);
}

/* ---- replays ---- */

static struct verbs_last_request **bucket(struct verbs_rc *rc, const struct verbs_connect_request *w)
{
	return &rc->last_requests[(w->from_qpn ^ w->from_qkey) % VERBS_REMOTE_BUCKETS];
}

static void evict_oldest(struct verbs_rc *rc)
{
	struct verbs_last_request *h = rc->last_requests_first;
	struct verbs_connect_request of = {.from_qpn = h->qpn, .from_qkey = h->qkey};
	struct verbs_last_request **at = bucket(rc, &of);
	while (*at != h)
		at = &(*at)->next;
	*at = h->next;
	rc->last_requests_first = h->later;
	if (!rc->last_requests_first)
		rc->last_requests_last = &rc->last_requests_first;
	rc->last_requests_n--;
	free(h);
}

/* The entry of the pair of queues; a new one has number 0. NULL: out of memory. */
static struct verbs_last_request *last_request_of(const struct verbs_queue *q, const struct verbs_connect_request *w)
{
	struct verbs_rc *rc = q->port->rc;
	for (struct verbs_last_request *h = *bucket(rc, w); h; h = h->next)
		if (h->queue == q && h->qpn == w->from_qpn && h->qkey == w->from_qkey)
			return h;
	struct verbs_last_request *h = calloc(1, sizeof *h);
	if (!h)
		return NULL;
	if (rc->last_requests_n == VERBS_LAST_REQUESTS_MAX)
		evict_oldest(rc);
	h->queue = q;
	h->qpn = w->from_qpn;
	h->qkey = w->from_qkey;
	h->next = *bucket(rc, w);
	*bucket(rc, w) = h;
	*rc->last_requests_last = h;
	rc->last_requests_last = &h->later;
	rc->last_requests_n++;
	return h;
}

/* ---- connect requests ---- */

void verbs_request_make(struct verbs_conn *c)
{
	struct verbs_queue *q = c->queue;
	struct verbs_rc *rc = q->port->rc;
	const struct auth_key *key = key_of(q->port);
	uint64_t now = verbs_now();
	/* Exceeds the numbers of an earlier process with the same queue names. */
	rc->number = now > rc->number ? now : rc->number + 1;
	c->request = (struct verbs_connect_request){.magic = VERBS_REQUEST_MAGIC,
						    .body_max = (uint16_t)q->port->mtu,
						    .kind = c->bulk ? VERBS_KIND_BULK : VERBS_KIND_PACKETS,
						    .to_qpn = c->remote->qpn,
						    .to_qkey = c->remote->qkey,
						    .from_qpn = q->rc_qpn,
						    .from_qkey = q->qkey,
						    .number = rc->number};
	if (key)
		prove_request(key, &c->request, c->request.proof);
}

bool verbs_request_proven(struct verbs_port *p, const struct verbs_connect_request *w)
{
	const struct auth_key *key = key_of(p);
	uint8_t proof[AUTH_PROOF_BYTES];
	if (!p->key)
		return true;
	if (!key) /* no member has our address yet */
		return false;
	prove_request(key, w, proof);
	return auth_equal(proof, w->proof);
}

bool verbs_request_fresh(const struct verbs_queue *q, const struct verbs_connect_request *w)
{
	if (!q->port->key)
		return true;
	struct verbs_last_request *h = last_request_of(q, w);
	if (!h || w->number <= h->number)
		return false;
	h->number = w->number;
	return true;
}

/* ---- accepts ---- */

void verbs_accept_make(struct verbs_conn *c, const struct verbs_connect_request *w)
{
	const struct auth_key *key = key_of(c->queue->port);
	c->accept = (struct verbs_accept){.magic = VERBS_ACCEPT_MAGIC};
	if (key)
		prove_accept(key, w, &c->accept, c->accept.proof);
}

bool verbs_accept_proven(const struct verbs_conn *c, const struct verbs_accept *a)
{
	const struct auth_key *key = key_of(c->queue->port);
	uint8_t proof[AUTH_PROOF_BYTES];
	if (!c->queue->port->key)
		return true;
	if (!key || a->magic != VERBS_ACCEPT_MAGIC)
		return false;
	prove_accept(key, &c->request, a, proof);
	return auth_equal(proof, a->proof);
}

void verbs_refused_by_peer(struct verbs_port *p)
{
	log_once(p, VERBS_REFUSED_BY_PEER);
}

void verbs_proofs_free(struct verbs_rc *rc)
{
	while (rc->last_requests_first)
		evict_oldest(rc);
	auth_erase(&rc->key, sizeof rc->key);
}
