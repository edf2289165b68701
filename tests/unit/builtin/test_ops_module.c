/* SPDX-License-Identifier: BSD-3-Clause */
/** A module of functions that a program links itself: it goes before a shared object, and its handlers answer through
 * their host. The test's thread, which steps the agents. */
#include "agents_fixture.h"
#include "builtin/builtin.h"
#include "builtin/ops_module.h"

#include <farcall/version.h>
#include <stdlib.h>
#include <string.h>

static enum far_status scale(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const struct ops_host *host = user;
	if (args[0].u.i < 0)
		return host->fail(req, FAR_BAD_ARGS, 9, "%d is negative", (int)args[0].u.i);
	struct far_val out = far_int(args[0].u.i * 3);
	return host->answer(req, &out);
}

static enum far_status ones(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const struct ops_host *host = user;
	const uint64_t shape[] = {(uint64_t)args[0].u.i};
	void *data;
	enum far_status status = host->answer_tensor(req, FAR_I64, 1, shape, &data);
	for (int64_t i = 0; !status && i < args[0].u.i; i++)
		((int64_t *)data)[i] = 1;
	return status;
}

static const struct far_function functions[] = {{"far::scale(int a) -> int", FAR_KIND_INLINE, scale, NULL},
						{"far::ones(int n) -> Tensor", FAR_KIND_INLINE, ones, NULL}};

extern const struct ops_module far_ops_module;
const struct ops_module far_ops_module = {
	.head = {OPS_MODULE_ABI, FAR_VERSION}, .functions = functions, .functions_n = 2};

static void setup(void)
{
	agents_begin(2, NULL);
}

TestSuite(ops_module, .init = setup, .fini = agents_end);

/* Each answer of the host, with `user` of every handler. */
Test(ops_module, handlers_answer_through_the_host)
{
	struct far_val out;
	cr_assert_eq(agents_call("far::scale", FAR_ARGS(4), &out), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 12);
	cr_assert_eq(agents_call("far::scale", FAR_ARGS(-4), &out), FAR_BAD_ARGS);
	cr_assert_str_eq(err.text, "-4 is negative");
	cr_assert_eq(err.code, 9);
	cr_assert_eq(agents_call("far::ones", FAR_ARGS(3), &out), FAR_OK, "%s", err.text);
	cr_assert(out.u.t.shape[0] == 3 && ((const int64_t *)out.u.t.data)[2] == 1);
	far_val_fini(&out);
}

/* Expect the linked one, and its functions marked: they have no state. */
Test(ops_module, the_linked_one_goes_first)
{
	cr_assert_eq(ops_module_load(&err), &far_ops_module);
	const struct function *f = registry_find(&agents[0]->registry, "far::scale");
	cr_assert_not_null(f);
	cr_assert(f->idempotent && f->user == &ops_host);
	cr_assert_null(registry_find(&agents[0]->registry, "far::add"), "none of the shared object");
	cr_assert_not(builtin_no_ops("far::add", &err), "the library is there, without this function");
}
