/* SPDX-License-Identifier: BSD-3-Clause */
/** The table of memories that peers on the host may map. Any thread: changes under a lock, lookups without one. */
#include "base/shared.h"

#include "base/must.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#define WATCHERS_MAX 64

/* A peer maps it read-only, and cannot get more: not by write(), not by a writable mapping, not by a hole. */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)

/* Writer: the holder of the lock. `key` is stored last, with release, and cleared first: a reader that finds one key
 * before and after has read the fields of that memory. */
static struct entry {
	_Atomic uint32_t key; /* 0: free */
	_Atomic uintptr_t at;
	_Atomic uint64_t bytes;
	int fd;
	uint32_t turn; /* number of the last memory in this slot */
} table[FAR_SHARED_MAX];
static _Atomic unsigned slots_n; /* slots from here on were never used */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int watchers[WATCHERS_MAX];
static unsigned watchers_n;

static int create(size_t bytes, void **at)
{
	int fd = memfd_create("farcall-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	void *m = ftruncate(fd, (off_t)bytes) < 0 ? MAP_FAILED
						  : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m != MAP_FAILED && fcntl(fd, F_ADD_SEALS, SEALS) == 0) {
		madvise(m, bytes, MADV_DONTFORK); /* a forked child would write into our memory */
		*at = m;
		return fd;
	}
	int error = -errno;
	if (m != MAP_FAILED)
		munmap(m, bytes);
	close(fd);
	return error;
}

/* A slot whose keys are not used up; FAR_SHARED_MAX: none. */
static unsigned free_slot(void)
{
	unsigned slot = 0;
	while (slot < FAR_SHARED_MAX && (atomic_load_explicit(&table[slot].key, memory_order_relaxed) ||
					 (table[slot].turn + 2) * FAR_SHARED_MAX > SHARED_KEY_END))
		slot++;
	return slot;
}

void *shared_alloc(size_t bytes, int *error)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *at = NULL;
	*error = -EINVAL;
	if (bytes == 0 || bytes > SHARED_BYTES_MAX)
		return NULL;
	bytes = (bytes + page - 1) / page * page;
	pthread_mutex_lock(&lock);
	unsigned slot = free_slot();
	struct entry *e = &table[slot % FAR_SHARED_MAX];
	int fd = slot < FAR_SHARED_MAX ? create(bytes, &at) : -ENOSPC;
	if (fd >= 0) {
		e->fd = fd;
		atomic_store_explicit(&e->at, (uintptr_t)at, memory_order_relaxed);
		atomic_store_explicit(&e->bytes, bytes, memory_order_relaxed);
		atomic_store_explicit(&e->key, ++e->turn * FAR_SHARED_MAX + slot, memory_order_release);
		if (slot >= atomic_load_explicit(&slots_n, memory_order_relaxed))
			atomic_store_explicit(&slots_n, slot + 1, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
	*error = fd < 0 ? fd : 0;
	return at;
}

/* The entry of [at, at + len), and its key. */
static struct entry *find(uintptr_t at, size_t len, uint32_t *key, uint64_t *offset)
{
	unsigned n = atomic_load_explicit(&slots_n, memory_order_acquire);
	for (unsigned i = 0; i < n; i++) {
		struct entry *e = &table[i];
		uint32_t seen = atomic_load_explicit(&e->key, memory_order_acquire);
		uint64_t from = at - atomic_load_explicit(&e->at, memory_order_relaxed);
		uint64_t bytes = atomic_load_explicit(&e->bytes, memory_order_relaxed);
		if (!seen || from >= bytes || len > bytes - from)
			continue;
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load_explicit(&e->key, memory_order_relaxed) != seen)
			continue;
		*key = seen;
		*offset = from;
		return e;
	}
	return NULL;
}

bool shared_find(const void *at, size_t len, uint32_t *key, uint64_t *offset)
{
	return find((uintptr_t)at, len, key, offset) != NULL;
}

size_t shared_size(const void *at)
{
	uint32_t key;
	uint64_t offset;
	const struct entry *e = find((uintptr_t)at, 1, &key, &offset);
	return e && !offset ? atomic_load_explicit(&e->bytes, memory_order_relaxed) : 0;
}

uint32_t shared_key(unsigned slot)
{
	return atomic_load_explicit(&table[slot].key, memory_order_acquire);
}

bool shared_free(void *at)
{
	uint32_t key;
	uint64_t offset = 1, one = 1;
	pthread_mutex_lock(&lock);
	struct entry *e = find((uintptr_t)at, 1, &key, &offset);
	if (e && !offset) {
		atomic_store_explicit(&e->key, 0, memory_order_relaxed);
		atomic_thread_fence(memory_order_release); /* before the fields of the next one; pairs with find() */
		munmap(at, atomic_load_explicit(&e->bytes, memory_order_relaxed));
		close(e->fd);
		for (unsigned i = 0; i < watchers_n; i++)
			must(write(watchers[i], &one, sizeof one) == sizeof one || errno == EAGAIN);
	}
	pthread_mutex_unlock(&lock);
	return e && !offset;
}

int shared_fd(uint32_t key, uint64_t *bytes)
{
	struct entry *e = &table[SHARED_SLOT(key)];
	int fd = -ESTALE;
	pthread_mutex_lock(&lock);
	if (key && atomic_load_explicit(&e->key, memory_order_relaxed) == key) {
		*bytes = atomic_load_explicit(&e->bytes, memory_order_relaxed);
		fd = fcntl(e->fd, F_DUPFD_CLOEXEC, 0);
		fd = fd < 0 ? -errno : fd;
	}
	pthread_mutex_unlock(&lock);
	return fd;
}

int shared_watch(int fd)
{
	pthread_mutex_lock(&lock);
	int error = watchers_n < WATCHERS_MAX ? 0 : -ENOSPC;
	if (!error)
		watchers[watchers_n++] = fd;
	pthread_mutex_unlock(&lock);
	return error;
}

void shared_unwatch(int fd)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < watchers_n; i++)
		if (watchers[i] == fd) {
			watchers[i] = watchers[--watchers_n];
			break;
		}
	pthread_mutex_unlock(&lock);
}
