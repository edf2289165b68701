/* SPDX-License-Identifier: BSD-3-Clause */
/** The text of a reference, and who ends one that several threads drop. The test's thread, and threads that it starts.
 */
#include "base/rref.h"

#include <criterion/criterion.h>
#include <pthread.h>

static struct rref_base of(uint32_t creator, uint64_t number, uint32_t owner)
{
	return (struct rref_base){.refs = 1,
				  .id = {.incarnation = rref_incarnation(creator, 77), .number = number},
				  .owner = rref_incarnation(owner, 88)};
}

Test(rref, text)
{
	char buf[128], small[8];
	struct rref_base r = of(65535, UINT64_C(3) << 56 | 42, 7);
	cr_assert_str_eq(rref_text(&r, buf, sizeof buf), "RRef(created_on=65535, shard=3, local_id=42, owner=7)");
	cr_assert_str_eq(rref_text(&r, small, sizeof small), "RRef(cr", "cut");
}

static _Atomic unsigned ends;

static void ended(struct rref_base *r)
{
	cr_assert_eq(atomic_load(&r->refs), RREF_RELEASING);
	atomic_fetch_add(&ends, 1);
}

static void *drop(void *r)
{
	rref_unref(r);
	return NULL;
}

Test(rref, the_last_of_many_threads_ends_it)
{
	enum { THREADS = 8 };
	for (int round = 0; round < 200; round++) {
		struct rref_base r = of(1, 1, 2);
		pthread_t t[THREADS];
		r.ended = ended;
		ends = 0;
		for (int i = 1; i < THREADS; i++)
			rref_ref(&r);
		for (int i = 0; i < THREADS; i++)
			cr_assert_eq(pthread_create(&t[i], NULL, drop, &r), 0);
		for (int i = 0; i < THREADS; i++)
			pthread_join(t[i], NULL);
		cr_assert_eq(atomic_load(&ends), 1u);
	}
}
