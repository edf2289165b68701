/* SPDX-License-Identifier: BSD-3-Clause */
/* The store etcd:// with a module of the test's: keys that are none of a store's, and knocks. The test's thread. */
#include "control/lease.h"
#include "control/store_etcd.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LEASE = 0x77 };

static struct etcd_kv changes[4];
static size_t changes_n, taken;
static char deleted[512];

static int fake_change(struct etcd *e, struct etcd_kv *out, int64_t *revision)
{
	if (taken == changes_n)
		return 0;
	*out = changes[taken++];
	*revision = 0;
	return 1;
}

static int fake_txn(struct etcd *e, const struct etcd_txn *t, etcd_done_fn *done, void *user)
{
	cr_assert(t->then_n == 1 && t->then[0].kind == ETCD_DELETE && !t->then[0].of.end.len);
	snprintf(deleted, sizeof deleted, "%.*s", (int)t->then[0].of.key.len, (const char *)t->then[0].of.key.data);
	return 0;
}

static int64_t granted_s, requested_s; /* what the server grants at least; what was requested */

static int fake_lease(struct etcd *e, enum etcd_lease what, int64_t id, int64_t ttl_s, etcd_done_fn *done, void *user)
{
	if (what == ETCD_GRANT)
		requested_s = ttl_s;
	done(user, &(struct etcd_reply){.ttl_s = ttl_s > granted_s ? ttl_s : granted_s});
	return 0;
}

static const struct etcd_ops fake = {.change = fake_change, .txn = fake_txn, .lease = fake_lease};
static struct etcd_store store = {.ops = &fake, .phase = PHASE_READY, .lease = LEASE, .who = {.group = "g"}};

static void setup(void)
{
	cr_assert_eq(store_table_begin(&store.table), 0);
}

static void teardown(void)
{
	etcd_store_known_forget(&store, INT64_MAX);
	while (store.known) {
		struct known *next = store.known->next;
		free(store.known);
		store.known = next;
	}
	store_table_free(&store.table);
}

static void change(const char *key, int64_t lease, bool is_deleted)
{
	changes[changes_n] = (struct etcd_kv){.key = {(const uint8_t *)key, strlen(key)},
					      .value = {(const uint8_t *)"v", is_deleted ? 0 : 1},
					      .revision = (int64_t)changes_n + 1,
					      .lease = lease,
					      .deleted = is_deleted};
	changes_n++;
}

static void take(void)
{
	bool busy = false;
	etcd_store_changes_take(&store, &busy);
	cr_assert_eq(taken, changes_n);
	cr_assert_eq(store.error, 0);
}

static bool has(const char *key)
{
	struct kv_bytes value;
	return kv_get(store.table.server->kv, (struct kv_bytes){(const uint8_t *)key, strlen(key)}, &value) == 0;
}

TestSuite(store_etcd, .init = setup, .fini = teardown);

Test(store_etcd, keys_of_others_are_left_out)
{
	change("f", 0, true); /* shorter than the prefix */
	change("farcall/", 0, true);
	change("elsewhere/k", 0, false);
	change("farcall/k", 0, false);
	take();
	cr_assert(has("k"));
	cr_assert(!has("/k") && !has("re/k"));
}

Test(store_etcd, a_deleted_key_is_gone)
{
	change("farcall/k", 0, false);
	change("farcall/k", 0, true);
	take();
	cr_assert(!has("k"));
}

/* The one that ended its lease is the holder itself: it holds its keys anew. */
Test(store_etcd, a_held_key_that_ends_is_held_anew)
{
	change("farcall/g/rank/1", LEASE, false);
	change("farcall/g/rank/1", 0, true);
	take();
	cr_assert_eq(store.phase, PHASE_NEW_LEASE);
	cr_assert(has("g/rank/1"));
}

static void knock(const char *group, uint64_t holder, bool answered)
{
	static char key[128];
	snprintf(key, sizeof key, "farcall/%s/knock/%016" PRIx64 "/%016x", group, holder, 0x99);
	deleted[0] = 0;
	change(key, 0x99, false);
	take();
	cr_assert_str_eq(deleted, answered ? key : "", "%s", key);
}

Test(store_etcd, answers_knocks_at_itself)
{
	knock("g", 0, true);
	knock("g", LEASE, true);
	knock("g", LEASE + 1, false);
	knock("h", 0, false);
}

Test(store_etcd, answers_no_end_of_a_knock)
{
	change("farcall/g/knock/0000000000000000/0000000000000099", 0, true);
	deleted[0] = 0;
	take();
	cr_assert_str_eq(deleted, "");
}

/* What the application has set and a margin, in seconds; 20 s without; no less than the server grants. Its holder
 * counts by its own clock, to the end of the margin before. */
Test(store_etcd, the_time_of_a_lease)
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
Test(store_etcd, a_renewal_counts_from_when_it_was_sent)
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
