/* SPDX-License-Identifier: BSD-3-Clause */
/** Blocks: all rows of a partition, as scans and files have them (psv_wire.h). Any thread. */
#ifndef PSV_BLOCK_H
#define PSV_BLOCK_H

#include "psv_client.h"

struct psv_block_rows {
	uint32_t partition, n;
	const uint64_t *keys;
	const char *rows;
	const float *state;   /* NULL: the table has none */
	const uint64_t *ages; /* NULL: no TTL */
	const char *values;   /* one behind the other; `rows` are their lengths. NULL: a table of rows */
};

/** Reads the block at *at, aligned to 8, which ends before `end`, and moves *at behind it. False: it is too long, a key
 * is of another partition, or the keys are not in the order of their hashes. */
bool psv_block_read(const struct psv_rows *layout, const char **at, const char *end, struct psv_block_rows *out);

/** Adds the bytes of n values, padded, to *bytes. False: one is too long, or they are more than `room`. */
bool psv_values_bytes(const struct psv_rows *layout, const void *lens, uint32_t n, size_t room, size_t *bytes);

/** Memory for replies; zeroed: none. */
struct psv_buffer {
	char *data;
	size_t len, room;
};

/** Scans the partitions from `first` on into the buffer, at least one: blocks, aligned to 8, from *blocks on, of
 * `*parts` partitions. A large partition takes several requests, and has several blocks. `ps` may get a new view.
 * Blocks. */
enum far_status psv_scan(struct far_ps_table *t, uint32_t first, uint64_t timeout_ns, struct psv_buffer *buffer,
			 const char **blocks, uint32_t *parts, struct far_err *err);

/** A request on a partition. */
struct psv_call {
	struct psv_request *q; /* followed by the rest of the request */
	size_t len;            /* bytes of all */
	uint32_t partition;
	bool fixed; /* GONE when the server has a later view; else it is adopted and the request sent again */
};
/** Sends a request to the owner of its partition and waits; the reply, without its head, is in the buffer behind
 * struct psv_reply. */
enum far_status psv_call(struct far_ps *ps, const struct psv_call *c, uint64_t timeout_ns, struct psv_buffer *reply,
			 struct far_err *err);

#endif
