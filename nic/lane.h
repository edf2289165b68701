/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Lanes: an optional extension of nic.h. A lane is the pair of rings of one attached peer, of lines of 64 bytes, that
 * the caller writes and reads itself, without a call into the driver. Poller.
 *
 * A line is a packet: a word, the head and the body. The producer stores the word last. It withholds the word of the
 * first line of a burst until lane_publish(), and stores the others at once: a consumer reads a line only after the one
 * before it, so the burst appears as a whole, at the price of one store.
 *
 * A packet whose body does not fit its line has LANE_BULK in its word: the driver alone opens it (recv_lane()). All
 * lines of a lane may be written by the peer: a reader copies out, checks, then uses.
 */
#ifndef FAR_NIC_LANE_H
#define FAR_NIC_LANE_H

#include "base/factor.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LANE_LINES     1024u /* of a ring */
#define LANE_BURST_MAX 16u   /* lines that are published together */
#define LANE_GIVE_BACK 64u   /* lines that a consumer gives back at once */
#define LANE_AHEAD     8u    /* a line of a burst fetches the one so many behind it */
#define LANE_FETCH     8u    /* lines of a burst that a consumer has on the way at once, the first included */

/**
 * The word of a line:
 *   bits 0–5    bytes of the body that follow the head in this line
 *   bit 6       LANE_BULK
 *   bits 8–11   lines of the burst that follow this one; only a hint
 *   bits 12–31  lap: line number / LANE_LINES + 1, modulo 2^20. A line with another lap than the expected one is empty.
 */
#define LANE_LEN_MASK   0x3fu
#define LANE_BULK       0x40u
#define LANE_MORE_SHIFT 8u
#define LANE_MORE_MASK  0xfu
#define LANE_LAP_ONE    0x1000u
#define LANE_LAP_MASK   0xfffff000u
#define LANE_COUNT_MASK ((1u << 30) - 1) /* of line counts: laps × LANE_LINES */

#define LANE_LINE_BYTES 60u /* of head and body in a line */

/** A slot of a ring. The producer writes `bytes`, then `word` with release; the consumer reads `word` with acquire. */
struct nic_line {
	alignas(64) _Atomic uint32_t word;
	uint8_t bytes[LANE_LINE_BYTES]; /* head, then body */
};
static_assert(sizeof(struct nic_line) == 64, "a packet is one cache line");

/** One line of private memory; what only the ends of a ring need follows it. */
struct nic_lane {
	alignas(64) struct nic_line *tx_next; /* next line to write */
	struct nic_line *rx_next;             /* next line to read */
	struct nic_line *withheld;            /* first line of the unpublished burst; NULL: none */
	void *user;                           /* the caller's; NULL: none. The driver clears it at attach() */
	uint32_t withheld_word;               /* its word */
	uint32_t tx_lap, rx_lap;              /* lap bits of *tx_next and *rx_next */
	uint32_t room;             /* lines that may be written before the consumer's position is read again */
	uint32_t taken;            /* lines read and not given back */
	uint16_t tx_left, rx_left; /* lines from *tx_next and *rx_next to the end of the ring, at least 1 */
	uint8_t burst;             /* lines of the unpublished burst */
	uint8_t burst_before;      /* lines of the burst before it */
	bool dirty;                /* in lanes.dirty */
	bool used;                 /* had packets; set by the reader, cleared by the driver */
	bool prefetches;           /* lane_claim() prefetches; constant, of the driver */
	/* cold */
	alignas(64) struct nic_line *tx, *rx; /* LANE_LINES each */
	_Atomic uint32_t *given_back;         /* where lane_give_back() stores the lines read, free-running */
};
static_assert(offsetof(struct nic_lane, tx) == 64, "a packet touches one line of its lane");

/** Sets a lane's rings, empty. The driver. */
static inline void lane_init(struct nic_lane *l, struct nic_line *tx, struct nic_line *rx, _Atomic uint32_t *given_back)
{
	l->tx = l->tx_next = tx;
	l->rx = l->rx_next = rx;
	l->tx_lap = l->rx_lap = LANE_LAP_ONE;
	l->room = LANE_LINES;
	l->tx_left = l->rx_left = LANE_LINES;
	l->given_back = given_back;
}

/** The lanes of a queue. Second member of every driver's queue; all zero: it has none. */
struct nic_lanes {
	struct nic_lane **hot;   /* [0, hot_n): to be read in every pass */
	struct nic_lane **dirty; /* [0, dirty_n): written since the last flush(), which publishes them */
	uint32_t hot_n;
	uint32_t cold_n; /* other attached peers: recv_cold() polls them */
	uint32_t dirty_n;
	bool *written;  /* the caller's, set with the first of `dirty`; NULL: none */
	uint32_t first; /* position in `hot` where the next pass begins, so that a busy peer does not starve the others
			 */
};

/** Lines ever written, modulo 2^30. */
static inline uint32_t lane_written(const struct nic_lane *l)
{
	return l->tx_lap / LANE_LAP_ONE * LANE_LINES - l->tx_left;
}

/** Lines ever read, modulo 2^30. */
static inline uint32_t lane_read(const struct nic_lane *l)
{
	return l->rx_lap / LANE_LAP_ONE * LANE_LINES - l->rx_left;
}

/** Gives all lines that were read back to the producer. */
static inline void lane_give_back(struct nic_lane *l)
{
	atomic_store_explicit(l->given_back, lane_read(l), memory_order_release);
	l->taken = 0;
}

/** The word of the line at rx_next. */
static inline uint32_t lane_word(const struct nic_lane *l)
{
	return atomic_load_explicit(&l->rx_next->word, memory_order_acquire);
}

/** True if this is the word of a line that was published. */
static inline bool lane_published(const struct nic_lane *l, uint32_t word)
{
	return !((word ^ l->rx_lap) & LANE_LAP_MASK);
}

/** True if the next line is not published yet. */
static inline bool lane_empty(const struct nic_lane *l)
{
	return !lane_published(l, lane_word(l));
}

/** Takes the line at rx_next, which stays readable until lane_give_back(). The caller adds it to `taken`, at the latest
 * after its burst. */
static inline void lane_take(struct nic_lane *l)
{
	l->rx_next++;
	if (__builtin_expect(--l->rx_left == 0, 0)) {
		l->rx_next = l->rx;
		l->rx_left = LANE_LINES;
		l->rx_lap += LANE_LAP_ONE;
	}
}

/** Prefetches the lines that were published with the one of this word, at rx_next: not all of a long burst, since they
 * would take the places of the lines that the answers are written to (perf/NOTES.md, 114). */
static inline void lane_prefetch_burst(const struct nic_lane *l, uint32_t word)
{
	const struct nic_line *line = l->rx_next;
	if (!FACTOR(PREFETCH))
		return;
	uint32_t n = 1 + (word >> LANE_MORE_SHIFT & LANE_MORE_MASK);
	n = n < LANE_FETCH ? n : LANE_FETCH;
	for (const struct nic_line *end = line + (n < l->rx_left ? n : l->rx_left); ++line < end;)
		__builtin_prefetch(line, 0, 3);
}

/** Publishes the unpublished burst. */
static inline void lane_publish(struct nic_lane *l)
{
	struct nic_line *line = l->withheld;
	if (line) {
		atomic_store_explicit(&line->word, l->withheld_word | (l->burst - 1u) << LANE_MORE_SHIFT,
				      memory_order_release);
		l->withheld = NULL;
		l->burst_before = l->burst;
	}
}

/* A field of the lane, from memory: a usual packet has no register to spare for what a rare one needs of it. */
static inline uint32_t lane_reload(const uint32_t *field)
{
	return *(const volatile uint32_t *)field;
}

/** Fetches a line that will be written, with its ownership; any address. For x86-64 gcc compiles
 * __builtin_prefetch(line, 1) to a prefetch for reading. Processors without prefetchw ignore it. */
static inline void lane_prefetch_write(uintptr_t line)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
	__builtin_prefetch((const void *)line, 1, 3);
#endif
}

/* Requests the ownership of as many lines from tx_next on as the burst before had behind its first. A store to a line
 * that the consumer has read waits for its ownership, and a core has few such stores under way. Here they wait together
 * (perf/NOTES.md, "claims"), or, where the processor gets it by prefetches, none waits. A processor drops prefetches
 * beyond those that it has room for: the lines of the burst repeat them (LANE_AHEAD). */
static inline void lane_claim(const struct nic_lane *l)
{
	uint32_t n = l->burst_before - 1u, room = lane_reload(&l->room);
	n = n < room ? n : room;
	struct nic_line *line = l->tx_next, *end = line + (n < l->tx_left ? n : l->tx_left);
	for (; FACTOR(OWN) && l->prefetches && line < end; line++)
		lane_prefetch_write((uintptr_t)line);
	for (; line < end; line++)
		*(volatile uint32_t *)(void *)(line->bytes + 4) = 0;
}

/** Ends the packet at `line`, which is tx_next: the lane has room, head and body are written, `word` has bits 0–6.
 * true: the lane is not in lanes.dirty, and lane_mark() is due. */
static inline bool lane_write(struct nic_lane *l, struct nic_line *line, uint32_t word)
{
	word |= l->tx_lap;
	l->room--;
	l->tx_next = line + 1;
	if (__builtin_expect(--l->tx_left == 0, 0)) {
		l->tx_next = l->tx;
		l->tx_left = LANE_LINES;
		l->tx_lap = lane_reload(&l->tx_lap) + LANE_LAP_ONE;
	}
	if (l->withheld) {
		if (FACTOR(CLAIMS) && FACTOR(AHEAD))
			lane_prefetch_write((uintptr_t)line + LANE_AHEAD * sizeof *line);
		atomic_store_explicit(&line->word, word, memory_order_release);
		if (__builtin_expect(++l->burst == LANE_BURST_MAX, 0))
			lane_publish(l);
		return false;
	}
	l->withheld = line;
	l->withheld_word = word;
	l->burst = 1;
	if (FACTOR(CLAIMS) && l->burst_before > 1)
		lane_claim(l);
	if (!FACTOR(BURSTS))
		lane_publish(l);
	return !l->dirty;
}

/** Has the next flush() publish what lane_write() wrote. */
static inline void lane_mark(struct nic_lanes *lanes, struct nic_lane *l)
{
	l->dirty = true;
	lanes->dirty[lanes->dirty_n++] = l;
	if (lanes->written)
		*lanes->written = true;
}

/** Both, of the packet at tx_next. */
static inline void lane_put(struct nic_lanes *lanes, struct nic_lane *l, uint32_t word)
{
	if (__builtin_expect(lane_write(l, l->tx_next, word), 0))
		lane_mark(lanes, l);
}

#endif
