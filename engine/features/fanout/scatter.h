/* SPDX-License-Identifier: BSD-3-Clause */
/** The copy of a fan-out's reply into the application's memory. Shard thread. */
#ifndef FAR_FANOUT_SCATTER_H
#define FAR_FANOUT_SCATTER_H

#include "features/fanout/fanout.h"
#include "value/line.h"

/**
 * Puts the reply data[0, len) where target `i` wants it, in one copy. The bytes may be written by the peer meanwhile:
 * what is checked is what is used. Other than FAR_OK: nothing was written, `*text` has the reason. `r` may be NULL.
 */
enum far_status scatter(const struct fanout *fo, uint32_t i, const void *data, size_t len, struct far_target_result *r,
			const char **text);

/** The same of private bytes of one line, FAR_LINE_PAYLOAD of them readable: a message, or a tensor, into a slice.
 * false: nothing was written, scatter() decides. */
static inline bool scatter_line(const struct fanout *fo, const struct fanout_target *t, uint8_t *line, size_t len)
{
	unsigned dtype;
	size_t count;
	const uint8_t *from = line;
	if (unlikely(fo->results || !t->recv_buf))
		return false;
	if (fo->start.typed) {
		from = line_find_one(line, len, &dtype, &count);
		if (unlikely(!from || (fo->dtype && dtype != (unsigned)fo->dtype)))
			return false;
		len -= (size_t)(from - line);
	}
	if (unlikely(len > t->cap))
		return false;
	if (len)
		line_copy(t->recv_buf, from, len);
	return true;
}

/** The same of a reply that holds references, and has been read: `tree`, which stays the caller's. */
enum far_status scatter_tree(const struct fanout *fo, uint32_t i, struct far_buf *tree, struct far_target_result *r,
			     const char **text);

/** Writes the value of a fan-out's future, an int, to dst[0, cap); returns its length. */
size_t scatter_count(uint32_t n, void *dst, size_t cap);

#endif
