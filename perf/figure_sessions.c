/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * One shard calls many remote shards, each over a session of its own. The others are virtual (virtual_shards.h), so
 * what is measured here, unlike in the other figures, is real: the memory that one end of a session needs while nothing
 * is under way, and the time of a core for a call, its answer made and taken. Calls go to sessions at random, and to as
 * few as there are calls under way: one packet each in both, so that the difference is what the caches do not hold.
 * The thread of the simulated world.
 */
#include "figure.h"

#include "base/limits.h"
#include "base/must.h"
#include "core/call.h"
#include "core/loop.h"
#include "core/session.h"
#include "core/shard.h"
#include "features/features.h"
#include "floor_table.h"
#include "idle_usage.h"
#include "transport/peer.h"
#include "transport/port.h"
#include "transport/transport.h"
#include "transport/wire.h"
#include "value/registry.h"
#include "virtual_shards.h"

#include <inttypes.h>
#include <linux/perf_event.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BYTES  32u
#define ROUNDS 7u
/* A message reads and writes one line of a session and two of its connection: asserted beside the structures. */
#define LINES_EACH 3u

struct sessions {
	const struct figure_opts *o;
	struct nic_port *port, *below;
	struct floor_table *table;
	struct shard *shard;
	struct registry registry;
	struct sim_random random;
	uint32_t n, up_n; /* sessions; that are up */
	uint64_t under_way, done_n, failed_n;
	char text[NIC_TEXT_BYTES_MAX];
	int counter; /* of instructions; −1: the kernel gives none */
};

struct cost {
	/* For each call; instructions: 0 where nobody counts; acks: packets that only acknowledge. */
	double ns, instructions, acks;
};

/* ---- sessions ---- */

static void no_ctl(void *ctx)
{
	(void)ctx;
}

static void settle(struct sessions *s)
{
	for (unsigned i = 0; i < 200; i++) {
		const struct timespec pause = {0, 50000};
		shard_pass(s->shard);
		nanosleep(&pause, NULL);
	}
}

/* Notifies the shard as the control thread does. */
static int on_event(void *ctx, const struct nic_event *ev)
{
	struct sessions *s = ctx;
	if (ev->type != NIC_EVENT_UP) {
		snprintf(s->text, sizeof s->text, "%s", ev->text ? ev->text : "a connection ended");
		return 0;
	}
	struct mail m = {.type = MAIL_PEER_UP,
			 .worker = s->up_n / VIRTUAL_SHARDS_EACH,
			 .shard = (uint8_t)(s->up_n % VIRTUAL_SHARDS_EACH),
			 .peer = ev->peer,
			 .incarnation = 1};
	must(mailbox_put(&s->shard->mail_in, &m));
	shard_take_mail(s->shard);
	s->up_n++;
	return 0;
}

static int connect_some(struct sessions *s, uint32_t n)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	virtual_shards_address(&addr);
	for (uint32_t i = 0; i < n; i++)
		if (s->port->ops->connect(s->port,
					  &(struct nic_connect){0, &addr, (s->up_n + i) % VIRTUAL_SHARDS_EACH, NULL, 0,
								UINT64_MAX, s},
					  &err)) {
			snprintf(s->text, sizeof s->text, "%s", err.text);
			return -1;
		}
	uint32_t until = s->up_n + n;
	for (unsigned turns = 0; s->up_n < until && turns < 100000 && !s->text[0]; turns++) {
		s->port->ops->step(s->port, 0, on_event, s);
		shard_pass(s->shard);
	}
	return s->up_n == until ? 0 : -1;
}

static int connect_all(struct sessions *s)
{
	while (s->up_n < s->n) {
		uint32_t left = s->n - s->up_n;
		if (connect_some(s, left < VIRTUAL_CONNECTS ? left : VIRTUAL_CONNECTS)) {
			fprintf(stderr, "%s: %u of %u sessions are up: %s\n", s->o->what, s->up_n, s->n,
				s->text[0] ? s->text : "no answer");
			return 1;
		}
	}
	settle(s);
	return 0;
}

static void counter_open(struct sessions *s)
{
	struct perf_event_attr attr = {.type = PERF_TYPE_HARDWARE,
				       .size = sizeof attr,
				       .config = PERF_COUNT_HW_INSTRUCTIONS,
				       .exclude_kernel = 1,
				       .exclude_hv = 1};
	s->counter = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}

static uint64_t counted(const struct sessions *s)
{
	uint64_t n = 0;
	return s->counter >= 0 && read(s->counter, &n, sizeof n) == sizeof n ? n : 0;
}

/* 1: failed, with the reason on stderr. */
static int sessions_open(struct sessions *s)
{
	struct nic_err err = {""};
	struct nic_caps caps;
	struct nic_port *below = virtual_shards_open();
	const struct transport_config link = {.queues = 1, .head_bytes = sizeof(struct wire_call), .signal = no_ctl};
	if (!below || transport_open(below, &link, &s->port, &err)) {
		fprintf(stderr, "%s: %s\n", s->o->what, below ? err.text : "no memory");
		if (below)
			below->ops->close(below);
		return 1;
	}
	s->below = below;
	s->table = floor_table_new(s->n);
	s->port->ops->caps(s->port, &caps);
	registry_init(&s->registry);
	struct shard_config config = {
		.ports = {{s->port->ops->queue(s->port, 0), caps.slots, caps.peers_max, caps.poll_costs}},
		.ports_n = 1,
		.world = (s->n + VIRTUAL_SHARDS_EACH - 1) / VIRTUAL_SHARDS_EACH,
		.name = "caller",
		.clock = &clock_monotonic,
		.registry = &s->registry,
		.features = engine_features,
		.ctl_wake = no_ctl};
	s->shard = shard_create(&config);
	if (!s->shard || !s->table) {
		fprintf(stderr, "%s: no memory\n", s->o->what);
		return 1;
	}
	must(shard_enter(s->shard));
	counter_open(s);
	return 0;
}

static void sessions_close(struct sessions *s)
{
	if (s->shard) {
		session_close_all(s->shard);
		shard_leave(s->shard);
	}
	if (s->port)
		s->port->ops->close(s->port);
	shard_destroy(s->shard);
	floor_table_free(s->table);
	if (s->counter >= 0)
		close(s->counter);
}

/* ---- calls ---- */

static void on_done(void *user, const struct completion *o)
{
	struct sessions *s = user;
	s->under_way--;
	s->done_n++;
	s->failed_n += o->status != FAR_OK || o->len != BYTES;
}

static void call(struct sessions *s, uint32_t to)
{
	const struct call_start start = {.worker = to / VIRTUAL_SHARDS_EACH,
					 .shard = (uint8_t)(to % VIRTUAL_SHARDS_EACH),
					 .fn = FIGURE_SINK,
					 .deadline = TIME_NEVER,
					 .left = TIME_NEVER,
					 .done = on_done,
					 .user = s,
					 .data = figure_bytes(BYTES),
					 .len = BYTES};
	if (shard_call(s->shard, &start) == 0)
		s->under_way++;
	else
		s->failed_n++;
}

static uint64_t now_ns(void)
{
	return clock_now(&clock_monotonic);
}

/* Whom the calls are for, as far ahead as the shard looks into its ring of submissions. */
struct targets {
	uint32_t of, in_turn; /* sessions; the next one, where they are no more than calls under way */
	uint32_t next[2 * SESSION_PREFETCH_AHEAD], at;
};

static uint32_t draw(struct sessions *s, struct targets *t, uint64_t depth)
{
	return t->of <= depth ? t->in_turn++ % t->of : (uint32_t)sim_random_below(&s->random, t->of);
}

static uint32_t next_target(struct sessions *s, struct targets *t, uint64_t depth)
{
	uint32_t n = 2 * SESSION_PREFETCH_AHEAD, to = t->next[t->at % n],
		 soon = t->next[(t->at + SESSION_PREFETCH_AHEAD) % n];
	uint32_t later = draw(s, t, depth);
	t->next[t->at++ % n] = later;
	session_set_info(s->shard, later / VIRTUAL_SHARDS_EACH, later % VIRTUAL_SHARDS_EACH);
	session_prefetch_queue(s->shard, soon / VIRTUAL_SHARDS_EACH, soon % VIRTUAL_SHARDS_EACH);
	return to;
}

/* `depth` at a time, to the first `of` sessions: at random, or, when they are no more, one after the other. */
static struct cost lookup(struct sessions *s, uint64_t calls, uint64_t depth, uint32_t of)
{
	uint64_t before = now_ns(), instructions = counted(s), acks = virtual_shards_acks(s->below);
	uint64_t begun = 0, passes = 0;
	struct targets targets = {.of = of};
	for (unsigned i = 0; i < 2 * SESSION_PREFETCH_AHEAD; i++)
		targets.next[i] = draw(s, &targets, depth);
	s->done_n = 0;
	while (s->done_n < calls && s->failed_n == 0 && passes++ < 1000 * (calls + 1000)) {
		for (; begun < calls && s->under_way < depth; begun++)
			call(s, next_target(s, &targets, depth));
		shard_pass(s->shard);
	}
	s->failed_n += s->done_n != calls;
	return (struct cost){(double)(now_ns() - before) / (double)calls,
			     (double)(counted(s) - instructions) / (double)calls,
			     (double)(virtual_shards_acks(s->below) - acks) / (double)calls};
}

static int less(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *of)
{
	qsort(of, ROUNDS, sizeof *of, less);
	return of[ROUNDS / 2];
}

struct rate {
	struct cost few, many;
	double ratio; /* of the rates, median of the rounds */
	/* The same of what memory takes at least, added to a call to few. */
	double floor_few, floor_many, floor_ratio;
};

/* In turns, so that what the machine does meanwhile meets both. */
static struct rate compare(struct sessions *s, uint64_t depth)
{
	double few[ROUNDS], many[ROUNDS], ratio[ROUNDS], hot[ROUNDS], cold[ROUNDS], floor[ROUNDS];
	uint64_t calls = s->o->messages;
	uint32_t least = depth < s->n ? (uint32_t)depth : s->n;
	struct rate r = {.ratio = 0};
	lookup(s, calls, depth, least);
	for (unsigned i = 0; i < ROUNDS && s->failed_n == 0; i++) {
		r.few = lookup(s, calls, depth, least);
		r.many = lookup(s, calls, depth, s->n);
		few[i] = r.few.ns;
		many[i] = r.many.ns;
		ratio[i] = r.few.ns / r.many.ns;
		hot[i] = floor_table_lookup(s->table, calls, least);
		cold[i] = floor_table_lookup(s->table, calls, s->n);
		floor[i] = few[i] / (few[i] + cold[i] - hot[i]);
	}
	if (s->failed_n == 0) {
		r.few.ns = median(few);
		r.many.ns = median(many);
		r.ratio = median(ratio);
		r.floor_few = median(hot);
		r.floor_many = median(cold);
		r.floor_ratio = median(floor);
	}
	return r;
}

/* ---- output ---- */

struct memory {
	double heap, resident; /* of each session: by the allocator's count, with its entry in the table of connections;
				  by the kernel's, tables and all */
};

static void print_memory(const struct sessions *s, const struct memory *m, struct json *j)
{
	FILE *f = figure_human(s->o);
	double each = m->heap + (double)sizeof(struct session);
	fprintf(f, "%u sessions of one shard, which has room for %u (FAR_TRANSPORT_PEERS_MAX)\n", s->n,
		FAR_TRANSPORT_PEERS_MAX);
	fprintf(f, "    bytes of each, nothing being under way: %.0f\n", each);
	fprintf(f,
		"        its connection: struct transport_peer %zu, by the allocator's count %.0f; struct session "
		"%zu\n",
		sizeof(struct transport_peer), m->heap, sizeof(struct session));
	fprintf(f, "        by the kernel's count, with its entries in all tables: %.0f\n", m->resident);
	fprintf(f, "    lines of it that a call looks at: %u\n", LINES_EACH);
	json_u64(j, "sessions", s->n);
	json_u64(j, "sessions_max", FAR_TRANSPORT_PEERS_MAX);
	json_u64(j, "calls", s->o->messages);
	json_double(j, "bytes_each", each);
	json_double(j, "bytes_link_peer", (double)sizeof(struct transport_peer));
	json_double(j, "bytes_link_heap", m->heap);
	json_double(j, "bytes_session", (double)sizeof(struct session));
	json_double(j, "bytes_resident", m->resident);
	json_u64(j, "lines_each", LINES_EACH);
}

static void print_rate(const struct sessions *s, const struct rate *r, uint64_t depth, struct json *j)
{
	FILE *f = figure_human(s->o);
	fprintf(f, "    %" PRIu64 " at a time: %.0f ns a call to few, %.0f to any, %.2f x the rate", depth, r->few.ns,
		r->many.ns, r->ratio);
	if (s->counter >= 0)
		fprintf(f, "; %.0f and %.0f instructions", r->few.instructions, r->many.instructions);
	fprintf(f, "\n        packets that only acknowledge: %.2f and %.2f a call\n", r->few.acks, r->many.acks);
	fprintf(f, "        floor, two lines of %u bytes a visit, fetched ahead: %.1f ns of few, %.1f of any;\n",
		FLOOR_TABLE_BYTES, r->floor_few, r->floor_many);
	fprintf(f, "        a call to few and the difference: %.2f x the rate\n", r->floor_ratio);
	json_object(j, NULL);
	json_u64(j, "depth", depth);
	json_double(j, "few_ns", r->few.ns);
	json_double(j, "any_ns", r->many.ns);
	json_double(j, "few_instructions", r->few.instructions);
	json_double(j, "any_instructions", r->many.instructions);
	json_double(j, "few_acks", r->few.acks);
	json_double(j, "any_acks", r->many.acks);
	json_double(j, "floor_few_ns", r->floor_few);
	json_double(j, "floor_any_ns", r->floor_many);
	json_double(j, "floor_ratio", r->floor_ratio);
	json_double(j, "ratio", r->ratio);
	json_close(j);
}

static double heap(void)
{
	struct mallinfo2 m = mallinfo2();
	return (double)(m.uordblks + m.hblkhd);
}

static int measure(struct sessions *s)
{
	struct idle_usage before, after;
	idle_usage_read(&before);
	double at = heap();
	if (connect_all(s))
		return 1;
	double bytes = heap() - at;
	idle_usage_read(&after);
	const struct memory m = {bytes / s->n + (double)sizeof(struct transport_peer),
				 (double)(after.rss_bytes - before.rss_bytes) / s->n};
	struct rate one = compare(s, 1), deep = compare(s, s->o->depth);
	if (s->failed_n) {
		fprintf(stderr, "%s: %" PRIu64 " calls failed\n", s->o->what, s->failed_n);
		return 1;
	}
	char *text = NULL;
	size_t size = 0;
	struct json j;
	FILE *f = open_memstream(&text, &size);
	must(f != NULL);
	json_begin(&j, f);
	json_string(&j, "figure", "sessions");
	json_u64(&j, "seed", s->o->seed);
	print_memory(s, &m, &j);
	json_array(&j, "rates");
	print_rate(s, &one, 1, &j);
	print_rate(s, &deep, s->o->depth, &j);
	json_end(&j);
	fclose(f);
	if (s->o->json)
		fwrite(text, 1, size, stdout);
	free(text);
	return 0;
}

int figure_sessions(const struct figure_opts *o)
{
	struct sessions s = {.o = o, .n = (uint32_t)o->sessions, .counter = -1};
	sim_random_init(&s.random, o->seed, "figure.sessions", 0);
	int bad = sessions_open(&s);
	bad = bad || measure(&s);
	sessions_close(&s);
	return bad;
}
