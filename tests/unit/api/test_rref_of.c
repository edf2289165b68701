/* SPDX-License-Identifier: BSD-3-Clause */
/** References to values and objects that are here already. The test's thread, and fibers of agents that it steps. */
#include "agents_fixture.h"

#include <farcall/object.h>
#include <string.h>

static int thing, destroyed;

static enum far_status make_thing(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_return_object(req, &thing);
}

static void destroy(void *object, void *user)
{
	cr_assert_eq(object, &thing);
	destroyed++;
}

static void setup(void)
{
	static const struct far_function constructor = {"t::Thing() -> t::Thing", FAR_KIND_INLINE, make_thing, NULL};
	static const struct far_class cls = {
		.name = "t::Thing", .constructors = &constructor, .constructors_n = 1, .destroy = destroy};
	const struct far_opts opts = {.classes = &cls, .classes_n = 1};
	agents_begin(2, &opts);
}

TestSuite(api_rref_of, .init = setup, .fini = agents_end);

static void turns(void)
{
	for (unsigned i = 0; i < 300; i++)
		agents_turn();
}

static void expect_counts(uint64_t owned, uint64_t held)
{
	struct far_rref_counts c;
	far_rref_counts_read(agents[0], &c);
	cr_assert(c.owned == owned && c.held == held, "%u owned, %u held", (unsigned)c.owned, (unsigned)c.held);
}

Test(api_rref_of, a_value_is_copied)
{
	char text[] = "a text";
	struct far_val v = far_str(text), out;
	struct far_rref *r;
	cr_assert_eq(far_rref_of(agents[0], &v, &r, &err), FAR_OK, "%s", err.text);
	text[0] = 'A';
	cr_assert_not(far_rref_confirmed_by_owner(r), "a moment later");
	turns();
	cr_assert(far_rref_confirmed_by_owner(r) && far_rref_is_owner(r));
	cr_assert_str_eq(far_rref_owner_name(r), "w0");
	cr_assert(far_rref_may_be(r, FAR_TYPE_STRING) && !far_rref_may_be(r, FAR_TYPE_INT));
	cr_assert_eq(far_rref_local_value(r, 0, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_str_eq(out.u.s.data, "a text");
	far_val_fini(&out);
	expect_counts(1, 1);
	far_rref_free(r);
	turns();
	expect_counts(0, 0);
}

/* A value with memory of its own. Expect that memory shared, and given back with the last reference. */
Test(api_rref_of, memory_of_a_value_is_shared)
{
	static uint8_t bytes[5000];
	struct far_val plain = far_bytes(bytes, sizeof bytes), own, out;
	struct far_rref *r;
	cr_assert_eq(far_val_dup(&plain, &own, &err), FAR_OK);
	const struct far_buf *buf = own.own;
	cr_assert_eq(far_rref_of(agents[0], &own, &r, &err), FAR_OK, "%s", err.text);
	cr_assert_gt(buf->refs, 1u);
	turns();
	cr_assert_eq(far_rref_local_value(r, 0, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.s.data, own.u.s.data);
	far_val_fini(&out);
	far_rref_free(r);
	turns();
	cr_assert_eq(buf->refs, 1u);
	far_val_fini(&own);
}

static struct far_rref *shared;

static void fetch(void)
{
	struct far_val out;
	cr_assert_eq(far_rpc_sync(agents[0], "w1", "far::identity", FAR_ARGS(shared), NULL, &out, &err), FAR_OK, "%s",
		     err.text);
	cr_assert(far_rref_same(out.u.rref, shared), "it comes home");
	far_val_fini(&out);
}

Test(api_rref_of, others_may_have_it)
{
	struct far_val v = far_int(7);
	cr_assert_eq(far_rref_of(agents[0], &v, &shared, &err), FAR_OK, "%s", err.text);
	agents_run(0, fetch);
	far_rref_free(shared);
	turns();
	expect_counts(0, 0);
}

Test(api_rref_of, an_object_belongs_to_the_engine)
{
	struct far_rref *r;
	destroyed = 0;
	cr_assert_eq(far_rref_of_object(agents[0], "t::Thing", &thing, &r, &err), FAR_OK, "%s", err.text);
	turns();
	cr_assert(far_rref_confirmed_by_owner(r));
	cr_assert_str_eq(far_rref_class(r), "t::Thing");
	far_rref_free(r);
	cr_assert_eq(destroyed, 0, "its destructor is the shard's");
	turns();
	cr_assert_eq(destroyed, 1);
	expect_counts(0, 0);
}

Test(api_rref_of, bad_input)
{
	struct far_val v = far_int(1), bad = {.type = 77};
	struct far_rref *r = NULL;
	destroyed = 0;
	cr_assert_eq(far_rref_of(NULL, &v, &r, &err), FAR_INVALID);
	cr_assert_eq(far_rref_of(agents[0], NULL, &r, &err), FAR_INVALID);
	cr_assert_eq(far_rref_of(agents[0], &v, NULL, &err), FAR_INVALID);
	cr_assert_neq(far_rref_of(agents[0], &bad, &r, NULL), FAR_OK);
	cr_assert_eq(far_rref_of_object(agents[0], "t::None", &thing, &r, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "class t::None is not registered here: far_register_class()"), "%s", err.text);
	cr_assert_eq(far_rref_of_object(agents[0], NULL, &thing, &r, &err), FAR_INVALID);
	cr_assert_null(r);
	turns();
	cr_assert_eq(destroyed, 0, "the object is the caller's");
	expect_counts(0, 0);
}
