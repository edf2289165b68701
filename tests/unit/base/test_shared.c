/* SPDX-License-Identifier: BSD-3-Clause */
/** Memories that peers may map: what the table finds, what the seals forbid, what the kernel refuses.
 * The test's thread. */
#include "base/shared.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static uint8_t *alloc(size_t bytes)
{
	int error = 1;
	uint8_t *p = shared_alloc(bytes, &error);
	cr_assert(p && !error, "error %d", error);
	return p;
}

Test(shared, a_range_is_found_in_the_memory_that_holds_all_of_it)
{
	uint32_t key_a, key_b, key = 1;
	uint64_t offset = 1, page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint8_t *a = alloc(3 * page - 5), *b = alloc(1);
	cr_assert_eq(shared_size(a), 3 * page);
	cr_assert_eq(shared_size(b), page);
	cr_assert_eq(shared_size(a + 1), 0u);
	cr_assert_eq(shared_size(&key), 0u);
	cr_assert(shared_find(a, 3 * page, &key_a, &offset));
	cr_assert_eq(offset, 0u);
	cr_assert(shared_find(a + 5, 3 * page - 5, &key, &offset));
	cr_assert_eq(key, key_a);
	cr_assert_eq(offset, 5u);
	cr_assert(shared_find(a + 3 * page - 1, 1, &key, &offset));
	cr_assert_not(shared_find(a + 5, 3 * page - 4, &key, &offset));
	cr_assert_not(shared_find(a, SIZE_MAX, &key, &offset));
	cr_assert(shared_find(b, 1, &key_b, &offset));
	cr_assert_neq(key_a, key_b);
	cr_assert_eq(shared_key(SHARED_SLOT(key_b)), key_b);
	cr_assert_not(shared_free(a + 1), "not its first byte");
	cr_assert(shared_free(a));
	cr_assert_not(shared_free(a));
	cr_assert(shared_free(b));
	cr_assert_not(shared_find(b, 1, &key, &offset));
}

/* A later memory of a slot has another key: a peer's old one names nothing. */
Test(shared, keys_are_not_used_twice)
{
	uint32_t before = 0, key;
	uint64_t offset, bytes;
	for (unsigned i = 0; i < 3; i++) {
		uint8_t *a = alloc(1);
		cr_assert(shared_find(a, 1, &key, &offset));
		cr_assert(key >= FAR_SHARED_MAX && key < SHARED_KEY_END);
		cr_assert_neq(key, before);
		cr_assert(!before || SHARED_SLOT(key) == SHARED_SLOT(before));
		cr_assert(!before || shared_fd(before, &bytes) == -ESTALE);
		int fd = shared_fd(key, &bytes);
		cr_assert(fd >= 0 && bytes == (uint64_t)sysconf(_SC_PAGESIZE));
		close(fd);
		shared_free(a);
		cr_assert_eq(shared_fd(key, &bytes), -ESTALE);
		before = key;
	}
	cr_assert_eq(shared_fd(0, &bytes), -ESTALE);
}

/* With the descriptor a peer reads, and can neither write nor truncate nor punch holes. */
Test(shared, what_the_seals_forbid)
{
	uint32_t key;
	uint64_t offset, bytes;
	uint8_t *a = alloc(10000);
	shared_find(a, 1, &key, &offset);
	int fd = shared_fd(key, &bytes);
	cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	cr_assert_eq(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	cr_assert_eq(ftruncate(fd, 0), -1);
	cr_assert_eq(ftruncate(fd, (off_t)bytes * 2), -1);
	cr_assert_eq(pwrite(fd, "x", 1, 0), -1);
	cr_assert_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	const uint8_t *seen = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	cr_assert_neq((const void *)seen, MAP_FAILED);
	close(fd);
	a[9999] = 7;
	cr_assert_eq(seen[9999], 7);
	cr_assert(shared_free(a));
	cr_assert_eq(seen[9999], 7, "the peer's mapping stays");
}

Test(shared, as_many_as_there_are_slots)
{
	uint8_t *all[FAR_SHARED_MAX];
	int error = 0;
	for (unsigned i = 0; i < FAR_SHARED_MAX; i++)
		all[i] = alloc(1);
	cr_assert_null(shared_alloc(1, &error));
	cr_assert_eq(error, -ENOSPC);
	shared_free(all[17]);
	all[17] = alloc(1);
	for (unsigned i = 0; i < FAR_SHARED_MAX; i++)
		cr_assert(shared_free(all[i]));
}

Test(shared, sizes_and_descriptors_that_are_not_to_be_had)
{
	int error = 0;
	struct rlimit files = {3, 3};
	cr_assert_null(shared_alloc(0, &error));
	cr_assert_eq(error, -EINVAL);
	cr_assert_null(shared_alloc(SHARED_BYTES_MAX + 1, &error));
	cr_assert_eq(error, -EINVAL);
	pid_t pid = fork(); /* criterion needs descriptors */
	if (pid == 0) {
		for (int fd = 3; fd < 64; fd++)
			close(fd);
		_exit(setrlimit(RLIMIT_NOFILE, &files) || shared_alloc(1, &error) || error != -EMFILE);
	}
	int status = 1;
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0);
}

Test(shared, watchers_are_notified_of_each_free)
{
	uint64_t count = 0;
	int fd = eventfd(0, EFD_NONBLOCK);
	cr_assert_eq(shared_watch(fd), 0);
	shared_free(alloc(1));
	cr_assert_eq(read(fd, &count, sizeof count), (ssize_t)sizeof count);
	cr_assert_not(shared_free(&count));
	cr_assert_eq(read(fd, &count, sizeof count), -1);
	shared_unwatch(fd);
	shared_free(alloc(1));
	cr_assert_eq(read(fd, &count, sizeof count), -1);
	for (unsigned i = 0; i < 64; i++)
		cr_assert_eq(shared_watch(fd), 0);
	cr_assert_eq(shared_watch(fd), -ENOSPC);
	for (unsigned i = 0; i < 64; i++)
		shared_unwatch(fd);
	close(fd);
}
