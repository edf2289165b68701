/* SPDX-License-Identifier: BSD-3-Clause */
/** Completion queues and queue pairs of the tests' own device: UDP sockets of loopback. */
#include "fake_parts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

pthread_mutex_t fake_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct fake_qp *pairs;

/* ---- completion queues ---- */

struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *ctx, struct ibv_comp_channel *channel, int vector)
{
	(void)vector;
	if (fake_verbs.cq_error || cqe > RING) {
		errno = fake_verbs.cq_error ? fake_verbs.cq_error : EINVAL;
		return NULL;
	}
	struct fake_cq *cq = calloc(1, sizeof *cq);
	cq->base = (struct ibv_cq){.context = c, .channel = channel, .cq_context = ctx, .cqe = cqe};
	if (channel) {
		cq->next_of_channel = ((struct fake_channel *)channel)->cqs;
		((struct fake_channel *)channel)->cqs = cq;
	}
	fake_verbs.cqs++;
	return &cq->base;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	if (cq->comp_events_completed)
		abort(); /* the real one would wait for ever */
	struct fake_channel *ch = (struct fake_channel *)cq->channel;
	for (struct fake_cq **at = ch ? &ch->cqs : NULL; at && *at; at = &(*at)->next_of_channel)
		if (&(*at)->base == cq) {
			*at = (*at)->next_of_channel;
			break;
		}
	fake_verbs.cqs--;
	free(cq);
	return 0;
}

struct ibv_wc *fake_complete(struct ibv_cq *cq, struct ibv_wc wc)
{
	struct fake_cq *f = (struct fake_cq *)cq;
	if (f->tail - f->head == RING)
		abort();
	f->ring[f->tail % RING] = wc;
	if (f->armed && cq->channel) {
		f->armed = false;
		f->fired = true;
		eventfd_write(((struct fake_channel *)cq->channel)->event_fd, 1);
	}
	return &f->ring[f->tail++ % RING];
}

static void watch_socket(struct ibv_cq *cq, struct fake_qp *qp)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = cq};
	if (epoll_ctl(cq->channel->fd, EPOLL_CTL_MOD, qp->socket, &ev) < 0)
		epoll_ctl(cq->channel->fd, EPOLL_CTL_ADD, qp->socket, &ev);
}

static int req_notify(struct ibv_cq *cq, int solicited)
{
	struct fake_cq *f = (struct fake_cq *)cq;
	(void)solicited;
	pthread_mutex_lock(&fake_lock);
	f->armed = true;
	for (struct fake_qp *qp = pairs; qp; qp = qp->next)
		if (qp->base.recv_cq == cq)
			watch_socket(cq, qp);
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

/* Of those whose completions woke the channel; there may be more, for the next time. */
static struct fake_cq *fired_of(struct fake_channel *ch)
{
	struct fake_cq *fired = NULL;
	eventfd_t count;
	pthread_mutex_lock(&fake_lock);
	eventfd_read(ch->event_fd, &count);
	for (struct fake_cq *f = ch->cqs; f; f = f->next_of_channel) {
		if (f->fired && fired)
			eventfd_write(ch->event_fd, 1);
		else if (f->fired)
			fired = f;
	}
	if (fired)
		fired->fired = false;
	pthread_mutex_unlock(&fake_lock);
	return fired;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **ctx)
{
	struct epoll_event ev;
	if (epoll_wait(channel->fd, &ev, 1, 0) != 1)
		return -1;
	/* A packet's socket names the queue that it is for. */
	struct fake_cq *fired = ev.data.ptr ? ev.data.ptr : fired_of((struct fake_channel *)channel);
	if (!fired)
		return -1;
	*cq = &fired->base;
	*ctx = fired->base.cq_context;
	fired->base.comp_events_completed++;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	cq->comp_events_completed -= n;
}

/* ---- queue pairs ---- */

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	int room = 4 << 20;
	errno = attr->cap.max_inline_data > fake_verbs.inline_max ? EINVAL : fake_verbs.qp_error;
	if (errno)
		return NULL;
	struct fake_qp *qp = calloc(1, sizeof *qp);
	qp->socket = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	setsockopt(qp->socket, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
	bind(qp->socket, (struct sockaddr *)&at, len);
	getsockname(qp->socket, (struct sockaddr *)&at, &len);
	qp->base = (struct ibv_qp){.context = pd->context,
				   .pd = pd,
				   .send_cq = attr->send_cq,
				   .recv_cq = attr->recv_cq,
				   .qp_num = ntohs(at.sin_port),
				   .qp_type = attr->qp_type};
	qp->rdma = -1;
	if (attr->qp_type == IBV_QPT_RC && fake_verbs.limits.max_mw > 0)
		fake_reads_open(qp);
	qp->own.max = attr->cap.max_recv_wr;
	qp->ring = attr->srq ? &((struct fake_srq *)attr->srq)->ring : &qp->own;
	attr->cap.max_inline_data = fake_verbs.inline_max;
	pthread_mutex_lock(&fake_lock);
	((struct fake_cq *)attr->recv_cq)->receives = true;
	qp->next = pairs;
	pairs = qp;
	if (((struct fake_cq *)attr->recv_cq)->armed)
		watch_socket(attr->recv_cq, qp);
	pthread_mutex_unlock(&fake_lock);
	fake_verbs.qps++;
	return &qp->base;
}

int ibv_destroy_qp(struct ibv_qp *base)
{
	struct fake_qp *qp = (struct fake_qp *)base;
	pthread_mutex_lock(&fake_lock);
	for (struct fake_qp **at = &pairs; *at; at = &(*at)->next)
		if (*at == qp) {
			*at = qp->next;
			break;
		}
	fake_reads_drop(qp);
	pthread_mutex_unlock(&fake_lock);
	close(qp->socket);
	free(qp);
	fake_verbs.qps--;
	return 0;
}

static void flush_ring(struct fake_qp *qp)
{
	for (; qp->ring == &qp->own && qp->own.head != qp->own.tail; qp->own.head++)
		fake_complete(qp->base.recv_cq, (struct ibv_wc){.wr_id = qp->own.at[qp->own.head % RING].wr_id,
								.status = IBV_WC_WR_FLUSH_ERR,
								.opcode = IBV_WC_RECV,
								.qp_num = qp->base.qp_num});
}

void fake_pair_break(struct fake_qp *qp)
{
	qp->state = IBV_QPS_ERR;
	flush_ring(qp);
	fake_reads_flush(qp);
}

void fake_pairs_each(void (*visit)(struct fake_qp *qp))
{
	for (struct fake_qp *qp = pairs; qp; qp = qp->next)
		visit(qp);
}

int ibv_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask)
{
	struct fake_qp *qp = (struct fake_qp *)base;
	pthread_mutex_lock(&fake_lock);
	if (mask & IBV_QP_QKEY)
		qp->qkey = attr->qkey;
	if (mask & IBV_QP_DEST_QPN)
		qp->peer = attr->dest_qp_num;
	if (attr->qp_state == IBV_QPS_RESET) {
		qp->own.head = qp->own.tail; /* completions that there are stay, as with some devices */
		fake_verbs.resets++;
	}
	qp->state = attr->qp_state;
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

void fake_pair_connect(uint32_t qpn, uint32_t peer)
{
	pthread_mutex_lock(&fake_lock);
	for (struct fake_qp *qp = pairs; qp; qp = qp->next)
		if (qp->base.qp_num == qpn) {
			qp->peer = peer;
			qp->state = IBV_QPS_RTS;
		}
	pthread_mutex_unlock(&fake_lock);
}

static int post_send_one(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	bool rc = qp->base.qp_type == IBV_QPT_RC;
	const struct fake_ah *ah = rc ? NULL : (const struct fake_ah *)wr->wr.ud.ah;
	uint32_t dest = rc ? qp->peer : wr->wr.ud.remote_qpn;
	struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)dest)};
	struct packet p = {.qkey = rc ? 0 : wr->wr.ud.remote_qkey, .from = qp->base.qp_num};
	size_t len = 0;
	for (int i = 0; i < wr->num_sge; i++) {
		if (len + wr->sg_list[i].length > PACKET || !fake_lkey_fits(qp->base.pd, &wr->sg_list[i], 0))
			return EINVAL;
		memcpy(p.bytes + len, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		len += wr->sg_list[i].length;
	}
	fake_keys_look(p.bytes, len);
	if (wr->opcode != IBV_WR_SEND || ((wr->send_flags & IBV_SEND_INLINE) && len > fake_verbs.inline_max))
		return EINVAL;
	fake_verbs.classes[fake_verbs.sent++ % 16] = !ah                  ? 0
						     : ah->attr.is_global ? ah->attr.grh.traffic_class
									  : ah->attr.sl;
	fake_verbs.sent_inline += (wr->send_flags & IBV_SEND_INLINE) != 0;
	/* It may fail, as packets may be lost. */
	if (sendto(qp->socket, &p, offsetof(struct packet, bytes) + len, MSG_NOSIGNAL, (struct sockaddr *)&to,
		   sizeof to) < 0)
		return 0;
	return 0;
}

static int post_send_all(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_qp *qp = (struct fake_qp *)base;
	fake_verbs.posts++;
	for (; wr; wr = wr->next) {
		struct ibv_wc wc = {.wr_id = wr->wr_id, .opcode = IBV_WC_SEND, .qp_num = base->qp_num};
		int error = fake_verbs.post_send ? fake_verbs.post_send(wr) : 0;
		bool rdma = wr->opcode != IBV_WR_SEND;
		if (!error && qp->state == IBV_QPS_RTS)
			error = rdma ? fake_rdma_post(qp, wr) : post_send_one(qp, wr);
		else if (!error)
			wc.status = IBV_WC_WR_FLUSH_ERR;
		if (error) {
			*bad = wr;
			return error;
		}
		if (rdma && !wc.status)
			continue; /* its completion is its own */
		fake_verbs.signalled += (wr->send_flags & IBV_SEND_SIGNALED) != 0;
		if ((wr->send_flags & IBV_SEND_SIGNALED) || wc.status)
			fake_complete(base->send_cq, wc);
	}
	return 0;
}

static int post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	pthread_mutex_lock(&fake_lock);
	int error = post_send_all(base, wr, bad);
	pthread_mutex_unlock(&fake_lock);
	return error;
}

static int post_into(const struct ibv_pd *pd, struct fake_ring *ring, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int error = 0;
	fake_verbs.recv_posts++;
	pthread_mutex_lock(&fake_lock);
	for (; wr && !error; wr = error ? wr : wr->next) {
		error = fake_verbs.post_recv ? fake_verbs.post_recv(wr) : 0;
		if (!error && (ring->tail - ring->head >= ring->max || wr->num_sge != 1 ||
			       !fake_lkey_fits(pd, wr->sg_list, IBV_ACCESS_LOCAL_WRITE)))
			error = ENOMEM;
		if (error)
			*bad = wr;
		else
			ring->at[ring->tail++ % RING] = (struct posted){wr->wr_id, wr->sg_list[0]};
	}
	pthread_mutex_unlock(&fake_lock);
	return error;
}

static int post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fake_qp *qp = (struct fake_qp *)base;
	int error = post_into(base->pd, &qp->own, wr, bad);
	pthread_mutex_lock(&fake_lock);
	if (qp->state == IBV_QPS_ERR)
		flush_ring(qp);
	pthread_mutex_unlock(&fake_lock);
	return error;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return post_into(srq->pd, &((struct fake_srq *)srq)->ring, wr, bad);
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	errno = fake_verbs.srq_error;
	struct fake_srq *srq = errno ? NULL : calloc(1, sizeof *srq);
	if (!srq)
		return NULL;
	srq->base.context = pd->context;
	srq->base.pd = pd;
	srq->ring.max = attr->attr.max_wr;
	fake_verbs.srqs++;
	return &srq->base;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	fake_verbs.srqs--;
	free(srq);
	return 0;
}

static bool can_receive(const struct fake_qp *qp)
{
	if (qp->ring->head == qp->ring->tail)
		return false;
	return qp->state == IBV_QPS_RTS || (qp->base.qp_type == IBV_QPT_RC && qp->state == IBV_QPS_RTR);
}

/* One packet of the socket's into a posted buffer. */
static bool receive(struct fake_qp *qp)
{
	struct packet p;
	bool rc = qp->base.qp_type == IBV_QPT_RC;
	uint32_t grh = rc ? 0 : GRH;
	if (!can_receive(qp))
		return false;
	ssize_t n = recv(qp->socket, &p, sizeof p, 0);
	if (n < (ssize_t)offsetof(struct packet, bytes))
		return false;
	uint32_t len = (uint32_t)(n - (ssize_t)offsetof(struct packet, bytes));
	if (rc ? p.from != qp->peer : p.qkey != qp->qkey) {
		fake_verbs.qkey_violations++;
		return true;
	}
	struct posted *to = &qp->ring->at[qp->ring->head % RING];
	if (grh + len > to->sge.length) /* larger than the path's MTU: it never gets here */
		return true;
	qp->ring->head++;
	uint8_t *at = (uint8_t *)(uintptr_t)to->sge.addr;
	memset(at, 0x60, grh);
	memcpy(at + grh, p.bytes, len);
	fake_complete(qp->base.recv_cq, (struct ibv_wc){.wr_id = to->wr_id,
							.opcode = IBV_WC_RECV,
							.byte_len = grh + len,
							.qp_num = qp->base.qp_num,
							.src_qp = p.from,
							.wc_flags = rc ? 0 : IBV_WC_GRH});
	return true;
}

static void receive_all(struct fake_cq *cq, uint32_t n)
{
	for (struct fake_qp *qp = pairs; qp; qp = qp->next)
		while (qp->base.recv_cq == &cq->base && cq->tail - cq->head < n && receive(qp))
			;
}

static int poll_cq(struct ibv_cq *base, int n, struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)base;
	int got = 0;
	pthread_mutex_lock(&fake_lock);
	bool (*spoil)(struct ibv_wc *) = cq->receives ? fake_verbs.spoil_rx : fake_verbs.spoil_tx;
	if (cq->receives)
		receive_all(cq, (uint32_t)n);
	while (got < n && cq->head != cq->tail) {
		struct ibv_wc one = cq->ring[cq->head++ % RING];
		if (spoil && !cq->is_held && !spoil(&one)) {
			cq->held = one;
			cq->is_held = true;
			continue;
		}
		wc[got++] = one;
		if (cq->is_held && got < n) {
			wc[got++] = cq->held;
			cq->is_held = false;
		}
	}
	pthread_mutex_unlock(&fake_lock);
	return got;
}

void fake_pair_ops(struct ibv_context *c)
{
	c->ops.post_send = post_send;
	c->ops.post_recv = post_recv;
	c->ops.post_srq_recv = post_srq_recv;
	c->ops.poll_cq = poll_cq;
	c->ops.req_notify_cq = req_notify;
}

unsigned fake_verbs_break_all(enum ibv_qp_type type)
{
	unsigned n = 0;
	pthread_mutex_lock(&fake_lock);
	for (struct fake_qp *qp = pairs; qp; qp = qp->next) {
		if (qp->base.qp_type != type)
			continue;
		fake_pair_break(qp);
		n++;
	}
	pthread_mutex_unlock(&fake_lock);
	return n;
}

void fake_verbs_break(uint32_t qpn)
{
	pthread_mutex_lock(&fake_lock);
	for (struct fake_qp *qp = pairs; qp; qp = qp->next)
		if (qp->base.qp_num == qpn)
			fake_pair_break(qp);
	pthread_mutex_unlock(&fake_lock);
}

void fake_verbs_inject(uint32_t qpn, uint32_t qkey, const void *bytes, size_t len)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)qpn)};
	struct packet p = {.qkey = qkey};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	memcpy(p.bytes, bytes, len);
	if (fd < 0 || sendto(fd, &p, offsetof(struct packet, bytes) + len, 0, (struct sockaddr *)&to, sizeof to) < 0)
		abort();
	close(fd);
}
