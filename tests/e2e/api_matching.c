/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 4. Main thread of each process; handlers on shard threads. */
/**
 * Matching of arguments, defaults, keywords and overloads. Every worker calls the next one, all at once; each function
 * is one behaviour that users of torch.distributed.rpc rely on and is named for it.
 */
#include "api_calls.h"

/* Says which overload ran, with which arguments. */
static enum far_status return_text(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	char text[512];
	size_t at = (size_t)snprintf(text, sizeof text, "%s", (const char *)user);
	for (size_t i = 0; i < n; i++) {
		at += (size_t)snprintf(text + at, sizeof text - at, " ");
		switch (args[i].type) {
		case FAR_TYPE_BOOL:
			at += (size_t)snprintf(text + at, sizeof text - at, "%s", args[i].u.b ? "true" : "false");
			break;
		case FAR_TYPE_INT:
			at += (size_t)snprintf(text + at, sizeof text - at, "%lld", (long long)args[i].u.i);
			break;
		case FAR_TYPE_FLOAT:
			at += (size_t)snprintf(text + at, sizeof text - at, "%.1f", args[i].u.f);
			break;
		case FAR_TYPE_STRING:
			at += (size_t)snprintf(text + at, sizeof text - at, "'%s'", (const char *)args[i].u.s.data);
			break;
		default:
			at += (size_t)snprintf(text + at, sizeof text - at, "%s",
					       far_type_name((enum far_type)args[i].type));
			break;
		}
	}
	struct far_val v = far_str(text);
	return far_return(req, &v);
}

static enum far_status raises(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_fail(req, FAR_REMOTE, 7, "Expected error");
}

static char all[] = "all", one[] = "one", two[] = "two", integer[] = "int", floating[] = "float", text_fn[] = "str";

static const struct far_function functions[] = {
	{"v::raises() -> none", FAR_KIND_INLINE, raises, NULL},
	{"v::all(int a=1, float b=-2, str c=\"c\", bool d=true, none|int e=none) -> str", FAR_KIND_INLINE, return_text,
	 all},
	{"v::one(Any a, Any b=3) -> str", FAR_KIND_INLINE, return_text, one},
	{"v::two(int a, str b) -> str", FAR_KIND_INLINE, return_text, two},
	{"v::over(int x) -> str", FAR_KIND_INLINE, return_text, integer},
	{"v::over(float x) -> str", FAR_KIND_INLINE, return_text, floating},
	{"v::over(str x, int times=1) -> str", FAR_KIND_INLINE, return_text, text_fn},
	{"v::either(int a, float b) -> str", FAR_KIND_INLINE, return_text, integer},
	{"v::either(float a, int b) -> str", FAR_KIND_INLINE, return_text, floating},
};

static void all_kwargs_are_populated_by_defaults(void)
{
	expect_text("v::all", FAR_NOARGS, "all 1 -2.0 'c' true none");
}

static void some_kwargs_are_populated_by_defaults(void)
{
	expect_text("v::all", FAR_ARGS(5), "all 5 -2.0 'c' true none");
	expect_text("v::all", FAR_ARGS(5, FAR_KW("c", "x")), "all 5 -2.0 'x' true none");
	expect_text("v::all", FAR_ARGS(FAR_KW("e", 4), FAR_KW("d", far_bool(false))), "all 1 -2.0 'c' false 4");
}

static void no_kwargs_are_populated_by_defaults(void)
{
	expect_text("v::all",
		    FAR_ARGS(FAR_KW("a", 1), FAR_KW("b", 2), FAR_KW("c", "3"), FAR_KW("d", 0), FAR_KW("e", 5)),
		    "all 1 2.0 '3' false 5");
	expect_text("v::all", FAR_ARGS(1, 2, "3", 1, 5), "all 1 2.0 '3' true 5");
}

static void args_and_kwargs_contain_different_types(void)
{
	float x = 1;
	struct far_tensor t = far_tensor_1d(FAR_F32, &x, 1);
	expect_text("v::one", FAR_ARGS(&t, FAR_KW("b", FAR_LIST(1, "x"))), "one tensor list");
	expect_text("v::one", FAR_ARGS(FAR_DICT(FAR_ENTRY(1, 2)), FAR_KW("b", far_bool(true))), "one dict true");
	expect_text("v::one", FAR_ARGS(far_bytes("x", 1), 1.5), "one bytes 1.5");
}

static void kwargs_not_passed(void)
{
	expect_text("v::one", FAR_ARGS("only"), "one 'only' 3");
}

static void args_kwargs_are_neither_passed(void)
{
	expect_mistake("v::two", FAR_NOARGS, FAR_BAD_ARGS, "v::two: takes 2 arguments, 0 given",
		       "v::two(int a, str b) -> str");
}

static void less_than_needed_args_are_specified(void)
{
	expect_mistake("v::two", FAR_ARGS(1), FAR_BAD_ARGS, "takes 2 arguments, 1 given",
		       "v::two(int a, str b) -> str");
	expect_mistake("v::two", FAR_ARGS(FAR_KW("b", "x")), FAR_BAD_ARGS, "argument 1 (a) is missing", "FAR_KW");
}

static void more_than_needed_args_are_specified(void)
{
	expect_mistake("v::two", FAR_ARGS(1, "x", 2), FAR_BAD_ARGS, "takes 2 arguments, 3 given",
		       "v::two(int a, str b)");
	expect_mistake("v::two", FAR_ARGS(1, "x", FAR_KW("b", "y")), FAR_BAD_ARGS, "parameter 'b' is given twice",
		       "v::two(int a, str b)");
	expect_mistake("v::two", FAR_ARGS(1, FAR_KW("b", "y"), FAR_KW("b", "y")), FAR_BAD_ARGS,
		       "parameter 'b' is given twice", "v::two(int a, str b)");
	expect_mistake("v::two", FAR_ARGS(FAR_KW("a", 1), "x"), FAR_BAD_ARGS, "argument 2 has no keyword",
		       "v::two(int a, str b)");
}

static void unexpected_kwarg_is_specified(void)
{
	expect_mistake("v::two", FAR_ARGS(1, FAR_KW("third", 2)), FAR_BAD_ARGS, "it has no parameter 'third'",
		       "v::two(int a, str b) -> str");
}

/* Nothing but what was registered can be called, whatever code the callee has. */
static void an_unregistered_function_is_not_called(void)
{
	expect_mistake("tell", FAR_ARGS(1), FAR_NO_FUNCTION, "tell", "registered here; register it");
	expect_mistake("v::rises", FAR_NOARGS, FAR_NO_FUNCTION, "v::rises",
		       "registered here (\"v::raises\" is); register it");
	expect_mistake("", FAR_NOARGS, FAR_NO_FUNCTION, "\"\"", "registered here; register it");
}

static void a_function_that_raises(void)
{
	struct far_val out;
	CHECK_STATUS(call("v::raises", FAR_NOARGS, &out), FAR_REMOTE, &err);
	CHECK_TEXT(&err, "Expected error");
	CHECK(err.code == 7 && err.executed == FAR_EXECUTED_YES && strcmp(err.origin, to) == 0);
}

/* Registered by the caller alone: the name, then an overload of a name that the callee has. */
static void a_function_that_does_not_exist_there(void)
{
	static const struct far_function mine[] = {
		{"v::mine(int x) -> str", FAR_KIND_INLINE, return_text, one},
		{"v::over(int x, int y, int z) -> str", FAR_KIND_INLINE, return_text, one},
	};
	struct far_val out;
	if (rank != 0)
		return;
	for (int i = 0; i < 2; i++)
		CHECK_STATUS(far_register_function(agent, &mine[i], &err), FAR_OK, &err);
	CHECK_STATUS(far_register_function(agent, &mine[0], &err), FAR_INVALID, &err);
	CHECK_STATUS(call("v::mine", FAR_ARGS(1), &out), FAR_NO_FUNCTION, &err);
	CHECK(err.executed == FAR_EXECUTED_NO && strcmp(err.origin, to) == 0);
	CHECK_STATUS(call("v::over", FAR_ARGS(1, 2, 3), &out), FAR_SIGNATURE, &err);
	CHECK_TEXT(&err, "v::over(int)->str; v::over(float)->str; v::over(str,int)->str");
	CHECK(err.executed == FAR_EXECUTED_NO && strcmp(err.origin, to) == 0);
}

static void overloads(void)
{
	for (int round = 0; round < 3; round++) { /* by hash, then by number */
		expect_text("v::over", FAR_ARGS(3), "int 3");
		expect_text("v::over", FAR_ARGS(3.5), "float 3.5");
		expect_text("v::over", FAR_ARGS("s"), "str 's' 1");
		expect_text("v::over", FAR_ARGS("s", FAR_KW("times", 4)), "str 's' 4");
		expect_text("v::over", FAR_ARGS(FAR_KW("x", 2.0)), "float 2.0");
	}
	expect_text("v::either", FAR_ARGS(1, 1.0), "int 1 1.0");
	expect_mistake("v::either", FAR_ARGS(1, 1), FAR_BAD_ARGS, "v::either: the arguments (int, int) fit several",
		       "v::either(int a, float b) -> str; v::either(float a, int b) -> str");
	expect_mistake("v::over", FAR_ARGS(far_none()), FAR_BAD_ARGS, "v::over: the arguments (none) fit none",
		       "v::over(int x) -> str; v::over(float x) -> str; v::over(str x, int times=1) -> str");
}

int main(void)
{
	static void (*const tests[])(void) = {
		all_kwargs_are_populated_by_defaults,
		some_kwargs_are_populated_by_defaults,
		no_kwargs_are_populated_by_defaults,
		args_and_kwargs_contain_different_types,
		kwargs_not_passed,
		args_kwargs_are_neither_passed,
		less_than_needed_args_are_specified,
		more_than_needed_args_are_specified,
		unexpected_kwarg_is_specified,
		an_unregistered_function_is_not_called,
		a_function_that_raises,
		a_function_that_does_not_exist_there,
		overloads,
	};
	struct far_opts opts = {.functions = functions, .functions_n = sizeof functions / sizeof functions[0]};
	calls_begin(&opts);
	for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
		tests[i]();
	calls_to_self();
	overloads();
	all_kwargs_are_populated_by_defaults();
	check_leave(agent);
	return 0;
}
