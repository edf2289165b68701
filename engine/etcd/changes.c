/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the reply to a watch. Control thread. */
#include "etcd/changes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void consume(struct changes *c)
{
	if (!c->used)
		return;
	c->in.len -= c->used;
	memmove(c->in.data, c->in.data + c->used, c->in.len);
	c->used = 0;
}

int changes_put(struct changes *c, const char *data, size_t len)
{
	if (c->in.len - c->used > CHANGES_UNREAD_MAX)
		return 0;
	if (c->used > c->in.len / 2)
		consume(c);
	return buffer_put(&c->in, data, len, SIZE_MAX) ? 1 : -ENOMEM;
}

static void message_end(struct changes *c)
{
	json_decref(c->message);
	free(c->bytes);
	c->message = NULL;
	c->bytes = NULL;
	c->event = 0;
}

void changes_reset(struct changes *c)
{
	message_end(c);
	buffer_free(&c->in);
	c->used = 0;
}

static int failed(struct changes *c, int error, const char *text)
{
	snprintf(c->text, sizeof c->text, "%s", text);
	return error;
}

static int malformed(struct changes *c)
{
	return failed(c, -EPROTO, "what it sends is no change of etcd v3");
}

/* The error of a line without changes. */
static int refused(struct changes *c, const char *line, size_t len, const json_t *result)
{
	int64_t compacted = 0;
	int code = message_error(line, len, c->text, sizeof c->text);
	if (!message_number(result, "compact_revision", &compacted) || (code < 0 && !json_is_object(result)))
		return malformed(c);
	if (code < 0)
		failed(c, 0, "the watch was canceled");
	return compacted || code == GRPC_OUT_OF_RANGE ? -ESTALE
	       : code == GRPC_DENIED                  ? -EACCES
	       : code == GRPC_UNAUTHENTICATED         ? -EKEYEXPIRED
						      : -EAGAIN;
}

/* Takes the next line as c->message: 1; 0: none is complete; -errno. */
static int line_take(struct changes *c)
{
	size_t unread = c->in.len - c->used;
	char *line = unread ? c->in.data + c->used : NULL, *end = unread ? memchr(line, '\n', unread) : NULL;
	int64_t revision;
	if (!end && unread > CHANGES_UNREAD_MAX)
		return malformed(c);
	if (!end)
		return 0;
	size_t len = (size_t)(end - line);
	c->used += len + 1;
	c->message = json_loadb(line, len, 0, NULL);
	c->bytes = malloc(len + 1); /* decoded bytes are fewer than those of the text */
	if (!c->bytes)
		return failed(c, -ENOMEM, "no memory for a reply of etcd");
	const json_t *result = json_object_get(c->message, "result"), *events = json_object_get(result, "events");
	if (!json_is_object(result) || json_is_true(json_object_get(result, "canceled")))
		return refused(c, line, len, result);
	if (!message_revision(json_object_get(result, "header"), "revision", &revision) ||
	    (events && !json_is_array(events)))
		return malformed(c);
	if (!events && !json_is_true(json_object_get(result, "created")) && revision > c->returned) { /* progress */
		c->returned = revision;
		c->next = revision + 1;
	}
	return 1;
}

static int event_read(struct changes *c, const json_t *event, struct etcd_kv *out)
{
	const json_t *type = json_object_get(event, "type");
	uint8_t *at = c->bytes;
	if (!message_kv(json_object_get(event, "kv"), out, &at) || (type && !json_is_string(type)))
		return malformed(c);
	out->deleted = type && strcmp(json_string_value(type), "DELETE") == 0;
	c->next = out->revision > c->next ? out->revision : c->next;
	c->event++;
	return 1;
}

int changes_next(struct changes *c, struct etcd_kv *out)
{
	int rc = 1;
	while (c->message || (rc = line_take(c)) > 0) {
		const json_t *events = json_object_get(json_object_get(c->message, "result"), "events");
		const json_t *event = json_array_get(events, c->event);
		if (event)
			return event_read(c, event, out);
		/* Changes of one revision are in one message: only its end ends a revision. */
		c->next += c->event > 0;
		c->returned = c->next - 1 > c->returned ? c->next - 1 : c->returned;
		message_end(c);
	}
	if (rc == 0)
		consume(c);
	return rc;
}
