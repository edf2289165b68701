/* SPDX-License-Identifier: BSD-3-Clause */
/** Ids of a thread's generator: never 0, none twice, in other threads and forked processes others. */
#include "base/random.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { IDS = 10000, SOURCES = 3 };

static void draw(uint64_t *ids)
{
	for (unsigned i = 0; i < IDS; i++)
		ids[i] = random_id();
}

static void *draw_in_thread(void *ids)
{
	draw(ids);
	return NULL;
}

static void draw_in_child(uint64_t *ids)
{
	int fds[2];
	cr_assert_eq(pipe(fds), 0);
	pid_t child = fork();
	if (child == 0) {
		draw(ids);
		for (size_t done = 0; done < IDS * sizeof *ids;) {
			ssize_t n = write(fds[1], (char *)ids + done, IDS * sizeof *ids - done);
			if (n <= 0)
				_exit(1);
			done += (size_t)n;
		}
		_exit(0);
	}
	cr_assert_gt(child, 0);
	close(fds[1]);
	for (size_t done = 0; done < IDS * sizeof *ids;) {
		ssize_t n = read(fds[0], (char *)ids + done, IDS * sizeof *ids - done);
		cr_assert_gt(n, 0);
		done += (size_t)n;
	}
	close(fds[0]);
	cr_assert_eq(waitpid(child, NULL, 0), child);
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

Test(random, ids_differ)
{
	static uint64_t ids[SOURCES * IDS];
	pthread_t thread;
	(void)random_id(); /* the generator that a child would inherit */
	draw_in_child(ids);
	draw(ids + IDS);
	cr_assert_eq(pthread_create(&thread, NULL, draw_in_thread, ids + 2 * IDS), 0);
	pthread_join(thread, NULL);
	qsort(ids, SOURCES * IDS, sizeof *ids, by_value);
	cr_assert_neq(ids[0], 0u);
	for (unsigned i = 1; i < SOURCES * IDS; i++)
		cr_assert_neq(ids[i], ids[i - 1]);
}
