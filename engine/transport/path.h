/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Paths to a peer: the primary one, and secondary ones through sibling ports. Poller, except where noted.
 */
#ifndef FAR_TRANSPORT_PATH_H
#define FAR_TRANSPORT_PATH_H

#include "base/auth.h"
#include "base/limits.h"
#include "nic/nic.h"

#include <stdatomic.h>

struct transport_peer;
struct transport_port;
struct transport_queue;

/** A path to a peer as the poller uses it (path.c): an address handle of the driver below a queue. Path 0 is the
 * primary path. The others lead through queues of the agent's other ports that the same shard holds. Poller. */
struct transport_path {
	struct transport_queue *via;
	uint32_t lower_peer; /* address handle */
	bool attached;
	bool probed; /* a PING has been sent to find out which queue its flow reaches */
};

/** A secondary path as the control thread sets it up. Control, except `held`. */
struct transport_path_setup {
	struct transport_peer *peer;
	struct transport_port *port;  /* NULL: unused */
	uint32_t number;              /* `name` of transport_path_add() */
	bool pending;                 /* connect() of the driver below `port` is in progress */
	uint32_t flow;                /* of lower_peer: NIC_ROUTE */
	uint32_t replaced;            /* address handle before it, until the poller releases it. NIC_PEER_NONE: none */
	struct nic_addr addr;         /* for the driver below `port` */
	uint8_t to[AUTH_PROOF_BYTES]; /* transport_auth_address() of it */
	_Atomic uint32_t lower_peer;  /* address handle. NIC_PEER_NONE: not made yet */
	_Atomic uint32_t held;        /* poller: the address handle that it uses */
};

/** All paths of a peer. Made with the first secondary one; freed with the connection. */
struct transport_paths {
	/* Poller. */
	struct transport_path path[1 + FAR_TRANSPORT_SECONDARY_PATHS_MAX];
	uint64_t decide_at; /* end of a probe of all paths, ns; valid while peer->probed_paths is not 0 */
	uint64_t probe_at;  /* no probe before, after a packet arrived by another path than ours, ns */
	uint64_t back_at;   /* no probe of better paths before, ns */
	/* Control. Entry 0 is not used. */
	struct transport_path_setup setup[1 + FAR_TRANSPORT_SECONDARY_PATHS_MAX];
	/* Number of the last PING about path k that has no WRONG_QUEUE answer. 0: none. Poller sets, control clears. */
	_Atomic uint32_t probe[1 + FAR_TRANSPORT_SECONDARY_PATHS_MAX];
	/* Number of the peer's PING to be answered WRONG_QUEUE: TRANSPORT_ORDER_MISROUTED. Control writes, poller
	 * reads. */
	_Atomic uint32_t misrouted[1 + FAR_TRANSPORT_SECONDARY_PATHS_MAX];
};

/* ---- control thread ---- */

/** Control: the driver below sibling `via` has made an address handle for a secondary path, or failed. */
void transport_path_event(struct transport_port *via, struct transport_path_setup *side, const struct nic_event *ev);
/** Control: allocates `paths_made`. false: no memory. */
bool transport_paths_make(struct transport_peer *peer);
/** Control: a PING about path `k` arrived at another queue: tries the next flow. */
void transport_path_next_flow(struct transport_port *p, struct transport_peer *peer, uint32_t k);
/** Control: drops the address handles that the poller has replaced. */
void transport_paths_released(struct transport_peer *peer);
/** Control: drops the address handles of all secondary paths. */
void transport_paths_drop(struct transport_peer *peer);
/** Control: returns true while the driver below makes a handle. */
bool transport_paths_pending(const struct transport_peer *peer);
/** Control, close(): removes all paths through this port. */
void transport_paths_part(struct transport_port *p);

/* ---- poller ---- */

/** Attaches the address handles of secondary paths that are new. */
void transport_paths_attach(struct transport_queue *q, struct transport_peer *p);
/** Sends a PING by each secondary path with a new flow, to find out whether it reaches the peer's queue. */
void transport_paths_verify(struct transport_peer *p);
/** Serves TRANSPORT_ORDER_MISROUTED: answers WRONG_QUEUE. */
void transport_path_report_misrouted(struct transport_peer *p, uint32_t due);
void transport_paths_detach(struct transport_queue *q, struct transport_peer *p);
/** Sets `failed_over`: not all packets of the peer use the primary path, or may not. */
void transport_set_failover(struct transport_queue *q, struct transport_peer *p, bool is);
/** Probes all paths: sends a PING by each. */
void transport_paths_probe(struct transport_queue *q, struct transport_peer *p, uint64_t now);
/** Records the answer to the PING about path `path` - 1. */
void transport_path_confirmed(struct transport_peer *p, uint32_t path);
/** A packet of the peer arrived by another queue than `via`: probes the paths, at most every
 * FAR_TRANSPORT_PATH_PROBE_NS. */
void transport_path_observed(struct transport_queue *q, struct transport_peer *p);
/** Answers a PING about a path by the path through `via`. false: no path leads through it. */
bool transport_path_answer(struct transport_queue *q, struct transport_peer *p, const struct transport_queue *via,
			   uint32_t path);
/** Timer scan of a peer with secondary paths: decides on a migration, probes better paths. */
void transport_paths_timer(struct transport_queue *q, struct transport_peer *p, uint64_t now, bool paused);

#endif
