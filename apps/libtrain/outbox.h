/* SPDX-License-Identifier: BSD-3-Clause */
/** What a backward pass sends to other workers. Any thread, with context->lock. */
#ifndef FAR_LIBTRAIN_OUTBOX_H
#define FAR_LIBTRAIN_OUTBOX_H

#include "compress.h"
#include "spread.h"

/* A gradient for another worker. */
struct parcel {
	uint64_t id;
	struct gradient g;
	struct far_compressor *compressor; /* referred to; NULL: it is sent as it is */
	uint64_t slot;                     /* of the compressor */
};

#define FEW 2 /* variables that cost no memory of the pool of their own */

/* What goes to one worker. */
struct outbox {
	struct outbox *next;
	int32_t rank;
	bool finish;   /* it has gradients of the first part, and is to begin its second */
	bool complete; /* `ids` are the last ones that there can be, and all in one call */
	uint64_t *ids; /* of the first part */
	size_t ids_n, ids_capacity;
	struct parcel *parcels; /* with `ids`: of these; else of the second part */
	size_t parcels_n, parcels_capacity;
	uint64_t few_ids[FEW];
	struct parcel few_parcels[FEW];
};

/* A worker that the pass has reached from here, or that has reached this one. */
struct peer {
	struct peer *next;
	int32_t rank;
	bool reached;
	bool complete;             /* it has announced all of its variables that are from here */
	uint64_t announced, taken; /* variables from there; of these, whose gradients were written to its outbox */
};

#define FLAG_RETAIN   1
#define FLAG_CHANGED  2
#define FLAG_COMPLETE 4    /* no other variables from there are here */
#define IDS_MAX       4096 /* variables of one call */

/** INVALID: the pass has ended; else `status`. */
enum far_status spread_status(const struct spread *s, enum far_status status, struct far_err *err);

#endif
