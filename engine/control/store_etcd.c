/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A store in etcd that all clients share. Control thread of each member; the module libfarcall-etcd.so sends requests.
 *
 * Each client has a table of its own (store_table.h), which a watch of all keys keeps up to date, and which answers the
 * client's frames. One frame runs at a time. A frame that reads waits for a read of its key. A frame that writes is a
 * transaction, which is committed if the key is as the table has it; otherwise the table takes the key from the reply,
 * and the frame runs again. Changes of the watch wait meanwhile.
 *
 *   farcall/KEY     a key of the store; a held one has its holder's lease
 *   farcall-op/L    number of the last write of the client with lease L (hexadecimal). A transaction writes it, too: a
 *                   client that has lost the reply finds out whether it was committed
 *
 * A client's lease is its number, and it holds [GROUP]/client/L if it is a member. A lease that ran out while etcd
 * could not be reached is replaced, and the keys are held anew. As in a file (store_file.c), the first member of a
 * group without members deletes what an earlier one has left, and a group that is closed admits no more members.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"
#include "control/etcd_module.h"
#include "control/store_table.h"
#include "control/url.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX       "farcall/"
#define PREFIX_END   "farcall0"
#define LEASE_S      15                   /* longer than etcd may be stopped without a lease that runs out */
#define KEEP_NS      UINT64_C(2000000000) /* between keep-alives */
#define LOOK_NS      UINT64_C(5000000000) /* between looks at another client's lease */
#define LOOK_S       3                    /* a lease that lost more between two looks is not kept alive */
#define TIMEOUT_NS   UINT64_C(3000000000) /* of one attempt of a request */
#define CLOSED_NS    UINT64_C(200000000)  /* until a closed group is tried again */
#define LEAVE_MS     1000                 /* that the end of a client may block */
#define PAGE_KEYS    1000                 /* keys of one reply */
#define PASSWORD_MAX 256
#define KEY_BYTES    (sizeof PREFIX - 1 + FAR_STORE_KEY_MAX)

/** State of a key in etcd. A missing key stays until the watch has reached its revision. */
struct known {
	struct known *next;
	uint64_t hash;
	int64_t revision; /* of its last change; missing: at which it was */
	bool exists;
	uint64_t load; /* the last load that has found it */
	size_t key_len;
	uint8_t key[];
};

enum phase {
	PHASE_GRANT, /* no lease */
	PHASE_LOGIN, /* waits for the frame LOGIN, or for its transaction */
	PHASE_LOAD,  /* reads all keys */
	PHASE_READY,
	PHASE_REGRANT, /* the lease ran out */
	PHASE_REHOLD   /* holds its keys anew */
};

enum effect { EFFECT_NONE, EFFECT_PUT, EFFECT_DELETE };

struct etcd_store {
	struct store_stream base;
	struct ctl_net *net;
	const struct etcd_ops *ops;
	struct etcd *etcd;
	enum phase phase;
	bool asked;   /* a request of the frame, or of the phase, is under way */
	bool keeping; /* a keep-alive is under way */
	bool was_ready, left;
	bool fresh;         /* the key of the first frame was read since it came */
	bool members_exist; /* the first transaction of a login found members */
	int error;          /* -errno that ends the attempt; 0: none */
	int64_t lease, old_lease;
	uint64_t now, keep_at, look_at, retry_at;
	bool looked;        /* at the lease that holds the key of the first frame */
	int64_t looked_ttl; /* seconds, then */
	uint64_t op;        /* number of the last write */
	enum effect effect; /* of the first frame's transaction */
	int64_t put_lease;
	uint64_t load;
	int64_t load_revision;
	struct store_table table;
	struct known *known;
	struct kv *scratch;    /* where frames are tried */
	struct send_buffer in; /* frames that are not run yet */
	struct store_identity who;
	int64_t page; /* revision from which the next page has keys; 0: none was read */
	char endpoints[URL_PATH_MAX];
	char text[FAR_ERR_TEXT_MAX]; /* why the attempt ended */
};

/* A key as etcd has it, in memory of the caller. */
struct name {
	size_t len;
	uint8_t data[2 * FAR_STORE_KEY_MAX];
};

static struct kv_bytes name_key(struct name *n, struct kv_bytes key)
{
	n->len = sizeof PREFIX - 1 + key.len;
	memcpy(n->data, PREFIX, sizeof PREFIX - 1);
	memcpy(n->data + sizeof PREFIX - 1, key.data, key.len);
	return (struct kv_bytes){n->data, n->len};
}

__attribute__((format(printf, 2, 3))) static struct kv_bytes name_print(struct name *n, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	n->len = (size_t)vsnprintf((char *)n->data, sizeof n->data, format, args);
	va_end(args);
	return (struct kv_bytes){n->data, n->len};
}

static bool is_equal(struct kv_bytes a, struct kv_bytes b)
{
	return a.len == b.len && (!a.len || memcmp(a.data, b.data, a.len) == 0);
}

static void fail(struct etcd_store *s, int error, const char *text)
{
	s->error = error;
	snprintf(s->text, sizeof s->text, "%s", text);
}

/* ---- known keys ---- */

static struct known **known_find(struct etcd_store *s, struct kv_bytes key)
{
	uint64_t hash = hash64(key.data, key.len);
	struct known **at = &s->known;
	while (*at && !((*at)->hash == hash && (*at)->key_len == key.len && memcmp((*at)->key, key.data, key.len) == 0))
		at = &(*at)->next;
	return at;
}

static int known_set(struct etcd_store *s, struct kv_bytes key, int64_t revision, bool exists)
{
	struct known **at = known_find(s, key);
	if (!*at) {
		*at = calloc(1, sizeof **at + key.len);
		if (!*at)
			return -ENOMEM;
		(*at)->hash = hash64(key.data, key.len);
		(*at)->key_len = key.len;
		memcpy((*at)->key, key.data, key.len);
	}
	(*at)->revision = revision;
	(*at)->exists = exists;
	(*at)->load = s->load;
	return 0;
}

static void known_forget(struct etcd_store *s, int64_t upto)
{
	struct known **at = &s->known;
	while (*at) {
		struct known *k = *at;
		if (k->exists || k->revision > upto) {
			at = &k->next;
			continue;
		}
		*at = k->next;
		free(k);
	}
}

/* The key as etcd had it at `revision`; `kv` NULL: missing. 0 or -ENOMEM. */
static int key_apply(struct etcd_store *s, struct kv_bytes key, int64_t revision, const struct etcd_kv *kv)
{
	struct known *k = *known_find(s, key);
	if (k && k->revision >= revision) {
		k->load = s->load;
		return 0;
	}
	struct record r = {.kind = kv ? RECORD_VALUE : RECORD_DELETED,
			   .holder = kv ? (uint64_t)kv->lease : 0,
			   .key = key,
			   .value = kv ? kv->value : (struct kv_bytes){NULL, 0}};
	int rc = known_set(s, key, revision, kv != NULL);
	return rc ? rc : store_table_apply(&s->table, &r);
}

static int kv_apply(struct etcd_store *s, const struct etcd_kv *kv)
{
	size_t prefix = sizeof PREFIX - 1;
	if (kv->key.len <= prefix || kv->key.len > KEY_BYTES || kv->value.len > FAR_STORE_VALUE_MAX)
		return 0; /* none of a store's */
	struct kv_bytes key = {kv->key.data + prefix, kv->key.len - prefix};
	return key_apply(s, key, kv->revision, kv->deleted ? NULL : kv);
}

static const struct etcd_kv *reply_find(const struct etcd_reply *r, struct kv_bytes key)
{
	for (size_t i = 0; i < r->kvs_n; i++)
		if (is_equal(r->kvs[i].key, key))
			return &r->kvs[i];
	return NULL;
}

/* True if the key is held by this client. */
static bool is_held(struct etcd_store *s, struct kv_bytes key)
{
	const struct held *h = *held_find(&s->table, key);
	return h &&
	       (h->holder == (uint64_t)s->lease || (s->phase >= PHASE_REGRANT && h->holder == (uint64_t)s->old_lease));
}

/* ---- requests ---- */

static void ask(struct etcd_store *s, int rc)
{
	s->asked = rc == 0;
	if (rc)
		fail(s, rc, "no memory for a request to etcd");
}

/* A reply that ends the attempt: true. */
static bool is_refused(struct etcd_store *s, const struct etcd_reply *r)
{
	if (r->error)
		fail(s, r->error,
		     r->error == -EACCES ? "etcd permits its user no access to keys that begin with \"" PREFIX
					   "\" and \"farcall-op/\"; grant its role both (etcdctl role "
					   "grant-permission --prefix)"
		     : r->error == -ENOSPC ? "etcd's space is used up; compact and defragment it, or raise "
					     "--quota-backend-bytes"
					   : "etcd refuses a request; use etcd 3.4 or later");
	return r->error != 0;
}

/* The lease ran out. Keys that were held anew meanwhile are lost again. */
static void lease_lose(struct etcd_store *s)
{
	if (s->phase == PHASE_READY)
		s->old_lease = s->lease;
	else if (s->phase != PHASE_REHOLD)
		return;
	for (struct held *h = s->table.held; h; h = h->next)
		if (h->holder == (uint64_t)s->lease)
			h->holder = (uint64_t)s->old_lease;
	s->phase = PHASE_REGRANT;
}

static void granted(void *user, const struct etcd_reply *r)
{
	struct etcd_store *s = user;
	s->asked = false;
	if (r->error != -EEXIST && is_refused(s, r)) /* repeated, or by another client in 2^62 */
		return;
	s->phase = s->phase == PHASE_GRANT ? PHASE_LOGIN : PHASE_REHOLD;
	s->keep_at = s->now + KEEP_NS;
}

static void grant(struct etcd_store *s)
{
	s->lease = (int64_t)(random_u64() >> 2 | 1);
	ask(s, s->ops->lease(s->etcd, ETCD_GRANT, s->lease, LEASE_S, granted, s));
}

static void kept(void *user, const struct etcd_reply *r)
{
	struct etcd_store *s = user;
	s->keeping = false;
	s->keep_at = s->now + KEEP_NS;
	if (r->error == -ENOENT || (!r->error && r->ttl_s <= 0))
		lease_lose(s);
}

static void keep(struct etcd_store *s)
{
	if (s->keeping || s->phase == PHASE_GRANT || s->phase == PHASE_REGRANT || s->now < s->keep_at)
		return;
	s->keeping = s->ops->lease(s->etcd, ETCD_KEEP, s->lease, 0, kept, s) == 0;
	s->keep_at = s->now + KEEP_NS;
}

/* ---- all keys ---- */

static int load_end(struct etcd_store *s)
{
	const struct etcd_range all = {{(const uint8_t *)PREFIX, sizeof PREFIX - 1},
				       {(const uint8_t *)PREFIX_END, sizeof PREFIX_END - 1}};
	int rc = 0;
	bool lost = false;
	for (struct known *k = s->known; k && !rc; k = k->next) {
		struct kv_bytes key = {k->key, k->key_len};
		if (!k->exists || k->load == s->load || k->revision >= s->load_revision)
			continue;
		if (is_held(s, key))
			lost = true;
		else
			rc = key_apply(s, key, s->load_revision, NULL);
	}
	s->phase = PHASE_READY;
	s->was_ready = true;
	if (lost)
		lease_lose(s);
	return rc ? rc : s->ops->watch(s->etcd, &all, s->load_revision + 1);
}

static void loaded(void *user, const struct etcd_reply *r)
{
	struct etcd_store *s = user;
	int rc = 0;
	s->asked = false;
	if (r->error == -ESTALE) { /* compacted meanwhile: from the beginning */
		s->page = 0;
		return;
	}
	if (is_refused(s, r))
		return;
	if (!s->load_revision)
		s->load_revision = r->revision;
	for (size_t i = 0; i < r->kvs_n && !rc; i++)
		rc = kv_apply(s, &r->kvs[i]);
	/* No revision has changed two keys but by deletion. */
	if (!rc && r->more && r->kvs_n) {
		s->page = r->kvs[r->kvs_n - 1].revision + 1;
	} else if (!rc) {
		rc = load_end(s);
	}
	if (rc)
		fail(s, rc, "no memory for the keys in etcd");
}

static void load(struct etcd_store *s)
{
	if (!s->page) {
		s->load++;
		s->load_revision = 0;
	}
	struct etcd_txn t = {.then = {{.kind = ETCD_GET,
				       .of = {{(const uint8_t *)PREFIX, sizeof PREFIX - 1},
					      {(const uint8_t *)PREFIX_END, sizeof PREFIX_END - 1}},
				       .revision_min = s->page,
				       .revision = s->load_revision,
				       .limit = PAGE_KEYS}},
			     .then_n = 1};
	ask(s, s->ops->txn(s->etcd, &t, loaded, s));
}

/* ---- changes by other clients ---- */

static void changes_take(struct etcd_store *s, bool *busy)
{
	struct etcd_kv kv;
	int64_t upto = 0;
	int rc = 0;
	bool any = false;
	while (!s->asked && s->phase == PHASE_READY && (rc = s->ops->change(s->etcd, &kv, &upto)) > 0) {
		struct kv_bytes key = {kv.key.data + sizeof PREFIX - 1, kv.key.len - (sizeof PREFIX - 1)};
		any = *busy = true;
		const struct known *k = kv.deleted ? *known_find(s, key) : NULL;
		if (k && k->revision < kv.revision && is_held(s, key))
			lease_lose(s); /* the key is held anew */
		else if (kv_apply(s, &kv))
			fail(s, -ENOMEM, "no memory for the keys in etcd");
	}
	if (any)
		known_forget(s, upto);
	if (rc == -ESTALE) {
		s->page = 0;
		s->phase = PHASE_LOAD;
	} else if (rc < 0) {
		is_refused(s, &(struct etcd_reply){.error = rc});
	}
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
	s->asked = false;
	if (r->error == -ENOENT)
		lease_lose(s);
	if (r->error == -ENOENT || is_refused(s, r) || !h)
		return;
	struct kv_bytes key = {h->key, h->key_len};
	const struct etcd_kv *kv = r->succeeded ? NULL : reply_find(r, name_key(&n, key));
	if (!r->succeeded && (!kv || kv->lease != s->lease)) {
		fail(s, -ESTALE, "its lease in etcd ran out, and another process has taken its rank meanwhile");
		return;
	}
	h->holder = (uint64_t)s->lease;
	if (known_set(s, key, kv ? kv->revision : r->revision, true))
		fail(s, -ENOMEM, "no memory for the keys in etcd");
}

static void rehold(struct etcd_store *s)
{
	struct held *h = held_before(s);
	struct kv_bytes key, value = {NULL, 0};
	struct name n;
	if (!h) {
		s->phase = PHASE_READY;
		return;
	}
	key = (struct kv_bytes){h->key, h->key_len};
	kv_get(s->table.server->kv, key, &value);
	struct etcd_range of = {.key = name_key(&n, key)};
	struct etcd_txn t = {.compares = {{of, ETCD_MODIFIED, false, 0}},
			     .compares_n = 1,
			     .then = {{.kind = ETCD_PUT, .of = of, .value = value, .lease = s->lease}},
			     .then_n = 1,
			     .otherwise = {{.kind = ETCD_GET, .of = of}},
			     .otherwise_n = 1};
	ask(s, s->ops->txn(s->etcd, &t, reheld, s));
}

/* ---- login ---- */

/* The ranges of a group's keys in etcd. */
struct group_names {
	struct name first, client, after, end, self, closed;
	struct etcd_range before_clients, clients, after_clients, all;
};

static void group_names(const struct etcd_store *s, struct group_names *g)
{
	const char *group = s->who.group;
	struct kv_bytes first = name_print(&g->first, PREFIX "%s/", group);
	struct kv_bytes client = name_print(&g->client, PREFIX "%s/client/", group);
	struct kv_bytes after = name_print(&g->after, PREFIX "%s/client0", group);
	struct kv_bytes end = name_print(&g->end, PREFIX "%s0", group);
	name_print(&g->self, PREFIX "%s/client/%016" PRIx64, group, (uint64_t)s->lease);
	name_print(&g->closed, PREFIX "%s/closed", group);
	g->before_clients = (struct etcd_range){first, client};
	g->clients = (struct etcd_range){client, after};
	g->after_clients = (struct etcd_range){after, end};
	g->all = (struct etcd_range){first, end};
}

static struct etcd_range of_name(const struct name *n)
{
	return (struct etcd_range){.key = {n->data, n->len}};
}

static void logged_in(void *user, const struct etcd_reply *r)
{
	struct etcd_store *s = user;
	struct group_names g;
	s->asked = false;
	if (r->error == -ENOENT) {
		s->phase = PHASE_GRANT;
		return;
	}
	if (is_refused(s, r))
		return;
	group_names(s, &g);
	if (r->succeeded || reply_find(r, of_name(&g.self).key)) {
		s->phase = PHASE_LOAD;
		s->page = 0;
		return;
	}
	/* Members came or went between both transactions, or the group is closed. */
	bool closed = s->members_exist && reply_find(r, of_name(&g.closed).key);
	s->retry_at = closed ? s->now + CLOSED_NS : 0;
	if (closed)
		snprintf(s->text, sizeof s->text, "members of a former group \"%s\" are still there", s->who.group);
	s->members_exist = !s->members_exist;
}

/* Of a group without members: deletes what is left, and joins; else joins if the group is not closed. */
static void login(struct etcd_store *s)
{
	struct group_names g;
	group_names(s, &g);
	struct etcd_range self = of_name(&g.self), closed = of_name(&g.closed);
	struct etcd_op put = {.kind = ETCD_PUT, .of = self, .lease = s->lease};
	struct etcd_txn first = {.compares = {{g.clients, ETCD_CREATED, false, 0}},
				 .compares_n = 1,
				 .then = {{.kind = ETCD_DELETE, .of = g.before_clients},
					  {.kind = ETCD_DELETE, .of = g.after_clients},
					  put},
				 .then_n = 3,
				 .otherwise = {{.kind = ETCD_GET, .of = self}},
				 .otherwise_n = 1};
	struct etcd_txn next = {.compares = {{g.clients, ETCD_CREATED, true, 0}, {closed, ETCD_MODIFIED, false, 0}},
				.compares_n = 2,
				.then = {put},
				.then_n = 1,
				.otherwise = {{.kind = ETCD_GET, .of = self}, {.kind = ETCD_GET, .of = closed}},
				.otherwise_n = 2};
	ask(s, s->ops->txn(s->etcd, s->members_exist ? &next : &first, logged_in, s));
}

/* Runs LOGIN up to its answer. */
static void login_begin(struct etcd_store *s, const struct store_msg *m)
{
	struct store_auth greeting;
	s->who = (struct store_identity){.rank = STORE_RANK_NONE};
	if (m->value_len && store_login_read(m->value, m->value_len, &greeting, &s->who)) {
		fail(s, -EPROTO, "a malformed login");
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

/* ---- frames ---- */

/* The first frame, which is complete; false: there is none. */
static bool frame_first(struct etcd_store *s, struct store_msg *m, size_t *len)
{
	long n = store_msg_decode(s->in.data + s->in.head, send_buffer_len(&s->in), m);
	if (n < 0)
		fail(s, (int)n, "a malformed frame");
	*len = n > 0 ? (size_t)n : 0;
	return n > 0;
}

static void frame_end(struct etcd_store *s, size_t len)
{
	send_buffer_skip(&s->in, len);
	s->fresh = false;
	s->looked = false;
	s->look_at = 0;
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
	size_t len;
	s->asked = false;
	if (is_refused(s, r) || !frame_first(s, &m, &len))
		return;
	s->fresh = true;
	if (r->kvs_n ? kv_apply(s, &r->kvs[0]) : key_apply(s, (struct kv_bytes){m.key, m.key_len}, r->revision, NULL))
		fail(s, -ENOMEM, "no memory for the keys in etcd");
}

static void refresh(struct etcd_store *s, struct kv_bytes key)
{
	struct name n;
	struct etcd_txn t = {.then = {{.kind = ETCD_GET, .of = {.key = name_key(&n, key)}}}, .then_n = 1};
	ask(s, s->ops->txn(s->etcd, &t, refreshed, s));
}

static void looked(void *user, const struct etcd_reply *r)
{
	struct etcd_store *s = user;
	struct store_msg m;
	size_t len;
	s->asked = false;
	if (!frame_first(s, &m, &len))
		return;
	bool gone = r->error || r->ttl_s <= 0; /* the watch will report that the key is deleted */
	/* A client that lives has kept its lease alive between two looks. */
	if (!gone && s->looked && r->ttl_s >= s->looked_ttl - LOOK_S) {
		frame_answer(s, len);
		return;
	}
	s->looked_ttl = r->ttl_s;
	s->looked = !gone;
	s->look_at = s->now + (gone ? CLOSED_NS : LOOK_NS);
}

static void commit_end(struct etcd_store *s, const struct store_msg *m, size_t len, int64_t revision)
{
	struct kv_bytes key = {m->key, m->key_len};
	bool put = s->effect == EFFECT_PUT;
	int rc = known_set(s, key, revision, put);
	if (!rc)
		rc = held_set(&s->table, key, put ? (uint64_t)s->put_lease : 0);
	frame_answer(s, len);
	if (rc)
		fail(s, rc, "no memory for the keys in etcd");
}

static void committed(void *user, const struct etcd_reply *r)
{
	struct etcd_store *s = user;
	struct store_msg m;
	struct name n, op_name, number;
	size_t len;
	s->asked = false;
	if (!frame_first(s, &m, &len))
		return;
	struct kv_bytes key = {m.key, m.key_len};
	if (r->error == -ENOENT) {
		lease_lose(s);
		return;
	}
	if (r->error == -ENOSPC || r->error == -EACCES) {
		frame_refuse(s, &m, len, r->error == -ENOSPC ? STORE_FULL : STORE_DENIED);
		return;
	}
	if (is_refused(s, r))
		return;
	name_print(&op_name, "farcall-op/%016" PRIx64, (uint64_t)s->lease);
	name_print(&number, "%" PRIu64, s->op);
	const struct etcd_kv *op = reply_find(r, of_name(&op_name).key), *kv = reply_find(r, name_key(&n, key));
	bool before = op && is_equal(op->value, of_name(&number).key);
	int rc = 0;
	if (r->succeeded || before)
		commit_end(s, &m, len, before ? op->revision : r->revision);
	else
		s->fresh = true;
	if (!r->succeeded) {
		struct kv_bytes plain = {n.data + sizeof PREFIX - 1, n.len - (sizeof PREFIX - 1)};
		rc = kv ? kv_apply(s, kv) : key_apply(s, plain, r->revision, NULL);
	}
	if (rc)
		fail(s, rc, "no memory for the keys in etcd");
}

static void commit(struct etcd_store *s, struct kv_bytes key, struct kv_bytes value)
{
	struct name n, op_name, number;
	const struct known *k = *known_find(s, key);
	struct etcd_range of = {.key = name_key(&n, key)};
	name_print(&op_name, "farcall-op/%016" PRIx64, (uint64_t)s->lease);
	name_print(&number, "%" PRIu64, ++s->op);
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
	ask(s, s->ops->txn(s->etcd, &t, committed, s));
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
		fail(s, rc, "no memory for a value in etcd");
	if (m->op == STORE_DELETE)
		return exists ? EFFECT_DELETE : EFFECT_NONE;
	return rc ? EFFECT_NONE : EFFECT_PUT;
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
	if ((!writes && (!reads || s->fresh)) || (writes && !owner_permits(server, &server->local, m))) {
		frame_answer(s, len);
		return;
	}
	const struct held *h = m->key_len ? *held_find(&s->table, key) : NULL;
	if (m->op == STORE_HOLD && exists && h && h->holder != (uint64_t)s->lease) {
		if (s->now >= s->look_at)
			ask(s, s->ops->lease(s->etcd, ETCD_TTL, (int64_t)h->holder, 0, looked, s));
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
	if (!s->asked && !s->error)
		frame_answer(s, len);
}

static void frames_run(struct etcd_store *s, bool *busy)
{
	struct store_msg m;
	size_t len;
	while (!s->asked && !s->error && send_buffer_len(&s->in) && frame_first(s, &m, &len)) {
		size_t before = send_buffer_len(&s->in);
		if (m.op == STORE_LOGIN && s->phase == PHASE_LOGIN)
			login_begin(s, &m);
		else if (s->phase == PHASE_READY)
			frame_run(s, &m, len);
		else
			return;
		*busy |= s->asked;
		if (send_buffer_len(&s->in) == before)
			return;
		*busy = true;
	}
}

/* ---- configuration ---- */

static const char *filled(const char *s)
{
	return s && *s ? s : NULL;
}

bool store_etcd_is_private(void)
{
	return filled(secure_getenv("FAR_ETCD_CA")) &&
	       (filled(secure_getenv("FAR_ETCD_USER")) || filled(secure_getenv("FAR_ETCD_CERT")));
}

/* The first line of the file. 0 or -errno, with s->text. */
static int password_read(struct etcd_store *s, char out[PASSWORD_MAX])
{
	const char *path = filled(secure_getenv("FAR_ETCD_PASSWORD_FILE"));
	struct stat st;
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1, error = errno;
	ssize_t n = fd >= 0 ? read(fd, out, PASSWORD_MAX - 1) : -1;
	bool open_to_others = fd >= 0 && (fstat(fd, &st) < 0 || (st.st_mode & 077));
	out[n > 0 ? n : 0] = 0;
	out[strcspn(out, "\r\n")] = 0;
	if (fd >= 0)
		close(fd);
	if (n > 0 && !open_to_others)
		return 0;
	if (!path)
		snprintf(s->text, sizeof s->text,
			 "FAR_ETCD_USER is set without a password; set FAR_ETCD_PASSWORD_FILE to a file that holds it");
	else
		snprintf(s->text, sizeof s->text, "FAR_ETCD_PASSWORD_FILE, %.200s, cannot be used: %s", path,
			 open_to_others ? "others can access it; chmod 600"
			 : n == 0       ? "it is empty; write the password to it"
					: strerror(error));
	return -EACCES;
}

/* ---- stream ---- */

static void attempt_end(struct store_stream *base)
{
	struct etcd_store *s = (struct etcd_store *)base;
	if (s->etcd)
		s->ops->destroy(s->etcd);
	s->etcd = NULL;
	store_table_free(&s->table);
	while (s->known) {
		struct known *next = s->known->next;
		free(s->known);
		s->known = next;
	}
	kv_destroy(s->scratch);
	s->scratch = NULL;
	send_buffer_fini(&s->in);
	s->asked = s->keeping = s->fresh = s->was_ready = s->members_exist = false;
	s->phase = PHASE_GRANT;
	s->page = 0;
	s->retry_at = s->look_at = 0;
	s->error = 0;
}

static int attempt_begin(struct store_stream *base)
{
	struct etcd_store *s = (struct etcd_store *)base;
	char password[PASSWORD_MAX];
	struct far_err err = {.status = FAR_OK};
	struct etcd_config config = {.endpoints = s->endpoints,
				     .user = filled(secure_getenv("FAR_ETCD_USER")),
				     .password = password,
				     .ca = filled(secure_getenv("FAR_ETCD_CA")),
				     .cert = filled(secure_getenv("FAR_ETCD_CERT")),
				     .key = filled(secure_getenv("FAR_ETCD_KEY")),
				     .request_timeout_ns = TIMEOUT_NS};
	s->text[0] = 0;
	s->ops = etcd_module_load(&err);
	if (!s->ops) {
		snprintf(s->text, sizeof s->text, "%s", err.text);
		return -ENOTSUP;
	}
	int rc = config.user ? password_read(s, password) : 0;
	if (rc)
		return rc;
	if (!config.user)
		config.password = NULL;
	s->etcd = s->ops->create(&config, &err);
	explicit_bzero(password, sizeof password);
	if (!s->etcd)
		snprintf(s->text, sizeof s->text, "%s", err.text);
	s->scratch = kv_create(1);
	rc = s->etcd && s->scratch ? store_table_begin(&s->table) : -ENOMEM;
	if (!rc)
		s->net->ops->watch(s->net, s->ops->fd(s->etcd));
	else
		attempt_end(base);
	return rc;
}

static void left(void *user, const struct etcd_reply *r)
{
	(void)r;
	((struct etcd_store *)user)->left = true;
}

/* Waits until the last request is answered, or LEAVE_MS in all have passed since `from`. */
static void leave_wait(struct etcd_store *s, uint64_t from, int rc)
{
	struct pollfd p = {.fd = s->ops->fd(s->etcd), .events = POLLIN};
	s->left = rc != 0;
	for (uint64_t now = from; !s->left && now - from < LEAVE_MS * UINT64_C(1000000);
	     now = clock_now(&clock_monotonic)) {
		bool busy = false;
		s->ops->step(s->etcd, now, &busy);
		if (!busy && !s->left)
			poll(&p, 1, 5);
	}
}

/* A client that ends deletes its keys, and the last one of a group all that the group has written. */
static void leave(struct etcd_store *s)
{
	struct group_names g;
	uint64_t from = clock_now(&clock_monotonic);
	group_names(s, &g);
	struct etcd_txn purge = {.compares = {{g.clients, ETCD_CREATED, false, 0}},
				 .compares_n = 1,
				 .then = {{.kind = ETCD_DELETE, .of = g.all}},
				 .then_n = 1};
	leave_wait(s, from, s->ops->lease(s->etcd, ETCD_REVOKE, s->lease, 0, left, s));
	if (s->left && s->who.group[0])
		leave_wait(s, from, s->ops->txn(s->etcd, &purge, left, s));
}

static void etcd_store_destroy(struct store_stream *base)
{
	struct etcd_store *s = (struct etcd_store *)base;
	if (s->etcd && s->phase != PHASE_GRANT && !s->error)
		leave(s);
	attempt_end(base);
	free(s);
}

static long etcd_send(struct store_stream *base, const void *data, size_t len)
{
	struct etcd_store *s = (struct etcd_store *)base;
	int rc = s->error ? s->error : send_buffer_put(&s->in, data, len);
	return rc == -ENOBUFS ? -EAGAIN : rc ? rc : (long)len;
}

static long etcd_recv(struct store_stream *base, void *data, size_t len)
{
	struct etcd_store *s = (struct etcd_store *)base;
	return s->error ? s->error : store_server_local_recv(s->table.server, data, len);
}

static void etcd_want(struct store_stream *base, bool write)
{
	(void)base;
	(void)write;
}

/* Before the client is connected, wrong settings end its attempt. */
static void trouble_check(struct etcd_store *s)
{
	const char *text;
	int rc = s->ops->trouble(s->etcd, &text);
	if (!s->was_ready && (rc == -EACCES || rc == -ENOTSUP || rc == -ENXIO))
		fail(s, rc, text);
}

static const char *etcd_why(const struct store_stream *base)
{
	const struct etcd_store *s = (const struct etcd_store *)base;
	const char *text = "";
	if (s->etcd && !s->error)
		s->ops->trouble(s->etcd, &text);
	return *text ? text : s->text;
}

static void phase_run(struct etcd_store *s, bool *busy)
{
	if (s->asked || s->error)
		return;
	if (s->phase == PHASE_GRANT || s->phase == PHASE_REGRANT)
		grant(s);
	else if (s->phase == PHASE_LOAD)
		load(s);
	else if (s->phase == PHASE_REHOLD)
		rehold(s);
	*busy |= s->asked;
}

static uint64_t etcd_store_step(struct store_stream *base, uint64_t now, bool *busy)
{
	struct etcd_store *s = (struct etcd_store *)base;
	if (s->error)
		return TIME_NEVER;
	s->now = now;
	uint64_t until = s->ops->step(s->etcd, now, busy);
	trouble_check(s);
	changes_take(s, busy);
	keep(s);
	phase_run(s, busy);
	frames_run(s, busy);
	uint64_t next = store_server_step(s->table.server, now, busy);
	*busy |= send_buffer_len(&s->table.server->local.tx) || s->error;
	until = next < until ? next : until;
	until = s->keep_at < until && s->keep_at > now ? s->keep_at : until;
	until = s->look_at < until && s->look_at > now ? s->look_at : until;
	return s->retry_at < until && s->retry_at > now ? s->retry_at : until;
}

struct store_stream *store_stream_etcd(struct ctl_net *net, const char *endpoints)
{
	static const struct store_stream_ops ops = {.open = attempt_begin,
						    .close = attempt_end,
						    .send = etcd_send,
						    .recv = etcd_recv,
						    .want = etcd_want,
						    .step = etcd_store_step,
						    .why = etcd_why,
						    .destroy = etcd_store_destroy};
	struct etcd_store *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->base.ops = &ops;
	s->net = net;
	snprintf(s->endpoints, sizeof s->endpoints, "%s", endpoints);
	return &s->base;
}
