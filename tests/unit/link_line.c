/* SPDX-License-Identifier: BSD-3-Clause */
#include "link_line.h"

#include "base/must.h"

#include <stdlib.h>
#include <string.h>

struct link_line line;

static struct travelling {
	struct travelling *next;
	uint64_t due;
	unsigned to, queue;
	uint32_t len;
	uint8_t bytes[];
} * travelling;

static uint64_t dice(uint64_t n)
{
	line.seed = line.seed * UINT64_C(6364136223846793005) + 1442695040888963407;
	return n ? (line.seed >> 20) % n : 0;
}

static void travel(unsigned to, unsigned queue, const uint8_t *bytes, uint32_t len)
{
	struct travelling *t = malloc(sizeof *t + len), **at = &travelling;
	must(t);
	t->due = bench.now + line.delay_ns + dice(line.jitter_ns);
	t->to = to;
	t->queue = queue;
	t->len = len;
	memcpy(t->bytes, bytes, len);
	while (*at && (*at)->due <= t->due)
		at = &(*at)->next;
	t->next = *at;
	*at = t;
}

static bool enter(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	struct wire_head head;
	(void)ctx;
	memcpy(&head, bytes, sizeof head);
	if (line.seen_n < LINE_SEEN)
		line.seen[line.seen_n++] = (struct line_seen){.at = bench.now,
							      .from = (uint8_t)from,
							      .kind = head.kind,
							      .marks = head.marks,
							      .number = be32_get(head.packet),
							      .first = be32_get(head.first)};
	if ((line.lose && line.lose(from, &head)) || (line.drop && dice(1000) < line.drop))
		return false;
	travel(to, queue, bytes, *len);
	if (line.repeat && dice(1000) < line.repeat)
		travel(to, queue, bytes, *len);
	return false;
}

static void arrive(void)
{
	while (travelling && travelling->due <= bench.now) {
		struct travelling *t = travelling;
		travelling = t->next;
		if (bench.fabric.ports[t->to])
			dgram_inject(&bench.fabric, t->to, t->queue, t->bytes, t->len);
		free(t);
	}
}

void line_init(uint64_t delay_ns)
{
	bench_init();
	memset(&line, 0, sizeof line);
	line.delay_ns = delay_ns;
	line.seed = 1;
	bench.step_ns = 2000;
	bench.fabric.crc = true;
	bench.fabric.hook = enter;
	bench.before = arrive;
	bench.steps_every = 50;
}

void line_fini(void)
{
	while (travelling) {
		struct travelling *t = travelling;
		travelling = t->next;
		free(t);
	}
	bench_fini();
}

void line_run(uint64_t ns)
{
	uint64_t until = bench.now + ns;
	while (bench.now < until)
		bench_turn();
}

void line_forget(void)
{
	line.seen_n = 0;
}

unsigned line_count(unsigned from, uint8_t kind)
{
	unsigned n = 0;
	for (unsigned i = 0; i < line.seen_n; i++)
		n += line.seen[i].from == from && line.seen[i].kind == kind;
	return n;
}

bool line_until_got(unsigned e, uint64_t got, uint64_t within_ns)
{
	uint64_t until = bench.now + within_ns;
	while (bench.ends[e].got < got && bench.now < until && !bench.ends[e].bad)
		bench_turn();
	return bench.ends[e].got == got && !bench.ends[e].bad;
}

bool line_call(uint32_t at_0, uint32_t at_1, uint64_t seq, uint64_t len, uint64_t within_ns)
{
	uint64_t until = bench.now + within_ns;
	return bench_send(0, at_0, seq, len) == 0 && line_until_got(1, seq + 1, within_ns) &&
	       bench_send(1, at_1, seq, len) == 0 && line_until_got(0, seq + 1, until - bench.now);
}

struct transport_stats line_stats(unsigned e)
{
	struct transport_stats stats;
	transport_stats_read(bench.ends[e].port, &stats);
	return stats;
}
