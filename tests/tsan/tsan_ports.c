/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Three agents in one process: two have shm and udp, the third has udp only. So each of the first two polls two queues
 * that both carry calls, of several threads, with every way of driving a shard, while others read counters and members.
 */
#include "../e2e/api_together.h"

#include <stdatomic.h>

enum { AGENTS = 3, CALLERS = 2, CALLS = 60 };

static struct together group[AGENTS];
static _Atomic bool stop;

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	far_reply(req, data, len);
}

static const struct far_msg_handler handlers[] = {{1, FAR_KIND_INLINE, echo, NULL}};

static void *caller_main(void *arg)
{
	struct far_agent *a = group[(uintptr_t)arg % AGENTS].agent;
	static const size_t lens[] = {0, 7, 32, 33, 4000, 100000};
	static const char bytes[100000];
	char *got = malloc(sizeof bytes);
	CHECK(got);
	for (unsigned i = 0; i < CALLS; i++) {
		size_t len = lens[i % 6], n = 0;
		struct far_err err;
		CHECK_STATUS(far_msg_call(a, (struct far_to){(int)(i % AGENTS), -1}, 1, bytes, len, NULL, got,
					  sizeof bytes, &n, &err),
			     FAR_OK, &err);
		CHECK(n == len);
		if (i % 20 == 19)
			usleep(2000); /* all go to sleep */
	}
	free(got);
	return NULL;
}

static void *reader_main(void *arg)
{
	while (!atomic_load(&stop)) {
		for (int i = 0; i < AGENTS; i++) {
			struct far_agent *a = group[i].agent;
			struct far_worker_info info;
			struct far_nic_stats stats;
			struct far_err err;
			for (unsigned p = 0; p < far_nic_ports(a); p++)
				CHECK(far_nic_stats_read(a, p, &stats, &err) == FAR_OK);
			for (int r = 0; r < AGENTS; r++) {
				CHECK(far_worker_by_rank(a, r, &info, &err) == FAR_OK);
				bool shm = i == r || (i != 2 && r != 2);
				CHECK(!info.nic[0] || strcmp(info.nic, shm ? "shm" : "udp") == 0);
			}
		}
		usleep(500);
	}
	return NULL;
}

static void round_of(struct far_opts opts)
{
	pthread_t callers[AGENTS * CALLERS], reader;
	opts.messages = handlers;
	opts.messages_n = 1;
	for (int i = 0; i < AGENTS; i++) {
		group[i] = (struct together){.opts = opts, .rank = i, .world = AGENTS};
		group[i].opts.nic = i == 2 ? "udp" : "shm,udp";
	}
	together_all(group, AGENTS, together_join);
	atomic_store(&stop, false);
	CHECK(pthread_create(&reader, NULL, reader_main, NULL) == 0);
	for (uintptr_t i = 0; i < AGENTS * CALLERS; i++)
		CHECK(pthread_create(&callers[i], NULL, caller_main, (void *)i) == 0);
	for (unsigned i = 0; i < AGENTS * CALLERS; i++)
		CHECK(pthread_join(callers[i], NULL) == 0);
	atomic_store(&stop, true);
	CHECK(pthread_join(reader, NULL) == 0);
	together_all(group, AGENTS, together_leave);
}

int main(void)
{
	alarm(HANG_GUARD_S);
	together_listen();
	round_of((struct far_opts){.progress = FAR_PROGRESS_SHARED});
	round_of((struct far_opts){.progress = FAR_PROGRESS_DEDICATED});
	round_of((struct far_opts){.progress = FAR_PROGRESS_SHARED, .shards = 2, .connect = FAR_CONNECT_LAZY});
	return 0;
}
