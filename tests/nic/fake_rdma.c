/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Memory of the tests' own device: regions, windows of type 2B, and reads by connections, which a thread of the process
 * serves as hardware would, whatever the program does meanwhile. Requests travel over abstract unix sockets, so other
 * processes can be read too. Keys are checked for each piece of a read: right, range, pair, and that they still hold.
 */
#include "fake_parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#undef ibv_reg_mr

enum { PIECE = 16384, REQUEST = 1, PIECE_OF, NAK };

struct region {
	struct ibv_mr base;
	int access;
	unsigned windows; /* bound to it */
	unsigned seen[2]; /* lkey, rkey, in what was sent */
	struct region *next;
};

struct window {
	struct ibv_mw base;
	struct fake_qp *qp; /* NULL: not bound */
	struct region *region;
	uint32_t rkey; /* that holds, or the last that did */
	uint64_t addr, length;
	unsigned access;
	struct window *next;
};

/** A read that was posted. */
struct fake_read {
	uint64_t wr_id;
	struct ibv_sge sge;
	uint32_t id, rkey, got;
	uint64_t addr;
	bool asked;
	struct fake_read *next;
};

/** One that is to be answered. */
struct fake_answer {
	uint32_t to, id, rkey, len, at;
	uint64_t addr;
	struct fake_answer *next;
};

struct message {
	uint32_t kind, from, id, rkey;
	uint64_t addr;
	uint32_t len, at; /* PIECE_OF: bytes, and where they belong */
	uint8_t bytes[PIECE];
};
#define MESSAGE_HEAD offsetof(struct message, bytes)

static struct region *regions;
static struct window *windows;
static int epoll_fd = -1, kick_fd = -1;
static bool waits; /* the other end's socket was full: try again soon */

/* Beside the byte that programs choose: no two that hold are alike. With the lock. */
static bool is_taken(uint32_t key)
{
	for (const struct region *r = regions; r; r = r->next)
		if ((r->base.lkey ^ key) >> 8 == 0 || (r->base.rkey ^ key) >> 8 == 0)
			return true;
	for (const struct window *w = windows; w; w = w->next)
		if ((w->rkey ^ key) >> 8 == 0)
			return true;
	return false;
}

/* Random ones: what is found of them in packets is no accident. */
static uint32_t key_new(void)
{
	uint32_t key = 0;
	do
		if (getrandom(&key, sizeof key, 0) != (ssize_t)sizeof key)
			abort();
	while (key == 0 || is_taken(key));
	return key;
}

/* ---- regions ---- */

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	errno = fake_verbs.reg_error;
	if (fake_verbs.reg_refused) {
		fake_verbs.reg_refused--;
		errno = ENOMEM;
	}
	if (!errno && fake_verbs.reg_most && length > fake_verbs.reg_most)
		errno = ENOMEM;
	struct region *r = errno ? NULL : calloc(1, sizeof *r);
	if (!r)
		return NULL;
	pthread_mutex_lock(&fake_lock);
	r->base = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = length};
	r->base.lkey = key_new();
	r->base.rkey = key_new();
	r->access = access;
	r->next = regions;
	regions = r;
	pthread_mutex_unlock(&fake_lock);
	fake_verbs.mrs++;
	return &r->base;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	(void)iova;
	return ibv_reg_mr(pd, addr, length, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct region *r = (struct region *)mr;
	pthread_mutex_lock(&fake_lock);
	int error = r->windows ? EBUSY : 0;
	for (struct region **at = &regions; !error && *at; at = &(*at)->next)
		if (*at == r) {
			*at = r->next;
			break;
		}
	pthread_mutex_unlock(&fake_lock);
	if (error)
		return error;
	fake_verbs.mrs--;
	free(r);
	return 0;
}

static bool within(uint64_t at, uint64_t len, uint64_t base, uint64_t bytes)
{
	return at >= base && at - base <= bytes && len <= bytes - (at - base);
}

bool fake_lkey_fits(const struct ibv_pd *pd, const struct ibv_sge *sge, int access)
{
	bool fits = false;
	pthread_mutex_lock(&fake_lock);
	for (const struct region *r = regions; r && !fits; r = r->next)
		fits = r->base.lkey == sge->lkey && r->base.pd == pd && (r->access & access) == access &&
		       within(sge->addr, sge->length, (uintptr_t)r->base.addr, r->base.length);
	pthread_mutex_unlock(&fake_lock);
	return fits;
}

/* In either order of bytes. */
static bool is_key(const uint8_t *at, uint32_t key)
{
	uint32_t word;
	memcpy(&word, at, sizeof word);
	return word == key || __builtin_bswap32(word) == key;
}

static void look_for(struct region *r, unsigned which, const uint8_t *at, size_t len)
{
	uint32_t key = which ? r->base.rkey : r->base.lkey;
	for (size_t i = 0; i + sizeof key <= len; i++) {
		if (!is_key(at + i, key))
			continue;
		fake_verbs.keys_seen++;
		if (++r->seen[which] > fake_verbs.keys_most)
			fake_verbs.keys_most = r->seen[which];
	}
}

void fake_keys_look(const void *bytes, size_t len)
{
	if (!fake_verbs.keys_watched)
		return;
	pthread_mutex_lock(&fake_lock);
	fake_verbs.keys_looked += len;
	for (struct region *r = regions; r; r = r->next)
		for (unsigned which = 0; which < 2; which++)
			look_for(r, which, bytes, len);
	pthread_mutex_unlock(&fake_lock);
}

uint32_t fake_verbs_region_key(const void *at)
{
	uint32_t key = 0;
	pthread_mutex_lock(&fake_lock);
	for (const struct region *r = regions; r && !key; r = r->next)
		if (within((uintptr_t)at, 1, (uintptr_t)r->base.addr, r->base.length))
			key = r->base.rkey;
	pthread_mutex_unlock(&fake_lock);
	return key;
}

/* ---- windows ---- */

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	errno = fake_verbs.mw_error ? fake_verbs.mw_error : type == IBV_MW_TYPE_2 ? 0 : EINVAL;
	struct window *w = errno ? NULL : calloc(1, sizeof *w);
	if (!w)
		return NULL;
	pthread_mutex_lock(&fake_lock);
	w->base = (struct ibv_mw){.context = pd->context, .pd = pd, .type = type};
	w->base.rkey = w->rkey = key_new();
	w->next = windows;
	windows = w;
	pthread_mutex_unlock(&fake_lock);
	fake_verbs.mws++;
	return &w->base;
}

static void unbind(struct window *w)
{
	if (w->qp)
		w->region->windows--;
	w->qp = NULL;
	w->region = NULL;
}

static int dealloc_mw(struct ibv_mw *mw)
{
	struct window *w = (struct window *)mw;
	pthread_mutex_lock(&fake_lock);
	unbind(w);
	for (struct window **at = &windows; *at; at = &(*at)->next)
		if (*at == w) {
			*at = w->next;
			break;
		}
	pthread_mutex_unlock(&fake_lock);
	free(w);
	fake_verbs.mws--;
	return 0;
}

static bool bind_it(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	struct window *w = (struct window *)wr->bind_mw.mw;
	struct region *r = (struct region *)wr->bind_mw.bind_info.mr;
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;
	/* As soft-RoCE: the window is known by the key that it has now, which is for the caller to keep up. */
	if (w->qp || w->base.rkey != w->rkey || w->base.pd != qp->base.pd || r->base.pd != qp->base.pd ||
	    !(r->access & IBV_ACCESS_MW_BIND) || wr->bind_mw.rkey >> 8 != w->rkey >> 8 || wr->bind_mw.rkey == w->rkey ||
	    info->length == 0 || !within(info->addr, info->length, (uintptr_t)r->base.addr, r->base.length))
		return false;
	w->qp = qp;
	w->region = r;
	w->rkey = wr->bind_mw.rkey;
	w->addr = info->addr;
	w->length = info->length;
	w->access = info->mw_access_flags;
	r->windows++;
	fake_verbs.binds++;
	return true;
}

static bool invalidate(const struct fake_qp *qp, uint32_t rkey)
{
	for (struct window *w = windows; w; w = w->next)
		if (w->qp == qp && w->rkey == rkey) {
			unbind(w);
			fake_verbs.invalidated++;
			return true;
		}
	return false;
}

static bool window_has(const struct window *w, uint64_t addr, uint32_t len)
{
	uint64_t base = (uintptr_t)w->region->base.addr, end = base + w->region->base.length;
	bool before = fake_verbs.windows_loose || fake_verbs.loose_end < 0,
	     behind = fake_verbs.windows_loose || fake_verbs.loose_end > 0;
	uint64_t from = before ? base : w->addr, to = behind ? end : w->addr + w->length;
	return within(addr, len, from, to - from);
}

/* What a device looks at before it lets somebody read. */
static bool may_read(const struct fake_qp *qp, uint32_t rkey, uint64_t addr, uint32_t len)
{
	for (const struct window *w = windows; w; w = w->next)
		if (w->qp == qp && w->rkey == rkey)
			return w->access & IBV_ACCESS_REMOTE_READ && window_has(w, addr, len);
	for (const struct region *r = regions; r; r = r->next)
		if (r->base.rkey == rkey && r->base.pd == qp->base.pd)
			return r->access & IBV_ACCESS_REMOTE_READ &&
			       within(addr, len, (uintptr_t)r->base.addr, r->base.length);
	return false;
}

/* ---- reads; with the lock ---- */

static struct sockaddr_un name_of(uint32_t qpn, socklen_t *len)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "farcall-fake-rdma-%u", qpn);
	*len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	return at;
}

/* 0; EAGAIN: not now; else there is nobody. */
static int send_to(const struct fake_qp *qp, uint32_t to, const struct message *m, size_t bytes)
{
	socklen_t len;
	struct sockaddr_un at = name_of(to, &len);
	if (sendto(qp->rdma, m, bytes, MSG_DONTWAIT, (struct sockaddr *)&at, len) >= 0)
		return 0;
	if (errno != EAGAIN && errno != ENOBUFS)
		return errno;
	waits = true;
	return EAGAIN;
}

/* With FAKE_VERBS_SAY a process says what it read before it ends. */
static uint64_t reads_n, reads_bytes;

__attribute__((destructor)) static void say(void)
{
	if (getenv("FAKE_VERBS_SAY"))
		fprintf(stderr,
			"fake: %" PRIu64 " reads, %" PRIu64 " bytes\nfake: %" PRIu64
			" times a key of a region in %" PRIu64 " bytes sent\n",
			reads_n, reads_bytes, fake_verbs.keys_most, fake_verbs.keys_looked);
}

static void end_read(struct fake_qp *qp, enum ibv_wc_status status)
{
	struct fake_read *r = qp->reads;
	qp->reads = r->next;
	if (status == IBV_WC_SUCCESS) {
		reads_n++;
		reads_bytes += r->sge.length;
	}
	fake_complete(qp->base.send_cq, (struct ibv_wc){.wr_id = r->wr_id,
							.status = status,
							.opcode = IBV_WC_RDMA_READ,
							.byte_len = r->sge.length,
							.qp_num = qp->base.qp_num});
	free(r);
}

void fake_reads_flush(struct fake_qp *qp)
{
	while (qp->reads)
		end_read(qp, IBV_WC_WR_FLUSH_ERR);
	for (struct fake_answer *a; (a = qp->answers);) {
		qp->answers = a->next;
		free(a);
	}
}

void fake_reads_drop(struct fake_qp *qp)
{
	for (struct fake_read *r; (r = qp->reads);) {
		qp->reads = r->next;
		free(r);
	}
	fake_reads_flush(qp);
	for (struct window *w = windows; w; w = w->next)
		if (w->qp == qp)
			unbind(w);
	if (qp->rdma >= 0)
		close(qp->rdma);
}

/* The first of its reads fails; the others are flushed. */
static void fail_first(struct fake_qp *qp, enum ibv_wc_status status)
{
	end_read(qp, status);
	fake_pair_break(qp);
}

static void ask(struct fake_qp *qp)
{
	for (struct fake_read *r = qp->reads; r; r = r->next) {
		if (r->asked)
			continue;
		struct message m = {.kind = REQUEST,
				    .from = qp->base.qp_num,
				    .id = r->id,
				    .rkey = r->rkey,
				    .addr = r->addr,
				    .len = r->sge.length};
		int error = send_to(qp, qp->peer, &m, MESSAGE_HEAD);
		if (error == EAGAIN)
			return;
		if (error) {
			fail_first(qp, IBV_WC_RETRY_EXC_ERR);
			return;
		}
		r->asked = true;
	}
}

/* As much as the other end's socket takes. */
static void answer(struct fake_qp *qp)
{
	struct fake_answer *a;
	while ((a = qp->answers)) {
		struct message m = {.kind = PIECE_OF, .from = qp->base.qp_num, .id = a->id, .at = a->at};
		uint32_t left = a->len - a->at;
		m.len = left < PIECE ? left : PIECE;
		bool may = qp->state == IBV_QPS_RTS && may_read(qp, a->rkey, a->addr + a->at, m.len);
		if (may)
			memcpy(m.bytes, (const void *)(uintptr_t)(a->addr + a->at), m.len);
		else
			m.kind = NAK;
		int error = send_to(qp, a->to, &m, MESSAGE_HEAD + (may ? m.len : 0));
		if (error == EAGAIN)
			return;
		a->at += m.len;
		if (!may) {
			fake_verbs.read_naks++;
			fake_pair_break(qp); /* forgets what is to be answered */
			return;
		}
		if (a->at == a->len || error) {
			qp->answers = a->next;
			free(a);
		}
	}
}

static void take_request(struct fake_qp *qp, const struct message *m)
{
	struct fake_answer *a = calloc(1, sizeof *a), **last = &qp->answers;
	*a = (struct fake_answer){.to = m->from, .id = m->id, .rkey = m->rkey, .len = m->len, .addr = m->addr};
	while (*last)
		last = &(*last)->next;
	*last = a;
}

static void take_message(struct fake_qp *qp, const struct message *m)
{
	struct fake_read *r = qp->reads;
	if (m->from != qp->peer)
		return;
	if (m->kind == REQUEST) {
		take_request(qp, m);
	} else if (r && r->id == m->id && m->kind == NAK) {
		fail_first(qp, IBV_WC_REM_ACCESS_ERR);
	} else if (r && r->id == m->id && m->at == r->got) {
		memcpy((uint8_t *)(uintptr_t)r->sge.addr + r->got, m->bytes, m->len);
		r->got += m->len;
		if (r->got == r->sge.length) {
			fake_verbs.reads++;
			end_read(qp, IBV_WC_SUCCESS);
		}
	}
}

static void serve(struct fake_qp *qp)
{
	struct message m;
	if (qp->rdma < 0)
		return;
	while (!fake_verbs.reads_held && recv(qp->rdma, &m, sizeof m, MSG_DONTWAIT) >= (ssize_t)MESSAGE_HEAD)
		take_message(qp, &m);
	if (fake_verbs.reads_held)
		waits = true;
	else
		answer(qp);
	if (qp->state == IBV_QPS_RTS)
		ask(qp);
}

/* ---- the thread ---- */

static void *device_main(void *arg)
{
	struct epoll_event ev[16];
	eventfd_t ignored;
	(void)arg;
	for (bool soon = false;;) {
		epoll_wait(epoll_fd, ev, 16, soon ? 1 : -1);
		if (soon && fake_verbs.reads_held)
			usleep(1000); /* what waits to be read keeps the descriptors readable */
		pthread_mutex_lock(&fake_lock);
		eventfd_read(kick_fd, &ignored);
		waits = false;
		fake_pairs_each(serve);
		soon = waits;
		pthread_mutex_unlock(&fake_lock);
	}
	return NULL;
}

static void begin(void)
{
	struct epoll_event ev = {.events = EPOLLIN};
	pthread_t thread;
	if (epoll_fd >= 0)
		return;
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	kick_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	epoll_ctl(epoll_fd, EPOLL_CTL_ADD, kick_fd, &ev);
	if (pthread_create(&thread, NULL, device_main, NULL) || pthread_detach(thread))
		abort();
}

void fake_reads_open(struct fake_qp *qp)
{
	struct epoll_event ev = {.events = EPOLLIN};
	socklen_t len;
	struct sockaddr_un at = name_of(qp->base.qp_num, &len);
	qp->rdma = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (qp->rdma < 0 || bind(qp->rdma, (struct sockaddr *)&at, len) < 0)
		abort();
	pthread_mutex_lock(&fake_lock);
	begin();
	epoll_ctl(epoll_fd, EPOLL_CTL_ADD, qp->rdma, &ev);
	pthread_mutex_unlock(&fake_lock);
}

/* ---- posting ---- */

static int post_read(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	if (wr->num_sge != 1 || !fake_lkey_fits(qp->base.pd, wr->sg_list, IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	struct fake_read *r = calloc(1, sizeof *r), **last = &qp->reads;
	*r = (struct fake_read){.wr_id = wr->wr_id,
				.sge = wr->sg_list[0],
				.id = qp->reads_n++,
				.rkey = wr->wr.rdma.rkey,
				.addr = wr->wr.rdma.remote_addr};
	while (*last)
		last = &(*last)->next;
	*last = r;
	eventfd_write(kick_fd, 1);
	return 0;
}

int fake_rdma_post(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	bool done;
	if (qp->base.qp_type != IBV_QPT_RC || !(wr->send_flags & IBV_SEND_SIGNALED))
		return EINVAL;
	struct ibv_wc wc = {.wr_id = wr->wr_id, .qp_num = qp->base.qp_num};
	switch (wr->opcode) {
	case IBV_WR_RDMA_READ:
		return post_read(qp, wr);
	case IBV_WR_BIND_MW:
		wc.opcode = IBV_WC_BIND_MW;
		done = bind_it(qp, wr);
		break;
	case IBV_WR_LOCAL_INV:
		wc.opcode = IBV_WC_LOCAL_INV;
		done = invalidate(qp, wr->invalidate_rkey);
		break;
	default:
		return EINVAL;
	}
	wc.status = done ? IBV_WC_SUCCESS : IBV_WC_MW_BIND_ERR;
	fake_complete(qp->base.send_cq, wc);
	if (!done)
		fake_pair_break(qp);
	return 0;
}

void fake_rdma_ops(struct ibv_context *c)
{
	c->ops.alloc_mw = alloc_mw;
	c->ops.dealloc_mw = dealloc_mw;
}
