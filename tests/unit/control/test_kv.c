/* SPDX-License-Identifier: BSD-3-Clause */
/** The store's table: keys, numbers, owners, and what a reader of its changes sees. The test's thread. */
#include "base/hash.h"
#include "control/kv.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct kv *kv;

static void begin(void)
{
	kv = kv_create(8);
	cr_assert(kv);
}

static void end(void)
{
	kv_destroy(kv);
}

TestSuite(kv, .init = begin, .fini = end);

static struct kv_bytes bytes(const char *text)
{
	return (struct kv_bytes){(const uint8_t *)text, strlen(text)};
}

static int set(const char *key, const char *value)
{
	return kv_set(kv, bytes(key), bytes(value));
}

/* The value of a key; "(none)": it is missing. */
static const char *get(const char *key)
{
	static char text[64];
	struct kv_bytes value;
	if (kv_get(kv, bytes(key), &value))
		return "(none)";
	snprintf(text, sizeof text, "%.*s", (int)value.len, (const char *)value.data);
	return text;
}

/* The changes after a number, oldest first: "key=value", or "-key:why" of a deleted key. */
static const char *changes(uint64_t after)
{
	static char text[256];
	size_t at = 0;
	uint64_t last = after;
	text[0] = '\0';
	for (const struct kv_entry *e = kv_changes_after(kv, after); e;) {
		struct kv_change c;
		e = kv_change_read(e, &c);
		cr_assert_gt(c.number, last);
		last = c.number;
		at += (size_t)snprintf(text + at, sizeof text - at, "%s%s%.*s%s", at ? " " : "", c.deleted ? "-" : "",
				       (int)c.key.len, (const char *)c.key.data, c.deleted ? ":" : "=");
		if (c.deleted)
			at += (size_t)snprintf(text + at, sizeof text - at, "%" PRIu64, c.why);
		else
			at += (size_t)snprintf(text + at, sizeof text - at, "%.*s", (int)c.value.len,
					       (const char *)c.value.data);
	}
	cr_assert_leq(last, kv_changes(kv));
	return text;
}

Test(kv, keys_are_bytes)
{
	static const uint8_t a[] = {'k', 0, 'a'}, b[] = {'k', 0, 'b'};
	struct kv_bytes value;
	cr_assert_eq(kv_set(kv, (struct kv_bytes){a, 3}, bytes("1")), 0);
	cr_assert_eq(kv_get(kv, (struct kv_bytes){b, 3}, &value), -ENOENT);
	cr_assert_eq(kv_get(kv, (struct kv_bytes){a, 1}, &value), -ENOENT);
	cr_assert_eq(kv_get(kv, (struct kv_bytes){a, 3}, &value), 0);
	cr_assert(value.len == 1 && value.data[0] == '1');
}

Test(kv, an_empty_value_is_there)
{
	struct kv_bytes value = bytes("before");
	cr_assert_eq(set("k", ""), 0);
	cr_assert_eq(kv_get(kv, bytes("k"), &value), 0);
	cr_assert_eq(value.len, 0);
}

/* The bound is of keys, not of values: what is there can be changed, and a deleted key makes room. */
Test(kv, keys_are_bounded)
{
	char key[8];
	for (int i = 0; i < 8; i++) {
		snprintf(key, sizeof key, "k%d", i);
		cr_assert_eq(set(key, "v"), 0);
	}
	int64_t sum = 5;
	cr_assert_eq(set("more", "v"), -ENOSPC);
	cr_assert_eq(kv_add(kv, bytes("more"), 1, &sum), -ENOSPC);
	cr_assert_eq(sum, 5);
	cr_assert_eq(set("k3", "w"), 0);
	cr_assert_str_eq(get("k3"), "w");
	cr_assert_eq(kv_count(kv), 8);
	cr_assert_eq(kv_delete(kv, bytes("k0")), 0);
	cr_assert_eq(set("more", "v"), 0);
}

Test(kv, numbers)
{
	static const char *const none[] = {"",    "x",   "1x",
					   " 1",  "+1",  "-",
					   "1 ",  "0x1", "9223372036854775808",
					   "1.0", "--1", "12345678901234567890123"};
	int64_t sum = 0;
	cr_assert_eq(kv_add(kv, bytes("n"), -3, &sum), 0);
	cr_assert_eq(sum, -3);
	cr_assert_eq(kv_add(kv, bytes("n"), 5, &sum), 0);
	cr_assert_str_eq(get("n"), "2");
	for (unsigned i = 0; i < sizeof none / sizeof *none; i++) {
		cr_assert_eq(set("n", none[i]), 0);
		cr_assert_eq(kv_add(kv, bytes("n"), 1, &sum), -EINVAL, "'%s'", none[i]);
		cr_assert_str_eq(get("n"), none[i]);
	}
}

Test(kv, numbers_do_not_overflow)
{
	int64_t sum = 0;
	cr_assert_eq(set("n", "9223372036854775807"), 0);
	cr_assert_eq(kv_add(kv, bytes("n"), 1, &sum), -ERANGE);
	cr_assert_str_eq(get("n"), "9223372036854775807");
	cr_assert_eq(kv_add(kv, bytes("n"), INT64_MIN, &sum), 0);
	cr_assert_eq(sum, -1);
	cr_assert_eq(kv_add(kv, bytes("n"), INT64_MIN, &sum), -ERANGE);
	cr_assert_eq(sum, -1);
}

Test(kv, compare_and_set)
{
	struct kv_bytes held;
	cr_assert_eq(kv_cas(kv, bytes("k"), bytes("a"), bytes("b"), &held), -EEXIST);
	cr_assert_eq(held.len, 0);
	cr_assert_eq(kv_cas(kv, bytes("k"), bytes(""), bytes("a"), &held), 0);
	cr_assert_eq(kv_cas(kv, bytes("k"), bytes(""), bytes("b"), &held), -EEXIST);
	cr_assert(held.len == 1 && held.data[0] == 'a');
	cr_assert_eq(kv_cas(kv, bytes("k"), bytes("ab"), bytes("b"), &held), -EEXIST);
	cr_assert_eq(kv_cas(kv, bytes("k"), bytes("a"), bytes("b"), &held), 0);
	cr_assert_str_eq(get("k"), "b");
	/* A key with an empty value is not a missing one. */
	cr_assert_eq(set("k", ""), 0);
	cr_assert_eq(kv_cas(kv, bytes("k"), bytes(""), bytes("c"), &held), -EEXIST);
	cr_assert_eq(kv_delete(kv, bytes("k")), 0);
	cr_assert_eq(kv_cas(kv, bytes("k"), bytes(""), bytes("c"), &held), 0);
}

Test(kv, owners_end_with_their_keys)
{
	kv_deleted_keep(kv, true);
	kv_own(kv, bytes("k"), 1); /* of a missing key: nothing */
	cr_assert_eq(kv_owner(kv, bytes("k")), 0);
	cr_assert_eq(set("k", "1"), 0);
	cr_assert_eq(kv_owner(kv, bytes("k")), 0);
	kv_own(kv, bytes("k"), 7);
	cr_assert_eq(set("k", "2"), 0);
	cr_assert_eq(kv_owner(kv, bytes("k")), 7);
	cr_assert_eq(kv_delete(kv, bytes("k")), 0);
	kv_own(kv, bytes("k"), 8);
	cr_assert_eq(kv_owner(kv, bytes("k")), 0);
	cr_assert_eq(set("k", "3"), 0);
	cr_assert_eq(kv_owner(kv, bytes("k")), 0);
}

Test(kv, each_changed_key_once_with_its_last_value)
{
	set("a", "1");
	set("b", "1");
	set("c", "1");
	uint64_t read = kv_changes(kv);
	cr_assert_str_eq(changes(0), "a=1 b=1 c=1");
	cr_assert_str_eq(changes(read), "");
	set("b", "2");
	set("a", "2");
	set("b", "3");
	cr_assert_str_eq(changes(read), "a=2 b=3");
	cr_assert_str_eq(changes(0), "c=1 a=2 b=3");
}

Test(kv, deleted_keys_are_kept_for_readers_only)
{
	struct kv_bytes value;
	kv_deleted_keep(kv, true);
	set("a", "1");
	set("b", "1");
	uint64_t read = kv_changes(kv);
	cr_assert_eq(kv_delete_for(kv, bytes("a"), 9), 0);
	cr_assert_eq(kv_delete_for(kv, bytes("a"), 10), -ENOENT);
	cr_assert_eq(kv_get(kv, bytes("a"), &value), -ENOENT);
	cr_assert_eq(kv_count(kv), 1);
	cr_assert_str_eq(changes(read), "-a:9");
	set("a", "2");
	cr_assert_eq(kv_count(kv), 2);
	cr_assert_str_eq(changes(read), "a=2");
	cr_assert_str_eq(changes(0), "b=1 a=2");
}

Test(kv, deleted_keys_are_forgotten_up_to_a_change)
{
	kv_deleted_keep(kv, true);
	for (int i = 0; i < 4; i++) {
		char key[2] = {(char)('a' + i), 0};
		set(key, "1");
	}
	kv_delete(kv, bytes("a"));
	kv_delete(kv, bytes("c"));
	uint64_t upto = kv_changes(kv);
	kv_delete(kv, bytes("d"));
	cr_assert_eq(kv_deleted_forget(kv, upto - 1), 2);
	cr_assert_str_eq(changes(0), "b=1 -c:0 -d:0");
	cr_assert_eq(kv_deleted_forget(kv, upto), 1);
	cr_assert_str_eq(changes(0), "b=1 -d:0");
	kv_deleted_keep(kv, false);
	cr_assert_str_eq(changes(0), "b=1");
	cr_assert_eq(kv_count(kv), 1);
}

/* While they are kept they count among the keys. */
Test(kv, deleted_keys_take_room)
{
	char key[8];
	kv_deleted_keep(kv, true);
	for (int i = 0; i < 8; i++) {
		snprintf(key, sizeof key, "k%d", i);
		set(key, "v");
	}
	kv_delete(kv, bytes("k0"));
	cr_assert_eq(set("more", "v"), -ENOSPC);
	cr_assert_eq(set("k0", "again"), 0);
	kv_delete(kv, bytes("k1"));
	cr_assert_eq(kv_deleted_forget(kv, UINT64_MAX), 0);
	cr_assert_eq(set("more", "v"), 0);
}

Test(kv, a_deletion_is_a_change_also_when_it_is_not_kept)
{
	set("a", "1");
	uint64_t before = kv_changes(kv);
	kv_delete(kv, bytes("a"));
	cr_assert_gt(kv_changes(kv), before);
	cr_assert_str_eq(changes(0), "");
}

/* Tables have secrets of their own: who knows one hash knows none of another table. */
Test(kv, hashes_are_secret)
{
	struct kv *other = kv_create(8);
	unsigned same = 0;
	for (unsigned i = 0; i < 16; i++)
		same += kv_hash(kv, &i, sizeof i) == kv_hash(other, &i, sizeof i);
	cr_assert_lt(same, 16);
	cr_assert_eq(kv_hash(kv, "k", 1), kv_hash(kv, "k", 1));
	kv_destroy(other);
	kv_destroy(NULL);
}

/* 1000 keys that lie in one chain of 4096 by a hash without a secret, base/hash.h. Expect no chain: a look-up compares
 * less than two entries on average. */
Test(kv, keys_chosen_to_collide)
{
	enum { KEYS = 1000 };
	static char keys[KEYS][16];
	struct kv *table = kv_create(KEYS);
	struct kv_bytes value;
	for (unsigned n = 0, i = 0; n < KEYS; i++) {
		snprintf(keys[n], sizeof *keys, "%x", i);
		n += hash64(keys[n], strlen(keys[n])) % 4096 == 0;
	}
	for (unsigned i = 0; i < KEYS; i++)
		cr_assert_eq(kv_set(table, bytes(keys[i]), bytes("x")), 0);
	uint64_t before = kv_probes(table);
	for (unsigned i = 0; i < KEYS; i++)
		cr_assert_eq(kv_get(table, bytes(keys[i]), &value), 0);
	uint64_t probes = kv_probes(table) - before;
	cr_assert(probes >= KEYS && probes < 2 * KEYS, "%llu", (unsigned long long)probes);
	kv_destroy(table);
}

Test(kv, changes_of_the_table)
{
	struct kv_change change;
	cr_assert_null(kv_changes_after(kv, 0));
	kv_set(kv, bytes("a"), bytes("1"));
	kv_set(kv, bytes("b"), bytes("2"));
	kv_set(kv, bytes("a"), bytes("3"));
	cr_assert_eq(kv_changes(kv), 3u);
	const struct kv_entry *at = kv_change_read(kv_changes_after(kv, 0), &change);
	cr_assert(change.number == 2 && change.key.data[0] == 'b');
	cr_assert_null(kv_change_read(at, &change));
	cr_assert(change.number == 3 && change.value.data[0] == '3');
	cr_assert_null(kv_changes_after(kv, 3));
	/* Nobody is to be notified: gone at once. */
	cr_assert_eq(kv_delete(kv, bytes("a")), 0);
	cr_assert_null(kv_changes_after(kv, 3));
	kv_deleted_keep(kv, true);
	cr_assert_eq(kv_delete(kv, bytes("b")), 0);
	cr_assert_eq(kv_delete(kv, bytes("b")), -ENOENT);
	cr_assert_eq(kv_get(kv, bytes("b"), &change.value), -ENOENT);
	cr_assert_eq(kv_count(kv), 0u);
	cr_assert_null(kv_change_read(kv_changes_after(kv, 3), &change));
	cr_assert(change.deleted && change.number == 5);
	/* It comes back in its place. */
	cr_assert_eq(kv_cas(kv, bytes("b"), bytes(""), bytes("4"), &change.value), 0);
	cr_assert_eq(kv_count(kv), 1u);
	cr_assert_eq(kv_deleted_forget(kv, UINT64_MAX), 0u);
	cr_assert_eq(kv_get(kv, bytes("b"), &change.value), 0);
	kv_delete(kv, bytes("b"));
	cr_assert_eq(kv_deleted_forget(kv, 6), 1u);
	cr_assert_eq(kv_deleted_forget(kv, 7), 0u);
	cr_assert_null(kv_changes_after(kv, 0));
}
