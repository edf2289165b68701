/* SPDX-License-Identifier: BSD-3-Clause */
/** The record of a message that is sent in fragments: who may read its parts, and when they are given back. The test's
 * thread, and one that it starts. */
#include "features/rendezvous/rendezvous.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

static unsigned released;
static uint64_t tag_at_release;

static void on_release(void *user)
{
	struct rendezvous_out *o = user;
	tag_at_release = atomic_load(&o->offer.tag);
	released++;
}

static struct rendezvous_out *make(void)
{
	struct rendezvous_out *o = rendezvous_out_new();
	cr_assert_not_null(o);
	o->release = on_release;
	o->release_user = o;
	o->offer.tag = 77;
	released = 0;
	return o;
}

Test(rendezvous_out, the_last_reference_releases)
{
	struct rendezvous_out *o = make();
	rendezvous_out_ref(o);
	rendezvous_out_unref(o);
	cr_assert_eq(released, 0u);
	cr_assert_eq(atomic_load(&o->offer.tag), 77u);
	rendezvous_out_unref(o);
	cr_assert_eq(released, 1u);
	cr_assert_eq(tag_at_release, 0u, "its offer was withdrawn before");
}

Test(rendezvous_out, memory_of_the_engine)
{
	void *at = NULL;
	struct rendezvous_out *o = rendezvous_out_alloc(5000, &at);
	cr_assert(o && at);
	cr_assert(o->parts_n == 1 && o->parts[0].data == at && o->parts[0].len == 5000 && o->total == 5000);
	memset(at, 1, 5000);
	struct far_buf *copy = o->copy;
	buf_ref(copy);
	rendezvous_out_unref(o);
	cr_assert_eq(copy->refs, 1u, "it went with the record");
	buf_unref(copy);
}

/* Fields are kept once, with a reference. */
Test(rendezvous_out, fields)
{
	struct rendezvous_out *o = make();
	struct far_buf *first = buf_alloc(64), *second = buf_alloc(64);
	rendezvous_out_fields(o, NULL);
	cr_assert_null(o->tlv);
	rendezvous_out_fields(o, first);
	rendezvous_out_fields(o, second);
	cr_assert(o->tlv == first && first->refs == 2 && second->refs == 1);
	rendezvous_out_unref(o);
	cr_assert_eq(first->refs, 1u);
	buf_unref(first);
	buf_unref(second);
}

/* Revoked. Expect nobody to read the parts any more, any number of times, and the offer withdrawn. */
Test(rendezvous_out, revoked)
{
	struct rendezvous_out *o = make();
	cr_assert(rendezvous_source_take(o));
	cr_assert_not(rendezvous_source_take(o), "one at a time");
	rendezvous_source_give(o);
	cr_assert(rendezvous_source_take(o));
	rendezvous_source_give(o);
	rendezvous_out_revoke(o);
	cr_assert_not(rendezvous_source_take(o));
	cr_assert_eq(atomic_load(&o->offer.tag), 0u);
	rendezvous_out_revoke(o);
	cr_assert_not(rendezvous_source_take(o));
	rendezvous_out_unref(o);
	cr_assert_eq(released, 1u);
}

static _Atomic int stage;

static void *revoke_it(void *o)
{
	atomic_store(&stage, 1);
	rendezvous_out_revoke(o);
	atomic_store(&stage, 2);
	return NULL;
}

/* Revoked by a thread while another one copies. Expect it to wait for the end of that copy. */
Test(rendezvous_out, a_copy_is_waited_for, .timeout = 60)
{
	struct rendezvous_out *o = make();
	pthread_t t;
	cr_assert(rendezvous_source_take(o));
	cr_assert_eq(pthread_create(&t, NULL, revoke_it, o), 0);
	while (atomic_load(&stage) < 1)
		sched_yield();
	for (unsigned i = 0; i < 1000; i++) {
		sched_yield();
		cr_assert_eq(atomic_load(&stage), 1);
	}
	rendezvous_source_give(o);
	cr_assert_eq(pthread_join(t, NULL), 0);
	cr_assert_eq(atomic_load(&stage), 2);
	cr_assert_not(rendezvous_source_take(o));
	rendezvous_out_unref(o);
}
