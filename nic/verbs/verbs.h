/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The verbs driver's own structures. A port is one port of an RDMA device; each of its queues is an unreliable-datagram
 * queue pair with completion queues of its own. Packets are received, and written, in registered memory of the queue.
 */
#ifndef NIC_VERBS_VERBS_H
#define NIC_VERBS_VERBS_H

#include "nic/dscp.h"
#include "nic/nic.h"

#include <assert.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

/* Queues of a port: one per shard. */
#define VERBS_QUEUES_MAX 16u
/* Places to send to, of a port. */
#define VERBS_PLACES_MAX 16384u
/* Packets that may be committed and not reaped: what bursts of a shard make, several times over. */
#define VERBS_TX_SLOTS 256u
/* Each such packet asks for a completion; the others are let go of with it. */
#define VERBS_SIGNAL_EVERY 32u
/* Work requests of the send queue: those that are promised, and those that wait for the next completion. */
#define VERBS_TX_RING (VERBS_TX_SLOTS + 2 * VERBS_SIGNAL_EVERY)
/* Of what is on its way, by number: a power of two above VERBS_TX_RING. */
#define VERBS_TX_ORDER 512u
static_assert(VERBS_TX_RING < VERBS_TX_ORDER, "a number of each");
/* Receive buffers of a queue, when rx_slots= does not say otherwise. */
#define VERBS_RX_SLOTS     512u
#define VERBS_RX_SLOTS_MIN 64u
#define VERBS_RX_SLOTS_MAX 16384u
/* Completions taken at once; more than the engine takes in a pass would only wait in the cache. */
#define VERBS_BURST 32u
/* In front of each received packet: the global route header, or room for it. */
#define VERBS_GRH_BYTES 40u
/* Received bodies begin so that what follows a header of 96 bytes in them begins a line. */
#define VERBS_BODY_ALIGN 32u
#define VERBS_RX_BODY_AT 96u
static_assert(VERBS_RX_BODY_AT % 64 == VERBS_BODY_ALIGN && VERBS_RX_BODY_AT >= VERBS_GRH_BYTES, "aligned");
/* Largest inline send that is asked for: beyond it the device fetches the packet faster than it is copied. */
#define VERBS_INLINE_MAX 256u
/* Destinations with address handles: each worker of the largest group at several addresses, and some that idle. */
#define VERBS_DESTS_MAX 4096u
/* An address handle holds the neighbour's hardware address as it was resolved: places made within this time share one.
 */
#define VERBS_DEST_FRESH_NS UINT64_C(2000000000)
/* Nobody's handles are destroyed so late, that nothing the device still has refers to them. */
#define VERBS_DEST_IDLE_NS UINT64_C(10000000000)
/* A queue pair in the error state is set up again after this time, doubled while that does not help. */
#define VERBS_REPAIR_NS     UINT64_C(10000000)
#define VERBS_REPAIR_NS_MAX UINT64_C(1000000000)
/* How often the device's entry among the kernel's classes is looked at: as long as its removal may wait for us. */
#define VERBS_ENTRY_NS UINT64_C(1000000000)
/* The device refuses to take more: look again. */
#define VERBS_RETRY_NS UINT64_C(1000000)
/* Least packet: what a link sent by another port must fit, to be sent again by this one. */
#define VERBS_MTU_MIN 1024u
#define VERBS_MTU_MAX 4096u
/* GIDs of a device that are looked at: the kernel takes no more in one question than 64 KiB hold. */
#define VERBS_GIDS_MAX 1024u

#define VERBS_NAME_BYTES    64u
#define VERBS_GID_TEXT_MAX  48u
#define VERBS_PRIORITIES    (NIC_PRIORITY_MAX + 1)
#define VERBS_QKEY_FOREIGN  0x80000000u /* the device puts its own in place of those */
#define VERBS_QPN_MULTICAST 0xffffffu

/* bulk=, as it was said. */
enum verbs_bulk_how { VERBS_BULK_UNSAID, VERBS_BULK_AUTO, VERBS_BULK_OFF, VERBS_BULK_BYTES };

/** nic=verbs:DEVICE[,KEY=VALUE…], taken apart; see nic/verbs/README.md. */
struct verbs_args {
	char device[VERBS_NAME_BYTES]; /* "": the first that works */
	unsigned port;                 /* [1, 255]; 0: the first that works */
	int gid;                       /* index; −1: the first that works */
	unsigned rx_slots;
	unsigned mtu;         /* of a packet's body; 0: the port's */
	int rc;               /* 1: connections, 0: datagrams; −1: as the device has them */
	unsigned connections; /* of a queue at once; 0: not said */
	enum verbs_bulk_how bulk_how;
	unsigned bulk; /* bytes from which on messages are read by the other end; 0: none is, or it is not known yet */
	struct nic_dscp dscp;
	uint8_t sl[VERBS_PRIORITIES]; /* InfiniBand's service levels, by priority */
};

/** What a port is opened on. */
struct verbs_choice {
	struct ibv_context *context;
	char device[VERBS_NAME_BYTES];
	char node[VERBS_NAME_BYTES]; /* in /dev/infiniband */
	uint8_t port;
	struct ibv_port_attr attr;
	struct ibv_gid_entry gid;
	bool ethernet; /* RoCE, iWARP; else InfiniBand */
	bool rc;       /* by connections */
	bool iwarp;    /* no datagrams, and addresses are not in its table of GIDs */
};

/** A published address, as bytes of the blob. Fields in the machine's order, as in the dpdk driver's. */
struct verbs_blob {
	uint16_t version; /* VERBS_BLOB_VERSION */
	uint8_t ethernet;
	uint8_t gid_type; /* enum ibv_gid_type of the GID: RoCE v2, or InfiniBand; or VERBS_GID_IWARP */
	uint8_t queues;
	uint8_t port;
	uint16_t lid;
	uint32_t mtu;     /* largest body that is received */
	uint32_t service; /* rdma_cm's port, of connections; 0: datagrams */
	uint32_t bulk;    /* likewise of those for bulk beside datagrams; 0: there are none */
	uint32_t zero;
	uint8_t gid[16];
	uint64_t where; /* hash of host and network namespace, when the address is loopback */
	struct {
		uint32_t qpn; /* of connections: as random as the key, both together are the queue's name */
		uint32_t qkey;
	} queue[VERBS_QUEUES_MAX];
	char name[24]; /* of the device, for messages */
};
static_assert(sizeof(struct verbs_blob) == 200, "no holes: it is compared as bytes");
static_assert(sizeof(struct verbs_blob) <= 208, "engine/transport adds to it");
#define VERBS_BLOB_VERSION 2
#define VERBS_GID_IWARP    3u

/* Of a destination's handles. */
enum verbs_dest_state { VERBS_DEST_ASKED, VERBS_DEST_READY, VERBS_DEST_FAILED };

/** Where places lead, with an address handle for each class of service. The control core's; what it is resolved to is
 * written by the resolver's thread before `state`, and constant afterwards. */
struct verbs_dest {
	uint8_t gid[16];
	uint16_t lid;
	uint32_t refs;          /* places; written under the resolver's lock */
	uint64_t made;          /* ns; the resolver's, before READY */
	uint64_t idle_at;       /* ns; since when there are no places */
	_Atomic uint32_t state; /* enum verbs_dest_state; the resolver's release pairs with verbs_dest_state() */
	int error;              /* FAILED: -errno */
	struct ibv_ah *ah[VERBS_PRIORITIES]; /* by class, [0, port's classes_n) */
	struct verbs_dest *next_asked;
};

struct verbs_queue;
struct verbs_rc;
struct verbs_rcq;
struct verbs_remote;

/** A place to send to. Written before it is UP, read by its queue. */
struct verbs_place {
	struct ibv_ah *ah[VERBS_PRIORITIES]; /* by priority; the destination's */
	uint32_t qpn, qkey;
	uint64_t body_max;
	struct verbs_queue *queue;
	bool attached; /* the queue's */
	uint32_t number;
	struct verbs_dest *dest;     /* of datagrams */
	struct verbs_remote *remote; /* of connections (rc.h), and for bulk */
	struct verbs_place *next;    /* not reported yet */
	void *user;
};

/* Counters of a queue, written by its holder alone. */
struct verbs_counters {
	_Atomic uint64_t rx_packets, tx_packets, rx_bytes, tx_bytes, foreign, malformed, dropped;
};

/**
 * Who may touch a queue pair. RUNS, LEFT: written by the queue's holder; the control core may set up a BROKEN one,
 * which its holder leaves alone, and says REPAIRED; it asks for all by LEAVING, and has them when all are LEFT.
 */
enum verbs_state {
	VERBS_RUNS,
	VERBS_BROKEN,   /* in the error state: packets are dropped */
	VERBS_REPAIRED, /* sends again, has no receive buffers yet */
	VERBS_LEAVING,
	VERBS_LEFT
};

struct verbs_port;

struct verbs_queue {
	struct nic_queue base;
	struct verbs_port *port;
	_Atomic uint32_t state; /* enum verbs_state; acquire and release */
	uint16_t index;
	uint16_t epoch; /* of the queue pair's life, in wr_id: what completes of an earlier one is nobody's */
	uint32_t inline_max;
	struct ibv_qp *qp;
	struct ibv_cq *rx_cq, *tx_cq; /* the latter is looked at when room is short, and wakes nobody */
	struct ibv_comp_channel *channel;
	struct ibv_mr *mr;
	uint8_t *memory; /* rx slots, then tx slots */
	size_t memory_bytes;
	uint32_t qkey, rc_qpn; /* the latter of connections: in place of a queue pair's number */
	struct verbs_rcq *rc;  /* NULL: datagrams, without bulk */
	int event_fd, epoll_fd;
	uint32_t events_unacked; /* ibv_ack_cq_events() takes a lock: when the queue is closed, or they are many */

	/* Receive. */
	uint32_t rx_n;             /* slots */
	uint32_t rx_stride;        /* bytes */
	uint32_t held;             /* slots given out, and broken ones: posted by the next recv() */
	uint16_t *rx_held;         /* [rx_n] */
	bool *rx_posted;           /* [rx_n] */
	struct ibv_recv_wr *rx_wr; /* [rx_n] */
	struct ibv_sge *rx_sge;    /* [rx_n] */

	/* Transmit. Numbers of packets count up: those of [tx_done, tx_posted) are the device's, those of
	 * [tx_posted, tx_next) wait for flush(). */
	uint8_t *tx_memory;
	uint32_t tx_stride;
	uint32_t tx_free_n;
	uint32_t tx_unsignalled;
	uint32_t tx_done, tx_posted, tx_next;
	struct ibv_send_wr *tx_first, *tx_last; /* chain of those that wait */
	bool tx_refused;                        /* the device had no room */
	uint16_t tx_free[VERBS_TX_RING];        /* slots, last in first out */
	uint16_t tx_order[VERBS_TX_ORDER];      /* slots, by number */
	struct ibv_send_wr tx_wr[VERBS_TX_RING];
	struct ibv_sge tx_sge[VERBS_TX_RING];

	/* The control core's. */
	uint64_t repair_at, repair_ns;

	struct verbs_counters counters;
};

/** The thread that makes address handles: the kernel resolves a neighbour's address in there, for up to a second. */
struct verbs_resolver {
	pthread_t thread;
	bool started;
	pthread_mutex_t lock;
	pthread_cond_t queued;
	struct verbs_dest *first, **last; /* under `lock` */
	bool stop;                        /* under `lock` */
	_Atomic bool ended;
};

/* Why nothing can be sent, from reach(). */
enum verbs_down {
	VERBS_UP,
	VERBS_PORT_DOWN, /* may come up again */
	VERBS_GID_GONE,  /* the address was taken from the interface; may come back */
	VERBS_GONE       /* the device is */
};

struct verbs_mems;

struct verbs_port {
	struct nic_port base;
	struct verbs_args args;
	struct verbs_choice on;
	struct ibv_pd *pd;
	struct ibv_device_attr limits;
	struct verbs_rc *rc;     /* of connections (rc.h); NULL: datagrams, without bulk */
	struct verbs_mems *mems; /* of bulk (bulk.h); NULL: there is none */
	bool (*memory_piece)(const void *at, size_t len, void **base, size_t *bytes); /* struct nic_config's */
	uintptr_t memory;                                                             /* likewise */
	uint64_t memory_bytes;                                                        /* likewise */
	const struct group_key *key;                                                  /* likewise */
	_Atomic bool is_gone;  /* the device was let go of; release: all of it */
	_Atomic uint32_t down; /* enum verbs_down; the control core's, read by anyone */
	unsigned queues_n;
	struct verbs_queue *queues[VERBS_QUEUES_MAX];
	struct verbs_blob blob;
	uint32_t mtu;
	/* Classes of service: equal ones share address handles. */
	unsigned classes_n;
	uint8_t class_of[VERBS_PRIORITIES]; /* index of the class, by priority */
	uint8_t class_tos[VERBS_PRIORITIES], class_sl[VERBS_PRIORITIES];
	int fd;            /* epoll */
	int event_fd;      /* queues and the resolver have something for step() */
	int watch_fd;      /* inotify: the device's node goes; −1: cannot be watched */
	ino_t entry;       /* of the device in /sys/class/infiniband_verbs; 0: cannot be seen */
	uint64_t entry_at; /* ns; when it is looked at next */
	struct verbs_resolver resolver;
	struct verbs_dest *dests[VERBS_DESTS_MAX];
	unsigned dests_n;
	struct verbs_place *places[VERBS_PLACES_MAX];
	uint32_t places_next;                      /* where the search for a free number begins */
	struct verbs_place *new_first, **new_last; /* not reported yet */
};

/* ---- args.c ---- */

/** -EINVAL names the word. */
int verbs_args_parse(const char *text, struct verbs_args *out, struct nic_err *err);

/* ---- gid.c ---- */

/** ::ffff:a.b.c.d */
bool verbs_gid_is_v4(const uint8_t gid[16]);
bool verbs_gid_is_loopback(const uint8_t gid[16]);
bool verbs_gid_is_link_local(const uint8_t gid[16]);
/** "10.0.0.5", "fd00::5"; returns `out`. Any thread. */
const char *verbs_gid_text(const uint8_t gid[16], char out[VERBS_GID_TEXT_MAX]);
/** Does `listen`, as in struct nic_config, name the GID: its interface, its subnet or itself? */
bool verbs_gid_is_named(const struct ibv_gid_entry *gid, const char *listen);
/** Is the IP address one of this machine's now? */
bool verbs_gid_is_here(const uint8_t gid[16], unsigned ifindex);
/** Table entries of the device, of all its ports; the caller frees *out. Their number or -errno. */
int verbs_gid_table(struct ibv_context *context, struct ibv_gid_entry **out);

/* ---- device.c ---- */

/** Opens the device that the arguments name, or the first that works, with `out->context`. */
int verbs_device_open(const struct verbs_args *args, const struct nic_config *config, struct verbs_choice *out,
		      struct nic_err *err);
/** Lines about devices, ports, addresses, and what would help; nic_port_ops.advice. */
void verbs_advice(char *out, size_t cap);

/* ---- diagnose.c: why there is no device, and what helps ---- */

/** There are none in the library's list: -ENODEV. */
int verbs_no_devices(struct nic_err *err);
/** ibv_open_device() failed with `error`. */
int verbs_cannot_open(const char *device, const char *node, int error, struct nic_err *err);
/** `bytes` cannot be registered; `all` are what is needed; what would need `less` is added to what helps. */
int verbs_cannot_lock(const char *device, size_t bytes, size_t all, int error, const char *less, struct nic_err *err);

/** rdma_cm cannot be used: `error`; 0: it does not say why. */
int verbs_cannot_cm(const char *device, int error, struct nic_err *err);

/* ---- address.c ---- */

void verbs_address_set(struct verbs_port *p);
int verbs_reach(const struct nic_port *port, const struct nic_addr *addr, struct nic_err *err);
void verbs_address_text(const struct nic_addr *addr, char *out, size_t cap);
/** The blob, checked; -EINVAL. */
int verbs_blob_read(const struct nic_addr *addr, struct verbs_blob *out, struct nic_err *err);

/* ---- address_handle.c ---- */

int verbs_resolver_open(struct verbs_port *p, struct nic_err *err);
/** Asks the thread to end: it does within the second that the kernel may take. Any number of times. */
void verbs_resolver_stop(struct verbs_port *p);
/** Waits for it. */
void verbs_resolver_close(struct verbs_port *p);
/** A destination, with one reference more. NULL: there are too many, or no memory. */
struct verbs_dest *verbs_dest_get(struct verbs_port *p, const struct verbs_blob *to, uint64_t now);
void verbs_dest_put(struct verbs_port *p, struct verbs_dest *dest, uint64_t now);
/** Destroys those that were idle for long; when to be called again, UINT64_MAX: there are none. */
uint64_t verbs_dests_sweep(struct verbs_port *p, uint64_t now);
/** Destroys all handles, but not the destinations, which places refer to. After verbs_resolver_close(). */
void verbs_dests_forget(struct verbs_port *p);
/** Frees the destinations too. */
void verbs_dests_close(struct verbs_port *p);

static inline enum verbs_dest_state verbs_dest_state(const struct verbs_dest *dest)
{
	return (enum verbs_dest_state)atomic_load_explicit(&dest->state, memory_order_acquire);
}

/* ---- queue_pair.c: the queue pair and what it needs ---- */

int verbs_pair_open(struct verbs_queue *q, struct nic_err *err);
/** From whatever state to one that sends; receive buffers are the holder's matter. 0 or -errno. */
int verbs_pair_start(struct verbs_queue *q);
/** What belongs to the device: may be called twice, and on what was opened in part. */
void verbs_pair_close(struct verbs_queue *q);

/* ---- queue.c ---- */

extern const struct nic_queue_ops verbs_queue_ops, verbs_bulk_queue_ops;
/* Of these, connections have the same. */
uint32_t verbs_tx_room(struct nic_queue *queue, uint32_t peer);
uint64_t verbs_tx_bytes_max(struct nic_queue *queue, uint32_t peer);
void verbs_tx_cancel(struct nic_queue *queue, struct nic_tx *tx);
void verbs_release(struct nic_queue *queue, uint32_t peer, uint64_t cookie);
int verbs_wake_fd(const struct nic_queue *queue);
void verbs_disarm(struct nic_queue *queue);
void verbs_wake_clear(struct nic_queue *queue);
void verbs_wake(struct nic_queue *queue);

/* ---- raw.c ---- */

extern const struct nic_raw_ops verbs_raw_ops;

/* ---- recovery.c: the holder's part of a queue's states, off the fast path ---- */

/** The queue does not run: may it now? Acts on what the control core has done, or asks for. */
bool verbs_enter_slow(struct verbs_queue *q);
/** The device refused something: nothing is sent or received until the control core has set the pair up again. */
void verbs_break(struct verbs_queue *q);
/** Gives the receive buffers to the device, all but those of [0, held) in rx_held. 0 or -errno. */
int verbs_rx_fill(struct verbs_queue *q);
/** Has the port step. */
void verbs_signal(int event_fd);

/* ---- queue_open.c ---- */

int verbs_queue_open(struct verbs_port *p, unsigned index, struct nic_err *err);
void verbs_queue_close(struct verbs_queue *q);

/* ---- events.c ---- */

int verbs_events_open(struct verbs_port *p, struct nic_err *err);
/** Reads what the device has to say, and sets queues up that are broken; when to be called again. */
uint64_t verbs_events_step(struct verbs_port *p, uint64_t now);
/** Has step() called when the descriptor is readable. */
bool verbs_watch(struct verbs_port *p, int fd);
/** Asks the holders of all queues to leave the device alone: it goes. */
void verbs_leave(struct verbs_port *p);
/** In words, for errors of the port. */
int verbs_down_error(const struct verbs_port *p, struct nic_err *err);

/* ---- port.c ---- */

extern const struct nic_port_ops verbs_port_ops;
int verbs_error(struct nic_err *err, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
uint64_t verbs_now(void);
/** Lets go of the device, with all queues LEFT or the port closing; buffers stay. */
void verbs_port_let_go(struct verbs_port *p);

/** May the queue's holder use the device? */
static inline bool verbs_enter(struct verbs_queue *q)
{
	return __builtin_expect(atomic_load_explicit(&q->state, memory_order_acquire) == VERBS_RUNS, 1) ||
	       verbs_enter_slow(q);
}

static inline struct verbs_queue *verbs_queue_of(struct nic_queue *q)
{
	return (struct verbs_queue *)q;
}

/** NULL: it is none of this queue's. */
static inline struct verbs_place *verbs_place_of(struct verbs_queue *q, uint32_t peer)
{
	struct verbs_place *place = peer < VERBS_PLACES_MAX ? q->port->places[peer] : NULL;
	return place && place->queue == q ? place : NULL;
}

/** A slot of the transmit ring, written into `tx`. There is one. */
static inline void verbs_tx_take(struct verbs_queue *q, struct verbs_place *place, uint32_t peer, uint64_t body_len,
				 struct nic_tx *tx)
{
	uint16_t slot = q->tx_free[--q->tx_free_n];
	tx->head = tx->head_room;
	tx->body = q->tx_memory + (size_t)slot * q->tx_stride;
	tx->body_len = body_len;
	tx->cookie = slot;
	tx->link = place;
	tx->peer = peer;
	tx->priority = 0;
}

static inline void verbs_count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

#endif
