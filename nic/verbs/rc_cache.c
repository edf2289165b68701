/* SPDX-License-Identifier: BSD-3-Clause */
/** Remote queues, and the cache of connections to them. Control thread. */
#include "nic/verbs/bulk.h"

#include <stdlib.h>
#include <string.h>

/* ---- remote queues ---- */

static struct verbs_remote **bucket(struct verbs_rc *rc, uint32_t qpn, uint32_t qkey)
{
	return &rc->remotes[(qpn ^ qkey) % VERBS_REMOTE_BUCKETS];
}

struct verbs_remote *verbs_remote_find(struct verbs_queue *q, uint32_t qpn, uint32_t qkey)
{
	struct verbs_rc *rc = q->port->rc;
	struct verbs_remote **at = bucket(rc, qpn, qkey);
	for (struct verbs_remote *r = *at; r; r = r->next)
		if (r->queue == q && r->qpn == qpn && r->qkey == qkey)
			return r;
	struct verbs_remote *r = calloc(1, sizeof *r);
	if (!r)
		return NULL;
	r->queue = q;
	r->qpn = qpn;
	r->qkey = qkey;
	r->next = *at;
	*at = r;
	rc->unreferenced++;
	return r;
}

struct verbs_remote *verbs_remote_get(struct verbs_queue *q, uint32_t qpn, uint32_t qkey)
{
	struct verbs_remote *r = verbs_remote_find(q, qpn, qkey);
	if (r && r->refs++ == 0)
		q->port->rc->unreferenced--;
	return r;
}

void verbs_remote_put(struct verbs_queue *q, struct verbs_remote *r)
{
	if (--r->refs == 0)
		q->port->rc->unreferenced++;
}

static bool is_queued(struct verbs_mail *mail)
{
	return atomic_load_explicit(&mail->queued, memory_order_acquire);
}

/* Without destinations the poller only accesses remote queues whose mail it is reading. */
static bool is_idle(struct verbs_remote *r)
{
	return !r->refs && !r->conns && !r->wanted && !is_queued(&r->to_control) && !is_queued(&r->to_poller) &&
	       !atomic_load_explicit(&r->queue->rc->reading_mail, memory_order_acquire);
}

void verbs_remotes_sweep(struct verbs_port *p)
{
	struct verbs_rc *rc = p->rc;
	for (unsigned i = 0; rc->unreferenced && i < VERBS_REMOTE_BUCKETS; i++)
		for (struct verbs_remote **at = &rc->remotes[i], *r; (r = *at);) {
			if (!is_idle(r)) {
				at = &r->next;
				continue;
			}
			*at = r->next;
			rc->unreferenced--;
			free(r);
		}
}

/* ---- requests for connections ---- */

static void enqueue(struct verbs_remote *r)
{
	struct verbs_rcq *rcq = r->queue->rc;
	r->wanted = true;
	r->next_wanted = NULL;
	*rcq->wanted_last = r;
	rcq->wanted_last = &r->next_wanted;
}

/* Requests a connection: there is something to send. */
static void verbs_remote_want(struct verbs_remote *r, uint64_t now)
{
	/* While one is CONN_UP the poller uses that; when it ends, the poller requests again. */
	if (r->wanted || r->connecting || r->ups)
		return;
	r->give_up_at = now + VERBS_GIVE_UP_NS;
	enqueue(r);
}

void verbs_remote_retry(struct verbs_remote *r, uint64_t now)
{
	struct verbs_rc *rc = r->queue->port->rc;
	rc->draw =
		rc->draw * 1664525u +
		1013904223u; /* linear congruential generator (Numerical Recipes); its upper bits are random enough */
	r->retry_at = now + VERBS_RECONNECT_NS / 2 + (rc->draw >> 8) % VERBS_RECONNECT_NS;
	if (!r->wanted)
		enqueue(r);
}

void verbs_remote_give_up(struct verbs_remote *r, uint64_t now)
{
	r->retry_ns = r->retry_ns ? 2 * r->retry_ns : VERBS_RECONNECT_NS;
	if (r->retry_ns > VERBS_RECONNECT_NS_MAX)
		r->retry_ns = VERBS_RECONNECT_NS_MAX;
	r->retry_at = now + r->retry_ns;
	atomic_store_explicit(&r->gave_up, true, memory_order_release);
	verbs_notify_poller(r->queue, r->queue->rc, &r->to_poller);
}

/* ---- the cache ---- */

static struct verbs_conn *least_used(struct verbs_rcq *rcq, uint64_t now, uint64_t *next)
{
	uint32_t tick = atomic_load_explicit(&rcq->tick, memory_order_relaxed), oldest = 0;
	struct verbs_conn *best = NULL;
	for (unsigned i = 0; i < rcq->conns_n; i++) {
		struct verbs_conn *c = &rcq->conns[i];
		/* Connections with operations in flight are not evicted; their sender ends them. */
		if (c->state != CONN_UP || (c->bulk && atomic_load_explicit(&c->bulk->busy, memory_order_relaxed)))
			continue;
		if (now < c->up_at + VERBS_KEEP_NS) {
			*next = c->up_at + VERBS_KEEP_NS < *next ? c->up_at + VERBS_KEEP_NS : *next;
			continue;
		}
		uint32_t age = tick - atomic_load_explicit(&c->used, memory_order_relaxed);
		if (best && age <= oldest)
			continue;
		best = c;
		oldest = age;
	}
	return best;
}

static struct verbs_conn *find_free(struct verbs_rcq *rcq)
{
	for (unsigned i = 0; i < rcq->conns_n; i++)
		if (rcq->conns[i].state == CONN_FREE)
			return &rcq->conns[i];
	return NULL;
}

struct verbs_conn *verbs_conn_new(struct verbs_queue *q, struct verbs_remote *r, uint64_t now, uint64_t *next)
{
	struct verbs_rcq *rcq = q->rc;
	struct verbs_conn *c = find_free(rcq);
	if (!c)
		return NULL; /* retried when a connection is closed */
	if (rcq->live >= rcq->bound) {
		struct verbs_conn *out = least_used(rcq, now, next);
		if (!out)
			return NULL;
		verbs_conn_end(out, 0, now);
	}
	c->remote = r;
	c->generation++;
	atomic_store_explicit(&c->broken, false, memory_order_relaxed);
	atomic_store_explicit(&c->used, atomic_load_explicit(&rcq->tick, memory_order_relaxed), memory_order_relaxed);
	c->active = c->ending = c->answered = c->established = false;
	c->live = true;
	c->deadline = now + VERBS_CONNECT_NS;
	rcq->live++;
	r->conns++;
	q->port->rc->conns_n++;
	return c;
}

static void read_mail(struct verbs_queue *q, uint64_t now)
{
	for (struct verbs_mail *n = verbs_mail_take(&q->rc->to_control), *next; n; n = next) {
		next = n->next;
		verbs_mail_clear(n);
		if (n->is_conn)
			verbs_conn_mail_received(
				(struct verbs_conn *)((char *)n - offsetof(struct verbs_conn, to_control)), now);
		else
			verbs_remote_want(
				(struct verbs_remote *)((char *)n - offsetof(struct verbs_remote, to_control)), now);
	}
}

static uint64_t end_expired(struct verbs_queue *q, uint64_t now)
{
	uint64_t next = UINT64_MAX;
	for (unsigned i = 0; i < q->rc->conns_n; i++) {
		struct verbs_conn *c = &q->rc->conns[i];
		if (!c->deadline || c->state == CONN_FREE)
			continue;
		if (now >= c->deadline)
			verbs_conn_end(c, 0, now);
		else
			next = c->deadline < next ? c->deadline : next;
	}
	return next;
}

/* Serves a request. True: it is finished and leaves the list. */
static bool serve(struct verbs_queue *q, struct verbs_remote *r, bool *full, uint64_t now, uint64_t *next)
{
	if (r->ups || r->connecting)
		return true;
	if (now >= r->give_up_at || !r->service) {
		verbs_remote_give_up(r, now);
		return true;
	}
	uint64_t at = r->retry_at > now && r->retry_at < r->give_up_at ? r->retry_at : r->give_up_at;
	*next = at < *next ? at : *next;
	if (now < r->retry_at || *full)
		return false;
	struct verbs_conn *c = verbs_conn_new(q, r, now, next);
	*full = !c;
	if (!c)
		return false;
	r->connecting = c;
	return true;
}

uint64_t verbs_cache_step(struct verbs_queue *q, uint64_t now)
{
	struct verbs_rcq *rcq = q->rc;
	read_mail(q, now);
	uint64_t next = q->port->rc->conns_n ? end_expired(q, now) : UINT64_MAX;
	bool full = false;
	/* Requests that fail at once are appended and served in the next step. */
	struct verbs_remote *r = rcq->wanted_first, *then;
	rcq->wanted_first = NULL;
	rcq->wanted_last = &rcq->wanted_first;
	for (; r; r = then) {
		then = r->next_wanted;
		r->wanted = false;
		if (!serve(q, r, &full, now, &next)) {
			enqueue(r);
		} else if (r->connecting && r->connecting->state == CONN_FREE) {
			verbs_conn_connect(r->connecting, now);
			next = now + VERBS_CONNECT_NS < next ? now + VERBS_CONNECT_NS : next;
		}
	}
	return next;
}
