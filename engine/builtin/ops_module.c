/* SPDX-License-Identifier: BSD-3-Clause */
/** Finds, loads and checks libfarcall-ops. Any thread but a poller. */
#include "builtin/ops_module.h"

#include "base/error.h"
#include "base/module.h"

#include <dlfcn.h>
#include <farcall/version.h>
#include <limits.h>

#define FAR_OPS_LIBRARY "libfarcall-ops.so.1" /* its soname: apps/libops/meson.build */

/* Of a program that links libfarcall-ops itself, as a static one does. */
extern __attribute__((weak)) const struct ops_module far_ops_module;

struct ops_host ops_host = {.answer = far_return, .answer_tensor = far_return_tensor, .fail = far_fail};

static const struct ops_module *check(const char *path, const struct ops_module *m, struct far_err *err)
{
	if (m && m->abi == OPS_MODULE_ABI && strcmp(m->version, FAR_VERSION) == 0)
		return m;
	err_set(err, FAR_NO_FUNCTION,
		"%.200s is %s%.20s, this is libfarcall " FAR_VERSION "; install both from one build", path,
		m ? "of Farcall " : "no library of Farcall's", m ? m->version : "");
	return NULL;
}

const struct ops_module *ops_module_load(struct far_err *err)
{
	/* Beside the library; in the build tree for a program, the library, a test. Then where the loader looks. */
	static const char *const folders[] = {".", "apps/libops", "../apps/libops", "../../apps/libops",
					      "../../../apps/libops"};
	char path[PATH_MAX + 64];
	const struct ops_module *linked = &far_ops_module;
	if (linked)
		return linked;
	bool beside = module_path_beside(FAR_OPS_LIBRARY, folders, sizeof folders / sizeof *folders, path, sizeof path);
	if (!beside)
		strcpy(path, FAR_OPS_LIBRARY);
	/* dlopen() is thread-safe and counts references. */
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!handle) {
		err_set(err, FAR_NO_FUNCTION,
			"the functions of far:: on tensors are in " FAR_OPS_LIBRARY
			", which cannot be loaded: %.200s; install it beside libfarcall",
			dlerror());
		return NULL;
	}
	const struct ops_module *m = check(path, dlsym(handle, OPS_MODULE_SYMBOL), err);
	dlclose(handle);
	return m;
}
