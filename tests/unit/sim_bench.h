/* SPDX-License-Identifier: BSD-3-Clause */
/** A simulated world with hosts, each with an open port, and packets that can be told apart by a number. */
#ifndef SIM_BENCH_H
#define SIM_BENCH_H

#include "nic/sim/sim.h"

enum { SIM_ENDS = 64, SIM_TO = 64 };

struct sim_end {
	struct sim_host *host;
	struct nic_port *port;
	struct nic_queue *q; /* queue 0 */
	unsigned ups, fails, wakes, carriers;
	uint32_t up;
	int error;
	char text[NIC_TEXT_BYTES_MAX];
};

struct sim_bench {
	struct sim *sim;
	struct sim_config config;
	struct sim_host_config host;
	const char *args;
	unsigned queues;
	/* nic_tx.priority; NULL: all have 0. */
	unsigned (*priority_of)(const uint8_t *body, uint32_t len);
	struct sim_end ends[SIM_ENDS];
};
extern struct sim_bench sb;

/** Puts defaults into sb.config and sb.host: a star of seed 1. */
void sb_init(void);
/** The world and `hosts` hosts, each with an open port of sb.queues queues. */
void sb_open(unsigned hosts);
void sb_fini(void);
void sb_port_open(unsigned e);
void sb_port_close(unsigned e);
/** A place from queue `queue` of one to queue (or route) `route` of the other, attached. */
uint32_t sb_place(unsigned from, unsigned queue, unsigned to, unsigned route);
/** Sends number `seq` in `len` bytes, 8 at least: 0 or -errno. */
int sb_send(unsigned from, uint32_t peer, uint64_t seq, uint32_t len);
int sb_send_from(unsigned from, unsigned queue, uint32_t peer, uint64_t seq, uint32_t len);
/** Takes one: false: there is none. Its number, and whether it is as it was sent. */
bool sb_take(unsigned e, uint64_t *seq, bool *intact);
bool sb_take_from(unsigned e, unsigned queue, uint64_t *seq, bool *intact);
/** Takes all, of all queues: how many. */
unsigned sb_drain(unsigned e);
void sb_run(uint64_t ns);

#endif
