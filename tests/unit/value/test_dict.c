/* SPDX-License-Identifier: BSD-3-Clause */
/** Dictionaries: keys, faults, accessors. The test's thread. */
#include "value/dict.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

static enum dict_fault check(const struct far_dict_entry *entries, size_t n, size_t *at)
{
	*at = 999999;
	return dict_check(entries, n, at);
}

Test(dict, keys_of_every_type)
{
	struct far_dict_entry e[] = {
		FAR_ENTRY(0, 1), FAR_ENTRY(far_bool(false), 1), FAR_ENTRY(0.0, 1), FAR_ENTRY("", 1),
		FAR_ENTRY(1, 1), FAR_ENTRY(far_bool(true), 1),  FAR_ENTRY(1.0, 1), FAR_ENTRY("1", 1)};
	size_t at, n = sizeof e / sizeof e[0];
	cr_expect_eq(check(e, n, &at), DICT_OK);
	cr_expect_eq(check(NULL, 0, &at), DICT_OK);
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < n; k++)
			cr_expect_eq(dict_key_same(&e[i].key, &e[k].key), i == k);
}

Test(dict, faults)
{
	float x = 1;
	struct far_tensor t = far_tensor_1d(FAR_F32, &x, 1);
	struct far_dict_entry e[3] = {FAR_ENTRY(1, 1), FAR_ENTRY(2, 2), FAR_ENTRY(3, 3)};
	const struct far_val bad[] = {far_none(), far_bytes("x", 1), far_tensor_val(&t), far_list(NULL, 0),
				      far_dict(NULL, 0)};
	size_t at;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		e[1].key = bad[i];
		cr_expect_eq(check(e, 3, &at), DICT_KEY_TYPE);
		cr_expect_eq(at, 1);
	}
	e[1].key.type = 200;
	cr_expect_eq(check(e, 3, &at), DICT_KEY_TYPE);
	e[1].key = far_float(NAN);
	cr_expect_eq(check(e, 3, &at), DICT_KEY_NAN);
	e[1].key = far_float(0.0), e[2].key = far_float(-0.0);
	cr_expect_eq(check(e, 3, &at), DICT_KEY_DUPLICATE);
	cr_expect_eq(at, 2);
}

Test(dict, long_ones)
{
	static struct far_dict_entry e[FAR_DICT_MAX + 1];
	static char names[FAR_DICT_MAX + 1][16];
	size_t at;
	for (size_t i = 0; i <= FAR_DICT_MAX; i++) {
		snprintf(names[i], sizeof names[i], "k%zu", i);
		e[i] = i % 3 == 0   ? far_entry(far_int((int64_t)i), far_none())
		       : i % 3 == 1 ? far_entry(far_float((double)i), far_none())
				    : far_entry(far_str(names[i]), far_none());
	}
	for (size_t n = 2; n <= FAR_DICT_MAX; n = n * 3 / 2 + 1) {
		cr_expect_eq(check(e, n, &at), DICT_OK, "%zu", n);
		struct far_val key = e[n - 1].key;
		e[n - 1].key = e[n / 2].key;
		cr_expect_eq(check(e, n, &at), n / 2 == n - 1 ? DICT_OK : DICT_KEY_DUPLICATE, "%zu", n);
		cr_expect(n / 2 == n - 1 || at == n - 1);
		e[n - 1].key = key;
	}
	cr_expect_eq(check(e, FAR_DICT_MAX, &at), DICT_OK);
	cr_expect_eq(check(e, FAR_DICT_MAX + 1, &at), DICT_TOO_LONG);
	struct far_val d = far_dict(e, FAR_DICT_MAX);
	cr_expect_eq(far_dict_find(&d, &e[1001].key), &e[1001].value);
	e[20].key = far_float(0.0), e[30].key = far_float(-0.0);
	cr_expect_eq(check(e, 100, &at), DICT_KEY_DUPLICATE, "the zeros are one key in long ones too");
}

Test(dict, accessors)
{
	struct far_dict_entry e[2] = {FAR_ENTRY("a", 10), FAR_ENTRY(7, "seven")};
	struct far_val d = far_dict(e, 2), l = FAR_LIST(1, 2, 3), i = far_int(4), s = far_str("four");
	cr_expect_eq(far_dict_get(&d, "a")->u.i, 10);
	cr_expect_eq(far_dict_get_int(&d, 7)->u.s.len, 5);
	cr_expect_null(far_dict_get(&d, "b"));
	cr_expect_null(far_dict_get_int(&d, 10));
	cr_expect_null(far_dict_get(&l, "a"));
	cr_expect_eq(far_list_get(&l, 2)->u.i, 3);
	cr_expect_null(far_list_get(&l, 3));
	cr_expect_null(far_list_get(&d, 0));
	cr_expect(far_len(&d) == 2 && far_len(&l) == 3 && far_len(&i) == 0 && far_len(&s) == 4);
	struct far_tensor t = far_tensor_2d(FAR_U8, "123456", 2, 3);
	struct far_val v = far_tensor_val(&t);
	cr_expect_eq(far_len(&v), 6);
}
