/* SPDX-License-Identifier: BSD-3-Clause */
/** Reads the header Accept of a request for metrics (RFC 9110, 12.5.1). The thread of libfarcall-metrics. */
#include "features/metrics/accept.h"

#include <string.h>
#include <strings.h>

/* Text without the blanks around it. */
struct word {
	const char *at;
	size_t len;
};

static struct word trim(const char *at, size_t len)
{
	for (; len && strchr(" \t", *at); len--)
		at++;
	while (len && strchr(" \t", at[len - 1]))
		len--;
	return (struct word){at, len};
}

static bool is(struct word w, const char *text)
{
	return w.len == strlen(text) && strncasecmp(w.at, text, w.len) == 0;
}

/* Takes the text up to `separator` from `left`. */
static struct word take(struct word *left, char separator)
{
	const char *end = memchr(left->at, separator, left->len);
	size_t len = end ? (size_t)(end - left->at) : left->len, past = len + (end != NULL);
	struct word w = trim(left->at, len);
	left->at += past;
	left->len -= past;
	return w;
}

/* A quality in thousandths: "1", "0.5", at most three decimals. Malformed: 0. */
static unsigned quality(struct word w)
{
	unsigned value = 0, unit = 1000;
	for (size_t i = 0; i < w.len; i++, unit /= 10) {
		if (i == 1 && w.at[i] == '.') {
			unit = 1000;
			continue;
		}
		if (w.at[i] < '0' || w.at[i] > '9' || i == 1 || unit == 0)
			return 0;
		value += (unsigned)(w.at[i] - '0') * unit;
	}
	return value > 1000 ? 0 : value;
}

bool accept_openmetrics(const char *accept)
{
	struct word all = {accept, accept ? strlen(accept) : 0};
	unsigned open = 0, plain = 0;
	while (all.len) {
		struct word range = take(&all, ','), type = take(&range, ';'), version = {0};
		unsigned q = 1000;
		while (range.len) {
			struct word value = take(&range, ';'), name = take(&value, '=');
			value = trim(value.at, value.len);
			if (is(name, "q"))
				q = quality(value);
			else if (is(name, "version"))
				version = value;
		}
		if (is(type, "application/openmetrics-text") && (!version.len || is(version, "1.0.0")))
			open = q > open ? q : open;
		else if (is(type, "text/plain"))
			plain = q > plain ? q : plain;
	}
	return open && open >= plain;
}
