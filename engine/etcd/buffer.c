/* SPDX-License-Identifier: BSD-3-Clause */
/* Received bytes, appended. Control thread. */
#include "etcd/buffer.h"

#include <stdlib.h>
#include <string.h>

bool buffer_put(struct buffer *b, const char *data, size_t len, size_t max)
{
	if (len > max - b->len)
		return false;
	if (b->len + len > b->cap) {
		size_t cap = 2 * (b->len + len);
		char *grown = realloc(b->data, cap);
		if (!grown)
			return false;
		b->data = grown;
		b->cap = cap;
	}
	if (len)
		memcpy(b->data + b->len, data, len);
	b->len += len;
	return true;
}

void buffer_free(struct buffer *b)
{
	free(b->data);
	*b = (struct buffer){.data = NULL};
}
