/* SPDX-License-Identifier: BSD-3-Clause */
/** Writes metrics in the four formats, from the table of names. Any thread. */
#include "features/metrics/write.h"

#include "features/metrics/added.h"
#include "features/metrics/table.h"

#include <farcall/version.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { COUNTER, GAUGE, HISTOGRAM };
static const char *const kind_word[] = {"counter", "gauge", "histogram"};

struct scalar {
	size_t at, size; /* of the field */
	const char *field, *name;
	enum kind kind;
	unsigned divisor;
	const char *help;
};

#define SCALAR_OF(type, field, name, kind, divisor, help)                                                              \
	{offsetof(struct type, field), sizeof(((struct type *)0)->field), #field, name, kind, divisor, help},
#define SCALAR(...) SCALAR_OF(far_metrics, __VA_ARGS__)
#define PEER(...)   SCALAR_OF(far_peer_metrics, __VA_ARGS__)
#define NIC(...)    SCALAR_OF(far_nic_stats, __VA_ARGS__)
static const struct scalar scalars[] = {METRICS_SCALARS(SCALAR)};
static const struct scalar peer_scalars[] = {METRICS_PEERS(PEER)};
static const struct scalar nic_scalars[] = {METRICS_NICS(NIC)};
#define N(table) (sizeof(table) / sizeof *(table))

struct drop {
	size_t at;
	const char *reason;
};
#define DROP(field, reason)     {offsetof(struct far_metrics, field), reason},
#define NIC_DROP(field, reason) {offsetof(struct far_nic_stats, field), reason},
static const struct drop drops[] = {METRICS_DROPS(DROP)};
static const struct drop nic_drops[] = {METRICS_NIC_DROPS(NIC_DROP)};

static const struct {
	const char *name;
	enum kind kind;
	const char *help;
} others[] = {
#define OTHER(name, kind, labels, help) {name, kind, help},
	METRICS_OTHER(OTHER)};
static const char *const other_names[] = {
#define OTHER_NAME(name, kind, labels, help) name,
	METRICS_OTHER(OTHER_NAME)};
enum { INFO, DROPS, NIC_DROPS, NIC_SESSIONS, PEER_ERRORS, SHARD_CALLS, SHARD_REQUESTS, SHARD_CPU, LATENCY };

static const char *const error_words[FAR_ERROR_CLASSES] = {"timeout",  "lost",    "cancelled", "refused",
							   "resource", "handler", "shutdown",  "other"};

/* ---- the text ---- */

void metrics_put(struct metrics_out *o, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int n = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (o->failed || n < 0)
		return;
	if (o->len + (size_t)n + 1 > o->cap) {
		size_t cap = 2 * (o->len + (size_t)n + 1) + 4096;
		char *more = realloc(o->text, cap);
		if (!more) {
			o->failed = true;
			return;
		}
		o->text = more;
		o->cap = cap;
	}
	va_start(args, format);
	vsnprintf(o->text + o->len, (size_t)n + 1, format, args);
	va_end(args);
	o->len += (size_t)n;
}

void metrics_put_quoted(struct metrics_out *o, const char *text)
{
	metrics_put(o, "\"");
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if (c == '"' || c == '\\')
			metrics_put(o, "\\%c", c);
		else if (c == '\n')
			metrics_put(o, "\\n");
		else if (c >= ' ')
			metrics_put(o, "%c", c);
	}
	metrics_put(o, "\"");
}

static uint64_t read_field(const void *of, size_t at, size_t size)
{
	const char *p = (const char *)of + at;
	uint64_t wide;
	uint32_t narrow;
	if (size == sizeof wide) {
		memcpy(&wide, p, sizeof wide);
		return wide;
	}
	memcpy(&narrow, p, sizeof narrow);
	return narrow;
}

static void put_value(struct metrics_out *o, uint64_t value, unsigned divisor)
{
	if (divisor == 1)
		metrics_put(o, "%" PRIu64, value);
	else
		metrics_put(o, "%" PRIu64 ".%09" PRIu64, value / METRICS_NS, value % METRICS_NS);
}

/* The value of a field, in the unit of its name. */
static void put_field(struct metrics_out *o, const void *of, const struct scalar *s)
{
	put_value(o, read_field(of, s->at, s->size), s->divisor);
}

uint64_t metrics_percentile(const uint64_t bucket[LATENCY_BUCKETS], uint64_t n, unsigned share)
{
	uint64_t left = (n * share + 999) / 1000;
	for (unsigned i = 0; i < LATENCY_BUCKETS && n; i++) {
		if (bucket[i] >= left)
			return latency_bucket_end(i) - 1;
		left -= bucket[i];
	}
	return 0;
}

bool metrics_name_taken(const char *name)
{
	static const struct {
		const struct scalar *of;
		size_t n;
	} tables[] = {{scalars, N(scalars)}, {peer_scalars, N(peer_scalars)}, {nic_scalars, N(nic_scalars)}};
	for (size_t i = 0; i < N(other_names); i++)
		if (strcmp(other_names[i], name) == 0)
			return true;
	for (size_t t = 0; t < N(tables); t++)
		for (size_t i = 0; i < tables[t].n; i++)
			if (strcmp(tables[t].of[i].name, name) == 0)
				return true;
	return false;
}

/* ---- Prometheus, OpenMetrics ---- */

/* True if the text of `len` bytes has more, and ends in '_' and `word`. */
static bool ends_in(const char *text, size_t len, const char *word)
{
	size_t n = strlen(word);
	return len > n + 1 && text[len - n - 1] == '_' && strncmp(text + len - n, word, n) == 0;
}

/* OpenMetrics names the family, which has not the ending of its samples. */
static void put_open_head(struct metrics_out *o, const char *name, const char *kind, const char *help, const char *unit)
{
	static const char *const endings[][2] = {{"counter", "total"}, {"info", "info"}}, *const units[] = {"seconds",
													    "bytes"};
	size_t len = strlen(name);
	for (size_t i = 0; i < N(endings); i++)
		if (strcmp(kind, endings[i][0]) == 0 && ends_in(name, len, endings[i][1]))
			len -= strlen(endings[i][1]) + 1;
	for (size_t i = 0; i < N(units) && !unit; i++)
		unit = ends_in(name, len, units[i]) ? units[i] : NULL;
	metrics_put(o, "# TYPE %.*s %s\n", (int)len, name, kind);
	if (unit && *unit)
		metrics_put(o, "# UNIT %.*s %s\n", (int)len, name, unit);
	metrics_put(o, "# HELP %.*s ", (int)len, name);
	for (; *help; help++)
		metrics_put(o, *help == '"' ? "\\%c" : "%c", *help);
	metrics_put(o, ".\n");
}

void metrics_put_head(struct metrics_out *o, const char *name, const char *kind, const char *help, const char *unit)
{
	if (o->openmetrics)
		put_open_head(o, name, kind, help, unit);
	else
		metrics_put(o, "# HELP %s %s.\n# TYPE %s %s\n", name, help, name, kind);
}

static void put_head(struct metrics_out *o, const char *name, enum kind kind, const char *help)
{
	metrics_put_head(o, name, kind_word[kind], help, NULL);
}

static void put_other(struct metrics_out *o, unsigned i)
{
	put_head(o, others[i].name, others[i].kind, others[i].help);
}

void metrics_put_labels(struct metrics_out *o, const struct metrics_report *r, const char *name)
{
	metrics_put(o, "%s{group=", name);
	metrics_put_quoted(o, r->group);
	metrics_put(o, ",worker=");
	metrics_put_quoted(o, r->worker);
}

/* The labels that every sample has, and the first that is its own; the closing brace is the caller's. */
static void put_labels(struct metrics_out *o, const struct metrics_report *r, const char *name, const char *label,
		       const char *value)
{
	metrics_put_labels(o, r, name);
	metrics_put(o, ",%s=", label);
	metrics_put_quoted(o, value);
}

static void put_nic_labels(struct metrics_out *o, const struct metrics_report *r, const char *name, unsigned i)
{
	put_labels(o, r, name, "nic", r->nics[i].driver);
	metrics_put(o, ",address=");
	metrics_put_quoted(o, r->nics[i].address);
}

static void prometheus_nics(const struct metrics_report *r, struct metrics_out *o)
{
	for (size_t k = 0; k < N(nic_scalars); k++) {
		put_head(o, nic_scalars[k].name, nic_scalars[k].kind, nic_scalars[k].help);
		for (unsigned i = 0; i < r->nics_n; i++) {
			put_nic_labels(o, r, nic_scalars[k].name, i);
			metrics_put(o, "} ");
			put_field(o, &r->nics[i], &nic_scalars[k]);
			metrics_put(o, "\n");
		}
	}
	put_other(o, NIC_DROPS);
	for (unsigned i = 0; i < r->nics_n; i++)
		for (size_t k = 0; k < N(nic_drops); k++) {
			put_nic_labels(o, r, other_names[NIC_DROPS], i);
			metrics_put(o, ",reason=\"%s\"} %" PRIu64 "\n", nic_drops[k].reason,
				    read_field(&r->nics[i], nic_drops[k].at, sizeof(uint64_t)));
		}
	put_other(o, NIC_SESSIONS);
	for (unsigned i = 0; i < r->nics_n; i++) {
		put_nic_labels(o, r, other_names[NIC_SESSIONS], i);
		metrics_put(o, "} %" PRIu64 "\n", r->nic_sessions[i]);
	}
}

static void prometheus_peers(const struct metrics_report *r, struct metrics_out *o)
{
	for (size_t k = 0; k < N(peer_scalars); k++) {
		put_head(o, peer_scalars[k].name, peer_scalars[k].kind, peer_scalars[k].help);
		for (unsigned i = 0; i < r->peers_n; i++) {
			put_labels(o, r, peer_scalars[k].name, "peer", r->peers[i].name);
			metrics_put(o, "} ");
			put_field(o, &r->peers[i], &peer_scalars[k]);
			metrics_put(o, "\n");
		}
	}
	put_other(o, PEER_ERRORS);
	for (unsigned i = 0; i < r->peers_n; i++)
		for (unsigned k = 0; k < FAR_ERROR_CLASSES; k++) {
			put_labels(o, r, other_names[PEER_ERRORS], "peer", r->peers[i].name);
			metrics_put(o, ",class=\"%s\"} %" PRIu64 "\n", error_words[k], r->peers[i].errors[k]);
		}
}

static void prometheus_shards(const struct metrics_report *r, struct metrics_out *o)
{
	static const unsigned families[] = {SHARD_CALLS, SHARD_REQUESTS, SHARD_CPU};
	for (unsigned k = 0; k < N(families); k++) {
		put_other(o, families[k]);
		for (unsigned i = 0; i < r->shards_n; i++) {
			const struct far_counters *c = &r->shards[i].counters;
			metrics_put_labels(o, r, other_names[families[k]]);
			metrics_put(o, ",shard=\"%u\"} ", i);
			put_value(o,
				  families[k] == SHARD_CALLS      ? c->calls_sent
				  : families[k] == SHARD_REQUESTS ? c->requests_received
								  : r->shards[i].cpu_ns,
				  families[k] == SHARD_CPU ? METRICS_NS : 1);
			metrics_put(o, "\n");
		}
	}
}

/* Powers of two from 1 µs to 69 s: the ends of buckets. */
static void prometheus_latency(const struct metrics_report *r, struct metrics_out *o)
{
	uint64_t below = 0, next = 0;
	put_other(o, LATENCY);
	for (unsigned power = 10; power <= 36; power++) {
		uint64_t end = UINT64_C(1) << power;
		while (next < LATENCY_BUCKETS && latency_bucket_end((unsigned)next) <= end)
			below += r->latency[next++];
		metrics_put_labels(o, r, "farcall_call_latency_seconds_bucket");
		metrics_put(o, ",le=\"%.9g\"} %" PRIu64 "\n", (double)end / METRICS_NS, below);
	}
	metrics_put_labels(o, r, "farcall_call_latency_seconds_bucket");
	metrics_put(o, ",le=\"+Inf\"} %" PRIu64 "\n", r->sum.latency_n);
	metrics_put_labels(o, r, "farcall_call_latency_seconds_sum");
	metrics_put(o, "} ");
	put_value(o, r->sum.latency_sum_ns, METRICS_NS);
	metrics_put(o, "\n");
	metrics_put_labels(o, r, "farcall_call_latency_seconds_count");
	metrics_put(o, "} %" PRIu64 "\n", r->sum.latency_n);
}

static void write_prometheus(const struct metrics_report *r, struct metrics_out *o)
{
	metrics_put_head(o, other_names[INFO], o->openmetrics ? "info" : "gauge", others[INFO].help, NULL);
	put_labels(o, r, other_names[INFO], "version", FAR_VERSION);
	metrics_put(o, "} 1\n");
	for (size_t k = 0; k < N(scalars); k++) {
		put_head(o, scalars[k].name, scalars[k].kind, scalars[k].help);
		metrics_put_labels(o, r, scalars[k].name);
		metrics_put(o, "} ");
		put_field(o, &r->sum, &scalars[k]);
		metrics_put(o, "\n");
	}
	put_other(o, DROPS);
	for (size_t k = 0; k < N(drops); k++) {
		put_labels(o, r, other_names[DROPS], "reason", drops[k].reason);
		metrics_put(o, "} %" PRIu64 "\n", read_field(&r->sum, drops[k].at, sizeof(uint64_t)));
	}
	prometheus_nics(r, o);
	prometheus_peers(r, o);
	prometheus_shards(r, o);
	prometheus_latency(r, o);
	metrics_added_write(r->added, r, false, o);
	if (o->openmetrics)
		metrics_put(o, "# EOF\n");
}

/* ---- JSON: names of the fields, integers in the fields' units ---- */

static void json_fields(struct metrics_out *o, const void *of, const struct scalar *s, size_t n)
{
	for (size_t k = 0; k < n; k++)
		metrics_put(o, ",\"%s\":%" PRIu64, s[k].field, read_field(of, s[k].at, s[k].size));
}

static void json_drops(struct metrics_out *o, const void *of, const struct drop *d, size_t n)
{
	metrics_put(o, ",\"drops\":{");
	for (size_t k = 0; k < n; k++)
		metrics_put(o, "%s\"%s\":%" PRIu64, k ? "," : "", d[k].reason,
			    read_field(of, d[k].at, sizeof(uint64_t)));
	metrics_put(o, "}");
}

static void json_nics(const struct metrics_report *r, struct metrics_out *o)
{
	metrics_put(o, ",\"nics\":[");
	for (unsigned i = 0; i < r->nics_n; i++) {
		metrics_put(o, "%s{\"nic\":\"%s\",\"address\":", i ? "," : "", r->nics[i].driver);
		metrics_put_quoted(o, r->nics[i].address);
		metrics_put(o, ",\"sessions_up\":%" PRIu64, r->nic_sessions[i]);
		json_fields(o, &r->nics[i], nic_scalars, N(nic_scalars));
		json_drops(o, &r->nics[i], nic_drops, N(nic_drops));
		metrics_put(o, "}");
	}
	metrics_put(o, "]");
}

static void json_peers(const struct metrics_report *r, struct metrics_out *o)
{
	metrics_put(o, ",\"peers\":[");
	for (unsigned i = 0; i < r->peers_n; i++) {
		const struct far_peer_metrics *p = &r->peers[i];
		metrics_put(o, "%s{\"peer\":", i ? "," : "");
		metrics_put_quoted(o, p->name);
		metrics_put(o, ",\"rank\":%d,\"nic\":\"%s\"", (int)p->rank, p->nic);
		json_fields(o, p, peer_scalars, N(peer_scalars));
		metrics_put(o, ",\"errors\":{");
		for (unsigned k = 0; k < FAR_ERROR_CLASSES; k++)
			metrics_put(o, "%s\"%s\":%" PRIu64, k ? "," : "", error_words[k], p->errors[k]);
		metrics_put(o, "}}");
	}
	metrics_put(o, "]");
}

static void write_json(const struct metrics_report *r, struct metrics_out *o)
{
	const struct far_metrics *m = &r->sum;
	metrics_put(o, "{\"version\":\"" FAR_VERSION "\",\"worker\":");
	metrics_put_quoted(o, r->worker);
	metrics_put(o, ",\"group\":");
	metrics_put_quoted(o, r->group);
	metrics_put(o, ",\"rank\":%d,\"pid\":%ld,\"state\":\"%s\"", r->rank, r->pid, r->state);
	json_fields(o, m, scalars, N(scalars));
	json_drops(o, m, drops, N(drops));
	metrics_put(o,
		    ",\"latency\":{\"n\":%" PRIu64 ",\"sum_ns\":%" PRIu64 ",\"p50_ns\":%" PRIu64 ",\"p90_ns\":%" PRIu64
		    ",\"p99_ns\":%" PRIu64 ",\"p999_ns\":%" PRIu64 ",\"buckets\":[",
		    m->latency_n, m->latency_sum_ns, m->latency_p50_ns, m->latency_p90_ns, m->latency_p99_ns,
		    m->latency_p999_ns);
	bool first = true;
	for (unsigned i = 0; i < LATENCY_BUCKETS; i++)
		if (r->latency[i]) {
			metrics_put(o, "%s[%" PRIu64 ",%" PRIu64 "]", first ? "" : ",", latency_bucket_end(i),
				    r->latency[i]);
			first = false;
		}
	metrics_put(o, "]}");
	json_nics(r, o);
	json_peers(r, o);
	metrics_put(o, ",\"shard\":[");
	for (unsigned i = 0; i < r->shards_n; i++)
		metrics_put(o,
			    "%s{\"shard\":%u,\"calls_sent\":%" PRIu64 ",\"requests_received\":%" PRIu64
			    ",\"cpu_ns\":%" PRIu64 "}",
			    i ? "," : "", i, r->shards[i].counters.calls_sent, r->shards[i].counters.requests_received,
			    r->shards[i].cpu_ns);
	metrics_put(o, "],\"added\":[");
	metrics_added_write(r->added, r, true, o);
	metrics_put(o, "]}\n");
}

/* ---- text: the samples of Prometheus' format, without comments and the labels that all have ---- */

static void write_text(const struct metrics_report *r, struct metrics_out *o)
{
	struct metrics_out all = {0};
	write_prometheus(r, &all);
	o->failed |= all.failed;
	for (char *line = all.text, *end; line && *line; line = end + 1) {
		end = strchr(line, '\n');
		*end = 0;
		char *labels = strchr(line, '{'), *own = labels ? strstr(labels, ",worker=\"") : NULL;
		if (*line == '#' || !own)
			continue;
		own = strchr(own + 9, '"') + 1; /* names have no quotes */
		if (*own == '}')
			metrics_put(o, "%.*s%s\n", (int)(labels - line), line, own + 1);
		else
			metrics_put(o, "%.*s{%s\n", (int)(labels - line), line, own + 1);
	}
	free(all.text);
}

void metrics_write(const struct metrics_report *r, enum far_metrics_format format, struct metrics_out *o)
{
	o->openmetrics = format == FAR_METRICS_OPENMETRICS;
	if (format == FAR_METRICS_JSON)
		write_json(r, o);
	else if (format != FAR_METRICS_TEXT)
		write_prometheus(r, o);
	else
		write_text(r, o);
}
