/* SPDX-License-Identifier: BSD-3-Clause */
/** The world: creation, configuration check, failure. The thread that runs the world. */
#include "nic/sim/sim_world.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_MAX       4000000u
#define EVENTS_LIMIT     100000000u
#define PACKET_BYTES_MAX ((uint64_t)4 << 30)

static const char *const drop_texts[] = {
#define DROP_TEXT(id, text) text,
	SIM_DROPS(DROP_TEXT)
#undef DROP_TEXT
};

const char *sim_drop_text(enum sim_drop why)
{
	return (unsigned)why < SIM_DROP_N ? drop_texts[why] : "none";
}

void sim_fail(struct sim *sim, const char *format, ...)
{
	va_list args;
	if (sim->failure[0])
		return;
	va_start(args, format);
	vsnprintf(sim->failure, sizeof sim->failure, format, args);
	va_end(args);
}

int sim_error(struct nic_err *err, int error, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(err->text, sizeof err->text, format, args);
	va_end(args);
	return error;
}

const char *sim_failure(const struct sim *sim)
{
	return sim->failure[0] ? sim->failure : NULL;
}

void sim_config_init(struct sim_config *config, uint64_t seed)
{
	static const struct sim_shape cable = {.rate_bps = UINT64_C(100000000000), .delay_ns = 1000, .mtu = 1500};
	*config = (struct sim_config){
		.seed = seed,
		.topology = {.kind = SIM_STAR,
			     .host = cable,
			     .fabric = cable,
			     .leaves = 2,
			     .spines = 2,
			     .rails = 1,
			     .priorities = 1,
			     .buffer_bytes = 4 << 20,
			     .alpha_percent = 100},
	};
}

static uint64_t clock_of_world(void *ctx)
{
	return ((struct sim *)ctx)->now;
}

struct sim *sim_create(const struct sim_config *config, struct nic_err *err)
{
	struct sim_config c = *config;
	c.events_max = c.events_max ? c.events_max : EVENTS_MAX;
	c.packet_bytes_max = c.packet_bytes_max ? c.packet_bytes_max : PACKET_BYTES_MAX;
	if (sim_topology_check(&c.topology, err))
		return NULL;
	if (c.events_max > EVENTS_LIMIT) {
		sim_error(err, -EINVAL, "sim: events_max %u is more than %u", c.events_max, EVENTS_LIMIT);
		return NULL;
	}
	struct sim *sim = calloc(1, sizeof *sim);
	must(sim);
	sim->now = SIM_START_NS;
	sim->config = c;
	sim->clock = (struct clock_source){clock_of_world, sim};
	sim->events.limit = c.events_max;
	sim->events.free_slot = SIM_NONE;
	sha256_init(&sim->trace);
	sim_topology_build(sim);
	return sim;
}

static void host_free(struct sim_host *host)
{
	must(!host->open_ports);
	for (uint32_t i = 0; i < SIM_RAILS_MAX; i++) {
		sim_link_free(host->rails[i].up);
		sim_link_free(host->rails[i].down);
	}
	for (uint32_t i = 0; i < host->pairs_n; i++)
		free(host->pairs[i]);
	free(host->pairs);
	free(host);
}

void sim_destroy(struct sim *sim)
{
	if (!sim)
		return;
	for (uint32_t i = 0; i < sim->hosts_n; i++)
		host_free(sim->hosts[i]);
	free(sim->hosts);
	sim_topology_free(sim);
	while (sim->packets)
		sim_packet_free(sim->packets);
	sim_events_free(&sim->events);
	free(sim);
}

uint64_t sim_now(const struct sim *sim)
{
	return sim->now;
}

const struct clock_source *sim_clock(struct sim *sim)
{
	return &sim->clock;
}

uint64_t sim_seed(const struct sim *sim)
{
	return sim->config.seed;
}

void sim_stats(const struct sim *sim, struct sim_stats *out)
{
	*out = sim->stats;
	out->events = sim->events.done;
	out->events_pending = sim->events.pending;
	out->events_pending_max = sim->events.pending_max;
}
