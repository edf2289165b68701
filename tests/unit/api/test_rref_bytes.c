/* SPDX-License-Identifier: BSD-3-Clause */
/** References as bytes: written, read once, revoked. The test's thread, and fibers of agents that it steps. */
#include "agents_fixture.h"

#include <string.h>

static struct far_rref *r; /* to 7, of w0 */
static uint8_t bytes[FAR_RREF_BYTES];

static void setup(void)
{
	struct far_val v = far_int(7);
	agents_begin(2, NULL);
	cr_assert_eq(far_rref_of(agents[0], &v, &r, &err), FAR_OK);
	for (unsigned i = 0; i < 300; i++)
		agents_turn();
	cr_assert_eq(far_rref_serialize(r, bytes, &err), FAR_OK, "%s", err.text);
}

static void teardown(void)
{
	far_rref_free(r);
	agents_end();
}

TestSuite(api_rref_bytes, .init = setup, .fini = teardown);

static void read_them(void)
{
	struct far_rref *got;
	struct far_val out;
	cr_assert_eq(far_rref_deserialize(agents[1], bytes, sizeof bytes, 0, &got, &err), FAR_OK, "%s", err.text);
	cr_assert(far_rref_same(got, r));
	cr_assert_eq(far_rref_to_here(got, 0, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 7);
	far_rref_free(got);
	cr_assert_eq(far_rref_deserialize(agents[1], bytes, sizeof bytes, 0, &got, &err), FAR_GONE, "%s", err.text);
	cr_assert_str_eq(err.origin, "w0");
}

/* The handle is given back first. Expect the bytes to keep the value, for one reader. */
Test(api_rref_bytes, read_once)
{
	struct far_rref *kept = r;
	agents_run(1, read_them);
	r = NULL;
	far_rref_free(kept);
	cr_assert_eq(far_rref_revoke(agents[0], bytes, sizeof bytes, &err), FAR_GONE);
	cr_assert(strstr(err.text, "claimed or revoked already"), "%s", err.text);
}

Test(api_rref_bytes, as_a_future_after_the_handle_is_gone)
{
	struct far_future *f;
	struct far_val out;
	far_rref_free(r);
	r = NULL;
	for (unsigned i = 0; i < 300; i++)
		agents_turn();
	cr_assert_eq(far_rref_deserialize_async(agents[1], bytes, sizeof bytes, 0, &f, &err), FAR_OK, "%s", err.text);
	agents_until(f);
	cr_assert_eq(far_future_value(f, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.type, FAR_TYPE_RREF);
	cr_assert_eq(far_rref_owner(out.u.rref).worker, 0);
	far_val_fini(&out);
	far_future_free(f);
}

Test(api_rref_bytes, revoked)
{
	struct far_future *f;
	struct far_rref_counts c;
	cr_assert_eq(far_rref_revoke(agents[1], bytes, sizeof bytes, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "worker \"w0\" keeps the reference; call it there"), "%s", err.text);
	cr_assert_eq(far_rref_revoke(agents[0], bytes, sizeof bytes, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_rref_revoke(agents[0], bytes, sizeof bytes, &err), FAR_GONE);
	cr_assert_eq(far_rref_deserialize_async(agents[1], bytes, sizeof bytes, 0, &f, &err), FAR_OK, "%s", err.text);
	agents_until(f);
	cr_assert_eq(far_future_value(f, NULL, &err), FAR_GONE);
	far_future_free(f);
	far_rref_free(r);
	r = NULL;
	for (unsigned i = 0; i < 300; i++)
		agents_turn();
	far_rref_counts_read(agents[0], &c);
	cr_assert_eq(c.owned, 0u, "nothing keeps the value");
}

/* Every byte that this group has not written. Expect INVALID; for those of a former incarnation PEER_LOST. */
Test(api_rref_bytes, bytes_of_others)
{
	uint8_t bad[FAR_RREF_BYTES + 1];
	struct far_future *f = NULL;
	for (size_t len = 0; len <= sizeof bad; len += len == 22 ? 1 : 11) {
		memcpy(bad, bytes, sizeof bytes);
		if (len != sizeof bytes)
			cr_assert_eq(far_rref_deserialize_async(agents[1], bad, len, 0, &f, &err), FAR_INVALID, "%zu",
				     len);
	}
	cr_assert(strstr(err.text, "that far_rref_serialize of this group did not write"), "%s", err.text);
	for (size_t i = 0; i < 16; i++) {
		memcpy(bad, bytes, sizeof bytes);
		bad[i] ^= 0x40;
		cr_assert_eq(far_rref_deserialize_async(agents[1], bad, sizeof bytes, 0, &f, &err),
			     i < 8 ? FAR_INVALID : FAR_PEER_LOST, "byte %zu", i);
		if (i >= 8)
			cr_assert(strstr(err.text, "a former incarnation of worker \"w0\""), "%s", err.text);
		cr_assert_eq(far_rref_revoke(agents[0], bad, sizeof bytes, &err), i < 8 ? FAR_INVALID : FAR_PEER_LOST);
	}
	cr_assert_eq(far_rref_deserialize_async(NULL, bytes, sizeof bytes, 0, &f, &err), FAR_INVALID);
	cr_assert_eq(far_rref_deserialize_async(agents[1], NULL, sizeof bytes, 0, &f, &err), FAR_INVALID);
	cr_assert_eq(far_rref_deserialize(agents[1], bytes, sizeof bytes, 0, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_rref_serialize(NULL, bytes, &err), FAR_INVALID);
	cr_assert_eq(far_rref_serialize(r, NULL, &err), FAR_INVALID);
	cr_assert_null(f);
	agents_run(1, read_them);
}
