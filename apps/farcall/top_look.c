/* SPDX-License-Identifier: BSD-3-Clause */
/** Takes the samples of `farcall top` from the admin sockets. Main thread. */
#include "top.h"

#include "admin_client.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t sum_of(const char *text, const char *const *names)
{
	uint64_t sum = 0, one;
	for (; *names; names++)
		sum += admin_number(text, *names, &one) ? one : 0;
	return sum;
}

#define SUM(text, ...) sum_of(text, (const char *const[]){__VA_ARGS__, NULL})

static void read_lists(const char *text, struct sample *s)
{
	const char *at = strstr(text, "\"buckets\":[");
	unsigned long long end, n;
	for (at = at ? at + 11 : NULL; at && s->buckets_n < BUCKETS_MAX && sscanf(at, "[%llu,%llu]", &end, &n) == 2;) {
		s->buckets[s->buckets_n++] = (struct bucket){end, n};
		at = strchr(at, ']') + 1;
		at += *at == ',';
	}
	for (at = strstr(text, "{\"nic\":"); at && s->nics_n < NICS_MAX; at = strstr(at + 1, "{\"nic\":")) {
		static const char *const drops[] = {"malformed",          "no_room",   "send_refused",      "checksum",
						    "unknown_connection", "no_memory", "handshake_backlog", NULL};
		admin_string(at, "nic", s->nics[s->nics_n].nic, sizeof s->nics[0].nic);
		admin_number(at, "sessions_up", &s->nics[s->nics_n++].sessions);
		s->drops += sum_of(at, drops);
	}
	for (at = strstr(text, "{\"shard\":"); at && s->shards_n < FAR_SHARDS_MAX; at = strstr(at + 1, "{\"shard\":"))
		admin_number(at, "cpu_ns", &s->cpu_ns[s->shards_n++]);
}

static void read_sample(const char *text, struct sample *s)
{
	memset(s, 0, sizeof *s);
	admin_string(text, "worker", s->worker, sizeof s->worker);
	admin_string(text, "state", s->state, sizeof s->state);
	s->rank = SUM(text, "rank");
	s->pid = SUM(text, "pid");
	s->uptime_ns = SUM(text, "uptime_ns");
	s->calls = SUM(text, "calls_sent", "oneways_sent");
	s->requests = SUM(text, "requests_received");
	s->errors = SUM(text, "calls_failed");
	s->sent = SUM(text, "bytes_sent");
	s->received = SUM(text, "bytes_received");
	s->drops = SUM(text, "invalid", "oneway");
	s->busy = SUM(text, "busy");
	s->active = SUM(text, "calls_active");
	s->serving = SUM(text, "requests_active");
	s->owned = SUM(text, "rrefs_owned");
	s->held = SUM(text, "rrefs_held");
	s->forks = SUM(text, "rrefs_forks");
	s->unconfirmed = SUM(text, "rrefs_unconfirmed");
	s->silent = SUM(text, "shards_silent");
	read_lists(text, s);
}

static int by_rank(const void *a, const void *b)
{
	const struct sample *x = a, *y = b;
	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

int top_look(struct view *v, bool first)
{
	struct admin_workers w;
	char group[FAR_NAME_MAX];
	if (admin_find(&w, TOP_NAME))
		return -1;
	struct sample *now = calloc(w.n + 1, sizeof *now);
	if (!now) {
		fprintf(stderr, TOP_NAME ": out of memory\n");
		admin_free(&w);
		return -1;
	}
	admin_ask(&w, "metrics json");
	free(v->before);
	v->before = v->now;
	v->before_n = v->now_n;
	v->before_at = v->at;
	v->now = now;
	v->now_n = v->stuck_n = 0;
	v->at = clock_now(&clock_monotonic);
	for (unsigned i = 0; i < w.n; i++) {
		const struct admin_worker *one = &w.of[i];
		if (!one->text && !one->gone && !v->stuck_n++)
			snprintf(v->stuck, sizeof v->stuck, "%s %s", strrchr(one->at.sun_path, '/') + 1, one->why);
		if (!one->text || !admin_string(one->text, "group", group, sizeof group))
			continue;
		if (!*v->group)
			snprintf(v->group, sizeof v->group, "%s", group);
		if (strcmp(v->group, group) == 0)
			read_sample(one->text, &v->now[v->now_n++]);
	}
	qsort(v->now, v->now_n, sizeof *v->now, by_rank);
	if (first && !v->now_n)
		fprintf(stderr,
			TOP_NAME ": no worker%s%s%s of this user answers in %s%s%s; `farcall workers` lists them\n",
			*v->group ? " of group \"" : "", v->group, *v->group ? "\"" : "", w.dir, v->stuck_n ? ": " : "",
			v->stuck_n ? v->stuck : "");
	admin_free(&w);
	return first && !v->now_n ? -1 : 0;
}
