/* SPDX-License-Identifier: BSD-3-Clause */
/** Metrics that the application adds: their list, and what their readers put. Any thread. */
#include "features/metrics/added.h"

#include "base/error.h"
#include "base/sized.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 128u
#define HELP_MAX_BYTES 256u

struct family {
	char name[NAME_MAX_BYTES], help[HELP_MAX_BYTES], unit[NAME_MAX_BYTES];
	enum far_metric_kind kind;
	struct metrics_out samples; /* of one reading */
};

struct metrics_added {
	struct metrics_added *next;
	far_metrics_reader *read;
	void *user;
	size_t n;
	struct family family[];
};

/* One reading of one reader. */
struct far_metrics_sink {
	const struct metrics_report *r;
	bool json, openmetrics;
	struct metrics_added *from;
};

/* Of all lists. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char *const kinds[] = {[FAR_METRIC_COUNTER] = "counter", [FAR_METRIC_GAUGE] = "gauge"};

/* ---- Additions ---- */

/* Letters, digits and '_', no digit first. */
static bool is_name(const char *text, size_t max)
{
	size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
	return n > 0 && n < max && !text[n] && !(*text >= '0' && *text <= '9');
}

static bool ends_in(const char *text, size_t len, const char *end)
{
	size_t n = strlen(end);
	return len > n && strncmp(text + len - n, end, n) == 0;
}

/* What is wrong with the name of a metric; NULL: nothing. */
static const char *wrong_name(const struct far_metric *m)
{
	size_t len = strlen(m->name);
	bool total = ends_in(m->name, len, "_total");
	if (total != (m->kind == FAR_METRIC_COUNTER))
		return "the name of a counter, and of nothing else, ends in \"_total\"";
	if (metrics_name_taken(m->name))
		return "Farcall has a metric of this name";
	if (!m->unit || !*m->unit)
		return NULL;
	if (!is_name(m->unit, NAME_MAX_BYTES))
		return "its unit is no word";
	len -= total ? strlen("_total") : 0;
	if (!ends_in(m->name, len, m->unit) || m->name[len - strlen(m->unit) - 1] != '_')
		return "its name does not end in its unit";
	return NULL;
}

static enum far_status check(const struct far_metric *m, struct far_err *err)
{
	if (!m->name || !is_name(m->name, NAME_MAX_BYTES))
		return err_set(err, FAR_INVALID, "\"%.128s\" is no name of a metric: letters, digits and '_'",
			       m->name ? m->name : "");
	if ((unsigned)m->kind > FAR_METRIC_GAUGE)
		return err_set(err, FAR_INVALID, "metric %s: %u is no kind", m->name, (unsigned)m->kind);
	if (!m->help || !*m->help || strlen(m->help) >= HELP_MAX_BYTES || strpbrk(m->help, "\n\\"))
		return err_set(err, FAR_INVALID, "metric %s: its help is not one line of 1 to %u bytes", m->name,
			       HELP_MAX_BYTES - 1);
	const char *wrong = wrong_name(m);
	return wrong ? err_set(err, FAR_INVALID, "metric %s: %s", m->name, wrong) : FAR_OK;
}

static struct family *find(struct metrics_added *list, const char *name)
{
	for (; list; list = list->next)
		for (size_t i = 0; i < list->n; i++)
			if (strcmp(list->family[i].name, name) == 0)
				return &list->family[i];
	return NULL;
}

static bool alike(const struct family *a, const struct family *b)
{
	return a->kind == b->kind && strcmp(a->help, b->help) == 0 && strcmp(a->unit, b->unit) == 0;
}

/* Appends them, unless one is there with other properties. */
static enum far_status append(struct metrics_added **list, struct metrics_added *new, struct far_err *err)
{
	for (size_t i = 0; i < new->n; i++) {
		const struct family *f = find(*list, new->family[i].name);
		if (f && !alike(f, &new->family[i]))
			return err_set(err, FAR_INVALID, "metric %s was added with another kind, unit or help",
				       f->name);
	}
	while (*list) {
		if ((*list)->read == new->read && (*list)->user == new->user)
			return err_set(err, FAR_INVALID, "this reader was added before, with %zu metrics", (*list)->n);
		list = &(*list)->next;
	}
	*list = new;
	return FAR_OK;
}

enum far_status metrics_added_add(struct metrics_added **list, const struct far_metric *metrics, size_t n, size_t bytes,
				  far_metrics_reader *read, void *user, struct far_err *err)
{
	if (!metrics || !n || !read || n > FAR_METRICS_ADD_MAX)
		return err_set(err, FAR_INVALID, "far_metrics_add needs a reader and 1 to %u metrics",
			       FAR_METRICS_ADD_MAX);
	struct metrics_added *new = calloc(1, sizeof *new + n * sizeof *new->family);
	if (!new)
		return err_set(err, FAR_RESOURCE, "out of memory for %zu metrics", n);
	*new = (struct metrics_added){.read = read, .user = user, .n = n};
	enum far_status status = FAR_OK;
	for (size_t i = 0; i < n && !status; i++) {
		struct far_metric m;
		struct family *f = &new->family[i];
		status = sized_in(&m, sizeof m, (const char *)metrics + i * bytes, bytes)
				 ? check(&m, err)
				 : err_set(err, FAR_UNSUPPORTED, "metric %zu has a field that this library lacks", i);
		if (status)
			break;
		strcpy(f->name, m.name);
		strcpy(f->help, m.help);
		strcpy(f->unit, m.unit ? m.unit : "");
		f->kind = m.kind;
	}
	if (!status) {
		pthread_mutex_lock(&lock);
		status = append(list, new, err);
		pthread_mutex_unlock(&lock);
	}
	if (status)
		free(new);
	return status;
}

bool metrics_added_remove(struct metrics_added **list, far_metrics_reader *read, void *user)
{
	pthread_mutex_lock(&lock);
	while (*list && ((*list)->read != read || (*list)->user != user))
		list = &(*list)->next;
	struct metrics_added *found = *list;
	if (found)
		*list = found->next;
	pthread_mutex_unlock(&lock);
	free(found);
	return found != NULL;
}

void metrics_added_free(struct metrics_added **list)
{
	while (*list) {
		struct metrics_added *next = (*list)->next;
		free(*list);
		*list = next;
	}
}

/* ---- Readings ---- */

static bool labels_ok(const char *const *labels)
{
	for (size_t i = 0; labels && labels[i]; i += 2)
		if (!labels[i + 1] || !is_name(labels[i], NAME_MAX_BYTES))
			return false;
	return true;
}

static void put_value(struct metrics_out *o, double value, bool json)
{
	if (isfinite(value))
		metrics_put(o, "%.15g", value);
	else
		metrics_put(o, "%s", json ? "null" : isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf");
}

static void put_json(struct metrics_out *o, double value, const char *const *labels)
{
	metrics_put(o, "%s{\"labels\":{", o->len ? "," : "");
	for (size_t i = 0; labels && labels[i]; i += 2) {
		metrics_put(o, "%s", i ? "," : "");
		metrics_put_quoted(o, labels[i]);
		metrics_put(o, ":");
		metrics_put_quoted(o, labels[i + 1]);
	}
	metrics_put(o, "},\"value\":");
	put_value(o, value, true);
	metrics_put(o, "}");
}

static void put_prometheus(struct metrics_out *o, const struct metrics_report *r, const char *name, double value,
			   const char *const *labels)
{
	metrics_put_labels(o, r, name);
	for (size_t i = 0; labels && labels[i]; i += 2) {
		metrics_put(o, ",%s=", labels[i]);
		metrics_put_quoted(o, labels[i + 1]);
	}
	metrics_put(o, "} ");
	put_value(o, value, false);
	metrics_put(o, "\n");
}

void far_metrics_put(struct far_metrics_sink *sink, size_t metric, double value, const char *const *labels)
{
	if (metric >= sink->from->n || !labels_ok(labels))
		return;
	struct family *f = &sink->from->family[metric];
	if (sink->openmetrics && f->kind == FAR_METRIC_COUNTER && !(value >= 0))
		return;
	if (sink->json)
		put_json(&f->samples, value, labels);
	else
		put_prometheus(&f->samples, sink->r, f->name, value, labels);
}

/* A metric with the samples of all readers that have it. */
static void write_family(struct metrics_out *o, struct metrics_added *from, size_t i, bool json)
{
	const struct family *first = &from->family[i];
	unsigned written = 0;
	if (json) {
		metrics_put(o, "{\"name\":\"%s\",\"kind\":\"%s\",\"unit\":\"%s\",\"samples\":[", first->name,
			    kinds[first->kind], first->unit);
	} else {
		metrics_put_head(o, first->name, kinds[first->kind], first->help, *first->unit ? first->unit : NULL);
	}
	for (; from; from = from->next, i = 0)
		for (; i < from->n; i++) {
			const struct family *f = &from->family[i];
			o->failed |= f->samples.failed;
			if (strcmp(f->name, first->name) != 0 || !f->samples.text)
				continue;
			metrics_put(o, "%s%s", json && written++ ? "," : "", f->samples.text);
		}
	metrics_put(o, "%s", json ? "]}" : "");
}

void metrics_added_write(struct metrics_added *const *list, const struct metrics_report *r, bool json,
			 struct metrics_out *o)
{
	bool later = false;
	pthread_mutex_lock(&lock);
	for (struct metrics_added *a = *list; a; a = a->next)
		a->read(&(struct far_metrics_sink){.r = r, .json = json, .openmetrics = o->openmetrics, .from = a},
			a->user);
	for (struct metrics_added *a = *list; a; a = a->next)
		for (size_t i = 0; i < a->n; i++) {
			if (find(*list, a->family[i].name) != &a->family[i])
				continue;
			metrics_put(o, "%s", json && later ? "," : "");
			later = true;
			write_family(o, a, i, json);
		}
	for (struct metrics_added *a = *list; a; a = a->next)
		for (size_t i = 0; i < a->n; i++) {
			free(a->family[i].samples.text);
			a->family[i].samples = (struct metrics_out){0};
		}
	pthread_mutex_unlock(&lock);
}
