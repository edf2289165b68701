/* SPDX-License-Identifier: BSD-3-Clause */
/** A member's copy of the application's keys: versions, changes, and what ends it. The test's thread. */
#include "control/store_copy.h"

#include "base/limits.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct store_copy copy;

static void end(void)
{
	store_copy_free(&copy);
	cr_assert(!copy.kv && !copy.next && !copy.version);
}

TestSuite(store_copy, .fini = end);

static uint64_t take(enum store_status status, const char *key, const char *value, int64_t number)
{
	struct store_msg m = {.op = STORE_COPY,
			      .reply = true,
			      .status = status,
			      .number = number,
			      .key = (const uint8_t *)key,
			      .key_len = strlen(key),
			      .value = (const uint8_t *)value,
			      .value_len = strlen(value)};
	return store_copy_take(&copy, &m);
}

static void begins(void)
{
	cr_assert_eq(take(STORE_MISSING, "", "", 0), 0u);
}

/* The value of a key in the present copy; "-": it is missing. */
static const char *value_of(const char *key)
{
	static char text[32];
	struct kv_bytes value;
	if (!copy.kv || kv_get(copy.kv, (struct kv_bytes){(const uint8_t *)key, strlen(key)}, &value))
		return "-";
	snprintf(text, sizeof text, "%.*s", (int)value.len, (const char *)value.data);
	return text;
}

static void complete(int64_t version)
{
	cr_assert_eq(take(STORE_OK, "", "", version), (uint64_t)version);
	cr_assert_eq(copy.version, (uint64_t)version);
}

Test(store_copy, a_complete_one_has_a_version)
{
	begins();
	cr_assert_eq(take(STORE_OK, "a", "1", 0), 0u);
	cr_assert_eq(take(STORE_OK, "b", "2", 0), 0u);
	cr_assert_eq(copy.version, 0u, "it is not complete");
	complete(5);
	cr_assert_str_eq(value_of("a"), "1");
	/* Changes go into it, and are acknowledged with the next version. */
	take(STORE_OK, "a", "3", 0);
	take(STORE_MISSING, "b", "", 0);
	take(STORE_MISSING, "never", "", 0);
	cr_assert_eq(copy.version, 5u);
	complete(6);
	cr_assert_str_eq(value_of("a"), "3");
	cr_assert_str_eq(value_of("b"), "-");
}

/* The former one stays until the next is complete: the store may end in between. */
Test(store_copy, the_next_one_replaces_it_when_it_is_complete)
{
	begins();
	take(STORE_OK, "a", "1", 0);
	complete(5);
	begins();
	take(STORE_OK, "b", "2", 0);
	cr_assert_str_eq(value_of("a"), "1");
	cr_assert_str_eq(value_of("b"), "-");
	cr_assert_eq(copy.version, 5u);
	begins(); /* the one that came in part is void */
	take(STORE_OK, "c", "3", 0);
	complete(9);
	cr_assert_str_eq(value_of("a"), "-");
	cr_assert_str_eq(value_of("b"), "-");
	cr_assert_str_eq(value_of("c"), "3");
}

Test(store_copy, one_that_is_out_of_date_ends)
{
	begins();
	take(STORE_OK, "a", "1", 0);
	complete(5);
	begins();
	cr_assert_eq(take(STORE_DIFFERS, "", "", 0), 0u);
	cr_assert(!copy.kv && !copy.next && !copy.version);
	/* Nothing is acknowledged that is not there. */
	take(STORE_OK, "a", "1", 0);
	cr_assert_eq(take(STORE_OK, "", "", 6), 0u);
	cr_assert_eq(copy.version, 0u);
}

Test(store_copy, a_change_without_room_ends_it)
{
	char key[16];
	begins();
	for (int i = 0; i < FAR_STORE_KEYS_MAX; i++) {
		snprintf(key, sizeof key, "k%d", i);
		take(STORE_OK, key, "v", 0);
	}
	complete(5);
	take(STORE_OK, "k0", "w", 0);
	cr_assert_str_eq(value_of("k0"), "w");
	take(STORE_OK, "more", "v", 0);
	cr_assert(!copy.kv && !copy.version);
	cr_assert_eq(take(STORE_OK, "", "", 6), 0u);
}
