/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A message of 4 GiB and 1 byte, from two parts in place into memory of the receiver's: nothing in between may count
 * with 32 bits. Needs 12 GiB; with less it reports it and is skipped.
 * Main thread of each process; handlers on shard threads.
 */
#include "api_spawn.h"
#include "pattern.h"

#include <sys/mman.h>

enum { CHECKED = 1 };
#define HUGE_BYTES (((size_t)4 << 30) + 1)
#define NEEDED_KIB ((uint64_t)12 << 20)
#define GUARD_S    800
#define SKIPPED    77

static void checked(struct far_req *req, const void *data, size_t len, void *user)
{
	uint64_t ok[2] = {pattern_holds(data, len, 1), len};
	CHECK(far_reply(req, ok, sizeof ok) == FAR_OK);
}

static uint64_t available_kib(void)
{
	unsigned long long kib = 0;
	char line[128];
	FILE *f = fopen("/proc/meminfo", "r");
	CHECK(f);
	while (fgets(line, sizeof line, f) && sscanf(line, "MemAvailable: %llu kB", &kib) != 1)
		;
	fclose(f);
	return kib;
}

static int worker(int rank)
{
	static const struct far_msg_handler handler = {CHECKED, FAR_KIND_INLINE, checked, NULL};
	struct far_opts opts = {.messages = &handler,
				.messages_n = 1,
				.rpc_timeout_ns = GUARD_S * FAR_SEC,
				.max_message_bytes = HUGE_BYTES};
	struct far_agent *agent = check_join(&opts);
	struct far_err err;
	alarm(GUARD_S);
	if (rank == 0) {
		uint8_t *bytes = mmap(NULL, HUGE_BYTES + 1, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		CHECK(bytes != MAP_FAILED);
		pattern_fill(bytes, 0, HUGE_BYTES, 1);
		struct far_part parts[] = {{bytes, 1000}, {bytes + 1000, HUGE_BYTES - 1000}};
		uint64_t ok[2];
		CHECK(far_msg_call(agent, (struct far_to){1, -1}, CHECKED, bytes, HUGE_BYTES + 1, NULL, ok, sizeof ok,
				   NULL, &err) == FAR_TOO_LARGE);
		CHECK_TEXT(&err, "4294967297");
		CHECK_STATUS(far_msg_call_parts(agent, (struct far_to){1, -1}, CHECKED, parts, 2, NULL, ok, sizeof ok,
						NULL, &err),
			     FAR_OK, &err);
		CHECK(ok[0] == 1 && ok[1] == HUGE_BYTES);
	}
	CHECK_STATUS(far_shutdown(agent, GUARD_S * FAR_SEC, &err), FAR_OK, &err);
	return 0;
}

int main(void)
{
	uint64_t have = available_kib();
	if (have < NEEDED_KIB) {
		printf("SKIP: api_huge: a message of 4 GiB + 1 byte needs 12 GiB of free memory, here are %llu MiB\n",
		       (unsigned long long)(have >> 10));
		return SKIPPED;
	}
	struct spawned s = spawn(2, worker);
	return spawn_wait(&s, -1);
}
