/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Lanes for sending. The core writes small requests and answers as lines into the ring set of a peer, where they stay
 * until their packet is acknowledged; the flush copies them into packets. Poller.
 *
 * Only while nothing else waits: no message of the peer is unsent, none of the second list is in flight, the window is
 * open and the driver below has room. Otherwise the lines become messages, behind those that wait.
 */
#include "transport/lane.h"

#include "transport/packet.h"

static struct nic_line *line_next(struct transport_rings *r, const struct nic_line *line)
{
	return line + 1 == r->lines + TRANSPORT_LINES ? r->lines : (struct nic_line *)(uintptr_t)line + 1;
}

static inline uint32_t line_len(const struct nic_line *line)
{
	return atomic_load_explicit(&line->word, memory_order_relaxed) & LANE_LEN_MASK;
}

/* The core writes on behind what it has written. */
static void lane_continue(struct transport_rings *r)
{
	uint32_t at = (r->line_at + transport_lane_written(r)) % TRANSPORT_LINES;
	r->lane.tx_next = r->lines + at;
	r->lane.tx_left = (uint16_t)(TRANSPORT_LINES - at);
	r->lane.burst_before = 0; /* nobody else reads these lines: there is nothing to claim */
}

void transport_lane_begin(struct transport_queue *q, const struct transport_peer *p, struct transport_rings *r)
{
	r->line_at = r->lines_flying = 0;
	r->lane.tx = r->lines;
	r->lane.tx_lap = LANE_LAP_ONE;
	r->lane.withheld = NULL;
	r->lane.room = TRANSPORT_LINES;
	lane_continue(r);
	if (q->lane_at[p->index])
		*q->lane_at[p->index] = &r->lane;
}

void transport_lane_end(struct transport_queue *q, const struct transport_peer *p, struct transport_rings *r)
{
	struct nic_lanes *lanes = &q->base.lanes;
	for (uint32_t i = 0; r->lane.dirty && i < lanes->dirty_n; i++)
		if (lanes->dirty[i] == &r->lane) {
			lanes->dirty[i] = lanes->dirty[--lanes->dirty_n];
			r->lane.dirty = false;
		}
	r->lane.room = 0;
	if (q->lane_at[p->index])
		*q->lane_at[p->index] = q->lane_none;
}

void transport_lane(struct nic_queue *nq, uint32_t peer, struct nic_lane **at)
{
	struct transport_queue *q = (struct transport_queue *)nq;
	const struct transport_peer *p = peer < FAR_TRANSPORT_PEERS_MAX ? q->peers[peer] : NULL;
	if (!p || !p->attached || p->loop)
		return;
	q->lane_none = *at;
	q->lane_at[peer] = at;
	if (p->rings)
		*at = &p->rings->lane;
}

void transport_lane_leave(struct transport_queue *q, const struct transport_peer *p)
{
	if (q->lane_at[p->index])
		*q->lane_at[p->index] = q->lane_none;
	q->lane_at[p->index] = NULL;
}

int transport_lane_put(struct transport_queue *q, struct transport_peer *p, const struct nic_line *line, uint32_t n,
		       uint32_t number, uint32_t len, unsigned flags)
{
	struct transport_queue *via = p->via;
	struct nic_tx tx;
	int error = via->ops->tx_reserve(via->lower, p->lower_peer, TRANSPORT_HEAD_BYTES + len, &tx);
	if (__builtin_expect(error, 0))
		return error;
	uint32_t end = line_len(line);
	message_write(q, p, tx.body, (struct packet_text){line->bytes, end, number}, number, 0,
		      flags | (n > 1 ? WIRE_BATCH : 0));
	uint8_t *bytes = tx.body + TRANSPORT_HEAD_BYTES;
	body_write(bytes, line->bytes + sizeof(struct wire_call), end);
	while (--n) {
		line = line_next(p->rings, line);
		uint32_t sub = transport_batch_sub(end), each = line_len(line);
		if (__builtin_expect(sub != end, 0))
			memset(bytes + end, 0, sub - end);
		sub_write(bytes + sub, line->bytes, each);
		body_write(bytes + sub + sizeof(struct wire_sub), line->bytes + sizeof(struct wire_call), each);
		end = sub + (uint32_t)sizeof(struct wire_sub) + each;
	}
	tx.priority = TRANSPORT_PRIORITY_URGENT;
	return commit(via, p, &tx, len);
}

/* Sends a packet of one line past the reservations of the driver below, which refuses while something is committed. */
static inline bool send_now(struct transport_queue *q, struct transport_peer *p, const struct nic_line *line)
{
	alignas(64) uint8_t packet[TRANSPORT_HEAD_BYTES + FAR_LINE_PAYLOAD];
	uint32_t len = line_len(line);
	if (!q->ops->tx_now || p->via != q)
		return false;
	message_write(q, p, packet, (struct packet_text){line->bytes, len, p->next}, p->next, 0, 0);
	body_write(packet + TRANSPORT_HEAD_BYTES, line->bytes + sizeof(struct wire_call), len);
	crc_write(q, p, packet, len, NULL, 0);
	if (!q->ops->tx_now(q->lower, p->lower_peer, packet, TRANSPORT_HEAD_BYTES + len, TRANSPORT_PRIORITY_URGENT))
		return false;
	acknowledged(p);
	return true;
}

/* Sends a packet of as many of the `n` lines as fit it. Returns how many; 0: none now. */
static uint32_t send_lines(struct transport_queue *q, struct transport_peer *p, uint32_t n, bool alone)
{
	struct transport_rings *r = p->rings;
	struct nic_line *first = &r->lines[r->line_at], *line = first;
	uint32_t most = batch_max(p), len = line_len(line), fit = 1;
	for (; fit < n; fit++) {
		line = line_next(r, line);
		uint32_t end = transport_batch_sub(len) + (uint32_t)sizeof(struct wire_sub) + line_len(line);
		if (end > most)
			break;
		len = end;
	}
	if (__builtin_expect(!window_open(p, len, false), 0) ||
	    (!(alone && n == 1 && send_now(q, p, first)) && transport_lane_put(q, p, first, fit, p->next, len, 0)))
		return 0;
	packet_sent(q, p,
		    (struct transport_sent){
			    .line = first, .len = len, .lines = (uint8_t)fit, .priority = TRANSPORT_PRIORITY_URGENT});
	r->lines_flying += fit;
	r->line_at = (r->line_at + fit) % TRANSPORT_LINES;
	return fit;
}

/* Makes messages of the `n` lines that are written, as long as there is memory; the others move to their place. */
static void lines_to_messages(struct transport_queue *q, struct transport_peer *p, uint32_t n)
{
	struct transport_rings *r = p->rings;
	struct transport_message *m;
	struct nic_line *line = &r->lines[r->line_at], *kept = line;
	for (; n && p->out_n < FAR_TRANSPORT_SLOTS && (m = transport_message_out(q, p, line_len(line))); n--) {
		memcpy(&m->head, line->bytes, sizeof m->head);
		body_write(m->body, line->bytes + sizeof(struct wire_call), m->len);
		m->order = NIC_ORDER_NONE;
		transport_send(q, p, m);
		line = line_next(r, line);
		r->lane.room++;
	}
	for (; n; n--, line = line_next(r, line), kept = line_next(r, kept))
		memcpy(kept, line, sizeof *kept);
}

/* `alone`: no other lane was written. */
static inline bool lane_flush(struct transport_queue *q, struct transport_peer *p, bool alone)
{
	struct transport_rings *r = p->rings;
	uint32_t n = transport_lane_written(r), sent;
	lane_publish(&r->lane);
	while (n && !r->out_next && !r->bulk_next && !r->bulk_out && !p->dead && p->confirmed &&
	       (sent = send_lines(q, p, n, alone)))
		n -= sent;
	if (__builtin_expect(n != 0, 0))
		lines_to_messages(q, p, n);
	lane_continue(r);
	return transport_lane_written(r) == 0;
}

bool transport_lane_flush(struct transport_queue *q, struct transport_peer *p)
{
	return lane_flush(q, p, false);
}

void transport_lanes_flush(struct transport_queue *q)
{
	struct nic_lanes *lanes = &q->base.lanes;
	uint32_t n = lanes->dirty_n;
	lanes->dirty_n = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct nic_lane *l = lanes->dirty[i];
		struct transport_rings *r =
			(struct transport_rings *)(void *)((char *)l - offsetof(struct transport_rings, lane));
		l->dirty = !lane_flush(q, r->peer, n == 1);
		if (l->dirty)
			lanes->dirty[lanes->dirty_n++] = l;
	}
}
