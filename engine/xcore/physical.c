/* SPDX-License-Identifier: BSD-3-Clause */
#include "xcore/physical.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The number in a file; UINT64_MAX when there is none, as in "max". */
static uint64_t read_limit(const char *path)
{
	unsigned long long n;
	FILE *f = fopen(path, "re");
	if (!f)
		return UINT64_MAX;
	uint64_t limit = fscanf(f, "%llu", &n) == 1 && n > 0 ? n : UINT64_MAX;
	fclose(f);
	return limit;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The limits of a cgroup and of all above it; `path` is cut on the way. */
static uint64_t limit_along(const char *root, char *path, const char *file)
{
	char name[PATH_MAX];
	uint64_t limit = UINT64_MAX;
	for (;;) {
		if (snprintf(name, sizeof name, "%s%s/%s", root, path, file) < (int)sizeof name)
			limit = smaller(limit, read_limit(name));
		char *slash = strrchr(path, '/');
		if (!slash)
			return limit;
		*slash = '\0';
	}
}

/* Of a line "0::/path" (version 2) or "7:memory:/path" (version 1). A container may see its own cgroup as the root. */
static uint64_t limit_of_line(char *line, const char *root)
{
	char v1[PATH_MAX];
	line[strcspn(line, "\n")] = '\0';
	char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
	if (!path || path[1] != '/')
		return UINT64_MAX;
	*path++ = '\0';
	if (strcmp(controllers, ":") == 0)
		return limit_along(root, path, "memory.max");
	if (strcmp(controllers, ":memory") != 0 || snprintf(v1, sizeof v1, "%s/memory", root) >= (int)sizeof v1)
		return UINT64_MAX;
	return limit_along(v1, path, "memory.limit_in_bytes");
}

uint64_t physical_bytes(const char *self, const char *root)
{
	char line[PATH_MAX];
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	uint64_t bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
	FILE *f = fopen(self, "re");
	while (f && fgets(line, sizeof line, f))
		bytes = smaller(bytes, limit_of_line(line, root));
	if (f)
		fclose(f);
	return bytes == UINT64_MAX ? 0 : bytes;
}
