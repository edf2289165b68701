/* SPDX-License-Identifier: BSD-3-Clause */
/* Base64 with padding. Any thread; no state. */
#include "etcd/base64.h"

#include <stdbool.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(const uint8_t *data, size_t len, char *out)
{
	for (size_t i = 0; i < len; i += 3, out += 4) {
		uint32_t n = (uint32_t)data[i] << 16;
		n |= i + 1 < len ? (uint32_t)data[i + 1] << 8 : 0;
		n |= i + 2 < len ? data[i + 2] : 0;
		out[0] = digits[n >> 18];
		out[1] = digits[n >> 12 & 63];
		out[2] = i + 1 < len ? digits[n >> 6 & 63] : '=';
		out[3] = i + 2 < len ? digits[n & 63] : '=';
	}
}

static int digit(char c)
{
	const char *at = c ? strchr(digits, c) : NULL;
	return at ? (int)(at - digits) : -1;
}

long base64_decode(const char *text, size_t len, uint8_t *out)
{
	uint8_t *to = out;
	if (len % 4)
		return -1;
	for (size_t i = 0; i < len; i += 4) {
		bool last = i + 4 == len;
		int pad = last && text[i + 3] == '=' ? 1 + (text[i + 2] == '=') : 0;
		int a = digit(text[i]), b = digit(text[i + 1]);
		int c = pad == 2 ? 0 : digit(text[i + 2]), d = pad ? 0 : digit(text[i + 3]);
		if (a < 0 || b < 0 || c < 0 || d < 0)
			return -1;
		*to++ = (uint8_t)(a << 2 | b >> 4);
		if (pad < 2)
			*to++ = (uint8_t)(b << 4 | c >> 2);
		if (pad < 1)
			*to++ = (uint8_t)(c << 6 | d);
	}
	return to - out;
}
