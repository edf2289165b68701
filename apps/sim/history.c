/* SPDX-License-Identifier: BSD-3-Clause */
/** Records calls, handler executions and faults of a run. The thread of the simulation. */
#include "sim/history.h"

#include "base/must.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void *grown(void *array, size_t n, size_t *cap, size_t size)
{
	if (n < *cap)
		return array;
	*cap = *cap ? 2 * *cap : 64;
	array = realloc(array, *cap * size);
	must(array != NULL);
	return array;
}

void history_fini(struct history *h)
{
	free(h->calls);
	free(h->incidents);
	free(h->findings);
	*h = (struct history){0};
}

size_t history_begin(struct history *h, const struct history_call *call)
{
	h->calls = grown(h->calls, h->calls_n, &h->calls_cap, sizeof *h->calls);
	struct history_call *c = &h->calls[h->calls_n];
	*c = *call;
	c->ended = c->cancelled = c->sent = c->left = HISTORY_TIME_NONE;
	return h->calls_n++;
}

bool history_run(struct history *h, uint64_t number, const struct history_run *run)
{
	if (number >= h->calls_n) {
		h->strays++;
		return false;
	}
	struct history_call *c = &h->calls[number];
	if (c->runs_n < HISTORY_RUNS) {
		c->runs[c->runs_n] = *run;
		c->runs[c->runs_n].order = h->runs++;
	}
	c->runs_n++;
	return true;
}

void history_end(struct history *h, size_t number, uint64_t now, enum far_status status, enum far_executed executed,
		 const char *text)
{
	struct history_call *c = &h->calls[number];
	if (c->ends < UINT8_MAX)
		c->ends++;
	if (c->ends > 1)
		return;
	c->ended = now;
	c->status = (uint8_t)status;
	c->executed = (uint8_t)executed;
	snprintf(c->error_text, sizeof c->error_text, "%s", text ? text : "");
}

void history_orphan(struct history *h, uint32_t worker, uint32_t incarnation)
{
	for (size_t i = 0; i < h->calls_n; i++) {
		struct history_call *c = &h->calls[i];
		if (c->from == worker && c->from_incarnation == incarnation && !c->ends)
			c->orphaned = true;
	}
}

size_t history_incident(struct history *h, const struct history_incident *incident)
{
	h->incidents = grown(h->incidents, h->incidents_n, &h->incidents_cap, sizeof *h->incidents);
	h->incidents[h->incidents_n] = *incident;
	h->incidents[h->incidents_n].ready = HISTORY_TIME_NONE;
	return h->incidents_n++;
}

void history_incident_over(struct history *h, size_t number, uint64_t now)
{
	h->incidents[number].until = now;
}

void history_ready(struct history *h, uint32_t worker, uint64_t now)
{
	for (size_t i = 0; i < h->incidents_n; i++) {
		struct history_incident *c = &h->incidents[i];
		if (c->kind == INCIDENT_CRASH && c->a == worker && c->ready == HISTORY_TIME_NONE)
			c->ready = now;
	}
}

void history_finding(struct history *h, enum checker checker, const char *format, ...)
{
	va_list args;
	h->findings = grown(h->findings, h->findings_n, &h->findings_cap, sizeof *h->findings);
	struct history_finding *f = &h->findings[h->findings_n++];
	f->checker = checker;
	va_start(args, format);
	vsnprintf(f->text, sizeof f->text, format, args);
	va_end(args);
}
