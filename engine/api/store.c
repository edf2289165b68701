/* SPDX-License-Identifier: BSD-3-Clause */
/** far_store_*: keys and values of the application in a store. Application threads; each open store and each watch has
 * a thread that steps its client, under a lock that the application threads take to submit a request. */
#include "control/store.h"
#include "agent/agent.h"
#include "agent/init.h"
#include "base/error.h"
#include "base/random.h"
#include "base/signals.h"
#include "control/key_auto.h"
#include "control/kv.h"
#include "control/url.h"

#include <assert.h>
#include <errno.h>
#include <farcall/store.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A key of the application is "/KEY/" in the store: no record of a group begins with '/', and no key that ends with one
 * is taken for a record of a rank. */
#define MARK_BYTES 2

static_assert(FAR_STORE_KEY_BYTES + MARK_BYTES <= FAR_STORE_KEY_MAX, "a marked key is a key");
static_assert(FAR_STORE_VALUE_BYTES == FAR_STORE_VALUE_MAX, "the header's limit is the store's");

/** A connection and its thread. */
struct access {
	struct url url;
	struct key_choice key;
	struct key_location key_location; /* KEY_AUTO */
	struct far_err key_err;           /* why the key cannot be read */
	struct ctl_net *net;
	pthread_t thread;
	pthread_mutex_t lock; /* protects the fields below */
	pthread_cond_t ended; /* a request has ended, or a watch has a change */
	struct store_client *client;
	char why[FAR_ERR_TEXT_MAX]; /* store_client_why() of the last request that failed */
	bool stop;
};

struct far_store {
	struct access access;
};

struct far_store_watcher {
	struct access access;
	struct kv *changes; /* keys, without marks, that have changed; locked as `access` */
	uint64_t read;      /* number of the last change that was returned */
	int error;          /* -errno that ended the watch; 0: none */
	bool begun;         /* the store has answered */
	size_t key_len_min; /* bytes of the prefix: "/w/" is the key "w", and no key that begins with "w/" */
};

/** A request of an application thread, on its stack. */
struct request {
	struct access *access;
	bool done;
	int result; /* of store_done_fn */
	enum store_status status;
	int64_t number;
	struct far_store_value *value; /* NULL: not wanted */
};

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

static enum far_status access_start(struct access *a, struct far_err *err)
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

static void access_end(struct access *a)
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

/* The status of a request that the store did not answer. `connected`: it was sent, or may have been. */
static enum far_status unanswered(const struct access *a, int result, int error, bool connected, struct far_err *err)
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

static void value_set(struct far_store_value *v, bool found, const struct store_msg *m)
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
			value_set(r->value,
				  reply->status == STORE_OK || (reply->status == STORE_DIFFERS && reply->value_len),
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

static uint64_t deadline_of(uint64_t now, uint64_t timeout_ns)
{
	return timeout_ns == FAR_FOREVER ? TIME_NEVER : time_after(now, timeout_ns ? timeout_ns : FAR_STORE_TIMEOUT_NS);
}

/* Submits a request and waits for its end. A lost connection is made anew first. */
static enum far_status request_run(struct access *a, const struct store_msg *m, uint64_t timeout_ns, struct request *r,
				   struct far_err *err)
{
	uint64_t now = clock_now(&clock_monotonic);
	r->access = a;
	pthread_mutex_lock(&a->lock);
	if (!a->client || store_client_connection(a->client) == STORE_LOST) {
		store_client_destroy(a->client);
		client_begin(a);
	}
	int rc =
		a->client ? store_client_submit(a->client, m, now, deadline_of(now, timeout_ns), answered, r) : -ENOMEM;
	a->net->ops->wake(a->net);
	while (!rc && !r->done)
		pthread_cond_wait(&a->ended, &a->lock);
	bool connected = a->client && store_client_was_connected(a->client);
	int error = a->client ? store_client_error(a->client) : 0;
	snprintf(a->why, sizeof a->why, "%s", a->client && (rc || r->result) ? store_client_why(a->client) : "");
	pthread_mutex_unlock(&a->lock);
	rc = rc ? rc : r->result;
	return rc ? unanswered(a, rc, error, connected, err) : status_of(a, r, err);
}

/* Marks a key; -1: too long, or empty where it must not be. */
static int key_mark(const char *key, bool prefix, char out[FAR_STORE_KEY_MAX + 1])
{
	size_t len = key ? strlen(key) : 0;
	if (!key || len > FAR_STORE_KEY_BYTES || (!len && !prefix))
		return -1;
	out[0] = '/';
	memcpy(out + 1, key, len);
	out[len + 1] = '/';
	return (int)len + (prefix ? 1 : MARK_BYTES);
}

static enum far_status request(struct far_store *store, struct store_msg *m, const char *key, uint64_t timeout_ns,
			       struct request *r, struct far_err *err)
{
	char marked[FAR_STORE_KEY_MAX + 1];
	int len = key_mark(key, false, marked);
	if (!store || len < 0)
		return err_set(err, FAR_INVALID, store ? "a key has 1 to %d bytes" : "the store is NULL",
			       FAR_STORE_KEY_BYTES);
	if (m->value_len > FAR_STORE_VALUE_BYTES || m->expected_len > FAR_STORE_VALUE_BYTES ||
	    (m->value_len && !m->value) || (m->expected_len && !m->expected))
		return err_set(err, FAR_INVALID, "a value has at most %d bytes, and is not NULL",
			       FAR_STORE_VALUE_BYTES);
	m->key = (const uint8_t *)marked;
	m->key_len = (size_t)len;
	return request_run(&store->access, m, timeout_ns, r, err);
}

/* ---- open and close ---- */

/* Waits for the first answer: an empty key of the application, which never exists. */
static enum far_status access_check(struct access *a, uint64_t timeout_ns, struct far_err *err)
{
	struct store_msg m = {.op = STORE_GET, .key = (const uint8_t *)"//", .key_len = 2};
	struct request r = {.value = NULL};
	return request_run(a, &m, timeout_ns, &r, err);
}

static enum far_status store_start(struct far_store *s, uint64_t timeout_ns, struct far_store **out,
				   struct far_err *err)
{
	enum far_status status = access_start(&s->access, err);
	if (status) {
		free(s);
		return status;
	}
	status = access_check(&s->access, timeout_ns, err);
	if (status)
		far_store_close(s);
	else
		*out = s;
	return status;
}

enum far_status far_store_open(const char *url, const struct far_store_opts *opts, uint64_t timeout_ns,
			       struct far_store **store, struct far_err *err)
{
	if (!store)
		return err_set(err, FAR_INVALID, "the place for the store is NULL");
	struct far_store *s = calloc(1, sizeof *s);
	if (!s)
		return err_set(err, FAR_RESOURCE, "no memory for a store");
	char address[URL_TEXT_MAX] = "env://";
	url = url ? url : getenv("FAR_INIT_METHOD");
	if (url) /* without rank and world size */
		snprintf(address, sizeof address, "%.*s", (int)strcspn(url, "?"), url);
	enum far_status status = url_parse(address, 0, 1, &s->access.url, err);
	if (!status)
		status = key_choose(opts ? opts->key_file : NULL, opts ? opts->security : NULL, true, &s->access.key,
				    err);
	if (status) {
		free(s);
		return status;
	}
	return store_start(s, timeout_ns, store, err);
}

enum far_status far_store_of(struct far_agent *agent, uint64_t timeout_ns, struct far_store **store,
			     struct far_err *err)
{
	if (!agent || !store)
		return err_set(err, agent ? FAR_INVALID : FAR_SHUTDOWN, "the %s is NULL", agent ? "place" : "agent");
	struct far_store *s = calloc(1, sizeof *s);
	if (!s)
		return err_set(err, FAR_RESOURCE, "no memory for a store");
	ctl_store(agent->ctl, &s->access.url, &s->access.key);
	return store_start(s, timeout_ns, store, err);
}

void far_store_close(struct far_store *store)
{
	if (!store)
		return;
	access_end(&store->access);
	free(store);
}

/* ---- operations ---- */

enum far_status far_store_set(struct far_store *store, const char *key, const void *value, size_t bytes,
			      uint64_t timeout_ns, struct far_err *err)
{
	struct store_msg m = {.op = STORE_SET, .value = value, .value_len = bytes};
	struct request r = {.value = NULL};
	return request(store, &m, key, timeout_ns, &r, err);
}

enum far_status far_store_get(struct far_store *store, const char *key, uint64_t timeout_ns,
			      struct far_store_value *value, struct far_err *err)
{
	struct store_msg m = {.op = STORE_GET};
	struct request r = {.value = value};
	if (!value)
		return err_set(err, FAR_INVALID, "the place for the value is NULL");
	return request(store, &m, key, timeout_ns, &r, err);
}

enum far_status far_store_wait(struct far_store *store, const char *key, uint64_t timeout_ns,
			       struct far_store_value *value, struct far_err *err)
{
	struct store_msg m = {.op = STORE_WAIT};
	struct request r = {.value = value};
	return request(store, &m, key, timeout_ns, &r, err);
}

enum far_status far_store_add(struct far_store *store, const char *key, int64_t addend, uint64_t timeout_ns,
			      int64_t *sum, struct far_err *err)
{
	struct store_msg m = {.op = STORE_ADD, .number = addend};
	struct request r = {.value = NULL};
	enum far_status status = request(store, &m, key, timeout_ns, &r, err);
	if (!status && sum)
		*sum = r.number;
	return status;
}

enum far_status far_store_compare_set(struct far_store *store, const char *key, const void *expected,
				      size_t expected_bytes, const void *value, size_t bytes, uint64_t timeout_ns,
				      int *set, struct far_store_value *held, struct far_err *err)
{
	struct store_msg m = {.op = STORE_CAS,
			      .value = value,
			      .value_len = bytes,
			      .expected = expected,
			      .expected_len = expected_bytes};
	struct request r = {.value = held};
	enum far_status status = request(store, &m, key, timeout_ns, &r, err);
	if (status)
		return status;
	if (set)
		*set = r.status == STORE_OK;
	if (held && r.status == STORE_OK)
		value_set(held, true, &m);
	return FAR_OK;
}

enum far_status far_store_delete(struct far_store *store, const char *key, uint64_t timeout_ns, int *deleted,
				 struct far_err *err)
{
	struct store_msg m = {.op = STORE_DELETE};
	struct request r = {.value = NULL};
	enum far_status status = request(store, &m, key, timeout_ns, &r, err);
	if (!status && deleted)
		*deleted = r.status == STORE_OK;
	return status;
}

/* ---- watches ---- */

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
	if (first || len <= MARK_BYTES || len - MARK_BYTES > FAR_STORE_KEY_BYTES || len - MARK_BYTES < w->key_len_min ||
	    reply->key[len - 1] != '/')
		return;
	struct kv_bytes key = {reply->key + 1, len - MARK_BYTES}, value = {reply->value, reply->value_len};
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
	struct store_msg m = {
		.op = STORE_WATCH, .key = (const uint8_t *)marked, .key_len = (size_t)key_mark(prefix, true, marked)};
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
	return error ? unanswered(a, error, error, true, err) : FAR_OK;
}

enum far_status far_store_watch(struct far_store *store, const char *prefix, uint64_t timeout_ns,
				struct far_store_watcher **watch, struct far_err *err)
{
	char marked[FAR_STORE_KEY_MAX + 1];
	if (!store || !watch || key_mark(prefix, true, marked) < 0)
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
	value_set(&out->value, !c.deleted, &(struct store_msg){.value = c.value.data, .value_len = c.value.len});
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
	bool is = change_wait(watch, deadline_of(clock_now(&clock_monotonic), timeout_ns));
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

/* ---- a free rank ---- */

/* Finds free rank number `skip`, or the last one before it, without a claim in the store; −1: there is none. */
static int rank_search(struct access *a, const char *group, uint64_t skip, uint64_t timeout_ns, enum far_status *status,
		       struct far_err *err)
{
	int found = -1;
	for (int r = a->url.scheme == URL_TCP; r < a->url.world; r++) {
		char key[FAR_STORE_KEY_MAX + 1];
		int len = snprintf(key, sizeof key, "%s/rank/%d", group, r);
		struct store_msg m = {.op = STORE_GET, .key = (const uint8_t *)key, .key_len = (size_t)len};
		struct request request = {.value = NULL};
		*status = request_run(a, &m, timeout_ns, &request, err);
		if (*status)
			return -1;
		if (request.status != STORE_MISSING)
			continue;
		found = r;
		if (skip-- == 0)
			break;
	}
	return found;
}

/* True if the store did not exist when this process tried first: it may have begun anew, and members write their
 * records again, for which they have FAR_STORE_REBUILD_NS. */
static bool has_begun_late(struct access *a)
{
	pthread_mutex_lock(&a->lock);
	bool refused = a->client && store_client_refused(a->client);
	pthread_mutex_unlock(&a->lock);
	return refused;
}

enum far_status store_free_rank(struct init *in)
{
	struct access a = {.key = in->key};
	unsigned max = in->opts.members_max ? in->opts.members_max : FAR_MEMBERS_MAX;
	if (in->env) /* it cannot wait */
		return FAR_OK;
	enum far_status status = url_parse(in->opts.init_method, in->rank, in->world, &a.url, in->err);
	if (!status)
		status = url_bound(&a.url, max, in->err);
	if (status || a.url.rank != RANK_OPEN)
		return status;
	status = access_start(&a, in->err);
	if (status)
		return status;
	unsigned among = in->tries < 4 ? in->tries : 4; /* of 16 at most, so that ranks stay small */
	uint64_t skip = random_u64() % (UINT64_C(1) << among);
	in->rank = rank_search(&a, in->opts.group, skip, in->opts.init_timeout_ns, &status, in->err);
	if (!status && has_begun_late(&a)) {
		nanosleep(&(struct timespec){.tv_nsec = FAR_STORE_REBUILD_NS}, NULL);
		in->rank = rank_search(&a, in->opts.group, skip, in->opts.init_timeout_ns, &status, in->err);
	}
	in->rank_was_open = true;
	if (!status && in->rank < 0)
		status = err_set(in->err, FAR_RESOURCE,
				 "group \"%s\" has all %u members that members_max permits; raise it for all of them",
				 in->opts.group, max);
	access_end(&a);
	return status;
}
