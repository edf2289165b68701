/* SPDX-License-Identifier: BSD-3-Clause */
/** Writes profiles as Chrome trace events and as OTLP/JSON. Any thread; blocks. */
#include "api/profile.h"

#include "base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_text(FILE *out, const char *text)
{
	putc('"', out);
	for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
		if (*c == '"' || *c == '\\')
			fprintf(out, "\\%c", *c);
		else if (*c < 32 || *c > 126) /* names of peers may be no UTF-8 */
			fprintf(out, "\\u%04x", *c);
		else
			putc(*c, out);
	}
	putc('"', out);
}

/* ---- Chrome: spans on lanes of a worker, on which each lies inside of the one before it or behind it ---- */

struct lane {
	int at;
	size_t spans[64]; /* open ones, each inside of the one before */
	unsigned n;
};

static bool lane_takes(struct lane *l, const struct far_span *spans, const struct far_span *s)
{
	if (l->at != s->at)
		return false;
	while (l->n && spans[l->spans[l->n - 1]].end_ns <= s->begin_ns)
		l->n--;
	return !l->n || (l->n < 64 && spans[l->spans[l->n - 1]].end_ns >= s->end_ns);
}

static size_t lane_of(struct lane *lanes, size_t *n, const struct far_span *spans, size_t at)
{
	size_t i = 0;
	while (i < *n && !lane_takes(&lanes[i], spans, &spans[at]))
		i++;
	if (i == *n) {
		lanes[i].at = spans[at].at;
		lanes[i].n = 0;
		++*n;
	}
	lanes[i].spans[lanes[i].n++] = at;
	return i;
}

static void put_us(FILE *out, const char *name, uint64_t ns)
{
	fprintf(out, ",\"%s\":%" PRIu64 ".%03u", name, ns / 1000, (unsigned)(ns % 1000));
}

static void put_event(FILE *out, const struct far_span *s, size_t lane)
{
	static const char *const kinds[] = {"call", "handler", "range"};
	fprintf(out, ",\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":", kinds[s->kind]);
	put_text(out, s->name);
	fprintf(out, ",\"pid\":%d,\"tid\":%zu", s->at, lane);
	put_us(out, "ts", s->begin_ns);
	put_us(out, "dur", s->end_ns - s->begin_ns);
	fprintf(out, ",\"args\":{\"status\":\"%s\",\"mode\":\"%s\"", far_status_text(s->status),
		far_call_mode_name(s->mode));
	put_us(out, "queued_us", s->queued_ns);
	put_us(out, "wire_us", s->wire_ns);
	put_us(out, "running_us", s->running_ns);
	put_us(out, "completing_us", s->completing_ns);
	fprintf(out, "}}");
}

/* An arrow from the call to its handler. */
static void put_arrow(FILE *out, const struct far_span *call, size_t from, const struct far_span *handler, size_t to)
{
	fprintf(out,
		",\n{\"ph\":\"s\",\"cat\":\"rpc\",\"name\":\"rpc\",\"id\":\"%016" PRIx64 "\",\"pid\":%d,\"tid\":%zu",
		handler->id, call->at, from);
	put_us(out, "ts", call->begin_ns);
	fprintf(out,
		"},\n{\"ph\":\"f\",\"bp\":\"e\",\"cat\":\"rpc\",\"name\":\"rpc\",\"id\":\"%016" PRIx64
		"\",\"pid\":%d,\"tid\":%zu",
		handler->id, handler->at, to);
	put_us(out, "ts", handler->begin_ns);
	putc('}', out);
}

/* Writes something once for each worker that has spans. */
static bool first_of_worker(const struct far_span *spans, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (spans[k].at == spans[i].at)
			return false;
	return true;
}

static void put_name(FILE *out, const char *comma, const char *of, int pid, size_t tid, const char *name)
{
	fprintf(out, "%s\n{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%zu,\"args\":{\"name\":", comma, of, pid,
		tid);
	put_text(out, name);
	fprintf(out, "}}");
}

/* Names of processes, and of threads after the worker that recorded them: files of several workers can be joined. */
static void put_names(FILE *out, const struct far_span *spans, size_t n, struct far_agent *agent,
		      const struct lane *lanes, size_t lanes_n, size_t first)
{
	struct far_worker_info self = {.name = "the caller"};
	char name[FAR_NAME_MAX], calls[FAR_NAME_MAX + 16];
	const char *comma = "";
	if (agent)
		far_worker_self(agent, &self);
	for (size_t i = 0; i < n; i++) {
		if (!first_of_worker(spans, i))
			continue;
		profile_worker(agent, spans[i].at, name);
		put_name(out, comma, "process_name", spans[i].at, first, name);
		comma = ",";
	}
	snprintf(calls, sizeof calls, "calls of %s", self.name);
	for (size_t i = 0; i < lanes_n; i++)
		put_name(out, comma, "thread_name", lanes[i].at, first + i, calls);
}

/* Lanes of a worker begin at a number of its own. */
static size_t first_lane(struct far_agent *agent)
{
	struct far_worker_info self = {.rank = -1};
	if (agent)
		far_worker_self(agent, &self);
	return (size_t)(self.rank + 1) << 16;
}

static bool write_chrome(FILE *out, const struct far_span *spans, size_t n, struct far_agent *agent)
{
	struct lane *lanes = calloc(n + 1, sizeof *lanes);
	size_t *lane = malloc((n + 1) * sizeof *lane), lanes_n = 0, first = first_lane(agent);
	if (!lanes || !lane) {
		free(lanes);
		free(lane);
		return false;
	}
	for (size_t i = 0; i < n; i++)
		lane[i] = first + lane_of(lanes, &lanes_n, spans, i);
	fprintf(out, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
	put_names(out, spans, n, agent, lanes, lanes_n, first);
	for (size_t i = 0; i < n; i++) {
		put_event(out, &spans[i], lane[i]);
		int64_t parent = spans[i].parent;
		if (spans[i].kind == FAR_SPAN_HANDLER && parent >= 0)
			put_arrow(out, &spans[parent], lane[parent], &spans[i], lane[i]);
	}
	fprintf(out, "\n]}\n");
	free(lanes);
	free(lane);
	return true;
}

/* ---- OTLP ---- */

static void put_hex(FILE *out, const char *name, const void *id, size_t n)
{
	fprintf(out, ",\"%s\":\"", name);
	for (size_t i = 0; i < n; i++)
		fprintf(out, "%02x", ((const uint8_t *)id)[i]);
	putc('"', out);
}

static void put_number(FILE *out, const char *name, int64_t x)
{
	fprintf(out, ",{\"key\":\"%s\",\"value\":{\"intValue\":\"%" PRId64 "\"}}", name, x);
}

static void put_otlp(FILE *out, const struct far_span *s)
{
	static const int kinds[] = {[FAR_SPAN_CALL] = 3, [FAR_SPAN_HANDLER] = 2, [FAR_SPAN_RANGE] = 1};
	fprintf(out, "{\"name\":");
	put_text(out, s->name);
	put_hex(out, "traceId", s->trace, sizeof s->trace);
	put_hex(out, "spanId", &s->id, sizeof s->id);
	if (s->parent_id)
		put_hex(out, "parentSpanId", &s->parent_id, sizeof s->parent_id);
	fprintf(out, ",\"kind\":%d,\"startTimeUnixNano\":\"%" PRIu64 "\",\"endTimeUnixNano\":\"%" PRIu64 "\"",
		kinds[s->kind], s->begin_ns, s->end_ns);
	fprintf(out, ",\"attributes\":[{\"key\":\"rpc.system\",\"value\":{\"stringValue\":\"farcall\"}}");
	fprintf(out, ",{\"key\":\"farcall.mode\",\"value\":{\"stringValue\":\"%s\"}}", far_call_mode_name(s->mode));
	put_number(out, "farcall.queued_ns", (int64_t)s->queued_ns);
	put_number(out, "farcall.wire_ns", (int64_t)s->wire_ns);
	put_number(out, "farcall.running_ns", (int64_t)s->running_ns);
	put_number(out, "farcall.completing_ns", (int64_t)s->completing_ns);
	if (s->status == FAR_OK || s->status == FAR_PENDING)
		fprintf(out, "],\"status\":{\"code\":%d}}", s->status == FAR_OK);
	else
		fprintf(out, "],\"status\":{\"code\":2,\"message\":\"%s\"}}", far_status_text(s->status));
}

static void write_otlp(FILE *out, const struct far_span *spans, size_t n, struct far_agent *agent)
{
	char name[FAR_NAME_MAX];
	const char *comma = "";
	fprintf(out, "{\"resourceSpans\":[");
	for (size_t i = 0; i < n; i++) {
		if (!first_of_worker(spans, i))
			continue;
		profile_worker(agent, spans[i].at, name);
		fprintf(out, "%s\n{\"resource\":{\"attributes\":[{\"key\":\"service.name\",\"value\":{\"stringValue\":",
			comma);
		put_text(out, name);
		fprintf(out, "}}]},\"scopeSpans\":[{\"scope\":{\"name\":\"farcall\"},\"spans\":[");
		const char *between = "\n";
		for (size_t k = i; k < n; k++) {
			if (spans[k].at != spans[i].at)
				continue;
			fputs(between, out);
			put_otlp(out, &spans[k]);
			between = ",\n";
		}
		fprintf(out, "]}]}");
		comma = ",";
	}
	fprintf(out, "\n]}\n");
}

enum far_status far_profile_write(struct far_profile *p, struct far_agent *agent, enum far_profile_format format,
				  const char *path, struct far_err *err)
{
	size_t n;
	if (!p || !path || (format != FAR_PROFILE_CHROME && format != FAR_PROFILE_OTLP))
		return err_set(err, FAR_INVALID, "far_profile_write: a profile, a path and a format");
	const struct far_span *spans = far_profile_spans(p, agent, &n);
	if (!spans)
		return err_set(err, FAR_RESOURCE, "no memory to write a profile");
	FILE *out = fopen(path, "we");
	bool memory = true, failed = !out;
	if (out && format == FAR_PROFILE_CHROME)
		memory = write_chrome(out, spans, n, agent);
	else if (out)
		write_otlp(out, spans, n, agent);
	if (out) {
		failed = ferror(out) != 0;
		failed |= fclose(out) != 0;
	}
	if (!failed)
		return memory ? FAR_OK : err_set(err, FAR_RESOURCE, "no memory to write a profile");
	return err_sys(err, errno, "cannot write the profile to %s", path);
}
