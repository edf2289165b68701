/* SPDX-License-Identifier: BSD-3-Clause */
/** Arguments by position, keyword and default: X4b. Main thread of each process. */
#include "functions.h"

#include <string.h>

static void is(struct far_val v, int64_t i, const char *s, double f)
{
	HOLDS(v.type == FAR_TYPE_LIST && far_len(&v) == 3);
	HOLDS(far_list_get(&v, 0)->u.i == i && far_list_get(&v, 2)->u.f == f);
	HOLDS(strcmp(far_list_get(&v, 1)->u.s.data, s) == 0);
	far_val_fini(&v);
}

static void assorted_is(const struct far_val *args, size_t n, int64_t i, const char *s, double f)
{
	is(CALL(peer(1), "c::assorted", args, n), i, s, f);
	is(TAKE(ASYNC(peer(1), "c::assorted", args, n)), i, s, f);
	is(FETCH_LAST(REMOTE(peer(1), "c::assorted", args, n)), i, s, f);
}

CONFORM(X4b, all_kwargs_are_populated_by_defaults)
{
	assorted_is(FAR_ARGS(10, "arg_", 1.5), 12, "arg_str_kwarg", 2);
}

CONFORM(X4b, some_kwargs_are_populated_by_defaults)
{
	assorted_is(FAR_ARGS(10, "arg_", 1.5, FAR_KW("s_kw", "given")), 12, "arg_given", 2);
}

CONFORM(X4b, no_kwargs_are_populated_by_defaults)
{
	assorted_is(FAR_ARGS(10, "arg_", 1.5, FAR_KW("f_kw", 4.0), FAR_KW("i_kw", 3), FAR_KW("s_kw", "k")), 13, "arg_k",
		    5.5);
}

CONFORM(X4b, args_and_kwargs_contain_different_types)
{
	assorted_is(FAR_ARGS(FAR_KW("f", 1), FAR_KW("i", 10), FAR_KW("s", "x"), FAR_KW("f_kw", 2)), 12, "xstr_kwarg",
		    3);
}

CONFORM(X4b, kwargs_not_passed)
{
	assorted_is(FAR_ARGS(0, "", 0.0), 2, "str_kwarg", 0.5);
}

static void refused(const char *fn, const struct far_val *args, size_t n, enum far_status want, const char *part)
{
	struct far_future *f = NULL;
	struct far_rref *r = NULL;
	CALL_FAILS(want, peer(1), fn, args, n);
	SAYS(part);
	HOLDS(err.executed == FAR_EXECUTED_NO && !err.origin[0]);
	FAILS(want, far_rpc_async(agent, peer(1), fn, args, n, NULL, &f, &err));
	FAILS(want, far_remote(agent, peer(1), fn, args, n, NULL, &r, &err));
	HOLDS(!f && !r);
}

CONFORM(X4b, args_kwargs_are_neither_passed)
{
	refused("c::assorted", FAR_NOARGS, FAR_BAD_ARGS, "i");
	IS_NONE(CALL(peer(1), "c::no_result", FAR_NOARGS));
}

CONFORM(X4b, less_than_needed_args_are_specified)
{
	refused("c::assorted", FAR_ARGS(1, "s"), FAR_BAD_ARGS, "f");
}

CONFORM(X4b, more_than_needed_args_are_specified)
{
	refused("c::assorted", FAR_ARGS(1, "s", 1.0, 2, "k", 2.0, 7), FAR_BAD_ARGS, "7");
}

CONFORM(X4b, unexepected_kwarg_is_specified)
{
	refused("c::assorted", FAR_ARGS(1, "s", 1.0, FAR_KW("third_kwarg", 1)), FAR_BAD_ARGS, "third_kwarg");
}

/* A C function that is not registered is nothing that can be called, whatever its symbol is called. */
CONFORM(X4b, call_python_function_remotely_from_script_not_supported)
{
	refused("my_function", FAR_ARGS(1, 2, 3), FAR_NO_FUNCTION, "my_function");
	refused("c::Box", FAR_ARGS(1), FAR_NO_FUNCTION, "c::Box");
}

CONFORM(X4b, call_script_function_that_raises_remotely_from_script)
{
	CALL_FAILS(FAR_REMOTE, peer(1), "c::nested_raise", FAR_ARGS(peer(2), "Expected error"));
	SAYS("Expected error");
	HOLDS(err.executed == FAR_EXECUTED_YES && err.code == 17);
}

CONFORM(X4b, call_script_function_that_not_exists_remotely_from_script)
{
	CALL_FAILS(FAR_NO_FUNCTION, peer(1), "c::nested_nothing", FAR_ARGS(peer(2)));
	SAYS("c::nonexisting_function");
}
