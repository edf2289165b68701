/* SPDX-License-Identifier: BSD-3-Clause */
/** The kernel's random numbers, each a system call, and ids that cost none. Any thread. */
#include "base/random.h"

#include "base/must.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/random.h>

static _Atomic unsigned forks; /* of this process and those that it comes from, since one has drawn an id */

uint64_t random_u64(void)
{
	uint64_t x = 0;
	while (x == 0) {
		ssize_t n = getrandom(&x, sizeof x, 0);
		must(n == (ssize_t)sizeof x || (n < 0 && errno == EINTR));
		if (n < 0)
			x = 0;
	}
	return x;
}

static void forked(void)
{
	atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void count_forks(void)
{
	pthread_atfork(NULL, NULL, forked);
}

/* SplitMix64. */
static uint64_t mixed(uint64_t z)
{
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

uint64_t random_id(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static _Thread_local struct {
		uint64_t state;
		unsigned forks;
		bool seeded;
	} own;
	pthread_once(&once, count_forks);
	unsigned now = atomic_load_explicit(&forks, memory_order_relaxed);
	if (!own.seeded || own.forks != now) {
		own.state = random_u64();
		own.forks = now;
		own.seeded = true;
	}
	uint64_t id = 0;
	while (id == 0)
		id = mixed(own.state += UINT64_C(0x9e3779b97f4a7c15));
	return id;
}

static uint64_t kernel_next(void *ctx)
{
	(void)ctx;
	return random_u64();
}

const struct random_source random_kernel = {kernel_next, 0};
