/* SPDX-License-Identifier: BSD-3-Clause */
/** Declarations shared by the files of the verbs driver. A port is one port of an RDMA device; each of its queues is an
 * unreliable-datagram (UD) queue pair with completion queues of its own. Packets are received and written in registered
 * memory of the queue. Fields of a queue belong to its poller (the thread that holds the queue's shard), fields of a
 * port to the control thread, unless the comment names another thread. */
#ifndef NIC_VERBS_VERBS_H
#define NIC_VERBS_VERBS_H

#include "nic/dscp.h"
#include "nic/nic.h"

#include <assert.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

/* Queues of a port, one per shard. */
#define VERBS_QUEUES_MAX 16u
/* Destinations of a port. */
#define VERBS_DESTS_MAX 16384u
/* Packets that may be committed and not completed: several bursts of a shard. */
#define VERBS_TX_SLOTS 256u
/* Every such packet requests a completion, which also completes those before it. */
#define VERBS_SIGNAL_EVERY 32u
/* Work requests of the send queue: the promised packets, and those between two completions. */
#define VERBS_TX_RING (VERBS_TX_SLOTS + 2 * VERBS_SIGNAL_EVERY)
/* Size of tx_order[], indexed by packet number: a power of two above VERBS_TX_RING. */
#define VERBS_TX_ORDER 512u
static_assert(VERBS_TX_RING < VERBS_TX_ORDER, "a number of each");
/* Default and bounds of rx_slots=: receive buffers of a queue. */
#define VERBS_RX_SLOTS     512u
#define VERBS_RX_SLOTS_MIN 64u
#define VERBS_RX_SLOTS_MAX 16384u
/* Completions taken at once. The engine takes no more packets in one pass; a larger burst would only wait in the cache.
 */
#define VERBS_BURST 32u
/* The global route header in front of each received packet. */
#define VERBS_GRH_BYTES 40u
/* Received bodies begin at 32 modulo 64, so that the data behind a 96-byte header begins on a cache line. */
#define VERBS_BODY_ALIGN 32u
#define VERBS_RX_BODY_AT 96u
static_assert(VERBS_RX_BODY_AT % 64 == VERBS_BODY_ALIGN && VERBS_RX_BODY_AT >= VERBS_GRH_BYTES, "aligned");
/* Largest requested inline send: larger packets are fetched by the device faster than they are copied. */
#define VERBS_INLINE_MAX 256u
/* Address-handle sets: for each worker of the largest group at several addresses, plus idle ones. */
#define VERBS_AH_SETS_MAX 4096u
/* Destinations created within this time share address handles, which hold the neighbour's hardware address as it was
 * resolved. */
#define VERBS_AH_FRESH_NS UINT64_C(2000000000)
/* Idle time until unused handles are destroyed; long enough that no posted work request refers to them. */
#define VERBS_AH_IDLE_NS UINT64_C(10000000000)
/* A queue pair in the error state is reset after this time, which doubles up to the maximum. */
#define VERBS_RECOVERY_NS     UINT64_C(10000000)
#define VERBS_RECOVERY_NS_MAX UINT64_C(1000000000)
/* Interval of checks for the device's sysfs entry: its removal waits at most this long for us. */
#define VERBS_ENTRY_NS UINT64_C(1000000000)
/* Retry interval when the send queue is full. */
#define VERBS_RETRY_NS UINT64_C(1000000)
/* Minimum body: a fragment sent by another port must fit, so that it can be retransmitted by this one. */
#define VERBS_MTU_MIN 1024u
#define VERBS_MTU_MAX 4096u
/* GIDs of a device that are read: one query of the kernel returns at most 64 KiB. */
#define VERBS_GIDS_MAX 1024u

#define VERBS_NAME_BYTES      64u
#define VERBS_GID_TEXT_MAX    48u
#define VERBS_PRIORITIES      (NIC_PRIORITY_MAX + 1)
#define VERBS_QKEY_CONTROLLED 0x80000000u /* controlled Q_Keys: the device replaces them by its own */
#define VERBS_QPN_MULTICAST   0xffffffu

/* What bulk= states. */
enum verbs_bulk_mode { VERBS_BULK_DEFAULT, VERBS_BULK_AUTO, VERBS_BULK_OFF, VERBS_BULK_BYTES };

/** The parsed form of nic=verbs:DEVICE[,KEY=VALUE…]; see nic/verbs/README.md. */
struct verbs_args {
	char device[VERBS_NAME_BYTES]; /* "": the first usable one */
	unsigned port;                 /* [1, 255]; 0: the first usable one */
	int gid;                       /* index; −1: the first usable one */
	unsigned rx_slots;
	unsigned mtu;         /* bytes of a packet's body; 0: the port's */
	int rc;               /* 1: connections, 0: datagrams, −1: as the device supports */
	unsigned connections; /* per queue; 0: not given */
	enum verbs_bulk_mode bulk_mode;
	unsigned bulk; /* messages of so many bytes and more are read by the peer; 0: none, or not decided yet */
	struct nic_dscp dscp;
	uint8_t sl[VERBS_PRIORITIES]; /* InfiniBand service levels by priority */
};

/** The device, port and address that a port uses. */
struct verbs_choice {
	struct ibv_context *context;
	char device[VERBS_NAME_BYTES];
	char node[VERBS_NAME_BYTES]; /* device node in /dev/infiniband */
	uint8_t port;
	struct ibv_port_attr attr;
	struct ibv_gid_entry gid;
	bool ethernet; /* RoCE or iWARP; else InfiniBand */
	bool rc;       /* packets use connections */
	bool iwarp;    /* no datagrams; the IP address is not in the GID table */
};

/** A published address, the bytes of nic_addr.blob. Fields are in host byte order, as in the dpdk driver. */
struct verbs_blob {
	uint16_t version; /* VERBS_BLOB_VERSION */
	uint8_t ethernet;
	uint8_t gid_type; /* enum ibv_gid_type of the GID (RoCE v2, InfiniBand), or VERBS_GID_IWARP */
	uint8_t queues;
	uint8_t port;
	uint16_t lid;
	uint32_t mtu;     /* largest body that is received, bytes */
	uint32_t service; /* rdma_cm's port for connections; 0: datagrams */
	uint32_t bulk;    /* rdma_cm's port for bulk beside datagrams; 0: no bulk */
	uint32_t zero;
	uint8_t gid[16];
	uint64_t where; /* hash of host and network namespace if the address is loopback; else 0 */
	struct {
		uint32_t qpn; /* the queue's name is qpn and qkey; of connections qpn is random, too */
		uint32_t qkey;
	} queue[VERBS_QUEUES_MAX];
	char name[24]; /* device name, for messages */
};
static_assert(sizeof(struct verbs_blob) == 200, "no holes: it is compared as bytes");
static_assert(sizeof(struct verbs_blob) <= 208, "engine/transport adds to it");
#define VERBS_BLOB_VERSION 2
#define VERBS_GID_IWARP    3u

/* State of an address-handle set: VERBS_AH_RESOLVING, then one of the others. */
enum verbs_ah_set_state { VERBS_AH_RESOLVING, VERBS_AH_READY, VERBS_AH_FAILED };

/** The address handles of one remote GID, one for each class of service; shared by its destinations. The control thread
 * owns it; the resolver thread writes handles and error before `state`, constant afterwards. */
struct verbs_ah_set {
	uint8_t gid[16];
	uint16_t lid;
	uint32_t refs;          /* destinations; written under the resolver's lock */
	uint64_t made;          /* ns; time of resolution, written by the resolver before VERBS_AH_READY */
	uint64_t idle_at;       /* ns; since when refs is 0 */
	_Atomic uint32_t state; /* enum verbs_ah_set_state; the resolver's release pairs with verbs_ah_set_state() */
	int error;              /* -errno if VERBS_AH_FAILED */
	struct ibv_ah *ah[VERBS_PRIORITIES]; /* by class, [0, port's classes_n) */
	struct verbs_ah_set *next_queued;
};

struct verbs_queue;
struct verbs_rc;
struct verbs_rcq;
struct verbs_remote;

/** A destination. The control thread writes it before UP is reported; afterwards the queue's poller reads it. */
struct verbs_dest {
	struct ibv_ah *ah[VERBS_PRIORITIES]; /* by priority; owned by `ah_set` */
	uint32_t qpn, qkey;
	uint64_t body_max;
	struct verbs_queue *queue;
	bool attached; /* written by the poller */
	uint32_t number;
	struct verbs_ah_set *ah_set; /* the address handles of a datagram destination */
	struct verbs_remote *remote; /* the remote queue of connections (rc.h) and of bulk; NULL: none */
	struct verbs_dest *next;     /* next destination whose UP or FAILED is not reported yet */
	void *user;
};

/* Counters of a queue; written by its poller, read by any thread. */
struct verbs_counters {
	_Atomic uint64_t rx_packets, tx_packets, rx_bytes, tx_bytes, unexpected, malformed, dropped;
};

/**
 * Who may use a queue pair, and who writes the next state:
 *	VERBS_RUNNING -> VERBS_BROKEN (poller) -> VERBS_RECOVERED (control thread, pair reset) -> VERBS_RUNNING (poller)
 *	any -> VERBS_RELEASING (control thread: the device must be released) -> VERBS_RELEASED (poller)
 * The poller does not touch a queue pair in VERBS_BROKEN. With all queues in VERBS_RELEASED the control thread owns the
 * device.
 */
enum verbs_state {
	VERBS_RUNNING,
	VERBS_BROKEN,    /* in the error state: packets are dropped */
	VERBS_RECOVERED, /* sends again, but has no receive buffers yet */
	VERBS_RELEASING,
	VERBS_RELEASED
};

struct verbs_port;

struct verbs_queue {
	struct nic_queue base;
	struct verbs_port *port;
	_Atomic uint32_t state; /* enum verbs_state; acquire and release */
	uint16_t index;
	uint16_t epoch; /* incremented when the queue pair is reset; in wr_id: older completions are ignored */
	uint32_t inline_max;
	struct ibv_qp *qp;
	struct ibv_cq *rx_cq, *tx_cq; /* tx_cq is polled when free slots run short, and wakes nobody */
	struct ibv_comp_channel *channel;
	struct ibv_mr *mr;
	uint8_t *memory; /* receive slots, then transmit slots */
	size_t memory_bytes;
	uint32_t qkey, rc_qpn; /* rc_qpn: random queue name of connections, in place of a queue pair number */
	struct verbs_rcq *rc;  /* NULL: datagrams without bulk */
	int event_fd, epoll_fd;
	uint32_t events_unacked; /* acknowledged in bulk, since ibv_ack_cq_events() takes a lock */

	/* Receive. */
	uint32_t rx_n;             /* slots */
	uint32_t rx_stride;        /* bytes of a slot */
	uint32_t held;             /* slots handed out, and those of failed packets; the next recv() posts them */
	uint16_t *rx_held;         /* [rx_n], indices of held slots */
	bool *rx_posted;           /* [rx_n], the device owns the slot */
	struct ibv_recv_wr *rx_wr; /* [rx_n] */
	struct ibv_sge *rx_sge;    /* [rx_n] */

	/* Transmit. Packets are numbered: [tx_done, tx_posted) belong to the device, [tx_posted, tx_next) wait for
	 * flush(). */
	uint8_t *tx_memory;
	uint32_t tx_stride;
	uint32_t tx_free_n;
	uint32_t tx_unsignalled;
	uint32_t tx_done, tx_posted, tx_next;
	struct ibv_send_wr *tx_first, *tx_last; /* chain of the packets that wait */
	bool tx_ring_full;                      /* the send queue was full; retried by the next flush or recv */
	uint16_t tx_free[VERBS_TX_RING];        /* free slots, last in first out */
	uint16_t tx_order[VERBS_TX_ORDER];      /* slots by packet number */
	struct ibv_send_wr tx_wr[VERBS_TX_RING];
	struct ibv_sge tx_sge[VERBS_TX_RING];

	/* The control thread's: ns. */
	uint64_t recovery_at, recovery_ns;

	struct verbs_counters counters;
};

/** The thread that creates address handles, since the kernel resolves the neighbour's address in that call, for up to a
 * second. */
struct verbs_resolver {
	pthread_t thread;
	bool started;
	pthread_mutex_t lock;
	pthread_cond_t queued;
	struct verbs_ah_set *first, **last; /* queue of sets to resolve; under `lock` */
	bool stop;                          /* under `lock` */
	_Atomic bool ended;
};

/* Why nothing can be sent; reported by reach(). */
enum verbs_down {
	VERBS_UP,
	VERBS_PORT_DOWN, /* may come up again */
	VERBS_GID_GONE,  /* the address was removed from the interface; may come back */
	VERBS_GONE       /* the device was removed or has failed */
};

struct verbs_mems;

struct verbs_port {
	struct nic_port base;
	struct verbs_args args;
	struct verbs_choice on;
	struct ibv_pd *pd;
	struct ibv_device_attr limits;
	struct verbs_rc *rc;     /* connections (rc.h); NULL: datagrams without bulk */
	struct verbs_mems *mems; /* regions for bulk (bulk.h); NULL: no bulk */
	bool (*memory_block)(const void *at, size_t len, void **base,
			     size_t *bytes); /* from struct nic_config, as the next three */
	uintptr_t memory;
	uint64_t memory_bytes;
	const struct group_key *key;
	_Atomic bool device_released; /* the device was closed and all operations are over; written with release */
	_Atomic uint32_t down;        /* enum verbs_down; written by the control thread, read by any */
	unsigned queues_n;
	struct verbs_queue *queues[VERBS_QUEUES_MAX];
	struct verbs_blob blob;
	uint32_t mtu;
	/* Classes of service; priorities with equal values share address handles. */
	unsigned classes_n;
	uint8_t class_of[VERBS_PRIORITIES]; /* class index by priority */
	uint8_t class_tos[VERBS_PRIORITIES], class_sl[VERBS_PRIORITIES];
	int fd;            /* epoll */
	int event_fd;      /* eventfd: queues or the resolver have work for step() */
	int watch_fd;      /* inotify for the removal of the device node; −1: not available */
	ino_t entry;       /* inode of the device's entry in /sys/class/infiniband_verbs; 0: not visible */
	uint64_t entry_at; /* ns; next check of the entry */
	struct verbs_resolver resolver;
	struct verbs_ah_set *ah_sets[VERBS_AH_SETS_MAX];
	unsigned ah_sets_n;
	struct verbs_dest *dests[VERBS_DESTS_MAX];
	uint32_t dests_next;                              /* index where the search for a free entry begins */
	struct verbs_dest *pending_first, **pending_last; /* destinations whose UP or FAILED is not reported yet */
};

/* ---- args.c: control thread ---- */

/** Parses the arguments; -EINVAL, naming the wrong word. */
int verbs_args_parse(const char *text, struct verbs_args *out, struct nic_err *err);

/* ---- gid.c ---- */

/** True for ::ffff:a.b.c.d. */
bool verbs_gid_is_v4(const uint8_t gid[16]);
bool verbs_gid_is_loopback(const uint8_t gid[16]);
bool verbs_gid_is_link_local(const uint8_t gid[16]);
/** "10.0.0.5", "fd00::5"; returns `out`. Any thread. */
const char *verbs_gid_text(const uint8_t gid[16], char out[VERBS_GID_TEXT_MAX]);
/** True if `listen`, as in struct nic_config, names the GID: its interface, its subnet or itself. */
bool verbs_gid_is_named(const struct ibv_gid_entry *gid, const char *listen);
/** True if the IP address is one of this host's. */
bool verbs_gid_is_here(const uint8_t gid[16], unsigned ifindex);
/** The GID table of the device, all ports; the caller frees *out. The number of entries or -errno. */
int verbs_gid_table(struct ibv_context *context, struct ibv_gid_entry **out);

/* ---- device.c, advice.c: control thread ---- */

/** Opens the device that the arguments name, or the first usable one; out->context is the caller's. */
int verbs_device_open(const struct verbs_args *args, const struct nic_config *config, struct verbs_choice *out,
		      struct nic_err *err);
/** Lines about devices, ports and addresses, with remedies; nic_port_ops.advice. */
void verbs_advice(char *out, size_t cap);

/* ---- diagnose.c: error texts with remedies. Control thread ---- */

/** libibverbs lists no devices: -ENODEV. */
int verbs_no_devices(struct nic_err *err);
/** ibv_open_device() failed with `error`. */
int verbs_cannot_open(const char *device, const char *node, int error, struct nic_err *err);
/** Registering `bytes` failed; `all` bytes are needed in total; `less` is a remedy that needs fewer. */
int verbs_cannot_lock(const char *device, size_t bytes, size_t all, int error, const char *less, struct nic_err *err);

/** rdma_cm is not usable: `error`; 0: unknown. */
int verbs_cannot_cm(const char *device, int error, struct nic_err *err);

/* ---- address.c: control thread; verbs_address_text(), verbs_blob_read(): any thread ---- */

void verbs_address_set(struct verbs_port *p);
int verbs_reach(const struct nic_port *port, const struct nic_addr *addr, struct nic_err *err);
void verbs_address_text(const struct nic_addr *addr, char *out, size_t cap);
/** Copies the blob out and checks it; -EINVAL: malformed. */
int verbs_blob_read(const struct nic_addr *addr, struct verbs_blob *out, struct nic_err *err);

/* ---- address_handle.c: control thread, and the resolver thread ---- */

int verbs_resolver_open(struct verbs_port *p, struct nic_err *err);
/** Stops the resolver thread, which ends once the kernel has resolved its present address. May be called several
 * times. */
void verbs_resolver_stop(struct verbs_port *p);
/** Joins the resolver thread. */
void verbs_resolver_close(struct verbs_port *p);
/** The handles towards `to`, with one reference more. NULL: too many sets, or out of memory. */
struct verbs_ah_set *verbs_ah_set_get(struct verbs_port *p, const struct verbs_blob *to, uint64_t now);
void verbs_ah_set_put(struct verbs_port *p, struct verbs_ah_set *ah_set, uint64_t now);
/** Destroys sets that were idle for long. Returns the time of the next call; UINT64_MAX: none. */
uint64_t verbs_ah_sets_sweep(struct verbs_port *p, uint64_t now);
/** Destroys all handles, but keeps the sets, which destinations refer to. Call after verbs_resolver_close(). */
void verbs_ah_sets_destroy(struct verbs_port *p);
/** Frees the sets. */
void verbs_ah_sets_close(struct verbs_port *p);

static inline enum verbs_ah_set_state verbs_ah_set_state(const struct verbs_ah_set *ah_set)
{
	return (enum verbs_ah_set_state)atomic_load_explicit(&ah_set->state, memory_order_acquire);
}

/* ---- queue_pair.c: control thread ---- */

int verbs_qp_open(struct verbs_queue *q, struct nic_err *err);
/** Moves the queue pair from any state to RTS; the poller posts receive buffers. 0 or -errno. */
int verbs_qp_start(struct verbs_queue *q);
/** Frees what belongs to the device. May be called twice, and on a partly opened queue. */
void verbs_qp_close(struct verbs_queue *q);

/* ---- queue.c: poller ---- */

extern const struct nic_queue_ops verbs_queue_ops, verbs_bulk_queue_ops;
/* Shared with connections. */
uint32_t verbs_tx_room(struct nic_queue *queue, uint32_t peer);
uint64_t verbs_tx_bytes_max(struct nic_queue *queue, uint32_t peer);
void verbs_tx_cancel(struct nic_queue *queue, struct nic_tx *tx);
void verbs_release(struct nic_queue *queue, uint32_t peer, uint64_t cookie);
int verbs_wake_fd(const struct nic_queue *queue);
void verbs_disarm(struct nic_queue *queue);
void verbs_wake_clear(struct nic_queue *queue);
void verbs_wake(struct nic_queue *queue);

/* ---- raw.c: poller ---- */

extern const struct nic_raw_ops verbs_raw_ops;

/* ---- recovery.c: poller, off the fast path ---- */

/** Called if the state is not VERBS_RUNNING: acts on the control thread's last state change. True: the poller may use
 * the device. */
bool verbs_enter_slow_path(struct verbs_queue *q);
/** An operation of the device failed: drops packets until the control thread has reset the queue pair. */
void verbs_queue_broken(struct verbs_queue *q);
/** Posts all receive slots except rx_held[0, held). 0 or -errno. */
int verbs_rx_fill(struct verbs_queue *q);
/** Makes the eventfd readable. Any thread. */
void verbs_signal(int event_fd);

/* ---- queue_open.c: control thread ---- */

int verbs_queue_open(struct verbs_port *p, unsigned index, struct nic_err *err);
void verbs_queue_close(struct verbs_queue *q);

/* ---- events.c: control thread ---- */

int verbs_events_open(struct verbs_port *p, struct nic_err *err);
/** Processes the device's events and resets broken queue pairs. Returns the time of the next call. */
uint64_t verbs_events_step(struct verbs_port *p, uint64_t now);
/** Adds the descriptor to the port's epoll, so that step() is called. */
bool verbs_epoll_add(struct verbs_port *p, int fd);
/** Requests that the pollers of all queues stop using the device: it was removed or has failed. */
void verbs_release_device(struct verbs_port *p);
/** Returns -errno and describes in `err` why the port is down; 0: it is up. */
int verbs_down_error(const struct verbs_port *p, struct nic_err *err);

/* ---- port.c: control thread ---- */

extern const struct nic_port_ops verbs_port_ops;
int verbs_error(struct nic_err *err, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
uint64_t verbs_now(void);
/** Closes the device; all queues are VERBS_RELEASED, or the port closes. Buffers stay. */
void verbs_port_close_device(struct verbs_port *p);

/** Poller: true if it may use the device. */
static inline bool verbs_enter(struct verbs_queue *q)
{
	return __builtin_expect(atomic_load_explicit(&q->state, memory_order_acquire) == VERBS_RUNNING, 1) ||
	       verbs_enter_slow_path(q);
}

static inline struct verbs_queue *verbs_queue_of(struct nic_queue *q)
{
	return (struct verbs_queue *)q;
}

/** NULL: not a destination of this queue. */
static inline struct verbs_dest *verbs_dest_of(struct verbs_queue *q, uint32_t peer)
{
	struct verbs_dest *dest = peer < VERBS_DESTS_MAX ? q->port->dests[peer] : NULL;
	return dest && dest->queue == q ? dest : NULL;
}

/** Takes a transmit slot into `tx`. The caller has checked that one is free. */
static inline void verbs_tx_take(struct verbs_queue *q, struct verbs_dest *dest, uint32_t peer, uint64_t body_len,
				 struct nic_tx *tx)
{
	uint16_t slot = q->tx_free[--q->tx_free_n];
	tx->head = tx->head_room;
	tx->body = q->tx_memory + (size_t)slot * q->tx_stride;
	tx->body_len = body_len;
	tx->cookie = slot;
	tx->driver_data = dest;
	tx->peer = peer;
	tx->priority = 0;
}

static inline void verbs_count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

#endif
