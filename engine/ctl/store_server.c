/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/hash.h"
#include "ctl/store_conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ACCEPTS_MAX   64                 /* of one step, so that clients are served while more come */
#define READS_MAX     16                 /* of one client in one step, likewise */
#define ACCEPT_REST   UINT64_C(50000000) /* after accept failed for want of descriptors */
#define HANDLE_LOCAL  (-1)               /* the client in this process */
#define LISTENER_NONE (-1)

struct store_server *store_server_create(struct ctl_net *net, int listener)
{
	struct store_server *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->kv = kv_create(FAR_STORE_KEYS_MAX);
	if (!s->kv) {
		free(s);
		return NULL;
	}
	s->net = net;
	s->listener = listener;
	s->accept_again = TIME_NEVER;
	s->waits_until = TIME_NEVER;
	s->local.handle = HANDLE_LOCAL;
	return s;
}

static void waits_forget(struct store_server *s, const struct conn *c)
{
	for (size_t b = 0; c->waits && b < STORE_WAIT_BUCKETS; b++) {
		struct wait **at = &s->waits[b];
		while (*at) {
			struct wait *w = *at;
			if (w->conn != c) {
				at = &w->next;
				continue;
			}
			*at = w->next;
			free(w);
			s->waits_n--;
		}
	}
	if (!s->waits_n)
		s->waits_until = TIME_NEVER;
}

static void conn_drop(struct store_server *s, unsigned i, enum store_drop reason)
{
	struct conn *c = s->conns[i];
	s->drops[reason]++;
	waits_forget(s, c);
	watches_forget(s, c);
	holds_release(s, c);
	s->net->ops->close(s->net, c->handle);
	outbox_fini(&c->tx);
	free(c);
	s->conns[i] = s->conns[--s->conns_n];
}

void store_server_shut(struct store_server *s)
{
	if (s->listener != LISTENER_NONE)
		s->net->ops->close(s->net, s->listener);
	s->listener = LISTENER_NONE;
	s->accept_again = TIME_NEVER;
	s->shut = true;
	for (unsigned i = s->conns_n; i-- > 0;) {
		if (!s->conns[i]->greeted)
			conn_drop(s, i, STORE_DROP_SHUT);
	}
}

void store_server_destroy(struct store_server *s)
{
	if (!s)
		return;
	store_server_shut(s);
	while (s->conns_n)
		conn_drop(s, s->conns_n - 1, STORE_DROP_SHUT);
	waits_forget(s, &s->local);
	watches_forget(s, &s->local);
	holds_release(s, &s->local);
	outbox_fini(&s->local.tx);
	kv_destroy(s->kv);
	free(s);
}

unsigned store_server_clients(const struct store_server *s)
{
	return s->conns_n;
}

uint64_t store_server_drops(const struct store_server *s, enum store_drop reason)
{
	return s->drops[reason];
}

int store_reply(struct conn *c, enum store_op op, uint64_t id, enum store_status status, struct kv_bytes key,
		struct kv_bytes value, int64_t number)
{
	struct store_msg m = {.op = op,
			      .reply = true,
			      .status = status,
			      .id = id,
			      .number = number,
			      .key = key.data,
			      .key_len = key.len,
			      .value = value.data,
			      .value_len = value.len};
	uint8_t frame[STORE_FRAME_MAX];
	return outbox_put(&c->tx, frame, store_msg_encode(&m, frame));
}

static int conn_reply(struct conn *c, enum store_op op, uint64_t id, enum store_status status, struct kv_bytes value,
		      int64_t number)
{
	return store_reply(c, op, id, status, (struct kv_bytes){0}, value, number);
}

/* Answers whoever waits for a key that exists now. A reply that finds no room ends with the client's own deadline. */
void store_written(struct store_server *s, struct kv_bytes key)
{
	uint64_t hash = hash64(key.data, key.len);
	struct wait **at = &s->waits[hash % STORE_WAIT_BUCKETS];
	struct kv_bytes value;
	if (!*at || kv_get(s->kv, key, &value))
		return;
	while (*at) {
		struct wait *w = *at;
		if (w->hash != hash || w->key_len != key.len || memcmp(w->key, key.data, key.len)) {
			at = &w->next;
			continue;
		}
		conn_reply(w->conn, STORE_WAIT, w->id, STORE_OK, value, 0);
		w->conn->waits--;
		*at = w->next;
		free(w);
		s->waits_n--;
	}
	if (!s->waits_n)
		s->waits_until = TIME_NEVER;
}

static void waits_expire(struct store_server *s, uint64_t now, bool *busy)
{
	if (now < s->waits_until)
		return;
	s->waits_until = TIME_NEVER;
	for (size_t b = 0; b < STORE_WAIT_BUCKETS; b++) {
		struct wait **at = &s->waits[b];
		while (*at) {
			struct wait *w = *at;
			if (w->deadline > now) {
				if (w->deadline < s->waits_until)
					s->waits_until = w->deadline;
				at = &w->next;
				continue;
			}
			conn_reply(w->conn, STORE_WAIT, w->id, STORE_TIMEOUT, (struct kv_bytes){0}, 0);
			w->conn->waits--;
			*at = w->next;
			free(w);
			s->waits_n--;
			*busy = true;
		}
	}
}

static int wait_park(struct store_server *s, struct conn *c, const struct store_msg *m, uint64_t now)
{
	struct wait *w = malloc(sizeof *w + m->key_len);
	if (!w)
		return -ENOMEM;
	w->conn = c;
	w->id = m->id;
	w->deadline = time_after(now, m->timeout_ns);
	w->hash = hash64(m->key, m->key_len);
	w->key_len = m->key_len;
	memcpy(w->key, m->key, m->key_len);
	w->next = s->waits[w->hash % STORE_WAIT_BUCKETS];
	s->waits[w->hash % STORE_WAIT_BUCKETS] = w;
	if (w->deadline < s->waits_until)
		s->waits_until = w->deadline;
	s->waits_n++;
	c->waits++;
	return 0;
}

static enum store_status status_of(int rc)
{
	switch (rc) {
	case 0:
		return STORE_OK;
	case -ENOENT:
		return STORE_MISSING;
	case -EEXIST:
		return STORE_DIFFERS;
	case -EINVAL:
	case -ERANGE:
		return STORE_BAD;
	default:
		return STORE_FULL;
	}
}

/* 0, or the reason +1 to drop the client for. */
static int request_run(struct store_server *s, struct conn *c, const struct store_msg *m, uint64_t now)
{
	struct kv_bytes key = {m->key, m->key_len}, value = {m->value, m->value_len}, out = {NULL, 0};
	struct kv_bytes expected = {m->expected, m->expected_len};
	enum store_status status;
	int64_t number = 0;
	int rc = 0;
	if (m->reply || c->greeted == (m->op == STORE_HELLO))
		return STORE_DROP_MALFORMED + 1;
	switch (m->op) {
	case STORE_HELLO:
		c->greeted = true;
		break;
	case STORE_SET:
		rc = kv_set(s->kv, key, value);
		break;
	case STORE_ADD:
		rc = kv_add(s->kv, key, m->number, &number);
		break;
	case STORE_CAS:
		rc = kv_cas(s->kv, key, expected, value, &out);
		break;
	case STORE_DELETE:
		rc = kv_delete(s->kv, key);
		hold_end(s, key);
		break;
	case STORE_PING: /* anything else may be what it said before it died */
		holds_alive(s, c);
		break;
	case STORE_WATCH:
		rc = watch_begin(s, c, m);
		break;
	case STORE_HOLD:
		rc = hold_run(s, c, m, now, &status, &out);
		if (rc == 0)
			return 0;
		if (rc > 0 && conn_reply(c, m->op, m->id, status, out, 0))
			return STORE_DROP_BACKLOG + 1;
		if (rc > 0 && status == STORE_OK)
			store_written(s, key);
		if (rc > 0)
			return 0;
		break;
	case STORE_GET:
		rc = kv_get(s->kv, key, &out);
		break;
	default:
		rc = kv_get(s->kv, key, &out);
		if (rc == 0)
			break;
		if (c->waits >= STORE_REQUESTS_MAX)
			return STORE_DROP_REQUESTS + 1;
		rc = wait_park(s, c, m, now);
		if (rc == 0)
			return 0;
		break;
	}
	if (conn_reply(c, m->op, m->id, status_of(rc), out, number))
		return STORE_DROP_BACKLOG + 1;
	if (rc == 0 && (m->op == STORE_SET || m->op == STORE_ADD || m->op == STORE_CAS))
		store_written(s, key);
	return 0;
}

static int frames_run(struct store_server *s, struct conn *c, uint64_t now)
{
	size_t used = 0;
	int drop = 0;
	while (!drop) {
		struct store_msg m;
		long n = store_msg_decode(c->rx + used, c->rx_len - used, &m);
		if (n == 0)
			break;
		if (n == -EPROTONOSUPPORT) {
			/* Tells a client of another version what is spoken here; nothing more can be said to it. */
			if (conn_reply(c, STORE_HELLO, 0, STORE_OK, (struct kv_bytes){0}, 0) == 0 &&
			    c->handle != HANDLE_LOCAL)
				outbox_flush(&c->tx, s->net, c->handle);
			drop = STORE_DROP_VERSION + 1;
		} else if (n < 0) {
			drop = (n == -EMSGSIZE ? STORE_DROP_LENGTH : STORE_DROP_MALFORMED) + 1;
		} else {
			drop = request_run(s, c, &m, now);
			used += (size_t)n;
		}
	}
	memmove(c->rx, c->rx + used, c->rx_len - used);
	c->rx_len -= used;
	return drop;
}

/* 0, or the reason +1 to drop the client for. */
static int conn_read(struct store_server *s, struct conn *c, uint64_t now, bool *busy)
{
	for (int i = 0; i < READS_MAX; i++) {
		/* A full buffer holds at least one whole frame, which frames_run() has taken: there is room. */
		long n = s->net->ops->recv(s->net, c->handle, c->rx + c->rx_len, sizeof c->rx - c->rx_len);
		if (n == -EAGAIN)
			return 0;
		*busy = true;
		if (n <= 0)
			return STORE_DROP_CLOSED + 1;
		c->rx_len += (size_t)n;
		int drop = frames_run(s, c, now);
		if (drop)
			return drop;
	}
	return 0;
}

static int conn_write(struct store_server *s, struct conn *c, bool *busy)
{
	long n = outbox_flush(&c->tx, s->net, c->handle);
	if (n < 0)
		return STORE_DROP_CLOSED + 1;
	*busy |= n > 0;
	bool want = outbox_len(&c->tx) > 0;
	if (want != c->wants_write)
		s->net->ops->want_write(s->net, c->handle, want);
	c->wants_write = want;
	*busy |= watches_wait(s, c);
	return 0;
}

static void conn_drop_it(struct store_server *s, const struct conn *c, enum store_drop reason)
{
	for (unsigned i = 0; i < s->conns_n; i++)
		if (s->conns[i] == c) {
			conn_drop(s, i, reason);
			return;
		}
}

static void clients_accept(struct store_server *s, uint64_t now, bool *busy)
{
	s->accept_again = TIME_NEVER;
	for (int i = 0; s->listener != LISTENER_NONE && i < ACCEPTS_MAX; i++) {
		int handle = s->net->ops->accept(s->net, s->listener);
		if (handle == -EAGAIN)
			return;
		if (handle < 0) {
			if (handle != -ECONNABORTED)
				s->accept_again = now + ACCEPT_REST;
			return;
		}
		*busy = true;
		struct conn *c = s->conns_n < FAR_STORE_CLIENTS_MAX ? calloc(1, sizeof *c) : NULL;
		if (!c) {
			s->net->ops->close(s->net, handle);
			s->drops[STORE_DROP_CLIENTS]++;
			continue;
		}
		c->handle = handle;
		s->conns[s->conns_n++] = c;
	}
}

uint64_t store_server_step(struct store_server *s, uint64_t now, bool *busy)
{
	clients_accept(s, now, busy);
	waits_expire(s, now, busy);
	struct conn *c;
	uint64_t until = TIME_NEVER;
	while ((c = contests_expire(s, now, &until, busy))) {
		conn_drop_it(s, c, STORE_DROP_SILENT);
		until = TIME_NEVER;
		*busy = true;
	}
	/* The local client is trusted with its frames: it is this library's. A drop of it only leaves it unanswered. */
	if (s->local.rx_len) {
		frames_run(s, &s->local, now);
		*busy = true;
	}
	for (unsigned i = s->conns_n; i-- > 0;) {
		int drop = conn_read(s, s->conns[i], now, busy);
		if (drop)
			conn_drop(s, i, (enum store_drop)(drop - 1));
	}
	/* After all reads: what one client set answers the waits of others. */
	while ((c = watches_tell(s)))
		conn_drop_it(s, c, STORE_DROP_BACKLOG);
	for (unsigned i = s->conns_n; i-- > 0;) {
		int drop = conn_write(s, s->conns[i], busy);
		if (drop)
			conn_drop(s, i, (enum store_drop)(drop - 1));
	}
	until = s->waits_until < until ? s->waits_until : until;
	return until < s->accept_again ? until : s->accept_again;
}

long store_server_local_send(struct store_server *s, const void *data, size_t len)
{
	size_t room = sizeof s->local.rx - s->local.rx_len;
	size_t n = len < room ? len : room;
	if (n == 0)
		return -EAGAIN;
	memcpy(s->local.rx + s->local.rx_len, data, n);
	s->local.rx_len += n;
	return (long)n;
}

long store_server_local_recv(struct store_server *s, void *data, size_t len)
{
	size_t n = outbox_take(&s->local.tx, data, len);
	return n ? (long)n : -EAGAIN;
}
