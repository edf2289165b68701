/* SPDX-License-Identifier: BSD-3-Clause */
/* The store's server: accepts clients, runs their requests, sends replies, drops clients. Control thread of rank 0. */
#include "control/store_conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ACCEPTS_MAX   64                 /* connections in one step, so that clients are served in between */
#define READS_MAX     16                 /* recv() calls for one client in one step, likewise */
#define ACCEPT_REST   UINT64_C(50000000) /* ns until accept() is tried again after an error */
#define HANDLE_LOCAL  (-1)               /* the client in this process */
#define LISTENER_NONE (-1)

struct store_server *store_server_create(struct ctl_net *net, int listener)
{
	struct store_server *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->kv = kv_create(FAR_STORE_KEYS_MAX + FAR_STORE_KEYS_RESERVED + FAR_STORE_DELETED_MAX);
	if (!s->kv) {
		free(s);
		return NULL;
	}
	s->net = net;
	s->listener = listener;
	s->accept_again = TIME_NEVER;
	s->local.server = s;
	s->local.who.rank = STORE_RANK_NONE;
	s->local.handle = HANDLE_LOCAL;
	backup_init(s);
	return s;
}

static void conn_drop(struct store_server *s, unsigned i, enum store_drop reason)
{
	struct conn *c = s->conns[i];
	s->drops[reason]++;
	s->unauthenticated_n -= !c->admitted;
	s->gone_n += c->admitted;
	s->out_bytes -= send_buffer_len(&c->tx);
	send_buffer_fini(&c->tx);
	c->drop_pending = (uint8_t)(reason + 1);
	waits_forget(s, c);
	watches_forget(s, c);
	holds_release(s, c);
	backup_forget(s, c);
	if (!c->broken)
		s->net->ops->close(s->net, c->handle);
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
		if (!s->conns[i]->admitted)
			conn_drop(s, i, STORE_DROP_SHUT);
	}
}

void store_server_set_key(struct store_server *s, const struct auth_key *key, const struct random_source *random)
{
	s->keyed = key != NULL;
	if (key)
		s->key = *key;
	s->random = random;
}

void store_server_set_clock(struct store_server *s, const struct clock_source *clock)
{
	s->clock = clock;
}

void store_server_destroy(struct store_server *s)
{
	if (!s)
		return;
	auth_erase(&s->key, sizeof s->key);
	store_server_shut(s);
	while (s->conns_n)
		conn_drop(s, s->conns_n - 1, STORE_DROP_SHUT);
	waits_forget(s, &s->local);
	watches_forget(s, &s->local);
	holds_release(s, &s->local);
	send_buffer_fini(&s->local.tx);
	backup_forget(s, &s->local);
	backup_fini(s);
	kv_destroy(s->kv);
	free(s);
}

unsigned store_server_clients(const struct store_server *s)
{
	return s->conns_n;
}

uint64_t store_server_gone(const struct store_server *s)
{
	return s->gone_n;
}

bool store_server_held(const struct store_server *s)
{
	const struct hold *h = s->holds;
	while (h && h->conn == &s->local)
		h = h->next;
	return h != NULL;
}

int store_server_accept_error(const struct store_server *s)
{
	return s->accept_error;
}

size_t store_server_out_bytes(const struct store_server *s)
{
	return s->out_bytes;
}

uint64_t store_server_drops(const struct store_server *s, enum store_drop reason)
{
	return s->drops[reason];
}

void conn_drop_later(struct conn *c, enum store_drop reason)
{
	if (c->drop_pending || c == &c->server->local)
		return;
	c->drop_pending = (uint8_t)(reason + 1);
	c->server->out_bytes -= send_buffer_len(&c->tx);
	send_buffer_fini(&c->tx);
}

/* The client with the most bytes in its send buffer. */
static struct conn *out_most(const struct store_server *s)
{
	struct conn *most = s->conns[0];
	for (unsigned i = 1; i < s->conns_n; i++)
		if (send_buffer_len(&s->conns[i]->tx) > send_buffer_len(&most->tx))
			most = s->conns[i];
	return most;
}

/* Checks the room for a reply of `len` bytes; false: the client is to be dropped. */
static bool out_has_room(struct conn *c, size_t len)
{
	struct store_server *s = c->server;
	if (c == &s->local)
		return true;
	if (!c->drop_pending && send_buffer_len(&c->tx) + len > FAR_STORE_OUT_BYTES)
		conn_drop_later(c, STORE_DROP_BACKLOG);
	if (!c->drop_pending && s->out_bytes + len > FAR_STORE_OUT_BYTES_ALL)
		conn_drop_later(out_most(s), STORE_DROP_BACKLOG);
	return !c->drop_pending;
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
	size_t len = store_msg_encode(&m, frame);
	if (c->broken)
		return 0; /* nobody reads it */
	if (!out_has_room(c, len))
		return -ENOBUFS;
	int rc = send_buffer_put(&c->tx, frame, len);
	if (rc == 0 && c != &c->server->local)
		c->server->out_bytes += len;
	return rc;
}

static int conn_reply(struct conn *c, enum store_op op, uint64_t id, enum store_status status, struct kv_bytes value,
		      int64_t number)
{
	return store_reply(c, op, id, status, (struct kv_bytes){0}, value, number);
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
	case -EACCES:
		return STORE_DENIED;
	default:
		return STORE_FULL;
	}
}

long conn_flush(struct store_server *s, struct conn *c)
{
	size_t before = send_buffer_len(&c->tx);
	long n = send_buffer_flush(&c->tx, s->net, c->handle);
	s->out_bytes -= before - send_buffer_len(&c->tx);
	return n;
}

/* As wait_add(); beyond the bound of all clients together the one with the most WAITs is dropped. */
static int wait_admit(struct store_server *s, struct conn *c, const struct store_msg *m, uint64_t now)
{
	if (s->waits.n >= FAR_STORE_WAITS_MAX) {
		struct conn *most = s->conns[0]; /* not the local client, whose requests are bounded */
		for (unsigned i = 1; i < s->conns_n; i++)
			if (s->conns[i]->waits_n > most->waits_n)
				most = s->conns[i];
		conn_drop_later(most, STORE_DROP_REQUESTS);
		waits_forget(s, most);
	}
	return wait_add(s, c, m, now);
}

/* True if the request may make a key. */
static bool writes(const struct store_msg *m)
{
	return m->op == STORE_SET || m->op == STORE_ADD || m->op == STORE_HOLD ||
	       (m->op == STORE_CAS && !m->expected_len);
}

static bool changes(const struct store_msg *m)
{
	return m->op == STORE_SET || m->op == STORE_ADD || m->op == STORE_CAS || m->op == STORE_DELETE;
}

/* Runs a request of an admitted client: 0, or reason + 1 to drop the client. */
static int request_run(struct store_server *s, struct conn *c, const struct store_msg *m, uint64_t now)
{
	struct kv_bytes key = {m->key, m->key_len}, value = {m->value, m->value_len}, out = {NULL, 0};
	struct kv_bytes expected = {m->expected, m->expected_len};
	enum store_status status;
	int64_t number = 0;
	int rc = 0;
	if (m->op == STORE_COPY || m->op == STORE_REPORT)
		return backup_take(s, c, m);
	if (!owner_permits(s, c, m))
		return conn_reply(c, m->op, m->id, STORE_DENIED, out, 0) ? STORE_DROP_BACKLOG + 1 : 0;
	if (writes(m) && !room_take(s, c, m))
		return conn_reply(c, m->op, m->id, STORE_FULL, out, 0) ? STORE_DROP_BACKLOG + 1 : 0;
	switch (m->op) {
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
		room_give(s, c, m);
		hold_end(s, key);
		break;
	case STORE_PING:
		c->lease_ns = (uint64_t)m->number;
		c->kept_at = s->clock ? clock_now(s->clock) : now;
		if (m->id)
			break;
		holds_alive(s, c); /* any other request may have been sent before the client died */
		return 0;
	case STORE_WATCH:
		rc = watch_begin(s, c, m);
		break;
	case STORE_HOLD:
		rc = hold_run(s, c, m, now, &status, &out);
		if (rc == 0)
			return 0;
		if (rc > 0 && conn_reply(c, m->op, m->id, status, out, 0))
			return STORE_DROP_BACKLOG + 1;
		if (rc > 0 && status == STORE_OK) {
			owner_set(s, c, key);
			store_written(s, key);
		}
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
		if (c->waits_n >= STORE_REQUESTS_MAX)
			return STORE_DROP_REQUESTS + 1;
		rc = wait_admit(s, c, m, now);
		if (rc == 0)
			return 0;
		break;
	}
	if (rc == 0 && changes(m))
		backup_changed(s, m);
	if (backup_reply(s, c, m, status_of(rc), out, number))
		return STORE_DROP_BACKLOG + 1;
	if (rc == 0 && (m->op == STORE_SET || m->op == STORE_ADD || m->op == STORE_CAS)) {
		owner_set(s, c, key);
		store_written(s, key);
	}
	return 0;
}

/* Runs any frame, before and after the client is admitted: 0, or reason + 1. */
static int frame_run(struct store_server *s, struct conn *c, const struct store_msg *m, uint64_t now)
{
	bool login = m->op == STORE_LOGIN && !c->admitted && !c->proof_awaited;
	bool prove = m->op == STORE_PROVE && c->proof_awaited;
	if (m->reply || (!login && !prove && (!c->admitted || m->op == STORE_LOGIN || m->op == STORE_PROVE)))
		return STORE_DROP_MALFORMED + 1;
	return login ? login_take(s, c, m) : prove ? proof_take(s, c, m) : request_run(s, c, m, now);
}

/* True if so much waits for the client that further requests wait in the stream. */
static bool conn_is_full(const struct conn *c)
{
	return send_buffer_len(&c->tx) + c->deferred_bytes >= FAR_STORE_WATCH_BYTES;
}

static int frames_run(struct store_server *s, struct conn *c, uint64_t now)
{
	size_t used = 0;
	int drop = 0;
	c->paused = c->held_back = false;
	while (!drop && !c->drop_pending) {
		struct store_msg m;
		c->paused = c != &s->local && conn_is_full(c);
		if (c->paused)
			break;
		long n = store_msg_decode(c->rx + used, c->rx_len - used, &m);
		c->paused = c->held_back = n > 0 && backup_holds_back(s, &m);
		if (n == 0 || c->paused)
			break;
		if (n == -EPROTONOSUPPORT) {
			/* The reply has this server's version, for the client's error text; then the connection ends.
			 */
			if (conn_reply(c, STORE_LOGIN, 0, STORE_OK, (struct kv_bytes){0}, 0) == 0 &&
			    c->handle != HANDLE_LOCAL)
				conn_flush(s, c);
			drop = STORE_DROP_VERSION + 1;
		} else if (n < 0) {
			drop = (n == -EMSGSIZE ? STORE_DROP_LENGTH : STORE_DROP_MALFORMED) + 1;
		} else {
			drop = frame_run(s, c, &m, now);
			used += (size_t)n;
		}
	}
	memmove(c->rx, c->rx + used, c->rx_len - used);
	c->rx_len -= used;
	return drop;
}

/* The connection has ended with this result of recv() or send(): 0, or reason + 1 to drop the client. Only its process
 * ends a connection at once; after a failure of the network, holds with a lease stay until its end. */
static int conn_ended(struct store_server *s, struct conn *c, long result)
{
	if (result == 0 || result == -ECONNRESET || result == -EPIPE || !c->lease_ns)
		return STORE_DROP_CLOSED + 1;
	s->net->ops->close(s->net, c->handle);
	c->broken = true;
	s->out_bytes -= send_buffer_len(&c->tx);
	send_buffer_fini(&c->tx);
	return 0;
}

/* Reads and runs requests: 0, or reason + 1 to drop the client. */
static int conn_read(struct store_server *s, struct conn *c, uint64_t now, bool *busy)
{
	for (int i = 0; i < READS_MAX && !c->drop_pending && !c->broken; i++) {
		int drop = c->paused ? frames_run(s, c, now) : 0;
		if (drop || c->paused)
			return drop;
		/* A full buffer would hold at least one frame, which frames_run() has taken: there is room. */
		long n = s->net->ops->recv(s->net, c->handle, c->rx + c->rx_len, sizeof c->rx - c->rx_len);
		if (n == -EAGAIN)
			return 0;
		*busy = true;
		if (n <= 0)
			return conn_ended(s, c, n);
		c->rx_len += (size_t)n;
		drop = frames_run(s, c, now);
		if (drop)
			return drop;
	}
	return 0;
}

static void until_earlier(uint64_t *until, uint64_t at)
{
	*until = at < *until ? at : *until;
}

/* Sends replies and sets the events to wait for: 0, or reason + 1 to drop the client. */
static int conn_write(struct store_server *s, struct conn *c, uint64_t now, uint64_t *until, bool *busy)
{
	long n = c->broken ? 0 : conn_flush(s, c);
	if (n < 0)
		return conn_ended(s, c, n);
	if (c->broken)
		return 0;
	*busy |= n > 0;
	bool want = send_buffer_len(&c->tx) > 0;
	if (n > 0 || !c->wants_write)
		c->stalled_at = now;
	if (want && now - c->stalled_at >= FAR_STORE_STALLED_NS)
		return STORE_DROP_BACKLOG + 1;
	*busy |= watches_wait(s, c) || (c->paused && !c->held_back && !conn_is_full(c));
	if (want != c->wants_write || c->paused != c->unread)
		s->net->ops->want(s->net, c->handle, !c->paused, want);
	c->wants_write = want;
	c->unread = c->paused;
	if (want)
		until_earlier(until, c->stalled_at + FAR_STORE_STALLED_NS);
	return 0;
}

/* Checks the deadline of a login: 0, or reason + 1 to drop the client. */
static int conn_check(const struct conn *c, uint64_t now, uint64_t *until)
{
	if (c->drop_pending)
		return c->drop_pending;
	if (c->admitted && now >= conn_lease_end(c))
		return STORE_DROP_LEASE + 1;
	if (c->admitted) {
		until_earlier(until, conn_lease_end(c));
		return 0;
	}
	if (now - c->accepted_at >= FAR_STORE_LOGIN_NS)
		return STORE_DROP_UNAUTHENTICATED + 1;
	until_earlier(until, c->accepted_at + FAR_STORE_LOGIN_NS);
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

static void unauthenticated_drop_oldest(struct store_server *s)
{
	unsigned oldest = s->conns_n;
	for (unsigned i = 0; i < s->conns_n; i++)
		if (!s->conns[i]->admitted && (oldest == s->conns_n || s->conns[i]->number < s->conns[oldest]->number))
			oldest = i;
	conn_drop(s, oldest, STORE_DROP_UNAUTHENTICATED);
}

static void clients_accept(struct store_server *s, uint64_t now, bool *busy)
{
	s->accept_again = TIME_NEVER;
	for (int i = 0; s->listener != LISTENER_NONE && i < ACCEPTS_MAX; i++) {
		int handle = s->net->ops->accept(s->net, s->listener);
		if (handle == -EAGAIN || handle == -ECONNABORTED) {
			s->accept_error = 0;
			return;
		}
		if ((handle == -EMFILE || handle == -ENFILE) && s->unauthenticated_n) {
			unauthenticated_drop_oldest(s); /* its descriptor is free now */
			continue;
		}
		if (handle < 0) {
			s->accept_error = handle;
			s->accept_again = now + ACCEPT_REST;
			return;
		}
		*busy = true;
		if (s->unauthenticated_n == FAR_STORE_UNAUTHENTICATED_MAX)
			unauthenticated_drop_oldest(s);
		struct conn *c = calloc(1, sizeof *c);
		if (!c) {
			s->net->ops->close(s->net, handle);
			s->drops[STORE_DROP_CLIENTS]++;
			continue;
		}
		c->server = s;
		c->handle = handle;
		c->accepted_at = now;
		c->number = s->accepted_n++;
		s->conns[s->conns_n++] = c;
		s->unauthenticated_n++;
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
	/* The local client is never dropped: a malformed frame of it would only stay without a reply. */
	if (s->local.rx_len) {
		frames_run(s, &s->local, now);
		*busy = true;
	}
	for (unsigned i = s->conns_n; i-- > 0;) {
		int drop = conn_read(s, s->conns[i], now, busy);
		if (drop)
			conn_drop(s, i, (enum store_drop)(drop - 1));
	}
	backup_step(s, now, &until, busy);
	/* After all reads, since a request of one client may complete WAITs of others. */
	while ((c = watches_report(s)))
		conn_drop_it(s, c, STORE_DROP_BACKLOG);
	backup_complete(s);
	for (unsigned i = s->conns_n; i-- > 0;) {
		int drop = conn_check(s->conns[i], now, &until);
		if (!drop)
			drop = conn_write(s, s->conns[i], now, &until, busy);
		if (drop) {
			conn_drop(s, i, (enum store_drop)(drop - 1));
			*busy = true; /* its holds may complete requests of clients already written in this loop */
		}
	}
	until_earlier(&until, waits_until(s));
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
	size_t n = send_buffer_take(&s->local.tx, data, len);
	return n ? (long)n : -EAGAIN;
}
