/* SPDX-License-Identifier: BSD-3-Clause */
/** Bytes on their way to a stream that takes them at its own pace. Control core. */
#ifndef FAR_CONTROL_SEND_BUFFER_H
#define FAR_CONTROL_SEND_BUFFER_H

#include "control/net.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes that may wait for one stream. A peer that keeps to its bound of outstanding requests, each answered with one
 * frame, cannot fill it; one that does not read is dropped. */
#define OUTBOX_BYTES_MAX ((size_t)8 << 20)

struct outbox {
	uint8_t *data;
	size_t head, tail; /* data[head, tail) waits */
	size_t cap;
};

static inline size_t outbox_len(const struct outbox *o)
{
	return o->tail - o->head;
}

/** Appends all of it: 0, -ENOBUFS beyond the bound, -ENOMEM. */
int outbox_put(struct outbox *o, const void *data, size_t len);
/** Takes up to `len` bytes out; returns how many. */
size_t outbox_take(struct outbox *o, void *data, size_t len);
/** Sends what the stream takes: bytes sent, or -errno (never -EAGAIN: that is 0). */
long outbox_flush(struct outbox *o, struct ctl_net *net, int handle);
void outbox_fini(struct outbox *o);

#endif
