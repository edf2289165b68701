/* SPDX-License-Identifier: BSD-3-Clause */
/** Bulk beside the datagram driver in memory: what is read is checked as a device would, and all comes as late, or as
 * badly, as a test says. One thread. */
#ifndef FAKE_BULK_H
#define FAKE_BULK_H

#include "fake_dgram.h"

enum { FAKE_BULK_OPS = 256 };

struct fake_bulk_op {
	enum { FAKE_FREE, FAKE_BINDING, FAKE_BOUND, FAKE_GOING, FAKE_READING } state;
	struct dgram_queue *q;
	uint64_t user;
	/* what is exposed */
	const uint8_t *at;
	uint64_t len, key;
	unsigned to_port;
	/* a read */
	uint64_t addr;
	uint8_t *to;
	bool fails;
	unsigned late; /* recv()s until it completes */
};

extern struct fake_bulk {
	unsigned without;     /* bits of ports that have none */
	int expose_error;     /* of each expose(); 0: none */
	int read_error;       /* the same of read() */
	unsigned read_errors; /* of so many of them; 0: of all */
	bool no_exposed;      /* nothing is ever EXPOSED */
	bool hold;            /* no read completes */
	unsigned late;        /* recv()s until one does */
	unsigned fail_at;     /* this read of all, from 1 on, fails with all that are under way; 0: none */
	unsigned fail_of;     /* of 1000 reads */
	bool backwards;       /* the last read completes first */
	/* counted */
	unsigned exposes, withdrawn, reads, reads_done, refused;
	uint64_t bytes;
	uint64_t keys;
	uint32_t seed;
	struct fake_bulk_op op[FAKE_BULK_OPS];
} fake_bulk;

/** Of dgram_fabric. */
void fake_bulk_dress(struct nic_queue *q);
/** The connections of all end: what is exposed is not any more, reads fail. */
void fake_bulk_break(void);
/** Exposed, or under way. */
unsigned fake_bulk_n(void);

#endif
