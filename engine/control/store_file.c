/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A store in a file that all clients share. Control thread of each member.
 *
 * The file is a log of changes. Each client replays it into a table of its own, a store_server without connections,
 * which answers the client's frames and runs its WAITs and watches. A frame that may write is run under the lock, after
 * all earlier changes, and its change is appended before the reply is read.
 *
 *   PATH       PATH/store if PATH is a directory. Offset 0: magic "FCSFILE1" (8 bytes), bytes of the file after the
 *              last compaction (8), records
 *   record     CRC-32C of what follows (4), kind (1), 0 (1), key bytes (2), value bytes (2), 0 (2), holder, or why a
 *              key is deleted (8), key, value. Numbers are little-endian.
 *   PATH.lock  byte 0: the lock; byte N: locked while client N is alive
 *   PATH.new   the compacted log, before it is renamed to PATH
 *
 * Locks are those of open file descriptions: the kernel, or the file server, releases them with the process, so a
 * held key whose holder's byte is free is deleted by the next client that sees it. A client with a lease renews it
 * by a new value of its key; another one that reads no new value for longer than that, while it renews its own,
 * deletes its keys, too. A record that a dying writer left incomplete is cut off by the next one. Each client holds
 * the key [GROUP]/client/N. The first member of a group without members deletes what an earlier group of that name
 * has left; a group that is closed admits no more members. The last client removes a file without keys.
 */
#include "base/byteorder.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "control/store_log.h"
#include "control/url.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMPACT_BYTES ((uint64_t)1 << 20) /* a log below this length is not compacted */
#define POLL_NS       UINT64_C(100000000) /* between looks at a file whose file system reports no changes */
#define RETRY_NS      UINT64_C(1000000)   /* until a lock that another client has is tried again */
#define SWEEP_AT_ONCE 32                  /* holders that one look checks */
#define CLOSE_TRIES   50                  /* attempts to lock, RETRY_NS apart, of a client that ends */

struct file {
	struct store_stream base;
	struct ctl_net *net;
	int fd, lock_fd, notify; /* −1: not open; notify: inotify */
	uint64_t self;           /* number of this client */
	bool logged_in;
	uint64_t now;                              /* time of this step */
	uint64_t lease_ns, renewed_at, renewals_n; /* of this client; renewed_at 0: never yet */
	int error;                                 /* -errno that ends the attempt; 0: none */
	struct store_table table;
	uint64_t poll_at;
	unsigned swept;        /* holders before this one were checked */
	struct send_buffer in; /* frames that are not run yet */
	struct store_identity who;
	char path[URL_PATH_MAX + 8], lock_path[URL_PATH_MAX + 16];
};

/* ---- the file ---- */

static void fd_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static bool is_same_file(int fd, const char *path)
{
	struct stat ours, there;
	return fstat(fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino &&
	       ours.st_dev == there.st_dev;
}

/* It may hold the group's key: nobody else may read or write it. */
static int file_open(struct file *f)
{
	struct stat st;
	f->fd = open(f->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
	if (f->fd < 0 || fstat(f->fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
		return -EPERM;
	if (f->notify >= 0)
		inotify_add_watch(f->notify, f->path, IN_MODIFY | IN_ATTRIB | IN_MOVE_SELF);
	return 0;
}

/* Another client has replaced the file by a compacted one. */
static int file_reload(struct file *f)
{
	struct store_table fresh = {.server = NULL};
	fd_close(&f->fd);
	int rc = store_table_begin(&fresh);
	if (!rc)
		rc = file_open(f);
	if (!rc)
		rc = records_replay(f->fd, &fresh);
	if (!rc)
		rc = store_table_become(&f->table, &fresh);
	store_table_free(&fresh);
	return rc;
}

/* Replays what other clients have written. 0 or -errno. */
static int file_read(struct file *f)
{
	if (is_same_file(f->fd, f->path))
		return records_replay(f->fd, &f->table);
	return access(f->path, F_OK) ? -ESTALE : file_reload(f);
}

static int write_all(int fd, const void *data, size_t len, uint64_t at)
{
	ssize_t n;
	do
		n = pwrite(fd, data, len, (off_t)at);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)len ? 0 : n < 0 ? -errno : -ENOSPC;
}

/* ---- locks ---- */

static int byte_lock(int fd, int type, uint64_t byte)
{
	struct flock l = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};
	if (fcntl(fd, F_OFD_SETLK, &l) == 0)
		return 0;
	return errno == EACCES || errno == EAGAIN ? -EAGAIN : errno == EINVAL || errno == EOPNOTSUPP ? -ENOLCK : -errno;
}

static bool is_running(const struct file *f, uint64_t client)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)client, .l_len = 1};
	return client == f->self || fcntl(f->lock_fd, F_OFD_GETLK, &l) != 0 || l.l_type != F_UNLCK;
}

/* True if this client has found the lease of the other one over while it could renew its own. */
static bool is_lease_over(const struct file *f, uint64_t client)
{
	bool reaches = f->renewed_at && f->now - f->renewed_at <= f->lease_ns / 2;
	return client != f->self && reaches && store_lease_is_over(&f->table, client, f->now);
}

static bool is_alive(const struct file *f, uint64_t client)
{
	return is_running(f, client) && !is_lease_over(f, client);
}

static void unlock(struct file *f)
{
	byte_lock(f->lock_fd, F_UNLCK, 0);
}

/* Locks the file and replays it to its end. 0; -EAGAIN: another client has the lock; another -errno. */
static int lock(struct file *f)
{
	uint8_t head[FILE_HEAD_BYTES] = FILE_MAGIC;
	struct stat st;
	int rc = byte_lock(f->lock_fd, F_WRLCK, 0);
	if (rc)
		return rc;
	if (!is_same_file(f->lock_fd, f->lock_path)) /* removed by the last client before this one */
		rc = -ESTALE;
	if (!rc && f->fd < 0)
		rc = file_open(f);
	if (!rc)
		rc = file_read(f);
	if (!rc && fstat(f->fd, &st) < 0)
		rc = -errno;
	if (!rc && (uint64_t)st.st_size > f->table.at) {
		log_line(FAR_LOG_WARNING, "the store file %s has %" PRIu64 " bytes of an incomplete record; removed",
			 f->path, (uint64_t)st.st_size - f->table.at);
		rc = ftruncate(f->fd, (off_t)f->table.at) ? -errno : 0;
	}
	if (!rc && f->table.at == 0) {
		le_put(head + 8, FILE_HEAD_BYTES, 8);
		rc = write_all(f->fd, head, sizeof head, 0);
		f->table.at = rc ? 0 : FILE_HEAD_BYTES;
	}
	if (rc)
		unlock(f);
	return rc;
}

/* ---- changes, under the lock ---- */

static int record_append(struct file *f, const struct record *r)
{
	uint8_t buf[RECORD_BYTES_MAX];
	size_t len = record_encode(r, buf);
	int rc = write_all(f->fd, buf, len, f->table.at);
	f->table.at += rc ? 0 : len;
	return rc;
}

static int change(struct file *f, const struct record *r)
{
	int rc = record_append(f, r);
	return rc ? rc : store_table_apply(&f->table, r);
}

/* Appends the state of a key that this client has just written to its table. */
static int written(struct file *f, struct kv_bytes key, bool hold)
{
	const struct held *h = *store_held_find(&f->table, key);
	struct record r = {.kind = RECORD_DELETED, .key = key, .holder = hold ? f->self : h ? h->holder : 0};
	if (kv_get(f->table.server->kv, key, &r.value) == 0)
		r.kind = r.holder ? RECORD_HELD : RECORD_VALUE;
	else
		r.holder = 0;
	int rc = store_held_set(&f->table, key, r.holder);
	return rc ? rc : record_append(f, &r);
}

static int delete_key(struct file *f, const uint8_t *data, size_t len, uint64_t why)
{
	uint8_t key[FAR_STORE_KEY_MAX];
	memcpy(key, data, len);
	return change(f, &(struct record){.kind = RECORD_DELETED, .holder = why, .key = {key, len}});
}

/* `last`: the keys with leases, too, by which the others are found. */
static int sweep_keys(struct file *f, bool last)
{
	struct held **at = &f->table.held;
	int rc = 0;
	while (*at && !rc) {
		bool runs = is_running(f, (*at)->holder);
		if (is_alive(f, (*at)->holder) || (runs && (*at)->lease_ns && !last))
			at = &(*at)->next;
		else
			rc = delete_key(f, (*at)->key, (*at)->key_len, runs ? STORE_WATCH_LEASE : 0);
	}
	return rc;
}

/* Deletes the keys of all clients that have ended. */
static int sweep(struct file *f)
{
	int rc = sweep_keys(f, false);
	return rc ? rc : sweep_keys(f, true);
}

/* True if one of the next holders has ended. */
static bool sweep_is_due(struct file *f)
{
	unsigned i = 0, from = f->swept;
	f->swept = 0;
	for (const struct held *h = f->table.held; h; h = h->next, i++) {
		if (i < from)
			continue;
		if (i >= from + SWEEP_AT_ONCE) {
			f->swept = i;
			break;
		}
		if (!is_alive(f, h->holder))
			return true;
	}
	return false;
}

/* Deletes all keys of this client's group. */
static int group_purge(struct file *f)
{
	size_t len = strlen(f->who.group);
	struct kv_change c;
	int rc = 0;
	for (const struct kv_entry *e = kv_changes_after(f->table.server->kv, 0); e && !rc;) {
		e = kv_change_read(e, &c);
		if (!c.deleted && c.key.len > len && c.key.data[len] == '/' &&
		    memcmp(c.key.data, f->who.group, len) == 0)
			rc = delete_key(f, c.key.data, c.key.len, 0);
	}
	return rc;
}

static struct kv_bytes client_key(const struct file *f, char out[FAR_NAME_MAX + 40])
{
	size_t len = (size_t)snprintf(out, FAR_NAME_MAX + 40, "%s/client/%016" PRIx64, f->who.group, f->self);
	return (struct kv_bytes){(const uint8_t *)out, len};
}

/* False if another client has ended this one's lease. */
static bool is_client_still(struct file *f)
{
	char key[FAR_NAME_MAX + 40];
	return !f->lease_ns || *store_held_find(&f->table, client_key(f, key));
}

/* 0; -EBUSY: the group is closed, and has members still; another -errno. */
static int login(struct file *f, const struct store_msg *m)
{
	struct store_auth greeting;
	char key[FAR_NAME_MAX + 40];
	f->who = (struct store_identity){.rank = STORE_RANK_NONE};
	if (m->value_len && store_login_read(m->value, m->value_len, &greeting, &f->who))
		return -EPROTO;
	if (f->who.rank == STORE_RANK_NONE)
		f->who.group[0] = 0;
	int rc = sweep(f);
	if (!rc && f->who.group[0] && !store_table_has_members(&f->table, f->who.group, f->self))
		rc = group_purge(f);
	if (!rc && f->who.group[0] && store_table_group_is_closed(&f->table, f->who.group))
		rc = -EBUSY;
	if (rc)
		return rc;
	f->logged_in = true;
	return change(f, &(struct record){.kind = RECORD_HELD, .holder = f->self, .key = client_key(f, key)});
}

/* Renews the lease, which others see by the new value. */
static int renew(struct file *f, uint64_t lease_ns)
{
	char key[FAR_NAME_MAX + 40];
	uint8_t value[STORE_LEASE_BYTES];
	le_put(value, lease_ns, 8);
	le_put(value + 8, ++f->renewals_n, 8);
	/* Nobody could renew while this client could not. */
	if (f->now - f->renewed_at > lease_ns / 2)
		store_leases_look(&f->table, f->now, true);
	f->renewed_at = f->now;
	f->lease_ns = lease_ns;
	return change(f, &(struct record){.kind = RECORD_HELD,
					  .holder = f->self,
					  .key = client_key(f, key),
					  .value = {value, sizeof value}});
}

/* Writes the table to a new file, and renames it. */
static int compact(struct file *f)
{
	char path[URL_PATH_MAX + 16];
	uint8_t buf[RECORD_BYTES_MAX] = FILE_MAGIC;
	uint64_t at = FILE_HEAD_BYTES;
	struct kv_change c;
	snprintf(path, sizeof path, "%s.new", f->path);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int rc = fd < 0 ? -errno : 0;
	for (const struct kv_entry *e = kv_changes_after(f->table.server->kv, 0); e && !rc;) {
		e = kv_change_read(e, &c);
		const struct held *h = *store_held_find(&f->table, c.key);
		struct record r = {h ? RECORD_HELD : RECORD_VALUE, h ? h->holder : 0, c.key, c.value};
		size_t len = c.deleted ? 0 : record_encode(&r, buf);
		rc = len ? write_all(fd, buf, len, at) : 0;
		at += len;
	}
	memcpy(buf, FILE_MAGIC, 8);
	le_put(buf + 8, at, 8);
	if (!rc)
		rc = write_all(fd, buf, FILE_HEAD_BYTES, 0);
	if (!rc && rename(path, f->path))
		rc = -errno;
	if (rc) {
		fd_close(&fd);
		unlink(path);
		return rc;
	}
	fd_close(&f->fd);
	f->fd = fd;
	f->table.at = at;
	if (f->notify >= 0)
		inotify_add_watch(f->notify, f->path, IN_MODIFY | IN_ATTRIB | IN_MOVE_SELF);
	return 0;
}

static int compact_if_due(struct file *f)
{
	uint8_t head[FILE_HEAD_BYTES];
	if (f->table.at < COMPACT_BYTES || pread(f->fd, head, sizeof head, 0) != sizeof head ||
	    f->table.at < 2 * le_get(head + 8, 8))
		return 0;
	return compact(f);
}

/* ---- frames ---- */

static bool writes(const struct store_msg *m)
{
	return m->op == STORE_SET || m->op == STORE_ADD || m->op == STORE_CAS || m->op == STORE_DELETE ||
	       m->op == STORE_HOLD;
}

/* 0; -EAGAIN: another client has the lock; another -errno. */
static int frame_run(struct file *f, const struct store_msg *m, const uint8_t *frame, size_t len, uint64_t now)
{
	struct kv_bytes key = {m->key, m->key_len};
	bool renews = m->op == STORE_PING && m->number, locks = writes(m) || m->op == STORE_LOGIN || renews;
	int rc = locks ? lock(f) : file_read(f);
	if (rc)
		return rc;
	if (!is_client_still(f))
		rc = -ECONNRESET;
	else if (m->op == STORE_LOGIN)
		rc = login(f, m);
	else if (renews)
		rc = renew(f, (uint64_t)m->number);
	else if (m->op == STORE_HOLD)
		rc = sweep(f);
	uint64_t before = kv_changes(f->table.server->kv);
	if (!rc)
		store_table_answer(&f->table, frame, len, now);
	if (!rc && writes(m) && kv_changes(f->table.server->kv) != before)
		rc = written(f, key, m->op == STORE_HOLD);
	if (!rc && locks)
		rc = compact_if_due(f);
	if (locks)
		unlock(f);
	return rc;
}

/* Runs the frames that wait. 0 or -errno, as frame_run(). */
static int frames_run(struct file *f, uint64_t now, bool *busy)
{
	while (send_buffer_len(&f->in)) {
		const uint8_t *frame = f->in.data + f->in.head;
		struct store_msg m;
		long n = store_msg_decode(frame, send_buffer_len(&f->in), &m);
		if (n <= 0)
			return (int)n;
		int rc = frame_run(f, &m, frame, (size_t)n, now);
		if (rc)
			return rc;
		send_buffer_skip(&f->in, (size_t)n);
		*busy = true;
	}
	return 0;
}

/* ---- stream ---- */

static void attempt_end(struct store_stream *base)
{
	struct file *f = (struct file *)base;
	fd_close(&f->fd);
	fd_close(&f->lock_fd);
	fd_close(&f->notify);
	store_table_free(&f->table);
	send_buffer_fini(&f->in);
	f->logged_in = false;
	f->lease_ns = f->renewed_at = 0;
	f->error = 0;
}

static int attempt_begin(struct store_stream *base)
{
	struct file *f = (struct file *)base;
	f->self = (random_u64() >> 2) | 1;
	f->poll_at = 0;
	f->notify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC); /* without it, POLL_NS alone */
	f->lock_fd = open(f->lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int rc = f->lock_fd < 0 ? -errno : byte_lock(f->lock_fd, F_WRLCK, f->self);
	if (!rc)
		rc = store_table_begin(&f->table);
	if (!rc && f->notify >= 0) {
		inotify_add_watch(f->notify, f->lock_path, IN_CLOSE_WRITE);
		f->net->ops->watch(f->net, f->notify);
	}
	if (rc)
		attempt_end(base);
	return rc;
}

/* A client that ends deletes its keys, and the file when nothing is left. */
static void leave(struct file *f)
{
	int rc = -EAGAIN;
	for (int i = 0; i < CLOSE_TRIES && rc == -EAGAIN; i++) {
		if (i)
			usleep(RETRY_NS / 1000);
		rc = lock(f);
	}
	if (rc)
		return; /* the other clients see that this one has ended */
	uint64_t self = f->self;
	f->self = 0;
	byte_lock(f->lock_fd, F_UNLCK, self);
	rc = sweep(f);
	if (!rc && f->who.group[0] && !store_table_has_members(&f->table, f->who.group, f->self))
		rc = group_purge(f);
	if (!rc && kv_count(f->table.server->kv) == 0) {
		unlink(f->path);
		unlink(f->lock_path);
	}
	unlock(f);
}

static void file_destroy(struct store_stream *base)
{
	struct file *f = (struct file *)base;
	if (f->logged_in && !f->error)
		leave(f);
	attempt_end(base);
	free(f);
}

static long file_send(struct store_stream *base, const void *data, size_t len)
{
	struct file *f = (struct file *)base;
	int rc = f->error ? f->error : send_buffer_put(&f->in, data, len);
	return rc == -ENOBUFS ? -EAGAIN : rc ? rc : (long)len;
}

static long file_recv(struct store_stream *base, void *data, size_t len)
{
	struct file *f = (struct file *)base;
	return f->error ? f->error : store_server_local_recv(f->table.server, data, len);
}

static void file_want(struct store_stream *base, bool write)
{
	(void)base;
	(void)write;
}

/* Sweeps after a client has ended. */
static int sweep_if_due(struct file *f)
{
	if (!sweep_is_due(f))
		return 0;
	int rc = lock(f);
	if (rc)
		return rc;
	rc = sweep(f);
	unlock(f);
	return rc;
}

static int look(struct file *f, uint64_t now)
{
	alignas(struct inotify_event) char events[1024];
	bool changed = now >= f->poll_at;
	while (f->notify >= 0 && read(f->notify, events, sizeof events) > 0)
		changed = true;
	if (!changed)
		return 0;
	f->poll_at = now + POLL_NS;
	if (!f->logged_in)
		return 0;
	int rc = file_read(f);
	store_leases_look(&f->table, now, false);
	return rc ? rc : sweep_if_due(f);
}

/* True if the file, or its directory, is not to be found: then no client of the store can end this one's lease. */
static bool is_absent(struct file *f, int rc)
{
	bool missing = rc == -ENOENT || rc == -ENOTDIR || rc == -EACCES || rc == -ESTALE;
	if (!missing || !f->lease_ns || access(f->lock_path, R_OK | W_OK) == 0)
		return false;
	f->base.absent_at = f->now;
	return true;
}

static uint64_t file_step(struct store_stream *base, uint64_t now, bool *busy)
{
	struct file *f = (struct file *)base;
	f->now = now;
	int rc = f->error ? f->error : look(f, now), run;
	if (!rc || rc == -EAGAIN) {
		run = frames_run(f, now, busy);
		rc = run ? run : rc;
	}
	uint64_t until = f->table.server ? store_server_step(f->table.server, now, busy) : TIME_NEVER;
	*busy |= f->table.server && send_buffer_len(&f->table.server->local.tx);
	if (rc == -EAGAIN)
		return now + RETRY_NS;
	if (is_absent(f, rc))
		return now + POLL_NS;
	*busy |= rc != f->error;
	f->error = rc;
	return until < f->poll_at ? until : f->poll_at;
}

struct store_stream *store_stream_file(struct ctl_net *net, const char *path)
{
	static const struct store_stream_ops ops = {.open = attempt_begin,
						    .close = attempt_end,
						    .send = file_send,
						    .recv = file_recv,
						    .want = file_want,
						    .step = file_step,
						    .destroy = file_destroy};
	struct file *f = calloc(1, sizeof *f);
	if (!f)
		return NULL;
	f->base.ops = &ops;
	f->net = net;
	f->fd = f->lock_fd = f->notify = -1;
	struct stat st;
	bool is_dir = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
	snprintf(f->path, sizeof f->path, "%s%s", path, is_dir ? "/store" : "");
	snprintf(f->lock_path, sizeof f->lock_path, "%s.lock", f->path);
	return &f->base;
}
