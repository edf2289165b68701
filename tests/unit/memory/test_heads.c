/* SPDX-License-Identifier: BSD-3-Clause */
/** Pieces of shared memory for descriptors: bounded, used again, none in a forked child. The test's thread. */
#include "memory/heads.h"

#include "base/shared.h"

#include <criterion/criterion.h>
#include <farcall/memory.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* As the first shared memory of a process does. */
static void make(void)
{
	void *p = far_alloc_shared(1, NULL);
	cr_assert(p);
	far_free(p);
}

Test(heads, there_are_none_before_they_are_made)
{
	cr_assert_null(head_take());
}

Test(heads, each_is_its_own_and_comes_back)
{
	uint8_t *taken[HEADS_MAX];
	uint32_t key;
	uint64_t offset;
	make();
	make();
	for (unsigned i = 0; i < HEADS_MAX; i++) {
		taken[i] = head_take();
		cr_assert(taken[i]);
		cr_assert_eq((uintptr_t)taken[i] % 64, 0u);
		cr_assert(shared_find(taken[i], HEAD_BYTES, &key, &offset), "peers can map it");
		memset(taken[i], (int)i, HEAD_BYTES);
	}
	cr_assert_null(head_take());
	for (unsigned i = 0; i < HEADS_MAX; i++)
		cr_assert(taken[i][0] == i && taken[i][HEAD_BYTES - 1] == i);
	head_give(taken[5]);
	cr_assert_eq(head_take(), taken[5]);
	cr_assert_null(head_take());
}

/* The memory is not the child's. */
Test(heads, a_forked_child_has_none)
{
	make();
	void *ours = head_take();
	cr_assert(ours);
	pid_t pid = fork();
	if (pid == 0)
		_exit(head_take() != NULL);
	int status = 1;
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0);
	head_give(ours);
	cr_assert_not_null(head_take());
}
