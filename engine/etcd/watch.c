/* SPDX-License-Identifier: BSD-3-Clause */
/* The watch: a request whose reply is a line of JSON for each batch of changes, without an end. Control thread. */
#include "etcd/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static size_t received(char *data, size_t size, size_t n, void *user)
{
	struct watch_stream *w = user;
	if (w->in.len - w->used > ETCD_UNREAD_MAX) {
		w->paused = true;
		return CURL_WRITEFUNC_PAUSE;
	}
	return buffer_put(&w->in, data, size * n, SIZE_MAX) ? size * n : 0;
}

void watch_close(struct etcd *e)
{
	struct watch_stream *w = &e->watch;
	if (w->easy) {
		curl_multi_remove_handle(e->multi, w->easy);
		curl_easy_cleanup(w->easy);
	}
	curl_slist_free_all(w->headers);
	free(w->body);
	json_decref(w->message);
	buffer_free(&w->in);
	w->easy = NULL;
	w->headers = NULL;
	w->body = NULL;
	w->message = NULL;
	w->used = w->event = 0;
	w->paused = false;
}

void watch_step(struct etcd *e)
{
	struct watch_stream *w = &e->watch;
	/* What was received is read first: an event is not to be fetched twice. */
	bool unread = w->message || w->in.len > w->used;
	if (w->easy && w->endpoint_epoch != e->endpoint_epoch && !unread)
		watch_close(e);
	if (w->easy || !w->wanted || w->error || e->now < e->retry_at || (e->user && !e->token))
		return;
	const struct etcd_range of = {w->key, w->end};
	w->body = message_watch(&of, w->next);
	w->easy = w->body ? transfer_make(e, "/v3/watch", w->body, &w->headers) : NULL;
	if (!w->easy) {
		watch_close(e);
		return;
	}
	w->endpoint_epoch = e->endpoint_epoch;
	curl_easy_setopt(w->easy, CURLOPT_TIMEOUT_MS, 0L);
	curl_easy_setopt(w->easy, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(w->easy, CURLOPT_WRITEFUNCTION, received);
	curl_easy_setopt(w->easy, CURLOPT_WRITEDATA, w);
	curl_multi_add_handle(e->multi, w->easy);
}

static struct kv_bytes copy(struct kv_bytes b)
{
	uint8_t *data = malloc(b.len + 1);
	if (data && b.len)
		memcpy(data, b.data, b.len);
	return (struct kv_bytes){data, b.len};
}

int etcd_watch(struct etcd *e, const struct etcd_range *of, int64_t revision)
{
	struct watch_stream *w = &e->watch;
	watch_close(e);
	free((void *)w->key.data);
	free((void *)w->end.data);
	w->key = copy(of->key);
	w->end = copy(of->end);
	w->next = revision;
	w->returned = revision - 1;
	w->error = 0;
	w->wanted = w->key.data && w->end.data;
	return w->wanted ? 0 : -ENOMEM;
}

/* The transfer has ended; what it has brought may still be read. */
void watch_ended(struct etcd *e, CURLcode result)
{
	struct watch_stream *w = &e->watch;
	transfer_failed(e, w->endpoint_epoch, w->easy, result, &w->in);
	watch_close(e);
}

/* Ends the watch with an error of etcd: continues at another endpoint, or reports it. */
static void refused(struct etcd *e, const char *line, size_t len)
{
	struct watch_stream *w = &e->watch;
	char text[ETCD_TEXT_MAX] = "the watch was canceled";
	int code = message_error(line, len, text, sizeof text);
	int64_t compacted = message_number(json_object_get(w->message, "result"), "compact_revision");
	w->error = compacted || code == GRPC_OUT_OF_RANGE ? -ESTALE : code == GRPC_DENIED ? -EACCES : 0;
	if (code == GRPC_UNAUTHENTICATED) {
		free(e->token);
		e->token = NULL;
	}
	if (!w->error)
		endpoint_failed(e, w->endpoint_epoch, -EAGAIN, "%s", text);
	watch_close(e);
}

/* Takes the next line as w->message: false: there is none. */
static bool line_take(struct etcd *e)
{
	struct watch_stream *w = &e->watch;
	char *line = w->in.data + w->used, *end = w->in.len > w->used ? memchr(line, '\n', w->in.len - w->used) : NULL;
	if (!end) {
		if (w->used) {
			memmove(w->in.data, line, w->in.len - w->used);
			w->in.len -= w->used;
			w->used = 0;
		}
		if (w->paused) {
			w->paused = false;
			curl_easy_pause(w->easy, CURLPAUSE_CONT);
		}
		return false;
	}
	size_t len = (size_t)(end - line);
	w->used += len + 1;
	w->message = json_loadb(line, len, 0, NULL);
	w->event = 0;
	free(w->bytes);
	w->bytes = malloc(len + 1); /* decoded bytes are fewer than those of the text */
	const json_t *result = json_object_get(w->message, "result");
	if (!result || !w->bytes || json_is_true(json_object_get(result, "canceled"))) {
		refused(e, line, len);
		return false;
	}
	int64_t revision = message_number(json_object_get(result, "header"), "revision");
	bool progress = !json_object_get(result, "events") && !json_is_true(json_object_get(result, "created"));
	if (progress && revision > w->returned) {
		w->returned = revision;
		w->next = revision + 1;
	}
	return true;
}

int etcd_change(struct etcd *e, struct etcd_kv *out, int64_t *revision)
{
	struct watch_stream *w = &e->watch;
	int found = 0;
	while (!found && (w->message || line_take(e))) {
		const json_t *events = json_object_get(json_object_get(w->message, "result"), "events");
		const json_t *event = json_array_get(events, w->event);
		uint8_t *at = w->bytes;
		if (!event) {
			/* Changes of one revision are in one message: only its end ends a revision. */
			w->next += w->event > 0;
			w->returned = w->next - 1 > w->returned ? w->next - 1 : w->returned;
			json_decref(w->message);
			w->message = NULL;
			continue;
		}
		w->event++;
		if (!message_kv(json_object_get(event, "kv"), out, &at)) {
			watch_close(e);
			w->error = -EPROTO;
			break;
		}
		const char *type = json_string_value(json_object_get(event, "type"));
		out->deleted = type && strcmp(type, "DELETE") == 0;
		w->next = out->revision > w->next ? out->revision : w->next;
		found = 1;
	}
	*revision = w->returned;
	return found ? found : w->error;
}
