/* SPDX-License-Identifier: BSD-3-Clause */
/** Private structures of the simulator. A packet is one block of memory that moves from the transmit ring over links
 * and switches to the receive ring; it is in one queue at a time, and in the world's list of all packets. The thread
 * that runs the world. */
#ifndef NIC_SIM_SIM_WORLD_H
#define NIC_SIM_SIM_WORLD_H

#include "base/must.h"
#include "nic/sim/sim.h"

#define SIM_NONE      UINT32_MAX
#define SIM_HEADERS   28u /* IPv4 and UDP */
#define SIM_PAIRS_MAX 65536u
#define SIM_STREAM_N  6u /* random streams: one for each kind of disturbance */

enum sim_trace_event {
	SIM_SEND,
	SIM_ARRIVE,
	SIM_DROPPED,
	SIM_DUPLICATED,
	SIM_DELAYED,
	SIM_CORRUPTED,
	SIM_CUT,
	SIM_KICK
};

/* ---- events ---- */

struct sim_heap_entry {
	uint64_t when, order; /* insertion breaks ties */
	uint32_t slot;
};

struct sim_slot {
	sim_event_fn *fn;
	void *ctx;
	struct sim_host *host; /* host of the event. NULL: the world's */
	uint32_t generation;
	uint32_t heap_at;    /* SIM_NONE: not in the heap */
	bool parked;         /* in the list of its paused host */
	uint32_t next, prev; /* parked; next: free as well */
};

/** The events of a world: a heap by time and order, whose entries name slots; parked ones are in no heap. */
struct sim_events {
	struct sim_heap_entry *heap;
	struct sim_slot *slots;
	uint32_t heap_n, heap_cap, slots_n, slots_cap;
	uint32_t pending, pending_max, limit; /* events now, at most so far, at most allowed */
	uint32_t free_slot;                   /* first of the list of free slots; SIM_NONE: none */
	uint64_t order, done;                 /* events ever scheduled, which orders those of one time; and ever run */
};

/* ---- packets ---- */

struct sim_packet {
	struct sim_packet *next;            /* in a queue or ring */
	struct sim_packet *older, *younger; /* of all */
	struct sim *sim;
	struct sim_host *from, *to;
	struct sim_link *at; /* link on which it is, or for which it waits */
	uint8_t *body;
	uint64_t number;    /* in order of commits and duplications */
	uint64_t hash;      /* of the body, when there is a trace */
	uint64_t sent_at;   /* commit */
	uint64_t flow;      /* hash of its five-tuple */
	uint64_t memory;    /* bytes of this block */
	uint32_t len, wire; /* bytes of the body; on the wire of its present link */
	uint32_t port;      /* number of the port that sent it */
	uint32_t dest, dest_incarnation;
	uint32_t reported_mtu;
	uint32_t cookie; /* index in the receiver's table of held packets */
	uint16_t from_queue, to_queue, path;
	uint8_t rail, priority, lane; /* lane: queue of the link that it waits in */
	bool flying;                  /* counted in in_flight */
	bool fragments;               /* IP may fragment it */
	bool kick;                    /* a wake-up without content */
	struct sim_switch *buffered;  /* whose buffer holds it */
	alignas(64) uint8_t room[];
};

struct sim_fifo {
	struct sim_packet *first, *last;
	uint64_t bytes; /* as on the wire */
	uint32_t n;
};

/* ---- network ---- */

struct sim_disturber {
	struct sim_disturbance what;
	struct sim_random streams[SIM_STREAM_N];
	bool active; /* some chance is not 0 */
	bool burst;
	uint64_t burst_at; /* `burst`: when it began */
};

struct sim_fate {
	enum sim_drop drop; /* SIM_DROP_N: not dropped */
	bool duplicate, corrupt, cut;
	uint64_t later_ns;
	struct sim_random *corrupt_by, *cut_by;
};

/** A switch's shared buffer. */
struct sim_switch {
	uint32_t number;
	uint64_t used, used_max; /* bytes that wait in its queues, and the largest number so far */
};

struct sim_link {
	struct sim *sim;
	uint32_t number; /* in traces */
	uint32_t rail;
	char name[2 * SIM_NAME_BYTES + 8];
	struct sim_shape shape;
	bool up;
	bool strict;                                /* lanes are priorities. false: transmit rings, round-robin */
	struct sim_host *from_host;                 /* NULL: from_switch */
	struct sim_switch *from_switch, *to_switch; /* NULL: a host */
	struct sim_fifo lanes[SIM_QUEUES_MAX];
	uint64_t waiting_bytes, waiting_n;
	uint32_t turn;
	struct sim_packet *sending;
	sim_event sent; /* the end of its last bit */
	uint64_t sending_until;
	uint64_t carry; /* remainder of the division by the rate: bits * 10^9 */
	struct sim_disturber disturber;
	struct sim_link_stats stats;
	uint64_t queue_since;
	double queue_area; /* sum of bytes * ns so far */
	uint64_t begun;
};

/** What is disturbed between two hosts, in one direction. */
struct sim_pair {
	uint32_t to;
	struct sim_disturber disturber;
};

struct sim_rail {
	struct sim_link *up, *down; /* down: NULL in a pair */
	struct sim_port *port;      /* NULL: not open */
};

struct sim_host {
	struct sim *sim;
	uint32_t number, leaf, incarnations;
	enum sim_host_state state;
	struct sim_host_config config;
	uint64_t clock_set, clock_local; /* world's time of the last change of the clock; what it showed then */
	int64_t skew_ppb;
	struct clock_source clock;
	struct sim_rail rails[SIM_RAILS_MAX];
	uint32_t open_ports;                /* dead ones included */
	uint32_t parked_first, parked_last; /* events */
	struct sim_pair **pairs;            /* sorted by `to` */
	uint32_t pairs_n, pairs_cap;
	uint64_t cuts[SIM_HOSTS_MAX / 64]; /* bit i: packets to host i are lost */
	struct sim_host_stats stats;
};

struct sim {
	uint64_t now;
	struct sim_config config;
	struct clock_source clock;
	struct sim_events events;
	struct sim_host **hosts;
	uint32_t hosts_n, hosts_cap, links_n, pairs_n, ports_n;
	unsigned cuts;               /* upper bound of partitions; 0: none */
	struct sim_switch *switches; /* per rail: leaves (or the star's one), then spines */
	uint32_t switches_n;
	struct sim_link **fabric;   /* per rail, leaf and spine: up, down */
	uint32_t *spray;            /* per rail and leaf: the next spine */
	struct sim_packet *packets; /* all, youngest first */
	uint64_t packets_sent;
	struct sim_stats stats;
	char failure[NIC_TEXT_BYTES_MAX];
	struct sha256 trace;
	FILE *text, *pcap;
	bool pcap_arrived;
};

/* sim_events.c */
void sim_events_free(struct sim_events *e);
sim_event sim_schedule(struct sim *sim, struct sim_host *host, uint64_t when, sim_event_fn *fn, void *ctx);
void sim_events_unpark(struct sim_host *host);
void sim_events_forget(struct sim_host *host);

/* sim_world.c */
__attribute__((format(printf, 2, 3))) void sim_fail(struct sim *sim, const char *format, ...);
__attribute__((format(printf, 3, 4))) int sim_error(struct nic_err *err, int error, const char *format, ...);

/* sim_packet.c: NULL: too many bytes; the run has failed. */
struct sim_packet *sim_packet_new(struct sim *sim, uint32_t len);
struct sim_packet *sim_packet_copy(const struct sim_packet *p);
void sim_packet_free(struct sim_packet *p);
void sim_packet_sign(struct sim_packet *p);
/* Drops a packet: counts it at the link or host (either may be NULL), traces and frees it. */
void sim_packet_drop(struct sim_packet *p, enum sim_drop why, struct sim_link *link, struct sim_host *host);
void sim_packet_launch(struct sim_packet *p);
void sim_packet_landed(struct sim_packet *p);
void sim_fifo_put(struct sim_fifo *f, struct sim_packet *p);
struct sim_packet *sim_fifo_take(struct sim_fifo *f);
uint64_t sim_mix(uint64_t x);

/* sim_topology.c */
int sim_topology_check(struct sim_topology *t, struct nic_err *err);
void sim_topology_build(struct sim *sim);
void sim_topology_free(struct sim *sim);
void sim_topology_cable(struct sim_host *host);
void sim_switch_take(struct sim *sim, struct sim_switch *s, struct sim_packet *p);
int sim_shape_check(const char *what, const struct sim_shape *shape, struct nic_err *err);

/* sim_link.c */
struct sim_link *sim_link_new(struct sim *sim, const struct sim_shape *shape, uint32_t rail, const char *from,
			      const char *to);
void sim_link_free(struct sim_link *link);
/* Adds a packet to a lane, or drops it. */
void sim_link_put(struct sim_link *link, struct sim_packet *p, unsigned lane);
/* Drops the packets in a host's transmit rings. */
void sim_link_abandon(struct sim_link *link, enum sim_drop why);

/* sim_disturb.c */
void sim_disturber_init(struct sim_disturber *d, uint64_t seed, const char *whose, uint64_t number);
void sim_disturber_draw(struct sim_disturber *d, const struct sim_packet *p, struct sim_fate *fate);
struct sim_disturber *sim_pair_of(const struct sim_host *from, const struct sim_host *to); /* NULL: none */
bool sim_is_cut(const struct sim_host *from, const struct sim_host *to);
void sim_corrupt(struct sim_packet *p, struct sim_random *r);

/* sim_host.c */
void sim_host_wake(struct sim_host *host);
uint64_t sim_host_local(const struct sim_host *host, uint64_t when);
void sim_host_carrier(struct sim_host *host, uint32_t rail, bool up);

/* sim_queue.c, sim_port.c */
void sim_nic_receive(struct sim_packet *p);
/* The packet has left its transmit ring. */
void sim_nic_sent(struct sim_packet *p, bool dropped);
void sim_nic_report_mtu(const struct sim_packet *p);
void sim_nic_crash(struct sim_host *host);

/* sim_trace.c, sim_pcap.c */
void sim_trace(const struct sim_packet *p, enum sim_trace_event event, enum sim_drop why, const struct sim_link *link,
	       uint64_t later_ns);
void sim_pcap_packet(struct sim *sim, const struct sim_packet *p);

#endif
