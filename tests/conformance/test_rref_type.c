/* SPDX-License-Identifier: BSD-3-Clause */
/** The type of a reference: I6, and the time-outs of its request, D2. Main thread of each process. */
#include "objects.h"

#include <string.h>

static void type_is(const char *here, struct far_rref *r, bool blocking, const char *want)
{
	const char *name = NULL;
	struct far_future *f;
	conform_at(here);
	if (blocking) {
		conform_want(here, "asking for the type", far_rref_type(r, 0, &name, &err), FAR_OK);
		if (strcmp(name, want) != 0)
			conform_fail(here, "it is %s, not %s", name, want);
		return;
	}
	conform_want(here, "asking for the type", far_rref_type_async(r, 0, &f, &err), FAR_OK);
	conform_text(here, conform_take(here, f), want);
}

static void types(const char *to, bool blocking)
{
	objects_register(HERE);
	struct far_rref *r[] = {REMOTE(to, "far::add", FAR_ARGS(full(1, 2, 1), 1)),
				REMOTE(to, "c::Counter", FAR_ARGS(1)),
				REMOTE(to, "far::add", FAR_ARGS(1, 2)),
				REMOTE(to, "far::identity", FAR_ARGS("text")),
				REMOTE(to, "c::Box_new", FAR_ARGS(4)),
				REMOTE(to, "far::ones", FAR_ARGS(3))};
	static const char *const want[] = {"tensor", "c::Counter", "int", "string", "c::Box", "tensor"};
	for (int i = 0; i < 6; i++) {
		type_is(HERE, r[i], blocking, want[i]);
		type_is(HERE, r[i], blocking, want[i]); /* remembered */
		far_rref_free(r[i]);
	}
}

/* The first look-up of a type sends a request. The next ten send none: it would fail. Kills: a look-up, blocking or
 * not, that does not keep the type. */
static void type_is_requested_once(bool blocking)
{
	const struct far_fault none_leaves = {.fail_sends = 1};
	struct far_rref *r = REMOTE(peer(1), "far::add", FAR_ARGS(full(1, 2, 1), 1));
	struct far_fault_counts counts;
	OK(far_rref_wait(r, 0, &err));
	type_is(HERE, r, blocking, "tensor");
	OK(far_fault_set(agent, FAR_FAULT_FETCH, &none_leaves, &err));
	for (int i = 0; i < 10; i++)
		type_is(HERE, r, blocking, "tensor");
	far_fault_counts_read(agent, &counts);
	HOLDS(counts.of[FAR_FAULT_FETCH].failed == 0);
	OK(far_faults_clear(agent, &err));
	far_rref_free(r);
}

CONFORM(I6, rref_type_blocking)
{
	types(peer(1), true);
	type_is_requested_once(true);
}

CONFORM(I6, rref_type_non_blocking)
{
	types(peer(1), false);
	type_is_requested_once(false);
}

CONFORM(I6, rref_type_owner_blocking)
{
	types(peer(0), true);
}

CONFORM(I6, rref_type_owner_non_blocking)
{
	types(peer(0), false);
}

CONFORM(I6, rref_type_with_error_blocking)
{
	const char *name = NULL;
	struct far_rref *r = REMOTE(peer(1), "c::raise", FAR_ARGS("Expected error"));
	FAILS(FAR_REMOTE, far_rref_type(r, 0, &name, &err));
	SAYS("Expected error");
	HOLDS(!name);
	far_rref_free(r);
}

CONFORM(I6, rref_type_with_error_non_blocking)
{
	struct far_future *f;
	struct far_rref *r = REMOTE(peer(1), "c::raise", FAR_ARGS("Expected error"));
	OK(far_rref_type_async(r, 0, &f, &err));
	TAKE_FAILS(FAR_REMOTE, f);
	SAYS("Expected error");
	far_rref_free(r);
}

/* Requested before the value is there: waits. */
CONFORM(I6, rref_type_slow_init)
{
	objects_register(HERE);
	struct far_rref *r = REMOTE(peer(1), "c::Counter_slow", FAR_ARGS(1, 60));
	type_is(HERE, r, true, "c::Counter");
	far_rref_free(r);
	r = REMOTE(peer(1), "c::slow_add", FAR_ARGS(1, 2, 60));
	type_is(HERE, r, false, "int");
	far_rref_free(r);
}

/* ---- D2 ---- */

CONFORM(D2, rref_get_type_timeout_blocking)
{
	const char *name = NULL;
	struct far_rref *r = REMOTE(peer(1), "c::slow_add", FAR_ARGS(1, 2, 1000));
	FAILS(FAR_TIMEOUT, far_rref_type(r, FAR_MS, &name, &err));
	HOLDS(!name);
	type_is(HERE, r, true, "int"); /* the next one requests it anew */
	far_rref_free(r);
}

CONFORM(D2, rref_get_type_timeout_non_blocking)
{
	struct far_future *f;
	struct far_rref *r = REMOTE(peer(1), "c::slow_add", FAR_ARGS(1, 2, 1000));
	OK(far_rref_type_async(r, FAR_MS, &f, &err));
	TAKE_FAILS(FAR_TIMEOUT, f);
	type_is(HERE, r, false, "int");
	far_rref_free(r);
}
