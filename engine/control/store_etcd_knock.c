/* SPDX-License-Identifier: BSD-3-Clause */
/* Queries through etcd whether a client is alive, since its lease outlasts it, and answers such queries. Control thread
 * of each member. */
#include "control/store_etcd.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define HEX_DIGITS 16

struct kv_bytes etcd_store_name_knock(const struct etcd_store *s, struct name *n, int64_t holder)
{
	return etcd_store_name_print(n, PREFIX "%s/knock/%016" PRIx64 "/%016" PRIx64, s->who.group, (uint64_t)holder,
				     (uint64_t)s->lease);
}

/* ---- the client that queries ---- */

/* Its key in the store. */
static struct kv_bytes knock_key(const struct etcd_store *s, struct name *n, int64_t holder)
{
	struct kv_bytes all = etcd_store_name_knock(s, n, holder);
	return (struct kv_bytes){all.data + sizeof PREFIX - 1, all.len - (sizeof PREFIX - 1)};
}

static void knocked(void *user, const struct etcd_reply *r)
{
	struct etcd_store *s = user;
	struct store_msg m;
	struct name n;
	size_t len;
	s->requested = false;
	if (r->error == -ENOENT) {
		etcd_store_lease_lose(s);
		return;
	}
	if (etcd_store_is_refused(s, r) || !etcd_store_frame_first(s, &m, &len))
		return;
	/* As when it knocked: changes have waited. */
	const struct held *h = *store_held_find(&s->table, (struct kv_bytes){m.key, m.key_len});
	if (!h)
		return;
	s->knocked = (int64_t)h->holder;
	if (etcd_store_known_set(s, knock_key(s, &n, s->knocked), r->revision, true))
		etcd_store_fail(s, -ENOMEM, "no memory for the keys in etcd");
}

void etcd_store_knock(struct etcd_store *s, int64_t holder)
{
	struct name n;
	etcd_store_name_knock(s, &n, holder);
	struct etcd_txn t = {.then = {{.kind = ETCD_PUT, .of = of_name(&n), .lease = s->lease}}, .then_n = 1};
	etcd_store_request(s, s->ops->txn(s->etcd, &t, knocked, s));
}

bool etcd_store_knock_is_answered(struct etcd_store *s)
{
	struct name n;
	const struct known *k = *etcd_store_known_find(s, knock_key(s, &n, s->knocked));
	return !k || !k->exists;
}

/* ---- the client that is alive ---- */

static void answered(void *user, const struct etcd_reply *r)
{
	(void)user;
	(void)r; /* refused: the next one answers, or the lease ends */
}

void etcd_store_knock_answer(struct etcd_store *s, const struct etcd_kv *kv)
{
	struct name n, of[2];
	size_t holder = etcd_store_name_print(&n, PREFIX "%s/knock/", s->who.group).len + HEX_DIGITS;
	const struct etcd_txn t = {.then = {{.kind = ETCD_DELETE, .of = {.key = kv->key}}}, .then_n = 1};
	etcd_store_name_knock(s, &of[0], 0);
	etcd_store_name_knock(s, &of[1], s->lease);
	if (kv->deleted || kv->key.len != of[0].len ||
	    (memcmp(kv->key.data, of[0].data, holder) != 0 && memcmp(kv->key.data, of[1].data, holder) != 0))
		return;
	if (s->ops->txn(s->etcd, &t, answered, s))
		etcd_store_fail(s, -ENOMEM, "no memory for a request to etcd");
}
