/* SPDX-License-Identifier: BSD-3-Clause */
/** Takes the samples of `farcall top` from the admin sockets. Main thread. */
#include "top.h"

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
	s->members = SUM(text, "members");
	s->alive = SUM(text, "members_alive");
	read_lists(text, s);
}

static int by_rank(const void *a, const void *b)
{
	const struct sample *x = a, *y = b;
	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static void note_stuck(struct view *v, const struct admin_worker *w)
{
	if (!w->text && !w->gone && !v->stuck_n++)
		snprintf(v->stuck, sizeof v->stuck, "%s %s", strrchr(w->at.sun_path, '/') + 1, w->why);
}

/* Finds the one group of the choice. −1: there is none, or more than one. */
static int choose(struct view *v, const struct admin_workers *w)
{
	char group[FAR_NAME_MAX], store[ADMIN_STORE_MAX];
	unsigned live = 0;
	for (unsigned i = 0; i < w->n; i++) {
		live += w->of[i].text != NULL;
		if (!admin_is_chosen(&w->of[i], &v->choice))
			continue;
		admin_group_of(&w->of[i], group, store);
		if (!*v->group) {
			snprintf(v->group, sizeof v->group, "%s", group);
			snprintf(v->store, sizeof v->store, "%s", store);
		} else if (strcmp(v->group, group) != 0 || strcmp(v->store, store) != 0) {
			fprintf(stderr, TOP_NAME ": more than one group of this user is here; choose one:\n");
			admin_groups_print(w, &v->choice);
			return -1;
		}
	}
	if (*v->group)
		return 0;
	if (live) {
		fprintf(stderr, TOP_NAME ": no worker of this user has the group and the store given; there are:\n");
		admin_groups_print(w, &(struct admin_choice){0});
	} else {
		fprintf(stderr, TOP_NAME ": no worker of this user answers in %s%s%s; `farcall workers` lists them\n",
			w->dir, v->stuck_n ? ": " : "", v->stuck_n ? v->stuck : "");
	}
	return -1;
}

/* Leaves the workers of the group alone. */
static void keep_group(const struct view *v, struct admin_workers *w)
{
	const struct admin_choice choice = {v->group, v->store};
	unsigned n = 0;
	for (unsigned i = 0; i < w->n; i++) {
		if (admin_is_chosen(&w->of[i], &choice))
			w->of[n++] = w->of[i];
		else
			free(w->of[i].text);
	}
	w->n = n;
}

int top_look(struct view *v, bool first)
{
	struct admin_workers w;
	if (admin_find(&w, TOP_NAME))
		return -1;
	v->stuck_n = 0;
	admin_request(&w, "info");
	for (unsigned i = 0; i < w.n; i++)
		note_stuck(v, &w.of[i]);
	if (first && choose(v, &w)) {
		admin_free(&w);
		return -1;
	}
	keep_group(v, &w);
	struct sample *now = calloc(w.n + 1, sizeof *now);
	if (!now) {
		fprintf(stderr, TOP_NAME ": out of memory\n");
		admin_free(&w);
		return -1;
	}
	admin_request(&w, "metrics json");
	free(v->before);
	v->before = v->now;
	v->before_n = v->now_n;
	v->before_at = v->at;
	v->now = now;
	v->now_n = 0;
	v->at = clock_now(&clock_monotonic);
	for (unsigned i = 0; i < w.n; i++) {
		note_stuck(v, &w.of[i]);
		if (w.of[i].text)
			read_sample(w.of[i].text, &v->now[v->now_n++]);
	}
	qsort(v->now, v->now_n, sizeof *v->now, by_rank);
	admin_free(&w);
	return 0;
}
