/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs frames of a client of etcd://, one at a time: reads, transactions, contests of held keys. Control thread of each
 * member. */
#include "control/store_etcd.h"

#include <errno.h>
#include <inttypes.h>

/* ---- frames ---- */

/* The first frame, which is complete; false: there is none. */
bool etcd_store_frame_first(struct etcd_store *s, struct store_msg *m, size_t *len)
{
	long n = store_msg_decode(s->in.data + s->in.head, send_buffer_len(&s->in), m);
	if (n < 0)
		etcd_store_fail(s, (int)n, "a malformed frame");
	*len = n > 0 ? (size_t)n : 0;
	return n > 0;
}

static void frame_end(struct etcd_store *s, size_t len)
{
	send_buffer_skip(&s->in, len);
	s->fresh = false;
	s->knocked = 0;
}

static void frame_answer(struct etcd_store *s, size_t len)
{
	store_table_answer(&s->table, s->in.data + s->in.head, len, s->now);
	frame_end(s, len);
}

static void frame_refuse(struct etcd_store *s, const struct store_msg *m, size_t len, enum store_status status)
{
	struct kv_bytes none = {NULL, 0};
	store_reply(&s->table.server->local, m->op, m->id, status, none, none, 0);
	frame_end(s, len);
}

static void refreshed(void *user, const struct etcd_reply *r)
{
	struct etcd_store *s = user;
	struct store_msg m;
	struct name n;
	size_t len;
	s->requested = false;
	if (etcd_store_is_refused(s, r) || !etcd_store_frame_first(s, &m, &len))
		return;
	s->fresh = true;
	struct kv_bytes key = {m.key, m.key_len};
	const struct etcd_kv *kv = etcd_store_reply_find(r, etcd_store_name_key(&n, key));
	if (kv ? etcd_store_kv_apply(s, kv) : etcd_store_key_apply(s, key, r->revision, NULL))
		etcd_store_fail(s, -ENOMEM, "no memory for the keys in etcd");
}

static void refresh(struct etcd_store *s, struct kv_bytes key)
{
	struct name n;
	struct etcd_txn t = {.then = {{.kind = ETCD_GET, .of = {.key = etcd_store_name_key(&n, key)}}}, .then_n = 1};
	etcd_store_request(s, s->ops->txn(s->etcd, &t, refreshed, s));
}

static void commit_end(struct etcd_store *s, const struct store_msg *m, size_t len, int64_t revision)
{
	struct kv_bytes key = {m->key, m->key_len};
	bool put = s->effect == EFFECT_PUT;
	int rc = etcd_store_known_set(s, key, revision, put);
	if (!rc)
		rc = store_held_set(&s->table, key, put ? (uint64_t)s->put_lease : 0);
	frame_answer(s, len);
	if (rc)
		etcd_store_fail(s, rc, "no memory for the keys in etcd");
}

static void committed(void *user, const struct etcd_reply *r)
{
	struct etcd_store *s = user;
	struct store_msg m;
	struct name n, op_name, number;
	size_t len;
	s->requested = false;
	if (!etcd_store_frame_first(s, &m, &len))
		return;
	struct kv_bytes key = {m.key, m.key_len};
	if (r->error == -ENOENT) {
		etcd_store_lease_lose(s);
		return;
	}
	if (r->error == -ENOSPC || r->error == -EACCES) {
		frame_refuse(s, &m, len, r->error == -ENOSPC ? STORE_FULL : STORE_DENIED);
		return;
	}
	if (etcd_store_is_refused(s, r))
		return;
	etcd_store_name_print(&op_name, "farcall-op/%016" PRIx64, (uint64_t)s->lease);
	etcd_store_name_print(&number, "%" PRIu64, s->op);
	const struct etcd_kv *op = etcd_store_reply_find(r, of_name(&op_name).key),
			     *kv = etcd_store_reply_find(r, etcd_store_name_key(&n, key));
	bool before = op && etcd_store_is_equal(op->value, of_name(&number).key);
	int rc = 0;
	if (r->succeeded || before)
		commit_end(s, &m, len, before ? op->revision : r->revision);
	else
		s->fresh = true;
	if (!r->succeeded) {
		struct kv_bytes plain = {n.data + sizeof PREFIX - 1, n.len - (sizeof PREFIX - 1)};
		rc = kv ? etcd_store_kv_apply(s, kv) : etcd_store_key_apply(s, plain, r->revision, NULL);
	}
	if (rc)
		etcd_store_fail(s, rc, "no memory for the keys in etcd");
}

static void commit(struct etcd_store *s, struct kv_bytes key, struct kv_bytes value)
{
	struct name n, op_name, number;
	const struct known *k = *etcd_store_known_find(s, key);
	struct etcd_range of = {.key = etcd_store_name_key(&n, key)};
	etcd_store_name_print(&op_name, "farcall-op/%016" PRIx64, (uint64_t)s->lease);
	etcd_store_name_print(&number, "%" PRIu64, ++s->op);
	struct etcd_txn t = {
		.compares = {{of, ETCD_MODIFIED, false, k && k->exists ? k->revision : 0}},
		.compares_n = 1,
		.then = {{.kind = s->effect == EFFECT_PUT ? ETCD_PUT : ETCD_DELETE,
			  .of = of,
			  .value = value,
			  .lease = s->put_lease},
			 {.kind = ETCD_PUT, .of = of_name(&op_name), .value = of_name(&number).key, .lease = s->lease}},
		.then_n = 2,
		.otherwise = {{.kind = ETCD_GET, .of = of}, {.kind = ETCD_GET, .of = of_name(&op_name)}},
		.otherwise_n = 2};
	etcd_store_request(s, s->ops->txn(s->etcd, &t, committed, s));
}

/* What a frame changes, found by trying it on a table of one key. */
static enum effect effect_of(struct etcd_store *s, const struct store_msg *m, struct kv_bytes *value)
{
	struct kv_bytes key = {m->key, m->key_len}, now, held, given = {m->value, m->value_len};
	struct kv_bytes expected = {m->expected, m->expected_len};
	bool exists = kv_get(s->table.server->kv, key, &now) == 0;
	int64_t sum;
	int rc = -EINVAL;
	if (exists && kv_set(s->scratch, key, now))
		rc = -ENOMEM;
	else if (m->op == STORE_ADD)
		rc = kv_add(s->scratch, key, m->number, &sum);
	else if (m->op == STORE_CAS)
		rc = kv_cas(s->scratch, key, expected, given, &held);
	else if (m->op == STORE_SET ||
		 (m->op == STORE_HOLD && (!exists || hold_is_of(s->table.server, &s->table.server->local, key))))
		rc = kv_set(s->scratch, key, given);
	if (!rc)
		kv_get(s->scratch, key, value);
	if (rc == -ENOMEM)
		etcd_store_fail(s, rc, "no memory for a value in etcd");
	if (m->op == STORE_DELETE)
		return exists ? EFFECT_DELETE : EFFECT_NONE;
	return rc ? EFFECT_NONE : EFFECT_PUT;
}

/* ---- a holder whose process has ended ---- */

static void revoked(void *user, const struct etcd_reply *r)
{
	struct etcd_store *s = user;
	struct store_msg m;
	size_t len;
	s->requested = false;
	if (etcd_store_frame_first(s, &m, &len))
		frame_refuse(s, &m, len, r->error && r->error != -ENOENT ? STORE_DENIED : STORE_OK);
}

/* True if the frame reports that the process of another client has ended, and that client holds what it held then. */
static bool reports_end(const struct etcd_store *s, const struct store_msg *m, const struct held *h,
			struct kv_bytes value)
{
	return m->op == STORE_CAS && !m->value_len && m->expected_len && h && h->holder != (uint64_t)s->lease &&
	       etcd_store_is_equal(value, (struct kv_bytes){m->expected, m->expected_len});
}

/* Begins a frame, or answers it. */
static void frame_run(struct etcd_store *s, const struct store_msg *m, size_t len)
{
	struct store_server *server = s->table.server;
	struct kv_bytes key = {m->key, m->key_len}, value = {NULL, 0}, now;
	bool writes = m->op == STORE_SET || m->op == STORE_ADD || m->op == STORE_CAS || m->op == STORE_DELETE ||
		      m->op == STORE_HOLD;
	bool exists = m->key_len && kv_get(server->kv, key, &now) == 0;
	bool reads = m->op == STORE_GET || (m->op == STORE_WAIT && exists);
	const struct held *h = m->key_len ? *store_held_find(&s->table, key) : NULL;
	if (exists && reports_end(s, m, h, now)) {
		etcd_store_request(s, s->ops->lease(s->etcd, ETCD_REVOKE, (int64_t)h->holder, 0, revoked, s));
		return;
	}
	if ((!writes && (!reads || s->fresh)) || (writes && !owner_permits(server, &server->local, m))) {
		frame_answer(s, len);
		return;
	}
	if (m->op == STORE_HOLD && exists && h && h->holder != (uint64_t)s->lease) {
		if (m->number == STORE_HOLD_AT_ONCE &&
		    !etcd_store_is_equal(now, (struct kv_bytes){m->value, m->value_len}))
			frame_answer(s, len); /* not what this client held by its former lease */
		else if (s->knocked != (int64_t)h->holder)
			etcd_store_knock(s, (int64_t)h->holder);
		else if (etcd_store_knock_is_answered(s))
			frame_answer(s,
				     len); /* DIFFERS; else the watch will report that the holder's lease has ended */
		return;
	}
	s->effect = writes ? effect_of(s, m, &value) : EFFECT_NONE;
	s->put_lease = m->op == STORE_HOLD ? s->lease : h ? (int64_t)h->holder : 0;
	if (s->effect != EFFECT_NONE)
		commit(s, key, value);
	else if (!s->fresh)
		refresh(s, key);
	if (writes)
		kv_delete(s->scratch, key);
	if (!s->requested && !s->error)
		frame_answer(s, len);
}

void etcd_store_frames_run(struct etcd_store *s, bool *busy)
{
	struct store_msg m;
	size_t len;
	while (!s->requested && !s->error && send_buffer_len(&s->in) && etcd_store_frame_first(s, &m, &len)) {
		size_t before = send_buffer_len(&s->in);
		if (m.op == STORE_LOGIN && s->phase == PHASE_LOGIN)
			etcd_store_login_begin(s, &m);
		else if (s->phase == PHASE_READY)
			frame_run(s, &m, len);
		else
			return;
		*busy |= s->requested;
		if (send_buffer_len(&s->in) == before)
			return;
		*busy = true;
	}
}
