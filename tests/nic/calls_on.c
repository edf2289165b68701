/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Two workers of the group that the environment names: worker 1 calls worker 0, one call at a time, until DIR/stop is
 * there, and keeps DIR/state: how many calls have ended well, and by which address of worker 0. In the end every call
 * must have run once. Main thread of each process; handlers on shard threads.
 *
 * usage: calls_on DIR [LIMIT], seconds that a silent worker is borne with, 60 unless given
 */
#include "../e2e/check.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { CALL = 1, WRONG, CALLS_MAX = 8000000, STATE_EVERY = 16 };

static struct far_err err;
static _Atomic uint8_t runs[CALLS_MAX];

static void called(struct far_req *req, const void *data, size_t len, void *user)
{
	uint32_t call;
	CHECK(len == 600);
	memcpy(&call, data, sizeof call);
	CHECK(call < CALLS_MAX);
	atomic_fetch_add(&runs[call], 1);
	CHECK(far_reply(req, data, len) == FAR_OK);
}

/* How many of the first so many have not run once. */
static void wrong(struct far_req *req, const void *data, size_t len, void *user)
{
	uint32_t calls, bad = 0;
	CHECK(len == sizeof calls);
	memcpy(&calls, data, sizeof calls);
	for (uint32_t i = 0; i < CALLS_MAX; i++)
		bad += atomic_load(&runs[i]) != (i < calls);
	CHECK(far_reply(req, &bad, sizeof bad) == FAR_OK);
}

static void write_report(struct far_agent *a, const char *dir, uint32_t calls)
{
	struct far_worker_info info;
	char path[256], fresh[264];
	snprintf(path, sizeof path, "%s/state", dir);
	snprintf(fresh, sizeof fresh, "%s.new", path);
	CHECK_STATUS(far_worker_by_rank(a, 0, &info, &err), FAR_OK, &err);
	FILE *f = fopen(fresh, "w");
	CHECK(f);
	fprintf(f, "%" PRIu32 " %s\n", calls, info.nic_address);
	CHECK(fclose(f) == 0 && rename(fresh, path) == 0);
}

static uint32_t go_on(struct far_agent *a, const char *dir)
{
	char stop[256];
	uint32_t calls = 0;
	snprintf(stop, sizeof stop, "%s/stop", dir);
	for (; calls < CALLS_MAX && (calls % STATE_EVERY || access(stop, F_OK) != 0); calls++) {
		uint8_t sent[600], got[600];
		size_t n = 0;
		memset(sent, (int)calls, sizeof sent);
		memcpy(sent, &calls, sizeof calls);
		CHECK_STATUS(far_msg_call(a, (struct far_to){0, 0}, CALL, sent, sizeof sent, NULL, got, sizeof got, &n,
					  &err),
			     FAR_OK, &err);
		CHECK(n == sizeof sent && memcmp(sent, got, n) == 0);
		if (calls % STATE_EVERY == 0)
			write_report(a, dir, calls);
	}
	return calls;
}

int main(int argc, char **argv)
{
	static const struct far_msg_handler handlers[] = {{CALL, FAR_KIND_INLINE, called, NULL},
							  {WRONG, FAR_KIND_INLINE, wrong, NULL}};
	struct far_opts opts = {.messages = handlers,
				.messages_n = sizeof handlers / sizeof *handlers,
				.security = "none",
				.rpc_timeout_ns = 300 * FAR_SEC,
				/* Not for silence: an emulated machine may have no time for long. */
				.peer_limit_ns = (argc > 2 ? (unsigned)atoi(argv[2]) : 60) * FAR_SEC};
	CHECK(argc == 2 || argc == 3);
	struct far_agent *a = check_join(&opts);
	alarm(800); /* it goes on until a file ends it */
	if (check_rank() == 1) {
		uint32_t calls = go_on(a, argv[1]), bad = 1;
		size_t n = 0;
		CHECK_STATUS(far_msg_call(a, (struct far_to){0, 0}, WRONG, &calls, sizeof calls, NULL, &bad, sizeof bad,
					  &n, &err),
			     FAR_OK, &err);
		printf("%" PRIu32 " calls, %" PRIu32 " of them not once\n", calls, bad);
		CHECK(n == sizeof bad && bad == 0 && calls > 0);
	}
	check_leave(a);
	return 0;
}
