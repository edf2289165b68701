/* SPDX-License-Identifier: BSD-3-Clause */
/** Finds, loads and checks driver modules. Any thread but a poller. */
#include "nic/module.h"

#include "base/module.h"

#include "farcall/version.h"
#include "nic/module_dir.h" /* FAR_MODULE_DIR: where meson installs modules */

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool find_beside(const char *name, char *path, size_t cap)
{
	/* As installed, and in the build tree for the library, programs, tests. */
	static const char *const patterns[] = {"farcall", "nic/%s", "../nic/%s", "../../nic/%s"};
	enum { N = sizeof patterns / sizeof *patterns };
	char folders[N][64], file[64];
	const char *list[N];
	snprintf(file, sizeof file, "libfarcall-nic-%s.so", name);
	for (unsigned i = 0; i < N; i++) {
		snprintf(folders[i], sizeof folders[i], patterns[i], name);
		list[i] = folders[i];
	}
	return module_path_beside(file, list, N, path, cap);
}

static int find(const char *name, char *path, size_t cap, struct nic_err *err)
{
	const char *dir = secure_getenv("FAR_MODULE_DIR");
	bool named = dir && *dir;
	if (!named && find_beside(name, path, cap))
		return 0;
	int n = snprintf(path, cap, "%s/libfarcall-nic-%s.so", named ? dir : FAR_MODULE_DIR, name);
	if (n > 0 && (size_t)n < cap && access(path, F_OK) == 0)
		return 0;
	snprintf(err->text, sizeof err->text, "driver \"%s\" is a module, and there is no %.140s%s; %s", name, path,
		 named ? " (FAR_MODULE_DIR)" : "",
		 named                        ? "unset FAR_MODULE_DIR or correct it"
		 : strcmp(name, "verbs") == 0 ? "build Farcall with libibverbs (apt install libibverbs-dev) and "
						"install it, or set FAR_MODULE_DIR"
					      : "build Farcall with DPDK (apt install libdpdk-dev) and install it, or "
						"set FAR_MODULE_DIR");
	return -ENOENT;
}

static void describe_dlerror(const char *name, const char *path, struct nic_err *err)
{
	const char *why = dlerror();
	bool missing = why && strstr(why, "cannot open shared object file") && strncmp(why, path, strlen(path)) != 0;
	snprintf(err->text, sizeof err->text, "driver \"%s\" cannot be loaded from %.100s: %.110s%s", name, path,
		 why ? why : "unknown reason",
		 !missing                     ? ""
		 : strcmp(name, "verbs") == 0 ? "; apt install libibverbs1 ibverbs-providers"
					      : "; apt install dpdk");
}

static const struct nic_port_ops *check(const char *name, const char *path, const struct nic_module *m,
					struct nic_err *err)
{
	if (!m) {
		snprintf(err->text, sizeof err->text,
			 "%.160s is no Farcall module: it has no symbol " NIC_MODULE_SYMBOL "; install Farcall's own",
			 path);
		return NULL;
	}
	/* With another ABI number no other field is valid. */
	if (m->abi != NIC_MODULE_ABI) {
		snprintf(err->text, sizeof err->text,
			 "%.140s has module interface %u, this is Farcall " FAR_VERSION
			 " with %u; install both from one build",
			 path, m->abi, NIC_MODULE_ABI);
		return NULL;
	}
	if (m->abi_bytes != NIC_MODULE_ABI_BYTES || strcmp(m->version, FAR_VERSION) != 0) {
		snprintf(err->text, sizeof err->text,
			 "%.140s is of Farcall %.20s, this is " FAR_VERSION "%s; install both from one build", path,
			 m->version, strcmp(m->version, FAR_VERSION) == 0 ? " with another driver interface" : "");
		return NULL;
	}
	if (strcmp(m->ops->name, name) != 0) {
		snprintf(err->text, sizeof err->text, "%.140s holds driver \"%.20s\", not \"%s\"", path, m->ops->name,
			 name);
		return NULL;
	}
	return m->ops;
}

const struct nic_port_ops *nic_module_load(const char *name, struct nic_err *err)
{
	char path[PATH_MAX + 64];
	if (find(name, path, sizeof path, err))
		return NULL;
	/* dlopen() is thread-safe and counts references. RTLD_NODELETE keeps modules mapped that have threads of their
	 * own. */
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!handle) {
		describe_dlerror(name, path, err);
		return NULL;
	}
	const struct nic_port_ops *ops = check(name, path, dlsym(handle, NIC_MODULE_SYMBOL), err);
	dlclose(handle);
	return ops;
}
