/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A table of one shard of a parameter server: 64-bit keys → rows of numbers, or values of bytes. No network.
 *
 * Three kinds. A sparse table makes rows as keys come. A dense table has rows [0, dense_rows), all made at first; the
 * key is the row's number. A table of values keeps byte strings (the functions pst_value_*; of the others it has
 * erase, scan, evict, stats).
 *
 * Rows, optimizer state and stamps are in dense slabs under one row number; the index has the keys. A call takes up to
 * PST_CHUNK_KEYS keys: a longer request is cut, and the server serves others in between. Keys may repeat. A call that
 * returns another status than OK changed no row, and the arrays for its results are undefined.
 *
 * A table belongs to one thread at a time. pst_table_ahead alone may run on one other thread meanwhile. Arrays that
 * callers pass are aligned as their elements are; the table keeps no pointer to them.
 *
 * Time is the caller's, in milliseconds, monotonic within a table. Stamps have ticks of 64 ms.
 */
#ifndef PST_TABLE_H
#define PST_TABLE_H

#include "pst_index.h"
#include "pst_init.h"
#include "pst_kernels.h"
#include "pst_values.h"
#include <farcall/status.h>

#define PST_CHUNK_KEYS 8192u
#define PST_ROWS_MAX   (UINT32_MAX - 1)

enum pst_kind { PST_SPARSE, PST_DENSE, PST_VALUES };

/* What happens when a table has rows_max rows and a new key comes. */
enum pst_full {
	PST_FULL_REFUSE, /* the key gets no row; its status is PST_REFUSED */
	PST_FULL_LRU,    /* rows are evicted until rows_max are left, when the call has done its work: each time the one
			    used (pulled, pushed, assigned) longest ago of a sample of 16: the 4 keys whose hashes
			    follow each of 4 pseudo-random numbers; an expired one first */
	PST_FULL_LFU /* likewise the one with the lowest use count, of equal ones that used longest ago. The count is
			logarithmic: it begins at 5 and a use adds 1 with probability 1 / (1 + 10 * (count - 5)), always
			below 5; a minute without use takes 1 off; at most 255 */
};

/* Of each key. */
enum pst_key_status {
	PST_ROW,     /* its row was there */
	PST_NEW,     /* its row was made by this call */
	PST_MISSING, /* it has no row: the fallback was returned, nothing was erased */
	PST_WAITING, /* a push to a key that is not admitted yet: counted, the gradient dropped */
	PST_REFUSED, /* the table is full: the gradient or value dropped; a pull returns what a new row would have */
	PST_FAILED = 128 /* pst_call: + the status of the function, which is not OK */
};

struct pst_schema {
	enum pst_kind kind;
	unsigned dim;         /* elements of a row, [1, PST_DIM_MAX]; values: 0 */
	enum pst_type stored; /* of rows: f32, bf16, f16; state is f32 always */
	struct pst_rule rule;
	struct pst_init init;
	uint64_t dense_rows; /* dense: [1, PST_ROWS_MAX]; else 0 */
	uint64_t rows_max;   /* bound of rows; 0: PST_ROWS_MAX */
	enum pst_full full;
	unsigned admit;      /* pushes that a sparse key needs for its row, up to PST_ADMIT_MAX;
				0 and 1: the first makes it */
	uint64_t candidates; /* keys counted for admission at once, see pst_admit.h; 0: 1 Mi */
	uint64_t ttl_ms;     /* a row that was not pushed or assigned for so long is gone: never earlier, at most
				128 ms later; its memory returns with eviction or the next touch. 0: rows stay */
	uint32_t value_max;  /* values: longest one, [1, PST_VALUE_MAX] bytes; else 0 */
};

struct pst_stats {
	uint64_t rows;  /* expired ones too, until they are removed */
	uint64_t bytes; /* of memory held, everything */
	uint64_t row_bytes, state_bytes, stamp_bytes, index_bytes, value_bytes; /* parts of it */
	uint64_t made, erased, evicted, expired, refused, waited;               /* keys so far */
	struct pst_index_work index;
};

struct pst_table;

/* ---- Any thread ---- */

/** OK, or INVALID with the field and its value. */
enum far_status pst_schema_check(const struct pst_schema *schema, struct far_err *err);

/**
 * Makes a table. A dense one maps, faults in and initialises all its rows here: not for the thread of a busy shard.
 * `memory` NULL: pst_memory_default; the struct must outlive the table. Fails with INVALID (the field and its value) or
 * RESOURCE (no memory). `*table` is set on success; the caller owns it.
 */
enum far_status pst_table_new(const struct pst_schema *schema, const struct pst_memory *memory,
			      struct pst_table **table, struct far_err *err);

/** NULL is fine. Neither the owner nor pst_table_ahead may be in a call. */
void pst_table_free(struct pst_table *table);

/**
 * Maps and faults in the slabs that the table will need next, with huge pages. Takes up to 300 us for each 2 MiB; to be
 * called every few milliseconds from one thread other than the owner's. Returns whether it prepared anything. Without
 * it the table works, with small pages that are faulted in as rows are made.
 */
bool pst_table_ahead(struct pst_table *table);

const struct pst_schema *pst_table_schema(const struct pst_table *table);

/* ---- The owner's thread ---- */

void pst_table_stats(const struct pst_table *table, struct pst_stats *stats);

uint64_t pst_table_rows(const struct pst_table *table);
/** Bytes of the blocks of a table of values. */
uint64_t pst_table_value_bytes(const struct pst_table *table);
/** Bounds the table by `room` rows more than it has, beside the schema's rows_max. UINT64_MAX: by that alone. */
void pst_table_bound(struct pst_table *table, uint64_t room);

/** Keys in a partition, in [0, PST_PARTITIONS). Not for dense tables: 0. */
uint32_t pst_table_partition_keys(const struct pst_table *table, unsigned partition);

/* What a pull does for a key without a row. A table with admission makes no rows by pulls: MAKE is as INITIAL there. */
enum pst_miss {
	PST_MISS_FALLBACK, /* returns the fallback row */
	PST_MISS_INITIAL,  /* returns the values that a new row would have */
	PST_MISS_MAKE      /* makes the row */
};

struct pst_pull {
	enum pst_type wire; /* of the rows returned */
	enum pst_miss miss;
	const float *fallback; /* [dim]; NULL: zeros */
	uint64_t now_ms;
};

/**
 * Copies the rows of n keys to out[n * dim] of `wire`; int8 comes with scales[n] (else NULL). `status` [n] or NULL
 * takes enum pst_key_status. `out` NULL copies nothing: checks (or makes) rows. Fails with INVALID (a dense key that is
 * out of range, by its value) or RESOURCE (no memory for new rows).
 */
enum far_status pst_pull(struct pst_table *table, const uint64_t *keys, uint32_t n, const struct pst_pull *pull,
			 void *out, float *scales, uint8_t *status, struct far_err *err);

enum pst_pool { PST_POOL_SUM, PST_POOL_MEAN };

/**
 * Pools rows: bag b has keys [offsets[b], offsets[b + 1]), offsets[0] = 0, up to offsets[bags] = n keys in all. Its row
 * is the sum, in f32 and in the order of keys, of weight * row (`weights` [n]; NULL: 1), for MEAN divided by the sum of
 * weights (0: a row of zeros). An empty bag is a row of zeros. Keys without a row count with what `pull` gives for
 * them. out, scales: [bags]; status: [n].
 */
enum far_status pst_pull_bags(struct pst_table *table, const uint64_t *keys, uint32_t n, const uint32_t *offsets,
			      uint32_t bags, const float *weights, enum pst_pool pool, const struct pst_pull *pull,
			      void *out, float *scales, uint8_t *status, struct far_err *err);

struct pst_push {
	enum pst_type wire;  /* of the gradients */
	const float *scales; /* [n], of int8 */
	float rate;          /* 0: the rule's */
	uint64_t now_ms;
};

/**
 * Applies gradients [n * dim] to the rows of n keys by the table's rule, one after the other: a key that comes twice is
 * updated twice. Rows are made for keys that have none, once these are admitted. Fails with INVALID (a gradient that is
 * NaN or infinite, by its key and element; a dense key out of range; a bad rate) or RESOURCE, and has changed nothing
 * then.
 */
enum far_status pst_push(struct pst_table *table, const uint64_t *keys, uint32_t n, const struct pst_push *push,
			 const void *grads, uint8_t *status, struct far_err *err);

/**
 * Sets rows [n * dim] of `wire` (`scales` for int8), and their optimizer state [n * state floats] unless NULL (then it
 * begins anew). Rows are made as needed, without admission. Fails as pst_push.
 */
enum far_status pst_assign(struct pst_table *table, const uint64_t *keys, uint32_t n, const struct pst_push *how,
			   const void *rows, const float *state, uint8_t *status, struct far_err *err);

/**
 * Sets rows as pst_scan() reported them, bit for bit: raw rows of the `stored` type, state (NULL: the table has none)
 * and ages (NULL without TTL). Numbers are not checked. Rows are made as needed, without admission. Fails with RESOURCE
 * or, for values and dense keys out of range, as pst_assign.
 */
enum far_status pst_restore(struct pst_table *table, const uint64_t *keys, uint32_t n, const void *rows,
			    const float *state, const uint64_t *ages_ms, uint64_t now_ms, uint8_t *status,
			    struct far_err *err);

/* A function at rows. */
struct pst_call {
	/** Runs for key i of the call, on copies; `made`: the row has initial values. `state` NULL: the table has none.
	 */
	enum far_status (*run)(void *ctx, uint32_t i, uint64_t key, bool made, float *row, float *state);
	/** Its end: OK, the status that it returned, or INVALID: it left a number that is not finite. */
	void (*ended)(void *ctx, uint32_t i, enum far_status status);
	void *ctx;
	bool make;    /* keys without a row get one, without admission; it is removed if the function fails */
	bool initial; /* else it runs for these on what a new row would have, which is dropped */
	bool changes; /* the copies take the place of row and state */
	uint64_t now_ms;
};

/** Runs a function for n keys, one after the other. A key without a row for which it did not run is PST_MISSING, or
 * PST_REFUSED: the table is full. Fails with INVALID (a dense key out of range) or RESOURCE, and it did not run then.
 */
enum far_status pst_call(struct pst_table *table, const uint64_t *keys, uint32_t n, const struct pst_call *how,
			 uint8_t *status, struct far_err *err);

/** Floats of optimizer state of a row. */
unsigned pst_table_state(const struct pst_table *table);

/** Removes keys; their memory is used for later rows. Cannot fail for sparse tables and values; dense: UNSUPPORTED. */
enum far_status pst_erase(struct pst_table *table, const uint64_t *keys, uint32_t n, uint8_t *status,
			  struct far_err *err);

struct pst_cursor {
	uint64_t from, last; /* hashes; partition p: from p << 52 to ((p + 1) << 52) - 1. Dense: keys */
	bool done;
};

/** A cursor over the whole table. */
void pst_scan_all(const struct pst_table *table, struct pst_cursor *cursor);

/**
 * Looks at up to n keys of the cursor's range, and a few hundred lines of the index, in the order of hashes (dense: of
 * keys), and reports them with their rows (raw, `stored` type, [n * dim]; NULL: none), state ([n * state floats] or
 * NULL) and milliseconds since the last push, in steps of 64 (`ages_ms` or NULL; 0 without TTL). A key that is there
 * during the whole scan is reported once, whatever else changes in between. Expired rows are left out. Returns the
 * number of keys, which may be 0 before cursor->done.
 */
uint32_t pst_scan(struct pst_table *table, struct pst_cursor *cursor, uint64_t now_ms, uint32_t n, uint64_t *keys,
		  void *rows, float *state, uint64_t *ages_ms);

/* Where the keys of a slice go; NULL: nowhere, but for keys. */
struct pst_slice {
	uint64_t *keys, *ages_ms;
	void *rows;
	float *state;
	uint32_t *lens;   /* of values, in bytes */
	char *bytes;      /* values, one behind the other */
	size_t bytes_max; /* after which it ends; one value is reported in any case */
	size_t bytes_n;
};

struct pst_cut;

/**
 * As pst_scan(), also of values. Of a cut (pst_cut.h; NULL: none) what the range was when the cut began, with the ages
 * of that moment; the cursor never goes back then, but a slice may be read again.
 */
uint32_t pst_slice(struct pst_table *table, struct pst_cut *cut, struct pst_cursor *cursor, uint64_t now_ms, uint32_t n,
		   struct pst_slice *slice);

/** Removes expired rows among up to `keys` keys (at most PST_CHUNK_KEYS), going round the table. Returns how many it
 * removed. */
uint32_t pst_evict(struct pst_table *table, uint64_t now_ms, uint32_t keys);

/* ---- Values; the owner's thread ---- */

/** Sets the values of n keys: value i is bytes[offsets[i], offsets[i + 1]). INVALID: longer than value_max (by its
 * key); RESOURCE: no memory; nothing changed then. A refused key (table full) has status PST_REFUSED. */
enum far_status pst_value_put(struct pst_table *table, const uint64_t *keys, uint32_t n, const uint32_t *offsets,
			      const void *bytes, uint64_t now_ms, uint8_t *status, struct far_err *err);

/** Likewise, as pst_slice() reported them: with ages (NULL without TTL). */
enum far_status pst_value_restore(struct pst_table *table, const uint64_t *keys, uint32_t n, const uint32_t *offsets,
				  const void *bytes, const uint64_t *ages_ms, uint64_t now_ms, uint8_t *status,
				  struct far_err *err);

/**
 * Copies the values of n keys one behind the other to bytes[bytes_max]; value i is bytes[offsets[i], offsets[i + 1]),
 * empty for a missing key. `offsets` has n + 1 entries. TOO_LARGE: they do not fit; `*needed` has the bytes they take,
 * in either case.
 */
enum far_status pst_value_get(struct pst_table *table, const uint64_t *keys, uint32_t n, uint32_t *offsets, void *bytes,
			      size_t bytes_max, size_t *needed, uint64_t now_ms, uint8_t *status, struct far_err *err);

#endif
