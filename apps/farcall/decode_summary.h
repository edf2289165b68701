/* SPDX-License-Identifier: BSD-3-Clause */
/** Totals of a capture: per session, calls by function, retransmissions, latencies. Main thread. */
#ifndef FARCALL_DECODE_SUMMARY_H
#define FARCALL_DECODE_SUMMARY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

union packet_head;
struct summary;

/** NULL: no memory. */
struct summary *summary_new(void);
void summary_free(struct summary *s);

/** One packet, before its messages. */
void summary_packet(struct summary *s, const char *from, const char *to, uint64_t time_ns, uint32_t len,
		    bool retransmitted);
/** One message of that packet, or one fragment of it. */
void summary_message(struct summary *s, const union packet_head *h);
void summary_print(const struct summary *s, FILE *out);

#endif
