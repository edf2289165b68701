/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of the machine or of the container, whichever is less. Any thread; reads files. */
#include "memory/physical.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

/* The number in a file; UINT64_MAX: no number, such as "max". */
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

static void take_limit(void *ctx, const char *dir, int version)
{
	char path[PATH_MAX];
	uint64_t *bytes = ctx;
	const char *file = version == 2 ? "memory.max" : "memory.limit_in_bytes";
	if (snprintf(path, sizeof path, "%s/%s", dir, file) >= (int)sizeof path)
		return;
	uint64_t limit = read_limit(path);
	*bytes = limit < *bytes ? limit : *bytes;
}

uint64_t physical_bytes(const char *self, const char *root)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	uint64_t bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
	cgroup_visit(self, root, "memory", take_limit, &bytes);
	return bytes == UINT64_MAX ? 0 : bytes;
}
