/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The contract between its caller and a NIC driver: a table of port operations and a table of queue operations.
 * nic/README.md explains it for authors of drivers.
 *
 * A port is one attachment to a network. Its operations are slow; the control thread calls them. A queue is one
 * receive/transmit pair of a port. Its operations are fast; the thread that holds the shard of the queue (the poller)
 * calls them. A packet is a head of a few bytes (the caller's header) and a body (the payload). A driver interprets
 * neither.
 *
 * There are two kinds of driver.
 * - A connected driver (`caps.connected`) sets connections up: NIC_EVENT_CONNECT reports a connect request to the
 * acceptor, a handshake payload travels each way, each received packet names its peer, and the end of a peer is
 * reported.
 * - A datagram driver has address handles only: connect() makes one, its UP reports that it exists, and the other port
 * is not involved. Received packets name no peer. NIC_EVENT_DOWN never occurs; NIC_EVENT_UNREACHABLE may.
 *
 * Whatever a driver does not promise in its caps, the caller adds above it.
 */
#ifndef FAR_NIC_H
#define FAR_NIC_H

#include "base/copy.h"
#include "nic/lane.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define NIC_ADDR_BYTES_MAX      232 /* of an address blob */
#define NIC_HANDSHAKE_BYTES_MAX 128 /* of a handshake payload */
#define NIC_TEXT_BYTES_MAX      320 /* of an error text, its final zero included */
#define NIC_PEER_NONE           UINT32_MAX
#define NIC_PEER_BULK           (UINT32_MAX - 1) /* nic_pkt.peer of a bulk event: struct nic_bulk_ops */

struct group_key;
struct nic_port;
struct nic_queue;

/** Published address of a port. Only the same driver reads the blob. Addresses come from other workers and are not
 * trusted: each function that takes one checks `len` and the whole blob. */
struct nic_addr {
	char driver[16]; /* name of the driver */
	uint16_t len; /* of blob, [0, NIC_ADDR_BYTES_MAX]. Datagram drivers: 208 at most; the layer above adds to it */
	uint8_t blob[NIC_ADDR_BYTES_MAX];
};

/** Which queue of a port receives a packet. */
enum nic_steering {
	NIC_STEER_QUEUE, /* the queue that connect() named */
	NIC_STEER_HASH   /* a hash of the flow selects it: the connecting side tries flows (NIC_ROUTE) until one fits */
};

/** Owner of the port's IP address. */
enum nic_ip {
	NIC_IP_NONE,   /* the port has no IP address */
	NIC_IP_KERNEL, /* the kernel, which uses it for other traffic too */
	NIC_IP_DRIVER  /* the driver alone */
};

/** What a driver promises. The caller leaves out what the driver does. */
struct nic_caps {
	bool connected;     /* connected driver, see above */
	bool reliable;      /* each committed packet arrives exactly once, or the peer is reported DOWN */
	bool ordered;       /* packets of one peer arrive in order of commit, except as nic_tx.order allows */
	bool crc;           /* a body arrives unchanged or not at all */
	bool authenticated; /* a packet comes from the peer that it names */
	bool one_sided;     /* nic_bulk_ops: remote read */
	bool zero_copy_rx;  /* bodies are read where they arrived */
	bool zero_copy_tx;  /* bodies leave from application memory */
	bool wake;          /* after arm(), an arrival makes wake_fd readable. false: the sender calls kick() */
	bool poll_costs;    /* recv() of an empty queue is a system call: do not call it on every pass */
	bool ip_fragments;  /* bodies for which tx_bytes_max() has become too small are sent in IP fragments */
	bool pair_rings;    /* datagram drivers: packets of a sender wait in memory, in a ring that only it fills */
	bool checksum;      /* the device or the kernel computes IP and UDP checksums. false: the driver does */
	enum nic_steering steering;
	enum nic_ip ip;
	uint32_t head_bytes_max;   /* largest head. 0: datagram driver, whose packets are body only */
	uint32_t inline_bytes_max; /* head + body that fit one cache line. 0: no such packets */
	uint32_t headroom_bytes;   /* reserved in front of a packet, for network headers */
	uint32_t body_align;       /* of received bodies: a power of two, at least 1 */
	uint64_t body_bytes_max;   /* largest body. Datagram drivers: tx_bytes_max() may be lower for a peer */
	uint64_t release_ns;       /* a committed body is released within this time without further traffic. 0: by
				   tx_commit(), which copies. UINT64_MAX: unbounded, hence no zero_copy_tx */
	uint32_t slots;            /* packets in flight towards one peer before -EAGAIN, at least */
	uint64_t bulk_bytes_min;   /* one_sided: shorter messages are faster in packets */
	uint32_t rx_slots;         /* packets that a queue stores until recv(), of all peers together. 0: many, or
				      unknown */
	uint32_t peers_max;        /* peer numbers are below it */
	uint32_t queues_max;
};

/** Counters of a port since open(), all queues together. A driver leaves those at 0 that it does not count. */
struct nic_stats {
	uint64_t rx_packets, tx_packets, rx_bytes, tx_bytes;
	uint64_t rx_unexpected; /* for another receiver: other protocols, ports, addresses, users of the device */
	uint64_t rx_malformed;  /* for this port, with wrong lengths, checksums or versions */
	uint64_t rx_missed;     /* dropped by the device or kernel for lack of room */
	uint64_t tx_dropped;    /* committed, but rejected by the device or kernel */
	uint64_t kicks;         /* wake-ups sent to sleeping peers */
	uint64_t refused;       /* connect requests of unauthenticated peers, and malformed ones */
};

/** Error text. A function fills `text` on each failure that needs more explanation than its errno. */
struct nic_err {
	char text[NIC_TEXT_BYTES_MAX];
};

/**
 * Memory budget of the process. A driver charges to it what it allocates by traffic and by peer. Any thread. No system
 * call, unless a container limits memory.
 */
struct nic_budget {
	bool (*take)(uint64_t bytes);  /* charges them. false: over budget, nothing is charged */
	void (*force)(uint64_t bytes); /* charges memory that cannot be refused */
	void (*give)(uint64_t bytes);  /* credits them */
	bool (*is_short)(void);        /* true: return unused memory to the system */
};

/** Options of open() and probe(). Strings and pointers are the caller's; a driver copies what it keeps, except where
 * noted. */
struct nic_config {
	const char *runtime_dir;     /* directory of sockets. NULL: default of engine/base/runtime_dir.h */
	uint64_t id;                 /* names this port's socket: incarnation of the worker */
	bool any_user;               /* accept peers of other users (security=none) */
	bool beyond_host;            /* accept other hosts (a group key, or security=none). false: loopback and this
					machine's addresses */
	const struct group_key *key; /* both ends prove it in each set-up (base/group_key.h). NULL: security=none.
					Outlives the port */
	unsigned queues;             /* one per shard, [1, caps.queues_max]; open() returns -EINVAL otherwise */
	unsigned head_bytes;         /* of each packet's head, [1, caps.head_bytes_max]; 0 for datagram drivers */
	const char *args;   /* options of the driver, the text behind ':' in nic=. NULL: none. An unknown word is
			       -EINVAL, and `err` names it */
	const char *listen; /* interface name, subnet (a.b.c.d/n, or IPv6) or address to bind. NULL: any */
	/** Finds the registrable block of the caller's memory that contains [at, at + len); its address is fixed from
	 * then on. false: the range is in no such block. Control thread. NULL: the caller has no such memory. */
	bool (*memory_block)(const void *at, size_t len, void **base, size_t *bytes);
	const void *memory; /* [memory, memory + memory_bytes) contains all those blocks. memory_bytes 0: unknown */
	uint64_t memory_bytes;
	const struct nic_budget *budget; /* outlives the port. NULL: no budget */
	const char *advertise; /* address[:port[-port]] to publish instead of the bound one (NAT). NULL: the bound one
				*/
};

enum nic_event_type {
	NIC_EVENT_CONNECT, /* connect request. The callback returns 0 to accept, and fills reply; -errno rejects */
	NIC_EVENT_UP, /* `peer` can be attached. Connecting side: `handshake` is the payload of the acceptor's reply */
	NIC_EVENT_DOWN,       /* the peer's process or connection is gone. Packets that arrived can still be received */
	NIC_EVENT_FAILED,     /* connect() failed: `error`, `text` */
	NIC_EVENT_UNREACHABLE /* an ICMP error or the like: no socket has the port that `peer` is sent to. Anybody can
			     forge it, so it proves nothing. During a connect() `peer` is NIC_PEER_NONE */
};

struct nic_event {
	enum nic_event_type type;
	uint32_t peer;         /* UP, DOWN: [0, caps.peers_max), unique until drop(). NIC_PEER_NONE otherwise */
	uint32_t queue;        /* CONNECT, UP, DOWN: queue of this port that the peer belongs to */
	void *user;            /* connect()'s. NULL on the accepting side */
	const void *handshake; /* CONNECT, UP: handshake payload of the other side */
	size_t handshake_len;
	void *reply; /* CONNECT: buffer of NIC_HANDSHAKE_BYTES_MAX for the acceptor's handshake payload */
	size_t *reply_len;
	int error;        /* FAILED, DOWN: -errno */
	const char *text; /* FAILED, DOWN: explanation */
};
typedef int nic_event_fn(void *ctx, const struct nic_event *event);

/** A peer to connect to. */
struct nic_connect {
	unsigned queue; /* of this port */
	const struct nic_addr *addr;
	unsigned remote_queue; /* with NIC_STEER_HASH NIC_ROUTE(queue, flow): each flow may arrive at another queue */
	const void *handshake; /* payload; NULL if the length is 0 */
	size_t handshake_len;
	uint64_t deadline; /* absolute, CLOCK_MONOTONIC ns */
	void *user;        /* for UP or FAILED */
};

/** Port operations. Called by the control thread, except where noted. They may make system calls and never wait for a
 * peer. They return 0 or -errno. */
struct nic_port_ops {
	const char *name;
	/** Checks whether the driver works on this machine. 0: yes, `err` may contain a remark. -errno: `err` contains
	 * the reason and the remedy. Leaves nothing behind. */
	int (*probe)(const struct nic_config *config, struct nic_err *err);
	/** Opens a port with `config->queues` queues. Leaves nothing behind on failure. */
	int (*open)(const struct nic_config *config, struct nic_port **out, struct nic_err *err);
	/** Closes a port whose queues are idle and whose peers are detached. Its peers get DOWN. */
	void (*close)(struct nic_port *port);
	void (*caps)(const struct nic_port *port, struct nic_caps *out);
	void (*address)(const struct nic_port *port, struct nic_addr *out);
	/** Returns true if packets to this address handle, UP, stay in the memory of this host: its address is a
	 * loopback address, or the device is memory. The caller may omit its checksum. NULL: false. */
	bool (*is_loopback)(const struct nic_port *port, uint32_t peer);
	/** Formats a published address for messages: "udp 10.0.0.5:7000", printable, one line. Loads nothing, sends
	 * nothing. Any thread. */
	void (*address_text)(const struct nic_addr *addr, char *out, size_t cap);
	/**
	 * Checks whether connect() to this address of the same driver can succeed. -errno: it cannot, and `err`
	 * contains the reason (another host's loopback, a directory of another file system, no route). 0: `err` may
	 * contain a remark on earlier packets to it (a firewall rejected them). Sends nothing, waits for nothing.
	 */
	int (*reach)(const struct nic_port *port, const struct nic_addr *addr, struct nic_err *err);
	/** Reads the counters, which may be a moment old. Any thread. */
	void (*stats)(const struct nic_port *port, struct nic_stats *out);
	/** Returns queue i of [0, queues), which exists until close(). */
	struct nic_queue *(*queue)(struct nic_port *port, unsigned i);
	/**
	 * Connected drivers: starts to connect `queue` to `remote_queue` of the port at `addr`. step() reports UP or
	 * FAILED with `user` by `deadline`. The port's own address connects a queue to itself as one peer (one UP, no
	 * CONNECT), or two of its queues as two peers, with the events of both sides: CONNECT; UP at `remote_queue`
	 * without user; UP at `queue` with `user`.
	 *
	 * Datagram drivers: makes an address handle of `queue`. step() reports UP (without payload) or FAILED with
	 * `user`. Each call makes a new handle, also for an address that has one. The handshake payload is not sent.
	 *
	 * Copies what `c` points to.
	 */
	int (*connect)(struct nic_port *port, const struct nic_connect *c, struct nic_err *err);
	/** Does pending work and reports events. Returns the absolute time by which to call it again; UINT64_MAX: no
	 * such time. */
	uint64_t (*step)(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx);
	/** Returns a descriptor that is readable when step() has work. */
	int (*fd)(const struct nic_port *port);
	/** Frees a peer that is detached from its queue or was never attached. Its number may be used again. Connected
	 * drivers close the connection; the other end gets DOWN. */
	void (*drop)(struct nic_port *port, uint32_t peer);
	/**
	 * Registers memory for bulk: pins it and maps it for the device until mem_unregister(), which returns -EBUSY
	 * while a transfer uses it. Takes as long as the kernel takes to pin the pages. Any thread. NULL: bulk needs no
	 * registration, or the driver has no bulk. -ENOMEM: RLIMIT_MEMLOCK, `err` contains the remedy. -ENOSPC: too
	 * many registrations. -EINVAL: empty, or not registered. -EOPNOTSUPP: this port has no bulk. -ENODEV: the
	 * device is gone.
	 */
	int (*mem_register)(struct nic_port *port, void *base, size_t bytes, struct nic_err *err);
	int (*mem_unregister)(struct nic_port *port, void *base, size_t bytes, struct nic_err *err);
	/** Writes what the driver finds on this machine and how to improve it: complete lines of text. Closes what it
	 * opens. NULL: no advice. */
	void (*advice)(char *out, size_t cap);
};

/** A received packet. */
struct nic_pkt {
	const uint8_t *head; /* head_bytes of memory that a peer may write: copy, check, then use. Undefined for
			      * datagram drivers without rx_place(). NULL: the peer violated the driver's protocol;
			      * only `peer` is valid */
	const uint8_t *body; /* if directly behind the head, both lie in a struct nic_line. Aligned to caps.body_align;
			      * to 64 if it is larger than an inline_bytes_max > 0. A peer may be able to write it. NULL
			      * when body_len is 0 */
	uint64_t body_len;   /* checked by the driver: body[0, body_len) is readable */
	uint64_t cookie;     /* 0: valid until the next recv(). Otherwise valid until release() */
	uint32_t peer;       /* NIC_PEER_NONE with datagram drivers; NIC_PEER_BULK: an event, struct nic_bulk_ops */
};

/**
 * Ordering of a packet relative to others for the same peer. A driver may always keep the order of commits. A reliable
 * layer over datagrams lets small packets pass larger ones, and larger ones pass late ones, as far as this allows.
 */
enum nic_order {
	NIC_ORDER_ALL,    /* behind all packets committed before it */
	NIC_ORDER_STREAM, /* behind all ALL and STREAM packets committed before it */
	NIC_ORDER_NONE    /* small packets keep their order among themselves; nothing else */
};

/* Packet priority, 0 (default, lowest) to NIC_PRIORITY_MAX. */
#define NIC_PRIORITY_MAX 7u

/** A packet that is being written. */
struct nic_tx {
	uint8_t *head; /* head_bytes, aligned to 4, to be written before commit. May point into head_room: do not move
			  or copy the struct */
	uint8_t *body; /* connected drivers: aligned to 64, or to 32 if it shares the head's line. Write only: content
			  is undefined */
	uint64_t body_len;
	uint64_t cookie;   /* the driver's */
	void *driver_data; /* the driver's */
	uint32_t peer;
	uint8_t order;    /* enum nic_order. tx_reserve() of a driver that uses it sets ALL; the caller may change it */
	uint8_t priority; /* [0, NIC_PRIORITY_MAX]. tx_reserve() sets 0; the caller may change it. The network sends
			     higher ones first, so packets of different priority may overtake each other */
	alignas(8) uint8_t head_room[48];
};

struct nic_raw_ops;
struct nic_bulk_ops;

/** Receive placement: where a driver writes a message body that arrives in several packets. */
struct nic_placement {
	uint8_t *at; /* room for the whole body, inside the memory of `owner` */
	void *owner; /* its reference count; one reference passes to the driver, which returns it with the packet */
};
/** Called by recv() when part of a message has arrived. `head` is its head, `len` the length of its body. true: the
 * driver writes the body at out->at. false: it uses memory of its own. recv() returns the message when it is complete,
 * with its body at `at`, unless the peer ends first. */
typedef bool nic_placement_fn(void *ctx, uint32_t peer, const uint8_t *head, uint64_t len, struct nic_placement *out);

/**
 * Queue operations. Called by the thread that holds the shard of the queue, except where noted. They take no lock,
 * allocate no memory, and make no system calls except where noted.
 *
 * Memory that a driver keeps beyond a call has an owner: an object of the caller with a reference count, opaque here.
 * Its type is fixed between caller and implementation; engine/transport/transport.h names it for the engine.
 */
struct nic_queue_ops {
	/** Starts polling a peer that is UP at this queue. -EINVAL: it is not, or is attached already. */
	int (*attach)(struct nic_queue *q, uint32_t peer);
	/** Stops polling it. drop() may follow. Packets that were committed and not flushed may be lost. Held packets
	 * must still be released, which has no effect. */
	void (*detach)(struct nic_queue *q, uint32_t peer);
	/** Returns up to `max` packets. Ends the validity of the last burst, except packets with a cookie. If an armed
	 * queue returns 0, no packet is left that arrived before arm(), or wake_fd is readable. */
	unsigned (*recv)(struct nic_queue *q, struct nic_pkt *pkts, unsigned max);
	/**
	 * Offers places for the bytes behind the first `head` of the next recv()'s packets: of packet i, at + i *
	 * `each`, `each` bytes long; the last one ends at at + `bytes`. It may write all of them. A packet in its place
	 * has nic_pkt.head there and not equal to nic_pkt.body, which has room for them behind its head: the caller may
	 * copy them there. `before` bytes in front of `at` are the caller's, too: the driver may write to them while
	 * recv() runs, and restores them. Datagram drivers. NULL: no packet gets a place.
	 */
	void (*rx_place)(struct nic_queue *q, uint32_t head, uint8_t *at, uint32_t bytes, uint32_t each,
			 uint32_t before);
	/** Returns a packet with a cookie to the driver: exactly once, in any order. */
	void (*release)(struct nic_queue *q, uint32_t peer, uint64_t cookie);
	/**
	 * Reserves room for one packet; the caller owns it until commit or cancel. A small packet (head and body within
	 * inline_bytes_max) must be committed or cancelled before the next reserve or commit. Larger ones may be open
	 * at the same time, and be committed or cancelled in any order. -EAGAIN: the ring is full. -ENOBUFS: no memory
	 * for the body until others are released. -ENOMEM: over the process's budget, and no release will help.
	 * -EMSGSIZE: body too large. -EPIPE: not attached.
	 */
	int (*tx_reserve)(struct nic_queue *q, uint32_t peer, uint64_t body_len, struct nic_tx *tx);
	/**
	 * Zero-copy variant of tx_reserve(): the body is sent from `body`, also by devices. It must not change until
	 * the driver releases its reference of `owner`. On success the driver has taken one reference; tx_cancel()
	 * releases it at once. The caller does not write tx->body. NULL: the driver copies bodies.
	 */
	int (*tx_zero_copy)(struct nic_queue *q, uint32_t peer, const void *body, uint64_t body_len, void *owner,
			    struct nic_tx *tx);
	/**
	 * Variant of tx_reserve() for a body that is written already, and that the caller may change once tx_commit()
	 * has returned. The caller does not write tx->body. tx_commit() sends from `body` while the peer takes it,
	 * which may last as long as the transfer, and copies the rest; packets that arrive meanwhile are received, and
	 * returned by the next recv(). -EOPNOTSUPP: not this body; use tx_reserve(). NULL: none.
	 */
	int (*tx_borrow)(struct nic_queue *q, uint32_t peer, const void *body, uint64_t body_len, struct nic_tx *tx);
	/** Copies to the body of a reserved packet, faster than memcpy() for FAR_STREAM_BYTES_MIN and more. NULL: it is
	 * not. */
	copy_fn *tx_copy;
	/** The last `len` bytes of the body are sent from `bytes`, which must not change before the next flush() has
	 * returned; the caller does not write them to tx->body. Between tx_reserve() and tx_commit(). NULL: it must. */
	void (*tx_refer)(struct nic_queue *q, struct nic_tx *tx, const void *bytes, uint32_t len);
	/**
	 * Sends a packet at once, which is neither reserved nor flushed; its bytes are read before it returns. One
	 * system call. false: nothing was sent, since packets are reserved or committed and not flushed, or for another
	 * reason; use tx_reserve(). Datagram drivers. NULL: none.
	 */
	bool (*tx_now)(struct nic_queue *q, uint32_t peer, const void *body, uint32_t body_len, unsigned priority);
	/** Returns how many packets can be committed now for this peer; may be too low. 0: not attached, or none. */
	uint32_t (*tx_room)(struct nic_queue *q, uint32_t peer);
	/** Returns the largest body for this peer now. With datagram drivers path MTU discovery may lower it, down to
	 * 1024 at the least unless it was lower from the start: packets of that size can be retransmitted unchanged. */
	uint64_t (*tx_bytes_max)(struct nic_queue *q, uint32_t peer);
	/**
	 * Returns the bytes of committed bodies that are not on the wire yet. If they exceed `most`, deadline() returns
	 * the time to call this again, until it is called. NULL: unknown, or too expensive.
	 */
	uint64_t (*tx_waiting)(struct nic_queue *q, uint64_t most);
	/**
	 * Hands the packet to the driver. The peer may receive it from now on; after flush() it does. -EAGAIN: the ring
	 * became full meanwhile (large packets only), or the rest of it is reserved for NIC_PRIORITY_MAX; the caller
	 * still owns the room.
	 */
	int (*tx_commit)(struct nic_queue *q, struct nic_tx *tx);
	/** Gives reserved room back. */
	void (*tx_cancel)(struct nic_queue *q, struct nic_tx *tx);
	/** Publishes all commits and wakes the peers that sleep: at most one system call per peer. */
	void (*flush)(struct nic_queue *q);
	/** Makes later arrivals wake this queue. The caller polls once more before it sleeps on wake_fd. */
	void (*arm)(struct nic_queue *q);
	void (*disarm)(struct nic_queue *q);
	/** Returns a descriptor that is readable after a wake-up; wake_clear() resets it. */
	int (*wake_fd)(const struct nic_queue *q);
	void (*wake_clear)(struct nic_queue *q);
	/** Makes wake_fd readable. Any thread. One system call. */
	void (*wake)(struct nic_queue *q);
	/** Sends a wake-up to the queue of the peer; it may be lost. One system call. For datagram drivers without
	 * caps.wake. NULL: flush() wakes peers. */
	void (*kick)(struct nic_queue *q, uint32_t peer);
	/** Returns the time by which recv() must be called even if nothing arrives (absolute, CLOCK_MONOTONIC ns);
	 * UINT64_MAX: none. Valid until the next operation. */
	uint64_t (*deadline)(const struct nic_queue *q);
	/** Returns unused memory to the system. May make system calls. NULL: nothing to return. */
	void (*trim)(struct nic_queue *q);
	/**
	 * Sets the callback that returns true while the caller awaits something from a peer. The driver probes a peer
	 * that is silent and awaited, and reports DOWN if it stays silent. Called on the queue's thread. Set before the
	 * first attach(). NULL: the driver detects the end of a peer by itself.
	 */
	void (*set_liveness_callback)(struct nic_queue *q, bool (*awaits_reply)(void *ctx, uint32_t peer), void *ctx);
	/** Sets the receive placement callback. It runs on the queue's thread. Set before the first attach(). NULL: the
	 * driver receives each message in one packet. */
	void (*set_placement)(struct nic_queue *q, nic_placement_fn *place, void *ctx);
	/** Prefetches the cache lines that sending to this peer uses. A hint without other effect. NULL: there is
	 * nothing to prefetch. */
	void (*prefetch)(struct nic_queue *q, uint32_t peer);
	/* Pulls: the receiver of a message copies it from the memory of the sending process. NULL, both: the driver has
	 * none. */
	/** True if the peer can pull from this process. */
	bool (*peer_pulls)(struct nic_queue *q, uint32_t peer);
	/**
	 * Copies the ranges `from` of the memory of the peer's process to the ranges `to`, of the same length in all;
	 * in this order, and a range after the one before it. One system call. 0, or -errno when not all was copied:
	 * -EOPNOTSUPP: this process cannot pull from the peer (any more). -EFAULT: the peer has no such memory. The
	 * peer chooses the addresses in `from`, and may write to that memory meanwhile.
	 */
	int (*pull)(struct nic_queue *q, uint32_t peer, const struct iovec *to, unsigned to_n, const struct iovec *from,
		    unsigned from_n);
	/* Memory by reference (base/shared.h): the receiver of a message reads it in the sender's memory. NULL, all
	 * three: the driver has none. */
	/**
	 * Makes a reference for the peer to [at, at + len) of shared memory of this process. -EAGAIN: the peer has not
	 * mapped the memory; the first call offers it. -EOPNOTSUPP: it lies in no shared memory, or the peer takes
	 * none. One system call, once for each memory and peer.
	 */
	int (*refer)(struct nic_queue *q, uint32_t peer, const void *at, uint64_t len, uint64_t *reference);
	/**
	 * Finds the `len` bytes of a reference of the peer: `*at` is readable until unmap(*hold), also when the peer or
	 * its process has ended. The peer chooses reference and length, and may write to the memory meanwhile. -EINVAL:
	 * they are not within a memory of the peer that is mapped here.
	 */
	int (*map)(struct nic_queue *q, uint32_t peer, uint64_t reference, uint64_t len, const uint8_t **at,
		   void **hold);
	/** Ends a map(). Any thread, also when the port is closed. May make a system call. */
	void (*unmap)(void *hold);
	/* Lanes (nic/lane.h). NULL, all three: the driver has none. NULL, the last two: only for sending. */
	/** Sets *at, which points to a lane without room, to the lane of an attached peer: now, or until detach()
	 * whenever the peer gets one; and back when it has none. */
	void (*lane)(struct nic_queue *q, uint32_t peer, struct nic_lane **at);
	/** As recv(), from a lane in lanes.hot: opens packets that the caller does not open itself. */
	unsigned (*recv_lane)(struct nic_queue *q, struct nic_lane *lane, struct nic_pkt *pkts, unsigned max);
	/** As recv(), from all peers without a lane in lanes.hot, which may change. Called in every pass in which
	 * lanes.cold_n is not 0. */
	unsigned (*recv_cold)(struct nic_queue *q, struct nic_pkt *pkts, unsigned max);
	const struct nic_raw_ops *raw;   /* NULL: no device below */
	const struct nic_bulk_ops *bulk; /* NULL: no caps.one_sided */
};

/**
 * Raw packets on the device below a queue, without what the driver adds: the baseline of `farcall perf`. All of their
 * bytes are written, and read by the receiver. Called by the thread that holds the shard of the queue, which neither
 * sends nor receives anything else meanwhile.
 */
struct nic_raw_ops {
	/** Sends up to `n` packets of `bytes` bytes (network headers not counted, at least 16) to the address of
	 * `peer`, with numbers from `first` on. Returns how many the device accepted. */
	unsigned (*tx)(struct nic_queue *q, uint32_t peer, uint64_t first, unsigned n, unsigned bytes);
	/** Takes up to `max` packets from the device and drops all that are not raw ones. Returns the number of raw
	 * ones; `last` is the number of the last. */
	unsigned (*rx)(struct nic_queue *q, unsigned max, uint64_t *last);
};

/** Key of exposed memory. The exposing side sends it to the reading side in a message of its own. */
struct nic_bulk_key {
	uint64_t key, addr; /* the driver's. From a peer: not trusted, passed to read() only */
};

/** Bulk events. recv() returns each as a packet with peer NIC_PEER_BULK, no head and no body: body_len is the event,
 * cookie the `user` of expose() or read(). It is not released. */
enum nic_bulk_event {
	NIC_BULK_EXPOSED = 1, /* the peer can read it from now on */
	NIC_BULK_WITHDRAWN,   /* nobody can read it any more: withdrawn, or its connection is over */
	NIC_BULK_READ,        /* all bytes were read */
	NIC_BULK_READ_FAILED  /* some may have been; the device writes no more. A retry may fail the same way */
};

/**
 * Bulk transfer without packets: the sender exposes the bytes to one peer, that peer reads them. Only exposed memory
 * can be read, only by that peer, and only until it is withdrawn. Time-outs, access errors and broken connections come
 * as events: one WITHDRAWN for each expose(), one READ or READ_FAILED for each read(). The memory belongs to the driver
 * until that event. Called by the thread that holds the shard of the queue. Nothing blocks.
 */
struct nic_bulk_ops {
	/** Exposes at[0, len) to the peer. `*key` is for the peer, valid from EXPOSED on. -EAGAIN: not now: a
	 * connection is being set up, memory is being registered, or too much is exposed. -EOPNOTSUPP: the peer has no
	 * bulk. -ENOMEM: the memory cannot be registered. -EPIPE, -EINVAL. */
	int (*expose)(struct nic_queue *q, uint32_t peer, const void *at, uint64_t len, uint64_t user, uint32_t *handle,
		      struct nic_bulk_key *key);
	/** Ends an exposure. WITHDRAWN follows, unless it has come. */
	void (*withdraw)(struct nic_queue *q, uint32_t handle);
	/** Reads `len` bytes from `offset` on of what was exposed with this key. -EAGAIN: too many reads are in flight;
	 * retry after an event. -ENOTCONN: the connection of the key does not exist (any more). -ENOMEM: `to` is not
	 * registered (yet). -EPIPE, -EINVAL, -EOPNOTSUPP. */
	int (*read)(struct nic_queue *q, uint32_t peer, const struct nic_bulk_key *key, uint64_t offset, void *to,
		    uint32_t len, uint64_t user);
};

/** `remote_queue` of connect() for datagram drivers that steer by hash: a queue, and the number of a flow (a UDP source
 * port, for example), [0, NIC_FLOWS). */
#define NIC_ROUTE(queue, flow) ((queue) | (flow) << 16)
#define NIC_ROUTE_QUEUE(route) ((route)&0xffffu)
#define NIC_ROUTE_FLOW(route)  ((route) >> 16)
#define NIC_FLOWS              65536u

/** First member of every driver's queue. */
struct nic_queue {
	const struct nic_queue_ops *ops;
	struct nic_lanes lanes;
	/* Written by recv(), with caps.poll_costs: all packets of the last system call are returned, so the next recv()
	 * makes another one. Packets that this one returned may be answered before. */
	bool drained;
};

/** First member of every driver's port. */
struct nic_port {
	const struct nic_port_ops *ops;
};

/** Drivers built into the library that nic=auto may select, best first. Ends with NULL. */
extern const struct nic_port_ops *const nic_drivers[];

/** All names that nic_find() accepts, best first, modules and shims included. Ends with NULL. */
extern const char *const nic_names[];

/**
 * Finds a driver by name, in the library or in a module. A module is loaded now and stays. NULL: unknown name, or the
 * module cannot be loaded; `err` contains the reason and the remedy. Any thread but a poller.
 */
const struct nic_port_ops *nic_find(const char *name, struct nic_err *err);

extern const struct nic_port_ops nic_shm_port_ops;
extern const struct nic_port_ops nic_udp_port_ops;
extern const struct nic_port_ops nic_lossy_port_ops;

#endif
