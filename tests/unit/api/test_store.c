/* SPDX-License-Identifier: BSD-3-Clause */
/** Keys and values of the application: each operation, its bounds, the URL. The test's thread. */
#include "own_store.h"

#include <pthread.h>

TestSuite(api_store, .init = own_store_open, .fini = own_store_close);

static struct far_store_value v;

static void set(const char *key, const char *value)
{
	cr_assert_eq(far_store_set(store, key, value, strlen(value), 0, &err), FAR_OK, "%s", err.text);
}

static bool has(const char *key, const char *value)
{
	cr_assert_eq(far_store_get(store, key, 0, &v, &err), FAR_OK, "%s", err.text);
	return v.found && v.bytes == strlen(value) && memcmp(v.data, value, v.bytes) == 0;
}

/* Expect keys apart that are prefixes of each other, hold slashes, or look like a record of a group. */
Test(api_store, set_get_delete)
{
	int deleted;
	set("a", "1");
	set("a/", "2");
	set("default/rank/0", "3");
	set("a", "");
	cr_assert(has("a", "") && has("a/", "2") && has("default/rank/0", "3"));
	cr_assert_eq(far_store_get(store, "b", 0, &v, &err), FAR_OK);
	cr_assert_not(v.found);
	cr_assert_eq(far_store_delete(store, "a", 0, &deleted, &err), FAR_OK);
	cr_assert_eq(deleted, 1);
	cr_assert_eq(far_store_delete(store, "a", 0, &deleted, &err), FAR_OK);
	cr_assert_eq(deleted, 0);
	cr_assert(has("a/", "2"));
}

Test(api_store, sums)
{
	int64_t sum = 0;
	cr_assert_eq(far_store_add(store, "n", 5, 0, &sum, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(sum, 5);
	cr_assert_eq(far_store_add(store, "n", -7, 0, &sum, &err), FAR_OK);
	cr_assert_eq(sum, -2);
	set("text", "abc");
	cr_assert_eq(far_store_add(store, "text", 1, 0, &sum, &err), FAR_INVALID);
	cr_assert_str_eq(err.text, "the key holds no number, or the sum has no room in 64 bits");
	cr_assert_eq(far_store_add(store, "n", INT64_MIN, 0, &sum, &err), FAR_INVALID);
	cr_assert(has("text", "abc"));
	cr_assert_eq(sum, -2);
}

/* One that differs is reported with what is held. An expected value of no bytes is: there is no key. */
Test(api_store, compare_and_set)
{
	int did;
	cr_assert_eq(far_store_compare_set(store, "k", NULL, 0, "one", 3, 0, &did, &v, &err), FAR_OK, "%s", err.text);
	cr_assert(did && v.found && v.bytes == 3 && memcmp(v.data, "one", 3) == 0);
	cr_assert_eq(far_store_compare_set(store, "k", "two", 3, "new", 3, 0, &did, &v, &err), FAR_OK);
	cr_assert(!did && v.found && v.bytes == 3 && memcmp(v.data, "one", 3) == 0);
	cr_assert_eq(far_store_compare_set(store, "k", "one", 3, "new", 3, 0, &did, &v, &err), FAR_OK);
	cr_assert(did && has("k", "new"));
	cr_assert_eq(far_store_compare_set(store, "none", "one", 3, "new", 3, 0, &did, &v, &err), FAR_OK);
	cr_assert(!did && !v.found);
}

static void *sets(void *arg)
{
	struct far_store *other;
	struct far_err e;
	cr_assert_eq(far_store_open(store_url, NULL, 0, &other, &e), FAR_OK, "%s", e.text);
	cr_assert_eq(far_store_set(other, "later", "x", 1, 0, &e), FAR_OK, "%s", e.text);
	far_store_close(other);
	return NULL;
}

Test(api_store, waited_for)
{
	pthread_t thread;
	cr_assert_eq(far_store_wait(store, "later", FAR_MS, &v, &err), FAR_TIMEOUT);
	cr_assert_eq(pthread_create(&thread, NULL, sets, NULL), 0);
	cr_assert_eq(far_store_wait(store, "later", FAR_FOREVER, &v, &err), FAR_OK, "%s", err.text);
	cr_assert(v.found && v.bytes == 1 && v.data[0] == 'x');
	pthread_join(thread, NULL);
}

Test(api_store, bounds)
{
	static char key[FAR_STORE_KEY_BYTES + 2], value[FAR_STORE_VALUE_BYTES + 1];
	memset(key, 'k', sizeof key - 1);
	cr_assert_eq(far_store_set(store, key, "", 0, 0, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "a key has 1 to "), "%s", err.text);
	cr_assert_eq(far_store_set(store, "", "", 0, 0, &err), FAR_INVALID);
	cr_assert_eq(far_store_set(store, NULL, "", 0, 0, &err), FAR_INVALID);
	key[FAR_STORE_KEY_BYTES] = '\0';
	memset(value, 'v', sizeof value);
	cr_assert_eq(far_store_set(store, key, value, sizeof value, 0, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "a value has at most "), "%s", err.text);
	cr_assert_eq(far_store_set(store, key, NULL, 1, 0, &err), FAR_INVALID);
	cr_assert_eq(far_store_compare_set(store, key, value, sizeof value, "", 0, 0, NULL, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_store_set(store, key, value, FAR_STORE_VALUE_BYTES, 0, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_store_get(store, key, 0, &v, &err), FAR_OK);
	cr_assert(v.bytes == FAR_STORE_VALUE_BYTES && memcmp(v.data, value, v.bytes) == 0);
	cr_assert_eq(far_store_get(store, key, 0, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_store_get(NULL, key, 0, &v, &err), FAR_INVALID);
	cr_assert_str_eq(err.text, "the store is NULL");
	far_store_close(NULL);
}

/* Rank and size of a URL are those of the group. Without a URL the environment has it. */
Test(api_store, urls)
{
	struct far_store *other;
	char url[128];
	set("a", "1");
	snprintf(url, sizeof url, "%s?rank=0&world_size=1", store_url);
	setenv("FAR_INIT_METHOD", url, 1);
	cr_assert_eq(far_store_open(NULL, NULL, 0, &other, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_store_get(other, "a", 0, &v, &err), FAR_OK);
	cr_assert(v.found);
	far_store_close(other);
	cr_assert_eq(far_store_open("gopher://x", NULL, 0, &other, &err), FAR_INVALID);
	cr_assert_eq(far_store_open(store_url, NULL, 0, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_store_open("file:///nowhere/at/all", NULL, FAR_SEC, &other, &err), FAR_SYSTEM, "%s", err.text);
	cr_assert(strstr(err.text, "/nowhere/at/all"), "%s", err.text);
}

static struct far_agent *join(int rank, int world, unsigned max)
{
	const struct far_opts o = {.init_method = store_url, .nic = "shm", .members_max = max};
	struct far_agent *a = NULL;
	far_init_rpc("w%d", rank, world, &o, &a, &err);
	return a;
}

/* A worker without a rank takes a free one; a full group is refused with the remedy. */
Test(api_store, a_free_rank)
{
	struct far_agent *a[2] = {join(0, FAR_WORLD_DYNAMIC, 2), join(FAR_RANK_ENV, FAR_WORLD_DYNAMIC, 2)};
	cr_assert(a[0] && a[1], "%s", err.text);
	cr_assert_eq(far_self(a[1]).worker, 1);
	struct far_store *of;
	cr_assert_eq(far_store_of(a[1], 0, &of, &err), FAR_OK, "%s", err.text);
	set("a", "1");
	cr_assert_eq(far_store_get(of, "a", 0, &v, &err), FAR_OK);
	cr_assert(v.found, "it is the store of the group");
	far_store_close(of);
	cr_assert_null(join(FAR_RANK_ENV, FAR_WORLD_DYNAMIC, 2));
	cr_assert_eq(err.status, FAR_RESOURCE);
	cr_assert_str_eq(err.text,
			 "group \"default\" has all 2 members that members_max permits; raise it for all of them");
	for (unsigned i = 0; i < 2; i++)
		cr_assert_eq(far_shutdown_local(a[i], &err), FAR_OK);
	cr_assert_eq(far_store_of(NULL, 0, &of, &err), FAR_SHUTDOWN);
}
