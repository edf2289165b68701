/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A port of the transport: its struct; open, close, capabilities, addresses. Control thread, except where noted.
 */
#ifndef FAR_TRANSPORT_PORT_H
#define FAR_TRANSPORT_PORT_H

#include "base/limits.h"
#include "transport/transport.h"

struct transport_peer;
struct transport_queue;
struct transport_secret;
struct transport_setup;

#define TRANSPORT_ID_BYTES 8u /* of the port's identity, at the end of its address */
/* A port's identity is random, except for its last four bits: the number of its queues - 1. */
#define TRANSPORT_ID_QUEUES(id) ((uint32_t)(id) % 16 + 1)
/* Secrets of peers are allocated in slabs of so many. */
#define TRANSPORT_SLAB_PEERS  16u
#define TRANSPORT_TABLE_BYTES (FAR_TRANSPORT_PEERS_MAX * sizeof(struct transport_peer))

/** A port. Control, except where noted. All times in ns. */
struct transport_port {
	struct nic_port base;
	struct nic_port_ops ops;
	struct nic_queue_ops queue_ops;
	struct nic_port *lower;
	struct nic_caps lower_caps;
	uint32_t ring; /* packets of a receive ring below, less a quarter for ACKs and set-ups. 0: unlimited */
	struct transport_config config;
	uint64_t id;                         /* identity: 60 random bits and the number of queues - 1 */
	struct nic_addr own;                 /* lower's */
	bool key_known;                      /* `transport` derives from the group key; before, it is random */
	struct auth_key transport, cookies;  /* transport key; key of cookies, random, of this port alone */
	uint8_t own_proof[AUTH_PROOF_BYTES]; /* transport_auth_address() of `own` */
	uint64_t cookie_floor;               /* cookies issued at or before it are invalid: transport_refused_keep() */
	int epoll_fd, event_fd;              /* −1 with config.signal */
	uint32_t packet_max;                 /* largest packet of the driver below */
	uint32_t queues_n;
	uint32_t peers_n;                          /* entries of `peers` in use so far */
	uint32_t peers_free;                       /* no entry below it is free */
	struct transport_setup *setups, *setup_at; /* set-ups in progress; the next one that step() processes */
	uint32_t accepted[2 *
			  FAR_TRANSPORT_PEERS_MAX]; /* hash table by remote identity and token: index + 1 of the peer */
	uint32_t half_open_n;                       /* set-ups whose CONNECT had a valid cookie, undecided; at most
						       FAR_TRANSPORT_HALF_OPEN_MAX */
	uint32_t stateless_n; /* peers that send one stateless answer; at most FAR_TRANSPORT_STATELESS_MAX */
	/* Counters: struct transport_stats. Any thread reads. `repeated_n` counts as duplicates. */
	_Atomic uint64_t refused_n;
	_Atomic uint64_t backlog_drops_n;
	_Atomic uint64_t unknown_n, repeated_n;
	struct transport_port *siblings[FAR_PORTS_MAX - 1]; /* transport_join() */
	uint32_t siblings_n;
	uint64_t next_at;    /* when a set-up has something to do. UINT64_MAX: never */
	nic_event_fn *event; /* of step() */
	void *ctx;
	uint64_t now; /* of step() */
	struct {
		uint64_t id, token, issued;
		int error;
	} refused[FAR_TRANSPORT_REFUSED_KEPT]; /* connect requests that were rejected or have ended:
						  transport_refused_keep() */
	uint32_t refused_at;
	struct transport_queue *queues[FAR_TRANSPORT_QUEUES_MAX];
	struct transport_peer *table;                          /* of FAR_TRANSPORT_PEERS_MAX */
	struct transport_peer *peers[FAR_TRANSPORT_PEERS_MAX]; /* entries of `table`, made once and reused, never freed:
								  a late read is harmless */
	struct transport_secret
		*secrets[FAR_TRANSPORT_PEERS_MAX / TRANSPORT_SLAB_PEERS]; /* of the peers of each slab */
	transport_migrated_fn *migrated;                                  /* NULL: none */
	void *migrated_ctx;
};

/** Requests a step(): makes fd() readable. Any thread. One system call; used for set-ups and ends only. */
void transport_port_signal(struct transport_port *p);
/** Splits an address into that of the driver below and the port's identity. false: malformed. */
bool transport_addr_split(const struct nic_addr *addr, struct nic_addr *lower, uint64_t *id);
/** Formats the text of `err`; returns `error`. Any thread. */
__attribute__((format(printf, 3, 4))) int transport_error(struct nic_err *err, int error, const char *format, ...);

#endif
