/* SPDX-License-Identifier: BSD-3-Clause */
/** A link: an output queue and the wire behind it. The thread that runs the world. */
#include "nic/sim/sim_world.h"

#include <errno.h>
#include <stdlib.h>

/* Preamble and start, Ethernet, check sequence, gap. */
#define FRAME_EXTRA (8 + 14 + 4 + 12)
#define FRAME_MIN   46 /* payload of the shortest frame */
#define IP_HEADER   20u

uint32_t sim_wire_bytes(uint32_t body_len, uint32_t mtu)
{
	uint32_t payload = body_len + SIM_HEADERS - IP_HEADER, bytes = 0;
	uint32_t most = (mtu - IP_HEADER) & ~7u; /* fragments begin at multiples of 8 */
	if (payload + IP_HEADER <= mtu)
		most = payload;
	for (uint32_t at = 0; at < payload; at += most) {
		uint32_t ip = IP_HEADER + (payload - at < most ? payload - at : most);
		bytes += FRAME_EXTRA + (ip < FRAME_MIN ? FRAME_MIN : ip);
	}
	return bytes;
}

struct sim_link *sim_link_new(struct sim *sim, const struct sim_shape *shape, uint32_t rail, const char *from,
			      const char *to)
{
	struct sim_link *link = calloc(1, sizeof *link);
	must(link);
	link->sim = sim;
	link->number = sim->links_n++;
	link->rail = rail;
	link->shape = *shape;
	link->up = true;
	link->begun = link->queue_since = sim->now;
	if (rail)
		snprintf(link->name, sizeof link->name, "%s -> %s:%u", from, to, rail);
	else
		snprintf(link->name, sizeof link->name, "%s -> %s", from, to);
	sim_disturber_init(&link->disturber, sim->config.seed, "link", link->number);
	return link;
}

void sim_link_free(struct sim_link *link)
{
	free(link);
}

/* ---- the queue ---- */

/* Updates the statistics before the number of waiting frames changes. */
static void account(struct sim_link *link)
{
	link->queue_area += (double)link->waiting_bytes * (double)(link->sim->now - link->queue_since);
	link->queue_since = link->sim->now;
}

static bool is_full(const struct sim_link *link, const struct sim_fifo *lane, uint32_t wire)
{
	const struct sim_topology *t = &link->sim->config.topology;
	if (!link->from_switch)
		return false; /* the transmit rings have their own bounds */
	if (link->shape.queue_bytes && link->waiting_bytes + wire > link->shape.queue_bytes)
		return true;
	if (!t->buffer_bytes)
		return false;
	uint64_t used = link->from_switch->used, free_bytes = t->buffer_bytes > used ? t->buffer_bytes - used : 0;
	return wire > free_bytes || lane->bytes + wire > free_bytes * t->alpha_percent / 100;
}

static void enter(struct sim_link *link, struct sim_packet *p, unsigned lane)
{
	account(link);
	p->lane = (uint8_t)lane;
	sim_fifo_put(&link->lanes[lane], p);
	link->waiting_n++;
	link->waiting_bytes += p->wire;
	if (!link->from_switch)
		return;
	p->buffered = link->from_switch;
	p->buffered->used += p->wire;
	if (p->buffered->used > p->buffered->used_max)
		p->buffered->used_max = p->buffered->used;
}

/* The packet has left the queue and the transmitter. */
static void leave(struct sim_packet *p)
{
	if (p->buffered)
		p->buffered->used -= p->wire;
	p->buffered = NULL;
}

static struct sim_packet *next_of(struct sim_link *link)
{
	for (unsigned i = 0; i < SIM_QUEUES_MAX; i++) {
		unsigned lane = link->strict ? SIM_QUEUES_MAX - 1 - i : (link->turn + i) % SIM_QUEUES_MAX;
		if (!link->lanes[lane].n)
			continue;
		account(link);
		struct sim_packet *p = sim_fifo_take(&link->lanes[lane]);
		link->turn = lane + 1;
		link->waiting_n--;
		link->waiting_bytes -= p->wire;
		return p;
	}
	return NULL;
}

/* ---- the wire ---- */

static void arrive(void *ctx)
{
	struct sim_packet *p = ctx;
	if (p->at->to_switch)
		sim_switch_take(p->sim, p->at->to_switch, p);
	else
		sim_nic_receive(p);
}

static void travel(struct sim_link *link, struct sim_packet *p, uint64_t later_ns)
{
	uint64_t when = time_after(time_after(link->sim->now, link->shape.delay_ns), later_ns);
	p->at = link;
	if (!sim_schedule(link->sim, NULL, when, arrive, p))
		sim_packet_drop(p, SIM_DROP_CARRIER, link, NULL);
}

static void duplicate(struct sim_link *link, struct sim_packet *copy, uint64_t later_ns)
{
	link->stats.duplicated++;
	link->sim->stats.duplicated++;
	copy->number = ++link->sim->packets_sent;
	sim_packet_launch(copy);
	sim_trace(copy, SIM_DUPLICATED, SIM_DROP_N, link, 0);
	travel(link, copy, later_ns);
}

static void damage(struct sim_link *link, struct sim_packet *p, const struct sim_fate *fate)
{
	bool had_bytes = p->len > 0;
	if (fate->corrupt && had_bytes) {
		sim_corrupt(p, fate->corrupt_by);
		sim_packet_sign(p);
		link->stats.corrupted++;
		p->sim->stats.corrupted++;
		sim_trace(p, SIM_CORRUPTED, SIM_DROP_N, link, 0);
	}
	if (fate->cut && had_bytes) {
		uint32_t len = (uint32_t)sim_random_below(fate->cut_by, p->len);
		p->sim->stats.in_flight_bytes -= p->len - len;
		p->len = len;
		sim_packet_sign(p);
		link->stats.cut++;
		sim_trace(p, SIM_CUT, SIM_DROP_N, link, 0);
	}
}

static struct sim_fate fate_of(struct sim_link *link, const struct sim_packet *p)
{
	struct sim_fate fate = {.drop = SIM_DROP_N};
	if (link->disturber.active)
		sim_disturber_draw(&link->disturber, p, &fate);
	if (!link->from_host)
		return fate;
	struct sim_disturber *pair = sim_pair_of(p->from, p->to);
	if (pair && pair->active)
		sim_disturber_draw(pair, p, &fate);
	const struct sim_config *config = &link->sim->config;
	if (config->lose && config->lose(config->lose_ctx, p->body, p->len))
		fate.drop = SIM_DROP_LOSS;
	if (sim_is_cut(p->from, p->to))
		fate.drop = SIM_DROP_PARTITION;
	return fate;
}

/* Its last bit is on the wire. */
static void emit(struct sim_link *link, struct sim_packet *p)
{
	leave(p);
	if (link->from_host)
		sim_nic_sent(p, false);
	link->stats.packets++;
	link->stats.bytes += p->len;
	link->stats.wire_bytes += p->wire;
	const struct sim_config *config = &link->sim->config;
	uint64_t again = link->from_host && config->again ? config->again(config->lose_ctx, p->body, p->len) : 0;
	struct sim_packet *late = again ? sim_packet_copy(p) : NULL;
	if (late)
		duplicate(link, late, again);
	struct sim_fate fate = fate_of(link, p);
	if (fate.drop != SIM_DROP_N) {
		sim_packet_drop(p, fate.drop, link, NULL);
		return;
	}
	/* The copy is undamaged and arrives with the original or right behind it. */
	struct sim_packet *copy = fate.duplicate ? sim_packet_copy(p) : NULL;
	damage(link, p, &fate);
	if (fate.later_ns) {
		link->stats.reordered++;
		link->sim->stats.reordered++;
		sim_trace(p, SIM_DELAYED, SIM_DROP_N, link, fate.later_ns);
	}
	travel(link, p, fate.later_ns);
	if (copy)
		duplicate(link, copy, 0);
}

static uint64_t serialisation(struct sim_link *link, uint32_t wire, bool back_to_back)
{
	uint64_t rate = link->shape.rate_bps;
	if (!rate)
		return 0;
	/* The remainder of the division is added to the next frame, so that a busy link has exactly its rate. */
	uint64_t x = (uint64_t)wire * 8 * UINT64_C(1000000000) + (back_to_back ? link->carry : 0);
	link->carry = x % rate;
	return x / rate;
}

static void sent(void *ctx);

static void start(struct sim_link *link, bool back_to_back)
{
	struct sim_packet *p;
	while (!link->sending && (p = next_of(link))) {
		uint64_t ns = serialisation(link, p->wire, back_to_back);
		back_to_back = true;
		link->stats.busy_ns += ns;
		link->sending_until = time_after(link->sim->now, ns);
		if (!ns) {
			emit(link, p);
			continue;
		}
		link->sending = p;
		link->sent = sim_schedule(link->sim, NULL, link->sending_until, sent, link);
	}
}

static void sent(void *ctx)
{
	struct sim_link *link = ctx;
	struct sim_packet *p = link->sending;
	link->sending = NULL;
	emit(link, p);
	start(link, true);
}

/* Sends ICMP "fragmentation needed", which takes as long back as the packet took. */
static void report_mtu(void *ctx)
{
	struct sim_packet *p = ctx;
	sim_nic_report_mtu(p);
	sim_packet_free(p);
}

static void too_long(struct sim_link *link, struct sim_packet *p)
{
	struct sim *sim = link->sim;
	struct sim_packet *message =
		sim->config.topology.mtu_silent || sim_is_cut(p->to, p->from) ? NULL : sim_packet_copy(p);
	uint64_t took = sim->now - p->sent_at;
	sim_packet_drop(p, SIM_DROP_MTU, link, NULL);
	if (!message)
		return;
	message->reported_mtu = link->shape.mtu;
	if (!sim_schedule(sim, NULL, time_after(sim->now, took), report_mtu, message))
		sim_packet_free(message);
}

void sim_link_put(struct sim_link *link, struct sim_packet *p, unsigned lane)
{
	p->at = link;
	if (!link->up) {
		if (link->from_host)
			sim_nic_sent(p, true);
		sim_packet_drop(p, SIM_DROP_CARRIER, link, link->from_host);
		return;
	}
	if (p->len + SIM_HEADERS > link->shape.mtu && !p->fragments) {
		if (link->from_host)
			sim_nic_sent(p, true);
		too_long(link, p);
		return;
	}
	p->wire = sim_wire_bytes(p->len, link->shape.mtu);
	if (is_full(link, &link->lanes[lane], p->wire)) {
		sim_packet_drop(p, SIM_DROP_QUEUE, link, NULL);
		return;
	}
	enter(link, p, lane);
	start(link, false);
	/* Statistics count frames that have to wait. */
	if (link->waiting_bytes > link->stats.queue_bytes_max)
		link->stats.queue_bytes_max = link->waiting_bytes;
	if (link->waiting_n > link->stats.queue_packets_max)
		link->stats.queue_packets_max = link->waiting_n;
}

void sim_link_abandon(struct sim_link *link, enum sim_drop why)
{
	struct sim_packet *p = link->sending;
	if (p) {
		sim_cancel(link->sim, link->sent);
		link->stats.busy_ns -= link->sending_until - link->sim->now;
		link->sending = NULL;
	}
	for (; p || (p = next_of(link)); p = NULL) {
		leave(p);
		if (link->from_host)
			sim_nic_sent(p, true);
		sim_packet_drop(p, why, link, link->from_host);
	}
}

/* ---- properties ---- */

void sim_link_shape(const struct sim_link *link, struct sim_shape *out)
{
	*out = link->shape;
}

int sim_link_reshape(struct sim_link *link, const struct sim_shape *shape)
{
	struct nic_err err;
	int error = sim_shape_check(link->name, shape, &err);
	if (!error)
		link->shape = *shape;
	return error;
}

void sim_link_set_up(struct sim_link *link, bool up)
{
	if (link->up == up)
		return;
	link->up = up;
	if (!up)
		sim_link_abandon(link, SIM_DROP_CARRIER);
	if (link->from_host)
		sim_host_carrier(link->from_host, link->rail, up);
}

bool sim_link_is_up(const struct sim_link *link)
{
	return link->up;
}

void sim_link_stats(const struct sim_link *link, struct sim_link_stats *out)
{
	uint64_t now = link->sim->now;
	*out = link->stats;
	out->queue_bytes = link->waiting_bytes;
	double area = link->queue_area + (double)link->waiting_bytes * (double)(now - link->queue_since);
	out->queue_bytes_mean =
		now > link->begun ? (uint64_t)(area / (double)(now - link->begun)) : link->waiting_bytes;
}
