/* SPDX-License-Identifier: BSD-3-Clause */
/** The connection of far_store_*() to a store: its thread, requests, errors. Application threads, and that thread. */
#include "api/store_access.h"
#include "base/error.h"
#include "base/random.h"
#include "base/signals.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert(FAR_STORE_KEY_BYTES + STORE_MARK_BYTES <= FAR_STORE_KEY_MAX, "a marked key is a key");
static_assert(FAR_STORE_VALUE_BYTES == FAR_STORE_VALUE_MAX, "the header's limit is the store's");

/* ---- connection ---- */

/* store_login.key: the present key. The thread of the access. */
static int key_provide(void *ctx, struct auth_key *out)
{
	struct access *a = ctx;
	enum far_status status = FAR_OK;
	if (a->key.kind == KEY_AUTO)
		status = key_auto_find(&a->key_location, &a->key.key, &a->key_err);
	*out = a->key.key;
	return status == FAR_PENDING ? -ENOKEY : status ? -EACCES : 0;
}

/* Creates the client, under the lock. 0 or -ENOMEM. */
static int client_begin(struct access *a)
{
	struct store_login login = {.who = {.rank = STORE_RANK_NONE},
				    .random = &random_kernel,
				    .key = a->url.scheme != URL_TCP || a->key.kind == KEY_NONE ? NULL : key_provide,
				    .ctx = a,
				    .patient = a->key.kind == KEY_AUTO};
	a->client = store_client_create(store_stream_of(a->net, &a->url));
	if (a->client)
		store_client_login(a->client, &login);
	return a->client ? 0 : -ENOMEM;
}

static void *access_main(void *arg)
{
	struct access *a = arg;
	pthread_mutex_lock(&a->lock);
	while (!a->stop) {
		bool busy = false;
		uint64_t now = clock_now(&clock_monotonic);
		uint64_t next = a->client ? store_client_step(a->client, now, &busy) : TIME_NEVER;
		if (busy)
			continue;
		pthread_mutex_unlock(&a->lock);
		a->net->ops->wait(a->net, next);
		pthread_mutex_lock(&a->lock);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

enum far_status access_start(struct access *a, struct far_err *err)
{
	sigset_t masked, before;
	a->net = ctl_net_os_create();
	if (!a->net)
		return err_sys(err, errno, "cannot make sockets for the store");
	if (a->url.scheme == URL_TCP && a->key.kind == KEY_AUTO)
		key_location(&a->key_location, a->url.host, a->url.port);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&a->ended, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&a->lock, NULL);
	int rc = client_begin(a) ? ENOMEM : 0;
	signals_thread_mask(&masked);
	pthread_sigmask(SIG_SETMASK, &masked, &before);
	if (!rc)
		rc = pthread_create(&a->thread, NULL, access_main, a);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!rc)
		return FAR_OK;
	store_client_destroy(a->client);
	pthread_cond_destroy(&a->ended);
	pthread_mutex_destroy(&a->lock);
	a->net->ops->destroy(a->net);
	auth_erase(&a->key, sizeof a->key);
	return err_sys(err, rc, "cannot start the store's thread");
}

void access_end(struct access *a)
{
	pthread_mutex_lock(&a->lock);
	a->stop = true;
	pthread_mutex_unlock(&a->lock);
	a->net->ops->wake(a->net);
	pthread_join(a->thread, NULL);
	store_client_destroy(a->client);
	pthread_cond_destroy(&a->ended);
	pthread_mutex_destroy(&a->lock);
	a->net->ops->destroy(a->net);
	auth_erase(&a->key, sizeof a->key);
}

/* ---- errors ---- */

static enum far_status connection_failed(const struct access *a, int error, const char *store, struct far_err *err)
{
	if (a->why[0])
		return err_set(err,
			       error == -EACCES    ? FAR_DENIED
			       : error == -ENOTSUP ? FAR_PROTOCOL
						   : FAR_UNREACHABLE,
			       "the store at %s: %s", store, a->why);
	switch (-error) {
	case ENOKEY:
		return err_set(err, FAR_DENIED,
			       "the store at %s has a key, which was not found here; give its key (key_file)", store);
	case EKEYREVOKED:
		return err_set(err, FAR_DENIED, "the store at %s has no key (security=none), and one was given", store);
	case EKEYREJECTED:
		return err_set(err, FAR_DENIED, "the store at %s has another key; give its key (key_file)", store);
	case EACCES:
	case EPERM:
		if (a->key_err.status)
			return err_set(err, a->key_err.status, "%s", a->key_err.text);
		return err_set(err, FAR_DENIED, "the store at %s: no access, or others can access it, too: %s", store,
			       strerror(-error));
	case ENOTSUP:
	case EPROTO:
	case EPROTONOSUPPORT:
		return err_set(err, FAR_PROTOCOL, "%s is no store of this version", store);
	case ENXIO:
	case ECONNREFUSED:
	case EHOSTUNREACH:
	case ENETUNREACH:
		return err_set(err, FAR_UNREACHABLE, "no store answers at %s: %s", store, strerror(-error));
	default:
		return err_sys(err, -error, "the store at %s cannot be used", store);
	}
}

enum far_status access_unanswered(const struct access *a, int result, int error, bool connected, struct far_err *err)
{
	char store[URL_TEXT_MAX];
	enum far_status status;
	url_text(&a->url, store);
	if (result == -ENOMEM || result == -ENOBUFS)
		return err_set(err, result == -ENOMEM ? FAR_RESOURCE : FAR_BUSY, "the store at %s: %s", store,
			       result == -ENOMEM ? "no memory" : "too many calls are pending; wait for some");
	if (result != -ETIMEDOUT && !connected)
		return connection_failed(a, result, store, err);
	if (result == -ETIMEDOUT && a->why[0])
		return err_set(err, FAR_TIMEOUT, "the store at %s did not answer in time: %s", store, a->why);
	if (result == -ETIMEDOUT && !connected && error)
		return err_set(err, error == -ENOKEY || error == -EKEYREJECTED ? FAR_DENIED : FAR_TIMEOUT,
			       "the store at %s did not answer in time: %s", store, strerror(-error));
	status = err_set(err, result == -ETIMEDOUT ? FAR_TIMEOUT : FAR_PEER_LOST, "the store at %s: %s", store,
			 result == -ETIMEDOUT ? "the deadline passed" : "the connection ended");
	if (err)
		err->executed = FAR_EXECUTED_MAYBE;
	return status;
}

/* ---- requests ---- */

void store_value_set(struct far_store_value *v, bool found, const struct store_msg *m)
{
	v->found = found;
	v->bytes = (uint32_t)m->value_len;
	if (m->value_len)
		memcpy(v->data, m->value, m->value_len);
}

/* store_done_fn of a request; the thread of the access, which has the lock. */
static void answered(void *user, int result, const struct store_msg *reply)
{
	struct request *r = user;
	r->done = true;
	r->result = result;
	if (!result) {
		r->status = reply->status;
		r->number = reply->number;
		if (r->value)
			store_value_set(r->value,
					reply->status == STORE_OK ||
						(reply->status == STORE_DIFFERS && reply->value_len),
					reply);
	}
	pthread_cond_broadcast(&r->access->ended);
}

static enum far_status status_of(const struct access *a, const struct request *r, struct far_err *err)
{
	char store[URL_TEXT_MAX];
	url_text(&a->url, store);
	switch (r->status) {
	case STORE_FULL:
		return err_set(err, FAR_RESOURCE, "the store at %s is full", store);
	case STORE_BAD:
		return err_set(err, FAR_INVALID, "the key holds no number, or the sum has no room in 64 bits");
	case STORE_DENIED:
		return err_set(err, FAR_DENIED, "the store at %s denies the change", store);
	case STORE_TIMEOUT:
		return err_set(err, FAR_TIMEOUT, "the key did not come in time");
	default:
		return FAR_OK;
	}
}

uint64_t store_deadline(uint64_t now, uint64_t timeout_ns)
{
	return timeout_ns == FAR_FOREVER ? TIME_NEVER : time_after(now, timeout_ns ? timeout_ns : FAR_STORE_TIMEOUT_NS);
}

enum far_status access_request(struct access *a, const struct store_msg *m, uint64_t timeout_ns, struct request *r,
			       struct far_err *err)
{
	uint64_t now = clock_now(&clock_monotonic);
	r->access = a;
	pthread_mutex_lock(&a->lock);
	if (!a->client || store_client_connection(a->client) == STORE_LOST) {
		store_client_destroy(a->client);
		client_begin(a);
	}
	int rc = a->client ? store_client_submit(a->client, m, now, store_deadline(now, timeout_ns), answered, r)
			   : -ENOMEM;
	a->net->ops->wake(a->net);
	while (!rc && !r->done)
		pthread_cond_wait(&a->ended, &a->lock);
	bool connected = a->client && store_client_was_connected(a->client);
	int error = a->client ? store_client_error(a->client) : 0;
	snprintf(a->why, sizeof a->why, "%s", a->client && (rc || r->result) ? store_client_why(a->client) : "");
	pthread_mutex_unlock(&a->lock);
	rc = rc ? rc : r->result;
	return rc ? access_unanswered(a, rc, error, connected, err) : status_of(a, r, err);
}

int store_key_mark(const char *key, bool prefix, char out[FAR_STORE_KEY_MAX + 1])
{
	size_t len = key ? strlen(key) : 0;
	if (!key || len > FAR_STORE_KEY_BYTES || (!len && !prefix))
		return -1;
	out[0] = '/';
	memcpy(out + 1, key, len);
	out[len + 1] = '/';
	return (int)len + (prefix ? 1 : STORE_MARK_BYTES);
}

enum far_status access_check(struct access *a, uint64_t timeout_ns, struct far_err *err)
{
	struct store_msg m = {.op = STORE_GET, .key = (const uint8_t *)"//", .key_len = 2};
	struct request r = {.value = NULL};
	return access_request(a, &m, timeout_ns, &r, err);
}
