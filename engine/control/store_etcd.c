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
 *
 * The lease of a killed client goes on for a while. A worker that finds a former member of its rank is admitted when
 * another member answers its knock, or when all their leases have ended. A worker that finds a key held knocks at the
 * holder.
 */
#include "control/store_etcd.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
	s->requested = s->keeping = s->fresh = s->was_ready = false;
	s->phase = PHASE_GRANT;
	s->page = 0;
	s->retry_at = 0;
	s->knocked = 0;
	s->error = 0;
	base->kept_at = base->arrived_at = base->lost_at = 0;
}

static int attempt_begin(struct store_stream *base)
{
	struct etcd_store *s = (struct etcd_store *)base;
	char password[PASSWORD_MAX];
	struct far_err err = {.status = FAR_OK};
	/* Within a lease some attempts to renew it end. */
	uint64_t quarter = s->base.lease_ns > LEASE_GRANTED_NS ? s->base.lease_ns / 4 : LEASE_GRANTED_NS / 4;
	bool ends_with_it = s->base.lease_ns && quarter < TIMEOUT_NS;
	struct etcd_config config = {.endpoints = s->endpoints,
				     .user = filled(secure_getenv("FAR_ETCD_USER")),
				     .password = password,
				     .ca = filled(secure_getenv("FAR_ETCD_CA")),
				     .cert = filled(secure_getenv("FAR_ETCD_CERT")),
				     .key = filled(secure_getenv("FAR_ETCD_KEY")),
				     .lease_timeout_ns = ends_with_it ? quarter : TIMEOUT_NS,
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
	etcd_store_group_names(s, &g);
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
		etcd_store_fail(s, rc, text);
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
	if (s->requested || s->error)
		return;
	if (s->phase == PHASE_GRANT || s->phase == PHASE_NEW_LEASE)
		etcd_store_grant(s);
	else if (s->phase == PHASE_LOAD)
		etcd_store_load(s);
	else if (s->phase == PHASE_REHOLD)
		etcd_store_rehold(s);
	*busy |= s->requested;
}

static uint64_t etcd_store_step(struct store_stream *base, uint64_t now, bool *busy)
{
	struct etcd_store *s = (struct etcd_store *)base;
	if (s->error)
		return TIME_NEVER;
	s->now = now;
	uint64_t until = s->ops->step(s->etcd, now, busy);
	s->base.absent_at = s->ops->absent(s->etcd);
	s->base.arrived_at = s->phase == PHASE_READY ? s->ops->arrived(s->etcd) : 0;
	trouble_check(s);
	etcd_store_changes_take(s, busy);
	etcd_store_keep(s);
	phase_run(s, busy);
	etcd_store_frames_run(s, busy);
	uint64_t next = store_server_step(s->table.server, now, busy);
	*busy |= send_buffer_len(&s->table.server->local.tx) || s->error;
	until = next < until ? next : until;
	until = s->keep_at < until && s->keep_at > now ? s->keep_at : until;
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
