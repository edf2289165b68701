/* SPDX-License-Identifier: BSD-3-Clause */
/** A network with a length, between the ports of link_bench.h: packets arrive after a delay of the test's clock, or are
 * lost, repeated and overtaken by a seed or by the test's own rule. */
#ifndef LINK_LINE_H
#define LINK_LINE_H

#include "core/head.h"
#include "link_bench.h"

enum { LINE_SEEN = 4096 };

/** A packet that somebody sent, lost or not. */
struct line_seen {
	uint64_t at;
	uint8_t from, kind, marks;
	uint32_t number, first;
};

struct link_line {
	uint64_t delay_ns;                                         /* one way */
	uint64_t jitter_ns;                                        /* [0, this) more, by the seed */
	unsigned drop, repeat;                                     /* of 1000 */
	bool (*lose)(unsigned from, const struct wire_head *head); /* NULL: none more */
	uint64_t seed;
	struct line_seen seen[LINE_SEEN]; /* the first ones since line_forget() */
	unsigned seen_n;
};
extern struct link_line line;

/** bench_init(), and a network without losses between all ports to come. */
void line_init(uint64_t delay_ns);
/** And bench_fini(). */
void line_fini(void);
/** So long. */
void line_run(uint64_t ns);
void line_forget(void);
/** Of what was seen, packets from end `from` of one kind. */
unsigned line_count(unsigned from, uint8_t kind);
/** Message `seq` there and its answer back, each of `len` bytes; false: it took longer than `within_ns`. */
bool line_call(uint32_t at_0, uint32_t at_1, uint64_t seq, uint64_t len, uint64_t within_ns);
/** Turns until end `e` has got so many messages; false: it took longer. */
bool line_until_got(unsigned e, uint64_t got, uint64_t within_ns);
/** Of the port of end `e`. */
struct transport_stats line_stats(unsigned e);

#endif
