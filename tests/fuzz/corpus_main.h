/* SPDX-License-Identifier: BSD-3-Clause */
/** main() of a fuzzer without libFuzzer: runs LLVMFuzzerTestOneInput() on each file that it is given, or finds in a
 * directory that it is given, then on the file cut at every length and with every bit flipped; in the first tier of
 * tests/run.sh, with every seventh: one or two of each byte. Included once, at the end of the fuzzer. Main thread. */
#ifndef FAR_FUZZ_CORPUS_MAIN_H
#define FAR_FUZZ_CORPUS_MAIN_H

#include "first_tier.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Longest file that is read, and longest that is varied too. */
#define CORPUS_BYTES_MAX 65536
#define CORPUS_VARY_MAX  1024

static int corpus_file(const char *path)
{
	static uint8_t bytes[CORPUS_BYTES_MAX];
	FILE *f = fopen(path, "rb");
	if (!f) {
		perror(path);
		return -1;
	}
	size_t size = fread(bytes, 1, sizeof bytes, f);
	fclose(f);
	LLVMFuzzerTestOneInput(bytes, size);
	if (size > CORPUS_VARY_MAX)
		return 1;
	for (size_t cut = 0; cut < size; cut++)
		LLVMFuzzerTestOneInput(bytes, cut);
	const size_t step = first_tier() ? 7 : 1;
	for (size_t bit = 0; bit < size * 8; bit += step) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		LLVMFuzzerTestOneInput(bytes, size);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	return 1;
}

/** Files run, or -1. */
static int corpus_path(const char *path)
{
	struct stat st;
	if (stat(path, &st) != 0) {
		perror(path);
		return -1;
	}
	if (!S_ISDIR(st.st_mode))
		return corpus_file(path);
	DIR *dir = opendir(path);
	if (!dir) {
		perror(path);
		return -1;
	}
	int files = 0;
	for (struct dirent *e = readdir(dir); e && files >= 0; e = readdir(dir)) {
		char name[4096];
		if (e->d_name[0] == '.')
			continue;
		snprintf(name, sizeof name, "%s/%s", path, e->d_name);
		files = corpus_file(name) < 0 ? -1 : files + 1;
	}
	closedir(dir);
	return files;
}

int main(int argc, char **argv)
{
	int files = 0;
	for (int i = 1; i < argc; i++) {
		int n = corpus_path(argv[i]);
		if (n < 0)
			return 1;
		files += n;
	}
	if (files == 0) {
		fprintf(stderr, "usage: %s FILE|DIRECTORY...: no file was found\n", argv[0]);
		return 1;
	}
	printf("%d files of the corpus\n", files);
	return 0;
}

#endif
