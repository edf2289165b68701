/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Packets over reliable connections (RC), for devices without datagrams (iWARP) and for rc=1. To the engine such a port
 * is a datagram driver: destinations need no set-up, and packets may be lost. Each queue keeps up to `connections=`
 * connections to remote queues, set up when there is something to send. When another one is needed, the least recently
 * used one is closed, and what was in flight on it is lost.
 *
 * Threads:
 * - The control thread decides which connections are set up, accepted and closed. It owns `state`.
 * - Threads of the port (pools) make the calls that may block in the kernel: setting up (some devices connect a TCP
 *   socket in the call) and tearing down.
 * - The poller of a queue sends and receives. Control thread and poller notify each other by mail (struct verbs_mail),
 *   so neither scans all connections.
 *
 * Phases of a connection as the poller sees it (enum verbs_conn_phase):
 *
 *	CONN_NONE -> CONN_CONNECTED (connected by us), or CONN_ACCEPTED (accepted; usable after its first packet)
 *	          -> CONN_CLOSE_REQUESTED -> CONN_CLOSE_ACKED -> CONN_DESTROYED -> CONN_NONE
 *
 * From CONN_CLOSE_REQUESTED on the poller posts nothing more, and acknowledges by CONN_CLOSE_ACKED. Then the queue pair
 *is destroyed: CONN_DESTROYED. The poller takes its buffers back: CONN_NONE. The connecting side sends an empty packet
 *first, since iWARP requires that the accepting side waits for the first packet.
 */
#ifndef NIC_VERBS_RC_H
#define NIC_VERBS_RC_H

#include "base/group_key.h"
#include "nic/verbs/cm.h"
#include "nic/verbs/verbs.h"

/* Default of connections=, per queue. The minimum is 2: a queue connected with itself has two ends. */
#define VERBS_CONNS     64u
#define VERBS_CONNS_MIN 2u
#define VERBS_CONNS_MAX 1024u
/* Additional connections that are being closed. */
#define VERBS_CONNS_CLOSING 4u
/* log2 of the receive buffers of a connection, on devices without shared receive queues. */
#define VERBS_OWN_SHIFT 5u
/* Minimum time that a connection is kept, so that the packets it was set up for get through. */
#define VERBS_KEEP_NS UINT64_C(20000000)
/* Limit of a connection set-up. */
#define VERBS_CONNECT_NS       UINT64_C(5000000000)
#define VERBS_RESOLVE_MS       2000
#define VERBS_GIVE_UP_NS       UINT64_C(2000000000) /* limit of packets that wait for a connection; then they are dropped */
#define VERBS_RECONNECT_NS     UINT64_C(10000000)   /* the peer is busy, or connects to us */
#define VERBS_RECONNECT_NS_MAX UINT64_C(1000000000) /* after failures: doubled up to this */
/* Threads that connect; the kernel may block each until the connection is given up. */
#define VERBS_CONNECTORS_MAX 4u
#define VERBS_REMOTE_BUCKETS 1024u
#define VERBS_SLOT_NONE      0xffffu
#define VERBS_BACKLOG        128
#define VERBS_VENDOR_SIW     0x626d74u /* ibv_device_attr.vendor_id of Linux' siw */

/* Purpose of a connection. */
enum verbs_kind { VERBS_KIND_PACKETS = 1, VERBS_KIND_BULK };

/** Handshake payload of a connect request (private data), in host byte order like the address. */
struct verbs_connect_request {
	uint32_t magic; /* VERBS_REQUEST_MAGIC */
	uint16_t body_max;
	uint16_t kind;            /* enum verbs_kind */
	uint32_t to_qpn, to_qkey; /* name of the addressed queue, from its published address */
	uint32_t from_qpn, from_qkey;
	uint64_t number;                 /* increases with each request of the port, against replay */
	uint8_t proof[AUTH_PROOF_BYTES]; /* 0 and not checked with security=none */
};
#define VERBS_REQUEST_MAGIC 0x32435246u
static_assert(sizeof(struct verbs_connect_request) == 48, "RoCE leaves 56 bytes");

/** Handshake payload of an accept (private data). */
struct verbs_accept {
	uint32_t magic; /* VERBS_ACCEPT_MAGIC */
	uint32_t zero;
	uint8_t proof[AUTH_PROOF_BYTES]; /* covers the request, too; 0 and not checked with security=none */
};
#define VERBS_ACCEPT_MAGIC 0x32415246u
static_assert(sizeof(struct verbs_accept) == 24, "no holes: its proof covers bytes");

/* Reason of a reject: one byte of private data. */
enum verbs_reject { VERBS_REJECT_UNKNOWN = 1, VERBS_REJECT_BUSY, VERBS_REJECT_CROSSED, VERBS_REJECT_PROOF };

/* Why a connect request or an accept counts as refused. */
enum verbs_refusal {
	VERBS_REFUSED_LAYOUT,   /* request of another layout */
	VERBS_REFUSED_PROOF,    /* request without a proof of the key */
	VERBS_REFUSED_NAME,     /* no queue has the addressed name */
	VERBS_REFUSED_REPEATED, /* replay of an earlier request */
	VERBS_REFUSED_ACCEPT,   /* accept without a proof of the key */
	VERBS_REFUSED_BY_PEER,  /* the peer refused our proof: logged, not counted here */
	VERBS_REFUSALS
};

/* Pairs of queues whose last request number is kept, about 3 MiB. Beyond it the oldest pair is evicted, and a replay of
 * its last request would be accepted. */
#define VERBS_LAST_REQUESTS_MAX 65536u

/** The number of the last request from a remote queue to one of ours. */
struct verbs_last_request {
	struct verbs_last_request *next;  /* of the hash bucket */
	struct verbs_last_request *later; /* of all, by age: the oldest is forgotten first */
	const struct verbs_queue *queue;
	uint32_t qpn, qkey; /* name of the remote queue */
	uint64_t number;    /* later requests have a higher one */
};

/** A mailbox entry: notifies the other side that something of its owner has changed. Each entry is in its mailbox at
 * most once. */
struct verbs_mail {
	struct verbs_mail *next;
	_Atomic bool queued; /* 1: in a mailbox. Both sides exchange it: a sender that finds it set need not push; the
				receiver clears it before it reads the owner */
	bool is_conn;        /* first member of a struct verbs_conn; else of a struct verbs_remote */
};

enum verbs_conn_phase {
	CONN_NONE,
	CONN_ACCEPTED,
	CONN_CONNECTED,
	CONN_CLOSE_REQUESTED,
	CONN_CLOSE_ACKED,
	CONN_DESTROYED
};

enum verbs_conn_state {
	CONN_FREE,
	CONN_RESOLVING,  /* rdma_cm resolves address and route */
	CONN_CONNECTING, /* a thread connects, then the network */
	CONN_ACCEPTING,  /* a thread accepts, then the network */
	CONN_UP,
	CONN_DRAINING,  /* the poller must acknowledge the close */
	CONN_CLOSING,   /* a thread destroys the queue pair */
	CONN_RECLAIMING /* the poller takes its buffers back */
};

enum verbs_job { JOB_NONE, JOB_CONNECT, JOB_ACCEPT, JOB_CLOSE };

struct verbs_remote;
struct verbs_bulk;
struct verbs_bulk_op;

struct verbs_conn {
	struct verbs_mail to_poller;  /* mail to the poller; must be first */
	struct verbs_mail to_control; /* mail to the control thread */
	struct verbs_queue *queue;
	struct verbs_remote *remote; /* constant from the first mail to the poller until CONN_DESTROYED */
	uint16_t index;
	uint16_t generation;    /* incremented for each use of the struct; in wr_id */
	_Atomic uint32_t phase; /* enum verbs_conn_phase; release and acquire */
	_Atomic bool broken;    /* written by the poller when an operation failed */
	_Atomic uint32_t
		used; /* the queue's `tick` at the last packet; written by the poller, read by the control thread */
	struct ibv_qp *qp; /* written by a port's thread before the poller is notified */
	uint32_t inline_max;
	struct verbs_bulk *bulk; /* bulk.h; constant. NULL: a connection for packets */

	/* The control thread's; while `job` is set the worker thread's, except for what events report. */
	struct rdma_cm_id *id;
	enum verbs_conn_state state;
	bool active; /* we connect, rather than accept; constant while the poller knows the connection */
	/* `live`: counts towards the queue's limit; `ending`: is being ended; `answered`: the peer has accepted;
	 * `established`: rdma_cm has reported it. */
	bool live, ending, answered, established;
	/* ns; 0: none */
	uint64_t deadline, up_at;
	enum verbs_job job;
	int job_error;
	struct verbs_worker *worker; /* the thread that runs the job */
	struct verbs_conn *next_job;

	/* The poller's. */
	struct ibv_send_wr *first, *last; /* chain of work requests that waits for flush() */
	uint16_t out_first, out_last;     /* slots that are posted or in the chain, in order; VERBS_SLOT_NONE: none */
	uint32_t qpn;                     /* of an accepted connection: number of its queue pair */
	/* `is_dirty`: in verbs_rcq.dirty; `is_announced`: CONN_ACCEPTED was processed; `awaits_first`: its first packet
	 * is awaited; `is_ready`: CONN_CONNECTED was processed; `is_usable`: in verbs_remote.conn; `close_acked`,
	 * `destroyed`: CONN_CLOSE_REQUESTED, CONN_DESTROYED was processed; `is_deferred`: to be processed by a later
	 * pass. */
	bool is_dirty, is_announced, awaits_first, is_ready, is_usable, close_acked, destroyed, is_deferred;
	struct verbs_conn *next_dirty, *next_awaiting, *next_usable, *next_deferred;

	/* Written by the control thread before the job that sends it; read by the worker thread. */
	struct verbs_connect_request request; /* if active */
	struct verbs_accept accept;           /* if not active */
};

/** A remote queue as one of our queues sees it. Kept while destinations, connections or mail refer to it. */
struct verbs_remote {
	struct verbs_mail to_poller, to_control;
	struct verbs_queue *queue;
	uint32_t qpn, qkey; /* its name */
	_Atomic bool gave_up;

	/* The control thread's. */
	uint8_t gid[16];
	uint16_t service; /* rdma_cm's port; 0: unknown, no destination leads there */
	uint32_t refs;    /* destinations */
	uint32_t conns;   /* connections that are not CONN_FREE */
	uint32_t ups;     /* connections that are CONN_UP */
	struct verbs_conn *connecting;
	bool wanted;
	uint64_t retry_at, retry_ns, give_up_at;
	struct verbs_remote *next_wanted, *next;

	/* The poller's. */
	struct verbs_conn *conn; /* the connection to send by, then other usable ones; NULL: packets wait */
	bool is_requested, is_waiting;
	uint32_t attached;
	uint16_t wait_first, wait_last;
	struct verbs_remote *next_waiting;
};

/** The connections of a queue; extends struct verbs_queue. */
struct verbs_rcq {
	struct ibv_srq *srq; /* shared receive queue; NULL: connections have receive buffers of their own */
	bool per_conn_buffers;
	unsigned conns_n, bound;
	struct verbs_conn *conns; /* [conns_n] */
	/* The control thread's. */
	unsigned live; /* connections that are being set up or CONN_UP, [0, bound] */
	struct verbs_remote *wanted_first, **wanted_last;
	/* The poller's. */
	struct verbs_conn *dirty, *awaiting_first,
		*deferred; /* `deferred`: CONN_CLOSE_REQUESTED or CONN_DESTROYED, not acknowledged yet */
	bool emptied;      /* the receive queue was found empty since the last addition to `deferred` */
	struct verbs_remote *waiting, **waiting_last;
	/* For bulk; the poller's, except cq. Completions of packets use the queue's own. */
	struct ibv_cq *cq;
	uint32_t events_unacked;
	uint32_t ops_n;                                /* operations that are not BULK_FREE */
	struct verbs_bulk_op *bulk_first, **bulk_last; /* operations with an event */
	const void *mem_at; /* requested memory; the poller's, the control thread's while mem_requested is set */
	uint64_t mem_len;
	_Atomic bool mem_requested;
	uint16_t slot_next[VERBS_TX_RING];
	uint16_t slot_conn[VERBS_TX_RING]; /* index of the connection; VERBS_SLOT_NONE */
	/* Mailboxes, each on a line of its own, since the other core writes to it; then fields that the poller writes
	 * and the control thread reads. */
	alignas(64) _Atomic(struct verbs_mail *) to_poller;
	alignas(64) _Atomic(struct verbs_mail *) to_control;
	alignas(64) _Atomic uint32_t tick; /* counts flushes; orders connections by their last use */
	_Atomic bool reading_mail;
};

/** A thread of a pool. */
struct verbs_worker {
	struct verbs_pool *pool;
	pthread_t thread;
	bool started; /* written by the control thread */
	_Atomic bool ended;
	bool cancelled;                 /* under the pool's lock */
	struct verbs_conn *cancellable; /* the connection of a cancellable call; kept after a cancellation. Under the
					   pool's lock */
};

/** A pool of threads that run jobs in order. */
struct verbs_pool {
	struct verbs_port *port;
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct verbs_conn *first, **last; /* under `lock` */
	unsigned idle;                    /* under `lock` */
	bool stop, opened;                /* stop: under `lock` */
	unsigned max;
	struct verbs_worker workers[VERBS_CONNECTORS_MAX];
	_Atomic unsigned threads_running;
};

/** The connections of a port; extends struct verbs_port. The control thread's, unless noted. */
struct verbs_rc {
	const struct verbs_cm *cm;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	uint16_t service;
	unsigned conns_n; /* connections of all queues that are not CONN_FREE */
	uint32_t draw;    /* state of a random generator, so that two ends do not retry in step */
	struct verbs_pool connectors, acceptor;
	pthread_mutex_t done_lock;
	struct verbs_conn *done; /* finished jobs; under `done_lock` */
	struct verbs_remote *remotes[VERBS_REMOTE_BUCKETS];
	unsigned unreferenced; /* remote queues without destinations */
	/* Proofs (rc_proof.c). */
	bool key_known;
	struct auth_key key; /* derived from the group's key; valid if key_known */
	uint64_t number;     /* number of the last connect request */
	struct verbs_last_request *last_requests[VERBS_REMOTE_BUCKETS];
	struct verbs_last_request *last_requests_first, **last_requests_last; /* in the order of insertion */
	unsigned last_requests_n;
	_Atomic uint64_t refused[VERBS_REFUSALS]; /* counters; read by any thread */
	bool logged[VERBS_REFUSALS];
};

/* ---- rc_address.c: control thread ---- */

/** The IP addresses of a device that has no GID table (iWARP), in the form of RoCE v2 entries; the caller frees *out.
 * Their number or -errno. */
int verbs_rc_addresses(const char *device, struct ibv_gid_entry **out, struct nic_err *err);
struct sockaddr_storage verbs_rc_sockaddr(const uint8_t gid[16], uint16_t service, unsigned ifindex);

/* ---- rc_port.c: control thread ---- */

int verbs_rc_open(struct verbs_port *p, struct nic_err *err);
uint64_t verbs_rc_step(struct verbs_port *p, uint64_t now);
/** Stops the worker threads: they end after their present job. */
void verbs_rc_stop(struct verbs_port *p);
bool verbs_rc_ended(const struct verbs_port *p);
/** Joins the worker threads and destroys all connections; buffers stay. */
void verbs_rc_close(struct verbs_port *p);
/** Frees the memory. */
void verbs_rc_free(struct verbs_port *p);

/* ---- rc_proof.c: control thread ---- */

/** Fills c->request. */
void verbs_request_make(struct verbs_conn *c);
/** True if a member of the group made the request; always with security=none. */
bool verbs_request_proven(struct verbs_port *p, const struct verbs_connect_request *w);
/** False: a replay of an earlier request. For a proven request to queue `q`; call once per request. */
bool verbs_request_fresh(const struct verbs_queue *q, const struct verbs_connect_request *w);
/** Fills c->accept, which answers the request. */
void verbs_accept_make(struct verbs_conn *c, const struct verbs_connect_request *w);
/** True if a member of the group accepted c->request; always with security=none. */
bool verbs_accept_proven(const struct verbs_conn *c, const struct verbs_accept *a);
/** Counts a refusal, and logs the first one of each reason. */
void verbs_refusal_count(struct verbs_port *p, enum verbs_refusal why);
/** Logs, once, that the peer refused our proof. */
void verbs_refused_by_peer(struct verbs_port *p);
void verbs_proofs_free(struct verbs_rc *rc);

/* ---- rc_cache.c: control thread ---- */

/** The remote queue, created if unknown; without a reference. NULL: out of memory. */
struct verbs_remote *verbs_remote_find(struct verbs_queue *q, uint32_t qpn, uint32_t qkey);
/** The same with one reference more. */
struct verbs_remote *verbs_remote_get(struct verbs_queue *q, uint32_t qpn, uint32_t qkey);
void verbs_remote_put(struct verbs_queue *q, struct verbs_remote *r);
/** Frees remote queues without references. */
void verbs_remotes_sweep(struct verbs_port *p);
/** A new connection within the queue's limit, evicting another one if necessary. NULL: not now; *next is the time of
 * the next try. */
struct verbs_conn *verbs_conn_new(struct verbs_queue *q, struct verbs_remote *r, uint64_t now, uint64_t *next);
/** Serves the queue's requests for connections. Returns the time of the next call. */
uint64_t verbs_cache_step(struct verbs_queue *q, uint64_t now);
/** The peer could not connect now: tries again; packets keep waiting. */
void verbs_remote_retry(struct verbs_remote *r, uint64_t now);
/** Gives up: the poller drops the packets that wait. */
void verbs_remote_give_up(struct verbs_remote *r, uint64_t now);

/* ---- rc_connect.c: control thread ---- */

/** Starts to connect: 0, or -errno with the connection ended. */
int verbs_conn_connect(struct verbs_conn *c, uint64_t now);
/** Sets the connection up when both the worker thread and rdma_cm have finished. */
void verbs_conn_advance(struct verbs_conn *c, uint64_t now);
/** Ends a connection in any state; `reject`: the peer's reject reason, 0: none. */
void verbs_conn_end(struct verbs_conn *c, enum verbs_reject reject, uint64_t now);
/** Mail of the poller has arrived, or the job has finished. */
void verbs_conn_mail_received(struct verbs_conn *c, uint64_t now);
void verbs_conn_job_done(struct verbs_conn *c, uint64_t now);

/* ---- rc_job.c: worker threads ---- */

/** Runs the job and sets `job_error`. */
void verbs_job_run(struct verbs_conn *c);
/** Moves the queue pair from INIT to RTS, where librdmacm leaves that to the caller. 0 or -errno. */
int verbs_conn_start(struct verbs_conn *c);
/** Destroys the queue pair and its rdma_cm id. */
void verbs_conn_destroy(struct verbs_conn *c);

/* ---- rc_pool.c: control thread, unless noted ---- */

int verbs_pool_open(struct verbs_pool *pool, struct verbs_port *p, unsigned max);
/** Queues the job. -errno: no thread is available, and the job is not queued. */
int verbs_pool_give(struct verbs_pool *pool, struct verbs_conn *c);
/** Ends the job even if the kernel blocks it: it finishes with an error. */
void verbs_pool_interrupt(struct verbs_pool *pool, struct verbs_conn *c);
/** Joins cancelled threads, and starts others if jobs wait. */
void verbs_pool_step(struct verbs_pool *pool);
/** Worker thread: calls a function that may be cancelled in a system call, and returns its result; -ECANCELED: not
 * called, the pool stops. */
int verbs_pool_call_cancellable(struct verbs_conn *c, int (*call)(struct verbs_conn *c, void *arg), void *arg);
void verbs_pool_stop(struct verbs_pool *pool);
void verbs_pool_close(struct verbs_pool *pool);

/* ---- rc_open.c: control thread ---- */

/** Allocates the queue's connections and determines the number of receive buffers. Call before the queue's memory is
 * allocated. */
int verbs_rcq_alloc(struct verbs_queue *q);
/** Creates the shared receive queue, if one is used. */
int verbs_rcq_open(struct verbs_queue *q, struct nic_err *err);
void verbs_rcq_close(struct verbs_queue *q);

/* ---- rc_queue.c, rc_poller.c: poller ---- */

extern const struct nic_queue_ops verbs_rc_queue_ops;
/** Reads the mailbox. `drained`: no received packet of a previous burst is in use. */
void verbs_rc_read_mail(struct verbs_queue *q, bool drained);
/** Processes send completions. */
void verbs_rc_reap(struct verbs_queue *q);
/** Processes the empty packet that opens an accepted connection; false: it is none. */
bool verbs_rc_first_packet(struct verbs_queue *q, uint32_t qpn);
void verbs_rc_broken(struct verbs_conn *c);
/** Requests a connection for bulk; the answer comes by mail. */
void verbs_rc_request_conn(struct verbs_remote *r);
/** verbs_rc_chain() appends a slot to the chain that the next flush sends; verbs_rc_wait() lets it wait for a
 * connection. */
void verbs_rc_chain(struct verbs_conn *c, uint16_t slot);
void verbs_rc_wait(struct verbs_remote *r, uint16_t slot);
void verbs_rc_drop_waiting(struct verbs_remote *r);
/** Drops all packets: the device is released. */
void verbs_rc_drop_all(struct verbs_queue *q);

/* ---- mailboxes ---- */

/** True if the entry was not in the mailbox. */
static inline bool verbs_mail_push(_Atomic(struct verbs_mail *) *to, struct verbs_mail *mail)
{
	if (atomic_exchange_explicit(&mail->queued, true, memory_order_acq_rel))
		return false;
	mail->next = atomic_load_explicit(to, memory_order_relaxed);
	/* Pairs with the exchange in verbs_mail_take(). */
	while (!atomic_compare_exchange_weak_explicit(to, &mail->next, mail, memory_order_release,
						      memory_order_relaxed))
		;
	return true;
}

/** Takes all entries; read `next` of an entry before verbs_mail_clear(). */
static inline struct verbs_mail *verbs_mail_take(_Atomic(struct verbs_mail *) *from)
{
	return atomic_exchange_explicit(from, NULL, memory_order_acquire);
}

static inline void verbs_mail_clear(struct verbs_mail *mail)
{
	atomic_exchange_explicit(&mail->queued, false, memory_order_acq_rel);
}

static inline enum verbs_conn_phase verbs_phase(const struct verbs_conn *c)
{
	return (enum verbs_conn_phase)atomic_load_explicit(&c->phase, memory_order_acquire);
}

static inline void verbs_phase_set(struct verbs_conn *c, enum verbs_conn_phase phase)
{
	atomic_store_explicit(&c->phase, phase, memory_order_release);
}

/** Control thread and worker threads: notifies the poller. */
static inline void verbs_notify_poller(struct verbs_queue *q, struct verbs_rcq *rcq, struct verbs_mail *mail)
{
	verbs_mail_push(&rcq->to_poller, mail);
	verbs_signal(q->event_fd);
}

/** Poller: notifies the control thread. */
static inline void verbs_notify_control(struct verbs_queue *q, struct verbs_rcq *rcq, struct verbs_mail *mail)
{
	if (verbs_mail_push(&rcq->to_control, mail))
		verbs_signal(q->port->event_fd);
}

#endif
