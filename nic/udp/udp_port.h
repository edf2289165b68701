/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The port, its places and its queues. A queue has one socket for all addresses of both families, or one for each
 * address when it must not be reached at others. It sends through a batch of packets that leave at the flush, and
 * reads through a few buffers of the largest datagram.
 */
#ifndef NIC_UDP_PORT_H
#define NIC_UDP_PORT_H

#include "nic/udp/udp_config.h"
#include "nic/udp/udp_route.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <sys/uio.h>

/* UDP over IPv4: what the length field of IP leaves. Loopback's MTU allows all of it. */
#define UDP_BYTES_MAX    65507u
#define UDP_BYTES_MAX_V6 65487u
/* Of every path: larger packets than a path takes are cut by IP, so that nothing that is numbered gets stuck. */
#define UDP_BYTES_MIN  (UDP_MTU_MIN - 48u)
#define UDP_HEADERS_V4 28u
#define UDP_HEADERS_V6 48u

/* A worker's sessions, 16 x world, fit; an entry is touched when it is used. */
#define UDP_PLACES_MAX 65536u

/* Packets that wait for the flush, and their memory: all of them may be of the largest size, and one of them is lost
 * where the ring turns. */
#define UDP_SLOTS       128u
#define UDP_SLOT_BYTES  65536u
#define UDP_ARENA_BYTES ((UDP_SLOTS + 1) * UDP_SLOT_BYTES)
#define UDP_ALIGN       16u

/* What is committed leaves before the flush when it is so much: memory that is in the cache is copied once more. */
#define UDP_EARLY_BYTES   65536u
#define UDP_EARLY_PACKETS 64u

/* Of one message with segmentation offload: the kernel's UDP_MAX_SEGMENTS. */
#define UDP_SEGMENTS_MAX 64u
/* Large packets to a new place leave alone, so many: the kernel gives runs no don't-fragment bit, and without it nobody
 * would say that the path takes less. */
#define UDP_PROBES 8u
/* Of one system call. */
#define UDP_MESSAGES_MAX 32u

/* Datagrams, or trains of them, that are read at once, each into its buffer. */
#define UDP_READS     16u
#define UDP_RX_BUFFER 65536u

struct udp_port;

enum udp_place_state {
	UDP_PLACE_FREE,
	UDP_PLACE_PENDING, /* UP, or FAILED, is to be reported */
	UDP_PLACE_DROPPED, /* before that */
	UDP_PLACE_UP
};

/** Somewhere to send to. */
struct udp_place {
	/* The shard, once it is attached; the control core before. */
	struct sockaddr_in6 to; /* or sockaddr_in, by its length */
	uint8_t to_len;
	uint8_t socket;
	bool v4;            /* IPv4 packets leave, if only by a socket of IPv6 */
	bool segments;      /* segmentation offload is taken for this one */
	uint8_t probes;     /* large packets that left alone, up to UDP_PROBES */
	uint32_t bytes_max; /* largest body that IP need not cut */
	uint32_t cut_max;   /* largest body at all */
	uint32_t attached_at;
	struct udp_queue *attached_to;
	_Atomic int error;   /* of the last packet that was refused, positive; shard -> control core */
	_Atomic bool nobody; /* its host refused the port, and REFUSED has not been reported; writer: shard, then
				control core. Acquire and release, with udp_port.refusals */

	/* The control core. */
	struct udp_queue *queue;
	enum udp_place_state state;
	uint16_t remote_queue;
	bool no_such_queue; /* FAILED is to be reported */
	uint32_t next;      /* of the free ones or the pending ones; NIC_PEER_NONE: the last */
	void *user;
};

enum udp_slot_state { UDP_SLOT_OPEN, UDP_SLOT_READY, UDP_SLOT_TAKEN, UDP_SLOT_DONE };

/** A packet to be sent. */
struct udp_slot {
	uint32_t at, bytes; /* in the arena */
	uint32_t peer;      /* NIC_PEER_NONE: detached while it was open */
	uint8_t state;
	uint8_t tos; /* nic_dscp */
};

struct udp_socket {
	int fd;
	uint8_t family;
	bool dual;     /* IPv6 and mapped IPv4 */
	uint32_t heat; /* passes to go on polling it every time */
};

/** A datagram, or a train of equal ones that the kernel put together. */
struct udp_train {
	const uint8_t *at;
	uint32_t bytes, packets; /* left */
	uint32_t segment;        /* of all packets but the last */
};

/** What one system call reads into; always ready for the next. */
struct udp_reads {
	struct mmsghdr messages[UDP_READS];
	struct iovec iovs[UDP_READS];
	struct {
		alignas(struct cmsghdr) uint8_t bytes[CMSG_SPACE(sizeof(int))];
	} control[UDP_READS];
};

/** What one system call sends: messages, each of one packet or of a run of equal ones. */
struct udp_batch {
	unsigned messages_n, taken_n, iovs_n;
	struct mmsghdr messages[UDP_MESSAGES_MAX];
	struct {
		unsigned taken, packets; /* in taken[] */
	} of[UDP_MESSAGES_MAX];
	struct udp_slot *taken[UDP_SLOTS];
	struct iovec iovs[UDP_SLOTS];
	struct {
		alignas(struct cmsghdr) uint8_t bytes[CMSG_SPACE(sizeof(uint16_t)) + CMSG_SPACE(sizeof(int))];
	} control[UDP_MESSAGES_MAX];
};

/** Counters: written by the holder of the shard, read by anyone. */
struct udp_counters {
	_Atomic uint64_t rx_packets, tx_packets, rx_bytes, tx_bytes, rx_malformed, tx_dropped;
};

struct udp_queue {
	struct nic_queue base;
	struct udp_port *port;
	uint32_t sockets_n;

	/* Receiving, udp_recv.c. */
	uint32_t next_socket, passes, hot_n;
	uint32_t trains_n, next_train;
	bool busy;             /* several datagrams are read at once, with receive offload where that is allowed */
	bool armed, watched;   /* sockets are in the epoll set */
	uint32_t full_reads;   /* in a row, each of which found something; busy: as many as it asked for */
	uint32_t lonely_reads; /* in a row, each of which found one packet */
	uint32_t unarmed_reads;
	uint32_t reads_max; /* of the next one: as many as there were, and few when packets are large */
	uint8_t *rx;        /* UDP_READS buffers */
	struct udp_train trains[UDP_READS];
	struct udp_reads reads;

	/* Sending, udp_send.c. */
	uint32_t first_slot, slots_n; /* ring of slots: [first_slot, first_slot + slots_n) are in use */
	uint32_t ready_n, open_n;     /* of them: committed; neither committed nor cancelled */
	uint32_t ready_bytes;
	uint32_t arena_at; /* of the next packet */
	bool blocked;      /* the socket took no more: tried again by the next flush or recv */
	uint8_t *arena;
	struct udp_slot slots[UDP_SLOTS];
	struct udp_batch batch;

	struct udp_socket sockets[UDP_ADDRS_MAX];
	int epoll_fd, event_fd;
	uint32_t *attached; /* places, UDP_PLACES_MAX */
	uint32_t attached_n;
	uint32_t refused_last; /* place that an ICMP error named last */

	alignas(64) struct udp_counters counters;
	uint32_t index; /* the control core */
	uint16_t port_number;
};

struct udp_port {
	struct nic_port base;
	uint32_t queues_n, places_n; /* places below were used */
	struct udp_args args;
	struct udp_listen listen;
	struct udp_addr addr; /* published */
	struct udp_ifaces ifaces;
	uint64_t host, netns;
	uint32_t free_place, first_pending, last_pending;
	int pending_fd;        /* readable: step() has work */
	_Atomic bool refusals; /* some place's `nobody` is set */
	struct udp_place *places;
	struct udp_queue *queues[UDP_QUEUES_MAX];
};

extern const struct nic_queue_ops udp_queue_ops;

static inline struct udp_queue *udp_queue_of(const struct nic_queue *q)
{
	return (struct udp_queue *)q;
}

/* One writer, so no read-modify-write is needed. */
static inline void udp_count(_Atomic uint64_t *counter, uint64_t by)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by, memory_order_relaxed);
}

/* udp_socket.c: control core */

/** Opens the sockets of queue `q` as the port's listen and args say: 0, or -errno with the reason in `err`. */
int udp_sockets_open(struct udp_port *p, struct udp_queue *q, struct nic_err *err);
void udp_sockets_close(struct udp_queue *q);
/** udp_route_fn over the sockets of the port's queue 0: `ctx` is the port. */
int udp_ask_kernel(void *ctx, struct udp_route *route);
/** SO_RCVBUF and SO_SNDBUF of `bytes`, over the system's limit where that is permitted; returns what was got. */
unsigned udp_buffer_set(int fd, bool rcv, unsigned bytes);

/* udp_errors.c: the shard */

/** Takes what the socket's error queue holds: smaller path MTUs, and who refused. */
void udp_errors_take(struct udp_queue *q, struct udp_socket *s);

/* udp_send.c: the shard */

int udp_tx_reserve(struct nic_queue *nq, uint32_t peer, uint64_t body_len, struct nic_tx *tx);
int udp_tx_commit(struct nic_queue *nq, struct nic_tx *tx);
void udp_tx_cancel(struct nic_queue *nq, struct nic_tx *tx);
/** Sends what is committed, as far as the sockets take it. */
void udp_send_ready(struct udp_queue *q);
/** Forgets what is still to be sent to a place that is being detached. */
void udp_send_forget(struct udp_queue *q, uint32_t peer);

/* udp_recv.c: the shard */

unsigned udp_recv(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max);
/** Once, when the queue has its buffers. Control core. */
void udp_reads_prepare(struct udp_queue *q);
/** Changes between single reads and many at once. */
void udp_busy_set(struct udp_queue *q, bool busy);
void udp_arm(struct nic_queue *nq);
void udp_disarm(struct nic_queue *nq);

#endif
