/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `farcall run --profile`: joins the files that far_profile_write() wrote for the workers. Each is a line, then events
 * or resources with commas between, then a line that closes both brackets. Main thread.
 */
#include "run_profile.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "farcall run"

static const char closing[] = "\n]}\n";
enum { CLOSING = sizeof closing - 1 };

static void path_of(const char *file, int rank, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s.%d", file, rank);
}

int run_profile_begin(const char *file, int world)
{
	char path[PATH_MAX], directory[PATH_MAX] = "";
	for (int rank = 0; rank < world; rank++) {
		path_of(file, rank, path);
		if (remove(path) < 0 && errno != ENOENT)
			return -errno;
	}
	if (*file != '/' && !getcwd(directory, sizeof directory)) /* a worker may have another one */
		return -errno;
	if ((size_t)snprintf(path, sizeof path, "%s%s%s", directory, *directory ? "/" : "", file) >= sizeof path)
		return -ENAMETOOLONG;
	return setenv("FAR_PROFILE", path, 1) < 0 ? -errno : 0;
}

/* A whole file, malloced; NULL: none, or it is no profile. */
static char *read_profile(const char *path, size_t *len)
{
	FILE *in = fopen(path, "re");
	char *text = NULL;
	long bytes = in && fseek(in, 0, SEEK_END) == 0 ? ftell(in) : -1;
	if (bytes > CLOSING && fseek(in, 0, SEEK_SET) == 0 && (text = malloc((size_t)bytes)))
		*len = fread(text, 1, (size_t)bytes, in);
	if (in)
		fclose(in);
	if (text && *len == (size_t)bytes && memcmp(text + bytes - CLOSING, closing, CLOSING) == 0)
		return text;
	free(text);
	return NULL;
}

/* What was written so far. */
struct joined {
	FILE *out;
	bool opened; /* the first line */
	bool some;   /* events behind it */
};

static bool join(struct joined *j, const char *path)
{
	size_t len;
	char *text = read_profile(path, &len);
	if (!text)
		return false;
	const char *body = memchr(text, '\n', len), *end = text + len - CLOSING;
	if (!j->opened)
		fwrite(text, 1, (size_t)(body - text), j->out);
	j->opened = true;
	if (j->some && body < end)
		putc(',', j->out);
	j->some |= body < end;
	fwrite(body, 1, (size_t)(end - body), j->out);
	free(text);
	remove(path);
	return true;
}

int run_profile_end(const char *file, int world, struct output *output)
{
	char path[PATH_MAX];
	struct joined j = {.out = fopen(file, "we")};
	if (!j.out) {
		output_print(output, NAME ": cannot write the profile to %s: %s", file, strerror(errno));
		return 1;
	}
	for (int rank = 0; rank < world; rank++) {
		path_of(file, rank, path);
		if (!join(&j, path))
			output_print(output, NAME ": worker %d wrote no profile; it does when far_shutdown() ends it",
				     rank);
	}
	fputs(closing, j.out);
	bool failed = ferror(j.out) != 0;
	failed |= fclose(j.out) != 0;
	if (failed)
		output_print(output, NAME ": cannot write the profile to %s: %s", file, strerror(errno));
	if (!j.opened || failed)
		remove(file);
	return !j.opened || failed;
}
