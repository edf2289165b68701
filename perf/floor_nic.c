/* SPDX-License-Identifier: BSD-3-Clause */
/** Measures latency, rate and wake-up of raw packets between two processes. The measuring thread. */
#include "floor_nic.h"
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#define MEET_TRIES 5        /* times FLOOR_LOST_NS, for a device to be opened */
#define SILENCE_NS 10000000 /* before a wake-up: the cores have gone to sleep by then */

/* ---- both ends ---- */

/* All of them, as far as the device takes them at all. */
static int send_all(struct floor_shared *s, struct floor_nic *n, uint64_t mode, uint64_t first, unsigned count,
		    unsigned bytes)
{
	uint64_t since = 0;
	for (unsigned looks = 0;; looks++) {
		unsigned sent = n->ops->tx(n->queue, n->peer, first, count, bytes);
		first += sent;
		count -= sent;
		if (count == 0)
			return 0;
		if (sent || looks % FLOOR_SPINS != FLOOR_SPINS - 1)
			continue;
		int rc = floor_poll_mode(s, mode, &since);
		if (rc)
			return rc;
	}
}

static int gather(struct floor_nic *n, bool on)
{
	return n->gather ? n->gather(n, on) : 0;
}

/* ---- server ---- */

/* Everything comes back in the bursts in which it arrived; or, with `ack`, a small packet for each of them. */
static int echo(struct floor_shared *s, struct floor_nic *n, uint64_t mode, bool ack)
{
	const uint64_t base = s->position; /* the client writes it again while this runs */
	uint64_t since = 0, last, highest = base, arrived = 0;
	for (;;) {
		for (unsigned i = 0; i < FLOOR_SPINS; i++) {
			unsigned got = n->ops->rx(n->queue, FLOOR_NIC_BURST, &last);
			if (got == 0)
				continue;
			arrived += got;
			/* Of those that were overtaken only the number is known: none before the floor's first. */
			highest = last > highest ? last : highest;
			if (highest < base + got - 1)
				highest = base + got - 1;
			if (ack)
				atomic_store_explicit(&s->tail.v, arrived, memory_order_relaxed); /* read when idle */
			int rc = ack ? send_all(s, n, mode, highest, 1, FLOOR_NIC_ACK)
				     : send_all(s, n, mode, highest + 1 - got, got, FLOOR_PAYLOAD_BYTES);
			if (rc)
				return rc < 0 ? rc : 0;
			since = 0;
			i = 0;
		}
		int rc = floor_poll_mode(s, mode, &since);
		if (rc)
			return rc < 0 ? rc : 0;
	}
}

static int sleep_for_packets(struct floor_shared *s, struct floor_nic *n, uint64_t mode, int epoll)
{
	uint64_t since = floor_now(), last;
	for (;;) {
		struct epoll_event event;
		int ready = epoll_wait(epoll, &event, 1, (int)(FLOOR_NIC_PACE_NS / 1000000));
		uint64_t now = floor_now();
		if (ready > 0 && n->ops->rx(n->queue, FLOOR_NIC_BURST, &last)) {
			atomic_store_explicit(&s->stamp.v, now, memory_order_release); /* pairs with wake_once() */
			since = now;
		}
		int rc = floor_poll_mode(s, mode, &since);
		if (rc)
			return rc < 0 ? rc : 0;
	}
}

static int wake_serve(struct floor_shared *s, struct floor_nic *n, uint64_t mode)
{
	struct epoll_event event = {.events = EPOLLIN};
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	int rc = epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, n->fd, &event) < 0 ? -errno : 0;
	if (rc == 0)
		rc = sleep_for_packets(s, n, mode, epoll);
	if (epoll >= 0)
		close(epoll);
	return rc;
}

int floor_nic_serve(struct floor_shared *s, struct floor_nic *n, uint64_t mode)
{
	enum floor_mode what = (enum floor_mode)(mode & 0xff);
	if (!n->ops)
		return -ENOTCONN;
	int rc = gather(n, what == FLOOR_NIC_BURSTS || what == FLOOR_NIC_STREAM);
	if (rc < 0)
		return rc;
	if (what == FLOOR_NIC_WAKE)
		return wake_serve(s, n, mode);
	return echo(s, n, mode, what == FLOOR_NIC_STREAM);
}

/* ---- client ---- */

int floor_nic_meet(struct floor_shared *s, enum floor_meet what, char text[FLOOR_TEXT_BYTES])
{
	struct floor_meeting *m = &s->meeting;
	m->what = (int32_t)what;
	m->error = -ENOTSUP; /* all of it is published by floor_switch() */
	snprintf(m->text, sizeof m->text, "it has no floor over a NIC");
	int rc = floor_switch(s, FLOOR_NIC_OPEN);
	if (rc == 0)
		rc = floor_switch(s, FLOOR_IDLE);
	/* A device may take its time. */
	for (unsigned i = 0; rc == -ETIMEDOUT && i < MEET_TRIES; i++) {
		uint64_t mode = atomic_load_explicit(&s->mode.v, memory_order_relaxed);
		rc = floor_spin(s, mode, &s->state.v, mode);
	}
	if (rc < 0)
		snprintf(text, FLOOR_TEXT_BYTES, "the other process no longer answers");
	else if (m->error)
		snprintf(text, FLOOR_TEXT_BYTES, "at the other process: %.*s", FLOOR_TEXT_BYTES - 32, m->text);
	return rc < 0 ? rc : m->error;
}

/* What several of the floors have. Positions go on from one floor to the next, so that late packets are recognised. */
struct run {
	struct floor_shared *s;
	struct floor_nic *n;
	uint64_t mode;
	uint64_t sent, done; /* positions; as many as [done, sent) are under way */
	uint64_t settled;    /* those before it were lost, or of another floor: should they come, they are late */
};

static int begin(struct run *r, struct floor_shared *s, struct floor_nic *n, enum floor_mode mode)
{
	*r = (struct run){.s = s, .n = n, .sent = s->position, .done = s->position, .settled = s->position};
	int rc = gather(n, mode == FLOOR_NIC_BURSTS || mode == FLOOR_NIC_STREAM);
	if (rc == 0)
		rc = floor_switch(s, mode);
	r->mode = atomic_load_explicit(&s->mode.v, memory_order_relaxed);
	return rc;
}

static int end(struct run *r, int rc)
{
	r->s->position = r->sent;
	return rc == 0 ? floor_switch(r->s, FLOOR_IDLE) : rc > 0 ? -ECANCELED : rc;
}

static uint64_t lost_ns(const struct floor_nic *n)
{
	return n->lost_ns ? n->lost_ns : FLOOR_NIC_LOST_NS;
}

/* Waits for what comes back: how many; 0 when it was silent for so long that what was under way is lost. */
static int receive(struct run *r, uint64_t *last)
{
	struct floor_nic *n = r->n;
	uint64_t since = 0, quiet = 0;
	for (;;) {
		for (unsigned i = 0; i < FLOOR_SPINS; i++) {
			unsigned got = n->ops->rx(n->queue, FLOOR_NIC_BURST, last);
			/* When the first burst has a packet twice, the server's numbers run ahead. */
			if (got && *last >= r->settled && *last < r->sent + FLOOR_NIC_BURST)
				return (int)got;
		}
		int rc = floor_poll_mode(r->s, r->mode, &since);
		if (rc)
			return rc > 0 ? -ECANCELED : rc;
		uint64_t now = floor_now();
		quiet = quiet ? quiet : now;
		if (now - quiet > lost_ns(n))
			return 0;
	}
}

/* One round trip: 1, or 0 when it was lost. */
static int trip(struct run *r)
{
	uint64_t last;
	int rc = send_all(r->s, r->n, r->mode, r->sent, 1, FLOOR_PAYLOAD_BYTES);
	if (rc)
		return rc;
	r->sent++;
	rc = receive(r, &last);
	r->n->lost += rc == 0;
	r->done = r->sent;
	r->settled = rc == 0 ? r->sent : r->settled;
	return rc;
}

/* A running partner answers within a few packets, even when the network loses some. */
static int alive(const struct floor_nic *n, unsigned *losses, int rc)
{
	*losses = rc > 0 ? 0 : *losses + 1;
	return rc < 0 ? rc : *losses * lost_ns(n) > FLOOR_LOST_NS ? -ETIMEDOUT : 0;
}

int floor_nic_ping(struct floor_shared *s, struct floor_nic *n, uint64_t ns)
{
	struct run r;
	uint64_t until = floor_now() + ns;
	int rc = begin(&r, s, n, FLOOR_NIC_RTT), back = 0;
	while (rc == 0 && back == 0 && floor_now() < until) {
		back = trip(&r);
		rc = back < 0 ? back : 0;
	}
	n->lost = 0; /* by a link that was not up yet */
	rc = end(&r, rc);
	return rc ? rc : back > 0 ? 0 : -ETIMEDOUT;
}

int floor_nic_rtt(struct floor_shared *s, struct floor_nic *n, uint64_t ns, struct hist *h)
{
	struct run r;
	unsigned losses = 0;
	int rc = begin(&r, s, n, FLOOR_NIC_RTT);
	uint64_t before = floor_now(), until = before + ns;
	while (rc == 0 && (before < until || h->count == 0)) {
		int back = trip(&r);
		uint64_t after = floor_now();
		if (back > 0)
			hist_record(h, after - before);
		rc = alive(n, &losses, back);
		before = after;
	}
	return end(&r, rc);
}

/* With one size of a burst. Only whole bursts go out: a sender that fills every free slot at once ends up sending
 * single packets.
 */
static int bursts_of(struct floor_shared *s, struct floor_nic *n, uint64_t ns, unsigned inflight, unsigned burst,
		     double *packets_per_s)
{
	struct run r;
	uint64_t back = 0, last;
	unsigned losses = 0;
	int rc = begin(&r, s, n, FLOOR_NIC_BURSTS);
	uint64_t start = floor_now(), now = start;
	while (rc == 0 && (now - start < ns || r.done < r.sent || back == 0)) {
		/* All of a short time's packets may be lost: it goes on until one came back. */
		if ((now - start < ns || back == 0) && r.sent - r.done + burst <= inflight) {
			rc = send_all(s, n, r.mode, r.sent, burst, FLOOR_PAYLOAD_BYTES);
			r.sent += burst;
			continue;
		}
		int got = receive(&r, &last);
		uint64_t due = r.sent - r.done;
		if (got == 0)
			n->lost += due;
		else if (got > 0)
			back += (uint64_t)got < due ? (uint64_t)got : due;
		r.done = got <= 0 || (uint64_t)got > due ? r.sent : r.done + (uint64_t)got;
		r.settled = got == 0 ? r.sent : r.settled;
		rc = alive(n, &losses, got);
		now = floor_now();
	}
	*packets_per_s = now > start ? (double)back * 1e9 / (double)(now - start) : 0;
	return end(&r, rc);
}

int floor_nic_bursts(struct floor_shared *s, struct floor_nic *n, uint64_t ns, unsigned inflight, double *packets_per_s)
{
	unsigned sizes[] = {inflight, inflight / 2, FLOOR_BURST};
	int rc = 0;
	*packets_per_s = 0;
	for (unsigned i = 0; i < 3 && rc == 0; i++) {
		unsigned burst = sizes[i] < FLOOR_NIC_BURST ? sizes[i] : FLOOR_NIC_BURST;
		double rate;
		if (burst == 0 || burst > inflight)
			continue;
		rc = bursts_of(s, n, ns / 3, inflight, burst, &rate);
		if (rc == 0 && rate > *packets_per_s) {
			*packets_per_s = rate;
			n->burst = burst;
		}
	}
	return rc;
}

int floor_nic_stream(struct floor_shared *s, struct floor_nic *n, uint64_t ns, uint64_t bytes, double *bytes_per_s)
{
	struct run r;
	uint64_t last, acks = 0, size = bytes < n->bytes_max ? bytes : n->bytes_max;
	size = size < FLOOR_NIC_ACK ? FLOOR_NIC_ACK : size;
	uint64_t window = bytes / size ? bytes / size : 1;
	unsigned losses = 0;
	window = window > n->window ? n->window : window;
	atomic_store_explicit(&s->tail.v, 0, memory_order_relaxed); /* published by floor_switch() */
	int rc = begin(&r, s, n, FLOOR_NIC_STREAM);
	uint64_t start = floor_now(), now = start;
	while (rc == 0 && (now - start < ns || r.done < r.sent || acks == 0)) {
		uint64_t room = window - (r.sent - r.done);
		if ((now - start < ns || acks == 0) && room) {
			room = room < FLOOR_NIC_BURST ? room : FLOOR_NIC_BURST;
			rc = send_all(s, n, r.mode, r.sent, (unsigned)room, (unsigned)size);
			r.sent += room;
			continue;
		}
		int got = receive(&r, &last);
		if (got == 0)
			n->lost += r.sent - r.done;
		acks += got > 0;
		if (got <= 0)
			r.done = r.settled = r.sent;
		else if (last >= r.done)
			r.done = last < r.sent ? last + 1 : r.sent;
		rc = alive(n, &losses, got);
		now = floor_now();
	}
	rc = end(&r, rc);
	uint64_t arrived = atomic_load_explicit(&s->tail.v, memory_order_relaxed); /* the server is in another mode */
	*bytes_per_s = now > start ? (double)(arrived * size) * 1e9 / (double)(now - start) : 0;
	return rc;
}

static int wake_once(struct run *r, struct hist *h)
{
	uint64_t since = 0, stamp;
	nanosleep(&(struct timespec){.tv_nsec = SILENCE_NS}, NULL);
	atomic_store_explicit(&r->s->stamp.v, 0, memory_order_relaxed);
	uint64_t before = floor_now();
	int rc = send_all(r->s, r->n, r->mode, r->sent++, 1, FLOOR_PAYLOAD_BYTES);
	while (rc == 0 && (stamp = atomic_load_explicit(&r->s->stamp.v, memory_order_acquire)) == 0) {
		rc = floor_poll_mode(r->s, r->mode, &since);
		/* It was lost: another one takes its place, and this sample is none. */
		if (rc == 0 && since && floor_now() - since > lost_ns(r->n)) {
			r->n->lost++;
			return 0;
		}
	}
	if (rc == 0)
		hist_record(h, stamp - before);
	return rc > 0 ? -ECANCELED : rc;
}

int floor_nic_wake(struct floor_shared *s, struct floor_nic *n, unsigned samples, struct hist *h)
{
	struct run r;
	int rc = begin(&r, s, n, FLOOR_NIC_WAKE);
	for (unsigned i = 0; rc == 0 && i < samples; i++)
		rc = wake_once(&r, h);
	/* The server sleeps: a packet makes it see the new mode, or the end of its patience. */
	uint64_t next = ((r.mode >> 8) + 1) << 8 | FLOOR_IDLE;
	atomic_store_explicit(&s->mode.v, next, memory_order_release); /* pairs with floor_poll_mode() */
	if (rc == 0)
		n->ops->tx(n->queue, n->peer, r.sent++, 1, FLOOR_PAYLOAD_BYTES);
	s->position = r.sent;
	return rc ? rc : floor_spin(s, next, &s->state.v, next);
}
