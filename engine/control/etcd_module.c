/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds, loads and checks libfarcall-etcd.so. Any thread but a poller. */
#include "control/etcd_module.h"

#include "base/error.h"
#include "base/module.h"
#include "nic/module_dir.h" /* FAR_MODULE_DIR: where meson installs modules */

#include <dlfcn.h>
#include <farcall/version.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ETCD_MODULE_FILE "libfarcall-etcd.so"

static const struct etcd_ops *check(const char *path, const struct etcd_module *m, struct far_err *err)
{
	if (m && m->abi == ETCD_MODULE_ABI && strcmp(m->version, FAR_VERSION) == 0)
		return m->ops;
	err_set(err, FAR_UNSUPPORTED,
		"%.200s is %s%.20s, this is libfarcall " FAR_VERSION "; install both from one build", path,
		m ? "of Farcall " : "no module of Farcall's", m ? m->version : "");
	return NULL;
}

const struct etcd_ops *etcd_module_load(struct far_err *err)
{
	/* As installed; in the build tree for the library, a program, a test. */
	static const char *const folders[] = {
		"farcall", "etcd", "engine/etcd", "../engine/etcd", "../../engine/etcd", "../../../engine/etcd"};
	char path[PATH_MAX + 64];
	const char *dir = secure_getenv("FAR_MODULE_DIR");
	bool named = dir && *dir;
	if (named ||
	    !module_path_beside(ETCD_MODULE_FILE, folders, sizeof folders / sizeof *folders, path, sizeof path))
		snprintf(path, sizeof path, "%.*s/" ETCD_MODULE_FILE, PATH_MAX, named ? dir : FAR_MODULE_DIR);
	/* dlopen() is thread-safe and counts references. */
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!handle) {
		err_set(err, FAR_UNSUPPORTED, "etcd:// is a module, which cannot be loaded: %.200s; %s", dlerror(),
			named ? "unset FAR_MODULE_DIR or correct it"
			      : "install the package farcall-etcd, or build Farcall with libcurl4-openssl-dev and "
				"libjansson-dev, or set FAR_MODULE_DIR");
		return NULL;
	}
	const struct etcd_ops *ops = check(path, dlsym(handle, ETCD_MODULE_SYMBOL), err);
	dlclose(handle);
	return ops;
}
