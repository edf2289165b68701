/* SPDX-License-Identifier: BSD-3-Clause */
/* The lease of a client of etcd://: its time, its renewals, and what it holds anew. The test's thread. */
#include "control/lease.h"
#include "etcd_fixture.h"

#include <errno.h>

TestSuite(store_etcd_lease, .init = etcd_setup, .fini = etcd_teardown);

/* What the application has set and a margin, in seconds; 20 s without; no less than the server grants. Its holder
 * counts by its own clock, to the end of the margin before. */
Test(store_etcd_lease, the_time_of_a_lease)
{
	static const struct {
		uint64_t ns;
		int64_t granted_s, requested_s, lease_s;
	} cases[] = {{0, 0, 20, 20},
		     {FAR_LEASE_NS, 2, 12, 12},
		     {4426666666, 2, 5, 5},
		     {4426666667 + 9, 2, 6, 6},
		     {100000000, 2, 1, 2}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		store.phase = PHASE_GRANT;
		store.base.lease_ns = cases[i].ns;
		granted_s = cases[i].granted_s;
		etcd_store_grant(&store);
		cr_assert_eq(requested_s, cases[i].requested_s);
		cr_assert_eq(store.lease_s, cases[i].lease_s);
		cr_assert_eq(store.keep_at - store.now, (uint64_t)cases[i].lease_s * 100000000);
		if (!cases[i].ns)
			continue;
		cr_assert_eq(store.base.kept_at, store.now);
		cr_assert_geq(store.base.own_ns, cases[i].ns);
		cr_assert_leq(lease_with_margin(store.base.own_ns), (uint64_t)cases[i].lease_s * 1000000000);
	}
}

static void keep_at(uint64_t now)
{
	store.now = store.keep_at = now;
	store.keeping = false; /* the module of the test answers at once */
	etcd_store_keep(&store);
}

/* A renewal counts from when it was sent, and only while the keys are held with this lease. */
Test(store_etcd_lease, a_renewal_counts_from_when_it_was_sent)
{
	store.base.lease_ns = FAR_LEASE_NS;
	store.lease_s = granted_s = 12;
	keep_at(1000);
	cr_assert_eq(store.base.kept_at, 1000);
	granted_s = 0; /* the lease has ended */
	keep_at(2000);
	cr_assert_eq(store.phase, PHASE_NEW_LEASE);
	cr_assert_eq(store.base.kept_at, 1000);
	cr_assert_eq(store.base.lost_at, 2000);
	store.now = 3000;
	granted_s = 12;
	etcd_store_grant(&store);
	cr_assert_eq(store.phase, PHASE_REHOLD);
	cr_assert_eq(store.base.kept_at, 1000);
	store.now = 4000;
	etcd_store_rehold(&store); /* it holds none */
	cr_assert_eq(store.phase, PHASE_READY);
	cr_assert_eq(store.base.kept_at, 3000);
	cr_assert_eq(store.base.lost_at, 0);
}

/* ---- what it holds anew ---- */

static void reholds(const char *want)
{
	asked[0] = 0;
	etcd_store_rehold(&store);
	cr_assert_str_eq(asked, want);
}

/* A key is held with the lease 0x55, which has ended. */
static void lease_ended(void)
{
	change("farcall/g/rank/1", 0x55, false);
	take();
	changes_n = taken = 0;
	store.ops = &noted;
	store.phase = PHASE_REHOLD;
	store.old_lease = 0x55;
	reholds("if farcall/g/rank/1 at 0: put farcall/g/rank/1=v lease 77");
}

static int64_t holder(void)
{
	const struct held *h = *store_held_find(&store.table, (struct kv_bytes){(const uint8_t *)"g/rank/1", 8});
	return h ? (int64_t)h->holder : 0;
}

Test(store_etcd_lease, keys_are_held_anew)
{
	lease_ended();
	reply((struct etcd_reply){.succeeded = true, .revision = 9});
	cr_assert_eq(holder(), LEASE);
	reholds("");
	cr_assert_eq(store.phase, PHASE_READY);
}

/* It was held, and the reply got lost. */
Test(store_etcd_lease, keys_are_held_already)
{
	lease_ended();
	key_is("farcall/g/rank/1", "v", 9, LEASE);
	reply((struct etcd_reply){.revision = 11});
	cr_assert_eq(holder(), LEASE);
	cr_assert_eq(store.error, 0);
}

Test(store_etcd_lease, another_holds_a_key)
{
	lease_ended();
	key_is("farcall/g/rank/1", "theirs", 9, 0x99);
	reply((struct etcd_reply){.revision = 11});
	cr_assert_eq(store.error, -ESTALE);
	cr_assert_str_eq(store.text, "its lease in etcd ran out, and another process has taken its rank meanwhile");
	store.error = 0;
}

/* ---- login ---- */

#define SELF "farcall/g/client/0000000000000077"
#define NEXT                                                                                                           \
	"if farcall/g/client/ at 0: if farcall/g/closed at 0: if farcall/g/rank/1 at 0: if farcall/g/info/1 at 0: "    \
	"put " SELF " lease 77"

/* LOGIN of rank 1 of group "g"; rank −1: of no group. */
static void logs_in(int rank, const char *want)
{
	struct store_identity who = {.rank = rank, .incarnation = 7};
	struct store_auth greeting;
	strcpy(who.group, rank < 0 ? "" : "g");
	strcpy(who.name, rank < 0 ? "" : "w1");
	store_login_make(&greeting, &who, &random_kernel);
	const struct store_msg m = {.op = STORE_LOGIN, .value = greeting.login, .value_len = greeting.login_len};
	store.ops = &noted;
	asked[0] = 0;
	etcd_store_login_begin(&store, &m);
	cr_assert_str_eq(asked, want);
}

static void begins(void)
{
	store.phase = PHASE_LOGIN;
	store.login = LOGIN_FIRST;
	logs_in(1, "if farcall/g/client/ at 0: delete farcall/g/, delete farcall/g/client0, put " SELF " lease 77");
}

/* A group without members: what a former one has left is deleted. */
Test(store_etcd_lease, the_first_member)
{
	begins();
	reply((struct etcd_reply){.succeeded = true, .revision = 5});
	cr_assert_eq(store.phase, PHASE_LOAD);
}

Test(store_etcd_lease, the_next_member)
{
	begins();
	reply((struct etcd_reply){.revision = 5});
	logs_in(1, NEXT);
	reply((struct etcd_reply){.succeeded = true, .revision = 6});
	cr_assert_eq(store.phase, PHASE_LOAD);
}

/* It was admitted, and the reply got lost. */
Test(store_etcd_lease, a_lost_login)
{
	begins();
	key_is(SELF, "", 5, LEASE);
	reply((struct etcd_reply){.revision = 6});
	cr_assert_eq(store.phase, PHASE_LOAD);
}

/* A former member of this rank: a knock shows whether the others are alive. */
Test(store_etcd_lease, a_successor)
{
	begins();
	reply((struct etcd_reply){.revision = 5});
	logs_in(1, NEXT);
	key_is("farcall/g/rank/1", "former", 3, 0x55);
	reply((struct etcd_reply){.revision = 6});
	logs_in(1, "if farcall/g/client/ at 0: put farcall/g/knock/0000000000000000/0000000000000077 lease 77");
	reply((struct etcd_reply){.succeeded = true, .revision = 7});
	cr_assert_eq(store.phase, PHASE_LOGIN);
	const char *answer = "if farcall/g/client/ at 0: if farcall/g/closed at 0: "
			     "if farcall/g/knock/0000000000000000/0000000000000077 at 0: put " SELF " lease 77";
	logs_in(1, answer);
	/* Nobody has answered yet. */
	key_is("farcall/g/knock/0000000000000000/0000000000000077", "", 7, LEASE);
	key_is("farcall/g/client/0000000000000055", "", 3, 0x55);
	reply((struct etcd_reply){.revision = 7});
	cr_assert(strstr(store.text, "members of a former group \"g\" do not answer"), "%s", store.text);
	logs_in(1, "");
	store.now = store.retry_at;
	logs_in(1, answer);
	reply((struct etcd_reply){.succeeded = true, .revision = 9});
	cr_assert_eq(store.phase, PHASE_LOAD);
}

Test(store_etcd_lease, a_closed_group)
{
	begins();
	reply((struct etcd_reply){.revision = 5});
	logs_in(1, NEXT);
	key_is("farcall/g/closed", "1", 3, 0);
	reply((struct etcd_reply){.revision = 6});
	cr_assert_str_eq(store.text, "members of a former group \"g\" are still there");
	logs_in(1, "");
	store.now = store.retry_at;
	begins();
}

Test(store_etcd_lease, a_login_without_a_lease)
{
	begins();
	reply((struct etcd_reply){.error = -ENOENT});
	cr_assert_eq(store.phase, PHASE_GRANT);
	cr_assert_eq(store.error, 0);
}

Test(store_etcd_lease, a_client_of_no_group)
{
	store.phase = PHASE_LOGIN;
	logs_in(STORE_RANK_NONE, "");
	cr_assert_eq(store.phase, PHASE_LOAD);
	const struct store_msg malformed = {.op = STORE_LOGIN, .value = (const uint8_t *)"x", .value_len = 1};
	etcd_store_login_begin(&store, &malformed);
	cr_assert_eq(store.error, -EPROTO);
	store.error = 0;
}
