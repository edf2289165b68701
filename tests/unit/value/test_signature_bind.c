/* SPDX-License-Identifier: BSD-3-Clause */
/** Arguments and parameters: by position, keyword and default, converted, refused; which of two matches is better. The
 * test's thread. */
#include "parsed_signature.h"

#include <stdio.h>
#include <string.h>

Test(signature_bind, arguments_of_a_form)
{
	const uint64_t shape[] = {2, 3};
	const float f[6] = {0};
	struct far_tensor matrix = far_tensor_nd(FAR_F32, f, 2, shape, NULL), vector = far_tensor_1d(FAR_F32, f, 6),
			  wide = far_tensor_nd(FAR_F64, f, 2, shape, NULL);
	struct signature s = parsed("f(Tensor<f32,2> a) -> Tensor<f32>");
	struct far_val out[FAR_ARGS_MAX], v = far_tensor_val(&matrix), w = far_tensor_val(&vector);
	struct far_err e;
	cr_expect_eq(signature_bind(&s, &v, 1, out, NULL, &e), FAR_OK);
	cr_expect(signature_result_fits(&s, &v) && signature_result_fits(&s, &w));
	cr_expect_eq(signature_bind(&s, &w, 1, out, NULL, &e), FAR_BAD_ARGS);
	cr_expect(strstr(e.text, "argument 1 (a) is a tensor of f32 with 1 dimensions, wanted Tensor<f32,2>"), "%s",
		  e.text);
	w = far_tensor_val(&wide);
	cr_expect_eq(signature_bind(&s, &w, 1, out, NULL, &e), FAR_BAD_ARGS);
	cr_expect(strstr(e.text, "of f64 with 2 dimensions"), "%s", e.text);
	cr_expect(!signature_result_fits(&s, &w));
	w = far_int(1);
	cr_expect_eq(signature_bind(&s, &w, 1, out, NULL, &e), FAR_BAD_ARGS);
	/* As FAR_ARGS makes them: the value refers to the tensor. */
	w = far_tensor_ref(&matrix);
	cr_expect_eq(signature_bind(&s, &w, 1, out, NULL, &e), FAR_OK);
	w = far_tensor_ref(&wide);
	cr_expect_eq(signature_bind(&s, &w, 1, out, NULL, &e), FAR_BAD_ARGS);
	cr_expect(strstr(e.text, "of f64 with 2 dimensions"), "%s", e.text);
	/* The overload of the form is better than the one of any tensor. */
	struct signature_match form, any;
	struct signature plain = parsed("f(Tensor a) -> Tensor");
	cr_assert_eq(signature_bind(&s, &v, 1, out, &form, &e), FAR_OK);
	cr_assert_eq(signature_bind(&plain, &v, 1, out, &any, &e), FAR_OK);
	cr_expect_lt(signature_compare(&form, &any, 1), 0);
}

static void expect_bad(const char *signature, const struct far_val *args, size_t n, const char *text)
{
	struct signature s = parsed(signature);
	struct far_val out[FAR_ARGS_MAX];
	struct far_err err = {0};
	char want[512], shown[256];
	snprintf(want, sizeof want, "%s; the signature is %s", text, signature_show(&s, shown, sizeof shown));
	cr_expect_eq(signature_bind(&s, args, n, out, NULL, &err), FAR_BAD_ARGS);
	cr_expect_str_eq(err.text, want);
	cr_expect_eq(signature_bind(&s, args, n, out, NULL, NULL), FAR_BAD_ARGS);
}

Test(signature_bind, arguments_that_do_not_fit)
{
	static const char add[] = "far::add(Tensor|Scalar a, Tensor|Scalar b) -> Tensor|Scalar";
	struct far_val v[3] = {far_int(2), far_str("x"), far_none()};
	expect_bad(add, v, 2, "far::add: argument 2 (b) is a string, wanted Tensor|Scalar");
	expect_bad(add, v, 3, "far::add: takes 2 arguments, 3 given");
	expect_bad("f(str s)->int", v, 0, "f: takes 1 argument, 0 given");
	expect_bad("f(str s, int a=1)->int", v, 3, "f: takes 1 to 2 arguments, 3 given");
	expect_bad("f()->int", v, 1, "f: takes no arguments, 1 given");
	expect_bad("f(bool on)->int", v, 1, "f: argument 1 (on) is the int 2, wanted bool or 0 or 1");
	expect_bad("f(str s)->int", v + 2, 1, "f: argument 1 (s) is none, wanted str");
	v[2].type = 77;
	expect_bad("f(Any s)->int", v + 2, 1, "f: argument 1 (s) is of the unknown type 77, wanted Any");
	v[2] = far_bool(true);
	expect_bad("f(int s)->int", v + 2, 1, "f: argument 1 (s) is a bool, wanted int");
	v[2] = far_list(NULL, 0);
	expect_bad("f(Dict s)->int", v + 2, 1, "f: argument 1 (s) is a list, wanted Dict");
	v[2] = far_dict(NULL, 0);
	expect_bad("f(List s)->int", v + 2, 1, "f: argument 1 (s) is a dict, wanted List");
}

Test(signature_bind, keywords)
{
	static const char text[] = "f(int a, float b=2, str c=\"x\") -> none";
	struct signature s = parsed(text);
	struct far_val out[3], v[3] = {far_kw("c", far_str("y")), far_kw("a", far_int(1))};
	struct far_err err;
	struct signature_match match;
	cr_assert_eq(signature_bind(&s, v, 2, out, &match, &err), FAR_OK, "%s", err.text);
	cr_expect(out[0].type == FAR_TYPE_INT && out[0].u.i == 1 && !out[0].kw);
	cr_expect(out[1].type == FAR_TYPE_FLOAT && out[1].u.f == 2.0);
	cr_expect_str_eq(out[2].u.s.data, "y");
	cr_expect_eq(match.defaults, 1);
	v[0] = far_int(1), v[1] = far_kw("b", far_int(3));
	cr_assert_eq(signature_bind(&s, v, 2, out, &match, &err), FAR_OK, "%s", err.text);
	cr_expect(out[1].type == FAR_TYPE_FLOAT && out[1].u.f == 3.0);
	cr_expect_not(signature_fits(&s, v, 2));
	v[0] = far_kw("b", far_int(1)), v[1] = far_int(1);
	expect_bad(text, v, 2,
		   "f: argument 2 has no keyword but follows one with a keyword; pass positional ones first");
	v[0] = far_int(1), v[1] = far_kw("beta", far_int(1));
	expect_bad(text, v, 2, "f: it has no parameter 'beta'; use a name of its signature");
	v[1] = far_kw("a", far_int(1));
	expect_bad(text, v, 2, "f: parameter 'a' is given twice, as argument 1 and by keyword; leave one out");
	v[1] = far_kw("b", far_int(1)), v[2] = far_kw("b", far_int(1));
	expect_bad(text, v, 3, "f: parameter 'b' is given twice, as argument 2 and by keyword; leave one out");
	expect_bad(text, v + 1, 1,
		   "f: argument 1 (a) is missing among the 1 given; pass it, int, by position or with FAR_KW");
	expect_bad(text, v, 0, "f: takes 1 to 3 arguments, 0 given");
	v[1] = far_kw("b", far_str("x"));
	expect_bad(text, v, 2, "f: argument 2 (b) is a string, wanted float");
}

Test(signature_bind, which_match_is_better)
{
	struct far_val v[2] = {far_int(1), far_int(1)}, out[3];
	struct signature_match m[6];
	static const char *const texts[6] = {"f(int a, int b)->int",  "f(int|str a, int b)->int",
					     "f(Any a, int b)->int",  "f(float a, int b)->int",
					     "f(bool a, int b)->int", "f(int a, int b, int c=1)->int"};
	for (int i = 0; i < 6; i++) {
		struct signature s = parsed(texts[i]);
		cr_assert_eq(signature_bind(&s, v, 2, out, &m[i], NULL), FAR_OK);
	}
	for (int i = 0; i < 4; i++) {
		cr_expect_lt(signature_compare(&m[i], &m[i + 1], 2), 0);
		cr_expect_gt(signature_compare(&m[i + 1], &m[i], 2), 0);
	}
	cr_expect_lt(signature_compare(&m[0], &m[5], 2), 0);
	cr_expect_gt(signature_compare(&m[5], &m[0], 2), 0);
	m[1].rank[1] = 0, m[1].rank[0] = 3, m[2].rank[0] = 0, m[2].rank[1] = 3;
	cr_expect_eq(signature_compare(&m[1], &m[2], 2), 0);
}

Test(signature_bind, a_long_list_leaves_room_for_the_number_given)
{
	char text[1024];
	size_t at = (size_t)sprintf(text, "f(Tensor|Scalar|str a0");
	for (int i = 1; i < 16; i++)
		at += (size_t)sprintf(text + at, ",Tensor|Scalar|str a%d", i);
	sprintf(text + at, ")->int");
	struct signature s = parsed(text);
	struct far_err err;
	cr_expect_eq(signature_bind(&s, NULL, 0, NULL, NULL, &err), FAR_BAD_ARGS);
	cr_expect_eq(strncmp(err.text, "f: takes 16 arguments, 0 given; the signature is f(", 50), 0, "%s", err.text);
	cr_expect_eq(strlen(err.text), sizeof err.text - 1);
}

Test(signature_bind, conversions)
{
	struct signature s = parsed("f(float a, bool b, float|int c, Any d, bool|float e) -> none");
	struct far_val v[5] = {far_int(3), far_int(1), far_int(4), far_int(5), far_int(1)}, out[5];
	struct far_err err;
	cr_assert_eq(signature_bind(&s, v, 5, out, NULL, &err), FAR_OK, "%s", err.text);
	cr_expect(out[0].type == FAR_TYPE_FLOAT && out[0].u.f == 3.0);
	cr_expect(out[1].type == FAR_TYPE_BOOL && out[1].u.b);
	cr_expect(out[2].type == FAR_TYPE_INT && out[2].u.i == 4);
	cr_expect(out[3].type == FAR_TYPE_INT && out[3].u.i == 5);
	cr_expect(out[4].type == FAR_TYPE_FLOAT && out[4].u.f == 1.0);
	cr_expect_eq(v[0].type, FAR_TYPE_INT, "the caller's arguments are left alone");
}
