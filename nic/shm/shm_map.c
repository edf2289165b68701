/* SPDX-License-Identifier: BSD-3-Clause */
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

#define PAIR_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Pairs mapped by this process. Slow path: set-up and tear-down only. */
struct mapping {
	struct mapping *next;
	dev_t dev;
	ino_t ino;
	void *map;
	unsigned users;
};
static pthread_mutex_t mappings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping *mappings;

int shm_pair_create(void)
{
	int fd = memfd_create("farcall-pair", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	struct shm_header header = {
		.magic = SHM_MAGIC,
		.version = SHM_VERSION,
		.slots = SHM_SLOTS,
		.bulk_bytes = SHM_BULK_BYTES,
		.total_bytes = SHM_TOTAL_BYTES,
	};
	int error;
	if (ftruncate(fd, (off_t)SHM_TOTAL_BYTES) == 0 && pwrite(fd, &header, sizeof header, 0) == sizeof header &&
	    fcntl(fd, F_ADD_SEALS, PAIR_SEALS) == 0)
		return fd;
	error = errno ? -errno : -EIO;
	close(fd);
	return error;
}

static int check(int fd, struct stat *st)
{
	struct shm_header header;
	int seals = fcntl(fd, F_GET_SEALS);
	/* Without the seals a peer could truncate the file under us, and a read would be a bus error. */
	if (seals < 0 || (seals & PAIR_SEALS) != PAIR_SEALS)
		return -EPROTO;
	struct statfs fs;
	if (fstat(fd, st) < 0 || fstatfs(fd, &fs) < 0)
		return -errno;
	/* Huge pages could be missing when they are touched, which is a bus error too. */
	if (fs.f_type != TMPFS_MAGIC)
		return -EPROTO;
	if (st->st_size != (off_t)SHM_TOTAL_BYTES || pread(fd, &header, sizeof header, 0) != sizeof header)
		return -EPROTO;
	if (header.magic != SHM_MAGIC || header.version != SHM_VERSION || header.slots != SHM_SLOTS ||
	    header.bulk_bytes != SHM_BULK_BYTES || header.total_bytes != SHM_TOTAL_BYTES)
		return -EPROTO;
	return 0;
}

int shm_pair_map(int fd, void **map)
{
	struct stat st;
	int error = check(fd, &st);
	if (error)
		return error;
	pthread_mutex_lock(&mappings_lock);
	struct mapping *m = mappings;
	while (m && (m->dev != st.st_dev || m->ino != st.st_ino))
		m = m->next;
	if (!m) {
		m = calloc(1, sizeof *m);
		void *at = m ? mmap(NULL, SHM_TOTAL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
		if (at == MAP_FAILED) {
			free(m);
			pthread_mutex_unlock(&mappings_lock);
			return -ENOMEM;
		}
		/* A child of fork() must not write into our rings. */
		madvise(at, SHM_TOTAL_BYTES, MADV_DONTFORK);
		*m = (struct mapping){.next = mappings, .dev = st.st_dev, .ino = st.st_ino, .map = at};
		mappings = m;
	}
	m->users++;
	*map = m->map;
	pthread_mutex_unlock(&mappings_lock);
	return 0;
}

void shm_pair_unmap(void *map)
{
	pthread_mutex_lock(&mappings_lock);
	for (struct mapping **at = &mappings; *at; at = &(*at)->next) {
		struct mapping *m = *at;
		if (m->map != map)
			continue;
		if (--m->users == 0) {
			munmap(map, SHM_TOTAL_BYTES);
			*at = m->next;
			free(m);
		}
		break;
	}
	pthread_mutex_unlock(&mappings_lock);
}
