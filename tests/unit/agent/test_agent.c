/* SPDX-License-Identifier: BSD-3-Clause */
/** Start and stop of agents: what is refused, what is undone, what is reported at the end. The test's thread. */
#include "handlers.h"
#include "open_files.h"
#include "own_agent.h"

TestSuite(agent, .init = own_dir_make, .fini = own_dir_remove);

static void refused(const char *name, const struct far_opts *opts, enum far_status status, const char *text)
{
	struct far_agent *a = NULL;
	unsigned before = open_files();
	cr_assert_eq(own_join(name, 0, 1, opts, &a), status, "%s: %s", text, err.text);
	cr_assert(strstr(err.text, text), "%s", err.text);
	cr_assert_null(a);
	cr_assert_eq(open_files(), before, "%s: descriptors are left", text);
}

/* One of each step. Expect those before it undone: a start without the mistake succeeds. */
Test(agent, a_start_that_fails)
{
	static const struct far_function wrong = {"no signature", FAR_KIND_INLINE, handler_echo, NULL},
					 good = {"t::echo(Any x) -> Any", FAR_KIND_INLINE, handler_echo, NULL};
	static const struct far_msg_handler message = {.id = 3, .kind = FAR_KIND_INLINE, .fn = NULL};
	struct far_agent *a = own_begin(NULL); /* what a process opens once is open */
	own_end(a);
	refused("w0", &(struct far_opts){.shards = 99}, FAR_INVALID, "shards is 99");
	refused("w0", &(struct far_opts){.security = "some"}, FAR_INVALID, "security is \"some\"");
	refused("w 0", NULL, FAR_INVALID, "w 0");
	refused("w0", &(struct far_opts){.functions = &wrong, .functions_n = 1}, FAR_INVALID, "no signature");
	refused("w0", &(struct far_opts){.messages = &message, .messages_n = 1}, FAR_INVALID,
		"a message handler needs a function");
	refused("w0", &(struct far_opts){.nic = "none"}, FAR_INVALID, "nic \"none\" cannot be opened");
	refused("w0", &(struct far_opts){.group = "a b"}, FAR_INVALID, "a b");
	setenv("FAR_METRICS_SAMPLE", "x", 1);
	refused("w0", NULL, FAR_INVALID, "FAR_METRICS_SAMPLE");
	unsetenv("FAR_METRICS_SAMPLE");
	setenv("FAR_ADMIN", "x", 1);
	refused("w0", NULL, FAR_INVALID, "FAR_ADMIN");
	unsetenv("FAR_ADMIN");
	a = own_begin(&(struct far_opts){.functions = &good, .functions_n = 1});
	own_end(a);
}

Test(agent, nothing_to_start)
{
	struct far_agent *a;
	cr_assert_eq(far_init_rpc(NULL, 0, 1, NULL, &a, &err), FAR_INVALID);
	cr_assert_str_eq(err.text, "far_init_rpc: name and agent must not be NULL");
	cr_assert_eq(far_init_rpc("w0", 0, 1, NULL, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_shutdown(NULL, 0, &err), FAR_SHUTDOWN);
	cr_assert_eq(far_shutdown_local(NULL, &err), FAR_SHUTDOWN);
}

/* Options of a version that knows more, and headers of a later one. An unknown option that is not set is none. */
Test(agent, versions_of_the_program)
{
	struct {
		struct far_opts known;
		uint64_t unknown;
	} o = {.known = {.nic = "shm"}, .unknown = 1};
	struct far_agent *a;
	const struct far_opts *opts = &o.known;
	cr_assert_eq(far_init_rpc_sized(FAR_VERSION_NUMBER + 1000, "w0", 0, 1, NULL, 0, &a, &err), FAR_UNSUPPORTED);
	cr_assert(strstr(err.text, "and the library is " FAR_VERSION "; install libfarcall"), "%s", err.text);
	cr_assert_eq(far_init_rpc_sized(FAR_VERSION_NUMBER, "w0", 0, 1, opts, sizeof o, &a, &err), FAR_UNSUPPORTED);
	cr_assert(strstr(err.text, "an option is set that farcall " FAR_VERSION " does not have"), "%s", err.text);
	char url[128];
	snprintf(url, sizeof url, "file://%s/store", top);
	o.known.init_method = url;
	o.unknown = 0;
	cr_assert_eq(far_init_rpc_sized(FAR_VERSION_NUMBER + 999, "w0", 0, 1, opts, sizeof o, &a, &err), FAR_OK, "%s",
		     err.text);
	own_end(a);
}

/* A worker of the same name in the same group, and after its end. */
Test(agent, the_same_twice)
{
	struct far_agent *a = own_begin(NULL), *b;
	cr_assert_eq(own_join("w0", 0, 1, NULL, &b), FAR_ALREADY_INITIALIZED);
	cr_assert(strstr(err.text, "in this process; shut that agent down first"), "%s", err.text);
	cr_assert_eq(own_join("other", 0, 1, &(struct far_opts){.group = "other"}, &b), FAR_OK, "%s", err.text);
	own_end(b);
	own_end(a);
	own_end(own_begin(NULL));
}

/* A reference that is held at the end, with each value of `leaks`. */
Test(agent, references_that_are_held)
{
	static const enum far_status ends[] = {
		[FAR_LEAKS_REPORT] = FAR_OK, [FAR_LEAKS_IGNORE] = FAR_OK, [FAR_LEAKS_FAIL] = FAR_LEAKED};
	for (unsigned i = 0; i < sizeof ends / sizeof *ends; i++) {
		struct far_agent *a = own_begin(&(struct far_opts){.leaks = (enum far_leaks)i});
		struct far_rref *r;
		cr_assert_eq(far_remote(a, "w0", "far::identity", FAR_ARGS(1), NULL, &r, &err), FAR_OK, "%s", err.text);
		cr_assert_eq(far_shutdown(a, FAR_FOREVER, &err), ends[i], "leaks %u: %s", i, err.text);
		if (ends[i])
			cr_assert(strstr(err.text, "remote references are still held: RRef(created_on=0"), "%s",
				  err.text);
		far_rref_free(r);
	}
}

static enum far_status ends(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_err e;
	enum far_status status = far_shutdown_local(far_req_agent(req), &e);
	return far_fail(req, status, 0, "%s", e.text);
}

/* The end waits for handlers, so that none can wait for it. */
Test(agent, ended_in_a_handler)
{
	static const struct far_function functions[] = {{"t::inline() -> none", FAR_KIND_INLINE, ends, NULL},
							{"t::fiber() -> none", FAR_KIND_FIBER, ends, NULL},
							{"t::blocking() -> none", FAR_KIND_BLOCKING, ends, NULL}};
	struct far_agent *a = own_begin(&(struct far_opts){.functions = functions, .functions_n = 3});
	static const char *const names[] = {"t::inline", "t::fiber", "t::blocking"};
	for (unsigned i = 0; i < 3; i++) {
		cr_assert_eq(far_rpc_sync(a, "w0", names[i], FAR_ARGS(), NULL, NULL, &err), FAR_WOULD_DEADLOCK);
		cr_assert(strstr(err.text, "far_shutdown_local"), "%s", err.text);
	}
	own_end(a);
}
