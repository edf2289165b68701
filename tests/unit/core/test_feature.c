/* SPDX-License-Identifier: BSD-3-Clause */
/** The features' functions: which are called, in which order, and what stops a call. The test's thread. */
#include "core/call.h"
#include "core/call_cancel.h"
#include "core/deferred.h"
#include "core/feature.h"
#include "core/session.h"
#include "features/features.h"
#include "shard_fixture.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

static char log_text[64];
static bool first_cancels, no_memory;

static void note(const char *what)
{
	strncat(log_text, what, sizeof log_text - strlen(log_text) - 1);
}

static bool init_a(struct shard *s)
{
	note("A");
	return true;
}

static bool init_b(struct shard *s)
{
	note("B");
	return !no_memory;
}

static void fini_a(struct shard *s)
{
	note("a");
}

static void fini_b(struct shard *s)
{
	note("b");
}

static unsigned poll_a(struct shard *s)
{
	note("p");
	return 2;
}

static unsigned poll_b(struct shard *s)
{
	note("q");
	return 5;
}

static bool cancel_a(struct shard *s, const struct call_id *id)
{
	note("c");
	return first_cancels;
}

static bool cancel_b(struct shard *s, const struct call_id *id)
{
	note("d");
	return true;
}

static void over_a(struct shard *s, struct call *c)
{
	note("o");
}

static void over_b(struct shard *s, struct call *c)
{
	note("v");
}

static void gone_b(struct shard *s, struct far_deferred *d)
{
	note("g");
}

static void ended_a(struct shard *s, struct call *c)
{
	note("e");
}

/* Without functions of their own: those are the engine's. */
static const struct shard_feature a = {.name = "a",
				       .init = init_a,
				       .fini = fini_a,
				       .poll = poll_a,
				       .poll_idle = poll_a,
				       .call_cancel = cancel_a,
				       .call_ended = ended_a,
				       .call_over = over_a},
				  b = {.name = "b",
				       .init = init_b,
				       .fini = fini_b,
				       .poll = poll_b,
				       .call_cancel = cancel_b,
				       .call_over = over_b,
				       .record_gone = gone_b};
static const struct shard_feature *const both[] = {&a, &b, NULL};
static const struct shard_feature *const *engine;

static void setup(void)
{
	shard_setup();
	engine = shard->config.features;
	log_text[0] = '\0';
	first_cancels = no_memory = false;
	shard->config.features = both;
}

static void teardown(void)
{
	shard->config.features = engine;
	shard_teardown();
}

TestSuite(core_feature, .init = setup, .fini = teardown);

Test(core_feature, all_are_called_in_the_order_of_the_table)
{
	features_fini(shard);
	cr_assert_str_eq(log_text, "ab");
	features_call_ended(shard, &shard->calls[0]); /* b has none */
	cr_assert_str_eq(log_text, "abe");
	features_session_up(shard, &shard->sessions[PEER]); /* neither has one */
	cr_assert_str_eq(log_text, "abe");
}

Test(core_feature, only_those_whose_bit_is_set_are_polled)
{
	cr_assert_eq(features_poll(shard), 0u);
	shard->poll_due = 2;
	cr_assert_eq(features_poll(shard), 5u);
	shard->poll_due = 3;
	cr_assert_eq(features_poll(shard), 7u);
	shard->poll_due = 0;
	shard->poll_idle = 1;
	cr_assert_eq(features_poll_idle(shard), 2u);
	shard->poll_idle = 0;
	cr_assert_str_eq(log_text, "qpqp");
}

Test(core_feature, the_first_that_has_the_call_ends_it)
{
	struct call_id id = {0};
	cr_assert(features_call_cancel(shard, &id));
	cr_assert_str_eq(log_text, "cd");
	first_cancels = true;
	cr_assert(features_call_cancel(shard, &id));
	cr_assert_str_eq(log_text, "cdc");
	cr_assert(call_cancel(shard, &id), "a call without a slot is theirs");
	cr_assert_str_eq(log_text, "cdcc");
	cr_assert_not(features_group_cancel(shard, NULL), "no feature has groups");
}

Test(core_feature, calls_and_records_have_bits_of_their_own)
{
	struct call c = {.features = 2};
	struct far_deferred d = {.features = 3};
	features_call_over(shard, &c);
	cr_assert_str_eq(log_text, "v");
	c.features = 3;
	features_call_over(shard, &c);
	cr_assert_str_eq(log_text, "vov");
	features_record_gone(shard, &d); /* a has none */
	cr_assert_str_eq(log_text, "vovg");
	d.features = 1;
	features_record_gone(shard, &d);
	cr_assert_str_eq(log_text, "vovg");
}

/* ---- the table ---- */

static struct shard other;
static struct shard_feature copies[SHARD_FEATURES_MAX];
static const struct shard_feature *table[SHARD_FEATURES_MAX + 1];

/* A table with the engine's functions and no init or fini of theirs. Returns how many features it has. */
static size_t table_begin(void)
{
	size_t n = 0;
	for (; engine[n]; n++) {
		copies[n] = (struct shard_feature){.name = engine[n]->name, .only = engine[n]->only};
		table[n] = &copies[n];
	}
	table[n] = NULL;
	other.config = shard->config;
	other.config.features = table;
	memset(&other.hooks, 0, sizeof other.hooks);
	return n;
}

/* Memory is short in the first. Expect the next one not begun. */
Test(core_feature, init_stops_at_the_first_failure)
{
	size_t n = table_begin();
	copies[0].init = init_b;
	copies[n - 1].init = init_a;
	no_memory = true;
	cr_assert_not(features_init(&other));
	cr_assert_str_eq(log_text, "B");
	no_memory = false;
	memset(&other.hooks, 0, sizeof other.hooks);
	cr_assert(features_init(&other));
	cr_assert_str_eq(log_text, "BBA");
	cr_assert_eq(memcmp(&other.hooks, &shard->hooks, sizeof other.hooks), 0, "the engine's functions");
}

/* Each function belongs to one feature. Expect the end of the process when two have it, and when none has. */
Test(core_feature, a_function_that_two_have_ends_the_process, .signal = SIGABRT)
{
	table_begin();
	copies[FEATURE_FAULTS].only.call_keep = engine[FEATURE_RETRY]->only.call_keep;
	features_init(&other);
}

Test(core_feature, a_function_that_none_has_ends_the_process, .signal = SIGABRT)
{
	table_begin();
	copies[FEATURE_RETRY].only.call_keep = NULL;
	features_init(&other);
}
