/* SPDX-License-Identifier: BSD-3-Clause */
/** References that are left at the end: what is named, what is not, and what is kept of sessions that ended before.
 * The test's thread. */
#include "core/session.h"
#include "rref_fixture.h"

#include <farcall/agent.h>
#include <farcall/log.h>

enum { KEPT = 64 };

static struct rref_leaks leaks;
static unsigned logged;
static char last[1024];

static void on_log(enum far_log_level level, const char *text, const struct far_log_field *fields, size_t n, void *user)
{
	cr_assert_eq(level, FAR_LOG_WARNING);
	logged++;
	snprintf(last, sizeof last, "%s", text);
}

static void begin(void)
{
	shard_setup();
	far_log_set(on_log, NULL);
	logged = 0;
	memset(&leaks, 0, sizeof leaks);
}

static void end(void)
{
	far_log_set(NULL, NULL);
	shard_teardown();
}

TestSuite(rref_leak, .init = begin, .fini = end);

static struct session *peer(void)
{
	return &shard->sessions[session_index(shard, PEER, 0)];
}

/* PEER has `n` values here. */
static void make_many(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		make(1 + i, PEER, 100 + i, 1000 + i, OUR_INCARNATION);
		expect_made(1 + i);
	}
}

static void expect_named(unsigned n, const char *part)
{
	cr_assert_eq(logged, n);
	cr_assert_eq(leaks.named_n, n);
	if (n) {
		cr_assert(strstr(last, part), "\"%s\" lacks \"%s\"", last, part);
		cr_assert_neq(leaks.first[0], '\0');
	}
}

/* Expect the value, its owner and the holder named, and the first text kept for the error of the shutdown. */
Test(rref_leak, what_a_peer_holds)
{
	char text[RREF_TEXT_MAX], want[sizeof text + 128];
	make_many(2);
	rref_leaks_of(shard, peer(), &leaks);
	expect_named(2, "of worker \"me\" is still held by worker \"w1\" (rank 1, shard 0)");
	struct rref_record *r = rref_find(shard, ID(PEER, 100));
	rref_text(&r->rref.base, text, sizeof text);
	snprintf(want, sizeof want, "shutdown: %s of worker", text);
	cr_assert(strncmp(last, want, strlen(want)) == 0, "%s", last);
	cr_assert(strstr(leaks.first, "of worker \"me\" is still held"), "%s", leaks.first);
	rref_unref(&r->rref.base);
}

/* Of a group that ended with a loss, or whose report nobody wants. */
Test(rref_leak, nothing_is_named)
{
	make_many(1);
	rref_leaks_of(shard, peer(), NULL);
	leaks.lost = true;
	rref_leaks_of(shard, peer(), &leaks);
	rref_leaks_keep(shard, peer());
	rref_leaks_left(shard, &leaks);
	expect_named(0, "");
	cr_assert_null(shard->rrefs->left);
}

/* Sessions end before the report. Expect what their peers held in it, up to a bound, once. */
Test(rref_leak, kept_until_the_report)
{
	make_many(KEPT + 3);
	rref_leaks_keep(shard, peer());
	rref_leaks_keep(shard, peer());
	cr_assert_eq(shard->rrefs->left_n, KEPT);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	passes(1);
	cr_assert_eq(shard->rrefs->records.n, 0u, "the values are gone, their texts are not");
	rref_leaks_left(shard, &leaks);
	expect_named(KEPT, "is still held by worker \"w1\" (rank 1, shard 0)");
	rref_leaks_left(shard, &leaks);
	expect_named(KEPT, "");
	cr_assert_eq(shard->rrefs->left_n, 0u);
}

/* A handle here, of a value of ours and of one of PEER's. Expect each named with what to do; for a worker that serves,
 * only the one of another worker. */
Test(rref_leak, what_this_worker_holds)
{
	make_many(1);
	struct rref_record *r = rref_find(shard, ID(PEER, 100));
	struct rref_wire w = wire(PEER, 7, 8);
	struct rref_user *u = rref_new(shard, &w);
	rref_owner_is(&u->rref, "w1");
	rref_leak_report(shard, &r->rref, &leaks);
	expect_named(0, ""); /* PEER's fork is named, not the record */
	control(NIC_PEER, 2, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 100), ID(PEER, 1000));
	expect_status(NIC_PEER, 2, FAR_OK);
	rref_leak_report(shard, &r->rref, &leaks);
	expect_named(1, "worker \"me\" still holds ");
	cr_assert(strstr(last, ", its own"), "%s", last);
	rref_leak_report(shard, &u->rref, &leaks);
	expect_named(2, "of worker \"w1\"; give it back with far_rref_free or far_val_fini");
	cr_assert(strstr(leaks.first, ", its own"), "the first one stays: %s", leaks.first);
	leaks.serves = true;
	rref_leak_report(shard, &r->rref, &leaks);
	expect_named(2, "");
	rref_leak_report(shard, &u->rref, &leaks);
	expect_named(3, "of worker \"w1\"");
	rref_discard(u);
	rref_unref(&r->rref.base);
	passes(1);
	expect_empty();
}
