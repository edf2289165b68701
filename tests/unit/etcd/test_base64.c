/* SPDX-License-Identifier: BSD-3-Clause */
/* Base64: what is written is read again, and what others write is checked. The test's thread. */
#include "etcd/base64.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static long decode(const char *text, uint8_t *out)
{
	return base64_decode(text, strlen(text), out);
}

Test(base64, vectors_of_the_rfc)
{
	static const char *const vectors[][2] = {{"", ""},
						 {"f", "Zg=="},
						 {"fo", "Zm8="},
						 {"foo", "Zm9v"},
						 {"foob", "Zm9vYg=="},
						 {"fooba", "Zm9vYmE="},
						 {"foobar", "Zm9vYmFy"},
						 {"\xfb\xff\xfe", "+//+"}};
	for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
		const char *plain = vectors[i][0], *text = vectors[i][1];
		char out[16];
		uint8_t back[16];
		cr_assert_eq(BASE64_LEN(strlen(plain)), strlen(text));
		base64_encode((const uint8_t *)plain, strlen(plain), out);
		cr_assert_arr_eq(out, text, strlen(text));
		cr_assert_eq(decode(text, back), (long)strlen(plain));
		cr_assert_arr_eq(back, plain, strlen(plain));
	}
}

Test(base64, every_length_and_byte)
{
	uint8_t data[259], back[BASE64_LEN(sizeof data)];
	char text[BASE64_LEN(sizeof data)];
	for (size_t i = 0; i < sizeof data; i++)
		data[i] = (uint8_t)(i * 167);
	for (size_t len = 0; len <= sizeof data; len++) {
		base64_encode(data, len, text);
		cr_assert_eq(base64_decode(text, BASE64_LEN(len), back), (long)len);
		cr_assert(memcmp(back, data, len) == 0);
	}
}

Test(base64, malformed)
{
	static const char *const texts[] = {"Z",    "Zg",      "Zg=",      "Zg===",        "=",        "====",  "Z===",
					    "=Zg=", "Zg=A",    "Zg==Zg==", "Zm9v=",        "Zm9v Zg=", "Zm 9v", "Zm9\n",
					    "Zm-_", "Zm9\xc3", "Zm=v",     "Zm9vZm==Zm9v", "Z=9v",     "=m9v"};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		uint8_t out[16];
		cr_assert_eq(decode(texts[i], out), -1, "\"%s\"", texts[i]);
	}
	cr_assert_eq(base64_decode("Zm\0v", 4, (uint8_t[4]){0}), -1);
}

/* The bytes that it may write are a block of their own, which a sanitizer watches. */
Test(base64, writes_no_more_than_it_says)
{
	static const char text[] = "Zm9vYmFyZg==";
	uint8_t *out = malloc(7);
	cr_assert_eq(base64_decode(text, sizeof text - 1, out), 7);
	cr_assert_arr_eq(out, "foobarf", 7);
	free(out);
	char *whole = malloc(sizeof text - 1);
	base64_encode((const uint8_t *)"foobarf", 7, whole);
	cr_assert_arr_eq(whole, text, sizeof text - 1);
	free(whole);
}
