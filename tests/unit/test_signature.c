/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/hash.h"
#include "base/signature.h"

#include <criterion/criterion.h>

static struct signature parsed(const char *text)
{
	struct signature s;
	struct far_err err;
	cr_assert_eq(signature_parse(text, &s, &err), FAR_OK, "%s", err.text);
	return s;
}

Test(signature, parts_of_a_signature)
{
	struct signature s = parsed("  vec::dot.x ( Tensor a,int|Tensor  b_2 )->float ");
	cr_expect_str_eq(s.name, "vec::dot.x");
	cr_expect_eq(s.name_hash, hash64("vec::dot.x", 10));
	cr_expect_eq(s.params_n, 2);
	cr_expect_str_eq(s.params[0].name, "a");
	cr_expect_str_eq(s.params[1].name, "b_2");
	cr_expect_eq(s.params[1].types, 1 << FAR_TYPE_TENSOR | 1 << FAR_TYPE_INT);
	cr_expect_eq(s.result, 1 << FAR_TYPE_FLOAT);
	cr_expect_str_eq(s.text, "vec::dot.x(Tensor,Tensor|int)->float");
	cr_expect_eq(s.canonical_hash, hash64(s.text, strlen(s.text)));
	s = parsed("f()->none");
	cr_expect_eq(s.params_n, 0);
	cr_expect_str_eq(s.text, "f()->none");
}

Test(signature, texts_that_mean_the_same_have_one_hash)
{
	uint64_t hash = parsed("f(Tensor|Scalar a, str|bytes b) -> Any").canonical_hash;
	cr_expect_eq(hash, parsed("f( float|int|bool|Tensor x,bytes|str y)->Any").canonical_hash);
	cr_expect_neq(hash, parsed("f(Tensor|Scalar a, str b) -> Any").canonical_hash);
	cr_expect_neq(hash, parsed("g(Tensor|Scalar a, str|bytes b) -> Any").canonical_hash);
	cr_expect_neq(hash, parsed("f(Tensor|Scalar a, str|bytes b) -> none").canonical_hash);
}

Test(signature, names_of_type_sets)
{
	char buf[64];
	cr_expect_str_eq(signature_types_name(1 << FAR_TYPE_TENSOR | 1 << FAR_TYPE_INT, buf, 64), "Tensor|int");
	cr_expect_str_eq(signature_types_name((1 << FAR_TYPE_COUNT) - 1, buf, 64), "Any");
	cr_expect_str_eq(signature_types_name((1 << FAR_TYPE_COUNT) - 2, buf, 64), "Tensor|Scalar|str|bytes");
	cr_expect_str_eq(signature_types_name(0, buf, 64), "");
	cr_expect_str_eq(signature_types_name((1 << FAR_TYPE_COUNT) - 2, buf, 8), "Tensor|");
}

Test(signature, the_longest_fits)
{
	char text[4096] = "";
	memset(text, 'n', SIGNATURE_NAME_MAX - 1);
	size_t at = strlen(text);
	for (int i = 0; i < FAR_ARGS_MAX; i++)
		at += (size_t)sprintf(text + at, "%cTensor|float|int|str|bytes|none parameter_%d", i ? ',' : '(', i);
	sprintf(text + at, ")->Tensor|float|bool|str|bytes|none");
	struct signature s = parsed(text);
	cr_expect_eq(s.params_n, FAR_ARGS_MAX);
	cr_expect_lt(strlen(s.text), SIGNATURE_TEXT_MAX - 1);
}

Test(signature, mistakes_are_named_with_their_column)
{
	static const struct {
		const char *text, *says;
	} table[] = {
		{"", "column 1: expected the function's name, found the end"},
		{"(int a)->int", "column 1: expected the function's name, found '('"},
		{"f", "column 2: expected '(', found the end"},
		{"f[", "column 2: expected '(', found '['"},
		{"f(", "column 3: expected a type, found the end"},
		{"f(tensor a)->int", "column 3: unknown type 'tensor', did you mean Tensor?"},
		{"f(string a)->int", "column 3: unknown type 'string', did you mean str?"},
		{"f(matrix a)->int", "column 3: unknown type 'matrix', expected none, bool"},
		{"f(int|foo a)->int", "column 7: unknown type 'foo'"},
		{"f(int| )->int", "column 8: expected a type, found ')'"},
		{"f(int)->int", "column 6: expected the parameter's name, found ')'"},
		{"f(int a b)->int", "column 9: expected ',' or ')', found 'b'"},
		{"f(int a,)->int", "column 9: expected a type, found ')'"},
		{"f(int a, int a)->int", "column 14: a second parameter named 'a'"},
		{"f(float a=1)->int", "column 10: default values are not supported yet"},
		{"f(int a)", "column 9: expected '-> Type', found the end"},
		{"f(int a) = int", "column 10: expected '-> Type', found '='"},
		{"f(int a)->", "column 11: expected a type, found the end"},
		{"f(int a)->int,", "column 14: expected the end, found ','"},
		{"f(int parameter_that_is_longer_than_31)->int", "column 7: the parameter's name of 32 characters"},
	};
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct signature s;
		struct far_err err = {0};
		cr_expect_eq(signature_parse(table[i].text, &s, &err), FAR_INVALID, "%s", table[i].text);
		cr_expect_not_null(strstr(err.text, table[i].says), "%s, wanted %s", err.text, table[i].says);
	}
	struct signature s;
	cr_expect_eq(signature_parse(NULL, &s, NULL), FAR_INVALID);
}

Test(signature, bounds)
{
	char text[1024], name[SIGNATURE_NAME_MAX + 1];
	struct signature s;
	struct far_err err;
	memset(name, 'n', SIGNATURE_NAME_MAX);
	name[SIGNATURE_NAME_MAX] = '\0';
	snprintf(text, sizeof text, "%s()->int", name);
	cr_expect_eq(signature_parse(text, &s, &err), FAR_INVALID);
	cr_expect_not_null(strstr(err.text, "at most 127"), "%s", err.text);
	cr_expect_eq(signature_parse(text + 1, &s, &err), FAR_OK);
	size_t at = (size_t)sprintf(text, "f(int a0");
	for (int i = 1; i < 17; i++)
		at += (size_t)sprintf(text + at, ",int a%d", i);
	sprintf(text + at, ")->int");
	cr_expect_eq(signature_parse(text, &s, &err), FAR_INVALID);
	cr_expect_not_null(strstr(err.text, "more than 16 parameters"), "%s", err.text);
}

static void expect_bad(const char *signature, const struct far_val *args, size_t n, const char *text)
{
	struct signature s = parsed(signature);
	struct far_val out[FAR_ARGS_MAX];
	struct far_err err = {0};
	cr_expect_eq(signature_check(&s, args, n, out, &err), FAR_BAD_ARGS);
	cr_expect_str_eq(err.text, text);
	cr_expect_eq(signature_check(&s, args, n, out, NULL), FAR_BAD_ARGS);
}

Test(signature, arguments_that_do_not_fit)
{
	static const char add[] = "far::add(Tensor|Scalar a, Tensor|Scalar b) -> Tensor|Scalar";
	struct far_val v[3] = {far_int(2), far_str("x"), far_none()};
	expect_bad(add, v, 2, "far::add: argument 2 (b) is a string, wanted Tensor|Scalar");
	expect_bad(add, v, 3, "far::add: takes 2 arguments (Tensor|Scalar a, Tensor|Scalar b), 3 given");
	expect_bad("f(str s)->int", v, 0, "f: takes 1 argument (str s), 0 given");
	expect_bad("f()->int", v, 1, "f: takes no arguments, 1 given");
	expect_bad("f(bool on)->int", v, 1, "f: argument 1 (on) is the int 2, wanted bool or 0 or 1");
	expect_bad("f(str s)->int", v + 2, 1, "f: argument 1 (s) is none, wanted str");
	v[2].type = 77;
	expect_bad("f(Any s)->int", v + 2, 1, "f: argument 1 (s) is of the unknown type 77, wanted Any");
	v[2] = far_bool(true);
	expect_bad("f(int s)->int", v + 2, 1, "f: argument 1 (s) is a bool, wanted int");
	v[2].kw = "s";
	expect_bad("f(bool s)->int", v + 2, 1, "f: keyword argument 's' is not supported yet, pass it by position");
}

Test(signature, a_long_list_leaves_room_for_the_number_given)
{
	char text[1024];
	size_t at = (size_t)sprintf(text, "f(Tensor|Scalar|str a0");
	for (int i = 1; i < 16; i++)
		at += (size_t)sprintf(text + at, ",Tensor|Scalar|str a%d", i);
	sprintf(text + at, ")->int");
	struct signature s = parsed(text);
	struct far_err err;
	cr_expect_eq(signature_check(&s, NULL, 0, NULL, &err), FAR_BAD_ARGS);
	cr_expect_not_null(strstr(err.text, "..."));
	cr_expect_str_eq(err.text + strlen(err.text) - 9, ", 0 given");
}

Test(signature, conversions)
{
	struct signature s = parsed("f(float a, bool b, float|int c, Any d, bool|float e) -> none");
	struct far_val v[5] = {far_int(3), far_int(1), far_int(4), far_int(5), far_int(1)}, out[5];
	struct far_err err;
	cr_assert_eq(signature_check(&s, v, 5, out, &err), FAR_OK, "%s", err.text);
	cr_expect(out[0].type == FAR_TYPE_FLOAT && out[0].u.f == 3.0);
	cr_expect(out[1].type == FAR_TYPE_BOOL && out[1].u.b);
	cr_expect(out[2].type == FAR_TYPE_INT && out[2].u.i == 4);
	cr_expect(out[3].type == FAR_TYPE_INT && out[3].u.i == 5);
	cr_expect(out[4].type == FAR_TYPE_FLOAT && out[4].u.f == 1.0);
	cr_expect_eq(v[0].type, FAR_TYPE_INT, "the caller's arguments are left alone");
}

Test(signature, results)
{
	struct signature s = parsed("f() -> Tensor|int");
	struct far_val v = far_int(1);
	cr_expect(signature_result_fits(&s, &v));
	v = far_none();
	cr_expect_not(signature_result_fits(&s, &v));
	s.result = 0;
	cr_expect(signature_result_fits(&s, &v));
	v.type = 200;
	cr_expect_not(signature_result_fits(&s, &v));
	s = parsed("f() -> Any");
	cr_expect_not(signature_result_fits(&s, &v));
	v = far_none();
	cr_expect(signature_result_fits(&s, &v));
}
