/* SPDX-License-Identifier: BSD-3-Clause */
/** References that were written as bytes, at the worker that keeps them: numbers, ownership, claims. The test's thread,
 * which steps the agents. */
#include "agents_fixture.h"
#include "builtin/rref_bytes.h"

#include <string.h>

enum { MANY = 600 }; /* more than the table has buckets, twice */

static struct rref_keep *keep;
static struct far_rref *r; /* to 7, of w0 */

static void setup(void)
{
	struct far_val v = far_int(7);
	agents_begin(2, NULL);
	keep = rref_keep_create();
	cr_assert_not_null(keep);
	cr_assert_eq(far_rref_of(agents[0], &v, &r, &err), FAR_OK, "%s", err.text);
}

static void teardown(void)
{
	if (keep)
		rref_keep_destroy(keep);
	agents_end();
}

TestSuite(builtin_rref_bytes, .init = setup, .fini = teardown);

static bool owned(void)
{
	struct far_rref_counts c;
	for (unsigned i = 0; i < 300; i++)
		agents_turn();
	far_rref_counts_read(agents[0], &c);
	return c.owned == 1;
}

/* Expect each number once, whatever is kept beside it. */
Test(builtin_rref_bytes, numbers)
{
	uint64_t numbers[MANY];
	for (unsigned i = 0; i < MANY; i++) {
		cr_assert_eq(rref_keep_put(keep, r, &numbers[i]), FAR_OK);
		cr_assert_eq(numbers[i], i + 1);
	}
	cr_assert_null(rref_keep_take(keep, 0));
	cr_assert_null(rref_keep_take(keep, MANY + 1));
	for (unsigned i = 0; i < MANY; i += 3) {
		struct far_rref *got = rref_keep_take(keep, numbers[i]);
		cr_assert_eq(got, r);
		far_rref_free(got);
		cr_assert_null(rref_keep_take(keep, numbers[i]), "taken already");
	}
	for (unsigned i = 0; i < MANY; i++)
		if (i % 3)
			far_rref_free(rref_keep_take(keep, numbers[i]));
	cr_assert(owned());
	far_rref_free(r);
	cr_assert_not(owned(), "no reference is left");
}

/* What nobody claimed is freed at the end; until then it keeps the value. */
Test(builtin_rref_bytes, kept_until_the_end)
{
	uint64_t number;
	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(rref_keep_put(keep, r, &number), FAR_OK);
	far_rref_free(r);
	cr_assert(owned());
	rref_keep_destroy(keep);
	keep = NULL;
	cr_assert_not(owned());
}

static struct far_future *claim(uint64_t number)
{
	struct far_future *f;
	cr_assert_eq(far_rpc_async(agents[1], "w0", "far::rref_claim", FAR_ARGS((int64_t)number), NULL, &f, &err),
		     FAR_OK, "%s", err.text);
	agents_until(f);
	return f;
}

/* The claimer has the reference. Expect an error for a second one. */
Test(builtin_rref_bytes, claimed_once)
{
	struct far_val out;
	uint64_t number;
	cr_assert_eq(rref_keep_put(agents[0]->kept, r, &number), FAR_OK);
	far_rref_free(r);
	struct far_future *first = claim(number), *second = claim(number);
	cr_assert_eq(far_future_value(first, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.type, FAR_TYPE_RREF);
	cr_assert_eq(far_rref_owner(out.u.rref).worker, 0);
	cr_assert_eq(far_future_value(second, NULL, &err), FAR_GONE);
	cr_assert_str_eq(err.text,
			 "worker \"w0\" keeps no reference under number 1: it was claimed or revoked already");
	cr_assert(owned());
	far_val_fini(&out);
	far_future_free(first);
	far_future_free(second);
	cr_assert_not(owned());
}
