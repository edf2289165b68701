/* SPDX-License-Identifier: BSD-3-Clause */
/** The checkers: each accepts what is right, and refuses the history that is wrong in the one thing it looks at.
 * The test's thread. */
#include "sim/check.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define MS     UINT64_C(1000000)
#define SECOND (1000 * MS)

static struct history h;
static struct checks checks = {.check = (1u << CHECKS) - 1, .slack_ns = 10 * MS, .resends = 3};

static void begin(void)
{
	h = (struct history){.end = 100 * SECOND, .peer_limit_ns = SECOND, .late_ns = 1000 * SECOND};
	checks.check = (1u << CHECKS) - 1;
}

static void end(void)
{
	history_fini(&h);
}

TestSuite(sim_check, .init = begin, .fini = end);

/* A call of worker 0 to worker 1 at second 1, with a second to end. */
static size_t call_of(enum load_kind kind)
{
	return history_begin(
		&h, &(struct history_call){
			    .kind = (uint8_t)kind, .from = 0, .to = 1, .begun = SECOND, .deadline = 2 * SECOND});
}

static void run_at(size_t call, uint64_t at, uint32_t worker, uint32_t incarnation)
{
	cr_assert(history_run(&h, call, &(struct history_run){.at = at, .worker = worker, .incarnation = incarnation}));
}

static size_t good_call(void)
{
	size_t c = call_of(LOAD_ECHO);
	run_at(c, SECOND + MS, 1, 0);
	history_end(&h, c, SECOND + 2 * MS, FAR_OK, FAR_EXECUTED_YES, NULL);
	return c;
}

/* Ends otherwise after `after`. */
static size_t failed_call(enum load_kind kind, uint64_t after, enum far_status status, enum far_executed executed)
{
	size_t c = call_of(kind);
	history_end(&h, c, SECOND + after, status, executed, NULL);
	return c;
}

static void fine(const char *what)
{
	struct check_failure f;
	unsigned n = check_history(&h, &checks, &f, 1);
	cr_assert_eq(n, 0, "%s: %s: %s", what, checker_names[f.checker], f.text);
}

/* This checker objects, in these words, and is the only one but for those in `others`. */
static void refused_by(enum checker checker, unsigned others, const char *words)
{
	struct check_failure f[CHECKS];
	unsigned n = check_history(&h, &checks, f, CHECKS);
	bool found = false;
	for (unsigned i = 0; i < n; i++) {
		if (f[i].checker == checker) {
			found = true;
			cr_assert(strstr(f[i].text, words), "no \"%s\" in: %s", words, f[i].text);
		} else {
			cr_assert(others >> f[i].checker & 1, "%s too: %s", checker_names[f[i].checker], f[i].text);
		}
	}
	cr_assert(found, "%s has no objection", checker_names[checker]);
	checks.check &= ~(1u << checker | others);
	fine("without it");
}

Test(sim_check, a_right_history)
{
	good_call();
	good_call();
	fine("two calls");
	history_fini(&h);
	fine("none");
}

Test(sim_check, ran_twice)
{
	run_at(good_call(), 3 * SECOND, 1, 0);
	refused_by(CHECK_ONCE, 0, "its handler ran 2 times");
}

Test(sim_check, ended_well_and_never_ran)
{
	failed_call(LOAD_ECHO, MS, FAR_OK, FAR_EXECUTED_YES);
	refused_by(CHECK_ONCE, 0, "never ran");
}

Test(sim_check, ran_elsewhere)
{
	size_t c = call_of(LOAD_ECHO);
	run_at(c, SECOND + MS, 2, 0);
	history_end(&h, c, SECOND + 2 * MS, FAR_OK, FAR_EXECUTED_YES, NULL);
	refused_by(CHECK_ONCE, 0, "on worker 2");
}

Test(sim_check, ran_before_it_was_made)
{
	size_t c = call_of(LOAD_ECHO);
	run_at(c, SECOND - 1, 1, 0);
	history_end(&h, c, SECOND + 2 * MS, FAR_OK, FAR_EXECUTED_YES, NULL);
	refused_by(CHECK_ONCE, 0, "before it was made");
}

Test(sim_check, made_up)
{
	cr_assert_not(history_run(&h, 5, &(struct history_run){.at = SECOND}));
	refused_by(CHECK_ONCE, 0, "that no worker sent");
}

Test(sim_check, another_reply)
{
	size_t c = good_call();
	h.calls[c].wrong_reply = true;
	refused_by(CHECK_REPLY, 0, "not the one");
}

Test(sim_check, other_bytes)
{
	size_t c = good_call();
	h.calls[c].wrong_request = true;
	refused_by(CHECK_BYTES, 0, "other bytes");
}

Test(sim_check, ended_twice)
{
	history_end(&h, good_call(), SECOND + 5 * MS, FAR_OK, FAR_EXECUTED_YES, NULL);
	refused_by(CHECK_DEADLINE, 0, "ended 2 times");
}

Test(sim_check, never_ended)
{
	call_of(LOAD_ECHO);
	refused_by(CHECK_DEADLINE, 0, "it never ended");
}

Test(sim_check, not_ended_and_not_due)
{
	call_of(LOAD_ECHO);
	h.end = 2 * SECOND;
	fine("the run ended before the call had to");
}

Test(sim_check, late)
{
	checks.check &= ~(1u << CHECK_NO_TIMEOUT);
	failed_call(LOAD_ECHO, SECOND + 9 * MS, FAR_TIMEOUT, FAR_EXECUTED_MAYBE);
	fine("within the slack");
	failed_call(LOAD_ECHO, SECOND + 11 * MS, FAR_TIMEOUT, FAR_EXECUTED_MAYBE);
	refused_by(CHECK_DEADLINE, 0, "11000 us after its deadline (TIMEOUT)");
}

Test(sim_check, late_for_a_pause)
{
	checks.check &= ~(1u << CHECK_NO_TIMEOUT);
	history_incident(&h,
			 &(struct history_incident){
				 .kind = INCIDENT_PAUSE, .a = 0, .b = 0, .from = SECOND, .until = SECOND + 1500 * MS});
	failed_call(LOAD_ECHO, 1505 * MS, FAR_TIMEOUT, FAR_EXECUTED_MAYBE);
	fine("its worker stood still");
	history_incident(&h,
			 &(struct history_incident){
				 .kind = INCIDENT_PAUSE, .a = 1, .b = 0, .from = SECOND, .until = SECOND + 1500 * MS});
	history_fini(&h);
	begin();
	checks.check &= ~(1u << CHECK_NO_TIMEOUT);
	history_incident(&h,
			 &(struct history_incident){
				 .kind = INCIDENT_PAUSE, .a = 1, .b = 0, .from = SECOND, .until = SECOND + 1500 * MS});
	failed_call(LOAD_ECHO, 1505 * MS, FAR_TIMEOUT, FAR_EXECUTED_MAYBE);
	refused_by(CHECK_DEADLINE, 0, "after its deadline");
}

Test(sim_check, an_orphan_owes_nothing)
{
	size_t c = call_of(LOAD_ECHO);
	history_orphan(&h, 0, 1);
	cr_assert_not(h.calls[c].orphaned, "another incarnation's");
	history_orphan(&h, 0, 0);
	cr_assert(h.calls[c].orphaned);
	fine("its caller is gone");
}

Test(sim_check, timeout_too_early)
{
	checks.check &= ~(1u << CHECK_NO_TIMEOUT);
	failed_call(LOAD_ECHO, 900 * MS, FAR_TIMEOUT, FAR_EXECUTED_MAYBE);
	refused_by(CHECK_CLASS, 0, "TIMEOUT 100000 us before its deadline");
}

Test(sim_check, timeouts_where_none_may_be)
{
	failed_call(LOAD_ECHO, SECOND, FAR_TIMEOUT, FAR_EXECUTED_MAYBE);
	refused_by(CHECK_NO_TIMEOUT, 0, "TIMEOUT");
}

Test(sim_check, false_death)
{
	failed_call(LOAD_ECHO, 100 * MS, FAR_PEER_LOST, FAR_EXECUTED_MAYBE);
	refused_by(CHECK_CLASS, 1u << CHECK_NO_DEATH, "PEER_LOST, and nothing has happened to either");
}

Test(sim_check, deaths_that_incidents_excuse)
{
	checks.check &= ~(1u << CHECK_NO_DEATH);
	history_incident(&h,
			 &(struct history_incident){
				 .kind = INCIDENT_CRASH, .a = 1, .b = 0, .from = SECOND, .until = HISTORY_TIME_NONE});
	failed_call(LOAD_ECHO, 100 * MS, FAR_PEER_LOST, FAR_EXECUTED_MAYBE);
	fine("a crash");
	h.incidents[0] = (struct history_incident){
		.kind = INCIDENT_CRASH, .a = 2, .b = 0, .from = SECOND, .until = HISTORY_TIME_NONE};
	refused_by(CHECK_CLASS, 0, "PEER_LOST");
}

Test(sim_check, a_death_before_the_incident)
{
	checks.check &= ~(1u << CHECK_NO_DEATH);
	history_incident(
		&h, &(struct history_incident){
			    .kind = INCIDENT_CRASH, .a = 1, .b = 0, .from = 2 * SECOND, .until = HISTORY_TIME_NONE});
	failed_call(LOAD_ECHO, 100 * MS, FAR_PEER_LOST, FAR_EXECUTED_MAYBE);
	refused_by(CHECK_CLASS, 0, "PEER_LOST");
}

Test(sim_check, a_short_partition_is_no_death)
{
	checks.check &= ~(1u << CHECK_NO_DEATH);
	size_t i = history_incident(
		&h, &(struct history_incident){
			    .kind = INCIDENT_CUT, .a = 1, .b = 0, .from = SECOND, .until = HISTORY_TIME_NONE});
	failed_call(LOAD_ECHO, 600 * MS, FAR_UNREACHABLE, FAR_EXECUTED_NO);
	fine("a partition that never heals");
	history_incident_over(&h, i, SECOND + 300 * MS);
	refused_by(CHECK_CLASS, 0, "UNREACHABLE");
}

Test(sim_check, classes_that_nothing_explains)
{
	failed_call(LOAD_ECHO, MS, FAR_PROTOCOL, FAR_EXECUTED_MAYBE);
	refused_by(CHECK_CLASS, 0, "PROTOCOL, which nothing explains");
	history_fini(&h);
	begin();
	failed_call(LOAD_ECHO, MS, FAR_REMOTE, FAR_EXECUTED_MAYBE);
	refused_by(CHECK_CLASS, 0, "its handler does not fail");
	history_fini(&h);
	begin();
	failed_call(LOAD_ECHO, MS, FAR_CANCELLED, FAR_EXECUTED_MAYBE);
	refused_by(CHECK_CLASS, 0, "without a request to cancel");
	history_fini(&h);
	begin();
	size_t c = call_of(LOAD_FAIL);
	run_at(c, SECOND + MS, 1, 0);
	history_end(&h, c, SECOND + 2 * MS, FAR_OK, FAR_EXECUTED_YES, NULL);
	refused_by(CHECK_CLASS, 0, "its handler failed");
}

Test(sim_check, classes_that_are_right)
{
	size_t c = call_of(LOAD_FAIL);
	run_at(c, SECOND + MS, 1, 0);
	history_end(&h, c, SECOND + 2 * MS, FAR_REMOTE, FAR_EXECUTED_YES, NULL);
	c = call_of(LOAD_CANCEL);
	h.calls[c].cancelled = SECOND + MS;
	history_end(&h, c, SECOND + MS, FAR_CANCELLED, FAR_EXECUTED_MAYBE, NULL);
	fine("an error of the handler, a cancel");
}

Test(sim_check, executed_no_and_it_ran)
{
	checks.check &= ~(1u << CHECK_NO_TIMEOUT);
	run_at(failed_call(LOAD_ECHO, SECOND, FAR_TIMEOUT, FAR_EXECUTED_NO), 3 * SECOND, 1, 0);
	refused_by(CHECK_EXECUTED, 0, "executed NO, and its handler ran");
}

Test(sim_check, executed_yes_and_it_did_not)
{
	checks.check &= ~(1u << CHECK_NO_TIMEOUT);
	failed_call(LOAD_ECHO, SECOND, FAR_TIMEOUT, FAR_EXECUTED_YES);
	refused_by(CHECK_EXECUTED, 0, "executed YES, and its handler never ran");
}

Test(sim_check, executed_maybe_is_true_either_way)
{
	checks.check &= ~(1u << CHECK_NO_TIMEOUT);
	failed_call(LOAD_ECHO, SECOND, FAR_TIMEOUT, FAR_EXECUTED_MAYBE);
	run_at(failed_call(LOAD_ECHO, SECOND, FAR_TIMEOUT, FAR_EXECUTED_MAYBE), SECOND + MS, 1, 0);
	fine("MAYBE");
}

/* Worker 1 dies at 1.2 s and is back at 1.4 s; a call that began before runs at 1.5 s. */
static void runs_in_the_next_incarnation(bool connected)
{
	checks.check &= ~(1u << CHECK_NO_DEATH);
	if (connected) {
		size_t c = good_call();
		h.calls[c].begun = SECOND / 2;
		h.calls[c].runs[0].at = h.calls[c].ended = SECOND / 2 + MS;
	}
	history_incident(
		&h,
		&(struct history_incident){
			.kind = INCIDENT_CRASH, .a = 1, .b = 0, .from = SECOND + 200 * MS, .until = SECOND + 400 * MS});
	size_t c = call_of(LOAD_ECHO);
	run_at(c, SECOND + 500 * MS, 1, 1);
	history_end(&h, c, SECOND + 501 * MS, FAR_OK, FAR_EXECUTED_YES, NULL);
}

Test(sim_check, ran_in_the_next_incarnation)
{
	runs_in_the_next_incarnation(true);
	refused_by(CHECK_INCARNATION, 0, "ran in incarnation 1");
}

Test(sim_check, waited_for_the_next_incarnation)
{
	runs_in_the_next_incarnation(false);
	fine("it was sent to nobody before");
}

Test(sim_check, a_dead_caller_is_obeyed)
{
	history_incident(
		&h,
		&(struct history_incident){
			.kind = INCIDENT_CRASH, .a = 0, .b = 0, .from = SECOND + 200 * MS, .until = SECOND + 400 * MS});
	size_t c = call_of(LOAD_ECHO);
	history_orphan(&h, 0, 0);
	run_at(c, 5 * SECOND, 1, 0);
	refused_by(CHECK_INCARNATION, 0, "its caller died");
}

static size_t oneway(uint32_t sequence)
{
	size_t c = call_of(LOAD_ONEWAY);
	h.calls[c].sequence = sequence;
	return c;
}

Test(sim_check, oneways_in_order)
{
	size_t a = oneway(0), b = oneway(1), other = oneway(5);
	h.calls[other].from = 2;
	run_at(other, SECOND + MS, 1, 0);
	run_at(a, SECOND + MS, 1, 0);
	run_at(b, SECOND + MS, 1, 0);
	fine("in order");
}

Test(sim_check, oneways_out_of_order)
{
	size_t a = oneway(0), b = oneway(1);
	run_at(b, SECOND + MS, 1, 0);
	run_at(a, SECOND + MS, 1, 0);
	refused_by(CHECK_ORDER, 0, "it ran before call 0");
}

Test(sim_check, oneways_of_other_shards_have_an_order_of_their_own)
{
	size_t a = oneway(0), b = oneway(1);
	h.calls[b].from_shard = 1;
	run_at(b, SECOND + MS, 1, 0);
	run_at(a, SECOND + MS, 1, 0);
	fine("from two shards");
	h.calls[b].from_shard = 0;
	h.calls[b].to_shard = h.calls[b].runs[0].shard = 2;
	fine("to two shards");
	h.calls[a].to_shard = h.calls[a].runs[0].shard = 2;
	refused_by(CHECK_ORDER, 0, "it ran before call 0");
}

Test(sim_check, ran_on_another_shard)
{
	size_t c = good_call();
	h.calls[c].to_shard = 1;
	refused_by(CHECK_ONCE, 0, "its handler ran on shard 0, it was for 1");
}

Test(sim_check, a_oneway_that_is_lost)
{
	oneway(0);
	refused_by(CHECK_DELIVERED, 0, "never delivered");
	checks.check = (1u << CHECKS) - 1;
	history_incident(&h, &(struct history_incident){
				     .kind = INCIDENT_CUT, .a = 1, .b = 0, .from = SECOND, .until = SECOND + MS});
	fine("there was a partition");
}

Test(sim_check, a_oneway_that_was_refused)
{
	size_t c = oneway(0);
	history_end(&h, c, SECOND + MS, FAR_CANCELLED, FAR_EXECUTED_NO, NULL);
	h.calls[c].cancelled = SECOND;
	fine("it was not sent");
}

Test(sim_check, findings)
{
	history_finding(&h, CHECK_CONSERVED, "calls: counted %d, found %d", 2, 1);
	refused_by(CHECK_CONSERVED, 0, "counted 2, found 1");
	history_finding(&h, CHECK_LEVEL, "a buffer is left");
	refused_by(CHECK_LEVEL, 0, "a buffer is left");
	history_finding(&h, CHECK_QUIET, "it said something");
	refused_by(CHECK_QUIET, 0, "something");
}

Test(sim_check, resends)
{
	h.resends = 3;
	fine("as many as may be");
	h.resends = 4;
	refused_by(CHECK_RESENDS, 0, "4 packets were sent again, 3 at most");
}

Test(sim_check, only_what_is_asked_for)
{
	h.resends = 4;
	checks.check = 1u << CHECK_ONCE;
	fine("resends are not checked");
}

/* ---- late ---- */

static void crash_of(uint32_t worker, uint64_t from, uint64_t until, uint64_t ready)
{
	size_t i = history_incident(&h, &(struct history_incident){.kind = INCIDENT_CRASH, .a = worker, .from = from});
	h.incidents[i].until = until;
	h.incidents[i].ready = ready;
}

Test(sim_check, a_call_is_late)
{
	size_t c = good_call();
	h.late_ns = SECOND / 2;
	h.calls[c].deadline = 10 * SECOND;
	fine("in time");
	h.calls[c].ended = SECOND + SECOND / 2 + MS;
	refused_by(CHECK_LATE, 0, "it ended with OK after 501000 us, 1000 us late");
}

Test(sim_check, work_is_not_late)
{
	size_t c = good_call();
	h.late_ns = SECOND / 2;
	h.calls[c].deadline = 10 * SECOND;
	h.calls[c].work_ns = 2 * SECOND;
	h.calls[c].ended = SECOND + 2 * SECOND + SECOND / 2;
	fine("its handler takes two seconds");
}

/* A cut of 100 ms covers itself and 300 ms: half a second more is left. */
Test(sim_check, a_cut_excuses_its_own_time_only)
{
	size_t c = good_call();
	h.late_ns = SECOND / 2;
	h.calls[c].deadline = 10 * SECOND;
	history_incident(&h, &(struct history_incident){
				     .kind = INCIDENT_CUT, .a = 1, .b = 0, .from = SECOND, .until = SECOND + 100 * MS});
	h.calls[c].ended = SECOND + 900 * MS;
	fine("all of it is covered");
	h.calls[c].ended = SECOND + 901 * MS;
	refused_by(CHECK_LATE, 0, "1000 us late");
}

Test(sim_check, a_fault_of_others_excuses_nothing)
{
	size_t c = good_call();
	h.late_ns = SECOND / 2;
	h.calls[c].deadline = 10 * SECOND;
	history_incident(&h, &(struct history_incident){
				     .kind = INCIDENT_PAUSE, .a = 2, .from = SECOND, .until = SECOND + 500 * MS});
	h.calls[c].ended = SECOND + 600 * MS;
	refused_by(CHECK_LATE, 0, "late");
}

Test(sim_check, a_oneway_is_late)
{
	size_t c = call_of(LOAD_ONEWAY);
	h.late_ns = SECOND;
	h.calls[c].sent = SECOND;
	run_at(c, 3 * SECOND, 1, 0);
	refused_by(CHECK_LATE, 0, "it was delivered 2000000 us after it was sent");
}

/* The worker dies long after it should have had it: the loss is not its death's. */
Test(sim_check, a_oneway_that_a_death_does_not_excuse)
{
	size_t c = call_of(LOAD_ONEWAY);
	h.late_ns = SECOND;
	h.calls[c].sent = SECOND;
	crash_of(1, SECOND + SECOND / 2, HISTORY_TIME_NONE, HISTORY_TIME_NONE);
	fine("it died half a second later");
	h.incidents[0].from = 4 * SECOND;
	refused_by(CHECK_LATE, 0, "it was never delivered");
}

Test(sim_check, back_and_still_dead)
{
	size_t c = failed_call(LOAD_ECHO, MS, FAR_PEER_LOST, FAR_EXECUTED_MAYBE);
	crash_of(1, SECOND - 100 * MS, SECOND - 50 * MS, SECOND - 10 * MS);
	checks.check &= ~(1u << CHECK_NO_DEATH);
	fine("it has just come back");
	h.calls[c].begun += 5 * SECOND;
	h.calls[c].ended += 5 * SECOND;
	h.calls[c].deadline += 5 * SECOND;
	refused_by(CHECK_LATE, 0, "its worker has long been back");
}

Test(sim_check, a_handler_learns_of_its_callers_death)
{
	size_t c = call_of(LOAD_SLOW);
	run_at(c, SECOND + MS, 1, 0);
	h.calls[c].orphaned = true;
	crash_of(0, SECOND + 10 * MS, HISTORY_TIME_NONE, HISTORY_TIME_NONE);
	h.calls[c].left = 2 * SECOND;
	fine("within the limit of silence");
	h.calls[c].left = 9 * SECOND;
	refused_by(CHECK_ORPHANS, 0, "its handler went on until 9000000 us");
}

Test(sim_check, another_function_ran)
{
	size_t c = good_call();
	h.calls[c].wrong_function = true;
	refused_by(CHECK_ONCE, 0, "another function ran");
}

Test(sim_check, a_function_that_only_some_incarnations_have)
{
	failed_call(LOAD_SOME, MS, FAR_NO_FUNCTION, FAR_EXECUTED_NO);
	crash_of(1, MS, 2 * MS, 3 * MS);
	fine("it is another incarnation");
	h.incidents[0].a = 2;
	refused_by(CHECK_CLASS, 0, "every incarnation so far had it");
}
