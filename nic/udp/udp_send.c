/* SPDX-License-Identifier: BSD-3-Clause */
/** The send half of a queue. Poller. Packets are written into the arena and sent at the flush: a single one by
 * sendto(), equal ones to the same destination as a run that the kernel segments (UDP_SEGMENT), several messages by one
 * sendmmsg(). The socket's TOS is that of the highest priority; other priorities set theirs by a cmsg, so a small
 * urgent message still costs one sendto(). Packets for which the socket buffer has no room stay and are retried by the
 * next flush or recv; refused packets are dropped and counted. */
#include "nic/udp/udp_port.h"

#include <errno.h>
#include <netinet/udp.h>
#include <string.h>

#define TRIES 3u /* of a message while errors of earlier packets are reported */

static struct udp_slot *slot_at(struct udp_queue *q, uint32_t i)
{
	return &q->slots[i % UDP_SLOTS];
}

static struct udp_dest *dest_of(struct udp_queue *q, uint32_t peer)
{
	struct udp_dest *dest = peer < UDP_DESTS_MAX ? &q->port->dests[peer] : NULL;
	return dest && dest->attached_to == q ? dest : NULL;
}

static void reclaim(struct udp_queue *q)
{
	if (!q->ready_n && !q->open_n)
		q->slots_n = 0;
	while (q->slots_n && slot_at(q, q->first_slot)->state == UDP_SLOT_DONE) {
		q->first_slot++;
		q->slots_n--;
	}
}

/* ---- reserve, commit, cancel ---- */

int udp_tx_reserve(struct nic_queue *nq, uint32_t peer, uint64_t body_len, struct nic_tx *tx)
{
	struct udp_queue *q = udp_queue_of(nq);
	struct udp_dest *dest = dest_of(q, peer);
	if (!dest)
		return -EPIPE;
	/* Bodies beyond the path MTU are allowed for retransmissions of packets sent before it was known. */
	if (body_len > dest->cut_max)
		return -EMSGSIZE;
	if (q->slots_n == UDP_SLOTS)
		return -EAGAIN;
	uint32_t room = ((uint32_t)body_len + UDP_ALIGN - 1) & ~(UDP_ALIGN - 1);
	uint32_t at = q->slots_n ? q->arena_at : 0; /* an empty arena restarts at the part that is in the cache */
	if (at + room > UDP_ARENA_BYTES)
		at = 0;
	uint32_t i = q->first_slot + q->slots_n++;
	q->open_n++;
	q->arena_at = at + room;
	*slot_at(q, i) = (struct udp_slot){.at = at, .bytes = (uint32_t)body_len, .peer = peer, .state = UDP_SLOT_OPEN};
	tx->head = tx->head_room;
	tx->body = q->arena + at;
	tx->body_len = body_len;
	tx->cookie = i % UDP_SLOTS + 1;
	tx->driver_data = dest;
	tx->peer = peer;
	tx->priority = 0;
	return 0;
}

static struct udp_slot *slot_of(struct udp_queue *q, const struct nic_tx *tx)
{
	struct udp_slot *slot = &q->slots[(tx->cookie - 1) % UDP_SLOTS];
	return slot->state == UDP_SLOT_OPEN ? slot : NULL;
}

void udp_tx_refer(struct nic_queue *nq, struct nic_tx *tx, const void *bytes, uint32_t len)
{
	struct udp_slot *slot = slot_of(udp_queue_of(nq), tx);
	if (!slot)
		return;
	slot->tail = bytes;
	slot->tail_bytes = len;
}

int udp_tx_commit(struct nic_queue *nq, struct nic_tx *tx)
{
	struct udp_queue *q = udp_queue_of(nq);
	struct udp_slot *slot = slot_of(q, tx);
	if (!slot)
		return -EPIPE;
	q->open_n--;
	if (slot->peer == NIC_PEER_NONE) {
		slot->state = UDP_SLOT_DONE;
		reclaim(q);
		return 0;
	}
	slot->state = UDP_SLOT_READY;
	slot->tos = nic_dscp_of(&q->port->args.dscp, tx->priority);
	q->ready_n++;
	q->ready_bytes += slot->bytes;
	if ((q->ready_bytes >= UDP_EARLY_BYTES || q->ready_n >= UDP_EARLY_PACKETS) && !q->blocked)
		udp_send_ready(q);
	return 0;
}

void udp_tx_cancel(struct nic_queue *nq, struct nic_tx *tx)
{
	struct udp_queue *q = udp_queue_of(nq);
	struct udp_slot *slot = slot_of(q, tx);
	if (!slot)
		return;
	q->open_n--;
	slot->state = UDP_SLOT_DONE;
	reclaim(q);
}

/* ---- results ---- */

/* Frees the slots; returns their bytes. */
static uint32_t finish(struct udp_queue *q, struct udp_slot **slots, unsigned n)
{
	uint32_t bytes = 0;
	for (unsigned i = 0; i < n; i++) {
		slots[i]->state = UDP_SLOT_DONE;
		bytes += slots[i]->bytes;
	}
	q->ready_n -= n;
	q->ready_bytes -= bytes;
	return bytes;
}

static void sent(struct udp_queue *q, struct udp_slot **slots, unsigned n)
{
	uint32_t bytes = finish(q, slots, n);
	udp_count(&q->counters.tx_packets, n);
	udp_count(&q->counters.tx_bytes, bytes);
}

static void drop(struct udp_queue *q, struct udp_dest *dest, int error, struct udp_slot **slots, unsigned n)
{
	atomic_store_explicit(&dest->error, error, memory_order_relaxed);
	finish(q, slots, n);
	udp_count(&q->counters.tx_dropped, n);
}

void udp_send_drop(struct udp_queue *q, uint32_t peer)
{
	for (uint32_t i = 0; i < q->slots_n; i++) {
		struct udp_slot *slot = slot_at(q, q->first_slot + i);
		if (slot->peer != peer || slot->state == UDP_SLOT_DONE)
			continue;
		slot->peer = NIC_PEER_NONE;
		if (slot->state == UDP_SLOT_OPEN)
			continue;
		finish(q, &slot, 1);
		udp_count(&q->counters.tx_dropped, 1);
	}
	reclaim(q);
}

/* ---- errors ---- */

/* True if the error means that the device takes no runs (tunnels, for example), or none with segments above its MTU. */
static bool rejects_gso(int error, unsigned tries)
{
	return error == EIO || error == EINVAL || error == EOPNOTSUPP || error == ENOPROTOOPT ||
	       (error == EMSGSIZE && tries > 0);
}

/** The first message, of `n` packets, was refused. Many errors belong to an earlier packet, reported through ICMP: the
 * socket reports such an error once and takes the message on the next try. */
static void refused(struct udp_queue *q, int error, struct udp_slot **slots, unsigned n, unsigned *tries)
{
	struct udp_dest *dest = &q->port->dests[slots[0]->peer];
	if (error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM) {
		q->blocked = true;
		return;
	}
	if (n > 1 && rejects_gso(error, *tries)) {
		dest->segments = false;
		return;
	}
	if (error == EINTR)
		return;
	udp_errors_take(q, &q->sockets[dest->socket]);
	if (error == EPERM || error == EINVAL || ++*tries >= TRIES) {
		drop(q, dest, error, slots, n);
		*tries = 0;
	}
}

/* ---- batches ---- */

static void add_bytes(struct udp_batch *b, struct msghdr *msg, const uint8_t *bytes, uint32_t len)
{
	struct iovec *last = msg->msg_iovlen ? &b->iovs[b->iovs_n - 1] : NULL;
	if (last && (uint8_t *)last->iov_base + last->iov_len == bytes) {
		last->iov_len += len;
		return;
	}
	b->iovs[b->iovs_n++] = (struct iovec){(uint8_t *)(uintptr_t)bytes, len};
	msg->msg_iovlen++;
}

static void take_slot(struct udp_queue *q, struct udp_batch *b, unsigned m, struct udp_slot *slot)
{
	slot->state = UDP_SLOT_TAKEN;
	b->taken[b->taken_n++] = slot;
	b->of[m].packets++;
	add_bytes(b, &b->messages[m].msg_hdr, q->arena + slot->at, slot->bytes - slot->tail_bytes);
	if (slot->tail_bytes)
		add_bytes(b, &b->messages[m].msg_hdr, slot->tail, slot->tail_bytes);
}

/* Adds to the run of `slot`, the i-th: packets of the same size and class to the same destination; the last may be
 * smaller. */
static void take_run(struct udp_queue *q, struct udp_batch *b, unsigned m, const struct udp_slot *slot, uint32_t i)
{
	uint32_t bytes = slot->bytes;
	for (i++; i < q->slots_n && b->of[m].packets < UDP_SEGMENTS_MAX; i++) {
		struct udp_slot *next = slot_at(q, q->first_slot + i);
		if (next->state != UDP_SLOT_READY || next->peer != slot->peer)
			continue;
		if (next->bytes > slot->bytes || next->bytes == 0 || next->tos != slot->tos ||
		    bytes + next->bytes > UDP_BYTES_MAX_V6)
			return;
		bytes += next->bytes;
		take_slot(q, b, m, next);
		if (next->bytes < slot->bytes)
			return;
	}
}

/* Appends a cmsg; struct udp_batch has room for all. */
static void put_cmsg(struct msghdr *msg, int level, int type, const void *value, size_t len)
{
	struct cmsghdr *c = (struct cmsghdr *)(void *)((uint8_t *)msg->msg_control + msg->msg_controllen);
	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(len);
	memcpy(CMSG_DATA(c), value, len);
	msg->msg_controllen += CMSG_SPACE(len);
}

/* True if the packet's class differs from the socket's. */
static inline bool has_own_class(const struct udp_queue *q, const struct udp_slot *slot)
{
	return slot->tos != q->port->args.dscp.tos[NIC_PRIORITY_MAX];
}

/* Appends the cmsgs of a message: segment size and class. */
static void put_cmsgs(const struct udp_queue *q, struct udp_batch *b, unsigned m, const struct udp_slot *slot)
{
	struct msghdr *msg = &b->messages[m].msg_hdr;
	uint16_t segment = (uint16_t)slot->bytes;
	int tos = slot->tos;
	if (b->of[m].packets == 1 && !has_own_class(q, slot))
		return;
	memset(&b->control[m], 0, sizeof b->control[m]);
	msg->msg_control = b->control[m].bytes;
	if (b->of[m].packets > 1)
		put_cmsg(msg, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment);
	if (!has_own_class(q, slot))
		return;
	if (q->port->dests[slot->peer].v4)
		put_cmsg(msg, IPPROTO_IP, IP_TOS, &tos, sizeof tos);
	else
		put_cmsg(msg, IPPROTO_IPV6, IPV6_TCLASS, &tos, sizeof tos);
}

/* True if packets of this size may be sent as a run. */
static bool may_use_gso(struct udp_dest *dest, uint32_t bytes)
{
	if (!dest->segments || !bytes || bytes > dest->bytes_max)
		return false;
	if (bytes <= UDP_BYTES_MIN || dest->probes >= UDP_PROBES)
		return true;
	dest->probes++;
	return false;
}

/* Collects messages for one socket, which is returned. */
static struct udp_socket *collect(struct udp_queue *q, struct udp_batch *b)
{
	struct udp_socket *s = NULL;
	b->messages_n = b->taken_n = b->iovs_n = 0;
	for (uint32_t i = 0; i < q->slots_n && b->messages_n < UDP_MESSAGES_MAX; i++) {
		struct udp_slot *slot = slot_at(q, q->first_slot + i);
		if (slot->state != UDP_SLOT_READY)
			continue;
		struct udp_dest *dest = &q->port->dests[slot->peer];
		if (!s)
			s = &q->sockets[dest->socket];
		else if (s != &q->sockets[dest->socket])
			continue;
		unsigned m = b->messages_n++;
		struct msghdr *msg = &b->messages[m].msg_hdr;
		*msg = (struct msghdr){
			.msg_name = &dest->to, .msg_namelen = dest->to_len, .msg_iov = &b->iovs[b->iovs_n]};
		b->of[m].taken = b->taken_n;
		b->of[m].packets = 0;
		take_slot(q, b, m, slot);
		if (may_use_gso(dest, slot->bytes))
			take_run(q, b, m, slot, i);
		put_cmsgs(q, b, m, slot);
	}
	return s;
}

static int transmit(const struct udp_socket *s, struct udp_batch *b)
{
	const struct msghdr *only = &b->messages[0].msg_hdr;
	if (b->messages_n > 1)
		return sendmmsg(s->fd, b->messages, b->messages_n, 0);
	if (only->msg_control || only->msg_iovlen > 1)
		return sendmsg(s->fd, only, 0) < 0 ? -1 : 1;
	return sendto(s->fd, only->msg_iov->iov_base, only->msg_iov->iov_len, 0, only->msg_name, only->msg_namelen) < 0
		       ? -1
		       : 1;
}

static void send_batch(struct udp_queue *q, unsigned *tries)
{
	struct udp_batch *b = &q->batch;
	struct udp_socket *s = collect(q, b);
	int n = transmit(s, b), error = errno;
	unsigned taken = n <= 0 ? 0 : n == (int)b->messages_n ? b->taken_n : b->of[n].taken;
	for (unsigned i = taken; i < b->taken_n; i++)
		b->taken[i]->state = UDP_SLOT_READY;
	if (n > 0) {
		sent(q, b->taken, taken);
		*tries = 0;
		if (n < (int)b->messages_n) /* the error of the first unsent message was not returned */
			udp_errors_take(q, s);
	} else {
		refused(q, n < 0 ? error : EAGAIN, b->taken, b->of[0].packets, tries);
	}
}

/* The common case: one packet, all of it in the arena. False: it was not sent. */
static bool send_single(struct udp_queue *q, unsigned *tries)
{
	uint32_t i = 0;
	while (slot_at(q, q->first_slot + i)->state != UDP_SLOT_READY)
		i++;
	struct udp_slot *slot = slot_at(q, q->first_slot + i);
	const struct udp_dest *dest = &q->port->dests[slot->peer];
	if (has_own_class(q, slot) || slot->tail_bytes)
		return false;
	if (sendto(q->sockets[dest->socket].fd, q->arena + slot->at, slot->bytes, 0, (const struct sockaddr *)&dest->to,
		   dest->to_len) < 0) {
		refused(q, errno, &slot, 1, tries);
		return false;
	}
	sent(q, &slot, 1);
	return true;
}

/* Errors are left to the next packet: tx_commit() sends the same again. */
bool udp_tx_now(struct nic_queue *nq, uint32_t peer, const void *body, uint32_t body_len, unsigned priority)
{
	struct udp_queue *q = udp_queue_of(nq);
	const struct udp_dest *dest = dest_of(q, peer);
	const struct nic_dscp *dscp = &q->port->args.dscp;
	if (!dest || q->slots_n || body_len > dest->bytes_max ||
	    nic_dscp_of(dscp, priority) != dscp->tos[NIC_PRIORITY_MAX])
		return false;
	if (q->direct.peer == peer) {
		if (!udp_direct_send(q, body, body_len))
			return false;
	} else if (sendto(q->sockets[dest->socket].fd, body, body_len, 0, (const struct sockaddr *)&dest->to,
			  dest->to_len) < 0) {
		return false;
	} else if (dest->direct) {
		udp_direct_count(q, peer);
	}
	udp_count(&q->counters.tx_packets, 1);
	udp_count(&q->counters.tx_bytes, body_len);
	return true;
}

void udp_send_ready(struct udp_queue *q)
{
	unsigned tries = 0;
	q->blocked = false;
	if (q->ready_n == 1)
		send_single(q, &tries);
	while (q->ready_n && !q->blocked)
		send_batch(q, &tries);
	reclaim(q);
}

/* Copies the tails of packets that stay behind a flush. */
static void keep_tails(struct udp_queue *q)
{
	for (uint32_t i = 0; i < q->slots_n; i++) {
		struct udp_slot *slot = slot_at(q, q->first_slot + i);
		if (slot->state != UDP_SLOT_READY || !slot->tail_bytes)
			continue;
		memcpy(q->arena + slot->at + slot->bytes - slot->tail_bytes, slot->tail, slot->tail_bytes);
		slot->tail_bytes = 0;
	}
}

void udp_flush(struct nic_queue *nq)
{
	struct udp_queue *q = udp_queue_of(nq);
	if (!q->ready_n)
		return;
	udp_send_ready(q);
	if (q->blocked)
		keep_tails(q);
}
