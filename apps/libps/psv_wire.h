/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Requests and replies of the parameter server: little-endian, every field aligned to its size. Any thread.
 *
 * A request: struct psv_request, then keys[n]. PUSH, PUSH_PULL and ASSIGN: numbers [n * dim] of `wire`, padded to 4
 * bytes; scales [n] of int8; ASSIGN with PSV_STATE: state [n * state floats]. VIEW, CREATE, OPEN, BARRIER (n is 0): a
 * name of PSV_NAME_BYTES; CREATE: struct psv_schema. RESTORE: rows, state and ages as in a block. BAGS: offsets (u32)
 * [bags + 1]: bag b has the keys [offsets[b], offsets[b + 1]), at least one; with PSV_WEIGHTS: weights [n] (f32). CALL
 * and CALL_READ: the function's name of PSV_NAME_BYTES and its argument, padded to 8 bytes. PUT_VALUES: lengths (u32)
 * [n], then the values, one behind the other.
 *
 * A reply: struct psv_reply. STALE, and of VIEW: a view (psv_view.h). DONE: of PULL and PUSH_PULL rows [n * dim] of
 * `wire`, padded to 4 bytes, and scales [n] of int8; then status [n]. Of CREATE and OPEN: struct psv_schema. Of STATS:
 * struct psv_stats. Of GET_VALUES: lengths (u32) [n], the values one behind the other, status [n]: PSV_LATER of a
 * key whose value found no room. Of HOT: struct psv_hot_key, `count` of them. Of LIST: names of
 * PSV_NAME_BYTES each, `count` of them. Of SCAN: struct psv_scan_head, and a block for each of `count` partitions, from
 * that of the request on; with `cut` one block, of a partition that has more (count is 0) or ends with it (1). Of BAGS:
 * rows [bags * dim], the sums, and scales as of PULL; [bags] sums of the weights of keys for which FALLBACK stands
 * (f32); then of each bag the highest status of a key [bags]. Of CALL and CALL_READ: values (f64) [n * width], of a
 * reduction [width]; then status [n]: PST_FAILED + enum far_status of keys whose function failed, FAR_PS_APPLIED of all
 * keys of a repeated request.
 *
 * A block, also of files: rows of a partition; those of a large one are in several blocks. struct psv_block; keys[n];
 * rows [n * dim] of the stored type, padded to 8 bytes; state [n * state floats], padded likewise; in tables with TTL
 * the milliseconds since the last push (u64) [n].
 * In tables of values a row is the value's length (u32), and the values follow at the end, one behind the other, padded
 * to 8 bytes; in RESTORE, too.
 */
#ifndef PSV_WIRE_H
#define PSV_WIRE_H

#include "pst_kernels.h"
#include <assert.h>
#include <farcall/ps.h>

#define PSV_MAGIC      UINT32_C(0x31535046) /* "FPS1" */
#define PSV_NAME_BYTES FAR_PS_NAME_MAX
#define PSV_STATE      1u                  /* flag of ASSIGN */
#define PSV_WEIGHTS    2u                  /* flag of BAGS */
#define PSV_MAKE       4u                  /* flag of CALL: keys without a row get one */
#define PSV_VALUES_MAX (UINT32_C(1) << 20) /* of a reply to CALL */

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers travel as they are in memory");

enum psv_kind {
	PSV_VIEW, /* of any epoch */
	PSV_CREATE,
	PSV_OPEN,
	PSV_STATS,
	PSV_CLOCK,
	PSV_DROP,
	PSV_LIST, /* of no table */
	PSV_SCAN,
	PSV_PULL,
	PSV_EXISTS,
	PSV_PUSH, /* from here on numbered */
	PSV_PUSH_PULL,
	PSV_ASSIGN,
	PSV_ERASE,
	PSV_RESTORE, /* not numbered: it sets rows */
	PSV_WAKE,    /* of the server to its own shards */
	PSV_BAGS,
	PSV_HOT,     /* of no keys */
	PSV_BARRIER, /* of no table: `table` is the id of its name */
	PSV_CALL,    /* numbered */
	PSV_CALL_READ,
	PSV_GET_VALUES,
	PSV_PUT_VALUES, /* numbered */
	PSV_KINDS
};

struct psv_request {
	uint32_t magic;
	uint8_t kind;
	uint8_t wire; /* enum pst_type, of numbers and rows; CALL: enum far_ps_reduce */
	uint8_t miss; /* enum pst_miss */
	uint8_t flags;
	uint64_t service, table; /* psv_name_id() of their names */
	uint64_t epoch;
	uint64_t client, token; /* of numbered requests */
	uint64_t clock; /* CLOCK: the worker's step; PULL, EXISTS: least clock that the request waits for; BARRIER:
			   nanoseconds that it waits; SCAN: see struct psv_scan_head, as `token` */
	uint32_t n;
	float rate;
	uint32_t worker; /* CLOCK; SCAN: the first partition; BARRIER: the member; CALL: width; of other requests with
			    keys: elements of a row as the client knows the table, 0: unknown */
	uint32_t bags;   /* BAGS; BARRIER: members; CALL: bytes of the argument; GET_VALUES: most bytes of
			    values in the reply; else 0 */
};

enum psv_answer { PSV_DONE, PSV_STALE };

struct psv_reply {
	uint32_t magic;
	uint32_t answer;
	uint64_t count; /* LIST, SCAN, HOT; else 0 */
};

/* Of a scan. The rest of a large partition is read as it was with its first rows: by requests with `clock` = cut and
 * `token` = next. */
struct psv_scan_head {
	uint64_t cut;  /* 0: the last partition has no more */
	uint64_t next; /* hash */
};

struct psv_block {
	uint32_t partition, n;
};

#define PSV_SCAN_PARTS  256u               /* partitions that a request to scan looks at */
#define PSV_SLICE_ROWS  1024u              /* rows that it looks at: some 100 us */
#define PSV_SLICE_BYTES FAR_PS_CHUNK_BYTES /* of these, or one row */
/* The same of a shard that serves requests with keys: they wait for such a slice, some 5 us. */
#define PSV_SHORT_PARTS 32u
#define PSV_SHORT_ROWS  128u
#define PSV_SHORT_BYTES 16384u

struct psv_schema {
	uint32_t dim, stored, rule, init, full, admit, workers, staleness;
	float rate, beta1, beta2, epsilon, l1, l2, clip_value, clip_norm;
	float a, b;
	uint64_t seed, rows_max, candidates, ttl_ms;
	float decay;
	uint32_t state;                 /* of the user's rule */
	char rule_name[PSV_NAME_BYTES]; /* likewise */
};

#define PSV_VALUES    4u /* psv_schema.stored: a table of values of at most `dim` bytes */
#define PSV_LATER     127u
#define PSV_DENSE     3u /* psv_schema.full: a dense table of rows_max rows */
#define PSV_DENSE_MAX (UINT64_C(1) << 32)

struct psv_stats {
	uint64_t rows, bytes, row_bytes, state_bytes, index_bytes;
	uint64_t made, erased, evicted, expired, refused, waited;
	uint64_t keys_pulled, keys_pushed, duplicates, clock;
	uint64_t pulls, pushes, scans, served, served_ns;
};

static_assert(sizeof(struct psv_request) == 72 && sizeof(struct psv_reply) == 16 && sizeof(struct psv_schema) == 176,
	      "layout of the wire");

/** FNV-1a of a name. */
static inline uint64_t psv_name_id(const char *name)
{
	uint64_t id = UINT64_C(0xcbf29ce484222325);
	for (; *name; name++)
		id = (id ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
	return id;
}

/** True for names of services and tables: 1 to FAR_PS_NAME_MAX - 1 bytes. */
static inline bool psv_name_ok(const char *name)
{
	size_t n = 0;
	while (name && n < FAR_PS_NAME_MAX && name[n])
		n++;
	return n > 0 && n < FAR_PS_NAME_MAX;
}

static inline bool psv_is_change(unsigned kind)
{
	return (kind >= PSV_PUSH && kind <= PSV_ERASE) || kind == PSV_CALL || kind == PSV_PUT_VALUES;
}

/** False for requests to shards as a whole. */
static inline bool psv_has_keys(unsigned kind)
{
	return kind >= PSV_PULL && kind != PSV_BARRIER;
}

static inline bool psv_is_call(unsigned kind)
{
	return kind == PSV_CALL || kind == PSV_CALL_READ;
}

static inline bool psv_has_numbers(unsigned kind)
{
	return kind == PSV_PUSH || kind == PSV_PUSH_PULL || kind == PSV_ASSIGN;
}

static inline bool psv_has_rows(unsigned kind)
{
	return kind == PSV_PULL || kind == PSV_PUSH_PULL;
}

/** Bytes of n rows of numbers, with their padding. */
static inline size_t psv_numbers_bytes(size_t n, unsigned dim, enum pst_type wire)
{
	return (n * dim * pst_type_bytes(wire) + 3) / 4 * 4;
}

/** Layout of n rows with their state and ages, in blocks and in RESTORE. */
struct psv_rows {
	size_t row, state, age; /* bytes of one */
	uint32_t value_max;     /* of tables of values; else 0 */
};

/** Offsets behind the keys of n rows; returns the end of all. */
static inline size_t psv_rows_layout(const struct psv_rows *r, size_t n, size_t *state, size_t *ages)
{
	*state = (n * r->row + 7) / 8 * 8;
	*ages = *state + (n * r->state + 7) / 8 * 8;
	return *ages + n * r->age;
}

static inline size_t psv_rows_bytes(const struct psv_rows *r, size_t n)
{
	size_t state, ages;
	return n * sizeof(uint64_t) + psv_rows_layout(r, n, &state, &ages);
}

static inline size_t psv_block_bytes(const struct psv_rows *r, size_t n)
{
	return sizeof(struct psv_block) + psv_rows_bytes(r, n);
}

/** Rows of a slice of a scan. */
static inline uint32_t psv_slice_rows(const struct psv_rows *r)
{
	size_t n = PSV_SLICE_BYTES / psv_rows_bytes(r, 1);
	return n < 1 ? 1 : n > PSV_SLICE_ROWS ? PSV_SLICE_ROWS : (uint32_t)n;
}
/** Bytes of a reply to a scan without struct psv_reply, at most: each block has a head and three paddings. */
static inline size_t psv_scan_bytes(const struct psv_rows *r)
{
	return sizeof(struct psv_scan_head) + PSV_SCAN_PARTS * (sizeof(struct psv_block) + 24) +
	       2 * psv_rows_bytes(r, psv_slice_rows(r) + (size_t)1) +
	       (r->value_max ? PSV_SLICE_BYTES + r->value_max : 0);
}

/** Bytes of values in a reply to GET_VALUES, at most; any one fits. */
static inline uint32_t psv_values_room(uint32_t value_max)
{
	return value_max > FAR_PS_CHUNK_BYTES ? value_max : (uint32_t)FAR_PS_CHUNK_BYTES;
}

/** Bytes of a request on n keys. */
static inline size_t psv_request_bytes(unsigned kind, size_t n, unsigned dim, enum pst_type wire, size_t state_floats)
{
	size_t bytes = sizeof(struct psv_request) + n * sizeof(uint64_t);
	if (psv_has_numbers(kind))
		bytes += psv_numbers_bytes(n, dim, wire) + (wire == PST_INT8 ? n * sizeof(float) : 0);
	return bytes + n * state_floats * sizeof(float);
}

/** Bytes of the reply DONE to it. */
static inline size_t psv_reply_bytes(unsigned kind, size_t n, unsigned dim, enum pst_type wire)
{
	size_t bytes = sizeof(struct psv_reply) + n;
	if (psv_has_rows(kind))
		bytes += psv_numbers_bytes(n, dim, wire) + (wire == PST_INT8 ? n * sizeof(float) : 0);
	return bytes;
}

/** Likewise of BAGS. */
static inline size_t psv_bags_request_bytes(size_t n, size_t bags, bool weights)
{
	return sizeof(struct psv_request) + n * sizeof(uint64_t) + (bags + 1) * sizeof(uint32_t) +
	       (weights ? n * sizeof(float) : 0);
}

/** Likewise of CALL and CALL_READ. */
static inline size_t psv_call_request_bytes(size_t n, size_t arg)
{
	return sizeof(struct psv_request) + n * sizeof(uint64_t) + PSV_NAME_BYTES + (arg + 7) / 8 * 8;
}

static inline size_t psv_call_values(size_t n, unsigned width, unsigned reduce)
{
	return reduce == FAR_PS_EACH ? n * width : width;
}

static inline size_t psv_call_reply_bytes(size_t n, unsigned width, unsigned reduce)
{
	return sizeof(struct psv_reply) + psv_call_values(n, width, reduce) * sizeof(double) + n;
}

static inline size_t psv_bags_reply_bytes(size_t bags, unsigned dim, enum pst_type wire)
{
	return sizeof(struct psv_reply) + psv_numbers_bytes(bags, dim, wire) +
	       (wire == PST_INT8 ? bags * sizeof(float) : 0) + bags * (sizeof(float) + 1);
}

#endif
