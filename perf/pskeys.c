/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Measures how a client of a parameter server finds the distinct keys of an operation. Main thread.
 *
 * usage: pskeys [KEYS]...   time for each key, and the longest turn between two looks at the deadline; default 2000,
 *                           100000 and 10000000 keys
 *
 * Keys are random, all different or each three times on average. Printed is the fastest of the passes.
 */
#include "apps/libps/psv_arena.h"
#include "apps/libps/psv_keys.h"

#include <farcall/ps.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PASSES      7u
#define PASSES_KEYS 2000000u /* of further passes over few keys */

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct pass {
	uint64_t ns, longest; /* in all; of one turn */
};

static struct pass find(struct psv_keys *k)
{
	uint64_t start = now_ns(), before = start, after;
	struct pass p = {0};
	for (bool more = true; more; before = after) {
		more = psv_keys_go_on(k);
		after = now_ns();
		p.longest = after - before > p.longest ? after - before : p.longest;
	}
	p.ns = before - start;
	return p;
}

static int measure(size_t n, size_t different)
{
	struct psv_keys k;
	struct pass least = {.ns = UINT64_MAX};
	uint64_t *keys = malloc(n * sizeof *keys);
	void *memory = aligned_alloc(64, (psv_keys_bytes(n, true) + 63) / 64 * 64);
	if (!keys || !memory) {
		fprintf(stderr, "pskeys: no memory for %zu keys\n", n);
		return 1;
	}
	for (size_t i = 0; i < n; i++)
		keys[i] = pst_hash(different < n ? pst_hash(i + 1) % different : i);
	for (size_t i = 0; i < PASSES + PASSES_KEYS / n; i++) {
		psv_keys_init(&k, memory, keys, 0, n, true);
		struct pass p = find(&k);
		least = p.ns < least.ns ? p : least;
	}
	printf("%9zu keys, %9u distinct: %6.1f ns a key, longest turn %7.1f us\n", n, k.distinct,
	       (double)least.ns / (double)n, (double)least.longest / 1000);
	free(memory);
	free(keys);
	return 0;
}

int main(int argc, char **argv)
{
	static const char *const usual[] = {"2000", "100000", "10000000"};
	const char *const *of = argc > 1 ? (const char *const *)argv + 1 : usual;
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 0; i < (argc > 1 ? argc - 1 : 3); i++) {
		char *end;
		unsigned long long n = strtoull(of[i], &end, 10);
		if (*of[i] < '1' || *of[i] > '9' || *end || n > FAR_PS_KEYS_MAX) {
			fprintf(stderr, "usage: pskeys [KEYS]...   at most %zu\n", FAR_PS_KEYS_MAX);
			return 2;
		}
		int rc = measure(n, n);
		if (rc == 0)
			rc = measure(n, (n + 2) / 3);
		if (rc)
			return rc;
	}
	return 0;
}
