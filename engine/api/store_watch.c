/* SPDX-License-Identifier: BSD-3-Clause */
/** far_store_watch*(): changes of the application's keys in a store. Application threads; each watch has a connection
 * and a thread of its own. */
#include "api/store_access.h"
#include "base/error.h"
#include "control/kv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct far_store_watcher {
	struct access access;
	struct kv *changes; /* keys that have changed; locked as `access` */
	uint64_t read;      /* number of the last change that was returned */
	int error;          /* -errno that ended the watch; 0: none */
	bool begun;         /* the store has answered */
	size_t key_len_min; /* bytes of the prefix: "/w/" is the key "w", and no key that begins with "w/" */
};

/* store_done_fn of the watch; the thread of the access, which has the lock. */
static void changed(void *user, int result, const struct store_msg *reply)
{
	struct far_store_watcher *w = user;
	bool first = !w->begun;
	w->begun = true;
	pthread_cond_broadcast(&w->access.ended);
	if (result || (reply->status != STORE_OK && reply->status != STORE_MISSING)) {
		w->error = result ? result : -ENOSPC;
		return;
	}
	size_t len = reply->key_len;
	if (first || len <= STORE_MARK_BYTES || len - STORE_MARK_BYTES > FAR_STORE_KEY_BYTES ||
	    len - STORE_MARK_BYTES < w->key_len_min || reply->key[len - 1] != '/')
		return;
	struct kv_bytes key = {reply->key + 1, len - STORE_MARK_BYTES}, value = {reply->value, reply->value_len};
	/* A key that came and went between two reports is reported as deleted. */
	int rc = reply->status == STORE_OK ? kv_set(w->changes, key, value) : kv_delete(w->changes, key);
	if (rc && rc != -ENOENT)
		w->error = rc;
}

static enum far_status watch_start(struct far_store_watcher *w, const char *prefix, uint64_t timeout_ns,
				   struct far_err *err)
{
	struct access *a = &w->access;
	char marked[FAR_STORE_KEY_MAX + 1];
	struct store_msg m = {.op = STORE_WATCH,
			      .key = (const uint8_t *)marked,
			      .key_len = (size_t)store_key_mark(prefix, true, marked)};
	enum far_status status = access_check(a, timeout_ns, err);
	if (status)
		return status;
	pthread_mutex_lock(&a->lock);
	w->error = store_client_submit(a->client, &m, clock_now(&clock_monotonic), TIME_NEVER, changed, w);
	a->net->ops->wake(a->net);
	while (!w->error && !w->begun)
		pthread_cond_wait(&a->ended, &a->lock);
	int error = w->error;
	pthread_mutex_unlock(&a->lock);
	return error ? access_unanswered(a, error, error, true, err) : FAR_OK;
}

enum far_status far_store_watch(struct far_store *store, const char *prefix, uint64_t timeout_ns,
				struct far_store_watcher **watch, struct far_err *err)
{
	char marked[FAR_STORE_KEY_MAX + 1];
	if (!store || !watch || store_key_mark(prefix, true, marked) < 0)
		return err_set(err, FAR_INVALID,
			       "the store, the prefix or the place for the watch is NULL, or the prefix "
			       "has more than %d bytes",
			       FAR_STORE_KEY_BYTES);
	struct far_store_watcher *w = calloc(1, sizeof *w);
	if (w)
		w->changes = kv_create(FAR_STORE_KEYS_MAX + FAR_STORE_DELETED_MAX);
	if (!w || !w->changes) {
		free(w);
		return err_set(err, FAR_RESOURCE, "no memory for a watch");
	}
	kv_deleted_keep(w->changes, true);
	w->key_len_min = strlen(prefix);
	w->access.url = store->access.url;
	w->access.key = store->access.key;
	enum far_status status = access_start(&w->access, err);
	if (status) {
		kv_destroy(w->changes);
		free(w);
		return status;
	}
	status = watch_start(w, prefix, timeout_ns, err);
	if (status)
		far_store_watch_end(w);
	else
		*watch = w;
	return status;
}

/* Waits for a change until the absolute time; false: there is none. The caller has the lock. */
static bool change_wait(struct far_store_watcher *w, uint64_t deadline)
{
	struct access *a = &w->access;
	while (kv_changes(w->changes) == w->read && !w->error) {
		uint64_t now = clock_now(&clock_monotonic);
		struct timespec at = {.tv_sec = (time_t)(deadline / FAR_SEC), .tv_nsec = (long)(deadline % FAR_SEC)};
		if (now >= deadline)
			return false;
		if (deadline == TIME_NEVER)
			pthread_cond_wait(&a->ended, &a->lock);
		else
			pthread_cond_timedwait(&a->ended, &a->lock, &at);
	}
	return kv_changes(w->changes) != w->read;
}

static void change_take(struct far_store_watcher *w, struct far_store_change *out)
{
	struct kv_change c;
	kv_change_read(kv_changes_after(w->changes, w->read), &c);
	memcpy(out->key, c.key.data, c.key.len);
	out->key[c.key.len] = 0;
	store_value_set(&out->value, !c.deleted, &(struct store_msg){.value = c.value.data, .value_len = c.value.len});
	w->read = c.number;
	if (c.deleted)
		kv_deleted_forget(w->changes, c.number);
}

enum far_status far_store_watch_next(struct far_store_watcher *watch, uint64_t timeout_ns,
				     struct far_store_change *change, struct far_err *err)
{
	if (!watch || !change)
		return err_set(err, FAR_INVALID, "the watch or the place for the change is NULL");
	struct access *a = &watch->access;
	pthread_mutex_lock(&a->lock);
	bool is = change_wait(watch, store_deadline(clock_now(&clock_monotonic), timeout_ns));
	if (is)
		change_take(watch, change);
	int error = watch->error;
	pthread_mutex_unlock(&a->lock);
	if (is)
		return FAR_OK;
	if (!error)
		return err_set(err, FAR_TIMEOUT, "no key has changed in time");
	return err_set(err, FAR_PEER_LOST, "the watch has ended with its connection: %s; begin another one",
		       strerror(-error));
}

void far_store_watch_end(struct far_store_watcher *watch)
{
	if (!watch)
		return;
	access_end(&watch->access);
	kv_destroy(watch->changes);
	free(watch);
}
