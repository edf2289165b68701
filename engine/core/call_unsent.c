/* SPDX-License-Identifier: BSD-3-Clause */
/** Ends calls that were never sent, with an error. Shard thread. */
#include "core/call_unsent.h"

#include "core/session.h"
#include "core/shard.h"
#include "memory/budget.h"
#include "value/registry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void call_unsent(struct shard *s, const struct call_start *start, enum far_status status, const char *text)
{
	shard_own(s);
	const char *outer = s->context.handler;
	struct completion o = {.status = status,
			       .executed = FAR_EXECUTED_NO,
			       .origin = status == FAR_PEER_LOST || status == FAR_UNREACHABLE ? (int16_t)start->worker
											      : -1,
			       .data = text,
			       .len = strlen(text),
			       .agent = s->config.agent,
			       .app = start->app};
	if (start->id)
		start->id->slot = 0;
	session_count_error(s, &s->sessions[session_index(s, start->worker, start->shard)], status, start->typed,
			    start->fn);
	s->context.handler = "a completion callback";
	start->done(start->user, &o);
	s->context.handler = outer;
}

const char *call_name(const struct shard *s, bool typed, uint16_t fn, call_done_fn *done, void *user, char *buf,
		      size_t len)
{
	const struct function *f = typed ? registry_at(s->config.registry, fn) : NULL;
	if (f)
		snprintf(buf, len, "%s", f->signature.name);
	else if (fn < FAR_MSG_HANDLERS_MAX)
		snprintf(buf, len, "message %u", fn);
	else
		s->hooks.message_name(fn, done, user, buf, len);
	return buf;
}

void call_unsent_late(struct shard *s, const struct call_start *start, const char *why)
{
	shard_own(s);
	char text[FAR_ERR_TEXT_MAX], name[SIGNATURE_NAME_MAX];
	snprintf(text, sizeof text, "%s%s was not sent within the call's time-out", why,
		 call_name(s, start->typed, start->fn, start->done, start->user, name, sizeof name));
	call_unsent(s, start, FAR_TIMEOUT, text);
}

static void call_unsent_memory(struct shard *s, const struct call_start *start)
{
	char text[FAR_ERR_TEXT_MAX], why[BUDGET_TEXT_MAX];
	budget_text(why, sizeof why, start->len);
	snprintf(text, sizeof text, "no memory for the call: %s", why);
	call_unsent(s, start, FAR_RESOURCE, text);
}

void call_unsent_error(struct shard *s, const struct call_start *start, int error)
{
	shard_own(s);
	switch (error) {
	case -ESHUTDOWN:
		call_unsent(s, start, FAR_SHUTDOWN, "the agent is shut down");
		return;
	case -EMSGSIZE:
		call_unsent(s, start, FAR_TOO_LARGE, "the message is larger than its transport carries");
		return;
	case -ENOMEM:
		call_unsent_memory(s, start);
		return;
	default:
		call_unsent(s, start, FAR_PEER_LOST, "the worker is gone");
	}
}
