/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Checks of what a shard has handed out: slots, credits, grants, records, and whether its counts agree. For the
 * simulator, between two passes; no part of the library. It uses nothing but the structures. Shard thread.
 */
#ifndef FAR_AUDIT_AUDIT_H
#define FAR_AUDIT_AUDIT_H

#include <stdbool.h>
#include <stdint.h>

struct session;
struct shard;

/** Reports a mismatch as text. */
typedef void audit_report(void *ctx, const char *text);

/** What is in use. */
struct audit_level {
	uint64_t calls, waiting, deferred, fibers, paused, backpressured;
	uint64_t rendezvous_in, rendezvous_out, oneways, fanouts, submitted;
	uint64_t rrefs, rref_msgs; /* values kept, references held, forks of others, results not accepted; control
				      messages to be sent */
};

/** Between two passes, at any time: each count against what it counts. */
void audit_shard(const struct shard *s, audit_report *report, void *ctx);

/**
 * The two ends of a session, a's rank and b's rank, when nothing is under way between them: what one has sent the other
 * has received, what one end knows of the other was sent by it. One direction: from a to b. Nothing unless it is up at
 * both.
 */
void audit_pair(const struct shard *a, uint32_t a_rank, const struct shard *b, uint32_t b_rank, audit_report *report,
		void *ctx);

void audit_level_read(const struct shard *s, struct audit_level *out);

/* audit_session.c */

struct auditor {
	const struct shard *s;
	audit_report *report;
	void *ctx;
};
__attribute__((format(printf, 2, 3))) void audit_printf(const struct auditor *a, const char *format, ...);
/** Of every session: its lists, and what is left of it when it is not up. */
void audit_sessions(const struct auditor *a);

#endif
