/* SPDX-License-Identifier: BSD-3-Clause */
/** Numbers that processes of several machines show each other, by files of a directory that all of them have.
 * Main thread of each process. */
#include "divided.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

static char test[256];

static const char *setting(const char *name)
{
	const char *value = getenv(name);
	return value && *value ? value : NULL;
}

bool divided(void)
{
	return setting("FAR_CONFORM_RANKS") != NULL;
}

bool divided_has(int rank)
{
	const char *here = setting("FAR_CONFORM_RANKS");
	return !here || strchr(here, '0' + rank);
}

const char *divided_host(void)
{
	const char *host = setting("FAR_CONFORM_HOST");
	return divided() && host ? host : "127.0.0.1";
}

void divided_test(const char *group, const char *name)
{
	snprintf(test, sizeof test, "%s.%s", group, name);
}

static void path_of(char *out, const char *what, int rank)
{
	const char *dir = setting("FAR_CONFORM_MEET");
	snprintf(out, PATH_BYTES, "%s/%s.%s.%d", dir ? dir : ".", test, what, rank);
}

/* Under another name at first: who reads sees all of it, or nothing. */
bool divided_write(const char *what, int rank, int64_t number)
{
	char path[PATH_BYTES], new_path[PATH_BYTES + 8];
	path_of(path, what, rank);
	snprintf(new_path, sizeof new_path, "%s.new", path);
	FILE *f = fopen(new_path, "w");
	if (!f)
		return false;
	bool written = fprintf(f, "%lld\n", (long long)number) > 0;
	written = fclose(f) == 0 && written;
	return written && rename(new_path, path) == 0;
}

int64_t divided_read(const char *what, int rank)
{
	char path[PATH_BYTES];
	long long number = 0;
	path_of(path, what, rank);
	FILE *f = fopen(path, "r");
	if (!f)
		return 0;
	if (fscanf(f, "%lld", &number) != 1)
		number = 0;
	fclose(f);
	return number;
}
