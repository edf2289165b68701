/* SPDX-License-Identifier: BSD-3-Clause */
/** Packets: memory, hash, accounting, queues. The thread that runs the world. */
#include "nic/sim/sim_world.h"

#include <stdlib.h>
#include <string.h>

uint64_t sim_mix(uint64_t x)
{
	x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
	x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
	return x ^ x >> 32;
}

struct sim_packet *sim_packet_new(struct sim *sim, uint32_t len)
{
	/* Room for a body that is shifted by its misalignment. */
	size_t size = (sizeof(struct sim_packet) + len + 127) & ~(size_t)63;
	if (sim->stats.packet_bytes + size > sim->config.packet_bytes_max) {
		sim_fail(sim, "packets take more than %llu bytes (packet_bytes_max)",
			 (unsigned long long)sim->config.packet_bytes_max);
		return NULL;
	}
	struct sim_packet *p = aligned_alloc(64, size);
	must(p);
	memset(p, 0, sizeof *p);
	p->sim = sim;
	p->memory = size;
	p->len = len;
	p->body = p->room;
	p->older = sim->packets;
	if (sim->packets)
		sim->packets->younger = p;
	sim->packets = p;
	sim->stats.packet_bytes += size;
	if (sim->stats.packet_bytes > sim->stats.packet_bytes_max)
		sim->stats.packet_bytes_max = sim->stats.packet_bytes;
	return p;
}

struct sim_packet *sim_packet_copy(const struct sim_packet *p)
{
	struct sim_packet *copy = sim_packet_new(p->sim, p->len);
	if (!copy)
		return NULL;
	const struct sim_packet own = *copy;
	*copy = *p;
	copy->next = NULL;
	copy->older = own.older;
	copy->younger = own.younger;
	copy->memory = own.memory;
	copy->body = copy->room + (p->body - p->room);
	copy->buffered = NULL;
	copy->flying = false;
	memcpy(copy->body, p->body, p->len);
	return copy;
}

void sim_packet_free(struct sim_packet *p)
{
	if (p->younger)
		p->younger->older = p->older;
	else
		p->sim->packets = p->older;
	if (p->older)
		p->older->younger = p->younger;
	p->sim->stats.packet_bytes -= p->memory;
	free(p);
}

/* Hash over eight bytes at a time, little-endian; good enough to distinguish packets. */
void sim_packet_sign(struct sim_packet *p)
{
	uint64_t h = p->len + UINT64_C(0x9e3779b97f4a7c15);
	uint32_t i = 0;
	if (p->sim->config.untraced && !p->sim->text)
		return;
	for (; i + 8 <= p->len; i += 8) {
		uint64_t x;
		memcpy(&x, p->body + i, 8);
		h = (h ^ x) * UINT64_C(0xd6e8feb86659fd93);
		h ^= h >> 29;
	}
	for (; i < p->len; i++)
		h = (h ^ p->body[i]) * UINT64_C(0x100000001b3);
	p->hash = sim_mix(h);
}

/* ---- accounts ---- */

void sim_packet_launch(struct sim_packet *p)
{
	struct sim_stats *s = &p->sim->stats;
	p->flying = true;
	s->in_flight++;
	s->in_flight_bytes += p->len;
	if (s->in_flight_bytes > s->in_flight_bytes_max)
		s->in_flight_bytes_max = s->in_flight_bytes;
}

void sim_packet_landed(struct sim_packet *p)
{
	struct sim_stats *s = &p->sim->stats;
	if (!p->flying)
		return;
	p->flying = false;
	s->in_flight--;
	s->in_flight_bytes -= p->len;
}

void sim_packet_drop(struct sim_packet *p, enum sim_drop why, struct sim_link *link, struct sim_host *host)
{
	if (p->flying)
		p->sim->stats.dropped[why]++;
	sim_packet_landed(p);
	if (link)
		link->stats.dropped[why]++;
	if (host)
		host->stats.dropped[why]++;
	sim_trace(p, SIM_DROPPED, why, link, 0);
	sim_packet_free(p);
}

/* ---- queues ---- */

void sim_fifo_put(struct sim_fifo *f, struct sim_packet *p)
{
	p->next = NULL;
	if (f->last)
		f->last->next = p;
	else
		f->first = p;
	f->last = p;
	f->n++;
	f->bytes += p->wire;
}

struct sim_packet *sim_fifo_take(struct sim_fifo *f)
{
	struct sim_packet *p = f->first;
	if (!p)
		return NULL;
	f->first = p->next;
	if (!f->first)
		f->last = NULL;
	p->next = NULL;
	f->n--;
	f->bytes -= p->wire;
	return p;
}
