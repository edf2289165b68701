/* SPDX-License-Identifier: BSD-3-Clause */
/** The index of a table: lookup, growth, removal, scan. The thread that owns the table. */
#include "pst_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SHIFT_MIN       5u /* log2 of the lines of a small block */
#define SHIFT_MAX       6u
#define BLOCK_MIN       (1u << SHIFT_MIN)
#define SCRATCH_ENTRIES (PST_SEGMENT_LINES * PST_LINE_KEYS)

int pst_index_init(struct pst_index *x, const struct pst_memory *memory)
{
	*x = (struct pst_index){.memory = memory};
	pst_lines_init(&x->lines, memory);
	x->part = memory->get(memory->ctx, PST_PARTITIONS * sizeof *x->part, PST_PAGES_HEAP);
	x->scratch = memory->get(memory->ctx, SCRATCH_ENTRIES * sizeof *x->scratch, PST_PAGES_HEAP);
	x->empty = x->part && x->scratch ? pst_lines_get(&x->lines, 0) : PST_LINES_NONE;
	if (!x->empty) {
		pst_index_fini(x);
		return -ENOMEM;
	}
	memset(pst_lines_at(&x->lines, x->empty), 0, sizeof(struct pst_line));
	for (unsigned p = 0; p < PST_PARTITIONS; p++)
		x->part[p].segment = (struct pst_segment){.lines = 1, .shift = SHIFT_MIN, .block = {x->empty}};
	return 0;
}

void pst_index_fini(struct pst_index *x)
{
	const struct pst_memory *m = x->memory;
	for (unsigned p = 0; x->empty && p < PST_PARTITIONS; p++)
		if (!x->part[p].segment.lines)
			m->put(m->ctx, x->part[p].directory.segment, sizeof(void *) << x->part[p].directory.depth,
			       PST_PAGES_HEAP);
	if (x->part)
		m->put(m->ctx, x->part, PST_PARTITIONS * sizeof *x->part, PST_PAGES_HEAP);
	if (x->scratch)
		m->put(m->ctx, x->scratch, SCRATCH_ENTRIES * sizeof *x->scratch, PST_PAGES_HEAP);
	pst_lines_fini(&x->lines);
	x->part = NULL;
	x->scratch = NULL;
}

uint32_t *pst_index_find(const struct pst_index *x, uint64_t hash, uint64_t key)
{
	const struct pst_segment *s = pst_index_segment(x->part, hash);
	uint32_t line = pst_index_home(s, hash);
	for (uint32_t n = 0; n < s->lines; n++) {
		struct pst_line *l = pst_index_line(x, s, line);
		unsigned equal = pst_line_match(l, key);
		if (equal)
			return &l->row[pst_line_first(equal)];
		if (!l->over)
			return NULL;
		line = line + 1 == s->lines ? 0 : line + 1;
	}
	return NULL;
}

/* ---- Growth ---- */

/* Four keys a line; the only line of a segment may be full. */
static uint32_t room(uint32_t lines)
{
	return lines == 1 ? PST_LINE_KEYS : 4 * lines;
}

/* Of the pool, for the blocks of a segment. */
static unsigned class_of(const struct pst_segment *s)
{
	return s->lines >= BLOCK_MIN ? s->shift : (unsigned)__builtin_ctz(s->lines);
}

static uint32_t blocks_of(const struct pst_segment *s)
{
	return s->lines <= BLOCK_MIN ? 1 : s->lines >> s->shift;
}

static void clear(const struct pst_index *x, const struct pst_segment *s)
{
	for (uint32_t i = 0; i < s->lines; i++) {
		struct pst_line *l = pst_index_line(x, s, i);
		l->used = 0;
		l->over = 0;
	}
}

/* Puts an entry into a segment that has room. */
static void place(const struct pst_index *x, struct pst_segment *s, uint64_t hash, uint64_t key, uint32_t row)
{
	uint32_t line = pst_index_home(s, hash);
	struct pst_line *l = pst_index_line(x, s, line);
	while (l->used == PST_LINE_FULL) {
		if (l->over < PST_OVER_MAX)
			l->over++;
		line = line + 1 == s->lines ? 0 : line + 1;
		l = pst_index_line(x, s, line);
	}
	unsigned slot = pst_line_first(~l->used & PST_LINE_FULL);
	l->key[slot] = key;
	l->row[slot] = row;
	l->used |= (uint16_t)(1u << 2 * slot);
	s->keys++;
}

/* Copies the entries of a segment to the scratch and returns their number. */
static uint32_t gather(const struct pst_index *x, const struct pst_segment *s)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < s->lines; i++) {
		const struct pst_line *l = pst_index_line(x, s, i);
		for (unsigned used = l->used; used; used &= used - 1) {
			unsigned slot = pst_line_first(used);
			x->scratch[n++] = (struct pst_entry){l->key[slot], l->row[slot]};
		}
	}
	return n;
}

/* Gets blocks of a class into block[from, to): all or none. */
static bool get_blocks(struct pst_index *x, uint32_t *block, uint32_t from, uint32_t to, unsigned class)
{
	for (uint32_t i = from; i < to; i++) {
		block[i] = pst_lines_get(&x->lines, class);
		if (!block[i]) {
			while (i-- > from)
				pst_lines_put(&x->lines, block[i], class);
			return false;
		}
	}
	return true;
}

static void count_moved(struct pst_index *x, uint32_t n)
{
	x->work.moved += n;
	x->work.moved_last += n;
}

/* A line for a partition that has none. */
static int begin(struct pst_index *x, struct pst_segment *s)
{
	uint32_t line = pst_lines_get(&x->lines, 0);
	if (!line)
		return -ENOMEM;
	*s = (struct pst_segment){.lines = 1, .shift = SHIFT_MIN, .block = {line}};
	clear(x, s);
	return 0;
}

/* Puts n entries of the scratch into a segment with new blocks. */
static void refill(struct pst_index *x, struct pst_segment *s, uint32_t n)
{
	s->keys = 0;
	clear(x, s);
	for (uint32_t i = 0; i < n; i++)
		place(x, s, pst_hash(x->scratch[i].key), x->scratch[i].key, x->scratch[i].row);
	count_moved(x, n);
	x->work.grown++;
}

/* All blocks are replaced by `blocks` new ones of a class. */
static int replace(struct pst_index *x, struct pst_segment *s, struct pst_segment *new, uint32_t blocks)
{
	struct pst_segment was = *s;
	if (!get_blocks(x, new->block, 0, blocks, class_of(new)))
		return -ENOMEM;
	uint32_t n = gather(x, s);
	*s = *new;
	refill(x, s, n);
	for (uint32_t i = 0; i < blocks_of(&was); i++)
		pst_lines_put(&x->lines, was.block[i], class_of(&was));
	return 0;
}

static int grow(struct pst_index *x, struct pst_segment *s)
{
	struct pst_segment new = *s;
	uint32_t blocks = blocks_of(s);
	if (s->lines < BLOCK_MIN) {
		new.lines = (uint16_t)(2 * s->lines);
		return replace(x, s, &new, 1);
	}
	if (blocks == PST_SEGMENT_BLOCKS) {
		uint32_t larger = PST_SEGMENT_BLOCKS / 2 + 1;
		new.shift = SHIFT_MAX;
		new.lines = (uint16_t)(larger << SHIFT_MAX);
		return replace(x, s, &new, larger);
	}
	uint32_t to = blocks + (blocks < 4 ? 1 : blocks / 4);
	to = to < PST_SEGMENT_BLOCKS ? to : PST_SEGMENT_BLOCKS;
	new.lines = (uint16_t)(to << s->shift);
	if (!get_blocks(x, new.block, blocks, to, class_of(s)))
		return -ENOMEM;
	uint32_t n = gather(x, s);
	*s = new;
	refill(x, s, n);
	return 0;
}

/* The partition's only segment moves to a line of the pool, behind a directory of two entries. */
static int begin_directory(struct pst_index *x, struct pst_part *p)
{
	const struct pst_memory *m = x->memory;
	struct pst_segment **segment = m->get(m->ctx, 2 * sizeof *segment, PST_PAGES_HEAP);
	uint32_t head = segment ? pst_lines_get(&x->lines, 0) : PST_LINES_NONE;
	if (!head) {
		if (segment)
			m->put(m->ctx, segment, 2 * sizeof *segment, PST_PAGES_HEAP);
		return -ENOMEM;
	}
	struct pst_segment *s = pst_lines_at(&x->lines, head);
	*s = p->segment;
	segment[0] = segment[1] = s;
	p->directory = (struct pst_directory){.depth = 1, .keys = s->keys, .segment = segment};
	x->directory_bytes += 2 * sizeof *segment;
	return 0;
}

static int double_directory(struct pst_index *x, struct pst_directory *d)
{
	const struct pst_memory *m = x->memory;
	uint32_t n = UINT32_C(1) << d->depth;
	struct pst_segment **segment = m->get(m->ctx, 2 * n * sizeof *segment, PST_PAGES_HEAP);
	if (!segment)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		segment[2 * i] = segment[2 * i + 1] = d->segment[i];
	m->put(m->ctx, d->segment, n * sizeof *segment, PST_PAGES_HEAP);
	x->directory_bytes += n * sizeof *segment;
	d->segment = segment;
	d->depth++;
	x->work.doubled++;
	if (2 * n > x->work.copied_most)
		x->work.copied_most = 2 * n;
	return 0;
}

/* Blocks for so many keys and an eighth more. */
static uint32_t blocks_for(uint32_t keys)
{
	uint32_t per_block = 4 << SHIFT_MAX;
	uint32_t blocks = (keys + keys / 8 + per_block) / per_block;
	return blocks < PST_SEGMENT_BLOCKS ? blocks : PST_SEGMENT_BLOCKS;
}

/* The lower half of the segment's hashes stays, the upper half goes to a new segment. */
static int split(struct pst_index *x, struct pst_directory *d, struct pst_segment *s, uint64_t hash)
{
	if (s->depth == PST_DIRECTORY_DEPTH)
		return -EOVERFLOW;
	if (s->depth == d->depth && double_directory(x, d))
		return -ENOMEM;
	uint32_t n = gather(x, s), upper = 0;
	unsigned bit = 63 - PST_PARTITION_BITS - s->depth;
	for (uint32_t i = 0; i < n; i++)
		upper += pst_hash(x->scratch[i].key) >> bit & 1;
	/* Blocks for both; those that the segment has are used first. */
	uint32_t low = blocks_for(n - upper), high = blocks_for(upper), have = blocks_of(s);
	uint32_t block[2 * PST_SEGMENT_BLOCKS];
	memcpy(block, s->block, have * sizeof *block);
	uint32_t head = pst_lines_get(&x->lines, 0);
	if (!head)
		return -ENOMEM;
	if (low + high > have && !get_blocks(x, block, have, low + high, SHIFT_MAX)) {
		pst_lines_put(&x->lines, head, 0);
		return -ENOMEM;
	}
	for (uint32_t i = low + high; i < have; i++)
		pst_lines_put(&x->lines, block[i], SHIFT_MAX);
	struct pst_segment *t = pst_lines_at(&x->lines, head);
	uint16_t depth = (uint16_t)(s->depth + 1);
	*s = (struct pst_segment){.lines = (uint16_t)(low << SHIFT_MAX), .depth = depth, .shift = SHIFT_MAX};
	*t = (struct pst_segment){.lines = (uint16_t)(high << SHIFT_MAX), .depth = depth, .shift = SHIFT_MAX};
	memcpy(s->block, block, low * sizeof *block);
	memcpy(t->block, block + low, high * sizeof *block);
	clear(x, s);
	clear(x, t);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t h = pst_hash(x->scratch[i].key);
		place(x, h >> bit & 1 ? t : s, h, x->scratch[i].key, x->scratch[i].row);
	}
	/* Of the directory's entries of the segment, the upper half. */
	uint32_t span = UINT32_C(1) << (d->depth - depth);
	uint64_t prefix = (hash << PST_PARTITION_BITS) >> (64 - depth) | 1;
	for (uint32_t i = 0; i < span; i++)
		d->segment[prefix * span + i] = t;
	count_moved(x, n);
	x->work.split++;
	return 0;
}

int pst_index_reserve(struct pst_index *x, uint64_t hash)
{
	struct pst_part *p = &x->part[pst_partition(hash)];
	x->work.moved_last = 0;
	for (;;) {
		struct pst_segment *s = pst_index_segment(x->part, hash);
		int rc;
		if (s->block[0] == x->empty)
			rc = begin(x, s);
		else if (s->keys < room(s->lines))
			break;
		else if (s->lines < PST_SEGMENT_LINES)
			rc = grow(x, s);
		else if (p->segment.lines)
			rc = begin_directory(x, p);
		else
			rc = split(x, &p->directory, s, hash);
		if (rc)
			return rc;
	}
	if (x->work.moved_last > x->work.moved_most)
		x->work.moved_most = x->work.moved_last;
	return 0;
}

void pst_index_put(struct pst_index *x, uint64_t hash, uint64_t key, uint32_t row)
{
	place(x, pst_index_segment(x->part, hash), hash, key, row);
	struct pst_part *p = &x->part[pst_partition(hash)];
	if (!p->segment.lines)
		p->directory.keys++;
	x->keys++;
}

uint32_t pst_index_remove(struct pst_index *x, uint64_t hash, uint64_t key)
{
	struct pst_segment *s = pst_index_segment(x->part, hash);
	uint32_t home = pst_index_home(s, hash), line = home;
	unsigned equal = 0;
	struct pst_line *l = NULL;
	for (uint32_t n = 0; n < s->lines; n++) {
		l = pst_index_line(x, s, line);
		equal = pst_line_match(l, key);
		if (equal || !l->over)
			break;
		line = line + 1 == s->lines ? 0 : line + 1;
	}
	if (!equal)
		return PST_NO_ROW;
	unsigned slot = pst_line_first(equal);
	l->used &= (uint16_t) ~(1u << 2 * slot);
	uint32_t row = l->row[slot];
	for (; home != line; home = home + 1 == s->lines ? 0 : home + 1) {
		struct pst_line *passed = pst_index_line(x, s, home);
		if (passed->over < PST_OVER_MAX)
			passed->over--;
	}
	s->keys--;
	struct pst_part *p = &x->part[pst_partition(hash)];
	if (!p->segment.lines)
		p->directory.keys--;
	x->keys--;
	return row;
}

/* ---- Scan ---- */

/* Entries whose home is `line`: those of hashes in [from, last] go to the scratch. */
static uint32_t of_home(const struct pst_index *x, const struct pst_segment *s, uint32_t home, uint64_t from,
			uint64_t last)
{
	uint32_t found = 0, line = home;
	for (uint32_t n = 0; n < s->lines; n++) {
		const struct pst_line *l = pst_index_line(x, s, line);
		for (unsigned used = l->used; used; used &= used - 1) {
			unsigned slot = pst_line_first(used);
			uint64_t hash = pst_hash(l->key[slot]);
			if (hash >= from && hash <= last && pst_index_home(s, hash) == home)
				x->scratch[found++] = (struct pst_entry){l->key[slot], l->row[slot]};
		}
		if (!l->over)
			break;
		line = line + 1 == s->lines ? 0 : line + 1;
	}
	return found;
}

static int by_hash(const void *a, const void *b)
{
	uint64_t x = pst_hash(((const struct pst_entry *)a)->key), y = pst_hash(((const struct pst_entry *)b)->key);
	return (x > y) - (x < y);
}

/* Last hash of a home line. */
static uint64_t last_of(const struct pst_segment *s, uint32_t line, uint64_t hash)
{
	unsigned shared = PST_PARTITION_BITS + s->depth;
	uint64_t first = hash >> (64 - shared) << (64 - shared);
	/* The least place of the next line, as pst_index_home computes it: 32 bits behind the shared ones. */
	uint64_t next = (((uint64_t)(line + 1) << 32) + s->lines - 1) / s->lines;
	if (line + 1 == s->lines)
		return first + (UINT64_MAX >> shared);
	return first + ((next << 32 >> shared) - 1);
}

uint32_t pst_index_scan(struct pst_index *x, uint64_t *from, uint64_t last, struct pst_entry *entries, uint32_t n,
			bool *done)
{
	uint32_t out = 0;
	*done = *from > last;
	for (uint32_t lines = n + PST_SCAN_LINES; out < n && lines > 0 && !*done; lines--) {
		uint64_t end; /* of what this step covers */
		if (!pst_index_keys(x, pst_partition(*from))) {
			end = *from | UINT64_MAX >> PST_PARTITION_BITS;
		} else {
			const struct pst_segment *s = pst_index_segment(x->part, *from);
			uint32_t home = pst_index_home(s, *from);
			end = last_of(s, home, *from);
			uint32_t found = of_home(x, s, home, *from, last);
			if (found > 1)
				qsort(x->scratch, found, sizeof *x->scratch, by_hash);
			if (found > n - out) {
				found = n - out;
				end = pst_hash(x->scratch[found - 1].key);
			}
			memcpy(entries + out, x->scratch, found * sizeof *entries);
			out += found;
		}
		*done = end >= last;
		*from = end + 1;
	}
	return out;
}

size_t pst_index_bytes(const struct pst_index *x)
{
	return PST_PARTITIONS * sizeof *x->part + SCRATCH_ENTRIES * sizeof *x->scratch + x->directory_bytes +
	       pst_lines_bytes(&x->lines);
}
