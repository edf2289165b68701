/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A simulated network: a virtual clock, events, switches, links with disturbances, hosts, and NICs of hosts as datagram
 * drivers of nic/nic.h. A run depends on the seed and the calls only, not on wall clocks, memory addresses or the order
 * of hash tables: its trace is the same in every process.
 *
 * One thread at a time uses a world. Worlds are independent of each other. Times are nanoseconds. Functions do not
 * block. A run that exceeds the bounds of struct sim_config fails: sim_failure() returns the reason, and nothing more
 * happens in that world.
 */
#ifndef NIC_SIM_SIM_H
#define NIC_SIM_SIM_H

#include "base/clock.h"
#include "nic/nic.h"
#include "nic/sim/sha256.h"

#include <stdio.h>

/** Version of the model, to be published with results: raised with every change in what a seed does to the same
 * packets. */
#define SIM_MODEL          2
#define SIM_START_NS       UINT64_C(1000000000) /* clock of a new world */
#define SIM_PRIORITIES_MAX (NIC_PRIORITY_MAX + 1)
#define SIM_RAILS_MAX      4u
#define SIM_HOSTS_MAX      4096u
#define SIM_LEAVES_MAX     256u
#define SIM_SPINES_MAX     64u
#define SIM_QUEUES_MAX     16u
#define SIM_BODY_MAX       65507u /* largest body of UDP over IPv4 */
#define SIM_MTU_MIN        576u
#define SIM_MTU_MAX        65535u
#define SIM_NAME_BYTES     32u

struct sim;
struct sim_host;
struct sim_link;

/* ---- the world ---- */

enum sim_topology_kind {
	SIM_PAIR,      /* two hosts, a cable between them */
	SIM_STAR,      /* one switch, a port for each host */
	SIM_LEAF_SPINE /* hosts at leaves, every leaf at every spine */
};

/** One direction of a cable, and the output queue in front of it. */
struct sim_shape {
	uint64_t rate_bps; /* 0: serialisation takes no time */
	uint64_t delay_ns; /* propagation */
	/* Bytes of frames that may wait at a switch for this link, as on the wire. 0: limited by the switch's buffer.
	 * A host waits in its transmit rings instead. */
	uint64_t queue_bytes;
	uint32_t mtu; /* of IP, [SIM_MTU_MIN, SIM_MTU_MAX]; a body is 28 bytes shorter */
};

struct sim_topology {
	enum sim_topology_kind kind;
	struct sim_shape host;   /* both directions of every host's cable */
	struct sim_shape fabric; /* both directions between leaf and spine */
	unsigned leaves, spines; /* LEAF_SPINE: [1, SIM_LEAVES_MAX], [1, SIM_SPINES_MAX] */
	unsigned rails;          /* identical parallel networks; each host has a NIC in each. 0: 1 */
	/* Strict priorities of switches, [1, SIM_PRIORITIES_MAX]; 0: 1. With fewer than nic_tx.priority has, several of
	 * those share one. */
	unsigned priorities;
	/* Memory of a switch, shared by its output queues: each may grow to alpha_percent of what is free (dynamic
	 * thresholds). 0: only queue_bytes limits. */
	uint64_t buffer_bytes;
	unsigned alpha_percent; /* 0: 100 */
	uint64_t switch_ns;     /* from the last bit of a frame to its entry into the output queue */
	bool spray;             /* LEAF_SPINE: spines are selected per packet, not per flow */
	bool mtu_silent;        /* a packet above the MTU is dropped without an ICMP error */
};

/** Returns true for a packet to be dropped as it leaves its host, besides random loss. Gets the committed bytes. */
typedef bool sim_lose_fn(void *ctx, const uint8_t *body, uint32_t len);
/** Returns the delay of a second copy of a packet that leaves its host now, whatever happens to the first. 0: no copy.
 * Gets the committed bytes. */
typedef uint64_t sim_again_fn(void *ctx, const uint8_t *body, uint32_t len);

struct sim_config {
	uint64_t seed;
	struct sim_topology topology;
	uint32_t events_max;       /* pending at a time. 0: 4 million */
	uint64_t packet_bytes_max; /* of all packets in the world. 0: 4 GiB */
	sim_lose_fn *lose;         /* NULL: none */
	sim_again_fn *again;       /* NULL: none */
	void *lose_ctx;            /* of both */
	bool untraced;             /* do not hash the packet trace: sim_trace_hash() returns the hash of no bytes */
};

/** A star of 100 Gb/s, 1 µs of delay each way, 4 MiB of shared buffer, MTU 1500. */
void sim_config_init(struct sim_config *config, uint64_t seed);
/** Creates a world without hosts. NULL: invalid configuration, `err` contains the reason. Copies `config`. */
struct sim *sim_create(const struct sim_config *config, struct nic_err *err);
/** Frees the world. Its ports must be closed. */
void sim_destroy(struct sim *sim);
/** Returns why the run has failed. NULL: it has not. Belongs to the world. */
const char *sim_failure(const struct sim *sim);

/* ---- time and events ---- */

typedef uint64_t sim_event; /* 0: none */
typedef void sim_event_fn(void *ctx);

uint64_t sim_now(const struct sim *sim);
/** Returns the world's clock, valid as long as the world. */
const struct clock_source *sim_clock(struct sim *sim);
/** Schedules fn(ctx) at that time, or now if it is past; behind all earlier events of the same time. */
sim_event sim_at(struct sim *sim, uint64_t when, sim_event_fn *fn, void *ctx);
/** Cancels an event. true: it was pending. 0 and past events are no errors. */
bool sim_cancel(struct sim *sim, sim_event event);
/** Returns the time of the next event. TIME_NEVER: none. */
uint64_t sim_next(const struct sim *sim);
/** Runs the next event, however far in the future. false: there is none, or the run has failed. */
bool sim_step(struct sim *sim);
/** Runs all events up to and at that time, and sets the clock to it. false: the run has failed. */
bool sim_run_until(struct sim *sim, uint64_t when);

/* ---- random numbers ---- */

/** xoshiro256++. */
struct sim_random {
	uint64_t s[4];
};

/** Initializes a stream that depends on seed, purpose and number only. Purposes that begin with "sim." are reserved for
 * links. */
void sim_random_init(struct sim_random *r, uint64_t seed, const char *purpose, uint64_t number);
uint64_t sim_random_next(struct sim_random *r);
/** Returns a number in [0, n), unbiased; n > 0. */
uint64_t sim_random_below(struct sim_random *r, uint64_t n);
uint64_t sim_seed(const struct sim *sim);

/* ---- hosts ---- */

/** One NIC of a host. */
struct sim_nic {
	unsigned queues_max; /* [1, SIM_QUEUES_MAX] */
	unsigned rx_slots;   /* packets that a queue stores, including those held by the caller */
	unsigned tx_slots;   /* packets of a queue that wait for the wire. Full: -EAGAIN */
	unsigned body_align; /* of received bodies: power of two, up to 64 */
	unsigned peers_max;  /* address handles of a port */
	bool hash;           /* NIC_STEER_HASH */
	bool zero_copy;      /* received packets may be held */
	bool kick;           /* no caps.wake: kick() wakes */
};

/** Notifications to the scheduler of a host, called inside events and port operations: they may only take notes. */
struct sim_hooks {
	/** A port has work: a packet arrived, a full transmit ring has room, step() has an event, or wake() was called.
	 * Not while the host is paused; once on resume. May be NULL. */
	void (*wake)(void *ctx, struct sim_host *host);
	/** The cable of this rail lost or regained its carrier. May be NULL. */
	void (*carrier)(void *ctx, struct sim_host *host, unsigned rail, bool up);
	void *ctx;
};

struct sim_host_config {
	char name[SIM_NAME_BYTES]; /* in traces; empty: "host" and its number */
	unsigned leaf;             /* LEAF_SPINE: number of its leaf */
	int64_t clock_offset_ns;   /* of its clock relative to the world's, at the start */
	int64_t clock_skew_ppb;    /* how much faster its clock runs, (-10^8, 10^8) */
	struct sim_nic nic;        /* of each rail */
	struct sim_hooks hooks;
};

/** Default: no offset, leaf 0; 16 queues, rings of 1024 and 512, alignment 32, 16384 address handles. */
void sim_host_config_init(struct sim_host_config *config);
/** Adds a running host with a cable to its switch. Hosts are numbered from 0. NULL: `err` contains the reason. */
struct sim_host *sim_host_add(struct sim *sim, const struct sim_host_config *config, struct nic_err *err);
struct sim_host *sim_host(const struct sim *sim, unsigned number); /* NULL: no such host */
unsigned sim_hosts(const struct sim *sim);
unsigned sim_host_number(const struct sim_host *host);
const char *sim_host_name(const struct sim_host *host);
/** Returns the host's clock, valid as long as the world. */
const struct clock_source *sim_host_clock(struct sim_host *host);
/** Returns the earliest time of the world at which the host's clock shows `local` or more. TIME_NEVER: TIME_NEVER. */
uint64_t sim_host_when(const struct sim_host *host, uint64_t local);
#define SIM_CLOCK_STOPPED INT64_C(-1000000000) /* a skew: the clock stands still */
/** Moves the host's clock forward by `jump_ns`, and runs it so much faster from now on: [-5·10^8, 10^9] ppb or
 * SIM_CLOCK_STOPPED. Events that the caller has scheduled by sim_host_when() stay where they are. */
void sim_host_set_clock(struct sim_host *host, uint64_t jump_ns, int64_t skew_ppb);
/** How much faster the host's clock runs now. */
int64_t sim_host_skew(const struct sim_host *host);
/** sim_at() for an event of the host, in the world's time: dropped when the host crashes, and deferred, in order, to
 * the end of a pause. */
sim_event sim_host_at(struct sim_host *host, uint64_t when, sim_event_fn *fn, void *ctx);

enum sim_host_state { SIM_RUNNING, SIM_PAUSED, SIM_CRASHED };

enum sim_host_state sim_host_state(const struct sim_host *host);
/** Pauses a host. Its NIC continues: transmit rings drain, receive rings fill and overflow. recv() returns 0 and
 * tx_reserve() -EAGAIN. No effect unless the host runs. */
void sim_host_pause(struct sim_host *host);
void sim_host_resume(struct sim_host *host);
/** Crashes a host: rings, events and the state of its ports are lost. Its open ports must still be closed; nothing
 * arrives there, and what is committed is lost. Frames on the wire continue. */
void sim_host_crash(struct sim_host *host);
/** Restarts a crashed host with the same number, addresses and clock, and a reset NIC: open new ports. No effect on
 * other hosts. */
void sim_host_restart(struct sim_host *host);
/** Returns the incarnation: the number of restarts. */
uint32_t sim_host_incarnation(const struct sim_host *host);

/**
 * Opens the NIC of that rail [0, rails), as a datagram driver; config->args: "rx=N,tx=N,align=N,queues=N,peers=N,
 * hash,copy,hold,kick", each changing a field of struct sim_nic. Its ops->name is "sim" at rail 0, "sim1" at rail 1 and
 * so on. One port at a time for each rail of a host: -EBUSY. -EPIPE: the host has crashed. Deadlines and now of
 * its operations are of the host's clock. Belongs to the caller until ops->close().
 */
int sim_port_open(struct sim_host *host, unsigned rail, const struct nic_config *config, struct nic_port **out,
		  struct nic_err *err);
/** Returns the driver's table, for names and address_text(). Its open() returns -EINVAL: it has no world. */
const struct nic_port_ops *sim_port_ops(unsigned rail);
/** Packets in the receive ring of a queue of such a port; and whether its wake_fd is readable, without a system call.
 * For schedulers of hosts, which never sleep on descriptors. Also of paused and crashed hosts. */
unsigned sim_queue_waiting(const struct nic_queue *q);
bool sim_queue_is_woken(const struct nic_queue *q);
/** Decodes host number and rail of a published address. -EINVAL: not the address of a sim port. */
int sim_address_host(const struct nic_addr *addr, unsigned *host, unsigned *rail);

/* ---- links and disturbances ---- */

/** Return the link from the host to its switch (in a pair, to the other host), and back. NULL: no such rail. In a pair
 * a host's downlink is the other's uplink. */
struct sim_link *sim_uplink(struct sim_host *host, unsigned rail);
struct sim_link *sim_downlink(struct sim_host *host, unsigned rail);
/** Returns a link between leaf and spine; `down`: from the spine. NULL: none. */
struct sim_link *sim_fabric_link(struct sim *sim, unsigned rail, unsigned leaf, unsigned spine, bool down);
void sim_link_shape(const struct sim_link *link, struct sim_shape *out);
/** Changes the shape from the next frame on. -EINVAL: the MTU is out of range. A larger MTU than that of the topology's
 * host cables does not raise the packet limit of ports. */
int sim_link_reshape(struct sim_link *link, const struct sim_shape *shape);
/** Sets the carrier. Without it waiting and new frames are lost; frames on the wire arrive. Flows use other spines at
 * once, if there are any. A host's port observes its uplink's carrier (hooks.carrier, sim_link_is_up()). */
void sim_link_set_up(struct sim_link *link, bool up);
bool sim_link_is_up(const struct sim_link *link);

#define SIM_CERTAIN 1000000000u /* a chance, in parts of 10^9 */

/** Disturbance of a link or pair. Chances apply to each frame, [0, SIM_CERTAIN], independently. All zero: none. */
struct sim_disturbance {
	uint32_t loss;
	/* Bursts of loss (Gilbert and Elliott): chances per frame that a burst begins and ends. */
	uint32_t burst_begin, burst_end;
	uint32_t burst_loss; /* loss during a burst. 0 with a burst_begin: all frames */
	uint64_t burst_ns;   /* longest burst, however few frames there are to end it. 0: no limit */
	uint32_t duplicate;  /* a second copy follows */
	uint32_t reorder;    /* the frame is delayed by [1, reorder_ns] */
	uint64_t reorder_ns; /* 0: 10 µs */
	uint32_t corrupt;    /* 1 to 8 bits of the body are flipped */
	uint32_t cut;        /* the body is truncated to [0, length) bytes */
	bool cut_off;        /* a partition: all frames are lost */
};

/** Disturbs the frames of a link, from the next one on. Random streams continue, so that switching one on and off does
 * not change the others. -EINVAL: a chance above SIM_CERTAIN. */
int sim_link_disturb(struct sim_link *link, const struct sim_disturbance *disturbance);
/** Disturbs the packets from one host to another, on all rails, as they leave the first link. -EINVAL as above;
 * -ENOSPC: more than 65536 pairs. */
int sim_pair_disturb(struct sim_host *from, struct sim_host *to, const struct sim_disturbance *disturbance);
/** Cuts or restores one direction between two hosts, in addition to other disturbances. */
void sim_partition(struct sim_host *from, struct sim_host *to, bool cut);
/** The same for both directions between each host in a set and each one outside. `in_set` has sim_hosts() entries. */
void sim_partition_sets(struct sim *sim, const bool *in_set, bool cut);
/** Restores all pairs. */
void sim_heal(struct sim *sim);

/* ---- statistics ---- */

#define SIM_DROPS(X)                                                                                                   \
	X(LOSS, "loss")             /* by chance or burst */                                                           \
	X(PARTITION, "partition")   /* the hosts are partitioned, or cut_off */                                        \
	X(CARRIER, "carrier")       /* the link is down, or no route */                                                \
	X(QUEUE, "queue")           /* the output queue, or its switch's buffer, is full */                            \
	X(MTU, "mtu")               /* longer than the link's MTU */                                                   \
	X(RING, "ring")             /* the receive ring is full */                                                     \
	X(CRASHED, "crashed")       /* the host has crashed; with its receive rings */                                 \
	X(UNEXPECTED, "unexpected") /* that NIC or queue is not open */

enum sim_drop {
#define SIM_DROP_NAME(id, text) SIM_DROP_##id,
	SIM_DROPS(SIM_DROP_NAME)
#undef SIM_DROP_NAME
		SIM_DROP_N
};

/** Name of a reason: "queue". */
const char *sim_drop_text(enum sim_drop why);

struct sim_link_stats {
	uint64_t packets, bytes, wire_bytes; /* carried: bodies; with headers, preamble and gap */
	uint64_t dropped[SIM_DROP_N];
	uint64_t duplicated, reordered, corrupted, cut;
	uint64_t busy_ns;
	/* The output queue, as on the wire, without the frame in transmission. */
	uint64_t queue_bytes, queue_bytes_max, queue_bytes_mean; /* now, maximum, mean over time */
	uint64_t queue_packets_max;
};

struct sim_host_stats {
	uint64_t tx_packets, tx_bytes; /* committed */
	uint64_t rx_packets, rx_bytes; /* that entered a receive ring */
	uint64_t rx_taken;             /* returned by recv() */
	uint64_t dropped[SIM_DROP_N];
	uint64_t tx_full; /* times that tx_reserve() returned -EAGAIN */
};

/** Invariant: sent + duplicated == arrived + all dropped + in_flight. Kicks count as sent and arrived, though they are
 * no packets of a port. */
struct sim_stats {
	uint64_t sent, duplicated, arrived;
	uint64_t dropped[SIM_DROP_N];
	uint64_t in_flight, in_flight_bytes, in_flight_bytes_max; /* receive rings excluded */
	uint64_t corrupted, reordered;
	uint64_t packet_bytes, packet_bytes_max; /* memory of all packets */
	uint64_t events, events_pending, events_pending_max;
};

void sim_link_stats(const struct sim_link *link, struct sim_link_stats *out);
void sim_host_stats(const struct sim_host *host, struct sim_host_stats *out);
void sim_stats(const struct sim *sim, struct sim_stats *out);
/** Returns the bytes in the buffer of a switch: [0, leaves) are leaves, then spines; that of a star is 0. `max` may be
 * NULL.
 */
uint64_t sim_switch_bytes(const struct sim *sim, unsigned rail, unsigned number, uint64_t *max);
/** Returns the bytes on the wire of a body, fragments included: preamble, Ethernet, IPv4, UDP, checksum and gap. */
uint32_t sim_wire_bytes(uint32_t body_len, uint32_t mtu);

/* ---- traces ---- */

/** Writes the SHA-256 of all packet events so far, in hexadecimal. */
void sim_trace_hash(const struct sim *sim, char out[SHA256_TEXT_BYTES]);
/** Adds an event of the caller to the trace and its hash. */
void sim_trace_note(struct sim *sim, const char *text);
/** Prints a line for each packet event from now on. NULL: stops. `out` stays the caller's. */
void sim_trace_text(struct sim *sim, FILE *out);
/** Writes packets from now on in pcap format, as they leave hosts, or with `arrived` as they enter receive rings, with
 * synthetic Ethernet, IPv4 and UDP headers (10.rail.host/256.host%256, port 47000 + queue, of a hash-steered port
 * 16384 + flow). -EIO: not written. NULL: stops. `out` stays the caller's. */
int sim_trace_pcap(struct sim *sim, FILE *out, bool arrived);

#endif
