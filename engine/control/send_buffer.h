/* SPDX-License-Identifier: BSD-3-Clause */
/** Send buffer: bytes that wait until a stream accepts them. Control thread. */
#ifndef FAR_CONTROL_SEND_BUFFER_H
#define FAR_CONTROL_SEND_BUFFER_H

#include "control/net.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes that may wait for one stream. A peer within its bound of outstanding requests, each with one reply frame,
 * cannot fill it; a peer that does not read is dropped. */
#define SEND_BUFFER_BYTES_MAX ((size_t)8 << 20)

struct send_buffer {
	uint8_t *data;
	size_t head, tail; /* data[head, tail) waits */
	size_t cap;        /* allocated bytes */
};

static inline size_t send_buffer_len(const struct send_buffer *o)
{
	return o->tail - o->head;
}

/** Appends all bytes or none: 0, -ENOBUFS beyond the bound, -ENOMEM. */
int send_buffer_put(struct send_buffer *o, const void *data, size_t len);
/** Copies up to `len` bytes to `data` and removes them; returns how many. */
size_t send_buffer_take(struct send_buffer *o, void *data, size_t len);
/** Removes the first `len` bytes, which are there. */
void send_buffer_skip(struct send_buffer *o, size_t len);
/** Sends what the stream accepts: bytes sent (0 for -EAGAIN), or -errno. */
long send_buffer_flush(struct send_buffer *o, struct ctl_net *net, int handle);
void send_buffer_fini(struct send_buffer *o);

#endif
