/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts of statuses, and functions that fill and print a struct far_err. Any thread. */
#include "base/error.h"
#include "base/text.h"

#include <farcall/version.h>
#include <stdio.h>
#include <string.h>

static const char *const status_names[] = {
#define STATUS_NAME(name, text) #name,
	FAR_STATUS_LIST(STATUS_NAME)};

static const char *const status_texts[] = {
#define STATUS_TEXT(name, text) text,
	FAR_STATUS_LIST(STATUS_TEXT)};

const char *far_status_name(enum far_status status)
{
	return (unsigned)status < FAR_STATUS_COUNT ? status_names[status] : "?";
}

const char *far_status_text(enum far_status status)
{
	return (unsigned)status < FAR_STATUS_COUNT ? status_texts[status] : "unknown status";
}

const char *far_executed_name(enum far_executed executed)
{
	switch (executed) {
	case FAR_EXECUTED_NO:
		return "NO";
	case FAR_EXECUTED_MAYBE:
		return "MAYBE";
	case FAR_EXECUTED_YES:
		return "YES";
	}
	return "?";
}

enum far_status far_err_print(FILE *f, const struct far_err *err)
{
	fprintf(f, "far: %s: %s", far_status_name(err->status), err->text);
	if (err->origin[0])
		fprintf(f, " (origin %s, code %d, executed %s)", err->origin, (int)err->code,
			far_executed_name(err->executed));
	fputc('\n', f);
	return err->status;
}

const char *far_version(void)
{
	return FAR_VERSION;
}

enum far_status err_setv(struct far_err *err, enum far_status status, const char *format, va_list args)
{
	if (err) {
		err->status = status;
		err->executed = FAR_EXECUTED_NO;
		err->code = 0;
		err->origin[0] = '\0';
		text_setv(err->text, sizeof err->text, format, args);
	}
	return status;
}

enum far_status err_set(struct far_err *err, enum far_status status, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	err_setv(err, status, format, args);
	va_end(args);
	return status;
}

enum far_status err_sys(struct far_err *err, int errno_value, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	err_setv(err, FAR_SYSTEM, format, args);
	va_end(args);
	if (err) {
		size_t len = strlen(err->text);
		snprintf(err->text + len, sizeof err->text - len, ": %s", strerror(errno_value));
		err->code = errno_value;
	}
	return FAR_SYSTEM;
}
