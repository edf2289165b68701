/* SPDX-License-Identifier: BSD-3-Clause */
/** Writes the results of a fan-out: of each target, and of the whole. Shard thread. */
#include "features/fanout/fanout.h"

#include <stdio.h>

void fanout_write_timeout(const struct fanout *fo, char *text, size_t cap)
{
	char message[24];
	snprintf(message, sizeof message, "message %u", fo->message);
	snprintf(text, cap, "no answer to %s within the time-out of %.9g ms", fo->name ? fo->name : message,
		 (double)fo->timeout / (double)FAR_MS);
}

void fanout_write_text(char *text, size_t cap, const struct completion *o)
{
	snprintf(text, cap, "%.*s", (int)o->len, o->len ? (const char *)o->data : "");
}

void fanout_record_failure(struct fanout *fo, uint32_t i, const struct completion *o)
{
	struct fanout_failure *f = &fo->failure;
	f->status = o->status;
	f->code = o->code;
	f->origin = o->origin;
	f->target = (uint16_t)i;
	fanout_write_text(f->text, sizeof f->text, o);
}

void fanout_error(const struct fanout *fo, enum far_status status, char *text, size_t cap, struct completion *o)
{
	const struct fanout_failure *f = &fo->failure;
	char late[FAR_ERR_TEXT_MAX];
	int n;
	*o = (struct completion){.status = status,
				 .executed = fo->touched ? FAR_EXECUTED_MAYBE : FAR_EXECUTED_NO,
				 .origin = -1,
				 .data = text};
	if (status == FAR_OK) { /* that of the first failure */
		o->status = f->status;
		o->code = f->code;
		o->origin = f->origin;
		n = snprintf(text, cap, "%u of %u targets failed, %u succeeded, %u had to; the first, target %u: %s",
			     fo->failed_n, fo->n, fo->ok_n, fo->k, f->target, f->text);
	} else {
		if (status == FAR_TIMEOUT)
			fanout_write_timeout(fo, late, sizeof late);
		n = snprintf(text, cap, "%s: %u of %u targets had succeeded, %u failed, %u had to succeed",
			     status == FAR_TIMEOUT    ? late
			     : status == FAR_SHUTDOWN ? FANOUT_STOPPED
						      : "the fan-out was cancelled here",
			     fo->ok_n, fo->n, fo->failed_n, fo->k);
	}
	o->len = n < 0 ? 0 : (size_t)n < cap ? (size_t)n : cap - 1;
}
