/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The receiving side of a queue. Poller. With few links all are hot: polled in every pass. With more, the rest are
 * cold: their rx_state is SHM_RX_DOORBELL, and a cold link is polled only if its doorbell is set.
 *
 * No packet is missed, by two pairs of full fences with shm_flush(). The producer stores slots, fences, reads rx_state;
 * if that is SHM_RX_DOORBELL it sets the doorbell, fences, and reads `asleep`. The consumer
 *   - makes a link cold by storing SHM_RX_DOORBELL and setting the doorbell itself; it takes a doorbell by clearing it,
 * a fence, and a poll of the slots. If that poll misses a slot, the consumer's fence came first, so the producer reads
 *     the SHM_RX_DOORBELL stored before it, and sets the doorbell after the clearing: it stays set;
 *   - goes to sleep by storing SHM_RX_ASLEEP to the hot links and `asleep` for the cold ones, a fence, and a recv(). If
 *     that misses a slot of a hot link, the producer reads SHM_RX_ASLEEP; if it misses a doorbell, the producer reads
 *     `asleep`.
 * A doorbell is set before the byte of its line, by an exchange; a sweep takes that byte by an exchange before it reads
 * the line's doorbells. So it reads each doorbell whose exchange came first, and the others leave the byte set.
 * The doorbell of a hot link may be set late, by a producer that read SHM_RX_DOORBELL before. It is cleared without a
 * poll, since the link is polled anyway, and set again when the link turns cold.
 *
 * Fairness: every second pass takes the doorbells first, with the whole burst, and the others the hot links, beginning
 * one link further each time; so neither starves the other. A link takes part in a pass once: the slots that it gave to
 * a burst belong to the burst until the next one.
 */
#include "nic/shm/shm.h"

#include <errno.h>
#include <string.h>

#define BELLS_PER_WORD 8u
#define WORDS_PER_LINE 8u
/* Words with set doorbells processed in one pass: bounds the cost of a peer that sets doorbells without packets. */
#define SWEEP_RUNG_MAX 4u
/* A hot link without packets for one turn of the clock turns cold: 2 × SHM_HOT_MAX × this many passes, at least 0.5 ms.
 */
#define PASSES_PER_TICK 256u

/* Copies the reference out, then checks the copy. */
static bool open_bulk(const struct shm_link *link, const struct nic_line *line, struct nic_pkt *pkt)
{
	struct shm_bulk_ref ref;
	memcpy(&ref, line->bytes + SHM_REF_OFFSET, sizeof ref);
	uint64_t len = ref.len;
	uint32_t block = ref.block;
	if (block >= SHM_BLOCKS || len > SHM_BODY_MAX || (uint64_t)block * SHM_BLOCK + len > SHM_BULK_BYTES)
		return false;
	pkt->body = link->rx_bulk + (uint64_t)block * SHM_BLOCK;
	pkt->body_len = len;
	pkt->cookie = (uint64_t)block + 1;
	return true;
}

static void bad_packet(struct shm_queue *q, struct nic_pkt *pkt)
{
	q->invalid_packets++;
	pkt->head = pkt->body = NULL;
	pkt->body_len = 0;
	pkt->cookie = 0;
}

static inline unsigned recv_link(struct shm_queue *q, struct shm_link *link, struct nic_pkt *pkts, unsigned max)
{
	struct nic_lane *l = &link->lane;
	unsigned n = 0;

	/* The previous burst is done. */
	if (l->taken >= LANE_GIVE_BACK)
		lane_give_back(l);
	while (n < max) {
		struct nic_line *line = l->rx_next;
		uint32_t word = atomic_load_explicit(&line->word, memory_order_acquire);
		if ((word ^ l->rx_lap) & LANE_LAP_MASK)
			break;
		struct nic_pkt *pkt = &pkts[n];
		lane_take(l);
		l->taken++;
		pkt->head = line->bytes;
		pkt->peer = link->index;
		if (word & LANE_BULK) {
			if (!open_bulk(link, line, pkt))
				bad_packet(q, pkt);
		} else {
			uint32_t len = word & LANE_LEN_MASK;
			pkt->body = len ? line->bytes + q->head_bytes : NULL;
			pkt->body_len = len;
			pkt->cookie = 0;
			if (len > q->inline_max)
				bad_packet(q, pkt);
		}
		n++;
	}
	return n;
}

unsigned shm_recv_lane(struct nic_queue *nq, struct nic_lane *lane, struct nic_pkt *pkts, unsigned max)
{
	return recv_link((struct shm_queue *)nq, link_of(lane), pkts, max);
}

/* ---- hot and cold ---- */

static void set_rx_state(struct shm_link *link, enum shm_rx_state state)
{
	atomic_store_explicit(&link->rx->consumer.rx_state, state, memory_order_relaxed);
}

/* Makes the next sweep poll the link. */
static void ring_own(struct shm_queue *q, const struct shm_link *link)
{
	shm_bell_ring(q->bells, link->bell);
}

static void set_sole(struct shm_queue *q)
{
	q->sole = q->base.lanes.hot_n == 1 && q->base.lanes.cold_n == 0 ? link_of(q->hot[0]) : NULL;
}

static void turn_cold(struct shm_queue *q, struct shm_link *link)
{
	link->hot = false;
	q->base.lanes.cold_n++;
	set_rx_state(link, SHM_RX_DOORBELL);
	ring_own(q, link);
}

/* The position of a hot link that had no packets since the hand's last turn. */
static uint32_t clock_victim(struct shm_queue *q)
{
	for (;;) {
		uint32_t i = q->hand++ % SHM_HOT_MAX;
		if (!q->hot[i]->used)
			return i;
		q->hot[i]->used = false;
	}
}

static void turn_hot(struct shm_queue *q, struct shm_link *link)
{
	uint32_t i = q->base.lanes.hot_n;
	if (i < SHM_HOT_MAX) {
		q->base.lanes.hot_n++;
	} else {
		i = clock_victim(q);
		turn_cold(q, link_of(q->hot[i]));
	}
	q->hot[i] = &link->lane;
	q->base.lanes.cold_n--;
	link->hot = link->lane.used = true;
	set_rx_state(link, SHM_RX_POLLING);
	set_sole(q);
}

static struct shm_link *link_of_bell(const struct shm_queue *q, uint32_t bell)
{
	uint32_t peer = q->bell_peer[bell];
	return peer ? q->port->links[peer - 1] : NULL;
}

void shm_hot_attach(struct shm_queue *q, struct shm_link *link)
{
	link->lane.used = false;
	q->bell_peer[link->bell] = (uint16_t)(link->index + 1);
	if (q->bells_end <= link->bell)
		q->bells_end = (link->bell / 64u + 1) * 64u;
	if (q->base.lanes.hot_n < SHM_HOT_MAX) {
		link->hot = true;
		q->hot[q->base.lanes.hot_n++] = &link->lane;
		set_rx_state(link, q->armed ? SHM_RX_ASLEEP : SHM_RX_POLLING);
	} else {
		turn_cold(q, link);
		if (q->armed && !q->asleep_set) {
			q->asleep_set = true;
			atomic_store_explicit(&q->bells->asleep, 1, memory_order_relaxed);
		}
	}
	set_sole(q);
	atomic_thread_fence(memory_order_seq_cst); /* pairs with shm_flush, when armed */
}

void shm_hot_detach(struct shm_queue *q, struct shm_link *link)
{
	q->bell_peer[link->bell] = 0;
	if (!link->hot)
		q->base.lanes.cold_n--;
	for (uint32_t i = 0; link->hot && i < q->base.lanes.hot_n; i++)
		if (q->hot[i] == &link->lane) {
			q->hot[i] = q->hot[--q->base.lanes.hot_n];
			link->hot = false;
		}
	while (q->bells_end && !q->bell_peer[q->bells_end - 1]) {
		bool empty = true;
		for (uint32_t bell = q->bells_end - 64; empty && bell < q->bells_end; bell++)
			empty = !q->bell_peer[bell];
		if (!empty)
			break;
		q->bells_end -= 64;
	}
	set_sole(q);
}

/* Every PASSES_PER_TICK passes: turns one idle hot link cold, and polls one cold link whatever its doorbell, since any
 * peer of the queue could have cleared it. */
__attribute__((noinline)) static void tick(struct shm_queue *q)
{
	if (q->base.lanes.hot_n && !q->armed) {
		uint32_t i = q->hand++ % q->base.lanes.hot_n;
		struct nic_lane *lane = q->hot[i];
		if (!lane->used) {
			q->hot[i] = q->hot[--q->base.lanes.hot_n];
			turn_cold(q, link_of(lane));
			set_sole(q);
		}
		lane->used = false;
	}
	if (q->next_audit >= q->bells_end)
		q->next_audit = 0;
	struct shm_link *link = link_of_bell(q, q->next_audit++);
	if (link && !link->hot)
		ring_own(q, link);
}

/* ---- passes ---- */

/* `mark`: maintain the clock's `used` flags. */
static inline __attribute__((always_inline)) unsigned recv_hot(struct shm_queue *q, struct nic_pkt *pkts, unsigned max,
							       bool mark)
{
	uint32_t links = q->base.lanes.hot_n, at = q->base.lanes.first < links ? q->base.lanes.first : 0;
	unsigned n = 0;
	/* The start rotates: a busy peer must not take the whole burst each time. */
	q->base.lanes.first = at + 1;
	for (uint32_t i = 0; i < links && n < max; i++) {
		unsigned got = recv_link(q, link_of(q->hot[at]), pkts + n, max - n);
		if (mark && got)
			q->hot[at]->used = true;
		n += got;
		if (++at == links)
			at = 0;
	}
	return n;
}

/* State of a sweep over the doorbells. */
struct sweep {
	struct nic_pkt *pkts; /* pkts[0, n) are received, of at most `max` */
	unsigned max, n;
	unsigned turned_hot_n, words; /* links in turned_hot; doorbell words with rung bells so far */
	struct shm_link *turned_hot[BELLS_PER_WORD * SWEEP_RUNG_MAX];
};

__attribute__((noinline)) static void handle_word(struct shm_queue *q, struct sweep *s, uint32_t word)
{
	struct shm_link *rung[BELLS_PER_WORD];
	unsigned rung_n = 0;
	for (uint32_t k = 0; k < BELLS_PER_WORD; k++) {
		/* Rotates the order within the word. */
		uint32_t bell = word * BELLS_PER_WORD + (k + q->passes / 2) % BELLS_PER_WORD;
		if (!atomic_load_explicit(&q->bells->byte[bell], memory_order_relaxed))
			continue;
		atomic_store_explicit(&q->bells->byte[bell], 0, memory_order_relaxed);
		struct shm_link *link = link_of_bell(q, bell);
		if (link && !link->hot)
			rung[rung_n++] = link;
	}
	if (rung_n == 0)
		return;
	atomic_thread_fence(memory_order_seq_cst); /* pairs with shm_flush */
	for (unsigned i = 0; i < rung_n; i++) {
		unsigned got = recv_link(q, rung[i], s->pkts + s->n, s->max - s->n);
		s->n += got;
		q->rings++;
		/* While armed no link turns hot: without a fence afterwards a producer could miss the sleep. */
		if (got && !q->armed)
			s->turned_hot[s->turned_hot_n++] = rung[i];
		else if (s->n == s->max)
			ring_own(q, rung[i]); /* there may be more */
		else if (!got)
			q->spurious_rings++;
	}
}

/* Processes the doorbells of a line, from word `first` of it on. Returns the first word that must wait. */
static uint32_t handle_line(struct shm_queue *q, struct sweep *s, uint32_t line, uint32_t first)
{
	for (uint32_t k = first; k < WORDS_PER_LINE; k++) {
		uint32_t word = line * WORDS_PER_LINE + k;
		if (!atomic_load_explicit(&q->bells->word[word], memory_order_relaxed))
			continue;
		if (s->n == s->max || (!q->armed && s->words == SWEEP_RUNG_MAX))
			return k;
		s->words++;
		handle_word(q, s, word);
	}
	return WORDS_PER_LINE;
}

/* Processes the lines with set doorbells, from the one on where the last sweep ended. */
__attribute__((noinline)) static unsigned sweep_rung(struct shm_queue *q, struct nic_pkt *pkts, unsigned max)
{
	struct sweep s; /* the array is not initialised: that would cost as much as four lines */
	s.pkts = pkts;
	s.max = max;
	s.n = s.turned_hot_n = s.words = 0;
	uint32_t lines = (q->bells_end + 511) / 512 * 8; /* as sweep() reads them */
	uint32_t at = q->next_word / WORDS_PER_LINE < lines ? q->next_word / WORDS_PER_LINE : 0,
		 first = q->next_word % WORDS_PER_LINE;
	for (uint32_t i = 0; i <= lines; i++, first = 0) { /* the first once more, for the words before `first` */
		uint32_t line = (at + i) % lines;
		if (!atomic_load_explicit(&q->bells->rung[line], memory_order_relaxed))
			continue;
		atomic_exchange_explicit(&q->bells->rung[line], 0,
					 memory_order_acq_rel); /* pairs with shm_bell_ring() */
		uint32_t done = handle_line(q, &s, line, first);
		if (done != WORDS_PER_LINE || first)
			atomic_exchange_explicit(&q->bells->rung[line], 1, memory_order_acq_rel);
		q->next_word = line * WORDS_PER_LINE + done % WORDS_PER_LINE;
		if (done != WORDS_PER_LINE)
			break;
	}
	for (unsigned i = 0; i < s.turned_hot_n; i++)
		turn_hot(q, s.turned_hot[i]);
	return s.n;
}

static inline unsigned sweep(struct shm_queue *q, struct nic_pkt *pkts, unsigned max)
{
	uint64_t any = 0;
	for (uint32_t i = 0; i < q->bells_end; i += 512)
		any |= atomic_load_explicit(&q->bells->rung_word[i / 512], memory_order_relaxed);
	return __builtin_expect(any != 0, 0) ? sweep_rung(q, pkts, max) : 0;
}

unsigned shm_recv_cold(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max)
{
	struct shm_queue *q = (struct shm_queue *)nq;
	if (++q->passes % PASSES_PER_TICK == 0)
		tick(q);
	return sweep(q, pkts, max);
}

/* Out of line, so that few links do not pay for its registers. */
__attribute__((noinline)) static unsigned recv_many(struct shm_queue *q, struct nic_pkt *pkts, unsigned max)
{
	if (++q->passes % PASSES_PER_TICK == 0)
		tick(q);
	unsigned n;
	if (q->passes & 1) {
		n = sweep(q, pkts, max);
		/* Links that turned hot had their turn. */
		return n ? n : recv_hot(q, pkts, max, true);
	}
	n = recv_hot(q, pkts, max, true);
	return n < max ? n + sweep(q, pkts + n, max - n) : n;
}

unsigned shm_recv(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max)
{
	struct shm_queue *q = (struct shm_queue *)nq;
	if (q->sole)
		return recv_link(q, q->sole, pkts, max);
	if (__builtin_expect(q->base.lanes.cold_n == 0, 1))
		return recv_hot(q, pkts, max, false);
	return recv_many(q, pkts, max);
}

/* ---- sleep ---- */

void shm_arm(struct nic_queue *nq)
{
	struct shm_queue *q = (struct shm_queue *)nq;
	q->armed = true;
	for (uint32_t i = 0; i < q->base.lanes.hot_n; i++)
		set_rx_state(link_of(q->hot[i]), SHM_RX_ASLEEP);
	if (q->base.lanes.cold_n) {
		q->asleep_set = true;
		atomic_store_explicit(&q->bells->asleep, 1, memory_order_relaxed);
	}
	atomic_thread_fence(memory_order_seq_cst); /* pairs with shm_flush */
}

void shm_disarm(struct nic_queue *nq)
{
	struct shm_queue *q = (struct shm_queue *)nq;
	q->armed = false;
	for (uint32_t i = 0; i < q->base.lanes.hot_n; i++)
		set_rx_state(link_of(q->hot[i]), SHM_RX_POLLING);
	if (q->asleep_set) {
		q->asleep_set = false;
		atomic_store_explicit(&q->bells->asleep, 0, memory_order_relaxed);
	}
}
