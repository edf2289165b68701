/* SPDX-License-Identifier: BSD-3-Clause */
/** Loads libfarcall-ops. Any thread but a poller. */
#include "builtin/ops_module.h"

/* Of a program that links libfarcall-ops itself, as a static one does. */
extern __attribute__((weak)) const struct ops_module far_ops_module;

struct ops_host ops_host = {.answer = far_return, .answer_tensor = far_return_tensor, .fail = far_fail};

const struct ops_module *ops_module_load(struct far_err *err)
{
	/* Beside the library; in the build tree for a program, the library, a test. Then where the loader looks. */
	static const char *const folders[] = {".", "apps/libops", "../apps/libops", "../../apps/libops",
					      "../../../apps/libops"};
	static const struct module_wanted wanted = {
		.file = "libfarcall-ops.so.1", /* its soname: apps/libops/meson.build */
		.symbol = "far_ops_module",
		.abi = OPS_MODULE_ABI,
		.folders = folders,
		.folders_n = sizeof folders / sizeof *folders,
		.status = FAR_NO_FUNCTION,
		.purpose = "the functions of far:: on tensors are in",
		.remedy = "install it beside libfarcall",
	};
	const struct ops_module *linked = &far_ops_module;
	return linked ? linked : module_load(&wanted, err);
}
