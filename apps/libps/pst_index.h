/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The index of a table: 64-bit key → 32-bit number of its row.
 *
 * The hashes are cut into PST_PARTITIONS ranges. A partition is an extendible hash: one segment, or a directory of
 * 1 << depth entries, each a segment; a segment covers a range of hashes. A partition costs one line, which is the head
 * of its only segment. A segment has 1, 2, 4, 8, 16 lines, or 1 to 14 blocks of 32, or 8 to 14 blocks of 64 lines. A
 * key's home line is its hash's place in the range, scaled to the number of lines, so lines are in the order of hashes.
 * A key whose home line is full is in the next line with room, modulo the segment.
 *
 * A segment at four fifths of its slots grows by a quarter (doubles up to 32 lines); the largest splits into two.
 * Either moves the entries of this one segment alone, at most PST_SEGMENT_KEYS of them; doubling a directory copies its
 * pointers. The lines of all segments are in one pool. After a failed allocation the index is as before.
 *
 * The index belongs to one thread; pst_slabs_ahead(&index->lines.slabs) may run on another.
 */
#ifndef PST_INDEX_H
#define PST_INDEX_H

#include "pst_hash.h"
#include "pst_line.h"
#include "pst_lines.h"
#include <stdbool.h>

#define PST_NO_ROW          UINT32_MAX
#define PST_SEGMENT_BLOCKS  14u
#define PST_SEGMENT_LINES   (PST_SEGMENT_BLOCKS * PST_LINES_BLOCK)
#define PST_SEGMENT_KEYS    (4 * PST_SEGMENT_LINES) /* keys of a segment at most: four a line */
#define PST_SCAN_LINES      128u
#define PST_DIRECTORY_DEPTH 16u /* at most; only keys chosen to collide come there */

struct pst_segment {
	uint16_t lines; /* above 0 */
	uint16_t keys;
	uint16_t depth; /* the segment's hashes have so many bits behind the partition's in common */
	uint16_t shift; /* log2 of the lines of a block: 5 or 6; 5 if `lines` are fewer than 32 */
	uint32_t block[PST_SEGMENT_BLOCKS]; /* first line of each block */
};
static_assert(sizeof(struct pst_segment) == 64, "one cache line");

struct pst_directory {
	uint16_t lines;               /* 0: here is no segment */
	uint16_t depth;               /* at least 1 */
	uint32_t keys;                /* of the partition */
	struct pst_segment **segment; /* [1 << depth] */
};

/* A partition without keys is a segment of one line, which all such partitions share. */
struct pst_part {
	union {
		struct pst_segment segment;
		struct pst_directory directory;
	};
};
static_assert(sizeof(struct pst_part) == 64, "a partition without keys costs one line");

/* Work done since the index was made. */
struct pst_index_work {
	uint64_t grown, split, doubled; /* segments, segments, directories */
	uint64_t moved;                 /* entries */
	uint32_t moved_last;            /* entries, by the last pst_index_reserve */
	uint32_t moved_most;            /* entries, by one pst_index_reserve */
	uint32_t copied_most;           /* pointers of a directory, by one pst_index_reserve */
};

struct pst_entry {
	uint64_t key;
	uint32_t row;
};

struct pst_index {
	struct pst_part *part;  /* [PST_PARTITIONS] */
	struct pst_lines lines; /* lines, and heads of segments in directories */
	uint32_t empty;         /* the line of partitions without keys; PST_LINES_NONE: the index was not made */
	uint64_t keys;
	size_t directory_bytes;
	struct pst_entry *scratch; /* [PST_SEGMENT_LINES * PST_LINE_KEYS]: a segment that is rebuilt or scanned */
	struct pst_index_work work;
	const struct pst_memory *memory;
};

/** 0 or -ENOMEM. */
int pst_index_init(struct pst_index *x, const struct pst_memory *memory);
void pst_index_fini(struct pst_index *x);

/** The row number of a key, to read or to change; NULL: the key is not there. Valid until the index changes. */
uint32_t *pst_index_find(const struct pst_index *x, uint64_t hash, uint64_t key);

/** Makes room for one more key of this hash. 0; -ENOMEM; -EOVERFLOW: more than PST_SEGMENT_KEYS keys agree in the first
 * PST_PARTITION_BITS + PST_DIRECTORY_DEPTH bits of their hashes. */
int pst_index_reserve(struct pst_index *x, uint64_t hash);

/** Adds a key that is not there. The last call was pst_index_reserve of the same hash. */
void pst_index_put(struct pst_index *x, uint64_t hash, uint64_t key, uint32_t row);

/** Removes a key and returns its row; PST_NO_ROW: it was not there. Allocates nothing. */
uint32_t pst_index_remove(struct pst_index *x, uint64_t hash, uint64_t key);

/**
 * Entries with a hash in [*from, last], in the order of hashes, at most `n` of them, from at most n +
 * PST_SCAN_LINES lines. Sets *from to where the next call goes on and *done when nothing is left. A key that is there
 * from the first call to the last is reported exactly once, whatever was added, removed or moved in between. Returns
 * the number of entries.
 */
uint32_t pst_index_scan(struct pst_index *x, uint64_t *from, uint64_t last, struct pst_entry *entries, uint32_t n,
			bool *done);

/** Bytes of memory held. */
size_t pst_index_bytes(const struct pst_index *x);

static inline struct pst_segment *pst_index_segment(struct pst_part *part, uint64_t hash)
{
	struct pst_part *p = &part[pst_partition(hash)];
	if (__builtin_expect(p->segment.lines != 0, 1))
		return &p->segment;
	return p->directory.segment[(hash << PST_PARTITION_BITS) >> (64 - p->directory.depth)];
}

/** Keys of a partition. */
static inline uint32_t pst_index_keys(const struct pst_index *x, unsigned partition)
{
	const struct pst_part *p = &x->part[partition];
	return p->segment.lines ? p->segment.keys : p->directory.keys;
}

/** Home line of a hash in its segment, in [0, lines). */
static inline uint32_t pst_index_home(const struct pst_segment *s, uint64_t hash)
{
	uint64_t place = (hash << PST_PARTITION_BITS << s->depth) >> 32;
	return (uint32_t)(place * s->lines >> 32);
}

/** Number of a segment's line in the pool. */
static inline uint32_t pst_index_number(const struct pst_segment *s, uint32_t line)
{
	return s->block[line >> s->shift] + (line & ((1u << s->shift) - 1));
}

static inline struct pst_line *pst_index_line(const struct pst_index *x, const struct pst_segment *s, uint32_t line)
{
	return pst_lines_at(&x->lines, pst_index_number(s, line));
}

/** The home line of a hash, for a prefetch. `slabs` are those of the index's lines. */
static inline const struct pst_line *pst_index_at(struct pst_part *part, char *const *slabs, uint64_t hash)
{
	const struct pst_segment *s = pst_index_segment(part, hash);
	return pst_lines_in(slabs, pst_index_number(s, pst_index_home(s, hash)));
}

#endif
