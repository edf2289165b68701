/* SPDX-License-Identifier: BSD-3-Clause */
/** Writes files by io_uring, or by pwrite. The thread that saves. */
#include "psv_disk.h"

#include "pst_fail.h"
#include "psv_ring.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOTS      8u /* files on their way */
#define STEPS      3u /* requests of one: write, fsync, rename */
#define BYTES_MAX  ((size_t)64 << 20)
#define NAME_BYTES 72

static_assert((SLOTS & (SLOTS - 1)) == 0, "a ring has a power of two");

struct slot {
	int fd;
	unsigned steps; /* requests that the kernel has; 0: the slot is free */
	unsigned done;  /* of these, in order and without an error */
	char name[NAME_BYTES], temporary[NAME_BYTES];
	char *bytes;
	size_t len;
};

struct psv_disk {
	int dir;
	bool async;
	struct psv_ring ring;
	unsigned used;  /* slots */
	size_t pending; /* bytes of these */
	struct slot slot[SLOTS];
};

enum far_status psv_disk_failed(const char *what, const char *name, struct far_err *err)
{
	int code = errno;
	enum far_status status = code == ENOSPC || code == EDQUOT || code == EFBIG ? FAR_RESOURCE : FAR_SYSTEM;
	return pst_fail(err, status, code, "cannot %s %.200s: %s", what, name, strerror(code));
}

struct psv_disk *psv_disk_open(int dir)
{
	struct psv_disk *d = calloc(1, sizeof *d);
	if (!d)
		return NULL;
	d->dir = dir;
	d->async = psv_ring_open(&d->ring, 4 * SLOTS) == 0;
	return d;
}

bool psv_disk_async(const struct psv_disk *d)
{
	return d->async;
}

/* ---- One file by plain calls ---- */

static enum far_status slot_open(struct slot *s, int dir, const char *name, struct far_err *err)
{
	s->steps = s->done = 0;
	snprintf(s->name, sizeof s->name, "%s", name);
	if ((size_t)snprintf(s->temporary, sizeof s->temporary, "%s" PSV_DISK_SUFFIX, name) >= sizeof s->temporary)
		return pst_fail(err, FAR_INVALID, 0, "the name of a file is too long: %.200s", name);
	s->fd = openat(dir, s->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
	return s->fd < 0 ? psv_disk_failed("make", s->temporary, err) : FAR_OK;
}

static enum far_status slot_write(const struct slot *s, int dir, struct far_err *err)
{
	for (size_t at = 0; at < s->len;) {
		ssize_t n = pwrite(s->fd, s->bytes + at, s->len - at, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return psv_disk_failed("write", s->name, err);
		at += (size_t)n;
	}
	if (fsync(s->fd))
		return psv_disk_failed("write", s->name, err);
	if (renameat(dir, s->temporary, dir, s->name))
		return psv_disk_failed("rename", s->temporary, err);
	return FAR_OK;
}

static enum far_status slot_close(struct slot *s, enum far_status status, struct far_err *err)
{
	if (close(s->fd) && !status)
		status = psv_disk_failed("write", s->name, err);
	free(s->bytes);
	s->bytes = NULL;
	return status;
}

enum far_status psv_disk_write(int dir, const char *name, const char *bytes, size_t len, struct far_err *err)
{
	struct slot s = {.bytes = malloc(len + 1), .len = len};
	if (!s.bytes)
		return pst_fail(err, FAR_RESOURCE, 0, "no memory to write %.200s of %zu bytes", name, len);
	memcpy(s.bytes, bytes, len);
	enum far_status status = slot_open(&s, dir, name, err);
	if (status) {
		free(s.bytes);
		return status;
	}
	status = slot_close(&s, slot_write(&s, dir, err), err);
	if (status)
		unlinkat(dir, s.temporary, 0);
	return status;
}

/* ---- By io_uring ---- */

/* A request begins when the one before has ended without an error; a short write is an error, too. */
static void slot_submit(struct psv_disk *d, struct slot *s)
{
	struct io_uring_sqe step[STEPS] = {
		{.opcode = IORING_OP_WRITE,
		 .flags = IOSQE_IO_LINK,
		 .fd = s->fd,
		 .addr = (uintptr_t)s->bytes,
		 .len = (uint32_t)s->len},
		{.opcode = IORING_OP_FSYNC, .flags = IOSQE_IO_LINK, .fd = s->fd},
		{.opcode = IORING_OP_RENAMEAT,
		 .fd = d->dir,
		 .addr = (uintptr_t)s->temporary,
		 .len = (uint32_t)d->dir,
		 .addr2 = (uintptr_t)s->name},
	};
	for (unsigned i = 0; i < STEPS; i++) {
		step[i].user_data = (uint64_t)(s - d->slot) * STEPS + i;
		psv_ring_queue(&d->ring, &step[i]);
	}
	s->steps = psv_ring_submit(&d->ring);
}

/* Takes one completion. */
static struct slot *take(struct psv_disk *d)
{
	struct io_uring_cqe cqe;
	psv_ring_wait(&d->ring, &cqe);
	struct slot *s = &d->slot[cqe.user_data / STEPS];
	unsigned step = (unsigned)(cqe.user_data % STEPS);
	s->done += step == 0 ? cqe.res >= 0 && (size_t)cqe.res == s->len : cqe.res == 0;
	s->steps--;
	return s;
}

/* Ends a file whose requests have ended. What io_uring could not do is done by plain calls, which have the error. */
static enum far_status slot_end(struct psv_disk *d, struct slot *s, struct far_err *err)
{
	enum far_status status = FAR_OK;
	if (s->done < STEPS)
		status = slot_write(s, d->dir, err);
	d->async &= s->done == STEPS; /* it would fail again */
	d->pending -= s->len;
	d->used--;
	return slot_close(s, status, err);
}

/* Waits until at most `files` and `bytes` are on their way. */
static enum far_status drain(struct psv_disk *d, unsigned files, size_t bytes, struct far_err *err)
{
	enum far_status status = FAR_OK;
	while (d->used && (d->used > files || d->pending > bytes)) {
		struct slot *s = take(d);
		if (s->steps)
			continue;
		enum far_status ended = slot_end(d, s, status ? NULL : err);
		status = status ? status : ended;
	}
	return status;
}

static struct slot *free_slot(struct psv_disk *d)
{
	for (unsigned i = 0; i < SLOTS; i++)
		if (!d->slot[i].bytes)
			return &d->slot[i];
	return NULL; /* not reached: drain() has left one */
}

enum far_status psv_disk_put(struct psv_disk *d, const char *name, char *bytes, size_t len, struct far_err *err)
{
	enum far_status status = drain(d, SLOTS - 1, len < BYTES_MAX ? BYTES_MAX - len : 0, err);
	struct slot *s = free_slot(d);
	if (!status)
		status = slot_open(s, d->dir, name, err);
	if (status) {
		free(bytes);
		return status;
	}
	s->bytes = bytes;
	s->len = len;
	d->used++;
	d->pending += len;
	if (d->async && len <= INT32_MAX)
		slot_submit(d, s);
	return s->steps ? FAR_OK : slot_end(d, s, err);
}

enum far_status psv_disk_finish(struct psv_disk *d, struct far_err *err)
{
	return drain(d, 0, 0, err);
}

void psv_disk_close(struct psv_disk *d)
{
	if (!d)
		return;
	(void)drain(d, 0, 0, NULL);
	psv_ring_close(&d->ring);
	free(d);
}
