/* SPDX-License-Identifier: BSD-3-Clause */
/** Finds a shared object that belongs to this library. Any thread. */
#include "base/module.h"

#include <dlfcn.h>
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
