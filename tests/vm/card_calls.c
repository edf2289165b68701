/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Two workers over network cards, whose cable is pulled while they call.
 * Main thread of each process; handlers on shard threads.
 *
 * usage: card_calls MODE [DOWN UP]
 *
 * The group is that of the environment, the cards those of FAR_NIC; DOWN and UP are commands that pull worker 1's cable
 * and put it back. Modes:
 * - waits: the cable is out for no longer than the limit: the calls wait, and each is answered once.
 * - other: there is another network: the calls go on by it, and come back.
 * - never: the cable is out from the start: the other network is taken, and why is said.
 * - joins: there is no other, and the cable is out from the start: who sees it says so, and nobody joins.
 * - lost: the cable is out for longer than the limit: a call ends with an error that says so, and once the cable is
 *   back calls go through again.
 * - hold: no calls: a group of one has the card until SIGTERM, and closes it.
 */
#include "../e2e/check.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum { NOTE = 1, CALLS = 64, BYTES = 1000, GUARD_S = 400 };

static struct far_agent *agent;
static struct far_err err;
static const char *down = "false", *up = "false";

static void nap_ms(unsigned ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* ---- worker 0 serves ---- */

static void note(struct far_req *req, const void *data, size_t len, void *user)
{
	static uint8_t seen[1 << 20]; /* by call: it is run once */
	uint32_t call;
	CHECK(len >= sizeof call);
	memcpy(&call, data, sizeof call);
	CHECK(call < sizeof seen && !seen[call]++);
	CHECK(far_reply(req, NULL, 0) == FAR_OK);
}

/* ---- worker 1 calls ---- */

static enum far_status one_call(uint32_t number, size_t len)
{
	uint8_t sent[BYTES] = {0};
	size_t n = 0;
	memcpy(sent, &number, sizeof number);
	return far_msg_call(agent, (struct far_to){0, 0}, NOTE, sent, len, NULL, NULL, 0, &n, &err);
}

static void calls(uint32_t first, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		CHECK_STATUS(one_call(first + i, BYTES), FAR_OK, &err);
}

static const char *network(void)
{
	static struct far_worker_info info;
	CHECK_STATUS(far_worker_by_rank(agent, 0, &info, &err), FAR_OK, &err);
	return info.nic;
}

static _Atomic unsigned answered;

static void on_answer(enum far_status status, const void *data, size_t len, const struct far_err *e, void *user)
{
	CHECK_STATUS(status, FAR_OK, e);
	atomic_fetch_add(&answered, 1);
}

static void run_waits(void)
{
	uint8_t sent[BYTES] = {0};
	calls(0, CALLS);
	CHECK(system(down) == 0);
	nap_ms(100);
	for (uint32_t i = 0; i < CALLS; i++) {
		uint32_t number = CALLS + i;
		memcpy(sent, &number, sizeof number);
		CHECK_STATUS(far_msg_send(agent, (struct far_to){0, 0}, NOTE, sent, sizeof sent, NULL, on_answer, NULL,
					  &err),
			     FAR_OK, &err);
	}
	nap_ms(1500);
	CHECK(atomic_load(&answered) == 0);
	CHECK(system(up) == 0);
	for (unsigned i = 0; i < GUARD_S * 10 && atomic_load(&answered) < CALLS; i++)
		nap_ms(100);
	CHECK(atomic_load(&answered) == CALLS);
	calls(2 * CALLS, CALLS);
}

static void goes_by(const char *nic, uint32_t *number)
{
	for (unsigned i = 0; i < GUARD_S * 10 && strcmp(network(), nic) != 0; i++) {
		calls(*number, 1);
		++*number;
		nap_ms(100);
	}
	if (strcmp(network(), nic) != 0)
		fprintf(stderr, "worker 0 is reached by %s, not %s\n", network(), nic);
	CHECK(strcmp(network(), nic) == 0);
}

static void run_other(void)
{
	uint32_t number = 0;
	goes_by("dpdk", &number);
	CHECK(system(down) == 0);
	goes_by("udp", &number);
	CHECK(system(up) == 0);
	goes_by("dpdk", &number);
}

static void run_never(void)
{
	struct far_worker_info info;
	calls(0, CALLS);
	CHECK_STATUS(far_worker_by_rank(agent, 0, &info, &err), FAR_OK, &err);
	fprintf(stderr, "%s: %s\n", info.nic, info.nic_why);
	CHECK(strcmp(info.nic, "udp") == 0 && strstr(info.nic_why, "is down"));
}

static void run_lost(void)
{
	calls(0, CALLS);
	CHECK(system(down) == 0);
	enum far_status status = one_call(CALLS, BYTES);
	fprintf(stderr, "%s: %s\n", far_status_name(status), err.text);
	CHECK(status == FAR_PEER_LOST);
	CHECK_TEXT(&err, "dpdk");
	CHECK(system(up) == 0);
	/* The session has ended, the membership has not: calls go through again by a new session. */
	uint32_t number = CALLS + 1;
	for (unsigned i = 0; i < GUARD_S * 10 && (status = one_call(number++, BYTES)) != FAR_OK; i++)
		nap_ms(100);
	CHECK_STATUS(status, FAR_OK, &err);
}

static void (*mode_of(const char *name))(void)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} modes[] = {{"waits", run_waits}, {"other", run_other}, {"never", run_never}, {"lost", run_lost}};
	for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++)
		if (strcmp(name, modes[i].name) == 0)
			return modes[i].run;
	return NULL;
}

static int run_joins(struct far_opts *opts)
{
	char name[16];
	snprintf(name, sizeof name, "worker%d", check_rank());
	opts->init_timeout_ns = 20 * FAR_SEC;
	alarm(GUARD_S);
	enum far_status status = far_init_rpc(name, FAR_RANK_ENV, FAR_WORLD_ENV, opts, &agent, &err);
	fprintf(stderr, "%s: %s: %s\n", name, far_status_name(status), err.text);
	CHECK(status == FAR_TIMEOUT || status == FAR_UNREACHABLE);
	CHECK_TEXT(&err, "worker0");
	if (check_rank() == 1)
		CHECK_TEXT(&err, "is down: see its cable");
	return 0;
}

int main(int argc, char **argv)
{
	static const struct far_msg_handler handlers[] = {{NOTE, FAR_KIND_INLINE, note, NULL}};
	CHECK(argc >= 2 && (mode_of(argv[1]) || strcmp(argv[1], "hold") == 0 || strcmp(argv[1], "joins") == 0));
	if (argc > 3)
		down = argv[2], up = argv[3];
	bool lost = strcmp(argv[1], "lost") == 0;
	struct far_opts opts = {.messages = handlers,
				.messages_n = 1,
				.security = "none",
				.rpc_timeout_ns = GUARD_S * FAR_SEC,
				.peer_limit_ns = lost ? 10 * FAR_SEC : GUARD_S * FAR_SEC};
	if (strcmp(argv[1], "joins") == 0)
		return run_joins(&opts);
	bool hold = strcmp(argv[1], "hold") == 0;
	sigset_t term;
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	if (hold)
		CHECK(sigprocmask(SIG_BLOCK, &term, NULL) == 0); /* in the engine's threads, too */
	agent = check_join(&opts);
	alarm(GUARD_S);
	if (hold) {
		int got;
		puts("held");
		fflush(stdout);
		CHECK(sigwait(&term, &got) == 0);
	}
	if (check_rank() == 1)
		mode_of(argv[1])();
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_OK, &err);
	return 0;
}
