/* SPDX-License-Identifier: BSD-3-Clause */
#include "control/send_buffer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OUTBOX_KEPT_BYTES ((size_t)16 << 10) /* of an empty one */

int outbox_put(struct outbox *o, const void *data, size_t len)
{
	size_t waiting = outbox_len(o);
	if (len > OUTBOX_BYTES_MAX - waiting)
		return -ENOBUFS;
	if (o->head && o->tail + len > o->cap) {
		memmove(o->data, o->data + o->head, waiting);
		o->head = 0;
		o->tail = waiting;
	}
	if (o->tail + len > o->cap) {
		size_t cap = o->cap ? o->cap : 1024;
		while (cap < o->tail + len)
			cap *= 2;
		uint8_t *grown = realloc(o->data, cap);
		if (!grown)
			return -ENOMEM;
		o->data = grown;
		o->cap = cap;
	}
	if (len)
		memcpy(o->data + o->tail, data, len);
	o->tail += len;
	return 0;
}

void outbox_fini(struct outbox *o)
{
	free(o->data);
	*o = (struct outbox){0};
}

/* Empty: nothing is kept of what a burst took. */
static void outbox_rewind(struct outbox *o)
{
	o->head = o->tail = 0;
	if (o->cap > OUTBOX_KEPT_BYTES)
		outbox_fini(o);
}

size_t outbox_take(struct outbox *o, void *data, size_t len)
{
	size_t n = outbox_len(o) < len ? outbox_len(o) : len;
	if (n)
		memcpy(data, o->data + o->head, n);
	o->head += n;
	if (o->head == o->tail)
		outbox_rewind(o);
	return n;
}

long outbox_flush(struct outbox *o, struct ctl_net *net, int handle)
{
	long sent = 0;
	while (outbox_len(o)) {
		long n = net->ops->send(net, handle, o->data + o->head, outbox_len(o));
		if (n == -EAGAIN || n == 0)
			break;
		if (n < 0)
			return n;
		o->head += (size_t)n;
		sent += n;
	}
	if (o->head == o->tail)
		outbox_rewind(o);
	return sent;
}
