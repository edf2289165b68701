/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls that end before they were sent: the status and text of each cause. The test's thread. */
#include "core/call_unsent.h"
#include "core/session.h"
#include "features/references/rref.h"
#include "shard_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(core_call_unsent, .init = shard_setup, .fini = shard_teardown);

static struct result r;
static struct call_id id;
static const char *handler_seen;

static void take(void *user, const struct completion *o)
{
	handler_seen = shard_in_handler();
	take_result(user, o);
}

static struct call_start start_of(bool typed, uint16_t fn)
{
	memset(&r, 0, sizeof r);
	id = (struct call_id){7, 8};
	return (struct call_start){.worker = PEER, .fn = fn, .typed = typed, .done = take, .user = &r, .id = &id};
}

static void expect_unsent(enum far_status status, int origin, const char *part)
{
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(r.status, status, "%s", r.bytes);
	cr_assert_eq(r.executed, FAR_EXECUTED_NO);
	cr_assert_eq(r.origin, origin);
	cr_assert_eq(r.len, strlen(r.bytes));
	cr_assert(strstr(r.bytes, part), "\"%s\" lacks \"%s\"", r.bytes, part);
	cr_assert_eq(id.slot, 0u, "it cannot be cancelled any more");
	cr_assert_str_eq(handler_seen, "a completion callback");
	cr_assert_null(shard_in_handler());
	expect_nothing();
}

/* What shard_call() returned. Expect a status and a text for each, and the lost worker named for the last alone. */
Test(core_call_unsent, errors)
{
	static const struct {
		int error;
		enum far_status status;
		int origin;
		const char *text;
	} cases[] = {{-ESHUTDOWN, FAR_SHUTDOWN, -1, "the agent is shut down"},
		     {-EMSGSIZE, FAR_TOO_LARGE, -1, "larger than its transport carries"},
		     {-ENOMEM, FAR_RESOURCE, -1, "no memory for the call: "},
		     {-EPIPE, FAR_PEER_LOST, PEER, "the worker is gone"}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct call_start start = start_of(false, MSG_ECHO);
		call_unsent_error(shard, &start, cases[i].error);
		expect_unsent(cases[i].status, cases[i].origin, cases[i].text);
	}
}

Test(core_call_unsent, an_unreachable_worker_is_the_origin)
{
	struct call_start start = start_of(false, MSG_ECHO);
	call_unsent(shard, &start, FAR_UNREACHABLE, "no route to it");
	expect_unsent(FAR_UNREACHABLE, PEER, "no route to it");
}

/* A deadline. Expect what was called, with the reason in front. */
Test(core_call_unsent, a_deadline_names_what_was_called)
{
	struct call_start start = start_of(false, MSG_ECHO);
	call_unsent_late(shard, &start, "");
	expect_unsent(FAR_TIMEOUT, -1, "message 1 was not sent within the call's time-out");
	cr_assert_eq(strncmp(r.bytes, "message", 7), 0);
	start = start_of(true, registry_find(&registry, "t::add")->index);
	call_unsent_late(shard, &start, "worker 1 could not be reached: ");
	expect_unsent(FAR_TIMEOUT, -1, "worker 1 could not be reached: t::add was not sent");
}

/* Expect each class of errors counted at its session. */
Test(core_call_unsent, errors_are_counted_by_class)
{
	const uint32_t *errors = shard->sessions[session_index(shard, PEER, 0)].counters.errors;
	struct call_start start = start_of(false, MSG_ECHO);
	call_unsent_late(shard, &start, "");
	start = start_of(false, MSG_ECHO);
	call_unsent_error(shard, &start, -EPIPE);
	start = start_of(false, MSG_ECHO);
	call_unsent_error(shard, &start, -ENOMEM);
	cr_assert_eq(errors[SESSION_ERROR_TIMEOUT], 1u);
	cr_assert_eq(errors[SESSION_ERROR_LOST], 1u);
	cr_assert_eq(errors[SESSION_ERROR_RESOURCE], 1u);
	cr_assert_eq(shard->sessions[session_index(shard, OTHER, 0)].counters.errors[SESSION_ERROR_LOST], 0u);
}

Test(core_call_unsent, names)
{
	char text[64];
	cr_assert_str_eq(
		call_name(shard, true, registry_find(&registry, "t::busy")->index, take, NULL, text, sizeof text),
		"t::busy");
	cr_assert_str_eq(call_name(shard, false, FAR_MSG_HANDLERS_MAX - 1, take, NULL, text, sizeof text),
			 "message 1023");
	call_name(shard, false, RREF_FETCH, take, NULL, text, sizeof text);
	cr_assert(strstr(text, "fetch"), "%s", text);
	/* A text that does not fit is cut. */
	cr_assert_str_eq(call_name(shard, false, 12, take, NULL, text, 4), "mes");
}
