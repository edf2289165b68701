/* SPDX-License-Identifier: BSD-3-Clause */
/** Futures without any agent: callbacks, collections, waits for several, and bad input.
 * The test's thread, and threads that it starts. */
#include "agent/agent.h"
#include "base/clock.h"
#include "base/limits.h"
#include "user_futures.h"

#include <criterion/criterion.h>
#include <farcall/farcall.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* ---- callbacks ---- */

struct log {
	unsigned n;
	int entries[8];
};

static void record(struct far_future *f, void *user)
{
	struct log *log = user;
	cr_assert_eq(far_future_wait(f, 0, NULL, NULL), FAR_OK, "waiting for the parent is fine");
	log->entries[log->n++] = (int)get_int(f);
}

static enum far_status plus_one(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	enum far_status status = far_future_value(parent, out, e);
	if (!status)
		out->u.i++;
	return status;
}

static enum far_status hand_on(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	return far_future_value(parent, out, e);
}

static enum far_status fails(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	*out = far_int(3);
	if (user) {
		snprintf(e->text, sizeof e->text, "%s", (const char *)user);
		e->code = 17;
	}
	return FAR_BAD_ARGS;
}

static struct far_future *then(struct far_future *f, far_then_fn *fn, void *user)
{
	struct far_future *child = NULL;
	cr_assert_eq(far_future_then(f, fn, user, &child, &err), FAR_OK);
	cr_assert_not_null(child);
	return child;
}

Test(then, completes_the_child_with_what_the_callback_returns)
{
	char text[] = "the text of the callback";
	for (int done_before = 0; done_before < 2; done_before++) {
		struct far_future *f = make();
		if (done_before)
			set_int(f, 41);
		struct far_future *child = then(f, plus_one, NULL), *grandchild = then(child, plus_one, NULL);
		struct far_future *bad = then(f, fails, text), *worse = then(bad, hand_on, NULL);
		struct far_future *silent = then(f, fails, NULL);
		cr_assert_eq(far_future_done(child), done_before);
		if (!done_before)
			set_int(f, 41);
		far_future_free(f);
		cr_assert_eq(get_int(child), 42);
		cr_assert_eq(get_int(grandchild), 43);
		cr_assert_eq(far_future_wait(bad, 0, NULL, &err), FAR_BAD_ARGS);
		cr_assert_str_eq(err.text, "the text of the callback");
		cr_assert_eq(far_future_wait(worse, 0, NULL, &err), FAR_BAD_ARGS);
		cr_assert_str_eq(err.text, "the text of the callback");
		cr_assert_eq(err.code, 17);
		cr_assert_eq(far_future_wait(silent, 0, NULL, &err), FAR_BAD_ARGS);
		cr_assert(err.text[0]);
		cr_assert_eq(far_future_set_value(child, NULL, &err), FAR_INVALID, "a child is not user-made");
		struct far_future *all[] = {child, grandchild, bad, worse, silent};
		for (int i = 0; i < 5; i++)
			far_future_free(all[i]);
	}
}

static enum far_status long_text(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	*out = far_str(user);
	return FAR_OK;
}

static enum far_status invalid_value(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	out->type = 77;
	return FAR_OK;
}

static enum far_status no_status(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	return (enum far_status)1000;
}

Test(then, values_may_be_of_any_size_and_wrong_ones_are_errors)
{
	char text[5000];
	struct far_val out;
	memset(text, 't', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	struct far_future *f = make(), *large = then(f, long_text, text), *same = then(large, hand_on, NULL);
	struct far_future *wrong = then(f, invalid_value, NULL), *odd = then(f, no_status, NULL);
	set_int(f, 0);
	text[0] = 'u'; /* it was copied */
	cr_assert_eq(far_future_value(same, &out, &err), FAR_OK);
	far_future_free(same);
	cr_assert_eq(out.u.s.len, sizeof text - 1);
	cr_assert_eq(((const char *)out.u.s.data)[0], 't');
	far_val_fini(&out);
	cr_assert_eq(far_future_value(wrong, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_future_value(odd, NULL, &err), FAR_INVALID);
	far_future_free(f);
	far_future_free(large);
	far_future_free(wrong);
	far_future_free(odd);
}

static void add_another(struct far_future *f, void *user)
{
	struct log *log = user;
	log->entries[log->n++] = 100;
	cr_assert_eq(far_future_on_done(f, record, user, &err), FAR_OK, "at once: it is complete");
	log->entries[log->n++] = 101;
}

static enum far_status logs(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	struct log *log = user;
	log->entries[log->n] = (int)log->n;
	log->n++;
	return plus_one(parent, out, e, NULL);
}

Test(then, callbacks_run_in_order_and_children_before_the_next)
{
	struct log log = {0};
	struct far_future *f = make();
	struct far_future *child = then(f, logs, &log);
	struct far_future *grandchild = then(child, logs, &log);
	cr_assert_eq(far_future_on_done(f, record, &log, &err), FAR_OK);
	cr_assert_eq(far_future_on_done(grandchild, record, &log, &err), FAR_OK);
	cr_assert_eq(far_future_on_done(f, add_another, &log, &err), FAR_OK);
	set_int(f, 5);
	static const int want[] = {0, 1, 7, 5, 100, 5, 101};
	cr_assert_eq(log.n, 7u);
	cr_assert_eq(memcmp(log.entries, want, sizeof want), 0);
	far_future_free(f);
	far_future_free(child);
	far_future_free(grandchild);
}

/* Neither completing a long chain nor giving it back takes stack for each link. */
Test(then, chains_may_be_long)
{
	enum { LINKS = 200000 };
	struct far_future *first = make(), *last = far_future_ref(first);
	for (int i = 0; i < LINKS; i++) {
		struct far_future *next = then(last, plus_one, NULL);
		far_future_free(last);
		last = next;
	}
	set_int(first, 0);
	cr_assert_eq(get_int(last), LINKS);
	far_future_free(first);
	far_future_free(last);
}

static enum far_status waits_for_grandchild(struct far_future *parent, struct far_val *out, struct far_err *e,
					    void *user)
{
	return far_future_wait(*(struct far_future **)user, 10 * FAR_SEC, out, e);
}

/* On a thread that completes a user-made future a callback may wait, for what came before it. */
Test(then, a_callback_may_wait_where_no_shard_runs)
{
	struct far_future *f = make(), *child = then(f, plus_one, NULL), *grandchild = then(child, plus_one, NULL);
	struct far_future *waiting = then(f, waits_for_grandchild, &grandchild);
	set_int(f, 1);
	cr_assert_eq(get_int(waiting), 3);
	far_future_free(f);
	far_future_free(child);
	far_future_free(grandchild);
	far_future_free(waiting);
}

static void free_it(struct far_future *f, void *user)
{
	far_future_free(user);
}

Test(then, a_callback_may_give_the_last_reference_back)
{
	struct far_future *f = make();
	cr_assert_eq(far_future_on_done(f, free_it, f, &err), FAR_OK);
	struct far_future *child = then(f, plus_one, NULL);
	set_int(f, 8);
	cr_assert_eq(get_int(child), 9);
	far_future_free(child);
}

Test(then, a_future_dropped_while_pending_fails_what_follows)
{
	struct far_future *f = make(), *g = make(), *child = then(f, plus_one, NULL),
			  *grandchild = then(child, hand_on, NULL);
	struct far_future *both[2] = {f, g}, *all, *any;
	cr_assert_eq(far_future_collect(both, 2, &all, &err), FAR_OK);
	cr_assert_eq(far_future_collect_any(both, 2, &any, &err), FAR_OK);
	struct far_future *extra = far_future_ref(f);
	far_future_free(f);
	cr_assert_not(far_future_done(child));
	far_future_free(extra);
	cr_assert_eq(far_future_wait(grandchild, 0, NULL, &err), FAR_CANCELLED);
	cr_assert(strstr(err.text, "was freed before"));
	cr_assert_eq(get_int(any), 0);
	cr_assert_not(far_future_done(all));
	set_int(g, 1);
	cr_assert_eq(far_future_value(all, NULL, &err), FAR_CANCELLED);
	far_future_free(g);
	far_future_free(child);
	far_future_free(grandchild);
	far_future_free(all);
	far_future_free(any);
}

/* ---- several ---- */

Test(then, collect_ends_with_the_last_and_says_the_first_failure)
{
	struct far_future *f[4] = {make(), make(), make()}, *ok, *bad, *none;
	f[3] = f[0]; /* twice */
	cr_assert_eq(far_future_collect(f, 4, &bad, &err), FAR_OK);
	struct far_future *good[2] = {f[0], f[0]};
	cr_assert_eq(far_future_collect(good, 2, &ok, &err), FAR_OK);
	cr_assert_eq(far_future_collect(NULL, 0, &none, &err), FAR_OK);
	cr_assert(far_future_done(none));
	cr_assert_eq(far_future_set_error(f[2], FAR_DENIED, 2, "second"), FAR_OK);
	cr_assert_eq(far_future_set_error(f[1], FAR_BUSY, 1, "first"), FAR_OK);
	cr_assert_not(far_future_done(bad));
	far_future_free(f[1]); /* what is complete may go before the collection is */
	far_future_free(f[2]);
	set_int(f[0], 1);
	cr_assert_eq(far_future_value(bad, NULL, &err), FAR_BUSY);
	cr_assert_str_eq(err.text, "first");
	cr_assert_eq(err.code, 1);
	struct far_val v;
	cr_assert_eq(far_future_value(ok, &v, &err), FAR_OK);
	cr_assert_eq(v.type, FAR_TYPE_NONE);
	cr_assert_eq(far_future_set_value(ok, NULL, &err), FAR_INVALID);
	far_future_free(f[0]);
	far_future_free(ok);
	far_future_free(bad);
	far_future_free(none);
}

Test(then, collect_any_says_which_was_first)
{
	struct far_future *f[3] = {make(), make(), make()}, *any, *at_once;
	cr_assert_eq(far_future_collect_any(f, 3, &any, &err), FAR_OK);
	cr_assert_eq(far_future_set_error(f[2], FAR_DENIED, 0, NULL), FAR_OK);
	cr_assert_eq(get_int(any), 2);
	set_int(f[0], 1);
	cr_assert_eq(get_int(any), 2);
	cr_assert_eq(far_future_collect_any(f, 3, &at_once, &err), FAR_OK);
	cr_assert_eq(get_int(at_once), 0);
	for (int i = 0; i < 3; i++)
		far_future_free(f[i]);
	far_future_free(any);
	far_future_free(at_once);
}

/* A wait without a limit of its own: for ever where a call's deadline ends it, else long, but not for ever. */
Test(then, a_forgotten_completion_does_not_hang_a_thread)
{
	struct far_future *f = make(), *call = future_alloc(NULL), *child = then(f, plus_one, NULL);
	struct far_future *both[2] = {f, call}, *all, *any, *of_call = then(call, plus_one, NULL);
	cr_assert_eq(far_future_collect(both, 2, &all, &err), FAR_OK);
	cr_assert_eq(far_future_collect_any(both, 2, &any, &err), FAR_OK);
	cr_assert(future_state(child) & FUTURE_UNBOUNDED);
	cr_assert(future_state(all) & FUTURE_UNBOUNDED, "it takes the user-made one");
	cr_assert_not(future_state(any) & FUTURE_UNBOUNDED, "the call is enough");
	cr_assert_not(future_state(of_call) & FUTURE_UNBOUNDED);
	cr_assert_eq(agent_wait_limit(0, false), TIME_NEVER);
	cr_assert_neq(agent_wait_limit(0, true), TIME_NEVER);
	cr_assert_eq(agent_wait_limit(FAR_FOREVER, true), TIME_NEVER);
	struct far_future *none[] = {f, call, child, all, any, of_call};
	for (int i = 0; i < 6; i++)
		far_future_free(none[i]);
}

/* ---- bad input ---- */

Test(then, bad_input_is_an_error)
{
	struct far_future *f = make(), *child, *hole[3] = {f, NULL, f};
	struct far_scope scope = {{0}};
	size_t index;
	cr_assert_eq(far_future_create(NULL, &err), FAR_INVALID);
	cr_assert_eq(far_future_then(NULL, plus_one, NULL, &child, &err), FAR_INVALID);
	cr_assert_eq(far_future_then(f, NULL, NULL, &child, &err), FAR_INVALID);
	cr_assert_eq(far_future_then(f, plus_one, NULL, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_future_on_done(NULL, record, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_future_on_done(f, NULL, NULL, NULL), FAR_INVALID);
	cr_assert_eq(far_future_wait(NULL, 0, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_future_value(NULL, NULL, &err), FAR_INVALID);
	cr_assert_not(far_future_done(NULL));
	cr_assert_null(far_future_ref(NULL));
	cr_assert_eq(far_future_set_value(NULL, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_future_set_error(NULL, FAR_BUSY, 0, NULL), FAR_INVALID);
	cr_assert_eq(far_future_wait_all(hole, 3, 0, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "future 1 of 3"));
	cr_assert_eq(far_future_wait_all(NULL, 2, 0, &err), FAR_INVALID);
	cr_assert_eq(far_future_wait_any(hole, 3, 0, &index, &err), FAR_INVALID);
	cr_assert_eq(far_future_wait_any(hole, 0, 0, &index, &err), FAR_INVALID);
	cr_assert_eq(far_future_wait_any(hole, 1, 0, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_future_collect(hole, 3, &child, &err), FAR_INVALID);
	cr_assert_eq(far_future_collect(hole, 1, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_future_collect_any(hole, 0, &child, &err), FAR_INVALID);
	cr_assert_eq(far_scope_begin(NULL), FAR_INVALID);
	cr_assert_eq(far_scope_end(&scope, 0, &err), FAR_INVALID);
	cr_assert_eq(far_scope_end(NULL, 0, &err), FAR_INVALID);
	far_scope_abandon(NULL);
	far_scope_abandon(&scope);
	far_future_free(f);
}

/* ---- out of memory ---- */

/* Everything that can run out does, and comes back: then, collect and waits fail cleanly in between. */
Test(then, running_out_of_futures_is_resource_and_leaks_nothing)
{
	static struct far_future *f[FAR_FUTURES_MAX];
	struct far_future *child;
	uint32_t n = 0;
	size_t index;
	while (n < FAR_FUTURES_MAX && far_future_create(&f[n], &err) == FAR_OK)
		n++;
	cr_assert_eq(n, FAR_FUTURES_MAX);
	for (int i = 0; i < 1000; i++) {
		cr_assert_eq(far_future_create(&child, &err), FAR_RESOURCE);
		cr_assert_eq(far_future_then(f[0], plus_one, NULL, &child, &err), FAR_RESOURCE);
		cr_assert_eq(far_future_collect(f, 2, &child, &err), FAR_RESOURCE);
		cr_assert_eq(far_future_wait_any(f, 2, FAR_FOREVER, &index, &err), FAR_RESOURCE);
	}
	cr_assert_eq(far_future_wait(f[0], 1, NULL, &err), FAR_PENDING);
	far_future_free(f[--n]);
	cr_assert_eq(far_future_then(f[0], plus_one, NULL, &child, &err), FAR_OK);
	set_int(f[0], 1);
	cr_assert_eq(get_int(child), 2);
	far_future_free(child);
	while (n)
		far_future_free(f[--n]);
}
