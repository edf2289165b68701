/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Packets by connections, where a device has no datagrams (iWARP) or rc=1 says so. Above, a port of connections is a
 * datagram driver like any other: places can be sent to without a set-up, packets may be lost. Below, a queue has
 * connections to remote queues, made when something is to be sent, in a cache of `connections=` of them: when another
 * is wanted, the one that was used least recently is closed, and what was under way on it is lost.
 *
 * Who does what:
 * - The control core decides: what is made, taken, closed. It owns `state` and all that is said to be its own.
 * - Threads of the port's do what may take the kernel long: setting up, which on some devices connects a TCP socket
 *   in the call, and tearing down.
 * - The holder of a queue sends and receives. It is told of connections by notes, and answers by notes: nobody looks
 *   through all connections in a pass.
 *
 * The life of a connection, as far as the holder knows of it (enum verbs_conn_phase):
 *
 *	NONE -> READY (made here)  -> LEAVE -> LEFT -> DEAD -> NONE
 *	NONE -> MADE (taken here; may be sent on when it was heard) -> LEAVE …
 *
 * From LEAVE the holder posts nothing more and says LEFT; the queue pair is destroyed, DEAD; the holder takes its
 * buffers back, NONE. Who made a connection sends an empty packet first, as iWARP's rule is that the other side keeps
 * silent until it has heard something.
 */
#ifndef NIC_VERBS_RC_H
#define NIC_VERBS_RC_H

#include "base/group_key.h"
#include "nic/verbs/cm.h"
#include "nic/verbs/verbs.h"

/* Connections of a queue at once, when connections= does not say otherwise. Two: a queue with itself has two ends. */
#define VERBS_CONNS     64u
#define VERBS_CONNS_MIN 2u
#define VERBS_CONNS_MAX 1024u
/* Beside them, those that are being closed. */
#define VERBS_CONNS_CLOSING 4u
/* Receive buffers of a connection on devices without shared receive queues: 1 << this. */
#define VERBS_OWN_SHIFT 5u
/* A connection is kept so long at least: what it was made for is to get through. */
#define VERBS_KEEP_NS UINT64_C(20000000)
/* What takes longer to be made has failed. */
#define VERBS_MAKE_NS      UINT64_C(5000000000)
#define VERBS_RESOLVE_MS   2000
#define VERBS_GIVE_UP_NS   UINT64_C(2000000000) /* what waits for a connection that is not made by then is dropped */
#define VERBS_AGAIN_NS     UINT64_C(10000000)   /* the other end is busy, or makes one itself */
#define VERBS_AGAIN_NS_MAX UINT64_C(1000000000) /* after failures: doubled up to this */
/* Threads that connect: each may be held by the kernel until the connection is given up. */
#define VERBS_CONNECTORS_MAX 4u
#define VERBS_REMOTE_BUCKETS 1024u
#define VERBS_SLOT_NONE      0xffffu
#define VERBS_BACKLOG        128
#define VERBS_VENDOR_SIW     0x626d74u /* ibv_device_attr.vendor_id of Linux' siw */

/* What a connection is for. */
enum verbs_kind { VERBS_KIND_PACKETS = 1, VERBS_KIND_BULK };

/** Private data of a connect request, in the machine's order like the address. */
struct verbs_words {
	uint32_t magic; /* VERBS_WORDS_MAGIC */
	uint16_t body_max;
	uint16_t kind;            /* enum verbs_kind */
	uint32_t to_qpn, to_qkey; /* as in the address of whom it is for */
	uint32_t from_qpn, from_qkey;
	uint64_t number;                 /* rises with each request of the port */
	uint8_t proof[AUTH_PROOF_BYTES]; /* security=none: 0, and not checked */
};
#define VERBS_WORDS_MAGIC 0x32435246u
static_assert(sizeof(struct verbs_words) == 48, "RoCE leaves 56 bytes");

/** Private data of an accept. */
struct verbs_accept {
	uint32_t magic; /* VERBS_ACCEPT_MAGIC */
	uint32_t zero;
	uint8_t proof[AUTH_PROOF_BYTES]; /* likewise; covers the request */
};
#define VERBS_ACCEPT_MAGIC 0x32415246u
static_assert(sizeof(struct verbs_accept) == 24, "no holes: its proof covers bytes");

/* Why a connection is refused: a byte of private data. */
enum verbs_no { VERBS_NO_STRANGER = 1, VERBS_NO_BUSY, VERBS_NO_CROSSED, VERBS_NO_PROOF };

/* Why a connect request or an accept counts as refused. */
enum verbs_refusal {
	VERBS_REFUSED_WORDS,    /* a request of another layout */
	VERBS_REFUSED_PROOF,    /* a request without a proof of the key */
	VERBS_REFUSED_NAME,     /* no queue has the name that it is for */
	VERBS_REFUSED_REPEATED, /* a copy of an earlier request */
	VERBS_REFUSED_ACCEPT,   /* an accept without a proof of the key */
	VERBS_REFUSED_THERE,    /* the other end refused our proof: logged, not counted here */
	VERBS_REFUSALS
};

/* Pairs of queues whose last request is kept, some 3 MiB. Beyond it the oldest pair is forgotten: a copy of its last
 * request would be taken. */
#define VERBS_HEARD_MAX 65536u

/** The last request to a queue of ours from a remote one. */
struct verbs_heard {
	struct verbs_heard *next, *later;
	const struct verbs_queue *queue;
	uint32_t qpn, qkey;
	uint64_t number;
};

/** In a stack of what one side has to tell the other: once at most, whatever is to be told. */
struct verbs_note {
	struct verbs_note *next;
	_Atomic bool
		queued; /* both sides exchange it: who finds it set need not push, who clears it looks afterwards */
	bool of_conn;   /* first member of a struct verbs_conn; else of a struct verbs_remote */
};

enum verbs_conn_phase { CONN_NONE, CONN_MADE, CONN_READY, CONN_LEAVE, CONN_LEFT, CONN_DEAD };

enum verbs_conn_state {
	CONN_FREE,
	CONN_RESOLVING,  /* the address and the route */
	CONN_CONNECTING, /* by a thread, then by the network */
	CONN_ACCEPTING,  /* likewise */
	CONN_UP,
	CONN_LEAVING, /* the holder is asked to leave it */
	CONN_CLOSING, /* by a thread */
	CONN_BURYING  /* the holder takes back what was its */
};

enum verbs_job { JOB_NONE, JOB_CONNECT, JOB_ACCEPT, JOB_CLOSE };

struct verbs_remote;
struct verbs_bulk;
struct verbs_bulk_op;

struct verbs_conn {
	struct verbs_note told;  /* to the holder; first */
	struct verbs_note asked; /* to the control core */
	struct verbs_queue *queue;
	struct verbs_remote *remote; /* constant from its being told of to DEAD */
	uint16_t index;
	uint16_t life;          /* counts; in wr_id */
	_Atomic uint32_t phase; /* enum verbs_conn_phase; release and acquire */
	_Atomic bool broken;    /* the holder's finding */
	_Atomic uint32_t used;  /* the queue's `tick` of the last packet; the holder's, read by the control core */
	struct ibv_qp *qp;      /* written by a thread before the holder is told */
	uint32_t inline_max;
	struct verbs_bulk *bulk; /* bulk.h; constant. NULL: it is one of packets */

	/* The control core's; with `job` set the thread's, but for what events tell. */
	struct rdma_cm_id *id;
	enum verbs_conn_state state;
	bool active; /* made here; constant while the holder knows of it */
	bool live, doomed, answered, established;
	uint64_t deadline, up_at;
	enum verbs_job job;
	int job_error;
	struct verbs_worker *worker; /* the thread's own */
	struct verbs_conn *next_job;

	/* The holder's. */
	struct ibv_send_wr *first, *last; /* chain that waits for flush() */
	uint16_t out_first, out_last;     /* slots posted or in the chain, in order; VERBS_SLOT_NONE */
	uint32_t qpn;                     /* of one that was taken */
	bool is_dirty, is_known, is_unheard, is_ready, is_usable, is_left, is_dead, is_late;
	struct verbs_conn *next_dirty, *next_unheard, *next_usable, *next_late;

	/* The control core's, before the job that sends it; then the thread's, too, which reads it. */
	struct verbs_words request; /* active */
	struct verbs_accept accept; /* not active */
};

/** A queue of another port, as a queue of ours sees it. Lives while places, connections or notes refer to it. */
struct verbs_remote {
	struct verbs_note told, asked;
	struct verbs_queue *queue;
	uint32_t qpn, qkey; /* its name */
	_Atomic bool gave_up;

	/* The control core's. */
	uint8_t gid[16];
	uint16_t service; /* rdma_cm's port; 0: not known yet, no place leads there */
	uint32_t refs;    /* places */
	uint32_t conns;   /* not FREE */
	uint32_t ups;     /* UP */
	struct verbs_conn *making;
	bool wanted;
	uint64_t again_at, again_ns, give_up_at;
	struct verbs_remote *next_wanted, *next;

	/* The holder's. */
	struct verbs_conn *conn; /* to send by, then others that could be; NULL: packets wait */
	bool is_asked, is_waiting;
	uint32_t attached;
	uint16_t wait_first, wait_last;
	struct verbs_remote *next_waiting;
};

/** What a queue of connections has beside a struct verbs_queue. */
struct verbs_rcq {
	struct ibv_srq *srq; /* NULL: connections have buffers of their own */
	bool own;
	unsigned conns_n, bound;
	struct verbs_conn *conns; /* [conns_n] */
	/* The control core's. */
	unsigned live; /* connections that count: being made, or UP */
	struct verbs_remote *wanted_first, **wanted_last;
	/* The holder's. */
	struct verbs_conn *dirty, *unheard, *late; /* late: LEAVE or DEAD, not answered yet */
	bool emptied;                              /* the receive queue, since the last was added to `late` */
	struct verbs_remote *waiting, **waiting_last;
	/* Of bulk. The queue's own are for packets; the holder's but for the first. */
	struct ibv_cq *cq;
	uint32_t events_unacked;
	uint32_t ops_n;                                /* not free */
	struct verbs_bulk_op *bulk_first, **bulk_last; /* have something to tell */
	const void *mem_at;                            /* the holder's; the control core's while mem_asked */
	uint64_t mem_len;
	_Atomic bool mem_asked;
	uint16_t slot_next[VERBS_TX_RING];
	uint16_t slot_conn[VERBS_TX_RING]; /* index of the connection, VERBS_SLOT_NONE */
	/* A line for each direction, since the other core writes to it; then what the holder writes and the other
	 * reads.
	 */
	alignas(64) _Atomic(struct verbs_note *) told;
	alignas(64) _Atomic(struct verbs_note *) asked;
	alignas(64) _Atomic uint32_t tick; /* counts what is sent */
	_Atomic bool in_mail;
};

/** A thread of a pool. */
struct verbs_worker {
	struct verbs_pool *pool;
	pthread_t thread;
	bool started; /* the control core's */
	_Atomic bool over;
	bool cancelled;          /* under the pool's lock */
	struct verbs_conn *held; /* likewise; it is in a call that can be cancelled, or was when it ended */
};

/** Threads that do jobs in their order. */
struct verbs_pool {
	struct verbs_port *port;
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct verbs_conn *first, **last; /* under `lock` */
	unsigned idle;                    /* under `lock` */
	bool stop, opened;                /* stop: under `lock` */
	unsigned max;
	struct verbs_worker workers[VERBS_CONNECTORS_MAX];
	_Atomic unsigned alive;
};

/** What a port of connections has beside a struct verbs_port. */
struct verbs_rc {
	const struct verbs_cm *cm;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	uint16_t service;
	unsigned conns_n; /* not FREE, of all queues */
	uint32_t draw;    /* state of a generator, so that two ends do not try again in step */
	struct verbs_pool connectors, porter;
	pthread_mutex_t done_lock;
	struct verbs_conn *done; /* jobs that are, under `done_lock` */
	struct verbs_remote *remotes[VERBS_REMOTE_BUCKETS];
	unsigned unreferred; /* remotes without places */
	/* Proofs (rc_proof.c). */
	bool key_known;
	struct auth_key key; /* derived from the group's, once that is known */
	uint64_t number;     /* of the last connect request */
	struct verbs_heard *heard[VERBS_REMOTE_BUCKETS];
	struct verbs_heard *heard_first, **heard_last; /* by age */
	unsigned heard_n;
	_Atomic uint64_t refused[VERBS_REFUSALS]; /* counters; read by any thread */
	bool logged[VERBS_REFUSALS];
};

/* ---- rc_address.c ---- */

/** The addresses of a device without GIDs that are such, as entries of RoCE v2; the caller frees *out. Their number or
 * -errno. */
int verbs_rc_addresses(const char *device, struct ibv_gid_entry **out, struct nic_err *err);
struct sockaddr_storage verbs_rc_sockaddr(const uint8_t gid[16], uint16_t service, unsigned ifindex);

/* ---- rc_port.c: control core ---- */

int verbs_rc_open(struct verbs_port *p, struct nic_err *err);
uint64_t verbs_rc_step(struct verbs_port *p, uint64_t now);
/** Asks the threads to end. */
void verbs_rc_stop(struct verbs_port *p);
bool verbs_rc_ended(const struct verbs_port *p);
/** Waits for the threads, and gives all connections back; buffers stay. */
void verbs_rc_close(struct verbs_port *p);
/** Frees what is left in memory. */
void verbs_rc_free(struct verbs_port *p);
/** Reads what rdma_cm has to say. */
void verbs_rc_events(struct verbs_port *p, uint64_t now);

/* ---- rc_proof.c: control core ---- */

/** Fills `c->request` in. */
void verbs_request_make(struct verbs_conn *c);
/** Did a member of the group make it? With security=none: true. */
bool verbs_request_proven(struct verbs_port *p, const struct verbs_words *w);
/** False: it is a copy of one that came before, or older. Of a proven one, for queue `q`; once. */
bool verbs_request_fresh(const struct verbs_queue *q, const struct verbs_words *w);
/** Fills `c->accept` in, for the request. */
void verbs_accept_make(struct verbs_conn *c, const struct verbs_words *w);
/** Did a member of the group accept `c->request`? With security=none: true. */
bool verbs_accept_proven(const struct verbs_conn *c, const struct verbs_accept *a);
/** Counts, and logs the first of each reason. */
void verbs_refusal_count(struct verbs_port *p, enum verbs_refusal why);
/** Logs the first time that the other end did not take our proof. */
void verbs_refused_there(struct verbs_port *p);
void verbs_proofs_free(struct verbs_rc *rc);

/* ---- rc_cache.c: control core ---- */

/** Known or new, without a reference; NULL: no memory. */
struct verbs_remote *verbs_remote_find(struct verbs_queue *q, uint32_t qpn, uint32_t qkey);
/** With one reference more; NULL: no memory. */
struct verbs_remote *verbs_remote_get(struct verbs_queue *q, uint32_t qpn, uint32_t qkey);
void verbs_remote_put(struct verbs_queue *q, struct verbs_remote *r);
/** Frees those that nobody refers to. */
void verbs_remotes_sweep(struct verbs_port *p);
/** A connection that counts, made room for when it must be; NULL: not now, `*next` is when to ask again. */
struct verbs_conn *verbs_conn_new(struct verbs_queue *q, struct verbs_remote *r, uint64_t now, uint64_t *next);
/** Does what queues asked for; when to be called again. */
uint64_t verbs_cache_step(struct verbs_queue *q, uint64_t now);
/** Something is to be sent there. */
void verbs_remote_want(struct verbs_remote *r, uint64_t now);
/** The other end could not now: its packets wait on. */
void verbs_remote_retry(struct verbs_remote *r, uint64_t now);
/** None is to be had: what waits for one is dropped by the holder. */
void verbs_remote_give_up(struct verbs_remote *r, uint64_t now);

/* ---- rc_connect.c: control core ---- */

/** Starts making one: 0, or -errno with the connection ended. */
int verbs_conn_make(struct verbs_conn *c, uint64_t now);
/** It is UP from now on, if the thread and the network have both said so. */
void verbs_conn_advance(struct verbs_conn *c, uint64_t now);
/** Ends it, whatever its state; `no`: the other end's reason, 0: none. */
void verbs_conn_end(struct verbs_conn *c, enum verbs_no no, uint64_t now);
/** The holder's note, or the thread's, has come. */
void verbs_conn_noted(struct verbs_conn *c, uint64_t now);
void verbs_conn_done(struct verbs_conn *c, uint64_t now);

/* ---- rc_job.c: threads ---- */

/** Does the job; `job_error` is what came of it. */
void verbs_job_do(struct verbs_conn *c);
/** From INIT to one that sends, where the library leaves that to us. 0 or -errno. */
int verbs_conn_start(struct verbs_conn *c);
/** Destroys the queue pair and what rdma_cm has of it. */
void verbs_conn_destroy(struct verbs_conn *c);

/* ---- rc_pool.c ---- */

int verbs_pool_open(struct verbs_pool *pool, struct verbs_port *p, unsigned max);
/** Has a thread do it; when there is none to be had, at once (closing) or never: then -errno. */
int verbs_pool_give(struct verbs_pool *pool, struct verbs_conn *c);
/** It is to end, whatever holds it up: it comes back as done, with an error. */
void verbs_pool_interrupt(struct verbs_pool *pool, struct verbs_conn *c);
/** Joins threads that were cancelled, and starts others when jobs wait. */
void verbs_pool_step(struct verbs_pool *pool);
/** On a thread: what may be cancelled in a system call. What it returns; -ECANCELED: not called, all is to end. */
int verbs_pool_held(struct verbs_conn *c, int (*call)(struct verbs_conn *c, void *arg), void *arg);
void verbs_pool_stop(struct verbs_pool *pool);
void verbs_pool_close(struct verbs_pool *pool);

/* ---- rc_open.c ---- */

/** Before the queue's memory is taken: how many buffers, whose. */
int verbs_rcq_shape(struct verbs_queue *q);
/** The shared receive queue, if there is one. */
int verbs_rcq_open(struct verbs_queue *q, struct nic_err *err);
void verbs_rcq_close(struct verbs_queue *q);

/* ---- rc_queue.c, rc_poller.c: the queue's holder ---- */

extern const struct nic_queue_ops verbs_rc_queue_ops;
/** Takes the notes that there are; `between`: nobody reads a received packet. */
void verbs_rc_mail(struct verbs_queue *q, bool between);
/** Lets go of what completed. */
void verbs_rc_reap(struct verbs_queue *q);
/** The first packet of a connection that was taken: true when it was that. */
bool verbs_rc_heard(struct verbs_queue *q, uint32_t qpn);
void verbs_rc_broken(struct verbs_conn *c);
/** A connection is wanted, for bulk: it has been told of when there is one, or forgotten. */
void verbs_rc_ask(struct verbs_remote *r);
/** Appends a slot to what its connection, if there is one, sends with the next flush; else it waits for one. */
void verbs_rc_chain(struct verbs_conn *c, uint16_t slot);
void verbs_rc_wait(struct verbs_remote *r, uint16_t slot);
void verbs_rc_drop_waiting(struct verbs_remote *r);
/** Forgets all packets: the device is to be left. */
void verbs_rc_leave(struct verbs_queue *q);

/* ---- notes ---- */

/** Says whether it was not there yet. */
static inline bool verbs_note_push(_Atomic(struct verbs_note *) *to, struct verbs_note *note)
{
	if (atomic_exchange_explicit(&note->queued, true, memory_order_acq_rel))
		return false;
	note->next = atomic_load_explicit(to, memory_order_relaxed);
	/* Pairs with the exchange of who takes all. */
	while (!atomic_compare_exchange_weak_explicit(to, &note->next, note, memory_order_release,
						      memory_order_relaxed))
		;
	return true;
}

/** All of them; `next` of one is to be read before verbs_note_clear(). */
static inline struct verbs_note *verbs_note_take(_Atomic(struct verbs_note *) *from)
{
	return atomic_exchange_explicit(from, NULL, memory_order_acquire);
}

static inline void verbs_note_clear(struct verbs_note *note)
{
	atomic_exchange_explicit(&note->queued, false, memory_order_acq_rel);
}

static inline enum verbs_conn_phase verbs_phase(const struct verbs_conn *c)
{
	return (enum verbs_conn_phase)atomic_load_explicit(&c->phase, memory_order_acquire);
}

static inline void verbs_phase_set(struct verbs_conn *c, enum verbs_conn_phase phase)
{
	atomic_store_explicit(&c->phase, phase, memory_order_release);
}

/** To the holder. */
static inline void verbs_tell(struct verbs_queue *q, struct verbs_rcq *rcq, struct verbs_note *note)
{
	verbs_note_push(&rcq->told, note);
	verbs_signal(q->event_fd);
}

/** To the control core. */
static inline void verbs_ask(struct verbs_queue *q, struct verbs_rcq *rcq, struct verbs_note *note)
{
	if (verbs_note_push(&rcq->asked, note))
		verbs_signal(q->port->event_fd);
}

#endif
