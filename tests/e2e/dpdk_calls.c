/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls of any size, both ways, between every two shards of two workers, over the driver that FAR_NIC leads to:
 * `dpdk_calls DRIVER [SHARDS]`. Main thread of each process; handlers on shard threads. */
#include "check.h"

#include <time.h>

#define LARGEST ((size_t)17 << 20)

static struct far_err err;

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	far_reply(req, data, len);
}

static const struct far_msg_handler handlers[] = {{1, FAR_KIND_FIBER, echo, NULL}};

static void call(struct far_agent *a, int worker, int via, int shard, size_t len)
{
	static uint8_t *sent, *got;
	struct far_call_opts opts = {.via = via};
	size_t n = 0;
	if (!sent)
		sent = malloc(LARGEST), got = malloc(LARGEST);
	CHECK(sent && got);
	for (size_t i = 0; i < len; i++)
		sent[i] = (uint8_t)(i * 7 + i / 253 + len);
	CHECK_STATUS(far_msg_call(a, (struct far_to){worker, shard}, 1, sent, len, &opts, got, LARGEST, &n, &err),
		     FAR_OK, &err);
	CHECK(n == len && memcmp(sent, got, n) == 0);
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {4096, 16384, 65535, 65536, 262144, 262145, 1 << 20, 3000001, LARGEST};
	CHECK(argc >= 2);
	int shards = argc > 2 ? atoi(argv[2]) : 1, rank = check_rank();
	struct far_opts opts = {.messages = handlers, .messages_n = 1, .shards = (unsigned)shards};
	struct far_agent *a = check_join(&opts);
	struct far_worker_info info;
	for (int via = 0; via < shards; via++)
		for (int to = 0; to < shards; to++) {
			for (size_t len = 0; len < 4000; len += len < 70 ? 1 : 37)
				call(a, !rank, via + 1, to, len);
			for (size_t i = 0; i < sizeof sizes / sizeof *sizes && (via == to || i < 5); i++)
				call(a, !rank, via + 1, to, sizes[i]);
			call(a, rank, via + 1, to, 100);
		}
	for (unsigned i = 0; i < 20; i++) { /* both asleep, and woken */
		const struct timespec nap = {.tv_nsec = 5000000};
		nanosleep(&nap, NULL);
		call(a, !rank, 1, 0, 100 * i);
	}
	CHECK_STATUS(far_worker_by_rank(a, !rank, &info, &err), FAR_OK, &err);
	if (strcmp(info.nic, argv[1]) != 0)
		fprintf(stderr, "the other worker is reached by \"%s\" (%s), %s\n", info.nic, info.nic_why,
			info.nic_address);
	CHECK(strcmp(info.nic, argv[1]) == 0);
	check_leave(a);
	return 0;
}
