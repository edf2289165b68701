/* SPDX-License-Identifier: BSD-3-Clause */
/** Records of open requests. Shard thread, except functions and fields that name another one. */
#ifndef FAR_CORE_DEFERRED_H
#define FAR_CORE_DEFERRED_H

#include "core/timer.h"

#include <farcall/rpc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct far_buf;
struct fiber;
struct function;
struct rref_open;
struct request_extra;
struct rref_pins;
struct session;
struct shard;

enum deferred_state {
	DEFERRED_OPEN,
	DEFERRED_ANSWERED, /* by the application; on its way to the shard */
	DEFERRED_GONE      /* the caller no longer waits: the application's answer returns FAR_CANCELLED */
};

/**
 * The record of an open request: its handler has returned, is parked, or runs on a blocking thread; or of an answer
 * that waits for bulk memory.
 */
struct far_deferred {
	struct shard_timer timer; /* the caller's deadline */
	struct shard *shard;
	struct fiber *fiber; /* runs the handler, and is cancelled when the caller no longer waits; else NULL */
	_Atomic uint32_t
		state; /* enum deferred_state; exchange by the application, compare-and-exchange by the shard */
	uint32_t session, call, gen;
	uint64_t since;            /* ns, last reading of the clock when the record was taken */
	uint64_t retry_seq;        /* the request may be repeated; 0: not */
	uint8_t features;          /* bits of the features whose record functions are called */
	const struct function *fn; /* typed, else NULL */
	bool hashed;
	uint64_t limit;                              /* bytes that the caller takes */
	bool gone;                                   /* DEFERRED_GONE, for the shard */
	bool owned;                                  /* the application holds it */
	struct far_deferred *next;                   /* answers, free list, blocked list */
	struct far_deferred *open_next, **open_prev; /* session's list */
	/* the answer */
	uint8_t status, executed;
	int32_t code;
	struct far_buf *buf;
	size_t len;
	/* of references: what else the answer is to; what keeps the references in it until they are known to have come;
	 * does it hold any; is `buf` a tree */
	struct rref_open *rref;
	struct rref_pins *pins;
	bool rrefs, tree;
	struct far_buf *held;        /* holds the references of the arguments */
	bool addressed, makes;       /* the arguments hold addresses of references; the result is kept here */
	struct request_extra *extra; /* interceptors see the request; NULL: none does */
	bool faulted;                /* fault.h: its answer has failed or been late once */
	bool here;                   /* its handler runs on the shard now, and has not parted with it */
};

struct far_deferred *deferred_alloc(struct shard *s, struct session *se, uint32_t call, uint32_t gen,
				    const struct function *fn, bool hashed);
/** Makes it the record of the request, whose deadline the wheel watches from now on. */
void deferred_record(struct far_req *req, struct far_deferred *d);
void deferred_free(struct shard *s, struct far_deferred *d);
/** Room for an answer of `len` bytes in the record; NULL: an error was put there instead. Its owner, any thread. */
void *deferred_room(struct far_deferred *d, size_t len);
void deferred_error(struct far_deferred *d, enum far_status status, enum far_executed executed, int32_t code,
		    const char *text, size_t len);
/** Hands the record, its answer filled in, to the shard. Any thread. FAR_CANCELLED: the caller no longer waits. */
enum far_status deferred_finish(struct far_deferred *d);
/** Puts a record among the answers to be sent. Any thread. */
void deferred_push(struct shard *s, struct far_deferred *d);
/** Sends the deferred answers that other threads finished; returns how many. */
unsigned deferred_drain(struct shard *s);
/** The same, but for those whose end runs callbacks of the application: they stay. */
unsigned deferred_drain_quietly(struct shard *s);
/** Cancels an open request, deferred or queued. false: there is none. */
bool deferred_cancel(struct shard *s, struct session *se, uint32_t call, uint32_t gen);
void deferred_all_gone(struct shard *s, struct session *se);

#endif
