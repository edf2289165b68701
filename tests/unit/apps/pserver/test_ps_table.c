/* SPDX-License-Identifier: BSD-3-Clause */
/** The table of a server: rows keep their addresses while it grows. The test's thread. */
#include "apps/pserver/ps_table.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

TestSuite(ps_table);

Test(ps_table, refuses_bad_dimensions)
{
	struct ps_table t;
	cr_assert_eq(ps_table_init(&t, 0, 0, 0.0f, 0), -EINVAL);
	cr_assert_eq(ps_table_init(&t, PS_DIM_MAX + 1, 0, 0.0f, 0), -EINVAL);
}

Test(ps_table, a_key_has_no_row_until_it_is_made)
{
	struct ps_table t;
	cr_assert_eq(ps_table_init(&t, 3, 0, 0.5f, 0), 0);
	cr_assert_null(ps_table_find(&t, 7));
	cr_assert_eq(t.rows, 0);
	float *row = ps_table_row(&t, 7);
	cr_assert_not_null(row);
	for (int d = 0; d < 3; d++)
		cr_assert_float_eq(row[d], 0.5f, 0.0f);
	cr_assert_eq(ps_table_find(&t, 7), row);
	cr_assert_eq(ps_table_row(&t, 7), row);
	cr_assert_eq(t.rows, 1);
	ps_table_fini(&t);
}

Test(ps_table, edge_keys_are_keys)
{
	struct ps_table t;
	cr_assert_eq(ps_table_init(&t, 1, 0, 0.0f, 0), 0);
	uint64_t keys[] = {0, 1, UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 63};
	for (size_t i = 0; i < 5; i++)
		*ps_table_row(&t, keys[i]) = (float)i;
	cr_assert_eq(t.rows, 5);
	for (size_t i = 0; i < 5; i++)
		cr_assert_float_eq(*ps_table_find(&t, keys[i]), (float)i, 0.0f);
	ps_table_fini(&t);
}

/* Every key is looked for after every growth, in the middle of migrations too; addresses never change. */
Test(ps_table, rows_stay_where_they_are_while_it_grows)
{
	enum { KEYS = 40000 };
	struct ps_table t;
	float **rows = calloc(KEYS, sizeof *rows);
	cr_assert_eq(ps_table_init(&t, 2, 0, 0.0f, 0), 0);
	size_t mask = t.now.mask, growths = 0;
	for (size_t i = 0; i < KEYS; i++) {
		rows[i] = ps_table_row(&t, i * 64);
		cr_assert_not_null(rows[i]);
		rows[i][0] = (float)i;
		bool grown = t.now.mask != mask;
		mask = t.now.mask;
		growths += grown;
		for (size_t j = 0; j <= i && (grown || i % 4999 == 0); j++)
			cr_assert_eq(ps_table_find(&t, j * 64), rows[j]);
		cr_assert_leq(t.rows * 10, (t.now.mask + 1) * 8);
	}
	cr_assert_geq(growths, 5);
	for (size_t i = 0; i < KEYS; i++)
		cr_assert_float_eq(rows[i][0], (float)i, 0.0f);
	cr_assert_eq(t.rows, KEYS);
	free(rows);
	ps_table_fini(&t);
}

Test(ps_table, a_full_table_says_so_and_keeps_what_it_has)
{
	struct ps_table t;
	cr_assert_eq(ps_table_init(&t, 1, 0, 0.0f, 3), 0);
	for (uint64_t k = 10; k < 13; k++)
		cr_assert_not_null(ps_table_row(&t, k));
	cr_assert_null(ps_table_row(&t, 13));
	cr_assert_eq(t.rows, 3);
	cr_assert_not_null(ps_table_row(&t, 12));
	ps_table_fini(&t);
}

Test(ps_table, widest_rows)
{
	struct ps_table t;
	cr_assert_eq(ps_table_init(&t, PS_DIM_MAX, 0, 2.0f, 0), 0);
	cr_assert_eq(t.rows_max, PS_TABLE_BYTES_MAX / (PS_DIM_MAX * sizeof(float)));
	float *a = ps_table_row(&t, 1), *b = ps_table_row(&t, 2);
	a[PS_DIM_MAX - 1] = 5.0f;
	cr_assert_float_eq(b[0], 2.0f, 0.0f);
	cr_assert_float_eq(ps_table_find(&t, 1)[PS_DIM_MAX - 1], 5.0f, 0.0f);
	ps_table_fini(&t);
}
