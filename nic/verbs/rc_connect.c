/* SPDX-License-Identifier: BSD-3-Clause */
/** The state machine of a connection: set-up and end. Control thread. */
#include "nic/verbs/rc.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

static const struct verbs_cm *cm_of(const struct verbs_conn *c)
{
	return c->queue->port->rc->cm;
}

int verbs_conn_connect(struct verbs_conn *c, uint64_t now)
{
	struct verbs_port *p = c->queue->port;
	unsigned at = p->on.gid.ndev_ifindex;
	struct sockaddr_storage from = verbs_rc_sockaddr(p->blob.gid, 0, at),
				to = verbs_rc_sockaddr(c->remote->gid, c->remote->service, at);
	c->active = true;
	c->state = CONN_RESOLVING;
	if (cm_of(c)->rdma_create_id(p->rc->channel, &c->id, c, RDMA_PS_TCP)) {
		c->id = NULL;
	} else if (!cm_of(c)->rdma_resolve_addr(c->id, (struct sockaddr *)&from, (struct sockaddr *)&to,
						VERBS_RESOLVE_MS)) {
		return 0;
	}
	int error = errno ? -errno : -EIO;
	verbs_conn_end(c, 0, now);
	return error;
}

static void set_up(struct verbs_conn *c, uint64_t now)
{
	struct verbs_remote *r = c->remote;
	c->state = CONN_UP;
	c->up_at = now;
	c->deadline = 0;
	r->ups++;
	r->retry_ns = 0;
	if (c->active) {
		r->connecting = NULL;
		verbs_phase_set(c, CONN_CONNECTED);
		verbs_notify_poller(c->queue, c->queue->rc, &c->to_poller);
	}
	if (atomic_load_explicit(
		    &c->broken,
		    memory_order_acquire)) /* the poller saw a failed completion before the connection was CONN_UP */
		verbs_conn_end(c, 0, now);
}

void verbs_conn_advance(struct verbs_conn *c, uint64_t now)
{
	if (c->job || c->ending || (c->state != CONN_CONNECTING && c->state != CONN_ACCEPTING))
		return;
	if (c->answered && !c->established) {
		if (verbs_conn_start(c) || cm_of(c)->rdma_establish(c->id)) {
			verbs_conn_end(c, 0, now);
			return;
		}
		c->established = true;
	}
	if (c->established)
		set_up(c, now);
}

/* ---- end ---- */

static void set_free(struct verbs_conn *c)
{
	c->state = CONN_FREE;
	c->remote->conns--;
	c->remote = NULL;
	c->queue->port->rc->conns_n--;
}

static void closed(struct verbs_conn *c)
{
	if (verbs_phase(c) == CONN_NONE) {
		set_free(c);
		return;
	}
	c->state = CONN_RECLAIMING;
	verbs_phase_set(c, CONN_DESTROYED);
	verbs_notify_poller(c->queue, c->queue->rc, &c->to_poller);
}

static void close_conn(struct verbs_conn *c)
{
	c->state = CONN_CLOSING;
	c->job = JOB_CLOSE;
	if (!verbs_pool_give(&c->queue->port->rc->acceptor, c))
		return;
	verbs_job_run(c);
	c->job = JOB_NONE;
	closed(c);
}

static void drain(struct verbs_conn *c)
{
	/* Its own receive buffers may have completed already, though the poller was not notified of it. */
	if (verbs_phase(c) == CONN_NONE && !(c->queue->rc->per_conn_buffers && c->qp)) {
		close_conn(c);
		return;
	}
	c->state = CONN_DRAINING;
	verbs_phase_set(c, CONN_CLOSE_REQUESTED);
	verbs_notify_poller(c->queue, c->queue->rc, &c->to_poller);
}

void verbs_conn_end(struct verbs_conn *c, enum verbs_reject reject, uint64_t now)
{
	struct verbs_remote *r = c->remote;
	if (c->ending || c->state == CONN_FREE || c->state >= CONN_DRAINING)
		return;
	c->deadline = 0;
	if (c->live)
		c->queue->rc->live--;
	c->live = false;
	if (c->state == CONN_UP)
		r->ups--;
	if (r->connecting == c) {
		r->connecting = NULL;
		if (reject == VERBS_REJECT_BUSY || reject == VERBS_REJECT_CROSSED)
			verbs_remote_retry(r, now);
		else
			verbs_remote_give_up(r, now);
	}
	c->ending = true; /* if a job is running: when it has finished */
	if (!c->job)
		drain(c);
	else if (c->job == JOB_CONNECT)
		verbs_pool_interrupt(&c->queue->port->rc->connectors, c);
}

void verbs_conn_mail_received(struct verbs_conn *c, uint64_t now)
{
	enum verbs_conn_phase phase = verbs_phase(c);
	if (c->state == CONN_DRAINING && phase == CONN_CLOSE_ACKED)
		close_conn(c);
	else if (c->state == CONN_RECLAIMING && phase == CONN_NONE)
		set_free(c);
	else if (c->state == CONN_UP && atomic_load_explicit(&c->broken, memory_order_acquire))
		verbs_conn_end(c, 0, now);
}

void verbs_conn_job_done(struct verbs_conn *c, uint64_t now)
{
	enum verbs_job job = c->job;
	c->job = JOB_NONE;
	if (job == JOB_CLOSE)
		closed(c);
	else if (c->ending)
		drain(c);
	else if (c->job_error)
		verbs_conn_end(c, 0, now);
	else
		verbs_conn_advance(c, now);
}
