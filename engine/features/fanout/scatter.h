/* SPDX-License-Identifier: BSD-3-Clause */
/** The copy of a fan-out's reply into the application's memory. Shard thread. */
#ifndef FAR_FANOUT_SCATTER_H
#define FAR_FANOUT_SCATTER_H

#include "features/fanout/fanout.h"

/**
 * Puts the reply data[0, len) where target `i` wants it, in one copy. The bytes may be written by the peer meanwhile:
 * what is checked is what is used. Other than FAR_OK: nothing was written, `*text` has the reason. `r` may be NULL.
 */
enum far_status scatter(const struct fanout *fo, uint32_t i, const void *data, size_t len, struct far_target_result *r,
			const char **text);

/** The same of a reply that holds references, and has been read: `tree`, which stays the caller's. */
enum far_status scatter_tree(const struct fanout *fo, uint32_t i, struct far_buf *tree, struct far_target_result *r,
			     const char **text);

/** Writes the value of a fan-out's future, an int, to dst[0, cap); returns its length. */
size_t scatter_count(uint32_t n, void *dst, size_t cap);

#endif
