/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a client reads from the file of a store: the input is the file, but for its first byte. If that is odd, the
 * records get right sums, so that their contents are read, too. A client that accepts the file sets a key and reads it.
 * Main thread.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined. With -DFUZZ_MAIN: as fuzz_values.c.
 */
#include "base/byteorder.h"
#include "base/crc32c.h"
#include "base/must.h"
#include "control/store.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FILE_MAX = 65536, HEAD = 16, RECORD = 20, SUMMED = 1 };

static int net_watch(struct ctl_net *net, int fd)
{
	(void)net;
	(void)fd;
	return 0;
}

static const struct ctl_net_ops ops = {.watch = net_watch};

static void sums_set(uint8_t *file, size_t size)
{
	for (size_t at = HEAD; at + RECORD <= size;) {
		size_t len = RECORD + (size_t)le_get(file + at + 6, 2) + (size_t)le_get(file + at + 8, 4);
		if (len > size - at)
			return;
		le_put(file + at, crc32c(0, file + at + 4, len - 4), 4);
		at += len;
	}
}

static void file_write(const char *path, const uint8_t *data, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	must(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	close(fd);
}

static void answered(void *user, int result, const struct store_msg *reply)
{
	if (result == 0 && reply->status == STORE_OK && reply->value_len == 1 && reply->value[0] == 'v')
		*(bool *)user = true;
}

static void client_reads(const char *path)
{
	struct ctl_net net = {&ops};
	bool busy = false, found = false;
	struct store_login login = {.who = {.rank = 1, .incarnation = 7, .group = "g", .name = "w"},
				    .random = &random_kernel};
	struct store_msg set = {.op = STORE_SET,
				.key = (const uint8_t *)"k",
				.key_len = 1,
				.value = (const uint8_t *)"v",
				.value_len = 1};
	struct store_msg get = {.op = STORE_GET, .key = set.key, .key_len = 1};
	struct store_client *client = store_client_create(store_stream_file(&net, path));
	must(client);
	store_client_login(client, &login);
	must(store_client_submit(client, &set, 1, TIME_NEVER, answered, &(bool){false}) == 0);
	must(store_client_submit(client, &get, 1, TIME_NEVER, answered, &found) == 0);
	for (uint64_t now = 1; now < 20; now++)
		store_client_step(client, now, &busy);
	must(found == (store_client_connection(client) == STORE_CONNECTED));
	store_client_destroy(client);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t file[FILE_MAX];
	static char dir[64];
	char path[96], lock[96];
	if (size == 0 || size > sizeof file)
		return 0;
	if (!dir[0]) {
		snprintf(dir, sizeof dir, "%s/farcall-fuzz-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
		setenv("FAR_LOG", "error", 1); /* incomplete records are warnings */
		must(mkdtemp(dir));
	}
	memcpy(file, data + 1, size - 1);
	if (data[0] & SUMMED)
		sums_set(file, size - 1);
	snprintf(path, sizeof path, "%s/store", dir);
	snprintf(lock, sizeof lock, "%s/store.lock", dir);
	file_write(path, file, size - 1);
	client_reads(path);
	unlink(path);
	unlink(lock);
	if (rmdir(dir) == 0)
		dir[0] = 0;
	return 0;
}

#ifdef FUZZ_MAIN
#include "corpus_main.h"
#endif
