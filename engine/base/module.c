/* SPDX-License-Identifier: BSD-3-Clause */
/** Finds and loads a shared object that belongs to this library. Any thread but a poller. */
#include "base/module.h"

#include "base/error.h"

#include <dlfcn.h>
#include <farcall/version.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The search is relative to the program, which may lie in a directory that everyone can write to, such as /tmp. */
static bool is_ours(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_uid == 0 || st.st_uid == geteuid()) &&
	       !(st.st_mode & S_IWOTH);
}

bool module_path_beside(const char *file, const char *const *folders, size_t n, char *path, size_t cap)
{
	static const char here; /* the address of data, not of a function, avoids a cast */
	Dl_info info;
	char self[PATH_MAX];
	if (!dladdr(&here, &info) || !info.dli_fname)
		return false;
	/* For a program the name is argv[0], which may have no directory. */
	bool program = !strchr(info.dli_fname, '/') || !realpath(info.dli_fname, self);
	if (program && !realpath("/proc/self/exe", self))
		return false;
	char *slash = strrchr(self, '/');
	if (!slash)
		return false;
	*slash = 0;
	for (size_t i = 0; i < n; i++) {
		int len = snprintf(path, cap, "%s/%s/%s", self, folders[i], file);
		if (len > 0 && (size_t)len < cap && is_ours(path))
			return true;
	}
	return false;
}

static const void *check(const char *path, const struct module_head *head, const struct module_wanted *m,
			 struct far_err *err)
{
	if (head && head->abi == m->abi && strcmp(head->version, FAR_VERSION) == 0)
		return head;
	err_set(err, m->status,
		"%s %.200s, which is %s%.20s, this is libfarcall " FAR_VERSION "; install both from one build",
		m->purpose, path, head ? "of Farcall " : "no module of Farcall's", head ? head->version : "");
	return NULL;
}

const void *module_load(const struct module_wanted *m, struct far_err *err)
{
	char path[PATH_MAX + 64];
	const char *named = m->dir ? secure_getenv("FAR_MODULE_DIR") : NULL;
	if (named && !*named)
		named = NULL;
	const char *dir = named ? named : m->dir;
	if (named || !module_path_beside(m->file, m->folders, m->folders_n, path, sizeof path))
		snprintf(path, sizeof path, "%.*s%s%s", PATH_MAX, dir ? dir : "", dir ? "/" : "", m->file);
	/* dlopen() is thread-safe and counts references. */
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!handle) {
		err_set(err, m->status, "%s %s, which cannot be loaded: %.200s; %s", m->purpose, m->file, dlerror(),
			named ? "unset FAR_MODULE_DIR or correct it" : m->remedy);
		return NULL;
	}
	const void *content = check(path, dlsym(handle, m->symbol), m, err);
	dlclose(handle);
	return content;
}
