/* SPDX-License-Identifier: BSD-3-Clause */
/* The lease of a client of etcd://: requests, keep-alive, login to a group, and holding keys anew. Control thread of
 * each member. */
#include "base/log.h"
#include "base/random.h"
#include "control/lease.h"
#include "control/store_etcd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define SECOND UINT64_C(1000000000)

/* ---- requests ---- */

void etcd_store_request(struct etcd_store *s, int rc)
{
	s->requested = rc == 0;
	if (rc)
		etcd_store_fail(s, rc, "no memory for a request to etcd");
}

/* A reply that ends the attempt: true. */
bool etcd_store_is_refused(struct etcd_store *s, const struct etcd_reply *r)
{
	if (r->error)
		etcd_store_fail(s, r->error,
				r->error == -EACCES
					? "etcd permits its user no access to keys that begin with \"" PREFIX
					  "\" and \"farcall-op/\"; grant its role both (etcdctl role "
					  "grant-permission --prefix)"
				: r->error == -ENOSPC ? "etcd's space is used up; compact and defragment it, or raise "
							"--quota-backend-bytes"
						      : "etcd refuses a request; use etcd 3.4 or later");
	return r->error != 0;
}

static uint64_t keep_interval(const struct etcd_store *s)
{
	return (uint64_t)s->lease_s * SECOND / KEEPS;
}

/* Shows the client how long it may serve: from the last renewal on, once all keys are held with this lease. */
static void lease_show(struct etcd_store *s)
{
	if (!s->base.lease_ns || s->phase == PHASE_NEW_LEASE || s->phase == PHASE_REHOLD)
		return;
	s->base.own_ns = lease_without_margin((uint64_t)s->lease_s * SECOND);
	s->base.kept_at = s->renewed_at;
	s->base.lost_at = 0;
}

/* The lease ran out. Keys that were held anew meanwhile are lost again. */
void etcd_store_lease_lose(struct etcd_store *s)
{
	if (s->phase == PHASE_READY)
		s->old_lease = s->lease;
	else if (s->phase != PHASE_REHOLD)
		return;
	log_line(FAR_LOG_WARNING,
		 "worker \"%s\": its lease in etcd has ended, of %d s, kept alive every %.3g s; it takes another one. "
		 "Give this "
		 "host and etcd more time on their CPUs, and etcd a faster disk",
		 s->who.name, (int)s->lease_s, (double)keep_interval(s) / (double)SECOND);
	for (struct held *h = s->table.held; h; h = h->next)
		if (h->holder == (uint64_t)s->lease)
			h->holder = (uint64_t)s->old_lease;
	s->knocked = 0; /* the knock has ended with the lease */
	s->phase = PHASE_NEW_LEASE;
	if (s->base.lease_ns && !s->base.lost_at)
		s->base.lost_at = s->now;
}

static void granted(void *user, const struct etcd_reply *r)
{
	struct etcd_store *s = user;
	s->requested = false;
	if (r->error != -EEXIST && etcd_store_is_refused(s, r)) /* repeated, or by another client in 2^62 */
		return;
	s->phase = s->phase == PHASE_GRANT ? PHASE_LOGIN : PHASE_REHOLD;
	s->login = LOGIN_FIRST;
	s->lease_s = r->ttl_s > s->lease_s ? r->ttl_s : s->lease_s;
	s->keep_at = s->now + keep_interval(s);
	s->renewed_at = s->renewing_at;
	lease_show(s);
}

void etcd_store_grant(struct etcd_store *s)
{
	s->lease = (int64_t)(random_u64() >> 2 | 1);
	uint64_t ns = s->base.lease_ns ? lease_with_margin(s->base.lease_ns) : LEASE_ETCD_NS;
	s->renewing_at = s->now;
	s->lease_s = (int64_t)((ns + SECOND - 1) / SECOND);
	etcd_store_request(s, s->ops->lease(s->etcd, ETCD_GRANT, s->lease, s->lease_s, granted, s));
}

static void kept(void *user, const struct etcd_reply *r)
{
	struct etcd_store *s = user;
	s->keeping = false;
	s->keep_at = s->now + keep_interval(s);
	if (r->error == -ENOENT || (!r->error && r->ttl_s <= 0)) {
		etcd_store_lease_lose(s);
	} else if (!r->error) {
		s->renewed_at = s->renewing_at;
		lease_show(s);
	}
}

void etcd_store_keep(struct etcd_store *s)
{
	if (s->keeping || s->phase == PHASE_GRANT || s->phase == PHASE_NEW_LEASE || s->now < s->keep_at)
		return;
	s->renewing_at = s->now;
	s->keeping = s->ops->lease(s->etcd, ETCD_KEEP, s->lease, 0, kept, s) == 0;
	s->keep_at = s->now + keep_interval(s);
}

/* ---- a lease that ran out ---- */

static struct held *held_before(struct etcd_store *s)
{
	struct held *h = s->table.held;
	while (h && h->holder != (uint64_t)s->old_lease)
		h = h->next;
	return h;
}

static void reheld(void *user, const struct etcd_reply *r)
{
	struct etcd_store *s = user;
	struct held *h = held_before(s);
	struct name n;
	s->requested = false;
	if (r->error == -ENOENT)
		etcd_store_lease_lose(s);
	if (r->error == -ENOENT || etcd_store_is_refused(s, r) || !h)
		return;
	struct kv_bytes key = {h->key, h->key_len};
	const struct etcd_kv *kv = r->succeeded ? NULL : etcd_store_reply_find(r, etcd_store_name_key(&n, key));
	if (!r->succeeded && (!kv || kv->lease != s->lease)) {
		etcd_store_fail(s, -ESTALE,
				"its lease in etcd ran out, and another process has taken its rank meanwhile");
		return;
	}
	h->holder = (uint64_t)s->lease;
	if (etcd_store_known_set(s, key, kv ? kv->revision : r->revision, true))
		etcd_store_fail(s, -ENOMEM, "no memory for the keys in etcd");
}

void etcd_store_rehold(struct etcd_store *s)
{
	struct held *h = held_before(s);
	struct kv_bytes key, value = {NULL, 0};
	struct name n;
	if (!h) {
		s->phase = PHASE_READY;
		lease_show(s);
		return;
	}
	key = (struct kv_bytes){h->key, h->key_len};
	kv_get(s->table.server->kv, key, &value);
	struct etcd_range of = {.key = etcd_store_name_key(&n, key)};
	struct etcd_txn t = {.compares = {{of, ETCD_MODIFIED, false, 0}},
			     .compares_n = 1,
			     .then = {{.kind = ETCD_PUT, .of = of, .value = value, .lease = s->lease}},
			     .then_n = 1,
			     .otherwise = {{.kind = ETCD_GET, .of = of}},
			     .otherwise_n = 1};
	etcd_store_request(s, s->ops->txn(s->etcd, &t, reheld, s));
}

/* ---- login ---- */

void etcd_store_group_names(const struct etcd_store *s, struct group_names *g)
{
	const char *group = s->who.group;
	struct kv_bytes first = etcd_store_name_print(&g->first, PREFIX "%s/", group);
	struct kv_bytes client = etcd_store_name_print(&g->client, PREFIX "%s/client/", group);
	struct kv_bytes after = etcd_store_name_print(&g->after, PREFIX "%s/client0", group);
	struct kv_bytes end = etcd_store_name_print(&g->end, PREFIX "%s0", group);
	etcd_store_name_print(&g->self, PREFIX "%s/client/%016" PRIx64, group, (uint64_t)s->lease);
	etcd_store_name_print(&g->closed, PREFIX "%s/closed", group);
	etcd_store_name_print(&g->rank, PREFIX "%s/rank/%d", group, s->who.rank);
	etcd_store_name_print(&g->info, PREFIX "%s/info/%d", group, s->who.rank);
	etcd_store_name_knock(s, &g->knock, 0);
	g->before_clients = (struct etcd_range){first, client};
	g->clients = (struct etcd_range){client, after};
	g->after_clients = (struct etcd_range){after, end};
	g->all = (struct etcd_range){first, end};
}

/* What the next transaction of the login is, after the one that did not admit this client. */
static enum login login_next(struct etcd_store *s, const struct etcd_reply *r, const struct group_names *g)
{
	bool closed = etcd_store_reply_find(r, of_name(&g->closed).key);
	bool before =
		etcd_store_reply_find(r, of_name(&g->rank).key) || etcd_store_reply_find(r, of_name(&g->info).key);
	bool unanswered = etcd_store_reply_find(r, of_name(&g->knock).key);
	bool members = r->kvs_n > (size_t)closed + unanswered; /* of LOGIN_ANSWER */
	s->retry_at = closed || unanswered ? s->now + AGAIN_NS : 0;
	if (closed)
		snprintf(s->text, sizeof s->text, "members of a former group \"%s\" are still there", s->who.group);
	else if (unanswered)
		snprintf(s->text, sizeof s->text,
			 "members of a former group \"%s\" do not answer; their leases end within %d s", s->who.group,
			 (int)s->lease_s);
	switch (s->login) {
	case LOGIN_FIRST:
		return LOGIN_NEXT;
	case LOGIN_NEXT:
		return before && !closed ? LOGIN_KNOCK : LOGIN_FIRST;
	case LOGIN_KNOCK:
		return r->succeeded ? LOGIN_ANSWER : LOGIN_FIRST;
	default:
		return members && !closed ? LOGIN_ANSWER : LOGIN_FIRST;
	}
}

static void logged_in(void *user, const struct etcd_reply *r)
{
	struct etcd_store *s = user;
	struct group_names g;
	s->requested = false;
	if (r->error == -ENOENT) {
		s->phase = PHASE_GRANT;
		return;
	}
	if (etcd_store_is_refused(s, r))
		return;
	etcd_store_group_names(s, &g);
	if ((r->succeeded && s->login != LOGIN_KNOCK) || etcd_store_reply_find(r, of_name(&g.self).key)) {
		s->phase = PHASE_LOAD;
		s->page = 0;
		return;
	}
	s->login = login_next(s, r, &g);
}

/* Of a group without members: deletes what is left, and joins. */
static struct etcd_txn login_first(const struct group_names *g, const struct etcd_op *put)
{
	return (struct etcd_txn){.compares = {{g->clients, ETCD_CREATED, false, 0}},
				 .compares_n = 1,
				 .then = {{.kind = ETCD_DELETE, .of = g->before_clients},
					  {.kind = ETCD_DELETE, .of = g->after_clients},
					  *put},
				 .then_n = 3,
				 .otherwise = {{.kind = ETCD_GET, .of = put->of}},
				 .otherwise_n = 1};
}

/* Of a group with members that is not closed: joins if none of the keys `a` and `b` is there. */
static struct etcd_txn login_next_to(const struct group_names *g, const struct etcd_op *put, const struct name *a,
				     const struct name *b)
{
	struct etcd_range closed = of_name(&g->closed), of_a = of_name(a), of_b = of_name(b);
	return (struct etcd_txn){.compares = {{g->clients, ETCD_CREATED, true, 0},
					      {closed, ETCD_MODIFIED, false, 0},
					      {of_a, ETCD_MODIFIED, false, 0},
					      {of_b, ETCD_MODIFIED, false, 0}},
				 .compares_n = 4,
				 .then = {*put},
				 .then_n = 1,
				 .otherwise = {{.kind = ETCD_GET, .of = put->of},
					       {.kind = ETCD_GET, .of = closed},
					       {.kind = ETCD_GET, .of = of_a},
					       {.kind = ETCD_GET, .of = of_b}},
				 .otherwise_n = 4};
}

static void login(struct etcd_store *s)
{
	struct group_names g;
	struct etcd_txn t;
	etcd_store_group_names(s, &g);
	struct etcd_op put = {.kind = ETCD_PUT, .of = of_name(&g.self), .lease = s->lease};
	if (s->login == LOGIN_FIRST) {
		t = login_first(&g, &put);
	} else if (s->login == LOGIN_NEXT) {
		t = login_next_to(&g, &put, &g.rank, &g.info);
	} else if (s->login == LOGIN_KNOCK) {
		put.of = of_name(&g.knock);
		t = (struct etcd_txn){
			.compares = {{g.clients, ETCD_CREATED, true, 0}}, .compares_n = 1, .then = {put}, .then_n = 1};
	} else {
		t = login_next_to(&g, &put, &g.knock, &g.knock);
		t.compares_n = 3;
		t.otherwise[3] = (struct etcd_op){.kind = ETCD_GET, .of = g.clients, .limit = 1};
	}
	etcd_store_request(s, s->ops->txn(s->etcd, &t, logged_in, s));
}

/* Runs LOGIN up to its answer. */
void etcd_store_login_begin(struct etcd_store *s, const struct store_msg *m)
{
	struct store_auth greeting;
	s->who = (struct store_identity){.rank = STORE_RANK_NONE};
	if (m->value_len && store_login_read(m->value, m->value_len, &greeting, &s->who)) {
		etcd_store_fail(s, -EPROTO, "a malformed login");
		return;
	}
	if (s->who.rank == STORE_RANK_NONE) {
		s->who.group[0] = 0;
		s->phase = PHASE_LOAD;
		s->page = 0;
	} else if (s->now >= s->retry_at) {
		login(s);
	}
}
