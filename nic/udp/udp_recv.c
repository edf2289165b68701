/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The receive half of a queue: udp_recv() reads the sockets and returns a nic_pkt for each datagram. Poller.
 *
 * At low load each read is one recv(): recvmmsg() with UDP_GRO costs a tenth more per packet. After several successful
 * reads in a row one recvmmsg() checks whether several packets wait. If so the queue becomes busy and uses it, until
 * reads find single packets again.
 *
 * With several sockets, recently used ones are polled every time, the others now and then, and all before a sleep.
 *
 * Sockets are in the epoll set only while the queue sleeps, and for some reads afterwards: each packet costs a callback
 * there.
 */
#include "nic/udp/udp_port.h"

#include <errno.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BUSY_READS 4u /* consecutive successful reads until one looks for several packets */
#define SINGLE_READS                                                                                                   \
	256u /* consecutive reads of one packet until it is no longer busy; each change costs a system call */
/* Full batched reads in a row until one requests twice as many messages. */
#define DOUBLE_AFTER_MIN 2u
#define DOUBLE_AFTER_MAX 64u
#define HOT_PASSES       4096u
#define COLD_PASSES      32u /* passes between polls of cold sockets: each is a system call */
#define WATCHED_READS    64u

static unsigned deliver(struct udp_queue *q, struct nic_pkt *pkts, unsigned max)
{
	unsigned n = 0;
	uint64_t bytes = 0;
	while (n < max && q->next_train < q->trains_n) {
		struct udp_train *t = &q->trains[q->next_train];
		if (!t->packets) {
			q->next_train++;
			continue;
		}
		uint32_t len = t->bytes < t->segment ? t->bytes : t->segment;
		pkts[n++] = (struct nic_pkt){.head = t->placed ? t->place : t->at,
					     .body = len ? t->at : NULL,
					     .body_len = len,
					     .peer = NIC_PEER_NONE};
		t->at += len;
		t->bytes -= len;
		t->packets--;
		if (t->placed) {
			t->placed--;
			t->place += q->places.each;
		}
		bytes += len;
	}
	udp_count(&q->counters.rx_packets, n);
	udp_count(&q->counters.rx_bytes, bytes);
	return n;
}

/* True if no packet of the last read is left. */
static bool trains_end(const struct udp_queue *q)
{
	uint32_t i = q->next_train;
	while (i < q->trains_n && !q->trains[i].packets)
		i++;
	return i >= q->trains_n;
}

/* ---- load ---- */

void udp_batched_set(struct udp_queue *q, bool batched)
{
	int on = batched && q->port->args.offload != UDP_OFFLOAD_NEVER;
	q->batched = batched;
	q->full_reads = q->single_reads = 0;
	q->reads_max = UDP_READS;
	q->double_after = DOUBLE_AFTER_MIN;
	q->doubled = false;
	for (uint32_t i = 0; i < q->sockets_n; i++)
		setsockopt(q->sockets[i].fd, IPPROTO_UDP, UDP_GRO, &on, sizeof on);
}

static void update_load(struct udp_queue *q, unsigned packets)
{
	if (!q->batched && q->full_reads < BUSY_READS) {
		q->full_reads++;
	} else if (!q->batched && packets > 1) {
		udp_batched_set(q, true);
	} else if (!q->batched) {
		q->full_reads = 0;
	} else {
		q->single_reads = packets == 1 ? q->single_reads + 1 : 0;
		if (q->single_reads >= SINGLE_READS && q->port->args.offload != UDP_OFFLOAD_ALWAYS)
			udp_batched_set(q, false);
	}
}

/* ---- reading: -1 for none, with errno; else the packets now in trains[] ---- */

static int read_one(struct udp_queue *q, const struct udp_socket *s)
{
	ssize_t len = syscall(SYS_recvfrom, s->fd, q->rx, UDP_RX_BUFFER, 0, NULL, NULL); /* not a cancellation point */
	if (len < 0)
		return -1;
	q->trains[0] = (struct udp_train){.at = q->rx, .bytes = (uint32_t)len, .packets = 1, .segment = (uint32_t)len};
	q->trains_n = 1;
	return 1;
}

static uint32_t segment_of(struct msghdr *msg, uint32_t bytes)
{
	int segment = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c))
		if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO && c->cmsg_len >= CMSG_LEN(sizeof segment))
			memcpy(&segment, CMSG_DATA(c), sizeof segment);
	return segment > 0 && (uint32_t)segment < bytes ? (uint32_t)segment : bytes;
}

void udp_reads_prepare(struct udp_queue *q)
{
	struct udp_reads *r = &q->reads;
	q->reads_max = UDP_READS;
	for (unsigned i = 0; i < UDP_READS; i++) {
		r->iovs[i] = (struct iovec){q->rx + i * UDP_RX_BUFFER, UDP_RX_BUFFER};
		r->messages[i].msg_hdr = (struct msghdr){.msg_iov = &r->iovs[i],
							 .msg_iovlen = 1,
							 .msg_control = r->control[i].bytes,
							 .msg_controllen = sizeof r->control[i].bytes};
	}
}

/* ---- places: the packets of a read lie as without them, but for the bytes that have places ---- */

void udp_rx_place(struct nic_queue *nq, uint32_t head, uint8_t *at, uint32_t bytes, uint32_t each, uint32_t before)
{
	struct udp_places *w = &udp_queue_of(nq)->places;
	(void)before;
	uint32_t n = (bytes + each - 1) / each;
	w->n = head + each > UDP_RX_BUFFER ? 0 : n < UDP_PLACES_MAX ? n : UDP_PLACES_MAX;
	w->head = head;
	w->at = at;
	w->bytes = bytes;
	w->each = each;
}

static uint32_t place_bytes(const struct udp_places *w, uint32_t i)
{
	uint32_t left = w->bytes - i * w->each;
	return left < w->each ? left : w->each;
}

/* Packets of a read that have places: as many as a train of full ones has. */
static uint32_t places_per_read(const struct udp_queue *q)
{
	const struct udp_places *w = &q->places;
	bool trains = q->batched && q->port->args.offload != UDP_OFFLOAD_NEVER;
	uint32_t fit = w->n ? UDP_BYTES_MAX / (w->head + w->each) : 0;
	return fit == 0 || !trains ? 1 : fit < UDP_SEGMENTS_MAX ? fit : UDP_SEGMENTS_MAX;
}

/* Writes the pieces of all reads that have places. Returns the number of these reads. */
static uint32_t places_lay_out(struct udp_queue *q, uint32_t per_read)
{
	struct udp_places *w = &q->places;
	struct iovec *iov = w->iovs;
	uint32_t reads = 0;
	for (uint32_t i = 0; i < w->n && reads < UDP_READS; reads++) {
		struct msghdr *msg = &q->reads.messages[reads].msg_hdr;
		uint8_t *at = q->rx + (size_t)reads * UDP_RX_BUFFER, *end = at + UDP_RX_BUFFER;
		msg->msg_iov = iov;
		for (uint32_t k = 0; k < per_read && i < w->n; k++, i++) {
			uint32_t len = place_bytes(w, i);
			*iov++ = (struct iovec){at, w->head};
			*iov++ = (struct iovec){w->at + (size_t)i * w->each, len};
			at += w->head + len;
		}
		*iov++ = (struct iovec){at, (size_t)(end - at)};
		msg->msg_iovlen = (size_t)(iov - msg->msg_iov);
	}
	return reads;
}

/* Copies the rest of a train out of its next `n` places. */
static void train_leave(const struct udp_places *w, struct udp_train *t, uint32_t n)
{
	uint8_t *at = (uint8_t *)(uintptr_t)t->at;
	uint32_t len = t->bytes;
	for (uint32_t i = (uint32_t)(t->place - w->at) / w->each; n && len > w->head; n--, i++) {
		uint32_t room = place_bytes(w, i), in = len - w->head < room ? len - w->head : room;
		memcpy(at + w->head, w->at + (size_t)i * w->each, in);
		at += w->head + in;
		len -= w->head + in;
	}
	t->placed = 0;
}

/* True if the packets of a train that have places, from number `first` on, are where they belong. */
static bool in_places(const struct udp_places *w, const struct udp_train *t, uint32_t first, uint32_t may)
{
	uint32_t last = w->head + place_bytes(w, first + may - 1), all = (may - 1) * t->segment + last;
	bool equal = t->packets == 1 ? t->bytes <= w->head + place_bytes(w, first) : t->segment == w->head + w->each;
	return equal && (t->packets < may || t->bytes <= all || last == t->segment);
}

/* Ends the layout: the first `n` of these reads have been done. */
static void places_end(struct udp_queue *q, uint32_t per_read, uint32_t reads, uint32_t n)
{
	const struct udp_places *w = &q->places;
	for (uint32_t i = 0; i < reads; i++) {
		q->reads.messages[i].msg_hdr.msg_iov = &q->reads.iovs[i];
		q->reads.messages[i].msg_hdr.msg_iovlen = 1;
	}
	for (uint32_t i = 0; i < n && i < reads; i++) {
		struct udp_train *t = &q->trains[i];
		uint32_t first = i * per_read, may = w->n - first < per_read ? w->n - first : per_read;
		t->place = w->at + (size_t)first * w->each;
		t->placed = t->packets < may ? t->packets : may;
		if (!in_places(w, t, first, may))
			train_leave(w, t, may);
	}
}

/* The caller keeps its places until recv() returns: packets that it does not return yet leave them. */
static void places_withdraw(struct udp_queue *q)
{
	for (uint32_t i = q->next_train; i < q->trains_n; i++)
		train_leave(&q->places, &q->trains[i], q->trains[i].placed);
	q->places.n = 0;
}

/* After a read of `n` messages of `most`. The next one requests as many as this one found, since a failed extra read
 * costs half a read; twice as many after several full reads in a row, after more of them each time that this found no
 * more; but at most 64 KiB by the average size. */
static void adapt_reads(struct udp_queue *q, uint32_t most, uint32_t n, uint64_t bytes)
{
	q->full_reads = n == most ? q->full_reads + 1 : 0;
	if (n == 0)
		return;
	if (q->doubled && n <= most / 2)
		q->double_after = 2 * q->double_after < DOUBLE_AFTER_MAX ? 2 * q->double_after : DOUBLE_AFTER_MAX;
	else if (q->doubled)
		q->double_after = DOUBLE_AFTER_MIN;
	q->doubled = q->full_reads >= q->double_after;
	uint64_t fit = bytes ? UDP_RX_BUFFER * (uint64_t)n / bytes : UDP_READS;
	uint64_t want = q->doubled ? 2 * (uint64_t)n : n;
	want = want < fit ? want : fit;
	q->reads_max = want < 1 ? 1 : want > UDP_READS ? UDP_READS : (uint32_t)want;
}

static int read_many(struct udp_queue *q, const struct udp_socket *s)
{
	struct mmsghdr *messages = q->reads.messages;
	uint32_t per_read = places_per_read(q), placed = places_lay_out(q, per_read);
	/* What follows the packets that have places is read once the caller has seen them, and may offer places. */
	uint32_t most = placed ? placed : q->reads_max;
	int n = recvmmsg(s->fd, messages, most, MSG_DONTWAIT, NULL);
	uint64_t bytes = 0;
	int packets = 0;
	for (int i = 0; i < n; i++) {
		struct msghdr *msg = &messages[i].msg_hdr;
		uint32_t len = messages[i].msg_len, segment = segment_of(msg, len);
		msg->msg_controllen = sizeof q->reads.control[i].bytes;
		if (msg->msg_flags & MSG_TRUNC) {
			udp_count(&q->counters.rx_malformed, 1);
			len = 0;
		}
		uint32_t train = segment ? (len + segment - 1) / segment : !(msg->msg_flags & MSG_TRUNC);
		q->trains[q->trains_n++] = (struct udp_train){
			.at = q->reads.iovs[i].iov_base, .bytes = len, .packets = train, .segment = segment};
		packets += (int)train;
		bytes += len;
	}
	if (placed)
		places_end(q, per_read, placed, n > 0 ? (uint32_t)n : 0);
	if (q->batched && !placed)
		adapt_reads(q, most, n > 0 ? (uint32_t)n : 0, bytes);
	return n < 0 ? -1 : packets;
}

static void epoll_remove(struct udp_queue *q)
{
	for (uint32_t i = 0; i < q->sockets_n; i++)
		epoll_ctl(q->epoll_fd, EPOLL_CTL_DEL, q->sockets[i].fd, NULL);
	q->in_epoll = false;
}

static bool read_socket(struct udp_queue *q, struct udp_socket *s)
{
	q->trains_n = q->next_train = 0;
	bool many = q->batched || q->places.n || q->full_reads >= BUSY_READS;
	int packets = many ? read_many(q, s) : read_one(q, s);
	if (packets <= 0) {
		if (packets < 0 && errno != EAGAIN && errno != EINTR)
			udp_errors_take(q, s);
		if (s->hot_passes && --s->hot_passes == 0)
			q->hot_n--;
		return false;
	}
	q->hot_n += s->hot_passes == 0;
	s->hot_passes = HOT_PASSES;
	update_load(q, (unsigned)packets);
	if (q->in_epoll && !q->armed && ++q->unarmed_reads >= WATCHED_READS)
		epoll_remove(q);
	return true;
}

static bool read_sockets(struct udp_queue *q)
{
	bool all = q->armed || !q->hot_n || ++q->passes % COLD_PASSES == 0;
	uint32_t at = q->next_socket;
	for (uint32_t i = 0; i < q->sockets_n; i++) {
		struct udp_socket *s = &q->sockets[at];
		at = at + 1 == q->sockets_n ? 0 : at + 1;
		if ((all || s->hot_passes) && read_socket(q, s)) {
			q->next_socket = at;
			return true;
		}
	}
	return false;
}

unsigned udp_recv(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max)
{
	struct udp_queue *q = udp_queue_of(nq);
	if (q->blocked)
		udp_send_ready(q);
	unsigned n = q->next_train < q->trains_n ? deliver(q, pkts, max) : 0;
	if (!n && max) {
		if (q->sockets_n == 1 ? read_socket(q, &q->sockets[0]) : read_sockets(q))
			n = deliver(q, pkts, max);
		else
			q->full_reads = 0;
	}
	if (__builtin_expect(q->places.n, 0))
		places_withdraw(q);
	q->base.drained = trains_end(q);
	return n;
}

/* ---- sleep ---- */

void udp_arm(struct nic_queue *nq)
{
	struct udp_queue *q = udp_queue_of(nq);
	q->armed = true;
	q->unarmed_reads = 0;
	/* Pending errors would end each sleep at once. */
	for (uint32_t i = 0; i < q->sockets_n; i++)
		udp_errors_take(q, &q->sockets[i]);
	if (q->direct.peer != NIC_PEER_NONE)
		udp_errors_take(q, &q->direct.socket);
	if (q->in_epoll)
		return;
	q->in_epoll = true;
	for (uint32_t i = 0; i < q->sockets_n; i++) {
		struct epoll_event event = {.events = EPOLLIN};
		if (epoll_ctl(q->epoll_fd, EPOLL_CTL_ADD, q->sockets[i].fd, &event) < 0 && errno != EEXIST) {
			/* No memory, or fs.epoll.max_user_watches reached: skip the sleep, as nothing would end it. */
			uint64_t one = 1;
			q->in_epoll = write(q->event_fd, &one, sizeof one) < 0;
		}
	}
}

void udp_disarm(struct nic_queue *nq)
{
	udp_queue_of(nq)->armed = false;
}
