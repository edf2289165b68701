/* SPDX-License-Identifier: BSD-3-Clause */
/** A host's NIC as a driver: structures of port and queue. The thread that runs the world. */
#ifndef NIC_SIM_SIM_PORT_H
#define NIC_SIM_SIM_PORT_H

#include "nic/sim/sim_world.h"

#define SIM_ADDR_BYTES  20u
#define SIM_BYTES_LEAST 1024u /* smallest tx_bytes_max(): see nic/nic.h */

/** A port's address, packed into SIM_ADDR_BYTES. */
struct sim_addr {
	uint64_t world; /* identity of the simulated world: addresses of another one are not valid here */
	uint32_t host;  /* number */
	uint8_t rail, queues;
	bool hash; /* flows reach queues by a hash, as at a card with RSS */
};

/** FREE → PENDING (connect) → UP (step reports it) → FREE (drop); or PENDING → DROPPED → FREE (at the next step). */
enum sim_dest_state { SIM_DEST_FREE, SIM_DEST_PENDING, SIM_DEST_DROPPED, SIM_DEST_UP };

/** An address handle. */
struct sim_dest {
	enum sim_dest_state state;
	struct sim_host *to;
	uint32_t queue;     /* of this port */
	uint32_t route;     /* NIC_ROUTE(): queue and flow at the other port */
	uint32_t bytes_max; /* path MTU as discovered so far */
	uint32_t incarnations;
	uint32_t next; /* pending */
	bool attached;
	bool no_such_queue;
	void *user;
};

struct sim_queue {
	struct nic_queue base;
	struct sim_port *port;
	uint32_t index;
	struct sim_fifo rx;
	struct sim_fifo staged;    /* committed; flush() sends them */
	struct sim_packet *handed; /* valid until the next recv() */
	struct sim_packet **held;  /* zero_copy: at their cookie - 1 */
	uint32_t *held_free;       /* indices */
	uint32_t held_free_n;
	uint32_t rx_used, tx_used; /* slots */
	bool armed;
	bool woken;                 /* wake_fd is readable, or will be when it is created */
	bool starved;               /* tx_reserve() returned -EAGAIN */
	uint64_t tx_bytes, tx_most; /* bodies that wait for the wire; tx_waiting() is to be called again when they are
				       no more than that. UINT64_MAX: it need not */
	int wake_fd;                /* -1: not created yet */
};

struct sim_port {
	struct nic_port base;
	struct sim_host *host;
	uint32_t rail, number;
	bool dead; /* the host has crashed since open() */
	struct sim_nic nic;
	uint32_t body_max;
	uint32_t queues_n;
	struct sim_queue *queues[SIM_QUEUES_MAX];
	struct sim_dest *dests;
	uint32_t dests_n, dests_cap, lowest_free;
	uint32_t pending_first, pending_last;
	int event_fd; /* -1: not created yet */
	struct nic_stats stats;
};

static inline struct sim_port *sim_port_of(const struct nic_port *port)
{
	return (struct sim_port *)(uintptr_t)port;
}

static inline struct sim_queue *sim_queue_of(const struct nic_queue *q)
{
	return (struct sim_queue *)(uintptr_t)q;
}

/* An eventfd that is created on first use: worlds of a thousand hosts whose queues are never slept on need none. */
int sim_fd_make(int *fd, bool readable);
void sim_fd_poke(int fd);
void sim_fd_clear(int fd);

void sim_addr_encode(const struct sim_addr *a, uint8_t blob[SIM_ADDR_BYTES]);
bool sim_addr_decode(const struct nic_addr *addr, struct sim_addr *out);
int sim_args_parse(const char *text, struct sim_nic *nic, struct nic_err *err);

struct sim_queue *sim_queue_new(struct sim_port *port, uint32_t index);
void sim_queue_free(struct sim_queue *q);
/* Drops the packets in the receive ring and those not flushed. */
void sim_queue_crash(struct sim_queue *q);
extern const struct nic_queue_ops sim_queue_waking_ops, sim_queue_kicking_ops;

#endif
