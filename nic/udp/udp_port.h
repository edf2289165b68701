/* SPDX-License-Identifier: BSD-3-Clause */
/** The port, its destinations and its queues. A queue has one socket for all addresses of both families, or one for
 * each address if it listens at certain ones only. It sends a batch of packets at the flush, and receives into a few
 * buffers of the largest datagram. Fields of a queue belong to its poller (the thread that holds the queue's shard),
 * fields of a port to the control thread, unless the comment names another thread. */
#ifndef NIC_UDP_PORT_H
#define NIC_UDP_PORT_H

#include "nic/udp/udp_config.h"
#include "nic/udp/udp_route.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <sys/uio.h>

/* Largest UDP payload of IPv4 and IPv6. The MTU of loopback allows all of it. */
#define UDP_BYTES_MAX    65507u
#define UDP_BYTES_MAX_V6 65487u
/* A body that every path takes; IP fragments larger packets than a path takes, so that a retransmission always gets
 * through. */
#define UDP_BYTES_MIN  (UDP_MTU_MIN - 48u)
#define UDP_HEADERS_V4 28u
#define UDP_HEADERS_V6 48u

/* Enough for the sessions of a worker, 16 x world; an entry becomes resident when it is used. */
#define UDP_DESTS_MAX 65536u

/* Packets that wait for the flush, and their memory: all may have the largest size, and one such piece is lost where
 * the arena wraps. */
#define UDP_SLOTS       128u
#define UDP_SLOT_BYTES  65536u
#define UDP_ARENA_BYTES ((UDP_SLOTS + 1) * UDP_SLOT_BYTES)
#define UDP_ALIGN       16u

/* Committed packets are sent before the flush at these limits, while they are still in the cache. */
#define UDP_EARLY_BYTES   65536u
#define UDP_EARLY_PACKETS 64u

/* Packets of one message with segmentation offload: the kernel's UDP_MAX_SEGMENTS. */
#define UDP_SEGMENTS_MAX 64u
/* Large packets to a new destination that are sent without segmentation offload: the kernel sets no Don't Fragment bit
 * with it, and without that bit no router reports a smaller path MTU. */
#define UDP_PROBES 8u
/* Messages of one sendmmsg(). */
#define UDP_MESSAGES_MAX 32u

/* Datagrams, or GRO trains, per recvmmsg(), each with its buffer. */
#define UDP_READS     16u
#define UDP_RX_BUFFER 65536u
/* Packets of a receive that may have places (rx_place). */
#define UDP_PLACES_MAX 64u

struct udp_port;

enum udp_dest_state {
	UDP_DEST_FREE,
	UDP_DEST_PENDING, /* UP or FAILED is to be reported */
	UDP_DEST_DROPPED, /* dropped before that was reported */
	UDP_DEST_UP
};

/** A destination. */
struct udp_dest {
	/* The poller's while attached; the control thread's before. */
	struct sockaddr_in6 to; /* or sockaddr_in, by to_len */
	uint8_t to_len;
	/* index in udp_queue.sockets */
	uint8_t socket;
	bool v4;            /* packets are IPv4, possibly sent by an IPv6 socket */
	bool direct;        /* a loopback address that udp_queue.direct can be connected to */
	bool segments;      /* segmentation offload works for this destination */
	uint8_t probes;     /* large packets sent without segmentation offload, up to UDP_PROBES */
	uint32_t bytes_max; /* largest body that IP need not fragment; lowered by ICMP errors */
	uint32_t cut_max;   /* largest body */
	/* index in udp_queue.attached */
	uint32_t attached_at;
	struct udp_queue *attached_to;
	_Atomic int error;             /* errno of the last refused packet; 0: none. Poller -> control thread */
	_Atomic bool port_unreachable; /* port unreachable was received and REFUSED not reported. Set by the poller,
				cleared by the control thread; acquire and release, with udp_port.refusals */

	/* The control thread's. */
	struct udp_queue *queue;
	enum udp_dest_state state;
	uint16_t remote_queue;
	bool no_such_queue; /* FAILED is to be reported */
	uint32_t next;      /* next free or pending destination; NIC_PEER_NONE: the last */
	void *user;
};

enum udp_slot_state { UDP_SLOT_OPEN, UDP_SLOT_READY, UDP_SLOT_TAKEN, UDP_SLOT_DONE };

/** A packet to be sent. */
struct udp_slot {
	uint32_t at, bytes;  /* of the packet, its room in the arena */
	const uint8_t *tail; /* its last tail_bytes bytes lie here until the flush, and not in the arena */
	uint32_t tail_bytes;
	uint32_t peer; /* NIC_PEER_NONE: detached while the slot was open */
	uint8_t state;
	uint8_t tos; /* TOS byte, from nic_dscp */
};

struct udp_socket {
	int fd;
	uint8_t family;
	bool dual;           /* dual-stack: IPv6 and mapped IPv4 */
	uint32_t hot_passes; /* passes left in which the socket is polled every time */
};

/** The socket of udp_direct.c. */
struct udp_direct {
	struct udp_socket socket; /* fd -1: none */
	uint32_t peer;            /* it is connected to. NIC_PEER_NONE: none */
	uint32_t last, n;         /* peer of the last single packet by another socket, and these packets in a row */
};

/** A datagram, or a train of equal datagrams that GRO has joined. */
struct udp_train {
	const uint8_t *at;
	uint32_t bytes, packets; /* left to deliver */
	uint32_t segment;        /* bytes of each packet; the last may be smaller */
	uint32_t placed;         /* of `packets`, those whose bytes are in their places */
	uint8_t *place;          /* of the next one */
};

/** Arguments of rx_place(). */
struct udp_places {
	uint32_t n; /* 0: none */
	uint32_t head, each, bytes;
	uint8_t *at;
	/* Of a read, the pieces of each packet that has a place, and what follows these packets. */
	struct iovec iovs[2 * UDP_PLACES_MAX + UDP_READS];
};

/** The arguments of recvmmsg(), always prepared for the next call. */
struct udp_reads {
	struct mmsghdr messages[UDP_READS];
	struct iovec iovs[UDP_READS];
	struct {
		alignas(struct cmsghdr) uint8_t bytes[CMSG_SPACE(sizeof(int))];
	} control[UDP_READS];
};

/** The arguments of sendmmsg(): each message is one packet, or a run of equal ones with segmentation offload. */
struct udp_batch {
	unsigned messages_n, taken_n, iovs_n;
	struct mmsghdr messages[UDP_MESSAGES_MAX];
	struct {
		unsigned taken, packets; /* in taken[] */
	} of[UDP_MESSAGES_MAX];
	struct udp_slot *taken[UDP_SLOTS];
	struct iovec iovs[2 * UDP_SLOTS]; /* of a packet: in the arena, and its tail */
	struct {
		alignas(struct cmsghdr) uint8_t bytes[CMSG_SPACE(sizeof(uint16_t)) + CMSG_SPACE(sizeof(int))];
	} control[UDP_MESSAGES_MAX];
};

/** Counters: written by the poller, read by any thread. */
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
	bool batched;          /* several datagrams per system call, with receive offload where allowed */
	bool armed, in_epoll;  /* watched: the sockets are in the epoll set */
	uint32_t full_reads;   /* consecutive reads that found something; if busy, that were full */
	uint32_t single_reads; /* consecutive reads that found one packet */
	/* reads since arm() while the sockets are still in the epoll set */
	uint32_t unarmed_reads;
	uint32_t reads_max;    /* messages of the next recvmmsg(), adapted to the load */
	uint32_t double_after; /* full reads in a row until reads_max doubles */
	bool doubled;          /* the next read requests twice as many messages as the last one found */
	uint8_t *rx;           /* UDP_READS buffers */
	struct udp_train trains[UDP_READS];
	struct udp_reads reads;
	struct udp_places places;

	/* Sending, udp_send.c. */
	uint32_t first_slot, slots_n; /* slots in use: [first_slot, first_slot + slots_n), modulo UDP_SLOTS */
	uint32_t ready_n, open_n;     /* of these: committed; neither committed nor cancelled */
	uint32_t ready_bytes;
	uint32_t arena_at; /* arena offset of the next packet */
	bool blocked;      /* the socket buffer was full: retried by the next flush or recv */
	struct udp_direct direct;
	uint8_t *arena;
	struct udp_slot slots[UDP_SLOTS];
	struct udp_batch batch;

	struct udp_socket sockets[UDP_ADDRS_MAX];
	int epoll_fd, event_fd;
	uint32_t *attached; /* peers, UDP_DESTS_MAX entries */
	uint32_t attached_n;
	uint32_t refused_last; /* index in attached of the destination that the last ICMP error named */

	alignas(64) struct udp_counters counters;
	uint32_t index; /* the control thread's, as the next */
	uint16_t port_number;
};

struct udp_port {
	struct nic_port base;
	uint32_t queues_n, dests_n; /* dests_n: entries of places ever used */
	struct udp_args args;
	struct udp_listen listen;
	struct udp_addr addr; /* published */
	struct udp_ifaces ifaces;
	uint64_t host, netns;
	uint32_t free_dest, first_pending, last_pending;
	int pending_fd;        /* eventfd; readable: step() has work */
	_Atomic bool refusals; /* some destination's `port_unreachable` is set */
	struct udp_dest *dests;
	struct udp_queue *queues[UDP_QUEUES_MAX];
};

extern const struct nic_queue_ops udp_queue_ops;

static inline struct udp_queue *udp_queue_of(const struct nic_queue *q)
{
	return (struct udp_queue *)q;
}

/* Single writer, so no read-modify-write is needed. */
static inline void udp_count(_Atomic uint64_t *counter, uint64_t by)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by, memory_order_relaxed);
}

/* udp_socket.c: control thread */

/** Opens the sockets of queue `q` as listen and args of the port state: 0, or -errno with the reason in `err`. */
int udp_sockets_open(struct udp_port *p, struct udp_queue *q, struct nic_err *err);
void udp_sockets_close(struct udp_queue *q);
/** The udp_route_fn that queries the kernel through sockets like those of queue 0; `ctx` is the port. */
int udp_kernel_route(void *ctx, struct udp_route *route);
/** Sets SO_RCVBUF or SO_SNDBUF to `bytes`, beyond the system's limit if permitted; returns the resulting size. */
unsigned udp_buffer_set(int fd, bool rcv, unsigned bytes);

/* udp_errors.c: poller */

/** Reads the socket's error queue: smaller path MTUs and refusals. */
void udp_errors_take(struct udp_queue *q, struct udp_socket *s);

/* udp_send.c: poller */

int udp_tx_reserve(struct nic_queue *nq, uint32_t peer, uint64_t body_len, struct nic_tx *tx);
int udp_tx_commit(struct nic_queue *nq, struct nic_tx *tx);
void udp_tx_cancel(struct nic_queue *nq, struct nic_tx *tx);
void udp_tx_refer(struct nic_queue *nq, struct nic_tx *tx, const void *bytes, uint32_t len);
bool udp_tx_now(struct nic_queue *nq, uint32_t peer, const void *body, uint32_t body_len, unsigned priority);
void udp_flush(struct nic_queue *nq);
/** Sends committed packets until a socket buffer is full. */
void udp_send_ready(struct udp_queue *q);
/** Drops the unsent packets of a destination that is being detached. */
void udp_send_drop(struct udp_queue *q, uint32_t peer);

/* udp_direct.c: poller */

/** Counts a single packet to a peer with `direct` that udp_tx_now() has sent by another socket. */
void udp_direct_count(struct udp_queue *q, uint32_t peer);
/** Sends a packet to direct.peer. false: not sent, and there is no such peer any more. */
bool udp_direct_send(struct udp_queue *q, const void *body, uint32_t len);
/** For a peer that is being detached. */
void udp_direct_leave(struct udp_queue *q, uint32_t peer);

/* udp_recv.c: poller */

unsigned udp_recv(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max);
void udp_rx_place(struct nic_queue *nq, uint32_t head, uint8_t *at, uint32_t bytes, uint32_t each, uint32_t before);
/** Control thread: prepares the receive arguments, once. */
void udp_reads_prepare(struct udp_queue *q);
/** Switches between single reads and batched reads. */
void udp_batched_set(struct udp_queue *q, bool batched);
void udp_arm(struct nic_queue *nq);
void udp_disarm(struct nic_queue *nq);

#endif
