/* SPDX-License-Identifier: BSD-3-Clause */
/* A growing byte queue for one stream. Control thread. */
#include "control/send_buffer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SEND_BUFFER_RETAINED_BYTES ((size_t)16 << 10) /* allocation that an empty buffer keeps */

int send_buffer_put(struct send_buffer *o, const void *data, size_t len)
{
	size_t waiting = send_buffer_len(o);
	if (len > SEND_BUFFER_BYTES_MAX - waiting)
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

void send_buffer_fini(struct send_buffer *o)
{
	free(o->data);
	*o = (struct send_buffer){0};
}

/* The buffer is empty: rewinds it, and frees what a burst allocated. */
static void send_buffer_rewind(struct send_buffer *o)
{
	o->head = o->tail = 0;
	if (o->cap > SEND_BUFFER_RETAINED_BYTES)
		send_buffer_fini(o);
}

void send_buffer_skip(struct send_buffer *o, size_t len)
{
	o->head += len;
	if (o->head == o->tail)
		send_buffer_rewind(o);
}

size_t send_buffer_take(struct send_buffer *o, void *data, size_t len)
{
	size_t n = send_buffer_len(o) < len ? send_buffer_len(o) : len;
	if (n)
		memcpy(data, o->data + o->head, n);
	send_buffer_skip(o, n);
	return n;
}

long send_buffer_flush(struct send_buffer *o, struct ctl_net *net, int handle)
{
	long sent = 0;
	while (send_buffer_len(o)) {
		long n = net->ops->send(net, handle, o->data + o->head, send_buffer_len(o));
		if (n == -EAGAIN || n == 0)
			break;
		if (n < 0)
			return n;
		send_buffer_skip(o, (size_t)n);
		sent += n;
	}
	return sent;
}
