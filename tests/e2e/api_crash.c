/* SPDX-License-Identifier: BSD-3-Clause */
/** The crash report: workers that crash in every kind of handler, and their reports; and workers without it.
 * Main thread of each process; handlers on shard threads. */
#include "api_gate.h"

#include <sys/resource.h>

enum crash { BAD_ADDRESS, OVERFLOW, DIVISION, ABORT, CRASHES };

static struct far_agent *agent;
static struct far_err err;
static int report_fd;
static const struct crash_case *now;

struct crash_case {
	const char *name;
	const char *function; /* NULL: in no handler */
	enum crash how;
	int signal;
	bool install, own_handler;
	const char *says[4];
};

/* ---- crashing ---- */

__attribute__((noinline)) static int deeper(int n)
{
	volatile char frame[1024];
	frame[n % 1024] = (char)n;
	return n < 1 << 30 ? deeper(n + 1) + frame[n % 1024] : 0;
}

static void crash(enum crash how)
{
	static volatile int zero;
	switch (how) {
	case BAD_ADDRESS:
		*(volatile int *)(uintptr_t)(0x1230 + (unsigned)zero) = 1;
		break;
	case OVERFLOW:
		zero = deeper(0);
		break;
	case DIVISION: /* does not trap on every machine */
		raise(SIGFPE);
		break;
	default:
		abort();
	}
}

static enum far_status crashes(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val out = {0};
	struct far_err e;
	/* A fiber crashes after a wait, on whatever thread that is. */
	(void)far_rpc_sync(far_req_agent(req), "worker1", "far::add", FAR_ARGS(1, 2), NULL, &out, &e);
	crash((enum crash)args[0].u.i);
	return far_return(req, NULL);
}

static void crashes_message(struct far_req *req, const void *data, size_t len, void *user)
{
	crash(*(const enum crash *)data);
	far_reply(req, NULL, 0);
}

static void on_crash(int signal)
{
	static const char text[] = "the application's own\n";
	if (write(STDERR_FILENO, text, sizeof text - 1) > 0)
		_exit(40 + (signal == now->signal));
	_exit(1);
}

/* ---- the workers: 1 crashes ---- */

static int worker(int rank)
{
	static const struct far_function functions[] = {
		{"t::inline_one(int how) -> none", FAR_KIND_INLINE, crashes, NULL},
		{"t::fiber_one(int how) -> none", FAR_KIND_FIBER, crashes, NULL},
		{"t::blocking_one(int how) -> none", FAR_KIND_BLOCKING, crashes, NULL},
	};
	static const struct far_msg_handler messages[] = {{9, FAR_KIND_FIBER, crashes_message, NULL}};
	if (rank == 1) {
		struct rlimit none = {0, 0};
		setrlimit(RLIMIT_CORE, &none);
		CHECK(dup2(report_fd, STDERR_FILENO) == STDERR_FILENO);
		if (now->own_handler)
			signal(now->signal, on_crash);
		if (now->install) {
			CHECK_STATUS(far_crash_report_install(&err), FAR_OK, &err);
			CHECK_STATUS(far_crash_report_install(&err), FAR_OK, &err);
		}
	}
	agent = join_mode((struct far_opts){.functions = functions,
					    .functions_n = 3,
					    .messages = messages,
					    .messages_n = 1,
					    .fiber_stack_bytes = 48 << 10});
	if (rank == 1) {
		if (!now->function)
			crash(now->how);
		pause();
	}
	enum far_status status = FAR_PEER_LOST;
	if (now->function && *now->function == 'm')
		status = far_msg_call(agent, (struct far_to){1, -1}, 9, &now->how, sizeof now->how, NULL, NULL, 0, NULL,
				      &err);
	else if (now->function)
		status = far_rpc_sync(agent, "worker1", now->function, FAR_ARGS((int)now->how), NULL, NULL, &err);
	CHECK_STATUS(status, FAR_PEER_LOST, &err);
	far_shutdown_local(agent, &err);
	return 0;
}

/* Ends as without the report: by the signal, or as the application's own handler has it. */
static bool ended_right(int status)
{
	if (now->own_handler)
		return WIFEXITED(status) && WEXITSTATUS(status) == 41;
	return WIFSIGNALED(status) && WTERMSIG(status) == now->signal;
}

static bool said(const char *report, const char *text)
{
	if (strstr(report, text))
		return true;
	fprintf(stderr, "\"%s\" is not in the report:\n%s", text, report);
	return false;
}

static int run_case(const struct crash_case *c)
{
	static char report[1 << 16];
	int status, bad = 0;
	FILE *f = tmpfile();
	CHECK(f);
	now = c;
	report_fd = fileno(f);
	struct spawned s = spawn(2, worker);
	CHECK(waitpid(s.pids[1], &status, 0) == s.pids[1]);
	if (!ended_right(status)) {
		fprintf(stderr, "it ended with wait status %#x\n", (unsigned)status);
		bad = 1;
	}
	CHECK(waitpid(s.pids[0], &status, 0) == s.pids[0]);
	bad |= status != 0;
	rewind(f);
	report[fread(report, 1, sizeof report - 1, f)] = '\0';
	fclose(f);
	if (!c->install && strstr(report, "farcall:")) {
		fprintf(stderr, "unasked, it said:\n%s", report);
		bad = 1;
	}
	for (int i = 0; i < 4 && c->says[i]; i++)
		bad |= !said(report, c->says[i]);
	const char *first = strstr(report, "farcall: crash");
	if (first && strstr(first + 1, "farcall: crash"))
		bad |= !said(first + 1, "one crash only"); /* reported twice */
	if (bad)
		fprintf(stderr, "FAIL %s, driver %s\n", c->name, drive_mode->name);
	return bad;
}

int main(void)
{
	static const struct crash_case cases[] = {
		{"inline",
		 "t::inline_one",
		 BAD_ADDRESS,
		 SIGSEGV,
		 true,
		 false,
		 {"SIGSEGV at address 0x1230,", "in the inline handler \"t::inline_one\"", "worker \"worker1\"",
		  "+0x"}},
		{"fiber",
		 "t::fiber_one",
		 BAD_ADDRESS,
		 SIGSEGV,
		 true,
		 false,
		 {"SIGSEGV at address 0x1230,", "in the fiber handler \"t::fiber_one\"", "worker \"worker1\""}},
		{"message",
		 "message",
		 BAD_ADDRESS,
		 SIGSEGV,
		 true,
		 false,
		 {"in the fiber handler \"message 9\" on worker \"worker1\"", "the shard's last events",
		  "session up, worker of rank 0"}},
		{"blocking",
		 "t::blocking_one",
		 BAD_ADDRESS,
		 SIGSEGV,
		 true,
		 false,
		 {"SIGSEGV at address 0x1230,", "in the blocking handler \"t::blocking_one\"", "worker \"worker1\"",
		  "session up, worker of rank 0"}},
		{"overflow",
		 "t::fiber_one",
		 OVERFLOW,
		 SIGSEGV,
		 true,
		 false,
		 {"in the fiber handler \"t::fiber_one\"", "overflowed its 49152 bytes", "opts.fiber_stack_bytes"}},
		{"blocking overflow",
		 "t::blocking_one",
		 OVERFLOW,
		 SIGSEGV,
		 true,
		 false,
		 {"in the blocking handler \"t::blocking_one\""}},
		{"no handler", NULL, BAD_ADDRESS, SIGSEGV, true, false, {"SIGSEGV at address 0x1230, in no handler"}},
		{"sent", "t::fiber_one", DIVISION, SIGFPE, true, false, {"SIGFPE sent by process", "t::fiber_one"}},
		{"abort",
		 "t::blocking_one",
		 ABORT,
		 SIGABRT,
		 true,
		 false,
		 {"SIGABRT sent by process", "t::blocking_one"}},
		{"abort, no handler", NULL, ABORT, SIGABRT, true, false, {"SIGABRT sent by process", "in no handler"}},
		{"the application's own too",
		 "t::fiber_one",
		 BAD_ADDRESS,
		 SIGSEGV,
		 true,
		 true,
		 {"in the fiber handler \"t::fiber_one\"", "the application's own"}},
		{"own, abort",
		 "t::inline_one",
		 ABORT,
		 SIGABRT,
		 true,
		 true,
		 {"\"t::inline_one\"", "the application's own"}},
		{"not installed", "t::fiber_one", BAD_ADDRESS, SIGSEGV, false, false, {NULL}},
		{"not installed, overflow", "t::fiber_one", OVERFLOW, SIGSEGV, false, false, {NULL}},
		{"not installed, own", "t::blocking_one", BAD_ADDRESS, SIGSEGV, false, true, {"the application's own"}},
	};
	int bad = 0;
	for (size_t m = 0; m < 2; m++) {
		drive_mode = &drive_modes[m];
		for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
			bad |= run_case(&cases[i]);
	}
	return bad;
}
