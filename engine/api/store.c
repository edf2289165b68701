/* SPDX-License-Identifier: BSD-3-Clause */
/** far_store_*: keys and values of the application in a store; a free rank of a group. Application threads. */
#include "agent/agent.h"
#include "agent/init.h"
#include "api/store_access.h"
#include "base/error.h"
#include "base/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- open and close ---- */

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

static enum far_status request(struct far_store *store, struct store_msg *m, const char *key, uint64_t timeout_ns,
			       struct request *r, struct far_err *err)
{
	char marked[FAR_STORE_KEY_MAX + 1];
	int len = store_key_mark(key, false, marked);
	if (!store || len < 0)
		return err_set(err, FAR_INVALID, store ? "a key has 1 to %d bytes" : "the store is NULL",
			       FAR_STORE_KEY_BYTES);
	if (m->value_len > FAR_STORE_VALUE_BYTES || m->expected_len > FAR_STORE_VALUE_BYTES ||
	    (m->value_len && !m->value) || (m->expected_len && !m->expected))
		return err_set(err, FAR_INVALID, "a value has at most %d bytes, and is not NULL",
			       FAR_STORE_VALUE_BYTES);
	m->key = (const uint8_t *)marked;
	m->key_len = (size_t)len;
	return access_request(&store->access, m, timeout_ns, r, err);
}

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
		store_value_set(held, true, &m);
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
		*status = access_request(a, &m, timeout_ns, &request, err);
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
