/* SPDX-License-Identifier: BSD-3-Clause */
/* The store's client: connects, logs in, matches replies with requests. Control thread of each member. */
#include "control/lease.h"
#include "control/send_buffer.h"
#include "control/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_MIN UINT64_C(1000000) /* ns between attempts to connect; doubles up to RETRY_MAX */
#define RETRY_MAX UINT64_C(50000000)
#define READS_MAX 64 /* recv() calls in one step */

/* An outstanding request. */
struct pending {
	struct pending *next;
	uint64_t id, deadline;
	store_done_fn *done;
	void *user;
	bool watch; /* a WATCH: any number of replies */
};

struct store_client {
	struct store_stream *stream; /* owned */
	struct store_login login;
	struct store_auth greeting;
	enum store_connection link;
	int error;
	bool opened; /* an attempt is under way or has succeeded */
	bool wants_write;
	bool was_connected;
	uint64_t retry_at, retry_ns;
	uint64_t id_next;    /* 0 is LOGIN's */
	uint64_t keep_id;    /* of the renewal of the lease that is not acknowledged; 0: none */
	uint64_t keep_at;    /* when the next renewal is due, or when that one was sent */
	uint64_t kept_at;    /* when the last acknowledged one was sent; 0: none */
	uint64_t arrived_at; /* when the last one was sent that the store's host has received; 0: none */
	bool sends_copy;
	uint64_t copied;                /* number of the last change of the copy that was sent */
	uint64_t opened_at, refused_at; /* begin of the last attempt; of the last one that was refused */
	unsigned pending_n;
	struct pending *pending;
	struct send_buffer login_tx; /* LOGIN and PROVE, sent first in each attempt */
	struct send_buffer tx;
	size_t rx_len;
	uint8_t rx[STORE_FRAME_MAX];
};

struct store_client *store_client_create(struct store_stream *stream)
{
	struct store_client *c = stream ? calloc(1, sizeof *c) : NULL;
	if (!c) {
		if (stream)
			stream->ops->destroy(stream);
		return NULL;
	}
	c->stream = stream;
	c->retry_ns = RETRY_MIN;
	c->id_next = 1;
	c->login = (struct store_login){.who = {.rank = STORE_RANK_NONE}, .random = &random_kernel};
	return c;
}

void store_client_login(struct store_client *c, const struct store_login *login)
{
	c->login = *login;
}

static void stream_close(struct store_client *c)
{
	c->stream->ops->close(c->stream);
	c->opened = false;
	c->wants_write = false;
	c->rx_len = 0;
	c->login_tx.head = c->login_tx.tail = 0;
}

void store_client_destroy(struct store_client *c)
{
	if (!c)
		return;
	c->stream->ops->destroy(c->stream);
	while (c->pending) {
		struct pending *p = c->pending;
		c->pending = p->next;
		free(p);
	}
	send_buffer_fini(&c->login_tx);
	send_buffer_fini(&c->tx);
	free(c);
}

enum store_connection store_client_connection(const struct store_client *c)
{
	return c->link;
}

bool store_client_was_connected(const struct store_client *c)
{
	return c->was_connected;
}

int store_client_error(const struct store_client *c)
{
	return c->error;
}

const char *store_client_why(const struct store_client *c)
{
	return c->stream->ops->why ? c->stream->ops->why(c->stream) : "";
}

uint64_t store_client_kept(const struct store_client *c)
{
	return c->kept_at ? c->kept_at : c->stream->kept_at;
}

uint64_t store_client_arrived(const struct store_client *c)
{
	return c->arrived_at ? c->arrived_at : c->stream->arrived_at;
}

uint64_t store_client_own_lease(const struct store_client *c)
{
	return c->stream->own_ns;
}

uint64_t store_client_lease_lost(const struct store_client *c)
{
	return c->stream->lost_at;
}

uint64_t store_client_refused(const struct store_client *c)
{
	uint64_t absent_at = c->stream->absent_at;
	return absent_at > c->refused_at ? absent_at : c->refused_at;
}

static void pending_end(struct store_client *c, struct pending **at, int result, const struct store_msg *reply)
{
	struct pending *p = *at;
	*at = p->next;
	c->pending_n--;
	p->done(p->user, result, reply);
	free(p);
}

static void link_lose(struct store_client *c, int error)
{
	stream_close(c);
	c->link = STORE_LOST;
	c->error = error;
	c->kept_at = c->arrived_at = 0;
	/* Terminates: a callback that submits again gets -ENOTCONN. */
	while (c->pending)
		pending_end(c, &c->pending, error, NULL);
}

/* The stream has failed: before the reply to LOGIN another attempt follows, afterwards the client is LOST. */
static void stream_fail(struct store_client *c, uint64_t now, int error)
{
	/* An unknown name, another program at the port, a wrong key and a bad path do not change by another attempt. */
	static const int finals[] = {ENXIO, EPROTO,  EPROTONOSUPPORT, EKEYREVOKED,  EACCES, EPERM,  ENOENT,
				     EROFS, ENOTDIR, EISDIR,          ENAMETOOLONG, ENOLCK, ENOTSUP};
	bool final = !c->login.patient && (error == -ENOKEY || error == -EKEYREJECTED);
	for (size_t i = 0; i < sizeof finals / sizeof *finals; i++)
		final |= error == -finals[i];
	if (c->link == STORE_CONNECTED || final) {
		link_lose(c, error);
		return;
	}
	stream_close(c);
	if (error == -ECONNREFUSED)
		c->refused_at = c->opened_at;
	c->error = error;
	c->retry_at = now + c->retry_ns;
	c->retry_ns = c->retry_ns * 2 < RETRY_MAX ? c->retry_ns * 2 : RETRY_MAX;
}

static int stream_open(struct store_client *c)
{
	struct store_msg m = {.op = STORE_LOGIN, .timeout_ns = UINT64_MAX};
	uint8_t frame[STORE_FRAME_MAX];
	int rc = c->stream->ops->open(c->stream);
	if (rc)
		return rc;
	c->opened = true;
	store_login_make(&c->greeting, &c->login.who, c->login.random);
	m.value = c->greeting.login;
	m.value_len = c->greeting.login_len;
	return send_buffer_put(&c->login_tx, frame, store_msg_encode(&m, frame));
}

/* Renews the lease: in answer to the server's request with id 0, which has no reply, else with an id that no pending
 * request has. */
static bool send_ping(struct store_client *c, uint64_t id)
{
	struct store_msg m = {
		.op = STORE_PING, .id = id, .timeout_ns = UINT64_MAX, .number = (int64_t)c->login.lease_ns};
	uint8_t frame[STORE_FRAME_MAX];
	return send_buffer_put(&c->tx, frame, store_msg_encode(&m, frame)) == 0;
}

/* True if the store's host has received all that was sent. */
static bool all_arrived(const struct store_client *c)
{
	return !send_buffer_len(&c->tx) && c->stream->ops->unacknowledged &&
	       c->stream->ops->unacknowledged(c->stream) == 0;
}

/* Between two checks whether a renewal without a reply has arrived. */
static uint64_t check_interval(const struct store_client *c)
{
	return lease_interval(c->login.lease_ns) / 4;
}

/* Checks whether the renewal without a reply has arrived: then the next may follow. Returns when to check again. */
static uint64_t keep_unanswered(struct store_client *c, uint64_t now)
{
	uint64_t check_at = time_after(c->keep_at, check_interval(c));
	if (now < check_at)
		return check_at;
	if (!all_arrived(c))
		return time_after(now, check_interval(c));
	c->arrived_at = c->keep_at;
	c->keep_at += lease_interval(c->login.lease_ns);
	c->keep_id = 0;
	return now;
}

/* Sends a renewal of the lease when it is time and the one before has arrived. Returns when to send the next. */
static uint64_t keep(struct store_client *c, uint64_t now)
{
	if (!c->login.lease_ns || c->link != STORE_CONNECTED)
		return TIME_NEVER;
	uint64_t check_at = c->keep_id ? keep_unanswered(c, now) : now;
	if (c->keep_id)
		return check_at;
	if (now >= c->keep_at) {
		if (send_ping(c, c->id_next)) {
			c->keep_id = c->id_next++;
			c->keep_at = now;
			return time_after(now, check_interval(c));
		}
		c->keep_at = now + lease_interval(c->login.lease_ns);
	}
	return c->keep_at;
}

static void connected(struct store_client *c)
{
	c->link = STORE_CONNECTED;
	c->was_connected = true;
	c->error = 0;
}

/* Verifies the server's proof and sends this client's: 0 or -errno. */
static int challenge_take(struct store_client *c, const struct store_msg *m)
{
	uint8_t frame[STORE_FRAME_MAX], proof[AUTH_PROOF_BYTES];
	struct auth_key key;
	if (m->value_len && !c->login.key)
		return -ENOKEY;
	if (!m->value_len && c->login.key)
		return -EKEYREVOKED;
	if (!m->value_len) {
		connected(c);
		return 0;
	}
	int rc = store_challenge_read(&c->greeting, m->value, m->value_len, proof);
	if (!rc)
		rc = c->login.key(c->login.ctx, &key);
	if (rc)
		return rc;
	bool holds = store_challenge_verify(&c->greeting, &key, proof);
	store_proof_make(&c->greeting, &key, proof);
	auth_erase(&key, sizeof key);
	struct store_msg prove = {
		.op = STORE_PROVE, .timeout_ns = UINT64_MAX, .value = proof, .value_len = sizeof proof};
	return holds ? send_buffer_put(&c->login_tx, frame, store_msg_encode(&prove, frame)) : -EKEYREJECTED;
}

/* Handles a frame before the client is CONNECTED: 0 or -errno. */
static int greeting_take(struct store_client *c, const struct store_msg *m)
{
	if (m->op == STORE_LOGIN)
		return challenge_take(c, m);
	if (m->op != STORE_PROVE)
		return -EPROTO;
	if (m->status != STORE_OK)
		return -EKEYREJECTED;
	connected(c);
	return 0;
}

/* Without memory for the acknowledgement the store finds another backup. */
static void copy_take(struct store_client *c, const struct store_msg *m)
{
	uint8_t frame[STORE_FRAME_MAX];
	uint64_t version = c->login.copy ? store_copy_take(c->login.copy, m) : 0;
	struct store_msg ack = {
		.op = STORE_COPY, .id = c->id_next, .timeout_ns = UINT64_MAX, .number = (int64_t)version};
	c->sends_copy &= !version;
	if (version && send_buffer_put(&c->tx, frame, store_msg_encode(&ack, frame)) == 0)
		c->id_next++;
}

void store_client_send_copy(struct store_client *c)
{
	c->sends_copy = c->login.copy && c->login.copy->kv;
	c->copied = 0;
}

/* Sends more of the copy while there is room. */
static void copy_send(struct store_client *c, bool *busy)
{
	uint8_t frame[STORE_FRAME_MAX];
	struct kv_change change;
	const struct kv *kv = c->login.copy->kv;
	const struct kv_entry *e = kv ? kv_changes_after(kv, c->copied) : NULL;
	for (; e && send_buffer_len(&c->tx) < FAR_STORE_WATCH_BYTES; c->copied = change.number) {
		e = kv_change_read(e, &change);
		struct store_msg m = {.op = STORE_COPY,
				      .id = c->id_next++,
				      .timeout_ns = UINT64_MAX,
				      .key = change.key.data,
				      .key_len = change.key.len,
				      .value = change.value.data,
				      .value_len = change.value.len};
		if (send_buffer_put(&c->tx, frame, store_msg_encode(&m, frame)))
			return;
		*busy = true;
	}
	c->sends_copy = e != NULL;
}

static void reply_take(struct store_client *c, const struct store_msg *m)
{
	if (m->id == 0 && m->op == STORE_PING) {
		send_ping(c, 0);
		return;
	}
	if (m->id == 0 && m->op == STORE_COPY) {
		copy_take(c, m);
		return;
	}
	if (c->keep_id && m->id == c->keep_id) {
		c->kept_at = c->keep_at;
		c->keep_at += lease_interval(c->login.lease_ns);
		c->keep_id = 0;
	}
	struct pending **at = &c->pending;
	while (*at && (*at)->id != m->id)
		at = &(*at)->next;
	/* An unknown id: the reply arrived after the request's deadline. */
	if (*at && (*at)->watch && m->op == STORE_WATCH && (m->status == STORE_OK || m->status == STORE_MISSING))
		(*at)->done((*at)->user, 0, m);
	else if (*at)
		pending_end(c, at, 0, m);
}

static int frames_take(struct store_client *c)
{
	size_t used = 0;
	for (;;) {
		struct store_msg m;
		long n = store_msg_decode(c->rx + used, c->rx_len - used, &m);
		if (n < 0)
			return n == -EPROTONOSUPPORT ? (int)n : -EPROTO;
		if (n == 0)
			break;
		/* The kernel can connect a socket to itself when no program listens on a port of its ephemeral range.
		 */
		if (!m.reply && m.op == STORE_LOGIN && c->link == STORE_CONNECTING)
			return -ECONNREFUSED;
		if (!m.reply)
			return -EPROTO;
		used += (size_t)n;
		int rc = c->link == STORE_CONNECTED ? 0 : greeting_take(c, &m);
		if (rc)
			return rc;
		if (m.op != STORE_LOGIN && m.op != STORE_PROVE)
			reply_take(c, &m);
	}
	memmove(c->rx, c->rx + used, c->rx_len - used);
	c->rx_len -= used;
	return 0;
}

static int stream_read(struct store_client *c, bool *busy)
{
	for (int i = 0; i < READS_MAX; i++) {
		uint8_t *to = c->rx + c->rx_len;
		size_t room = sizeof c->rx - c->rx_len;
		long n = c->stream->ops->recv(c->stream, to, room);
		if (n == -EAGAIN)
			return 0;
		if (n <= 0)
			return n ? (int)n : -ECONNRESET;
		*busy = true;
		c->rx_len += (size_t)n;
		int rc = frames_take(c);
		if (rc)
			return rc;
	}
	return 0;
}

static int stream_write(struct store_client *c, struct send_buffer *o, bool *busy)
{
	while (send_buffer_len(o)) {
		long n = c->stream->ops->send(c->stream, o->data + o->head, send_buffer_len(o));
		if (n == -EAGAIN || n == 0)
			break;
		if (n < 0)
			return (int)n;
		send_buffer_skip(o, (size_t)n);
		*busy = true;
	}
	bool want = send_buffer_len(o) > 0;
	if (want != c->wants_write)
		c->stream->ops->want(c->stream, want);
	c->wants_write = want;
	return 0;
}

static uint64_t pending_expire(struct store_client *c, uint64_t now, bool *busy)
{
	uint64_t until = TIME_NEVER;
	struct pending **at = &c->pending;
	while (*at) {
		if ((*at)->deadline > now) {
			if ((*at)->deadline < until)
				until = (*at)->deadline;
			at = &(*at)->next;
			continue;
		}
		*busy = true;
		pending_end(c, at, -ETIMEDOUT, NULL);
		/* The callback may have added a request at the head: start over. */
		at = &c->pending;
		until = TIME_NEVER;
	}
	return until;
}

uint64_t store_client_step(struct store_client *c, uint64_t now, bool *busy)
{
	uint64_t next = TIME_NEVER;
	int rc = 0;
	if (c->link == STORE_LOST)
		return TIME_NEVER;
	if (!c->opened && now >= c->retry_at) {
		c->opened_at = now;
		rc = stream_open(c);
		*busy = true;
	}
	if (c->opened) {
		rc = stream_read(c, busy);
		uint64_t keep_at = rc ? TIME_NEVER : keep(c, now);
		if (rc == 0 && c->sends_copy && c->link == STORE_CONNECTED)
			copy_send(c, busy);
		if (rc == 0)
			rc = stream_write(c, c->link == STORE_CONNECTED ? &c->tx : &c->login_tx, busy);
		if (rc == 0)
			next = c->stream->ops->step(c->stream, now, busy);
		next = keep_at < next ? keep_at : next;
	}
	if (rc) {
		*busy = true;
		stream_fail(c, now, rc);
	}
	uint64_t until = pending_expire(c, now, busy);
	if (c->link == STORE_CONNECTING && !c->opened && c->retry_at < until)
		until = c->retry_at;
	return next < until ? next : until;
}

int store_client_submit(struct store_client *c, const struct store_msg *request, uint64_t now, uint64_t deadline,
			store_done_fn *done, void *user)
{
	struct store_msg m = *request;
	uint8_t frame[STORE_FRAME_MAX];
	if (c->link == STORE_LOST)
		return -ENOTCONN;
	m.reply = false;
	m.id = c->id_next;
	m.timeout_ns = deadline == TIME_NEVER ? UINT64_MAX : deadline > now ? deadline - now : 0;
	bool own = m.op == STORE_LOGIN || m.op == STORE_PROVE || m.op == STORE_PING || m.op == STORE_COPY;
	int rc = own ? -EINVAL : store_msg_check(&m);
	if (rc)
		return rc;
	if (c->pending_n >= STORE_REQUESTS_MAX)
		return -ENOBUFS;
	struct pending *p = malloc(sizeof *p);
	if (!p)
		return -ENOMEM;
	rc = send_buffer_put(&c->tx, frame, store_msg_encode(&m, frame));
	if (rc) {
		free(p);
		return rc;
	}
	*p = (struct pending){c->pending, c->id_next++, deadline, done, user, m.op == STORE_WATCH};
	c->pending = p;
	c->pending_n++;
	return 0;
}
