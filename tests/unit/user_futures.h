/* SPDX-License-Identifier: BSD-3-Clause */
/** User-made futures of ints, for the tests of what follows them. */
#ifndef USER_FUTURES_H
#define USER_FUTURES_H

#include <criterion/criterion.h>
#include <farcall/farcall.h>

static struct far_err err;

static inline struct far_future *make(void)
{
	struct far_future *f = NULL;
	cr_assert_eq(far_future_create(&f, &err), FAR_OK);
	return f;
}

static inline void set_int(struct far_future *f, int64_t i)
{
	struct far_val v = far_int(i);
	cr_assert_eq(far_future_set_value(f, &v, &err), FAR_OK);
}

static inline int64_t get_int(struct far_future *f)
{
	struct far_val v;
	cr_assert_eq(far_future_value(f, &v, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(v.type, FAR_TYPE_INT);
	return v.u.i;
}

/* A thread that completes one. */
static inline void *set_it(void *arg)
{
	struct far_val v = far_int(1);
	return (void *)(intptr_t)far_future_set_value(arg, &v, NULL);
}

#endif
