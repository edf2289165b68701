/* SPDX-License-Identifier: BSD-3-Clause */
/** Watches of the application's keys: which changes are reported, once, and what ends them. The test's thread. */
#include "own_store.h"

static struct far_store_watcher *watch;
static struct far_store_change change;

static void setup(void)
{
	own_store_open();
	cr_assert_eq(far_store_watch(store, "w", 0, &watch, &err), FAR_OK, "%s", err.text);
}

static void teardown(void)
{
	far_store_watch_end(watch);
	own_store_close();
}

TestSuite(api_store_watch, .init = setup, .fini = teardown);

static void set(const char *key, const char *value)
{
	cr_assert_eq(far_store_set(store, key, value, strlen(value), 0, &err), FAR_OK, "%s", err.text);
}

static void expect(const char *key, const char *value)
{
	cr_assert_eq(far_store_watch_next(watch, FAR_FOREVER, &change, &err), FAR_OK, "%s", err.text);
	cr_assert_str_eq(change.key, key);
	cr_assert_eq(change.value.found, value != NULL);
	if (value)
		cr_assert(change.value.bytes == strlen(value) && memcmp(change.value.data, value, strlen(value)) == 0);
}

static void expect_none(void)
{
	cr_assert_eq(far_store_watch_next(watch, FAR_MS, &change, &err), FAR_TIMEOUT);
	cr_assert_str_eq(err.text, "no key has changed in time");
}

/* Expect keys that begin with the prefix, in the order of their changes. */
Test(api_store_watch, changes)
{
	set("v", "no");
	set("w", "1");
	set("wx", "2");
	expect("w", "1");
	expect("wx", "2");
	set("w/", "3");
	expect("w/", "3");
	expect_none();
}

/* A key that changed several times is reported with its last value; one that was deleted without one. */
Test(api_store_watch, the_last_value)
{
	int deleted;
	set("w", "1");
	expect("w", "1");
	cr_assert_eq(far_store_delete(store, "w", 0, &deleted, &err), FAR_OK);
	cr_assert(deleted);
	expect("w", NULL);
	set("w", "2");
	expect("w", "2");
	expect_none();
}

/* "w/" is the prefix: in the store the key "w" is written "/w/". */
Test(api_store_watch, a_prefix_with_a_slash)
{
	struct far_store_watcher *all = watch;
	cr_assert_eq(far_store_watch(store, "w/", 0, &watch, &err), FAR_OK, "%s", err.text);
	set("w", "no");
	set("w/a", "1");
	expect("w/a", "1");
	far_store_watch_end(watch);
	cr_assert_eq(far_store_watch(store, "", 0, &watch, &err), FAR_OK, "%s", err.text);
	set("zebra", "2");
	do
		cr_assert_eq(far_store_watch_next(watch, FAR_FOREVER, &change, &err), FAR_OK, "%s", err.text);
	while (strcmp(change.key, "zebra") != 0);
	far_store_watch_end(watch);
	watch = all;
}

/* Keys that are there already are reported first. */
Test(api_store_watch, what_is_there)
{
	struct far_store_watcher *first = watch;
	set("wa", "1");
	cr_assert_eq(far_store_watch(store, "wa", 0, &watch, &err), FAR_OK, "%s", err.text);
	set("wab", "2");
	expect("wa", "1");
	expect("wab", "2");
	far_store_watch_end(watch);
	watch = first;
}

Test(api_store_watch, bad_input)
{
	static char prefix[FAR_STORE_KEY_BYTES + 2];
	struct far_store_watcher *w;
	memset(prefix, 'p', sizeof prefix - 1);
	cr_assert_eq(far_store_watch(store, prefix, 0, &w, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "or the prefix has more than "), "%s", err.text);
	cr_assert_eq(far_store_watch(store, NULL, 0, &w, &err), FAR_INVALID);
	cr_assert_eq(far_store_watch(NULL, "w", 0, &w, &err), FAR_INVALID);
	cr_assert_eq(far_store_watch(store, "w", 0, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_store_watch_next(NULL, 0, &change, &err), FAR_INVALID);
	cr_assert_eq(far_store_watch_next(watch, 0, NULL, &err), FAR_INVALID);
	far_store_watch_end(NULL);
}
