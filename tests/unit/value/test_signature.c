/* SPDX-License-Identifier: BSD-3-Clause */
/** Signatures: parts, canonical texts, sets of types. The test's thread. */
#include "base/hash.h"
#include "parsed_signature.h"

Test(signature, parts_of_a_signature)
{
	struct signature s = parsed("  vec::dot.x ( Tensor a,int|Tensor  b_2 )->float ");
	cr_expect_str_eq(s.name, "vec::dot.x");
	cr_expect_eq(s.name_hash, hash64("vec::dot.x", 10));
	cr_expect_eq(s.params_n, 2);
	cr_expect_str_eq(s.params[0].name, "a");
	cr_expect_str_eq(s.params[1].name, "b_2");
	cr_expect_eq(s.params[1].set.types, 1 << FAR_TYPE_TENSOR | 1 << FAR_TYPE_INT);
	cr_expect_eq(s.result.types, 1 << FAR_TYPE_FLOAT);
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

static const char *set_name(const char *types, char *buf, size_t len)
{
	char text[256];
	snprintf(text, sizeof text, "f() -> %s", types);
	struct signature s = parsed(text);
	return signature_set_name(&s, s.result, buf, len);
}

Test(signature, names_of_type_sets)
{
	char buf[128];
	struct signature s = parsed("f() -> none");
	cr_expect_str_eq(set_name("int|Tensor", buf, 128), "Tensor|int");
	cr_expect_str_eq(set_name("str|Any", buf, 128), "Any");
	cr_expect_str_eq(set_name("none|Dict|List|bytes|str|bool|int|float|Tensor", buf, 128),
			 "Tensor|Scalar|str|bytes|List|Dict|none");
	cr_expect_str_eq(set_name("b::T|a::T|int", buf, 128), "int|a::T|b::T");
	cr_expect_str_eq(set_name("geo::Polygon|Any", buf, 128), "Any");
	cr_expect_str_eq(signature_set_name(&s, (struct signature_set){0}, buf, 128), "");
	cr_expect_str_eq(set_name("none|bytes|str|bool|int|float|Tensor", buf, 8), "Tensor|");
}

/* dtype and rank: canonical text, what is refused, and which values fit. A plain Tensor is as it was. */
Test(signature, tensors_of_a_form)
{
	char buf[128];
	struct signature s = parsed("f(Tensor<f32,2> a, none|Tensor< i64 > b) -> Tensor<f64 , 0>");
	cr_expect_str_eq(s.text, "f(Tensor<f32,2>,Tensor<i64>|none)->Tensor<f64,0>");
	cr_expect_eq(s.canonical_hash,
		     parsed("f(Tensor<f32,2>|Tensor<f32,2> x, Tensor<i64>|none y) -> Tensor<f64,0>").canonical_hash);
	cr_expect_neq(s.canonical_hash, parsed("f(Tensor a, none|Tensor b) -> Tensor").canonical_hash);
	cr_expect_str_eq(signature_show(&s, buf, sizeof buf),
			 "f(Tensor<f32,2> a, Tensor<i64>|none b) -> Tensor<f64,0>");
	cr_expect_str_eq(parsed("f(Tensor<f32,2>|Tensor a, Tensor|Tensor<f32> b) -> none").text,
			 "f(Tensor,Tensor)->none");
	static const char *const malformed[] = {
		"f(Tensor<> a) -> none",     "f(Tensor<f31> a) -> none",     "f(Tensor<?> a) -> none",
		"f(Tensor<none> a) -> none", "f(Tensor<f32,9> a) -> none",   "f(Tensor<f32,x> a) -> none",
		"f(Tensor<f32 a) -> none",   "f(Tensor<f32,2,3> a) -> none", "f(Tensor<f32>|Tensor<f64> a) -> none",
		"f(List<f32> a) -> none",    "f(Tensor<f32>=1 a) -> none",
	};
	for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++)
		cr_expect_eq(signature_parse(malformed[i], &s, NULL), FAR_INVALID, "%s", malformed[i]);
}

Test(signature, custom_types)
{
	struct signature s = parsed("geo::area(geo::Polygon|geo::Circle p, List|geo::Circle q) -> float");
	cr_expect_eq(s.customs_n, 2);
	cr_expect_eq(s.customs[1].hash, hash64("geo::Circle", 11));
	cr_expect_eq(s.params[0].set.types, 0);
	cr_expect_eq(s.params[0].set.customs, 3);
	cr_expect_str_eq(s.text, "geo::area(geo::Circle|geo::Polygon,List|geo::Circle)->float");
	cr_expect_eq(s.canonical_hash,
		     parsed("geo::area(geo::Circle|geo::Polygon a, geo::Circle|List b)->float").canonical_hash);
	cr_expect_neq(s.canonical_hash,
		      parsed("geo::area(geo::Circle|geo::Square a, geo::Circle|List b)->float").canonical_hash);
	struct far_custom_type circle = {.name = "geo::Circle"}, polygon = {.name = "geo::Polygon"};
	struct far_val v[2] = {far_custom(&polygon, &s), far_custom(&circle, &s)}, out[2];
	struct far_err err;
	cr_expect_eq(signature_bind(&s, v, 2, out, NULL, &err), FAR_OK);
	cr_expect_not(signature_fits(&s, v, 2));
	v[1].u.custom.type = &polygon;
	cr_expect_eq(signature_bind(&s, v, 2, out, NULL, &err), FAR_BAD_ARGS);
	cr_expect_not_null(strstr(err.text, "argument 2 (q) is a geo::Polygon, wanted List|geo::Circle"), "%s",
			   err.text);
	/* Before it is decoded a value has the hash alone. */
	v[0].u.custom.type = NULL;
	v[0].u.custom.hash = hash64("geo::Circle", 11);
	cr_expect(signature_takes(&s, s.params[0].set, &v[0]));
	v[0].u.custom.hash++;
	cr_expect_not(signature_takes(&s, s.params[0].set, &v[0]));
	s = parsed("f(Any x) -> none");
	cr_expect(signature_takes(&s, s.params[0].set, &v[0]));
}

Test(signature, defaults)
{
	struct signature s =
		parsed("f(int a, float b = -1, float|int c=2, bool d=true, str e=\"x \\\"\\n\", none|Tensor t = "
		       "none, float g=1e-3, float h=-inf, Any i=7) -> none");
	struct far_val v = far_int(5), out[FAR_ARGS_MAX];
	struct far_err err;
	char shown[512];
	cr_assert_eq(s.required_n, 1);
	cr_assert_eq(signature_bind(&s, &v, 1, out, NULL, &err), FAR_OK, "%s", err.text);
	cr_expect(out[1].type == FAR_TYPE_FLOAT && out[1].u.f == -1.0);
	cr_expect(out[2].type == FAR_TYPE_INT && out[2].u.i == 2);
	cr_expect(out[3].type == FAR_TYPE_BOOL && out[3].u.b);
	cr_expect(out[4].type == FAR_TYPE_STRING && out[4].u.s.len == 4);
	cr_expect_str_eq(out[4].u.s.data, "x \"\n");
	cr_expect_eq(out[5].type, FAR_TYPE_NONE);
	cr_expect(out[6].type == FAR_TYPE_FLOAT && out[6].u.f == 1e-3);
	cr_expect(out[7].type == FAR_TYPE_FLOAT && out[7].u.f < -1e308);
	cr_expect(out[8].type == FAR_TYPE_INT && out[8].u.i == 7);
	cr_expect_str_eq(s.text, "f(int,float,float|int,bool,str,Tensor|none,float,float,Any)->none");
	s = parsed("f(int a, float b=0.5, str c=\"m\", bool d=false, none|int e=none) -> Any");
	cr_expect_str_eq(signature_show(&s, shown, sizeof shown),
			 "f(int a, float b=0.5, str c=\"m\", bool d=false, int|none e=none) -> Any");
	s = parsed("f(str a='it\\'s \"b\"', str c='') -> none");
	cr_assert_eq(signature_bind(&s, NULL, 0, out, NULL, &err), FAR_OK, "%s", err.text);
	cr_expect_str_eq(out[0].u.s.data, "it's \"b\"");
	cr_expect_eq(out[1].u.s.len, 0);
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
		{"f(float a=)->int", "column 11: expected a value, found ')'"},
		{"f(float a=x)->int",
		 "column 11: expected a value, one of none, true, false, a number or a \"string\""},
		{"f(float a=\"x\")->int", "column 11: the default is of type string, the parameter takes float"},
		{"f(int a=1.5)->int", "column 9: the default is of type float, the parameter takes int"},
		{"f(Tensor a=1)->int", "column 12: the default is of type int, the parameter takes Tensor"},
		{"f(bool a=1)->int", "the default is of type int, the parameter takes bool"},
		{"f(int a=99999999999999999999)->int", "column 9: the number '99999999999999999999' is too large"},
		{"f(float a=1e999)->int", "the number '1e999' is too large"},
		{"f(int a=1x)->int", "column 9: expected a value"},
		{"f(str a=\"x)->int", "expected the \" that ends the string, found the end"},
		{"f(str a='x\")->int", "expected the ' that ends the string, found the end"},
		{"f(str a=\"\\q\")->int", "expected \\\", \\', \\\\, \\n or \\t"},
		{"f(int a=1, int b)->int", "column 16: parameter 'b' without a default after one with"},
		{"f(a::B|b::C|c::D|d::E|e::F|f::G|g::H|h::I|i::J x)->int", "more than 8 custom types"},
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

Test(signature, results)
{
	struct signature s = parsed("f() -> Tensor|int");
	struct far_val v = far_int(1);
	cr_expect(signature_result_fits(&s, &v));
	v = far_none();
	cr_expect_not(signature_result_fits(&s, &v));
	v.type = 200;
	cr_expect_not(signature_result_fits(&s, &v));
	s = parsed("f() -> Any");
	cr_expect_not(signature_result_fits(&s, &v));
	v = far_none();
	cr_expect(signature_result_fits(&s, &v));
}
