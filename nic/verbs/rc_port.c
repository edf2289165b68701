/* SPDX-License-Identifier: BSD-3-Clause */
/** The rdma_cm side of a port: listens, and processes rdma_cm's events. Control thread. */
#include "nic/verbs/rc.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_PER_STEP 64

/* ---- open and close ---- */

static int listen_at(struct verbs_port *p, struct nic_err *err)
{
	struct verbs_rc *rc = p->rc;
	struct sockaddr_storage at = verbs_rc_sockaddr(p->on.gid.gid.raw, 0, p->on.gid.ndev_ifindex);
	char text[VERBS_GID_TEXT_MAX];
	errno = 0;
	if (rc->cm->rdma_create_id(rc->channel, &rc->listener, NULL, RDMA_PS_TCP)) {
		rc->listener = NULL;
		return verbs_cannot_cm(p->on.device, errno, err);
	}
	if (rc->cm->rdma_bind_addr(rc->listener, (struct sockaddr *)&at) ||
	    rc->cm->rdma_listen(rc->listener, VERBS_BACKLOG))
		return verbs_error(err, errno ? -errno : -EIO,
				   "verbs: %s cannot listen for connections at %s: %s; check `ip addr` and `rdma "
				   "link`, or choose another address by listen=",
				   p->on.device, verbs_gid_text(p->on.gid.gid.raw, text),
				   strerror(errno ? errno : EIO));
	rc->service = ntohs(rc->cm->rdma_get_src_port(rc->listener));
	return 0;
}

int verbs_rc_open(struct verbs_port *p, struct nic_err *err)
{
	const struct verbs_cm *cm = verbs_cm_load(err);
	if (!cm)
		return -ENOENT;
	struct verbs_rc *rc = calloc(1, sizeof *rc);
	if (!rc)
		return verbs_error(err, -ENOMEM, "verbs: out of memory");
	p->rc = rc;
	rc->cm = cm;
	rc->last_requests_last = &rc->last_requests_first;
	rc->draw = (uint32_t)verbs_now() ^ (uint32_t)(uintptr_t)rc;
	int error = -pthread_mutex_init(&rc->done_lock, NULL);
	if (!error)
		error = verbs_pool_open(&rc->acceptor, p, 1);
	if (!error)
		error = verbs_pool_open(&rc->connectors, p, VERBS_CONNECTORS_MAX);
	if (error)
		return verbs_error(err, error, "verbs: out of memory");
	errno = 0;
	rc->channel = cm->rdma_create_event_channel();
	if (!rc->channel)
		return verbs_cannot_cm(p->on.device, errno, err);
	int flags = fcntl(rc->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(rc->channel->fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
	    !verbs_epoll_add(p, rc->channel->fd))
		return verbs_error(err, -errno, "verbs: %s; see `ulimit -n`", strerror(errno));
	return listen_at(p, err);
}

void verbs_rc_stop(struct verbs_port *p)
{
	verbs_pool_stop(&p->rc->connectors);
	verbs_pool_stop(&p->rc->acceptor);
}

bool verbs_rc_ended(const struct verbs_port *p)
{
	return !atomic_load_explicit(&p->rc->connectors.threads_running, memory_order_acquire) &&
	       !atomic_load_explicit(&p->rc->acceptor.threads_running, memory_order_acquire);
}

void verbs_rc_close(struct verbs_port *p)
{
	struct verbs_rc *rc = p->rc;
	verbs_pool_close(&rc->connectors);
	verbs_pool_close(&rc->acceptor);
	for (unsigned i = 0; i < p->queues_n; i++) {
		struct verbs_queue *q = p->queues[i];
		for (unsigned k = 0; q && q->rc && q->rc->conns && k < q->rc->conns_n; k++)
			verbs_conn_destroy(&q->rc->conns[k]);
		if (q)
			verbs_rcq_close(q);
	}
	if (rc->listener)
		rc->cm->rdma_destroy_id(rc->listener);
	if (rc->channel)
		rc->cm->rdma_destroy_event_channel(rc->channel);
	rc->listener = NULL;
	rc->channel = NULL;
}

void verbs_rc_free(struct verbs_port *p)
{
	for (unsigned i = 0; i < VERBS_REMOTE_BUCKETS; i++)
		for (struct verbs_remote *r = p->rc->remotes[i], *next; r; r = next) {
			next = r->next;
			free(r);
		}
	verbs_proofs_free(p->rc);
	pthread_mutex_destroy(&p->rc->done_lock);
	free(p->rc);
	p->rc = NULL;
}

/* ---- connect requests ---- */

static void refuse(struct verbs_port *p, struct rdma_cm_id *id, enum verbs_reject reject)
{
	uint8_t word = (uint8_t)reject;
	p->rc->cm->rdma_reject(id, &word, sizeof word);
	p->rc->cm->rdma_destroy_id(id);
}

static struct verbs_queue *find_queue(struct verbs_port *p, const struct verbs_connect_request *w)
{
	for (unsigned i = 0; i < p->queues_n; i++)
		if (p->queues[i]->rc_qpn == w->to_qpn && p->queues[i]->qkey == w->to_qkey)
			return p->queues[i];
	return NULL;
}

/* Two queues may connect to each other at once: the request of the greater name wins. */
static bool ours_is_first(const struct verbs_queue *q, const struct verbs_connect_request *w)
{
	return q->rc_qpn != w->from_qpn ? q->rc_qpn > w->from_qpn : q->qkey > w->from_qkey;
}

static bool is_valid(const struct verbs_port *p, const struct verbs_connect_request *w)
{
	return w->magic == VERBS_REQUEST_MAGIC && w->body_max >= VERBS_MTU_MIN &&
	       w->kind == (p->on.rc ? VERBS_KIND_PACKETS : VERBS_KIND_BULK);
}

/* Authenticates a request and returns the addressed queue. NULL: rejected and counted. A sender without the key does
 * not learn whether a queue exists. */
static struct verbs_queue *authenticate(struct verbs_port *p, struct rdma_cm_id *id,
					const struct verbs_connect_request *w)
{
	struct verbs_queue *q = find_queue(p, w);
	enum verbs_refusal why;
	if (!is_valid(p, w))
		why = VERBS_REFUSED_LAYOUT;
	else if (!verbs_request_proven(p, w))
		why = VERBS_REFUSED_PROOF;
	else if (!q)
		why = VERBS_REFUSED_NAME;
	else if (!verbs_request_fresh(q, w))
		why = VERBS_REFUSED_REPEATED;
	else
		return q;
	verbs_refusal_count(p, why);
	refuse(p, id,
	       why == VERBS_REFUSED_LAYOUT || why == VERBS_REFUSED_NAME ? VERBS_REJECT_UNKNOWN : VERBS_REJECT_PROOF);
	return NULL;
}

static void handle_request(struct verbs_port *p, struct rdma_cm_id *id, const struct verbs_connect_request *w,
			   uint64_t now)
{
	uint64_t ignored = UINT64_MAX;
	id->context = NULL;
	struct verbs_queue *q = authenticate(p, id, w);
	if (!q)
		return;
	struct verbs_remote *r = verbs_remote_find(q, w->from_qpn, w->from_qkey);
	if (r && r->connecting && ours_is_first(q, w)) {
		refuse(p, id, VERBS_REJECT_CROSSED);
		return;
	}
	struct verbs_conn *c = r ? verbs_conn_new(q, r, now, &ignored) : NULL;
	if (!c) {
		refuse(p, id, VERBS_REJECT_BUSY);
		return;
	}
	c->id = id;
	id->context = c;
	c->state = CONN_ACCEPTING;
	c->job = JOB_ACCEPT;
	verbs_accept_make(c, w);
	if (verbs_pool_give(&p->rc->acceptor, c)) {
		c->job = JOB_NONE;
		verbs_conn_end(c, 0, now);
	}
}

/* ---- our connections ---- */

static void handle_resolved(struct verbs_port *p, struct verbs_conn *c, enum rdma_cm_event_type type, uint64_t now)
{
	if (c->state != CONN_RESOLVING || c->ending)
		return;
	bool ok;
	if (type == RDMA_CM_EVENT_ADDR_RESOLVED) {
		ok = p->rc->cm->rdma_resolve_route(c->id, VERBS_RESOLVE_MS) == 0;
	} else {
		c->state = CONN_CONNECTING;
		c->job = JOB_CONNECT;
		verbs_request_make(c);
		ok = verbs_pool_give(&p->rc->connectors, c) == 0;
		if (!ok)
			c->job = JOB_NONE;
	}
	if (!ok)
		verbs_conn_end(c, 0, now);
}

struct cm_event {
	enum rdma_cm_event_type type;
	struct rdma_cm_id *id;   /* valid for a connect request; other ids may be destroyed already */
	struct verbs_conn *conn; /* NULL: an event of the listener */
	struct verbs_connect_request request;
	struct verbs_accept accept;
	uint8_t reject;
};

/* The connection is established. The connecting side first checks the proof in the accept. */
static void handle_established(struct verbs_port *p, struct verbs_conn *c, const struct cm_event *h, uint64_t now)
{
	if (c->active && !c->answered && !verbs_accept_proven(c, &h->accept)) {
		if (c->state == CONN_CONNECTING && !c->ending)
			verbs_refusal_count(p, VERBS_REFUSED_ACCEPT);
		verbs_conn_end(c, 0, now);
		return;
	}
	c->answered = true;
	c->established |= h->type == RDMA_CM_EVENT_ESTABLISHED;
	verbs_conn_advance(c, now);
}

static void handle_event(struct verbs_port *p, const struct cm_event *h, uint64_t now)
{
	struct verbs_conn *c = h->conn;
	switch (h->type) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		handle_request(p, h->id, &h->request, now);
		return;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		verbs_release_device(p);
		return;
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		if (c)
			handle_resolved(p, c, h->type, now);
		return;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
	case RDMA_CM_EVENT_ESTABLISHED:
		if (c)
			handle_established(p, c, h, now);
		return;
	case RDMA_CM_EVENT_ADDR_CHANGE:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		return;
	default:
		if (c && c->active && h->reject == VERBS_REJECT_PROOF)
			verbs_refused_by_peer(p);
		if (c)
			verbs_conn_end(c, (enum verbs_reject)h->reject, now);
	}
}

/* Copies an event out: once it is acknowledged, a worker thread may destroy its id. */
static struct cm_event copy_event(const struct rdma_cm_event *event)
{
	struct cm_event h = {.type = event->event, .id = event->id, .conn = event->id->context};
	const struct rdma_conn_param *param = &event->param.conn;
	bool request = h.type == RDMA_CM_EVENT_CONNECT_REQUEST;
	bool accept = h.type == RDMA_CM_EVENT_CONNECT_RESPONSE || h.type == RDMA_CM_EVENT_ESTABLISHED;
	if (request && param->private_data && param->private_data_len >= sizeof h.request)
		memcpy(&h.request, param->private_data, sizeof h.request);
	if (accept && param->private_data && param->private_data_len >= sizeof h.accept)
		memcpy(&h.accept, param->private_data, sizeof h.accept);
	if (h.type == RDMA_CM_EVENT_REJECTED && param->private_data && param->private_data_len > 0)
		h.reject = *(const uint8_t *)param->private_data;
	return h;
}

/* Processes rdma_cm's events. */
static void verbs_rc_events(struct verbs_port *p, uint64_t now)
{
	struct rdma_cm_event *event;
	for (unsigned i = 0; i < EVENTS_PER_STEP && p->rc->channel; i++) {
		if (p->rc->cm->rdma_get_cm_event(p->rc->channel, &event))
			return;
		struct cm_event h = copy_event(event);
		p->rc->cm->rdma_ack_cm_event(event);
		handle_event(p, &h, now);
	}
}

static void handle_done_jobs(struct verbs_port *p, uint64_t now)
{
	pthread_mutex_lock(&p->rc->done_lock);
	struct verbs_conn *c = p->rc->done, *next;
	p->rc->done = NULL;
	pthread_mutex_unlock(&p->rc->done_lock);
	for (; c; c = next) {
		next = c->next_job;
		verbs_conn_job_done(c, now);
	}
}

uint64_t verbs_rc_step(struct verbs_port *p, uint64_t now)
{
	uint64_t next = UINT64_MAX;
	if (!p->rc->channel || atomic_load_explicit(&p->down, memory_order_relaxed) == VERBS_GONE)
		return next;
	verbs_rc_events(p, now);
	verbs_pool_step(&p->rc->connectors);
	handle_done_jobs(p, now);
	for (unsigned i = 0; i < p->queues_n; i++) {
		uint64_t at = verbs_cache_step(p->queues[i], now);
		next = at < next ? at : next;
	}
	verbs_remotes_sweep(p);
	return next;
}
