/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The raw ring: slots of one line, the sequence in the slot, one producer each way. The round trip has one slot
 * outstanding; bursts fill up to FLOOR_BURST slots before the first of them is published, on both sides.
 * Main thread of each process.
 */
#include "floor_ring.h"
#include "quiet.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct payload {
	uint64_t word[FLOOR_PAYLOAD_BYTES / sizeof(uint64_t)];
};

static struct floor_slot *slot_rtt(struct floor_slot *ring, uint64_t position)
{
	return &ring[position % FLOOR_SLOTS_RTT];
}

static struct floor_slot *slot_at(struct floor_slot *ring, uint64_t position)
{
	return &ring[position % FLOOR_SLOTS];
}

static void publish(struct floor_slot *slot, uint64_t position)
{
	atomic_store_explicit(&slot->seq, position + 1, memory_order_release); /* pairs with floor_spin() and ready() */
}

static int ready(struct floor_slot *slot, uint64_t position)
{
	return atomic_load_explicit(&slot->seq, memory_order_acquire) == position + 1; /* pairs with publish() */
}

int floor_ring_serve(struct floor_shared *s, uint64_t mode)
{
	for (uint64_t p = s->position;; p++) {
		struct floor_slot *in = slot_rtt(s->to, p), *out = slot_rtt(s->from, p);
		int rc = floor_spin(s, mode, &in->seq, p + 1);
		if (rc)
			return rc < 0 ? rc : 0;
		memcpy(out->data, in->data, FLOOR_PAYLOAD_BYTES);
		publish(out, p);
	}
}

int floor_ring(struct floor_shared *s, uint64_t ns, struct hist *h)
{
	uint64_t p = s->position;
	struct payload out = {{0}}, in;
	int rc = floor_switch(s, FLOOR_RING);
	uint64_t mode = atomic_load_explicit(&s->mode.v, memory_order_relaxed);
	uint64_t before = floor_now(), end = before + ns;
	for (; rc == 0 && before < end; p++) {
		struct floor_slot *to = slot_rtt(s->to, p), *from = slot_rtt(s->from, p);
		out.word[0] = out.word[3] = p;
		memcpy(to->data, &out, sizeof out);
		publish(to, p);
		rc = floor_spin(s, mode, &from->seq, p + 1);
		memcpy(&in, from->data, sizeof in);
		uint64_t after = floor_now();
		if (rc == 0 && (in.word[0] != p || in.word[3] != p))
			rc = -EBADMSG;
		hist_record(h, after - before);
		before = after;
	}
	if (rc == 0)
		rc = floor_switch(s, FLOOR_IDLE);
	s->position = p;
	return rc;
}

/* Copies up to `max` filled slots from `p` on into `out`; returns how many. */
static unsigned take(struct floor_slot *ring, uint64_t p, unsigned max, struct payload *out)
{
	unsigned n = 0;
	for (; n < max; n++) {
		struct floor_slot *slot = slot_at(ring, p + n);
		if (!ready(slot, p + n))
			break;
		memcpy(&out[n], slot->data, sizeof *out);
	}
	return n;
}

/* Fills `n` slots from `p` on, then publishes them, the first one last: the waiting side then finds the whole burst. In
 * the other order the reader chases the writer through the lines and the rate falls to a third. */
static void put(struct floor_slot *ring, uint64_t p, unsigned n, const struct payload *in)
{
	for (unsigned i = 0; i < n; i++)
		memcpy(slot_at(ring, p + i)->data, &in[i], sizeof *in);
	for (unsigned i = n; i-- > 0;)
		publish(slot_at(ring, p + i), p + i);
}

int floor_bursts_serve(struct floor_shared *s, uint64_t mode)
{
	struct payload burst[FLOOR_BURST];
	for (uint64_t p = s->position;;) {
		int rc = floor_spin(s, mode, &slot_at(s->to, p)->seq, p + 1);
		if (rc)
			return rc < 0 ? rc : 0;
		unsigned n = take(s->to, p, FLOOR_BURST, burst);
		put(s->from, p, n, burst);
		p += n;
	}
}

int floor_bursts(struct floor_shared *s, uint64_t ns, unsigned inflight, double *calls_per_s)
{
	uint64_t sent = s->position, done = sent, first = sent;
	struct payload out[FLOOR_BURST] = {{{0}}}, in[FLOOR_BURST];
	/* Only whole bursts go out: a sender that fills every free slot at once ends up sending single packets. */
	unsigned burst = inflight >= 2 * FLOOR_BURST ? FLOOR_BURST : inflight / 2 + (inflight < 2);
	int rc = floor_switch(s, FLOOR_BURSTS);
	uint64_t mode = atomic_load_explicit(&s->mode.v, memory_order_relaxed);
	uint64_t start = floor_now(), now = start;
	while (rc == 0 && (now - start < ns || done != sent)) {
		if (now - start < ns && sent - done + burst <= inflight) {
			for (unsigned i = 0; i < burst; i++)
				out[i].word[0] = out[i].word[3] = sent + i;
			put(s->to, sent, burst, out);
			sent += burst;
			continue;
		}
		rc = floor_spin(s, mode, &slot_at(s->from, done)->seq, done + 1);
		if (rc == 0 && (take(s->from, done, burst, in) != burst || in[0].word[0] != done ||
				in[burst - 1].word[3] != done + burst - 1))
			rc = -EBADMSG;
		done += burst;
		now = floor_now();
	}
	*calls_per_s = (double)(done - first) * 1e9 / (double)(now - start);
	if (rc == 0)
		rc = floor_switch(s, FLOOR_IDLE);
	s->position = sent;
	return rc;
}

int floor_round_trips(struct floor_shared *s, uint64_t ns, struct hist *h, double *line_ns, double *ring_ns)
{
	double lines[FLOOR_REPEATS_MAX + 1], rings[FLOOR_REPEATS_MAX + 1];
	for (unsigned repeat = 0; repeat <= FLOOR_REPEATS_MAX; repeat++) {
		hist_reset(h);
		int rc = floor_line(s, ns / 2, h);
		*line_ns = (double)hist_quantile(h, 0.5);
		hist_reset(h);
		if (rc == 0)
			rc = floor_ring(s, ns / 2, h);
		*ring_ns = (double)hist_quantile(h, 0.5);
		if (rc < 0 || *ring_ns <= FLOOR_RING_MAX * *line_ns)
			return rc;
		lines[repeat] = *line_ns;
		rings[repeat] = *ring_ns;
	}
	/* On some machines two cores are at times so far apart that a ring takes two round trips of a line. */
	bool steady = quiet_steady(lines, FLOOR_REPEATS_MAX + 1) && quiet_steady(rings, FLOOR_REPEATS_MAX + 1);
	return steady && *ring_ns < FLOOR_FAR_NS ? 0 : -EBUSY;
}

void floor_explain(const char *what, int rc, double line_ns, double ring_ns)
{
	if (rc == -EBUSY)
		fprintf(stderr,
			"%s: the raw ring took %.0f ns, the cache line %.0f ns, in %d tries: something else is running "
			"on "
			"these cores; stop it and try again\n",
			what, ring_ns, line_ns, FLOOR_REPEATS_MAX + 1);
	else if (rc == -ETIMEDOUT)
		fprintf(stderr, "%s: the other process no longer answers\n", what);
	else
		fprintf(stderr, "%s: floor: %s\n", what, strerror(-rc));
}
