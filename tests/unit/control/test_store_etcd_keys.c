/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys of the store etcd:// that other clients change, and keys that are none of a store's. The test's thread. */
#include "etcd_fixture.h"

#include <errno.h>

TestSuite(store_etcd_keys, .init = etcd_setup, .fini = etcd_teardown);

Test(store_etcd_keys, keys_of_others_are_left_out)
{
	change("f", 0, true); /* shorter than the prefix */
	change("farcall/", 0, true);
	change("elsewhere/k", 0, false);
	change("farcall/k", 0, false);
	take();
	cr_assert(has("k"));
	cr_assert(!has("/k") && !has("re/k"));
}

Test(store_etcd_keys, a_deleted_key_is_gone)
{
	change("farcall/k", 0, false);
	change("farcall/k", 0, true);
	take();
	cr_assert(!has("k"));
}

/* The one that ended its lease is the holder itself: it holds its keys anew. */
Test(store_etcd_keys, a_held_key_that_ends_is_held_anew)
{
	change("farcall/g/rank/1", LEASE, false);
	change("farcall/g/rank/1", 0, true);
	take();
	cr_assert_eq(store.phase, PHASE_NEW_LEASE);
	cr_assert(has("g/rank/1"));
}

Test(store_etcd_keys, too_long_for_a_store)
{
	static char key[sizeof PREFIX + FAR_STORE_KEY_MAX + 1] = PREFIX;
	static uint8_t value[FAR_STORE_VALUE_MAX + 1];
	memset(key + sizeof PREFIX - 1, 'k', FAR_STORE_KEY_MAX);
	change(key, 0, false);
	take();
	cr_assert(has(key + sizeof PREFIX - 1), "the longest");
	key[sizeof PREFIX - 1 + FAR_STORE_KEY_MAX] = 'k';
	change(key, 0, false);
	change("farcall/v", 0, false);
	changes[changes_n - 1].value = (struct kv_bytes){value, sizeof value};
	take();
	cr_assert_eq(kv_count(store.table.server->kv), 1u);
}

/* A read may be newer than the watch. */
Test(store_etcd_keys, an_older_change_is_none)
{
	cr_assert_eq(etcd_store_key_apply(&store, (struct kv_bytes){(const uint8_t *)"k", 1}, 5, NULL), 0);
	change("farcall/k", 0, false); /* revision 1 */
	take();
	cr_assert_not(has("k"));
	/* A missing key is forgotten once the watch has reached its revision. */
	etcd_store_known_forget(&store, 4);
	cr_assert_not_null(store.known);
	etcd_store_known_forget(&store, 5);
	cr_assert_null(store.known);
}

/* ---- all keys ---- */

static void load_asks(const char *want)
{
	store.phase = PHASE_LOAD;
	asked[0] = 0;
	etcd_store_load(&store);
	cr_assert_str_eq(asked, want);
}

static void begin_load(void)
{
	store.ops = &noted;
	store.page = 0;
	load_asks("get farcall/");
}

/* Each page is of the revision of the first one, so that a key that changes meanwhile is not missed. */
Test(store_etcd_keys, are_read_in_pages)
{
	begin_load();
	key_is("farcall/a", "1", 10, 0);
	key_is("farcall/b", "2", 20, 0);
	reply((struct etcd_reply){.revision = 50, .more = true});
	cr_assert_eq(store.phase, PHASE_LOAD);
	load_asks("get farcall/ of 50 from 21");
	key_is("farcall/c", "3", 30, 0);
	reply((struct etcd_reply){.revision = 60});
	cr_assert_eq(store.phase, PHASE_READY);
	cr_assert_str_eq(asked, "watch farcall/ from 51");
	cr_assert(has("a") && has("b") && has("c"));
}

/* Another load: what it does not find is gone, but for keys that this client has changed since. */
Test(store_etcd_keys, what_a_load_does_not_find_is_gone)
{
	begin_load();
	key_is("farcall/a", "1", 10, 0);
	key_is("farcall/b", "2", 20, 0);
	reply((struct etcd_reply){.revision = 50});
	begin_load();
	cr_assert_eq(etcd_store_known_set(&store, (struct kv_bytes){(const uint8_t *)"b", 1}, 70, true), 0);
	store.known->load = store.known->next->load = 0;
	reply((struct etcd_reply){.revision = 60});
	cr_assert(!has("a") && has("b"));
}

Test(store_etcd_keys, a_held_key_that_a_load_does_not_find)
{
	begin_load();
	key_is("farcall/g/rank/1", "1", 10, LEASE);
	reply((struct etcd_reply){.revision = 50});
	begin_load();
	reply((struct etcd_reply){.revision = 60});
	cr_assert_eq(store.phase, PHASE_NEW_LEASE);
	cr_assert(has("g/rank/1"), "it is held anew");
}

Test(store_etcd_keys, a_load_of_what_is_compacted)
{
	begin_load();
	key_is("farcall/a", "1", 10, 0);
	reply((struct etcd_reply){.revision = 50, .more = true});
	load_asks("get farcall/ of 50 from 11");
	reply((struct etcd_reply){.error = -ESTALE});
	cr_assert_eq(store.error, 0);
	load_asks("get farcall/");
}

Test(store_etcd_keys, changes_that_are_compacted)
{
	bool busy = false;
	change("farcall/k", 0, false);
	change_error = -ESTALE;
	etcd_store_changes_take(&store, &busy);
	cr_assert(has("k"));
	cr_assert_eq(store.phase, PHASE_LOAD);
	cr_assert_eq(store.error, 0);
	store.phase = PHASE_READY;
	change_error = -EACCES;
	etcd_store_changes_take(&store, &busy);
	cr_assert_eq(store.error, -EACCES);
	store.error = 0;
}
