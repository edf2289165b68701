/* SPDX-License-Identifier: BSD-3-Clause */
/** Received bytes. Control thread. */
#ifndef FAR_ETCD_BUFFER_H
#define FAR_ETCD_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct buffer {
	char *data;
	size_t len, cap;
};

/** Appends; false: it would have more than `max` bytes, or there is no memory. */
bool buffer_put(struct buffer *b, const char *data, size_t len, size_t max);
void buffer_free(struct buffer *b);

#endif
