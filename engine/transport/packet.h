/* SPDX-License-Identifier: BSD-3-Clause */
/** One packet that leaves: its head, its messages, and what is recorded of it. Poller. */
#ifndef FAR_TRANSPORT_PACKET_H
#define FAR_TRANSPORT_PACKET_H

#include "base/crc32c.h"
#include "transport/assemble.h"
#include "transport/rings.h"
#include "transport/send.h"
#include "transport/timer.h"

#include <string.h>

/** The message that a packet belongs to, from its head: head, bytes, and the number of its first packet. */
struct packet_text {
	const uint8_t *head;
	uint32_t len, first;
};

static inline struct packet_text message_text(const struct transport_message *m)
{
	return (struct packet_text){m->head.bytes, m->len, m->first};
}

static inline __attribute__((always_inline)) void head_write(const struct transport_queue *q,
							     const struct transport_peer *p, struct wire_head *h,
							     enum wire_kind kind, unsigned flags)
{
	h->version = WIRE_VERSION;
	h->kind = (uint8_t)kind;
	h->flags = (uint8_t)(flags | q->asleep_flag);
	h->lane_phase = 0;
	h->crc = le32_of(0);
	h->incarnation = le64_of(p->remote_id);
	h->token = le64_of(p->remote_token);
}

static inline le64 ack_bits_of(const struct transport_peer *p)
{
	return le64_of(__builtin_expect(p->early_n, 0) ? transport_ack_bits(p) : 0);
}

static inline __attribute__((always_inline)) void message_write(const struct transport_queue *q,
								const struct transport_peer *p, uint8_t *out,
								struct packet_text m, uint32_t number, uint32_t offset,
								unsigned flags)
{
	struct wire_message *h = (struct wire_message *)(void *)out;
	head_write(q, p, (struct wire_head *)(void *)out, WIRE_MESSAGE, flags);
	h->packet = le32_of(number);
	h->ack = le32_of(p->rx_next);
	h->ack_bits = ack_bits_of(p);
	memcpy(h->call, m.head, sizeof h->call);
	h->length = le32_of(m.len);
	h->offset = le32_of(offset);
	h->first = le32_of(m.first);
	memset(h->zero, 0, sizeof h->zero);
}

/* Writes the CRC of a packet with `len` bytes behind its head, and `tail_len` more at `tail`, unless it needs none. */
static inline __attribute__((always_inline)) void crc_write(const struct transport_queue *via,
							    const struct transport_peer *p, uint8_t *packet,
							    uint32_t len, const uint8_t *tail, uint32_t tail_len)
{
	if (!via->crc || p->unchecked)
		return;
	uint32_t crc = crc32c(0, packet, TRANSPORT_HEAD_BYTES + len);
	((struct wire_head *)(void *)packet)->crc = le32_of(tail_len ? crc32c(crc, tail, tail_len) : crc);
}

/* A packet with an acknowledgement is on its way. */
static inline void acknowledged(struct transport_peer *p)
{
	p->rx_acked = p->rx_next;
	p->owed = 0;
	p->owed_bytes = 0;
	p->ack_at = 0;
}

/* Commits a packet with `len` bytes behind its head, and `tail_len` more at `tail`. */
static inline __attribute__((always_inline)) int commit_tail(struct transport_queue *via, struct transport_peer *p,
							     struct nic_tx *tx, uint32_t len, const uint8_t *tail,
							     uint32_t tail_len)
{
	crc_write(via, p, tx->body, len, tail, tail_len);
	int error = via->ops->tx_commit(via->lower, tx);
	if (__builtin_expect(error, 0)) {
		via->ops->tx_cancel(via->lower, tx);
		return error;
	}
	via->unflushed = true;
	acknowledged(p);
	return 0;
}

static inline __attribute__((always_inline)) int commit(struct transport_queue *via, struct transport_peer *p,
							struct nic_tx *tx, uint32_t len)
{
	return commit_tail(via, p, tx, len, NULL, 0);
}

static inline void sub_write(uint8_t *out, const uint8_t *head, uint32_t len)
{
	struct wire_sub *s = (struct wire_sub *)(void *)out;
	memcpy(s->call, head, sizeof s->call);
	s->length = le32_of(len);
}

static inline void body_write(uint8_t *to, const uint8_t *body, uint32_t len)
{
	if (__builtin_expect(len == FAR_LINE_PAYLOAD, 1))
		memcpy(to, body, FAR_LINE_PAYLOAD);
	else if (len)
		memcpy(to, body, len);
}

/* Most bytes behind the head of a packet of several messages, on the path in use. */
static inline uint32_t batch_max(const struct transport_peer *p)
{
	uint32_t most = p->wide && p->payload_max >= TRANSPORT_WIDE_PATH ? TRANSPORT_WIDE_BYTES : TRANSPORT_BATCH_BYTES;
	return p->payload_max < most ? p->payload_max : most;
}

/* `bulk`: for the second list; the rest of the window is reserved for small messages. */
static inline bool window_open(const struct transport_peer *p, uint32_t len, bool bulk)
{
	uint32_t packets = bulk ? p->window_bulk : p->window;
	uint32_t bytes = bulk ? FAR_TRANSPORT_WINDOW_BYTES : FAR_TRANSPORT_WINDOW_BYTES + FAR_TRANSPORT_SMALL_IN_WINDOW;
	return p->next - p->una < packets && (p->rings->flying + len <= bytes || p->rings->flying == 0);
}

/** Records the packet just sent under the next number: `what`, without its order. Written at once, since reading a
 * field that was stored in parts waits for the stores. */
static inline __attribute__((always_inline)) void packet_sent(struct transport_queue *q, struct transport_peer *p,
							      struct transport_sent what)
{
	struct transport_rings *r = p->rings;
	uint32_t number = p->next;
	what.order = ++r->order;
	r->sent[number % FAR_TRANSPORT_WINDOW] = what;
	p->next = number + 1;
	r->flying += what.len;
	if (__builtin_expect(r->rtt.watch & RTT_WANTED, 0))
		transport_timing_begin(q, p, number);
	if (p->una == number) {
		r->resend_at = 0;
		r->resends = 0;
	}
	if (__builtin_expect(!p->active, 0))
		transport_peer_activate(q, p);
	if (__builtin_expect(p->remote_asleep, 0))
		transport_kick(q, p);
	if (__builtin_expect(p->sleep_sent, 0))
		transport_awake_add(q, p);
}

#endif
