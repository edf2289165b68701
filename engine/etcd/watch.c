/* SPDX-License-Identifier: BSD-3-Clause */
/* The watch: a request whose reply has no end (changes.h). Control thread. */
#include "etcd/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static size_t received(char *data, size_t size, size_t n, void *user)
{
	struct watch_stream *w = user;
	int rc = changes_put(&w->changes, data, size * n);
	w->paused = rc == 0;
	return rc > 0 ? size * n : rc == 0 ? CURL_WRITEFUNC_PAUSE : 0;
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
	changes_reset(&w->changes);
	w->easy = NULL;
	w->headers = NULL;
	w->body = NULL;
	w->paused = false;
}

void watch_step(struct etcd *e)
{
	struct watch_stream *w = &e->watch;
	if (w->easy && w->endpoint_epoch != e->endpoint_epoch)
		watch_close(e);
	if (w->easy || !w->wanted || w->error || e->now < e->retry_at || (e->user && !e->token))
		return;
	const struct etcd_range of = {w->key, w->end};
	w->body = message_watch(&of, w->changes.next);
	w->easy = w->body ? transfer_make(e, "/v3/watch", w->body, &w->headers) : NULL;
	if (!w->easy) {
		watch_close(e);
		return;
	}
	w->endpoint_epoch = e->endpoint_epoch;
	curl_easy_setopt(w->easy, CURLOPT_TIMEOUT_MS, 0L);
	curl_easy_setopt(w->easy, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(w->easy, CURLOPT_TCP_KEEPIDLE, 10L);
	curl_easy_setopt(w->easy, CURLOPT_TCP_KEEPINTVL, 5L);
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
	w->changes.next = revision;
	w->changes.returned = revision - 1;
	w->error = 0;
	w->wanted = w->key.data && w->end.data;
	return w->wanted ? 0 : -ENOMEM;
}

/* The transfer has ended; what it has brought may still be read. */
void watch_ended(struct etcd *e, CURLcode result)
{
	struct watch_stream *w = &e->watch;
	transfer_failed(e, w->endpoint_epoch, w->easy, result, &w->changes.in);
	watch_close(e);
}

/* The watch has failed: continues at another endpoint, or reports it. */
static void refused(struct etcd *e, int error)
{
	struct watch_stream *w = &e->watch;
	w->error = error == -ESTALE || error == -EACCES || error == -ENOMEM ? error : 0;
	if (error == -EKEYEXPIRED) {
		free(e->token);
		e->token = NULL;
	}
	if (!w->error)
		endpoint_failed(e, w->endpoint_epoch, error == -EPROTO ? error : -EAGAIN, "%s", w->changes.text);
	watch_close(e);
}

int etcd_change(struct etcd *e, struct etcd_kv *out, int64_t *revision)
{
	struct watch_stream *w = &e->watch;
	int rc = w->error ? 0 : changes_next(&w->changes, out);
	if (rc < 0)
		refused(e, rc);
	if (rc == 0 && w->paused && w->easy) {
		w->paused = false;
		curl_easy_pause(w->easy, CURLPAUSE_CONT);
	}
	*revision = w->changes.returned;
	return rc > 0 ? rc : w->error;
}
