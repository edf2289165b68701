/* SPDX-License-Identifier: BSD-3-Clause */
/** Shared memory of a pair and of doorbells: what is made, what is accepted, and that a process maps each once.
 * The test's thread. */
#include "nic/shm/shm.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* True if a mapping of this process begins there. */
static bool is_mapped(const void *at)
{
	char line[512], want[32];
	bool found = false;
	FILE *f = fopen("/proc/self/maps", "r");
	snprintf(want, sizeof want, "%lx-", (unsigned long)(uintptr_t)at);
	while (!found && fgets(line, sizeof line, f))
		found = strncmp(line, want, strlen(want)) == 0;
	fclose(f);
	return found;
}

Test(shm_map, a_pair_is_what_its_header_says)
{
	struct stat st;
	void *map;
	int fd = shm_pair_create();
	cr_assert_geq(fd, 0);
	cr_assert_eq(shm_check_file(fd, SHM_TOTAL_BYTES, &st), 0);
	cr_assert_eq(fcntl(fd, F_GET_SEALS), SEALS);
	cr_assert_eq(ftruncate(fd, 0), -1, "nobody can take memory away");
	cr_assert_eq(shm_pair_map(fd, &map), 0);
	const struct shm_pair *pair = map;
	cr_assert(pair->header.magic == SHM_MAGIC && pair->header.version == SHM_VERSION);
	cr_assert(pair->header.slots == SHM_SLOTS && pair->header.total_bytes == SHM_TOTAL_BYTES);
	cr_assert_eq(atomic_load(&pair->direction[1].consumer.head), 0u);
	((uint8_t *)map)[SHM_TOTAL_BYTES - 1] = 7;
	shm_unmap(map);
	close(fd);
}

/* Both ends of a process see one memory at one address, until the last is gone. */
Test(shm_map, mapped_once_for_all_its_users)
{
	void *first, *second, *third, *other;
	int fd = shm_pair_create(), again = dup(fd), fd_other = shm_pair_create();
	cr_assert_eq(shm_pair_map(fd, &first), 0);
	cr_assert_eq(shm_pair_map(again, &second), 0);
	cr_assert_eq(shm_pair_map(fd_other, &other), 0);
	cr_assert(first == second && first != other);
	shm_unmap(first);
	cr_assert(is_mapped(second), "it has a user");
	((uint8_t *)second)[SHM_TOTAL_BYTES - 1] = 7;
	shm_unmap(second);
	cr_assert_not(is_mapped(second));
	cr_assert(is_mapped(other));
	shm_unmap(first); /* known no more: nothing happens to others */
	cr_assert(is_mapped(other));
	cr_assert_eq(shm_pair_map(fd, &third), 0);
	cr_assert_eq(((uint8_t *)third)[SHM_TOTAL_BYTES - 1], 7, "the memory is the file's");
	shm_unmap(third);
	shm_unmap(other);
	close(fd);
	close(again);
	close(fd_other);
}

/* A child that writes would disturb its parent's rings: it has none. */
Test(shm_map, not_in_a_child)
{
	void *map;
	int status, fd = shm_pair_create();
	cr_assert_eq(shm_pair_map(fd, &map), 0);
	pid_t child = fork();
	if (child == 0)
		_exit(is_mapped(map));
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	shm_unmap(map);
	close(fd);
}

Test(shm_map, doorbells)
{
	struct shm_doorbells *bells, *same;
	void *map;
	struct stat st;
	int fd = shm_bells_create();
	cr_assert_geq(fd, 0);
	cr_assert_eq(shm_check_file(fd, sizeof *bells, &st), 0);
	cr_assert_eq(shm_check_file(fd, sizeof *bells + 1, &st), -EPROTO);
	cr_assert_eq(shm_bells_map(fd, &bells), 0);
	cr_assert_eq(shm_bells_map(fd, &same), 0);
	cr_assert_eq(bells, same);
	shm_bell_ring(bells, SHM_BELLS - 1);
	cr_assert_eq(atomic_load(&same->byte[SHM_BELLS - 1]), 1);
	cr_assert_eq(atomic_load(&same->rung[SHM_BELL_LINES - 1]), 1);
	cr_assert_eq(atomic_load(&same->rung[0]), 0);
	cr_assert_eq(shm_pair_map(fd, &map), -EPROTO, "they are no pair");
	shm_unmap(bells);
	shm_unmap(bells);
	cr_assert_not(is_mapped(bells));
	close(fd);
}

/* A read of what could be truncated, or has no pages, raises SIGBUS: it is refused before it is mapped. */
Test(shm_map, files_that_could_fault)
{
	struct stat st;
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	cr_assert_eq(ftruncate(fd, 8192), 0);
	cr_assert_eq(shm_check_file(fd, 8192, &st), -EPROTO, "no seals");
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	cr_assert_eq(shm_check_file(fd, 8192, &st), -EPROTO, "not all");
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL), 0);
	cr_assert_eq(shm_check_file(fd, 8192, &st), 0);
	cr_assert_eq(st.st_size, 8192);
	cr_assert_eq(shm_check_file(fd, 4096, &st), -EPROTO);
	close(fd);
	int ends[2];
	cr_assert_eq(pipe(ends), 0);
	cr_assert_eq(shm_check_file(ends[0], 0, &st), -EPROTO);
	close(ends[0]);
	close(ends[1]);
	cr_assert_lt(shm_check_file(-1, 0, &st), 0);
}
