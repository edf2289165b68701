/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The agent: this worker's membership of a group, and the engine behind it.
 *
 * Functions that may run application code on the calling thread. Application code is handlers, completion callbacks,
 * continuations, destructors of objects, release and placement callbacks. A thread that holds a lock which such code
 * takes must not call these functions; it may call all others.
 *
 * | function                                                          | may run                                    |
 * |-------------------------------------------------------------------|--------------------------------------------|
 * | waits: far_rpc_sync*, far_msg_call*, far_future_wait*,            | any, unless the driver is FAR_DRIVER_OWN   |
 * |   far_scope_end, far_rref_rpc_sync, far_rref_to_here,             |                                            |
 * |   far_rref_local_value, far_rref_object, far_rref_type,           |                                            |
 * |   far_rref_wait, far_rref_flush, far_all_gather, far_barrier      |                                            |
 * | far_future_free, last reference of a pending fan-out: it waits    | as the waits                               |
 * | far_init_rpc, far_shard_poll*, far_shutdown, far_shutdown_local   | any                                        |
 * | far_future_set_value, far_future_set_error; far_future_free, last | the callbacks of that future and of the    |
 * |   reference of a pending user-made future                         |   futures that derive from it              |
 * | far_future_then, far_future_on_done of a complete future          | the callback that is being added           |
 * | far_msg_send_parts, far_msg_post_parts                            | the `release` that was passed              |
 * | far_shard_release, far_rref_free, far_deferred_*, far_return*,    | none                                       |
 * |   far_fail, far_reply*, far_future_cancel, far_msg_post,          |                                            |
 * |   far_msg_send, far_rpc_async*, far_rref_rpc_async, far_remote*,  |                                            |
 * |   far_rpc_fanout, far_msg_fanout, and every function not named    |                                            |
 * |   above                                                           |                                            |
 *
 * What the last row leaves to be done runs on the shard's own thread, which is woken, or on a thread that waits. The
 * functions of a custom type (size, encode, decode, destroy) run wherever a value of the type is passed, read or
 * finished.
 */
#ifndef FARCALL_AGENT_H
#define FARCALL_AGENT_H

#include <farcall/future.h>
#include <farcall/status.h>
#include <farcall/value.h>

#ifdef __cplusplus
extern "C" {
#endif

struct far_agent;
struct far_class;
struct far_req;

/** Who runs the shard, that is, who polls its queues. */
enum far_driver {
	FAR_DRIVER_SHARED, /* a waiting application thread, one at a time; the shard's own thread when nobody waits */
	FAR_DRIVER_OWN     /* only the shard's own thread: handlers never run on application threads */
};

/** What the driver of a shard does when there is nothing to do. */
enum far_idle {
	FAR_IDLE_ADAPTIVE, /* spin, yield, sleep until woken */
	FAR_IDLE_BUSY      /* spin for ever: lowest latency, one core per shard (implies FAR_DRIVER_OWN's thread never
			      sleeps). Under a cgroup's quota of less than one CPU for each shard it sleeps all the
			      same, and a warning on stderr says so */
};

/** When the sessions with the other workers are set up. */
enum far_connect {
	FAR_CONNECT_AUTO, /* all by far_init_rpc(); in a group that needs more than 256 of a worker, as LAZY */
	FAR_CONNECT_LAZY  /* each by its first call. One member that says so decides for the group */
};

/** What far_shutdown() does about remote references that somebody in the group still holds then. */
enum far_leaks {
	FAR_LEAKS_TELL,   /* names each and who holds it on stderr; holders elsewhere only when all left in order */
	FAR_LEAKS_IGNORE, /* nothing */
	FAR_LEAKS_FAIL    /* the same as TELL, and returns FAR_LEAKED, naming the first ones, unless it fails anyway */
};

/** Where a handler runs, stated at registration. */
enum far_kind {
	FAR_KIND_NONE, /* not stated: refused */
	/** On the burst, on the receive buffer, on the thread that drives the shard. The cheapest; must not wait: a
	 * wait returns FAR_WOULD_DEADLOCK. Nothing else is served while it runs. */
	FAR_KIND_INLINE,
	/** The usual kind: on the shard, on a stack of its own (opts.fiber_stack_bytes). Any wait of the library parks
	 * it and the shard goes on. After a wait it may run on another thread (with FAR_DRIVER_OWN it does not), so it
	 * must not hold a mutex across one, nor keep what it read from thread-local memory (errno included). When its
	 * caller gives up, the wait it is in and all that follow return FAR_CANCELLED. Beyond opts.fibers parked ones,
	 * calls are refused with FAR_RESOURCE. */
	FAR_KIND_FIBER,
	/** On one of opts.blocking_threads threads, for long computation and for what blocks in the system. It may
	 * wait, and keeps its thread meanwhile: those that wait for one another need as many threads as they are deep.
	 * Beyond opts.blocking_queue waiting for a thread, calls are refused with FAR_RESOURCE. */
	FAR_KIND_BLOCKING,
	/** Added to a kind, as in FAR_KIND_INLINE | FAR_IDEMPOTENT: may run twice for one call, with the same result
	 * and no further effect, so that calls of it may be hedged (<farcall/fanout.h>). */
	FAR_IDEMPOTENT = 0x100
};

#ifdef __cplusplus
extern "C++" {
static inline far_kind operator|(far_kind a, far_kind b)
{
	return static_cast<far_kind>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
}
#endif

/**
 * Handler of a typed function. `args[0, n)` fit the registered signature, one for each parameter, and are readable,
 * with all that is in them, until the handler returns; objects of custom types end then. Tensors are dense; `user` is
 * the pointer given at registration. Runs where its kind says. It answers once, with far_return*(), far_fail() or,
 * later, through far_defer(). Returning anything but FAR_OK without an answer sends that status as the error.
 */
typedef enum far_status far_fn(struct far_req *req, const struct far_val *args, size_t n, void *user);

/**
 * A place to call: a worker and one of its shards, [0, far_worker_info.shards). Shard −1 is the one that the function's
 * name leads to (the hash of the name, modulo the worker's shards; for messages the id).
 */
struct far_to {
	int32_t worker; /* rank */
	int32_t shard;
};

/** Handler of a message. `data[0, len)` is readable, 8-byte aligned, until the handler returns. Answers as a far_fn
 * does. */
typedef void far_msg_fn(struct far_req *req, const void *data, size_t len, void *user);

struct far_function {
	const char *signature; /* "vec::dot(Tensor a, Tensor b) -> float"; see <farcall/rpc.h> */
	enum far_kind kind;    /* | FAR_IDEMPOTENT, where it is */
	far_fn *fn;
	void *user;
};

struct far_msg_handler {
	uint16_t id;        /* [0, FAR_MSG_HANDLERS_MAX) */
	enum far_kind kind; /* | FAR_IDEMPOTENT, where it is */
	far_msg_fn *fn;
	void *user;
};

#define FAR_SHARDS_MAX 16 /* shards of a worker */
/**
 * Where the body of a long message (beyond FAR_MSG_WHOLE_MAX) is put together: `len` bytes of the application's memory
 * for what worker `from` sends to the handler, or NULL for memory of the engine. The handler's `data` is that memory,
 * and with the handler's return it is the application's again. When the message does not come to an end (its sender
 * gives up or dies), or the deadline has passed, abandon() gives the memory back instead. Both run on the shard's
 * thread like an inline handler, and must not wait. Shorter messages are read where they arrive and are not asked for.
 */
typedef void *far_msg_place_fn(struct far_to from, uint16_t id, size_t len, void *user);
typedef void far_msg_abandon_fn(void *memory, void *user);

struct far_msg_placement {
	uint16_t id; /* of a registered handler */
	far_msg_place_fn *place;
	far_msg_abandon_fn *abandon;
	void *user;
};

#define FAR_MSG_HANDLERS_MAX 1024 /* message handlers of an agent */
#define FAR_FUNCTIONS_MAX    4096 /* typed functions of an agent, built-ins included */

/** Zero-initialised, every field means its default. Strings and arrays are read during far_init_rpc() only. */
struct far_opts {
	const char *init_method;  /* "tcp://host:port" or "env://" (default): MASTER_ADDR, MASTER_PORT */
	const char *group;        /* default "default" */
	uint64_t rpc_timeout_ns;  /* default deadline of a call; default 60 s */
	uint64_t init_timeout_ns; /* how long far_init_rpc() waits for the others; default 60 s */
	enum far_driver driver;
	enum far_idle idle;
	int pin_cpu;         /* 1 + the CPU that shard 0's own thread is pinned to, shard i's to the i-th after it;
				0: not pinned */
	const int *pin_cpus; /* instead: the CPU of each shard's own thread, numbers from 0, −1: not pinned */
	size_t pin_cpus_n;   /* of pin_cpus: as many as there are shards, or 0 */
	unsigned shards;     /* polling cores of this worker, [1, FAR_SHARDS_MAX]; default 1. Members may differ */
	enum far_connect connect;
	/** Handlers of kind fiber that may be under way at once on a shard, most of them parked: [1, 65536], default
	 * 1024. Each needs two of the process's memory mappings (vm.max_map_count) once the first such handler is
	 * registered, and a few KiB when it is used. */
	unsigned fibers;
	size_t fiber_stack_bytes;  /* of each: [16 KiB, 64 MiB], default 256 KiB; memory only as far as it is used */
	unsigned blocking_threads; /* threads for handlers of kind blocking: [1, 1024], default 4; started with the
				      first */
	unsigned blocking_queue; /* requests that may wait for them: [1, 65536], default 1024; rounded up to a power of
				    2, 2 at least */
	/** Drivers, separated by ';', and by ',' as long as no ':' was seen in the entry; what follows a ':' is the
	 * driver's own: "shm,udp"; "shm;dpdk:net_memif0,role=server,id=0;udp". A session takes the best that both ends
	 * have: shm, verbs, dpdk, udp, then the others. One that is named and cannot be opened fails far_init_rpc().
	 * Default: FAR_NIC in the environment, else "auto": shm, verbs when there is an RDMA device, dpdk when FAR_DPDK
	 * names one, udp, as far as they work. Calls on oneself go by shm in any case. */
	const char *nic;
	/** NULL, or "none": the group has no key, and whoever reaches the store or a NIC port of a worker can join,
	 * call and be called: other users of the host, other hosts. Warns once on stderr. */
	const char *security;
	/** The group's key, which every member proves in every connection: a file of 64 hexadecimal digits that belongs
	 * to this user and is closed to others (`farcall key FILE` makes one). Store and NICs may then listen beyond
	 * loopback. Default: FAR_KEY_FILE, or the key itself in FAR_KEY, of the environment. Without any, rank 0 makes
	 * a key for the members of its user on its host, in the runtime directory; store and NICs use loopback only. */
	const char *key_file;
	const struct far_function *functions; /* registered before any peer can call */
	size_t functions_n;
	const struct far_msg_handler *messages; /* likewise */
	size_t messages_n;
	const struct far_custom_type *types; /* likewise, before the functions */
	size_t types_n;
	const struct far_msg_placement *placements; /* likewise, for some of these messages */
	size_t placements_n;
	uint64_t max_message_bytes; /* longest message that this worker takes, at least 64 KiB; default half of the
				       memory. Longer ones are refused where they would be sent */
	/* Bounds of each shard; out of range is FAR_INVALID, naming the option. What was chosen: far_limits_read() */
	unsigned submit_slots; /* calls and one-way messages handed over by threads that do not drive the shard and not
				  taken yet: [1, 65536], default 1024; rounded up to a power of 2, 2 at least. Full:
				  FAR_BUSY */
	unsigned calls;        /* pending calls, to all workers together: [1, 262144], default 16384. Full: FAR_BUSY */
	unsigned peer_calls;   /* calls under way towards one shard of a worker: [1, 202], default 202. More would not
				  fit the ring. Full: later ones wait, in order, at most `peer_waiting` */
	unsigned peer_waiting; /* calls towards one shard of a worker that wait for one of those to end, for the session
				  to be set up, or for the shard's driver to take them over: [1, 32768], default 1024.
				  Their time-outs run, and they can be cancelled. Full: FAR_BUSY at the call */
	unsigned retry_window; /* between the oldest call with far_call_opts.retry to one shard of a worker that has not
				  ended and the newest: [1, 1024], default 1024: what the callee remembers. Full:
				  FAR_BUSY */
	unsigned deferred;     /* requests open beyond their handler, be they deferred, in a fiber that waits, or in a
				  blocking handler, and answers that wait for memory: [1, 262144], default 32768.
				  Full: far_defer() and waits return FAR_RESOURCE, blocking requests are refused
				  with it */
	unsigned mailbox_slots; /* mails between the shard and the control core, each way: [1, 16384], default 1024;
				   rounded up to a power of 2. Full: whoever has one tries again, in order */
	/** Where drivers with network addresses are reached: an interface's name, a subnet (a.b.c.d/n, IPv6 too) or an
	 * address of this machine. Default: FAR_LISTEN in the environment, else any; loopback only without a
	 * key that was given or security=none. An error when no port has an address, unless only the environment says
	 * it and nic names such ports. */
	const char *listen;
	/** What to publish instead of the address that was bound, behind NAT: address[:port[-port]]. Default:
	 * FAR_ADVERTISE in the environment, else what was bound. */
	const char *advertise;
	/** "off": no checksum is computed of packets that a network might damage (CRC32C, over udp, dpdk and verbs),
	 * towards those workers that say the same; for networks whose own checks are trusted. Default: FAR_CHECKSUM in
	 * the environment, else "on". */
	const char *checksum;
	const struct far_class *classes; /* of objects, <farcall/object.h>; registered after the types, before the
					    functions */
	size_t classes_n;
	uint64_t peer_limit_ns; /* calls to a worker that owes an answer or an acknowledgement and is silent for so long
				   over a network fail with PEER_LOST: [10 ms, 1 h], default 1 s, however many packets
				   were lost. It is still a member: later calls get a new session, remote references
				   stay. A member is lost when it is gone from the store: at once when its process ends,
				   after 10 s when its host or network does, and 20 s if the store sends it something
				   meanwhile. Calls that wait for a session end with PEER_LOST then, executed NO, or at
				   their deadline, or after 30 s without a session (UNREACHABLE) */
	enum far_leaks leaks;
	uint64_t rref_retry_ns; /* a word about a reference that failed (<farcall/testing.h>), or that the owner had no
				   room for, is said again after so long, and after half as much again each time:
				   [1 us, 1 h], default 1 ms */
};

#define FAR_RANK_ENV  (-1) /* rank from RANK */
#define FAR_WORLD_ENV 0    /* world size from WORLD_SIZE */

/**
 * Joins a static group and returns when every member has come and is connected (with FAR_CONNECT_LAZY, has come).
 * Collective: blocks until all `world_size` members have come, at most `opts->init_timeout_ns`.
 *
 * `name` is 1 to 127 of `A-Z a-z 0-9 - _ :`, unique in the group; `rank` is in [0, world_size), rank 0 hosts the store
 * (on a listening socket it inherited when FAR_STORE_FD names one). `opts` may be NULL. On FAR_OK `*agent` is the
 * caller's until far_shutdown(). On failure nothing is left behind and `err` names who or what is missing.
 * After fork() without exec() only the parent may use the agent; peers see its death when the child has ended too.
 *
 * A worker whose process ended may be started again while the group runs, with the same name, rank, number of shards,
 * group and init_method: it takes its former place, returns as soon as it has read who there is, and is reached under
 * its name by all others. What was pending between them and the life before ends with PEER_LOST. Not so rank 0: the
 * store ends with it, nobody can come back after that, and one that is started again waits for a new group. While the
 * former process lives, or its machine has been silent for less than 5 s, its rank is taken: NOT_UNIQUE. Once rank 0 is
 * in far_shutdown() nobody is taken in.
 * Errors: INVALID, ALREADY_INITIALIZED, NOT_UNIQUE, TIMEOUT, UNREACHABLE, DENIED, UNSUPPORTED, RESOURCE, SYSTEM.
 */
enum far_status far_init_rpc(const char *name, int rank, int world_size, const struct far_opts *opts,
			     struct far_agent **agent, struct far_err *err);

/**
 * Leaves the group: waits until every living member has called far_shutdown() too and the calls of all are answered,
 * those included that handlers make meanwhile and do not wait for, and all handlers of one-way messages have returned,
 * at most `timeout_ns` (0: 60 s), then stops and frees the agent, whatever is returned. Until then handlers go on
 * serving. Rank 0 leaves last. Blocks; no other thread may be inside a call on this agent. Futures stay valid until
 * freed. Returns FAR_OK; FAR_TIMEOUT, `err` naming each member that did not come, still had calls, or left at a
 * deadline of its own; FAR_PEER_LOST, naming each that died before and did not come back; FAR_LEAKED (opts.leaks).
 * FAR_WOULD_DEADLOCK in a handler (nothing is freed then). In the end the waits of handlers that are still there return
 * FAR_CANCELLED: fibers get a second to end, blocking handlers as long as it takes; stderr tells of both.
 */
enum far_status far_shutdown(struct far_agent *agent, uint64_t timeout_ns, struct far_err *err);

/** Stops and frees the agent without waiting for anybody: pending calls fail here and are seen as a lost peer there. */
enum far_status far_shutdown_local(struct far_agent *agent, struct far_err *err);

struct far_worker_info {
	char name[FAR_NAME_MAX];
	int32_t rank;
	uint32_t shards;
	bool alive;           /* false once it is no member any more, until another life of it has begun */
	uint64_t incarnation; /* random, one per life of a worker; of the last one while none is alive */
	char nic[16];         /* driver that reaches it, or would; "": none */
	char nic_address[96]; /* its address there, in words */
	char nic_why[192];    /* why it is this driver */
};

/** Looks a member up; any thread; FAR_UNKNOWN_WORKER names what was asked for. `far_worker_self` never fails. */
enum far_status far_worker_by_name(struct far_agent *agent, const char *name, struct far_worker_info *out,
				   struct far_err *err);
enum far_status far_worker_by_rank(struct far_agent *agent, int rank, struct far_worker_info *out, struct far_err *err);
void far_worker_self(struct far_agent *agent, struct far_worker_info *out);
/** Members of the group, this worker included. */
int far_world_size(struct far_agent *agent);

/** Default deadline of calls started later. 0 is FAR_INVALID. */
uint64_t far_rpc_timeout(struct far_agent *agent);
enum far_status far_set_rpc_timeout(struct far_agent *agent, uint64_t timeout_ns);

/**
 * Registers one more function or message handler. Any thread. A peer that calls before gets FAR_NO_FUNCTION; pass the
 * tables in `struct far_opts` to exclude that. Errors: INVALID (the signature, its place named; a type that it names
 * and that is not registered; the same parameters under the same name twice), UNSUPPORTED (kind), RESOURCE.
 */
enum far_status far_register(struct far_agent *agent, const struct far_function *function, struct far_err *err);
enum far_status far_msg_register(struct far_agent *agent, const struct far_msg_handler *handler, struct far_err *err);
/** Gives a registered handler a placement for long messages, once. Any thread. Errors: INVALID, RESOURCE. */
enum far_status far_msg_place(struct far_agent *agent, const struct far_msg_placement *placement, struct far_err *err);

/**
 * Registers a custom type: from now on this worker takes its objects in arguments and sends them, and signatures may
 * name it. Results are decoded by whichever agent of the process registered it; so a name means one type in a process:
 * the same functions and `user`. Any thread. Errors: INVALID (the name, a function that is missing, registered twice),
 * RESOURCE.
 */
enum far_status far_register_type(struct far_agent *agent, const struct far_custom_type *type, struct far_err *err);

/**
 * Makes the calling thread the core of shard 0 until far_shard_release(): calls go straight to the queue, waits poll
 * it, and nobody else drives. The thread's calls go through this shard while it holds it. Waits at most `timeout_ns`
 * (0: 1 s) for the present driver. FAR_UNSUPPORTED with FAR_DRIVER_OWN. While held, the thread must wait or poll often:
 * handlers run only then, and what it sends leaves with the next poll, wait or release. The release runs no handler.
 */
enum far_status far_shard_acquire(struct far_agent *agent, uint64_t timeout_ns, struct far_err *err);
void far_shard_release(struct far_agent *agent);
/** One pass of the shard's loop by the thread that holds it. Returns the packets and submissions handled. Never blocks.
 * In a handler or callback of the shard it does nothing, as does far_shard_release() in any. */
unsigned far_shard_poll(struct far_agent *agent);

/** The same three with the shard named. FAR_INVALID, naming how many there are; the others ignore a wrong one. */
enum far_status far_shard_acquire_at(struct far_agent *agent, unsigned shard, uint64_t timeout_ns, struct far_err *err);
void far_shard_release_at(struct far_agent *agent, unsigned shard);
unsigned far_shard_poll_at(struct far_agent *agent, unsigned shard);

/** Shards of this worker. */
unsigned far_shards(struct far_agent *agent);
/** The shard that the calling thread's calls go through unless far_call_opts.via says otherwise. */
unsigned far_shard_of_thread(struct far_agent *agent);

/** Counters of an agent, read without stopping it: the sum of its shards', or one shard's. */
struct far_counters {
	uint64_t calls_sent, calls_completed, calls_failed, calls_timed_out;
	uint64_t requests_received, replies_sent, replies_late;
	uint64_t bytes_sent, bytes_received;
	uint64_t packets_dropped;   /* malformed or out of place */
	uint64_t busy_refusals;     /* calls refused by back-pressure */
	uint64_t calls_repeated;    /* requests sent again (opts.retry) */
	uint64_t requests_repeated; /* that came again, and were not run again */
	uint64_t wakeups;           /* times the shard's driver woke from sleep */
	uint64_t calls_active, requests_active;
	uint64_t posts_sent, posts_received; /* one-way messages */
	uint64_t posts_dropped; /* of those: had no handler, came too late, found no memory, or lost with the peer */
	uint64_t large_sent, large_received; /* messages that went in fragments, to the end */
	uint64_t large_active;               /* being sent or received in fragments now */
	uint64_t hedges_sent, hedges_won;    /* second choices of fan-outs that were called; that answered first */
};
void far_counters_read(struct far_agent *agent, struct far_counters *out);
enum far_status far_shard_counters_read(struct far_agent *agent, unsigned shard, struct far_counters *out,
					struct far_err *err);

/** One of the agent's ports, and its counters, which may be a moment old. */
struct far_nic_stats {
	char driver[16];
	char address[96];                /* as published, in words */
	bool only_self;                  /* not published: for calls on oneself */
	uint64_t rx_packets, tx_packets; /* 0, as all the rest, where a driver does not count */
	uint64_t rx_bytes, tx_bytes;
	uint64_t rx_foreign;                     /* not for us: other protocols, ports, addresses */
	uint64_t rx_malformed;                   /* for us, but broken */
	uint64_t rx_missed;                      /* the device or the kernel had no room */
	uint64_t tx_dropped;                     /* the device or the kernel would not send them */
	uint64_t kicks;                          /* sent to wake peers */
	uint64_t resent, duplicates, crc_errors; /* of drivers that may lose, repeat or damage packets */
	uint64_t refused;                        /* set-ups of sessions */
	/* Of drivers that may lose packets: times that nothing was acknowledged in the time that the round trip allows;
	 * last packets sent once more before that; packets that were sent again for nothing, as the receiver said. */
	uint64_t timeouts, probes, needless;
	/* Packets that came and were dropped: of no session that there is (or another life of this worker); of one that
	 * has ended; for want of memory or of what is before them; set-ups while too many are under way. The last two
	 * come again. */
	uint64_t unknown, ended, no_memory, crowded;
	/* Grants of larger messages that were said again, since nothing had come of them; sessions of this port that
	 * went on by another one, or came back. */
	uint64_t regrants, moves;
	uint64_t read_bytes; /* of larger messages, that this port's device read from the sender's memory */
};
/** Ports of the agent, best first. Any thread. */
unsigned far_nic_ports(struct far_agent *agent);
/** Those of port `port`, [0, far_nic_ports()). Any thread; never blocks. FAR_INVALID: there is none of that number. */
enum far_status far_nic_stats_read(struct far_agent *agent, unsigned port, struct far_nic_stats *out,
				   struct far_err *err);

/** The bounds of an agent's options as they came out: defaults filled in, powers of two rounded up. */
struct far_limits {
	unsigned submit_slots, mailbox_slots, calls, deferred, peer_calls, retry_window, fibers; /* of each shard */
	unsigned peer_waiting;                                                                   /* likewise */
	unsigned blocking_threads, blocking_queue;                                               /* of the agent */
};
/** `agent` NULL: the defaults. Any thread; never blocks. */
void far_limits_read(struct far_agent *agent, struct far_limits *out);

/**
 * Opt-in: from now on a crash of this process (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) is reported on stderr: the
 * signal and its address, the handler that ran and its worker, whether a fiber's stack overflowed, and a backtrace.
 * Then what was in force before this call takes over, be it the core dump or the application's own action, and stays;
 * so each signal is reported once. The report uses no memory but the thread's alternate signal stack. The calling
 * thread gets one unless it has one; so do the agents' own threads when this is called before far_init_rpc(). Handlers
 * of kind inline and fiber also run on application threads that wait: call it on each, or an overflow there ends the
 * process unreported. May be called again; does not block. Errors: SYSTEM.
 */
enum far_status far_crash_report_install(struct far_err *err);

#ifdef __cplusplus
}
#endif
#endif
