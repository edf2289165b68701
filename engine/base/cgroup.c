/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads control groups, version 1 and 2. Any thread, off the path of calls; reads files. */
#include "base/cgroup.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_MAX 64 /* bytes of a file with two numbers, and NUL */

/* Calls `fn` for a directory and all above it; shortens `path` meanwhile. */
static void visit_along(const char *top, char *path, int version, cgroup_visit_fn *fn, void *ctx)
{
	char dir[PATH_MAX];
	for (;;) {
		if (snprintf(dir, sizeof dir, "%s%s", top, path) < (int)sizeof dir)
			fn(ctx, dir, version);
		char *slash = strrchr(path, '/');
		if (!slash)
			return;
		*slash = '\0';
	}
}

static bool has_word(const char *list, const char *word)
{
	size_t len = strlen(word);
	for (const char *end; list; list = end ? end + 1 : NULL) {
		end = strchr(list, ',');
		if ((end ? (size_t)(end - list) : strlen(list)) == len && memcmp(list, word, len) == 0)
			return true;
	}
	return false;
}

/* Parses a line: "0::/path" is version 2; "4:cpu,cpuacct:/path" is version 1, whose directory has the name of the list
 * or of one of its controllers. */
static void visit_line(char *line, const char *root, const char *controller, cgroup_visit_fn *fn, void *ctx)
{
	char top[PATH_MAX], copy[PATH_MAX];
	line[strcspn(line, "\n")] = '\0';
	char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
	if (!path || path[1] != '/')
		return;
	*list++ = '\0';
	*path++ = '\0';
	if (*list == '\0' && strcmp(line, "0") == 0) {
		visit_along(root, path, 2, fn, ctx);
		return;
	}
	if (!has_word(list, controller))
		return;
	snprintf(copy, sizeof copy, "%s", path);
	if (snprintf(top, sizeof top, "%s/%s", root, controller) < (int)sizeof top)
		visit_along(top, copy, 1, fn, ctx);
	if (strcmp(list, controller) != 0 && snprintf(top, sizeof top, "%s/%s", root, list) < (int)sizeof top)
		visit_along(top, path, 1, fn, ctx);
}

void cgroup_visit(const char *self, const char *root, const char *controller, cgroup_visit_fn *fn, void *ctx)
{
	char line[PATH_MAX];
	FILE *f = fopen(self, "re");
	while (f && fgets(line, sizeof line, f))
		visit_line(line, root, controller, fn, ctx);
	if (f)
		fclose(f);
}

/* Reads a small file without its newline; false: it is missing or too long. */
static bool read_value(const char *dir, const char *file, char out[VALUE_MAX])
{
	char path[PATH_MAX];
	if (snprintf(path, sizeof path, "%s/%s", dir, file) >= (int)sizeof path)
		return false;
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	size_t n = fread(out, 1, VALUE_MAX, f);
	fclose(f);
	if (n == VALUE_MAX || memchr(out, '\0', n))
		return false;
	out[n] = '\0';
	out[strcspn(out, "\n")] = '\0';
	return true;
}

/* Parses a number in [1, INT64_MAX] that ends at `end`; 0: no number, or "max" or -1, which mean no limit. */
static uint64_t number(const char *s, char end, const char **next)
{
	char *stop;
	if (*s < '0' || *s > '9')
		return 0;
	errno = 0;
	unsigned long long n = strtoull(s, &stop, 10);
	if (errno || *stop != end || n > INT64_MAX)
		return 0;
	if (next)
		*next = stop + 1;
	return n;
}

static void take_quota(void *ctx, const char *dir, int version)
{
	uint64_t quota, period = 0, *milli = ctx;
	char text[VALUE_MAX];
	if (version == 2) {
		const char *second = NULL;
		quota = read_value(dir, "cpu.max", text) ? number(text, ' ', &second) : 0;
		period = quota ? number(second, '\0', NULL) : 0;
	} else {
		quota = read_value(dir, "cpu.cfs_quota_us", text) ? number(text, '\0', NULL) : 0;
		period = read_value(dir, "cpu.cfs_period_us", text) ? number(text, '\0', NULL) : 0;
	}
	if (!quota || !period)
		return;
	uint64_t here = quota > UINT64_MAX / 1000 ? UINT64_MAX : quota * 1000 / period;
	here = here ? here : 1;
	*milli = here < *milli ? here : *milli;
}

uint64_t cgroup_cpu_milli(const char *self, const char *root)
{
	uint64_t milli = UINT64_MAX;
	cgroup_visit(self, root, "cpu", take_quota, &milli);
	return milli;
}
