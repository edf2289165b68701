/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Reports the references that are left at the end. Shard thread.
 *
 * All workers leave at once, so a session may end before the report: what a peer held here is kept until it is known
 * how the group ended, and reported when no peer was lost or late.
 */
#include "base/log.h"
#include "core/session.h"
#include "core/shard.h"
#include "features/references/rref.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_MAX 64u /* of a shard */

/* A reference that a peer held when its session ended. */
struct rref_left {
	struct rref_left *next;
	char text[RREF_TEXT_MAX], holder[FAR_NAME_MAX];
	uint32_t worker;
	unsigned shard;
};

__attribute__((format(printf, 2, 3))) static void report(struct rref_leaks *leaks, const char *format, ...)
{
	char text[2 * FAR_NAME_MAX + RREF_TEXT_MAX + 128];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	log_line(FAR_LOG_WARNING, "shutdown: %s", text);
	if (atomic_fetch_add_explicit(&leaks->named_n, 1, memory_order_relaxed) == 0)
		snprintf(leaks->first, sizeof leaks->first, "%.*s", (int)sizeof leaks->first - 1, text);
}

void rref_leak_report(const struct shard *s, const struct far_rref *r, struct rref_leaks *leaks)
{
	char text[RREF_TEXT_MAX];
	rref_text(&r->base, text, sizeof text);
	const struct rref_record *record = rref_as_record(r);
	if (leaks->serves && (record || strcmp(r->owner_name, s->config.name) == 0))
		return;
	if (!record)
		report(leaks,
		       "worker \"%s\" still holds %s of worker \"%s\"; give it back with far_rref_free or far_val_fini",
		       s->config.name, text, r->owner_name);
	else if (!record->forks_n)
		report(leaks, "worker \"%s\" still holds %s, its own", s->config.name, text);
}

static void left_of(const struct shard *s, const struct session *se, const struct rref_fork *f, struct rref_left *l)
{
	s->config.name_of(s->config.agent, se->worker, l->holder);
	rref_text(&f->record->rref.base, l->text, sizeof l->text);
	l->worker = se->worker;
	l->shard = se->shard;
}

static void report_left(const struct shard *s, const struct rref_left *l, struct rref_leaks *leaks)
{
	if (leaks->serves && l->worker == s->config.rank)
		return;
	report(leaks, "%s of worker \"%s\" is still held by worker \"%s\" (rank %u, shard %u)", l->text, s->config.name,
	       l->holder, l->worker, l->shard);
}

void rref_leaks_of(const struct shard *s, const struct session *se, struct rref_leaks *leaks)
{
	struct rref_left l;
	/* Of those that are about to be lost, too, some sessions are still there. */
	for (const struct rref_fork *f = leaks && !leaks->lost ? se->rref_forks : NULL; f; f = f->next) {
		left_of(s, se, f, &l);
		report_left(s, &l, leaks);
	}
}

void rref_leaks_keep(struct shard *s, const struct session *se)
{
	for (const struct rref_fork *f = se->rref_forks; f && s->rrefs->left_n < KEPT_MAX; f = f->next) {
		struct rref_left *l = malloc(sizeof *l);
		if (!l)
			return;
		left_of(s, se, f, l);
		l->next = s->rrefs->left;
		s->rrefs->left = l;
		s->rrefs->left_n++;
	}
}

void rref_leaks_left(struct shard *s, struct rref_leaks *leaks)
{
	for (struct rref_left *l; (l = s->rrefs->left);) {
		s->rrefs->left = l->next;
		if (leaks && !leaks->lost)
			report_left(s, l, leaks);
		free(l);
	}
	s->rrefs->left_n = 0;
}
