/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#undef ibv_reg_mr
#undef ibv_query_port

enum { RING = 32768, GRH = 40, PACKET = 8192 };

struct fake_qp;

struct fake_cq {
	struct ibv_cq base;
	struct fake_qp *receives; /* of which it is the receive queue's */
	struct ibv_wc ring[RING];
	uint32_t head, tail;
	bool armed;
	struct ibv_wc held;
	bool is_held;
};

struct fake_channel {
	struct ibv_comp_channel base;
	struct fake_cq *cq;
	int event_fd;
};

struct posted {
	uint64_t wr_id;
	struct ibv_sge sge;
};

struct fake_qp {
	struct ibv_qp base;
	int socket;
	uint32_t qkey;
	enum ibv_qp_state state;
	uint32_t recv_max;
	struct posted ring[RING];
	uint32_t head, tail;
	struct fake_qp *next;
};

struct fake_ah {
	struct ibv_ah base;
	struct ibv_ah_attr attr;
};

struct packet {
	uint32_t qkey, from;
	uint8_t bytes[PACKET];
};

static struct ibv_device devices[FAKE_DEVICES_MAX];
static struct ibv_context *opened;
static struct fake_qp *pairs;
static struct ibv_async_event events[16];
static _Atomic unsigned events_head, events_tail;

struct fake_verbs fake_verbs;

static struct ibv_gid_entry gid_entry(unsigned index, unsigned type, const char *text)
{
	struct ibv_gid_entry e = {.gid_index = index, .port_num = 1, .gid_type = type, .ndev_ifindex = 1};
	inet_pton(AF_INET6, text, e.gid.raw);
	return e;
}

void fake_verbs_reset(void)
{
	memset(&fake_verbs, 0, sizeof fake_verbs);
	fake_verbs.devices = 1;
	fake_verbs.transport = IBV_TRANSPORT_IB;
	fake_verbs.inline_max = 64;
	fake_verbs.limits = (struct ibv_device_attr){.fw_ver = "0",
						     .max_qp = 1000,
						     .max_qp_wr = RING,
						     .max_cq = 1000,
						     .max_cqe = RING,
						     .max_ah = 1000,
						     .phys_port_cnt = 1};
	fake_verbs.port = (struct ibv_port_attr){.max_mtu = IBV_MTU_4096,
						 .active_mtu = IBV_MTU_1024,
						 .gid_tbl_len = FAKE_GIDS_MAX,
						 .link_layer = IBV_LINK_LAYER_ETHERNET};
	fake_verbs.port_state = IBV_PORT_ACTIVE;
	fake_verbs.gids[0] = gid_entry(0, IBV_GID_TYPE_ROCE_V2, "fe80::1");
	fake_verbs.gids[1] = gid_entry(1, IBV_GID_TYPE_ROCE_V1, "::ffff:127.0.0.1");
	fake_verbs.gids[2] = gid_entry(2, IBV_GID_TYPE_ROCE_V2, "::ffff:127.0.0.1");
	fake_verbs.gids[3] = gid_entry(3, IBV_GID_TYPE_ROCE_V2, "::1");
	fake_verbs.gids_n = 4;
}

__attribute__((constructor)) static void begin(void)
{
	fake_verbs_reset();
}

/* ---- devices ---- */

struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = calloc(FAKE_DEVICES_MAX + 1, sizeof *list);
	for (unsigned i = 0; i < fake_verbs.devices; i++) {
		devices[i].transport_type = fake_verbs.transport;
		snprintf(devices[i].name, sizeof devices[i].name, "fake%u", i);
		snprintf(devices[i].dev_name, sizeof devices[i].dev_name, "uverbs%u", i);
		list[i] = &devices[i];
	}
	if (n)
		*n = (int)fake_verbs.devices;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
static int req_notify(struct ibv_cq *cq, int solicited);

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	if (fake_verbs.open_error) {
		errno = fake_verbs.open_error;
		return NULL;
	}
	struct ibv_context *c = calloc(1, sizeof *c);
	c->device = device;
	c->ops.post_send = post_send;
	c->ops.post_recv = post_recv;
	c->ops.poll_cq = poll_cq;
	c->ops.req_notify_cq = req_notify;
	c->async_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | EFD_SEMAPHORE);
	c->num_comp_vectors = 1;
	opened = c;
	fake_verbs.contexts++;
	return c;
}

int ibv_close_device(struct ibv_context *c)
{
	fake_verbs.contexts--;
	close(c->async_fd);
	if (opened == c)
		opened = NULL;
	free(c);
	return 0;
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *out)
{
	(void)c;
	*out = fake_verbs.limits;
	return 0;
}

int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *out)
{
	(void)c;
	(void)port;
	struct ibv_port_attr attr = fake_verbs.port;
	attr.state = (enum ibv_port_state)fake_verbs.port_state;
	memcpy(out, &attr, sizeof attr);
	return 0;
}

const char *ibv_port_state_str(enum ibv_port_state state)
{
	return state == IBV_PORT_ACTIVE ? "PORT_ACTIVE" : "PORT_DOWN";
}

ssize_t _ibv_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *out, size_t max, uint32_t flags, size_t size)
{
	(void)c;
	(void)flags;
	if (size != sizeof *out || max < fake_verbs.gids_n)
		return -EINVAL;
	memcpy(out, fake_verbs.gids, fake_verbs.gids_n * sizeof *out);
	return (ssize_t)fake_verbs.gids_n;
}

int ibv_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *out)
{
	(void)c;
	(void)port;
	if (index < 0 || (unsigned)index >= fake_verbs.gids_n)
		return -1;
	*out = fake_verbs.gids[index].gid;
	return 0;
}

/* ---- events ---- */

void fake_verbs_event(enum ibv_event_type type)
{
	events[events_tail++ % 16] = (struct ibv_async_event){.event_type = type};
	eventfd_write(opened->async_fd, 1);
}

int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *out)
{
	eventfd_t one;
	if (eventfd_read(c->async_fd, &one) < 0)
		return -1;
	*out = events[events_head++ % 16];
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
}

/* ---- memory, handles, channels ---- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	struct ibv_pd *pd = calloc(1, sizeof *pd);
	pd->context = c;
	fake_verbs.pds++;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	fake_verbs.pds--;
	free(pd);
	return 0;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	(void)access;
	if (fake_verbs.reg_error) {
		errno = fake_verbs.reg_error;
		return NULL;
	}
	struct ibv_mr *mr = calloc(1, sizeof *mr);
	*mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = length, .lkey = 77};
	fake_verbs.mrs++;
	return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	(void)iova;
	return ibv_reg_mr(pd, addr, length, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	fake_verbs.mrs--;
	free(mr);
	return 0;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	if (fake_verbs.ah_delay_ms)
		usleep(fake_verbs.ah_delay_ms * 1000);
	if (fake_verbs.ah_error) {
		errno = fake_verbs.ah_error;
		return NULL;
	}
	struct fake_ah *ah = calloc(1, sizeof *ah);
	ah->base.context = pd->context;
	ah->base.pd = pd;
	ah->attr = *attr;
	fake_verbs.ahs++;
	return &ah->base;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	fake_verbs.ahs--;
	free(ah);
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	struct fake_channel *ch = calloc(1, sizeof *ch);
	struct epoll_event ev = {.events = EPOLLIN};
	ch->base.context = c;
	ch->base.fd = epoll_create1(EPOLL_CLOEXEC);
	ch->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	epoll_ctl(ch->base.fd, EPOLL_CTL_ADD, ch->event_fd, &ev);
	fake_verbs.channels++;
	return &ch->base;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct fake_channel *ch = (struct fake_channel *)channel;
	close(ch->event_fd);
	close(ch->base.fd);
	free(ch);
	fake_verbs.channels--;
	return 0;
}

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
	if (channel)
		((struct fake_channel *)channel)->cq = cq;
	fake_verbs.cqs++;
	return &cq->base;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	if (cq->comp_events_completed)
		abort(); /* the real one would wait for ever */
	fake_verbs.cqs--;
	free(cq);
	return 0;
}

static struct ibv_wc *complete(struct ibv_cq *cq, struct ibv_wc wc)
{
	struct fake_cq *f = (struct fake_cq *)cq;
	if (f->tail - f->head == RING)
		abort();
	f->ring[f->tail % RING] = wc;
	if (f->armed && cq->channel) {
		f->armed = false;
		eventfd_write(((struct fake_channel *)cq->channel)->event_fd, 1);
	}
	return &f->ring[f->tail++ % RING];
}

static int req_notify(struct ibv_cq *cq, int solicited)
{
	struct fake_cq *f = (struct fake_cq *)cq;
	struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT};
	(void)solicited;
	f->armed = true;
	if (f->receives && epoll_ctl(cq->channel->fd, EPOLL_CTL_MOD, f->receives->socket, &ev) < 0)
		epoll_ctl(cq->channel->fd, EPOLL_CTL_ADD, f->receives->socket, &ev);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **ctx)
{
	struct fake_channel *ch = (struct fake_channel *)channel;
	struct epoll_event ev;
	eventfd_t count;
	if (epoll_wait(channel->fd, &ev, 1, 0) != 1)
		return -1;
	eventfd_read(ch->event_fd, &count);
	*cq = &ch->cq->base;
	*ctx = ch->cq->base.cq_context;
	ch->cq->base.comp_events_completed++;
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
	qp->recv_max = attr->cap.max_recv_wr;
	attr->cap.max_inline_data = fake_verbs.inline_max;
	((struct fake_cq *)attr->recv_cq)->receives = qp;
	qp->next = pairs;
	pairs = qp;
	fake_verbs.qps++;
	return &qp->base;
}

int ibv_destroy_qp(struct ibv_qp *base)
{
	struct fake_qp *qp = (struct fake_qp *)base;
	for (struct fake_qp **at = &pairs; *at; at = &(*at)->next)
		if (*at == qp) {
			*at = qp->next;
			break;
		}
	((struct fake_cq *)base->recv_cq)->receives = NULL;
	close(qp->socket);
	free(qp);
	fake_verbs.qps--;
	return 0;
}

int ibv_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask)
{
	struct fake_qp *qp = (struct fake_qp *)base;
	if (mask & IBV_QP_QKEY)
		qp->qkey = attr->qkey;
	if (attr->qp_state == IBV_QPS_RESET) {
		qp->head = qp->tail; /* completions that there are stay, as with some devices */
		fake_verbs.resets++;
	}
	qp->state = attr->qp_state;
	return 0;
}

static int post_send_one(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	const struct fake_ah *ah = (const struct fake_ah *)wr->wr.ud.ah;
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons((uint16_t)wr->wr.ud.remote_qpn)};
	struct packet p = {.qkey = wr->wr.ud.remote_qkey, .from = qp->base.qp_num};
	size_t len = 0;
	for (int i = 0; i < wr->num_sge; i++) {
		if (len + wr->sg_list[i].length > PACKET || wr->sg_list[i].lkey != 77)
			return EINVAL;
		memcpy(p.bytes + len, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		len += wr->sg_list[i].length;
	}
	if (wr->opcode != IBV_WR_SEND || ((wr->send_flags & IBV_SEND_INLINE) && len > fake_verbs.inline_max))
		return EINVAL;
	fake_verbs.classes[fake_verbs.sent++ % 16] = ah->attr.is_global ? ah->attr.grh.traffic_class : ah->attr.sl;
	fake_verbs.sent_inline += (wr->send_flags & IBV_SEND_INLINE) != 0;
	/* It may fail, as packets may be lost. */
	if (sendto(qp->socket, &p, offsetof(struct packet, bytes) + len, MSG_NOSIGNAL, (struct sockaddr *)&to,
		   sizeof to) < 0)
		return 0;
	return 0;
}

static int post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_qp *qp = (struct fake_qp *)base;
	fake_verbs.posts++;
	for (; wr; wr = wr->next) {
		struct ibv_wc wc = {.wr_id = wr->wr_id, .opcode = IBV_WC_SEND, .qp_num = base->qp_num};
		int error = fake_verbs.post_send ? fake_verbs.post_send(wr) : 0;
		if (!error && qp->state == IBV_QPS_RTS)
			error = post_send_one(qp, wr);
		else if (!error)
			wc.status = IBV_WC_WR_FLUSH_ERR;
		if (error) {
			*bad = wr;
			return error;
		}
		fake_verbs.signalled += (wr->send_flags & IBV_SEND_SIGNALED) != 0;
		if ((wr->send_flags & IBV_SEND_SIGNALED) || wc.status)
			complete(base->send_cq, wc);
	}
	return 0;
}

static int post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fake_qp *qp = (struct fake_qp *)base;
	fake_verbs.recv_posts++;
	for (; wr; wr = wr->next) {
		int error = fake_verbs.post_recv ? fake_verbs.post_recv(wr) : 0;
		if (!error && (qp->tail - qp->head >= qp->recv_max || wr->num_sge != 1 || wr->sg_list->lkey != 77))
			error = ENOMEM;
		if (error) {
			*bad = wr;
			return error;
		}
		if (qp->state == IBV_QPS_ERR)
			complete(base->recv_cq, (struct ibv_wc){.wr_id = wr->wr_id,
								.status = IBV_WC_WR_FLUSH_ERR,
								.opcode = IBV_WC_RECV,
								.qp_num = base->qp_num});
		else
			qp->ring[qp->tail++ % RING] = (struct posted){wr->wr_id, wr->sg_list[0]};
	}
	return 0;
}

/* One packet of the socket's into a posted buffer. */
static bool receive(struct fake_qp *qp)
{
	struct packet p;
	if (qp->state != IBV_QPS_RTS || qp->head == qp->tail)
		return false;
	ssize_t n = recv(qp->socket, &p, sizeof p, 0);
	if (n < (ssize_t)offsetof(struct packet, bytes))
		return false;
	uint32_t len = (uint32_t)(n - (ssize_t)offsetof(struct packet, bytes));
	if (p.qkey != qp->qkey) {
		fake_verbs.qkey_violations++;
		return true;
	}
	struct posted *to = &qp->ring[qp->head % RING];
	if (GRH + len > to->sge.length) /* larger than the path's MTU: it never gets here */
		return true;
	qp->head++;
	uint8_t *at = (uint8_t *)(uintptr_t)to->sge.addr;
	memset(at, 0x60, GRH);
	memcpy(at + GRH, p.bytes, len);
	complete(qp->base.recv_cq, (struct ibv_wc){.wr_id = to->wr_id,
						   .opcode = IBV_WC_RECV,
						   .byte_len = GRH + len,
						   .qp_num = qp->base.qp_num,
						   .src_qp = p.from,
						   .wc_flags = IBV_WC_GRH});
	return true;
}

static int poll_cq(struct ibv_cq *base, int n, struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)base;
	bool (*spoil)(struct ibv_wc *) = cq->receives ? fake_verbs.spoil_rx : fake_verbs.spoil_tx;
	int got = 0;
	for (int i = 0; i < n && cq->tail - cq->head < (uint32_t)n && cq->receives; i++)
		if (!receive(cq->receives))
			break;
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
	return got;
}

void fake_verbs_break(uint32_t qpn)
{
	for (struct fake_qp *qp = pairs; qp; qp = qp->next) {
		if (qp->base.qp_num != qpn)
			continue;
		qp->state = IBV_QPS_ERR;
		for (; qp->head != qp->tail; qp->head++)
			complete(qp->base.recv_cq, (struct ibv_wc){.wr_id = qp->ring[qp->head % RING].wr_id,
								   .status = IBV_WC_WR_FLUSH_ERR,
								   .opcode = IBV_WC_RECV,
								   .qp_num = qpn});
	}
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
