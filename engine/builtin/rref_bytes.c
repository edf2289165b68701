/* SPDX-License-Identifier: BSD-3-Clause */
/** References that were written as bytes, in a table under a lock (any thread); far::rref_claim, which gives one to the
 * worker that reads the bytes (shard thread). */
#include "builtin/rref_bytes.h"

#include "agent/agent.h"

#include <inttypes.h>
#include <stdlib.h>

#define BUCKETS 256u

struct kept {
	struct kept *next;
	struct far_buf *buf;   /* its memory */
	struct far_rref *rref; /* a reference */
	uint64_t number;
};

struct rref_keep {
	pthread_mutex_t lock;
	uint64_t given; /* numbers given, from 1 on */
	struct kept *at[BUCKETS];
};

struct rref_keep *rref_keep_create(void)
{
	struct rref_keep *k = calloc(1, sizeof *k);
	if (k)
		pthread_mutex_init(&k->lock, NULL);
	return k;
}

void rref_keep_destroy(struct rref_keep *k)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		while (k->at[i])
			far_rref_free(rref_keep_take(k, k->at[i]->number));
	pthread_mutex_destroy(&k->lock);
	free(k);
}

enum far_status rref_keep_put(struct rref_keep *k, struct far_rref *r, uint64_t *number)
{
	struct far_buf *buf = buf_alloc(sizeof(struct kept));
	if (!buf)
		return FAR_RESOURCE;
	struct kept *kept = buf_data(buf);
	pthread_mutex_lock(&k->lock);
	*number = ++k->given;
	struct kept **at = &k->at[*number % BUCKETS];
	*kept = (struct kept){.next = *at, .buf = buf, .rref = far_rref_ref(r), .number = *number};
	*at = kept;
	pthread_mutex_unlock(&k->lock);
	return FAR_OK;
}

struct far_rref *rref_keep_take(struct rref_keep *k, uint64_t number)
{
	struct far_rref *r = NULL;
	pthread_mutex_lock(&k->lock);
	struct kept **at = &k->at[number % BUCKETS], *kept;
	while ((kept = *at) && kept->number != number)
		at = &kept->next;
	if (kept) {
		r = kept->rref;
		*at = kept->next;
		buf_unref(kept->buf);
	}
	pthread_mutex_unlock(&k->lock);
	return r;
}

static enum far_status claim(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const struct far_agent *a = far_req_agent(req);
	struct far_rref *r = rref_keep_take(a->kept, (uint64_t)args[0].u.i);
	(void)n, (void)user;
	if (!r)
		return far_fail(req, FAR_GONE, 0,
				"worker \"%s\" keeps no reference under number %" PRId64
				": it was claimed or revoked already",
				a->name, args[0].u.i);
	enum far_status status = far_return_rref(req, r);
	far_rref_free(r);
	return status;
}

const struct far_function rref_claim_function = {"far::rref_claim(int number) -> rref", FAR_KIND_INLINE, claim, NULL};
