/* SPDX-License-Identifier: BSD-3-Clause */
/** Bounded error texts, cut at the end of a word with "...". Any thread. */
#ifndef FAR_BASE_TEXT_H
#define FAR_BASE_TEXT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/** Cuts a text that vsnprintf(text, cap, ...), which returned `wanted`, has truncated: it ends with a complete word and
 * "...". Returns its bytes without NUL. */
static inline size_t text_end(char *text, size_t cap, int wanted)
{
	static const char more[] = "...";
	if (wanted < 0 || (size_t)wanted < cap || cap <= sizeof more)
		return strnlen(text, cap);
	size_t n = cap - sizeof more;
	while (n > 0 && text[n] != ' ')
		n--;
	while (n > 0 && strchr(" ,;:", text[n - 1]))
		n--;
	if (n == 0) /* one long word */
		n = cap - sizeof more;
	memcpy(text + n, more, sizeof more);
	return n + sizeof more - 1;
}

__attribute__((format(printf, 3, 0))) static inline size_t text_setv(char *text, size_t cap, const char *format,
								     va_list args)
{
	return text_end(text, cap, vsnprintf(text, cap, format, args));
}

__attribute__((format(printf, 3, 4))) static inline size_t text_set(char *text, size_t cap, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	size_t n = text_setv(text, cap, format, args);
	va_end(args);
	return n;
}

#endif
