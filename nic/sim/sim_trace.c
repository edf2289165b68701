/* SPDX-License-Identifier: BSD-3-Clause */
/** Trace of each packet's events: hashed in a fixed layout, and printed as lines. The thread that runs the world. */
#include "nic/sim/sim_world.h"

#include <string.h>

enum { TRACE_BYTES = 64, TRACE_NOTE = 0xff };

/* A record of a trace as it is hashed: bytes[0, n). */
struct record {
	uint8_t bytes[TRACE_BYTES];
	unsigned n;
};

static const char *const event_texts[] = {
	[SIM_SEND] = "sent",       [SIM_ARRIVE] = "arrived",
	[SIM_DROPPED] = "dropped", [SIM_DUPLICATED] = "duplicated",
	[SIM_DELAYED] = "delayed", [SIM_CORRUPTED] = "corrupted",
	[SIM_CUT] = "cut",         [SIM_KICK] = "kicked",
};

static void put(struct record *r, uint64_t x, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		r->bytes[r->n++] = (uint8_t)(x >> 8 * i);
}

static void hash_event(const struct sim_packet *p, enum sim_trace_event event, enum sim_drop why,
		       const struct sim_link *link, uint64_t later_ns)
{
	struct record r = {.n = 0};
	put(&r, event, 1);
	put(&r, why, 1);
	put(&r, p->rail, 1);
	put(&r, p->priority, 1);
	put(&r, p->sim->now, 8);
	put(&r, p->number, 8);
	put(&r, p->from->number, 4);
	put(&r, p->to->number, 4);
	put(&r, p->from_queue, 2);
	put(&r, p->to_queue, 2);
	put(&r, p->len, 4);
	put(&r, link ? link->number : SIM_NONE, 4);
	put(&r, p->hash, 8);
	put(&r, later_ns, 8);
	sha256_add(&p->sim->trace, r.bytes, r.n);
}

static void print_event(const struct sim_packet *p, enum sim_trace_event event, enum sim_drop why,
			const struct sim_link *link, uint64_t later_ns)
{
	uint64_t now = p->sim->now;
	fprintf(p->sim->text, "%llu.%09llu #%llu %s %s/%u -> %s/%u %u bytes %016llx",
		(unsigned long long)(now / 1000000000), (unsigned long long)(now % 1000000000),
		(unsigned long long)p->number, event_texts[event], p->from->config.name, p->from_queue,
		p->to->config.name, p->to_queue, p->len, (unsigned long long)p->hash);
	if (p->rail)
		fprintf(p->sim->text, " rail %u", p->rail);
	if (p->priority)
		fprintf(p->sim->text, " priority %u", p->priority);
	if (why != SIM_DROP_N)
		fprintf(p->sim->text, ": %s", sim_drop_text(why));
	if (later_ns)
		fprintf(p->sim->text, " by %llu ns", (unsigned long long)later_ns);
	if (link)
		fprintf(p->sim->text, " (%s)", link->name);
	fputc('\n', p->sim->text);
}

void sim_trace(const struct sim_packet *p, enum sim_trace_event event, enum sim_drop why, const struct sim_link *link,
	       uint64_t later_ns)
{
	if (!p->sim->config.untraced)
		hash_event(p, event, why, link, later_ns);
	if (p->sim->text)
		print_event(p, event, why, link, later_ns);
}

void sim_trace_hash(const struct sim *sim, char out[SHA256_TEXT_BYTES])
{
	sha256_text(&sim->trace, out);
}

void sim_trace_note(struct sim *sim, const char *text)
{
	struct record r = {.n = 0};
	size_t len = strlen(text);
	put(&r, TRACE_NOTE, 1);
	put(&r, sim->now, 8);
	put(&r, len, 8);
	if (!sim->config.untraced) {
		sha256_add(&sim->trace, r.bytes, r.n);
		sha256_add(&sim->trace, text, len);
	}
	if (sim->text)
		fprintf(sim->text, "%llu.%09llu %s\n", (unsigned long long)(sim->now / 1000000000),
			(unsigned long long)(sim->now % 1000000000), text);
}

void sim_trace_text(struct sim *sim, FILE *out)
{
	sim->text = out;
}
