/* SPDX-License-Identifier: BSD-3-Clause */
/** Creates, checks and maps the shared memory. Control thread. */
#include "nic/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* The mappings of this process. Used at set-up and tear-down only. */
struct mapping {
	struct mapping *next;
	dev_t dev;
	ino_t ino;
	void *map;
	size_t bytes;
	unsigned users;
};
static pthread_mutex_t mappings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping *mappings;

static int create(const char *name, size_t bytes, const void *header, size_t header_bytes)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	errno = 0;
	if (ftruncate(fd, (off_t)bytes) == 0 && pwrite(fd, header, header_bytes, 0) == (ssize_t)header_bytes &&
	    fcntl(fd, F_ADD_SEALS, SEALS) == 0)
		return fd;
	int error = errno ? -errno : -EIO;
	close(fd);
	return error;
}

int shm_check_file(int fd, uint64_t bytes, struct stat *st)
{
	int seals = fcntl(fd, F_GET_SEALS);
	/* Without the seals a peer could truncate the file, and a read would raise SIGBUS. */
	if (seals < 0 || (seals & SEALS) != SEALS)
		return -EPROTO;
	struct statfs fs;
	if (fstat(fd, st) < 0 || fstatfs(fd, &fs) < 0)
		return -errno;
	/* Huge pages could be missing when they are touched, which raises SIGBUS, too. */
	return fs.f_type == TMPFS_MAGIC && st->st_size >= 0 && (uint64_t)st->st_size == bytes ? 0 : -EPROTO;
}

/* Checks a received memfd and copies its header out, once. */
static int check(int fd, size_t bytes, void *header, size_t header_bytes, struct stat *st)
{
	int error = shm_check_file(fd, bytes, st);
	if (!error && pread(fd, header, header_bytes, 0) != (ssize_t)header_bytes)
		error = -EPROTO;
	return error;
}

static int map_shared(int fd, size_t bytes, const struct stat *st, void **map)
{
	pthread_mutex_lock(&mappings_lock);
	struct mapping *m = mappings;
	while (m && (m->dev != st->st_dev || m->ino != st->st_ino || m->bytes != bytes))
		m = m->next;
	if (!m) {
		m = calloc(1, sizeof *m);
		void *at = m ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
		if (at == MAP_FAILED) {
			free(m);
			pthread_mutex_unlock(&mappings_lock);
			return -ENOMEM;
		}
		/* A forked child must not write into our rings. */
		madvise(at, bytes, MADV_DONTFORK);
		*m = (struct mapping){
			.next = mappings, .dev = st->st_dev, .ino = st->st_ino, .map = at, .bytes = bytes};
		mappings = m;
	}
	m->users++;
	*map = m->map;
	pthread_mutex_unlock(&mappings_lock);
	return 0;
}

void shm_unmap(void *map)
{
	pthread_mutex_lock(&mappings_lock);
	for (struct mapping **at = &mappings; *at; at = &(*at)->next) {
		struct mapping *m = *at;
		if (m->map != map)
			continue;
		if (--m->users == 0) {
			munmap(map, m->bytes);
			*at = m->next;
			free(m);
		}
		break;
	}
	pthread_mutex_unlock(&mappings_lock);
}

int shm_pair_create(void)
{
	struct shm_header header = {
		.magic = SHM_MAGIC,
		.version = SHM_VERSION,
		.slots = SHM_SLOTS,
		.bulk_bytes = SHM_BULK_BYTES,
		.total_bytes = SHM_TOTAL_BYTES,
	};
	return create("farcall-pair", SHM_TOTAL_BYTES, &header, sizeof header);
}

int shm_pair_map(int fd, void **map)
{
	struct stat st;
	struct shm_header header;
	int error = check(fd, SHM_TOTAL_BYTES, &header, sizeof header, &st);
	if (error)
		return error;
	if (header.magic != SHM_MAGIC || header.version != SHM_VERSION || header.slots != SHM_SLOTS ||
	    header.bulk_bytes != SHM_BULK_BYTES || header.total_bytes != SHM_TOTAL_BYTES)
		return -EPROTO;
	return map_shared(fd, SHM_TOTAL_BYTES, &st, map);
}

/* The first fields of struct shm_doorbells. */
struct bells_header {
	uint64_t magic;
	uint32_t version, bells;
};

int shm_bells_create(void)
{
	struct bells_header header = {SHM_MAGIC, SHM_VERSION, SHM_BELLS};
	return create("farcall-bells", sizeof(struct shm_doorbells), &header, sizeof header);
}

int shm_bells_map(int fd, struct shm_doorbells **bells)
{
	struct stat st;
	struct bells_header header;
	void *map;
	int error = check(fd, sizeof(struct shm_doorbells), &header, sizeof header, &st);
	if (error)
		return error;
	if (header.magic != SHM_MAGIC || header.version != SHM_VERSION || header.bells != SHM_BELLS)
		return -EPROTO;
	error = map_shared(fd, sizeof(struct shm_doorbells), &st, &map);
	if (!error)
		*bells = map;
	return error;
}
