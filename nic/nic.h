/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The contract between the engine and a NIC driver: two tables. nic/README.md explains it for whoever writes a driver.
 *
 * A port is one attachment to a network; its operations are slow and run on the control core. A queue is one
 * receive/transmit pair of a port; its operations are fast and run on the one thread that holds the shard that owns the
 * queue. A packet is a head of a few bytes (the engine's header) and a body (the payload); a driver interprets neither.
 *
 * There are two kinds of driver. A connected one (`caps.connected`) has an other side that accepts: words travel both
 * ways in the set-up, every packet names its peer, and the end of a peer is reported. A datagram driver only knows
 * places to send to: its UP says that there is one, nobody accepts, received packets name no peer, and nothing is ever
 * reported DOWN, at most REFUSED. What such a driver lacks, engine/transport adds: to the rest of the engine all ports
 * look connected and reliable.
 */
#ifndef FAR_NIC_H
#define FAR_NIC_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NIC_ADDR_BYTES_MAX  232 /* of an address blob */
#define NIC_HELLO_BYTES_MAX 128 /* of the engine's words in a connection set-up */
#define NIC_TEXT_BYTES_MAX  320 /* of an error text */
#define NIC_PEER_NONE       UINT32_MAX
#define NIC_PEER_BULK       (UINT32_MAX - 1) /* of what recv() says of bulk: struct nic_bulk_ops */

struct group_key;
struct nic_port;
struct nic_queue;

/** Where a port can be reached, as published in the store: bytes that only the same driver on another worker reads.
 * Members are not to be trusted: `len` and all of the blob are checked by whoever is given one. */
struct nic_addr {
	char driver[16];
	uint16_t len; /* of blob, [0, NIC_ADDR_BYTES_MAX]; 208 at most for datagram drivers: engine/transport adds to it
		       */
	uint8_t blob[NIC_ADDR_BYTES_MAX];
};

/** Where a packet arrives at a port of several queues. */
enum nic_steering {
	NIC_STEER_QUEUE, /* at the queue that connect() named */
	NIC_STEER_HASH   /* at one that depends on the path: who connects tries paths until it is the right one */
};

/** Whose the IP address is. */
enum nic_ip {
	NIC_IP_NONE,   /* there is none */
	NIC_IP_KERNEL, /* the kernel's, which goes on using it for everything else */
	NIC_IP_DRIVER  /* the driver's alone */
};

/** What a driver promises; the engine leaves out what it need not do itself. */
struct nic_caps {
	bool connected;     /* see above */
	bool reliable;      /* what is committed arrives exactly once, or the peer is reported down */
	bool ordered;       /* per peer, in the order of commit, but for what nic_tx.order allows */
	bool crc;           /* a body arrives as it was sent, or not at all */
	bool authenticated; /* a packet is from the peer it names */
	bool one_sided;     /* bulk by remote read or write */
	bool zero_copy_rx;  /* bodies are read where they arrived */
	bool zero_copy_tx;  /* bodies leave from application memory */
	bool wake;          /* arm() makes a later arrival wake the queue's wake_fd; else kick() does */
	bool poll_costs;    /* recv() of an empty queue is a system call: not to be made in every pass for nothing */
	bool checksum;      /* of IP and UDP, by the device or the kernel; else the driver computes them */
	enum nic_steering steering;
	enum nic_ip ip;
	uint32_t head_bytes_max;   /* largest head; a datagram driver takes 0, all of a packet is body then */
	uint32_t inline_bytes_max; /* head + body that travel in one line; 0: there is no such thing */
	uint32_t headroom_bytes;   /* in front of a packet, for the headers of the network */
	uint32_t body_align;       /* of received bodies, power of two, 1 at least */
	uint64_t body_bytes_max;   /* largest body; a datagram driver's peers may take less: tx_bytes_max() */
	uint64_t reap_ns;          /* what was committed is let go of within this time without further traffic;
				      0: by tx_commit(), which copies. UINT64_MAX: unbounded, so no zero_copy_tx */
	uint32_t slots;            /* packets that can be in flight towards one peer, at least, before -EAGAIN */
	uint64_t bulk_bytes_min;   /* one_sided: what is shorter is better sent in packets */
	uint32_t rx_slots;  /* packets that a queue holds until recv(), all peers together; 0: many, or unknown */
	uint32_t peers_max; /* their numbers are below it */
	uint32_t queues_max;
};

/** Counters of a port, all its queues together. What a driver has no such thing of stays 0. */
struct nic_stats {
	uint64_t rx_packets, tx_packets, rx_bytes, tx_bytes;
	uint64_t rx_foreign;   /* not for us: other protocols, ports, addresses, who shares the device */
	uint64_t rx_malformed; /* for us, but broken: lengths, checksums, versions */
	uint64_t rx_missed;    /* the device or kernel had no room */
	uint64_t tx_dropped;   /* committed and not sent: the device or kernel would not */
	uint64_t kicks;        /* sent to sleepers */
	uint64_t refused;      /* set-ups of peers that the driver does not authenticate, and malformed ones */
};

/** Where a driver reports: `text` is filled on every failure that has more to say than its errno. */
struct nic_err {
	char text[NIC_TEXT_BYTES_MAX];
};

/**
 * The memory budget of the process, for what a driver takes by traffic and peers. Any thread; no system call without a
 * memory limit of a container.
 */
struct nic_budget {
	bool (*take)(uint64_t bytes);  /* counts them; false: there is no room, and nothing is counted */
	void (*force)(uint64_t bytes); /* counts what cannot be refused */
	void (*give)(uint64_t bytes);
	bool (*is_short)(void); /* unused memory should go back to the system */
};

struct nic_config {
	const char *runtime_dir; /* where sockets go; NULL: the default (engine/base/runtime_dir.h) */
	uint64_t id;             /* names this port's socket: the worker's incarnation */
	bool any_user;           /* serve peers of other users too (security=none) */
	bool beyond_host; /* serve other hosts too (a key that was given, or security=none); else loopback and this
			     machine's only */
	const struct group_key *key; /* to be proven by both ends of a set-up (base/group_key.h); NULL: security=none.
					Outlives the port */
	unsigned queues;             /* one per shard, [1, caps.queues_max]; else open() says -EINVAL */
	unsigned head_bytes;         /* of every packet's head, [1, caps.head_bytes_max], 0 for datagram drivers */
	const char *args;   /* the driver's own, what follows ':' in nic=; NULL: none; not kept. A word that it does not
			       know is -EINVAL, naming it */
	const char *listen; /* interface name, subnet (a.b.c.d/n, IPv6 too) or address to be reached at; NULL: any */
	/** The piece of the engine's own memory that is to be registered with a device so that [at, at + len) is, and
	 * that stays where it is from then on: false, it is none of that. Control core. NULL: there is no such memory.
	 */
	bool (*memory_piece)(const void *at, size_t len, void **base, size_t *bytes);
	const void *memory; /* [memory, memory + memory_bytes) is all of it; memory_bytes 0: not known */
	uint64_t memory_bytes;
	const struct nic_budget *budget; /* stays; NULL: none */
	const char *advertise; /* address[:port[-port]] to publish instead of what was bound (NAT); NULL: that */
};

enum nic_event_type {
	NIC_EVENT_HELLO, /* somebody wants to connect: return 0 to accept (and fill reply), -errno to refuse */
	NIC_EVENT_UP, /* `peer` can be attached to its queue; for the connecting side `hello` is the acceptor's reply */
	NIC_EVENT_DOWN,   /* the peer's process or link is gone; what had arrived can still be received */
	NIC_EVENT_FAILED, /* a connect() failed; `error` and `text` say why */
	NIC_EVENT_REFUSED /* the host that `peer` is sent to answers that nobody has that port. Anybody may have sent
			     such an answer: it proves nothing. Links: of a connect() under way, `peer` is NIC_PEER_NONE
			   */
};

struct nic_event {
	enum nic_event_type type;
	uint32_t peer;     /* UP, DOWN: [0, caps.peers_max), the only one of this number until drop(); NIC_PEER_NONE
			      otherwise */
	uint32_t queue;    /* HELLO, UP, DOWN: this port's, that the peer belongs to */
	void *user;        /* connect()'s, NULL on the accepting side */
	const void *hello; /* HELLO, UP */
	size_t hello_len;
	void *reply; /* HELLO: room of NIC_HELLO_BYTES_MAX for the acceptor's words */
	size_t *reply_len;
	int error;        /* FAILED, DOWN: -errno */
	const char *text; /* FAILED, DOWN */
};
typedef int nic_event_fn(void *ctx, const struct nic_event *event);

/** Port operations: control core only, may make system calls, never wait for a peer. 0 or -errno. */
struct nic_port_ops {
	const char *name;
	/** Can the driver work here: 0, and `err` may hold a remark, or -errno with the reason and remedy. Leaves
	 * nothing behind. */
	int (*probe)(const struct nic_config *config, struct nic_err *err);
	/** Opens a port with `config->queues` queues. On failure nothing is left behind. */
	int (*open)(const struct nic_config *config, struct nic_port **out, struct nic_err *err);
	/** Closes it; every queue must be idle and every peer detached. Peers see DOWN. */
	void (*close)(struct nic_port *port);
	void (*caps)(const struct nic_port *port, struct nic_caps *out);
	void (*address)(const struct nic_port *port, struct nic_addr *out);
	/** A published address in words, printable and without a line end: "udp 10.0.0.5:7000", for messages. Loads
	 * nothing, asks nobody. Any thread. */
	void (*address_text)(const struct nic_addr *addr, char *out, size_t cap);
	/**
	 * Would connect() to this address of the same driver have a chance: 0, or -errno with the reason in `err`
	 * (another host's loopback, a directory of another file system, no route). Sends nothing, waits for nothing.
	 * With 0 `err` may hold a remark on what was sent there before: refused by a firewall, say.
	 */
	int (*reach)(const struct nic_port *port, const struct nic_addr *addr, struct nic_err *err);
	/** Any thread; the counters may be a moment old. */
	void (*stats)(const struct nic_port *port, struct nic_stats *out);
	/** Queue i of [0, queues); lives as long as the port. */
	struct nic_queue *(*queue)(struct nic_port *port, unsigned i);
	/**
	 * Connected drivers: starts connecting queue `queue` to queue `remote_queue` of the port at `addr`; UP or
	 * FAILED with `user` follows from step(), by `deadline` (absolute, CLOCK_MONOTONIC ns) at the latest. An
	 * address of the port itself connects a queue to itself, as one peer (UP once, no HELLO), or two of its queues,
	 * as two peers, with the events of both sides (HELLO; UP at `remote_queue` with no user; UP at `queue` with
	 * `user`).
	 *
	 * Datagram drivers: makes a place to send to, of queue `queue`; UP (without words) or FAILED with `user`
	 * follows from step(). Every call makes a new one, those to the same address too. With NIC_STEER_HASH
	 * `remote_queue` is NIC_ROUTE(queue, path): other paths arrive at other queues. `hello` is not sent.
	 */
	int (*connect)(struct nic_port *port, unsigned queue, const struct nic_addr *addr, unsigned remote_queue,
		       const void *hello, size_t hello_len, uint64_t deadline, void *user, struct nic_err *err);
	/** Does what is ready and reports events; returns the absolute time to be called again at the latest
	 * (UINT64_MAX: none). */
	uint64_t (*step)(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx);
	/** A descriptor that polls readable when step() has work. */
	int (*fd)(const struct nic_port *port);
	/** Frees a peer that is detached from its queue, or was never attached: its number may be given again.
	 * Connected drivers close its connection: the other end sees DOWN. */
	void (*drop)(struct nic_port *port, uint32_t peer);
	/**
	 * Memory that bulk may be read from, and into: pinned and known to the device until mem_unregister(), which
	 * says -EBUSY while something is under way there. Any thread. Takes as long as the kernel takes to pin its
	 * pages. NULL: bulk needs none, or there is none. -ENOMEM (RLIMIT_MEMLOCK, with the remedy), -ENOSPC, -EINVAL:
	 * empty, or not registered; -EOPNOTSUPP: this port has no bulk; -ENODEV: its device is gone.
	 */
	int (*mem_register)(struct nic_port *port, void *base, size_t bytes, struct nic_err *err);
	int (*mem_unregister)(struct nic_port *port, void *base, size_t bytes, struct nic_err *err);
	/** What the driver finds here, and what would help: lines for people, each with its end, whole ones only. NULL:
	 * it has nothing to tell. Opens nothing for longer than the call. */
	void (*advice)(char *out, size_t cap);
};

/** A received packet. */
struct nic_pkt {
	const uint8_t *head; /* head_bytes of memory that a peer can write: copy out, check, then use; of a datagram
			      * driver nothing is there. NULL: the peer broke the driver's own rules; nothing else is
			      * set but `peer` */
	const uint8_t *body; /* aligned to caps.body_align; to 64 where there is an inline size and it is larger. May be
			      * memory that a peer can write. NULL when body_len is 0 */
	uint64_t body_len;   /* checked by the driver: body[0, body_len) is readable */
	uint64_t cookie;     /* 0: readable until the next recv(); else may be held until release() */
	uint32_t peer;       /* datagram drivers: NIC_PEER_NONE */
};

/**
 * What a packet may pass, and be passed by, on its way to the same peer. All drivers may keep all packets in the order
 * of their commits; a link lets small ones pass larger ones, and larger ones whatever is late, as far as this allows.
 */
enum nic_order {
	NIC_ORDER_ALL,    /* behind all that was committed before it */
	NIC_ORDER_STREAM, /* behind all of ALL and STREAM that was committed before it */
	NIC_ORDER_NONE    /* small ones among themselves only */
};

/* Of a packet, how urgent it is: 0 the least, which is what nobody has said anything of, to this. */
#define NIC_PRIORITY_MAX 7u

/** A packet being written. */
struct nic_tx {
	uint8_t *head; /* aligned to 4; head_bytes to be written before commit; may lie in head_room, so the struct must
			  not move */
	uint8_t *body; /* connected drivers: aligned to 32 bytes at least when it shares the head's line, else to 64;
			  nothing is in it that is to be read */
	uint64_t body_len;
	uint64_t cookie; /* the driver's, as is link */
	void *link;
	uint32_t peer;
	uint8_t order; /* enum nic_order: tx_reserve() of a driver that looks at it says ALL, the caller what it needs
			*/
	uint8_t priority; /* [0, NIC_PRIORITY_MAX], likewise 0: what the network is to send first where packets wait. Of
			     packets of different ones the later may arrive first */
	alignas(8) uint8_t head_room[48];
};

struct nic_raw_ops;
struct nic_bulk_ops;

/** Where a part of a larger message goes, of which one packet arrives: `at` is in `buf`, of which a reference is given.
 */
struct nic_place {
	uint8_t *at;
	void *owner;
};
/** Asked by recv() about a packet of which a part has arrived, `head` being its own; false: it goes anywhere. The same
 * packet comes by recv() when all of it is there, unless the peer goes first, and its body is at `at` then. */
typedef bool nic_place_fn(void *ctx, uint32_t peer, const uint8_t *head, uint64_t len, struct nic_place *out);

/** Queue operations: only the thread that holds the queue's shard; no lock, no allocation, no system call but those
 * named. */
struct nic_queue_ops {
	/** Begins / ends polling a peer that is UP at this queue; -EINVAL: it is not, or is attached. After detach()
	 * the peer may be dropped; what was committed and not flushed may be lost, packets that are held are still to
	 * be released, to no effect. */
	int (*attach)(struct nic_queue *q, uint32_t peer);
	void (*detach)(struct nic_queue *q, uint32_t peer);
	/** Up to `max` packets. Those of the burst before, but for the held ones, are given back by this. 0 of an armed
	 * queue: nothing is left that came before arm(), or wake_fd is readable. */
	unsigned (*recv)(struct nic_queue *q, struct nic_pkt *pkts, unsigned max);
	/** Gives back a packet with a cookie, exactly once, in any order. */
	void (*release)(struct nic_queue *q, uint32_t peer, uint64_t cookie);
	/**
	 * Room for one packet. -EAGAIN: the ring is full; -ENOBUFS: no memory for the body before others are
	 * given back; -ENOMEM: none in the process's budget, and none will be given back here; -EMSGSIZE; -EPIPE: not
	 * attached. On success the room is the caller's until commit or cancel. A small one (head and body within
	 * inline_bytes_max) must be committed or cancelled before the next reserve or commit; larger ones may stay
	 * open side by side, and be committed or cancelled in any order.
	 */
	int (*tx_reserve)(struct nic_queue *q, uint32_t peer, uint64_t body_len, struct nic_tx *tx);
	/**
	 * The same for a body that is there already: it is not copied, but read where it lies, also by devices, and
	 * must not change until `owner`, of which this takes a reference, is given back; tx_cancel() gives it back at
	 * once. tx->body is not to be written to. NULL: the driver copies.
	 */
	int (*tx_lend)(struct nic_queue *q, uint32_t peer, const void *body, uint64_t body_len, void *owner,
		       struct nic_tx *tx);
	/** Packets that could be committed now towards this peer, 0 when it is not attached; it may be too low. */
	uint32_t (*tx_room)(struct nic_queue *q, uint32_t peer);
	/** Largest body towards this peer now: datagram drivers learn of smaller path MTUs while they send. It sinks to
	 * 1024 bytes at the least, unless it began below: what a link sent in packets of that size it sends again so.
	 */
	uint64_t (*tx_bytes_max)(struct nic_queue *q, uint32_t peer);
	/**
	 * Bytes of bodies that were committed and are not on the wire yet. When they are more than `most`, deadline()
	 * says, until this is called again, when to ask again. NULL: the driver cannot tell, or not for nothing.
	 */
	uint64_t (*tx_waiting)(struct nic_queue *q, uint64_t most);
	/**
	 * Hands it over; the peer may see it from now on, and sees it after flush() at the latest. -EAGAIN: meanwhile
	 * the ring became full (only for one that stayed open), or what is left of it is for those of priority
	 * NIC_PRIORITY_MAX; the room is still the caller's.
	 */
	int (*tx_commit)(struct nic_queue *q, struct nic_tx *tx);
	void (*tx_cancel)(struct nic_queue *q, struct nic_tx *tx);
	/** Publishes all commits and wakes the peers that sleep: at most one system call for each. */
	void (*flush)(struct nic_queue *q);
	/** Tells the peers to wake us from now on. The caller polls once more before it sleeps on wake_fd. */
	void (*arm)(struct nic_queue *q);
	void (*disarm)(struct nic_queue *q);
	/** A descriptor that polls readable after a wake; clear() resets it. */
	int (*wake_fd)(const struct nic_queue *q);
	void (*wake_clear)(struct nic_queue *q);
	/** Any thread: makes wake_fd readable. One system call. */
	void (*wake)(struct nic_queue *q);
	/** Makes the wake_fd of the queue that the peer leads to readable, as far as that can be had: it may be lost.
	 * One system call. Datagram drivers without caps.wake; NULL for the others, whose flush() does so. */
	void (*kick)(struct nic_queue *q, uint32_t peer);
	/** When recv() must be called again at the latest though nothing arrives (absolute, CLOCK_MONOTONIC ns);
	 * UINT64_MAX: never. Valid until the next operation. */
	uint64_t (*deadline)(const struct nic_queue *q);
	/** Gives memory that no packet uses back to the system, for other uses within the process's budget; system
	 * calls. NULL: there is none. */
	void (*trim)(struct nic_queue *q);
	/**
	 * The queue asks `owes(ctx, peer)`, on its thread, whether an answer of that peer is awaited: a silent peer is
	 * then probed, and reported DOWN when it stays silent. Before the first attach(). NULL for drivers that learn
	 * of a peer's end by themselves.
	 */
	void (*watch)(struct nic_queue *q, bool (*owes)(void *ctx, uint32_t peer), void *ctx);
	/** The queue asks `place`, on its thread, where to put larger packets that it does not receive in one piece.
	 * Before the first attach(). NULL: the driver has no such packets. */
	void (*placing)(struct nic_queue *q, nic_place_fn *place, void *ctx);
	/** A packet to this peer is to come in a moment: has the caches fetch what that looks at. No other effect.
	 * NULL: what that is lies where it was looked at for others. */
	void (*expect)(struct nic_queue *q, uint32_t peer);
	const struct nic_raw_ops *raw;   /* NULL: there is no device below */
	const struct nic_bulk_ops *bulk; /* NULL: without caps.one_sided */
};

/**
 * Raw packets on the device below a queue, beside everything that the driver adds: the floor that `farcall perf` puts
 * beside the driver. By the holder of the queue's shard, which sends and receives nothing else meanwhile.
 */
struct nic_raw_ops {
	/** Sends up to `n` packets of `bytes` bytes (headers of the network not counted, 16 at least) to where `peer`
	 * is, numbered from `first` on; how many the device took. */
	unsigned (*tx)(struct nic_queue *q, uint32_t peer, uint64_t first, unsigned n, unsigned bytes);
	/** Takes up to `max` packets from the device; how many of them were raw ones, `last` the number of the last.
	 * All others are lost. */
	unsigned (*rx)(struct nic_queue *q, unsigned max, uint64_t *last);
};

/** What a peer is handed of memory that is exposed to it: it travels in the engine's words. */
struct nic_bulk_key {
	uint64_t key, addr; /* the driver's; from a peer not to be trusted, but by read() */
};

/** Comes by recv() as a packet of NIC_PEER_BULK without head and body: body_len is this, cookie expose()'s or read()'s
 * `user`. It is not released. */
enum nic_bulk_event {
	NIC_BULK_EXPOSED = 1, /* the peer can read it from now on */
	NIC_BULK_WITHDRAWN,   /* nobody can any more: asked for, or the connection that it was of is over */
	NIC_BULK_READ,        /* all bytes are there */
	NIC_BULK_READ_FAILED  /* some may be: nothing writes there any more. Another try may fail likewise */
};

/**
 * Bulk without packets: who has the bytes exposes them to one peer, who is to have them reads. Only what was exposed
 * can be read, by the peer that it was exposed to, until it is withdrawn. What is said of time-outs, access or a
 * connection that breaks comes as an event: WITHDRAWN for each expose(), READ or READ_FAILED for each read(), once, and
 * the memory is the driver's until then. By the holder of the queue's shard; none blocks.
 */
struct nic_bulk_ops {
	/** Lets the peer read at[0, len): `*key` is for it, from EXPOSED on. -EAGAIN: not now; a connection is being
	 * made, memory registered, or too much is exposed. -EOPNOTSUPP: the peer has no bulk. -ENOMEM: the memory is
	 * not registered and cannot be. -EPIPE, -EINVAL. */
	int (*expose)(struct nic_queue *q, uint32_t peer, const void *at, uint64_t len, uint64_t user, uint32_t *handle,
		      struct nic_bulk_key *key);
	/** WITHDRAWN follows, unless it has come. */
	void (*withdraw)(struct nic_queue *q, uint32_t handle);
	/** Reads `len` bytes from `offset` on of what was exposed there with this key. -EAGAIN: too many are under way:
	 * one of their events is to be waited for. -ENOTCONN: there is no such connection (any more). -ENOMEM: `to` is
	 * not registered (yet). -EPIPE, -EINVAL, -EOPNOTSUPP. */
	int (*read)(struct nic_queue *q, uint32_t peer, const struct nic_bulk_key *key, uint64_t offset, void *to,
		    uint32_t len, uint64_t user);
};

/** `remote_queue` of connect() for datagram drivers that steer by hash. */
#define NIC_ROUTE(queue, path) ((queue) | (path) << 16)
#define NIC_ROUTE_QUEUE(route) ((route)&0xffffu)
#define NIC_ROUTE_PATH(route)  ((route) >> 16)
#define NIC_PATHS              65536u

/** Every driver's queue begins with this. */
struct nic_queue {
	const struct nic_queue_ops *ops;
};

/** Every driver's port begins with this. */
struct nic_port {
	const struct nic_port_ops *ops;
};

/** Drivers built into the library that a worker may choose by itself, best first; ends with NULL. */
extern const struct nic_port_ops *const nic_drivers[];

/** All names that nic_find() knows, best first, those of modules and of shims too; ends with NULL. */
extern const char *const nic_names[];

/**
 * A driver by name, of the library or of a module, which is loaded now and stays. NULL: there is none of that name, or
 * the module cannot be loaded; `err` says which, and the remedy. Not on a shard.
 */
const struct nic_port_ops *nic_find(const char *name, struct nic_err *err);

extern const struct nic_port_ops nic_shm_port_ops;
extern const struct nic_port_ops nic_udp_port_ops;
extern const struct nic_port_ops nic_lossy_port_ops;

#endif
