/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_queue.h"

#include "base/must.h"
#include "core/shard.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct fake_queue *of(struct nic_queue *q)
{
	return (struct fake_queue *)(void *)q;
}

static void packet_set(struct fake_packet *p, uint32_t peer, const void *head, const void *body, uint64_t len)
{
	memcpy(p->head, head, sizeof p->head);
	p->peer = peer;
	p->body_len = len;
	p->released = false;
	p->body = p->inline_body;
	if (len > FAKE_INLINE) {
		p->body = aligned_alloc(64, (len + 63) / 64 * 64);
		must(p->body);
	}
	if (len && body)
		memcpy(p->body, body, len);
}

static void packet_free(struct fake_packet *p)
{
	if (p->body && p->body != p->inline_body)
		free(p->body);
	p->body = NULL;
}

static int fake_attach(struct nic_queue *nq, uint32_t peer)
{
	struct fake_queue *q = of(nq);
	if (peer >= FAKE_PEERS || q->attached[peer])
		return -EINVAL;
	q->attached[peer] = true;
	return 0;
}

static void fake_detach(struct nic_queue *nq, uint32_t peer)
{
	struct fake_queue *q = of(nq);
	must(q->attached[peer]);
	q->attached[peer] = false;
	/* What was held towards a peer that is gone needs no release any more. */
	for (unsigned i = 0; i < q->in_read; i++)
		if (q->in[i].peer == peer && q->in[i].body_len > FAKE_INLINE && !q->in[i].released) {
			q->in[i].released = true;
			q->in_held--;
		}
}

static unsigned fake_recv(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max)
{
	struct fake_queue *q = of(nq);
	unsigned n = 0;
	q->recvs++;
	while (n < max && q->in_read < q->in_n) {
		struct fake_packet *p = &q->in[q->in_read++];
		bool large = p->body_len > FAKE_INLINE;
		struct fake_place *at = &q->placed[q->placed_read];
		if (q->placed_read < q->placed_n && at->packet == q->in_read - 1) { /* it was put there */
			pkts[n++] = (struct nic_pkt){.head = p->head,
						     .body = at->where.at,
						     .body_len = p->body_len,
						     .cookie = q->in_read,
						     .peer = p->peer};
			buf_unref(at->where.owner); /* the shard has one of its own as long as it waits for it */
			q->placed_read++;
			q->in_held++;
			continue;
		}
		pkts[n++] = (struct nic_pkt){
			.head = q->bad_next ? NULL : p->head,
			.body = p->body_len ? p->body : NULL,
			.body_len = p->body_len,
			.cookie = large ? q->in_read : 0,
			.peer = p->peer,
		};
		q->bad_next = false;
		q->in_held += large;
	}
	return n;
}

static void fake_release(struct nic_queue *nq, uint32_t peer, uint64_t cookie)
{
	struct fake_queue *q = of(nq);
	must(cookie >= 1 && cookie <= q->in_read);
	struct fake_packet *p = &q->in[cookie - 1];
	if (!q->attached[peer] && p->released)
		return;
	must(p->peer == peer && !p->released); /* exactly once */
	p->released = true;
	q->in_held--;
	/* Whoever reads it later is caught. */
	packet_free(p);
}

static int fake_tx_reserve(struct nic_queue *nq, uint32_t peer, uint64_t body_len, struct nic_tx *tx)
{
	struct fake_queue *q = of(nq);
	if (peer >= FAKE_PEERS || !q->attached[peer])
		return -EPIPE;
	if (q->no_slots)
		return -EAGAIN;
	if (body_len > FAKE_BODY)
		return -EMSGSIZE;
	if (q->no_bulk && body_len > FAKE_INLINE)
		return -ENOBUFS;
	tx->peer = peer;
	tx->body_len = body_len;
	tx->head = tx->head_room;
	tx->body = aligned_alloc(64, (body_len + 64) / 64 * 64);
	must(tx->body);
	tx->cookie = 1;
	tx->link = NULL;
	q->open_tx++;
	return 0;
}

static uint32_t fake_tx_room(struct nic_queue *nq, uint32_t peer)
{
	struct fake_queue *q = of(nq);
	return peer < FAKE_PEERS && q->attached[peer] && !q->no_slots ? UINT32_MAX : 0;
}

static int fake_tx_commit(struct nic_queue *nq, struct nic_tx *tx)
{
	struct fake_queue *q = of(nq);
	if (q->commit_error) {
		int error = q->commit_error;
		q->commit_error = 0;
		return error;
	}
	must(q->out_n < FAKE_PACKETS);
	packet_set(&q->out[q->out_n++], tx->peer, tx->head, tx->body, tx->body_len);
	if (tx->link) { /* as if a device read it from now on */
		must(q->lent_n < FAKE_LENT);
		q->lent[q->lent_n++] = (struct fake_lent){tx->link, tx->body, tx->body_len};
	} else {
		free(tx->body);
	}
	q->open_tx--;
	return 0;
}

static void fake_tx_cancel(struct nic_queue *nq, struct nic_tx *tx)
{
	if (tx->link)
		buf_unref(tx->link);
	else
		free(tx->body);
	of(nq)->open_tx--;
}

static int fake_tx_lend(struct nic_queue *nq, uint32_t peer, const void *body, uint64_t body_len, void *owner,
			struct nic_tx *tx)
{
	struct fake_queue *q = of(nq);
	if (peer >= FAKE_PEERS || !q->attached[peer])
		return -EPIPE;
	if (q->no_slots)
		return -EAGAIN;
	if (q->no_bulk)
		return -ENOBUFS;
	buf_ref(owner);
	*tx = (struct nic_tx){.peer = peer, .body = (uint8_t *)(uintptr_t)body, .body_len = body_len, .link = owner};
	tx->head = tx->head_room;
	q->open_tx++;
	return 0;
}

void fake_queue_let_go(struct fake_queue *q)
{
	while (q->lent_n)
		buf_unref(q->lent[--q->lent_n].owner);
}

static void fake_flush(struct nic_queue *nq)
{
	of(nq)->out_flushed = of(nq)->out_n;
}

static void fake_arm(struct nic_queue *nq)
{
	of(nq)->armed = true;
	of(nq)->arms++;
}

static void fake_disarm(struct nic_queue *nq)
{
	of(nq)->armed = false;
}

static int fake_wake_fd(const struct nic_queue *nq)
{
	return ((const struct fake_queue *)(const void *)nq)->wake_fd;
}

static void fake_wake_clear(struct nic_queue *nq)
{
	uint64_t count;
	of(nq)->clears++;
	ssize_t n = read(of(nq)->wake_fd, &count, sizeof count);
	(void)n;
}

static void fake_wake(struct nic_queue *nq)
{
	uint64_t one = 1;
	ssize_t n = write(of(nq)->wake_fd, &one, sizeof one);
	(void)n;
	of(nq)->wakes++;
}

static uint64_t fake_tx_bytes_max(struct nic_queue *nq, uint32_t peer)
{
	(void)nq;
	(void)peer;
	return FAKE_BODY;
}

static uint64_t fake_deadline(const struct nic_queue *nq)
{
	return of((struct nic_queue *)(uintptr_t)nq)->deadline;
}

static void fake_watch(struct nic_queue *nq, bool (*owes)(void *ctx, uint32_t peer), void *ctx)
{
	of(nq)->owes = owes;
	of(nq)->owes_ctx = ctx;
}

static void fake_placing(struct nic_queue *nq, nic_place_fn *place, void *ctx)
{
	of(nq)->place = place;
	of(nq)->place_ctx = ctx;
}

static const struct nic_queue_ops fake_ops = {
	.attach = fake_attach,
	.detach = fake_detach,
	.recv = fake_recv,
	.release = fake_release,
	.tx_reserve = fake_tx_reserve,
	.tx_room = fake_tx_room,
	.tx_commit = fake_tx_commit,
	.tx_cancel = fake_tx_cancel,
	.flush = fake_flush,
	.arm = fake_arm,
	.disarm = fake_disarm,
	.wake_fd = fake_wake_fd,
	.wake_clear = fake_wake_clear,
	.wake = fake_wake,
	.tx_bytes_max = fake_tx_bytes_max,
	.deadline = fake_deadline,
	.watch = fake_watch,
	.placing = fake_placing,
};

void fake_queue_lends(struct fake_queue *q)
{
	static struct nic_queue_ops lends;
	lends = fake_ops;
	lends.tx_lend = fake_tx_lend;
	q->base.ops = &lends;
}

struct fake_queue *fake_queue_new(void)
{
	struct fake_queue *q = shard_zeroed(1, sizeof *q); /* packets that are not used cost nothing */
	must(q);
	q->deadline = UINT64_MAX;
	q->base.ops = &fake_ops;
	q->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return q;
}

void fake_queue_free(struct fake_queue *q)
{
	for (unsigned i = 0; i < q->in_n; i++)
		packet_free(&q->in[i]);
	for (unsigned i = 0; i < q->out_n; i++)
		packet_free(&q->out[i]);
	close(q->wake_fd);
	shard_zeroed_free(q);
}

void fake_queue_put(struct fake_queue *q, uint32_t peer, const struct shm_head *head, const void *body, uint64_t len)
{
	must(q->in_n < FAKE_PACKETS);
	packet_set(&q->in[q->in_n++], peer, head, body, len);
}

bool fake_queue_place(struct fake_queue *q, uint32_t peer, const struct shm_head *head, const void *body, uint64_t len)
{
	struct fake_place *at = &q->placed[q->placed_n];
	must(q->placed_n < FAKE_LENT && len > FAKE_INLINE);
	if (!q->place(q->place_ctx, peer, (const uint8_t *)head, len, &at->where))
		return false;
	memcpy(at->where.at, body, len);
	at->packet = q->in_n;
	q->placed_n++;
	fake_queue_put(q, peer, head, body, len);
	return true;
}

const struct fake_packet *fake_queue_sent(struct fake_queue *q, struct shm_head *head)
{
	if (q->out_read == q->out_n)
		return NULL;
	struct fake_packet *p = &q->out[q->out_read++];
	memcpy(head, p->head, sizeof *head);
	return p;
}

const void *fake_body(const struct fake_packet *p)
{
	return p->body;
}
