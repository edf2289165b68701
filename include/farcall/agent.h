/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The agent: membership of this worker in a group, its shards and its options.
 *
 * A shard is a queue pair towards the NIC drivers with the calls that go through it. One thread at a time holds and
 * polls a shard: the poller (the shard's own thread) or, with FAR_PROGRESS_SHARED, an application thread that waits.
 *
 * Application code is handlers, completion callbacks, continuations, destructors of objects, and the callbacks of
 * receive placement and of zero-copy send. The table lists the functions that may run such code on the calling thread.
 * Do not call them with a lock held that the code takes. All other functions may be called with that lock held.
 *
 * | function                                                          | may run                                    |
 * |-------------------------------------------------------------------|--------------------------------------------|
 * | waits: far_rpc_sync*, far_msg_call*, far_future_wait*,            | any, unless FAR_PROGRESS_DEDICATED         |
 * |   far_scope_end, far_rref_rpc_sync, far_rref_to_here,             |                                            |
 * |   far_rref_local_value, far_rref_object, far_rref_type,           |                                            |
 * |   far_rref_wait, far_rref_flush, far_all_gather, far_barrier      |                                            |
 * | far_future_free, last reference of a pending fan-out: it waits    | as the waits                               |
 * | far_init_rpc, far_shard_poll*, far_agent_poll, far_shutdown,      | any                                        |
 * |   far_shutdown_local; far_serve with FAR_PROGRESS_CALLER          |                                            |
 * | far_future_set_value, far_future_set_error,                       | the callbacks of that future and of the    |
 * |   far_future_pass_error; far_future_free, last reference of a     |   futures derived from it                  |
 * |   pending user-made future                                        |                                            |
 * | far_future_then, far_future_on_done of a complete future          | the callback that is being added           |
 * | far_msg_send_parts, far_msg_oneway_parts                          | their `release` argument                   |
 * | far_shard_release, far_rref_free, far_deferred_*, far_return*,    | none                                       |
 * |   far_fail, far_reply*, far_future_cancel, far_msg_oneway,        |                                            |
 * |   far_msg_send, far_rpc_async*, far_rref_rpc_async, far_remote*,  |                                            |
 * |   far_rpc_fanout, far_msg_fanout, and every function not named    |                                            |
 * |   above                                                           |                                            |
 *
 * The functions of the last row leave their application code to the poller, which they wake, or to a thread that
 * waits. The functions of a custom type (size, encode, decode, destroy) run on every thread that passes, reads or
 * finishes a value of the type.
 */
#ifndef FARCALL_AGENT_H
#define FARCALL_AGENT_H

#include <farcall/counters.h>
#include <farcall/future.h>
#include <farcall/status.h>
#include <farcall/value.h>
#include <farcall/version.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

struct far_agent;
struct far_class;
struct far_req;

/* ---- Options and registration tables ---- */

/** Which threads poll the queues of a shard. */
enum far_progress {
	FAR_PROGRESS_SHARED,    /* an application thread that waits, one at a time; the poller while no thread waits */
	FAR_PROGRESS_DEDICATED, /* the poller alone: handlers never run on application threads */
	FAR_PROGRESS_CALLER     /* there is no poller: the thread that calls far_agent_poll(), for an event loop, and
				   application threads that wait, one at a time */
};

/** What a poller does when a poll finds nothing. */
enum far_idle {
	FAR_IDLE_ADAPTIVE, /* spin, then yield, then sleep until woken */
	FAR_IDLE_BUSY /* spin always: lowest latency, one core per shard; implies FAR_PROGRESS_DEDICATED. A cgroup quota
			 below one CPU per shard makes it sleep all the same, with a warning on stderr */
};

/** When the sessions with the other workers are set up. */
enum far_connect {
	FAR_CONNECT_AUTO, /* all in far_init_rpc(); as LAZY in a group that needs more than 256 sessions per worker */
	FAR_CONNECT_LAZY  /* each by its first call; one member with LAZY makes the whole group lazy */
};

/** What far_shutdown() does about remote references that a member of the group still holds. */
enum far_leaks {
	FAR_LEAKS_REPORT, /* prints each reference and its holder on stderr; remote holders only after an orderly
			   shutdown of all members */
	FAR_LEAKS_IGNORE, /* nothing */
	FAR_LEAKS_FAIL    /* prints them too; far_shutdown() then returns FAR_LEAKED, with the first ones in its error,
			     unless it fails for another reason */
};

/** Where a handler runs. Stated at registration. */
enum far_kind {
	FAR_KIND_NONE, /* not stated: FAR_INVALID */
	/** On the thread that polls the shard, on the receive buffer. The cheapest kind. The shard serves nothing else
	 * meanwhile. A wait in the handler returns FAR_WOULD_DEADLOCK. */
	FAR_KIND_INLINE,
	/** On the shard, on a stack of its own (opts.fiber_stack_bytes). The usual kind. A wait suspends the fiber and
	 * the shard goes on. With FAR_PROGRESS_SHARED the fiber may continue on another thread: hold no mutex across a
	 * wait, and use nothing after it that was read from thread-local memory before (errno included). After the
	 * caller has given up, the current wait and all later ones return FAR_CANCELLED. Limit: opts.fibers per shard,
	 * then calls fail with FAR_RESOURCE. */
	FAR_KIND_FIBER,
	/** On one of opts.blocking_threads threads, for long computation and blocking system calls. A wait keeps the
	 * thread: handlers that wait for one another need as many threads as the chain is deep. Limit:
	 * opts.blocking_queue requests waiting for a thread, then calls fail with FAR_RESOURCE. */
	FAR_KIND_BLOCKING
};

/** Flag of a handler: a second run for the same call has the same result and no further effect. Only calls of such
 * handlers can be hedged (<farcall/fanout.h>). */
#define FAR_IDEMPOTENT 1u

/**
 * Handler of a typed function. Runs where its kind states. `args[0, n)` match the registered signature, one value per
 * parameter; tensors are dense. They are readable until the handler returns, and objects of custom types are destroyed
 * then. A handler does not write to their bytes, which may lie in read-only memory (far_rpc_async_zero_copy()). `user`
 * is the pointer given at registration.
 *
 * A handler answers once: with far_return*(), far_fail(), or later through far_defer(). A return value other than
 * FAR_OK without an answer becomes the error of the call.
 */
typedef enum far_status far_fn(struct far_req *req, const struct far_val *args, size_t n, void *user);

/** Head of a handler that may leave its parameters unused: `FAR_HANDLER(scale) { return far_return_int(req, 2 *
 * args[0].u.i); }`. The parameters are those of far_fn: req, args, n, user. */
#ifdef __GNUC__
#define FAR_UNUSED __attribute__((unused))
#else
#define FAR_UNUSED
#endif
#define FAR_HANDLER(name)                                                                                              \
	static enum far_status name(FAR_UNUSED struct far_req *req, FAR_UNUSED const struct far_val *args,             \
				    FAR_UNUSED size_t n, FAR_UNUSED void *user)

/**
 * Destination of a call: a worker and one of its shards, [0, far_worker_info.shards). Shard −1 is the default shard of
 * the function: the hash of its name (the id of a message) modulo the worker's number of shards.
 */
struct far_to {
	int32_t worker; /* rank */
	int32_t shard;
};

/** Handler of a message. `data[0, len)` is aligned to 8 and readable until the handler returns. Answers as a far_fn. */
typedef void far_msg_fn(struct far_req *req, const void *data, size_t len, void *user);

struct far_function {
	const char *signature; /* "vec::dot(Tensor a, Tensor b) -> float"; see <farcall/rpc.h> */
	enum far_kind kind;
	far_fn *fn;
	void *user;     /* passed to `fn` */
	unsigned flags; /* FAR_IDEMPOTENT, or 0 */
};

struct far_msg_handler {
	uint16_t id; /* [0, FAR_MSG_HANDLERS_MAX) */
	enum far_kind kind;
	far_msg_fn *fn;
	void *user;     /* passed to `fn` */
	unsigned flags; /* FAR_IDEMPOTENT, or 0 */
};

#define FAR_SHARDS_MAX       16   /* shards of a worker */
#define FAR_MSG_HANDLERS_MAX 1024 /* message handlers of an agent */
#define FAR_FUNCTIONS_MAX    4096 /* typed functions of an agent, the built-in ones included */

/**
 * Receive placement of a rendezvous message (longer than FAR_MSG_EAGER_MAX): returns a buffer of `len` bytes for the
 * message of worker `from`, or NULL for a buffer of the engine. The handler gets this buffer as `data`; when it has
 * returned, the buffer is the application's again. Runs on the thread that polls the shard, as an inline handler; must
 * not wait. Eager messages are not placed: the handler reads them where they arrive.
 */
typedef void *far_msg_get_buffer_fn(struct far_to from, uint16_t id, size_t len, void *user);
/** Gives the buffer back without a handler: the sender gave up or died, or the deadline passed. Same thread and rule.
 */
typedef void far_msg_abandon_fn(void *memory, void *user);

struct far_msg_placement {
	uint16_t id; /* of a registered handler */
	far_msg_get_buffer_fn *get_buffer;
	far_msg_abandon_fn *abandon;
	void *user; /* passed to both */
};

/**
 * Options of an agent. A zeroed field has its default. Strings and arrays are read during far_init_rpc() only.
 *
 * Each field that is no table of handlers or types can also come from the environment, as FAR_ and its name in
 * capitals: FAR_NIC, FAR_SECURITY, FAR_SHARDS, FAR_RPC_TIMEOUT_NS ("forever" for FAR_FOREVER), FAR_IDLE ("busy") and so
 * on; FAR_PIN_CPU is the CPU's number. The program's own setting takes precedence. A malformed value is INVALID.
 */
struct far_opts {
	const char *init_method;  /* "tcp://host:port", "file:///path", "etcd://host:port" or "env://" (default) */
	const char *group;        /* default "default" */
	uint64_t rpc_timeout_ns;  /* default deadline of a call; 0: FAR_RPC_TIMEOUT_NS */
	uint64_t init_timeout_ns; /* limit of far_init_rpc(); 0: FAR_INIT_TIMEOUT_NS */
	enum far_progress progress;
	enum far_idle idle;
	int pin_cpu;         /* FAR_CPU(n): CPU n for shard 0's poller; the poller of shard i gets the i-th CPU after
				it. 0: not pinned */
	const int *pin_cpus; /* instead: the CPU of each poller, from 0; −1: not pinned */
	size_t pin_cpus_n;   /* entries of pin_cpus: the number of shards, or 0 */
	unsigned shards;     /* of this worker, [1, FAR_SHARDS_MAX]; default 1. Members may differ */
	enum far_connect connect;
	/** Fibers per shard, running or waiting: [1, 65536], default 1024. The first registered fiber handler reserves
	 * two memory mappings for each (vm.max_map_count). A fiber takes a few KiB of memory once it was used. */
	unsigned fibers;
	size_t fiber_stack_bytes;  /* address space of a fiber's stack: [16 KiB, 64 MiB], default 256 KiB */
	unsigned blocking_threads; /* threads for blocking handlers: [1, 1024], default 4; started with the first such
				      handler */
	unsigned blocking_queue;   /* requests that wait for such a thread: [1, 65536], default 1024; rounded up to a
				      power of 2, 2 at least */
	/** NIC drivers, separated by ';' or ','. A ':' begins the driver's own arguments, which end at ';' and may
	 * contain ',': "shm,udp", "shm;dpdk:net_memif0,role=server,id=0;udp". A session uses the best driver that both
	 * ends have, in the order shm, verbs, dpdk, udp, others. far_init_rpc() fails when a named driver cannot be
	 * opened. Default: FAR_NIC in the environment, else "auto": shm, verbs if there is an RDMA device, dpdk if
	 * FAR_DPDK names a device, udp; those that cannot be opened are left out. Calls on oneself always use shm. */
	const char *nic;
	/** "none": the group has no key. Every host and user that reaches the store or a NIC port of a worker can join,
	 * call and be called. Warns once. NULL or "default": the group has a key. */
	const char *security;
	/** File of the group key: 64 hexadecimal digits, owned by this user, closed to others (`farcall key FILE` makes
	 * one). Members prove the key in every connection, so store and NICs may listen beyond loopback. Default:
	 * FAR_KEY_FILE, or the key itself in FAR_KEY, of the environment. Without any of them rank 0 makes a key in the
	 * runtime directory, for members of its user on its host; store and NICs then use loopback only. */
	const char *key_file;
	const struct far_function *functions; /* registered before a peer can call */
	size_t functions_n;
	const struct far_msg_handler *messages; /* likewise */
	size_t messages_n;
	const struct far_custom_type *types; /* likewise, before the functions */
	size_t types_n;
	const struct far_msg_placement *placements; /* likewise, for handlers in `messages` */
	size_t placements_n;
	uint64_t max_message_bytes; /* longest message that this worker receives, at least 64 KiB; default half of the
				       memory. Senders refuse a longer one with FAR_TOO_LARGE */
	/* Bounds of each shard. Out of range: FAR_INVALID, with the name of the option. far_limits_read() returns the
	 * values in use. */
	unsigned submit_slots; /* calls and one-way messages from threads that do not hold the shard, in its submission
				  ring: [1, 65536], default 1024; rounded up to a power of 2, 2 at least. Full:
				  FAR_BUSY */
	unsigned calls;        /* pending calls, to all workers together: [1, 262144], default 16384. Full: FAR_BUSY */
	unsigned peer_calls;   /* calls in flight to one shard of a worker: [1, 202] (size of the ring), default 202.
				  Full: later calls wait in order, see peer_waiting */
	unsigned peer_waiting; /* calls to one shard of a worker that wait for a call in flight to end, for the session
				  to be set up, or in the submission ring: [1, 32768], default 1024. Their deadlines
				  run, and they can be cancelled. Full: FAR_BUSY at the call */
	unsigned retry_window; /* distance from the oldest pending call with far_call_opts.retry to one shard of a
				  worker to the newest: [1, 1024] (what the callee remembers), default 1024. Full:
				  FAR_BUSY */
	unsigned deferred;     /* requests open beyond their inline handler (deferred, in a waiting fiber, in a blocking
				  handler), and replies that wait for memory: [1, 262144], default 32768. Full:
				  far_defer() and waits return FAR_RESOURCE, blocking requests fail with it */
	unsigned mailbox_slots; /* mails between the shard and the control thread, per direction: [1, 16384], default
				   1024; rounded up to a power of 2. Full: the sender retries, in order */
	/** Local address of drivers with network addresses: an interface name, a subnet (a.b.c.d/n or IPv6) or an
	 * address of this machine. Default: FAR_LISTEN in the environment, else any address with a key or with
	 * security "none", else loopback. far_init_rpc() fails when no port has such an address; a value of the
	 * environment is ignored if `nic` lists only ports without one. */
	const char *listen;
	/** Address to publish instead of the bound one, behind NAT: address[:port[-port]]. Default: FAR_ADVERTISE in
	 * the environment, else the bound address. */
	const char *advertise;
	/** "off": no CRC32C of packets over udp, dpdk and verbs, towards workers that also set "off". For networks with
	 * trusted checks of their own. Packets between loopback addresses have none in any case. Default: FAR_CHECKSUM
	 * in the environment, else "on". */
	const char *checksum;
	const struct far_class *classes; /* <farcall/object.h>; registered after the types, before the functions */
	size_t classes_n;
	/** Silence over a network after which calls to a worker fail with PEER_LOST: [10 ms, 1 h], default 1 s. Counts
	 * while the worker owes a reply or an acknowledgement, regardless of how many packets were lost. The worker
	 * stays a member: later calls get a new session, and remote references stay valid. It stops being a member when
	 * the store removes it: at once when its process ends; 10 s after its host or network failed, 20 s if the store
	 * had data in flight to it. A call that waits for a session then ends with PEER_LOST, executed NO; or at its
	 * deadline; or after 30 s without a session, with UNREACHABLE. */
	uint64_t peer_limit_ns;
	enum far_leaks leaks;
	uint64_t rref_retry_ns; /* first retry interval of a control message about a reference that failed
				   (<farcall/testing.h>) or found the owner out of room: [1 us, 1 h], default 1 ms; each
				   interval is 1.5 times the one before */
	unsigned members_max;   /* members that a dynamic group has at most at one time, the same for all of them:
				   [1, 1024], default FAR_MEMBERS_MAX. Ignored in a static group */
	/** Time without contact to the store after which a member of a dynamic group is none any more: [100 ms, 1 h],
	 * default 10 s. With etcd:// it is as long as the shortest lease of etcd, in whole seconds, allows: 1.76 s at
	 * least, 10.6 s by default. Rank 0, which hosts the store of tcp://, has none. far_init_rpc() has the rules
	 * under "Lease". Ignored in a static group.
	 */
	uint64_t lease_ns;
};

/** Value of far_opts.pin_cpu for CPU `n`, from 0. */
#define FAR_CPU(n) ((n) + 1)

#define FAR_RANK_ENV      (-1) /* rank from RANK; in a dynamic group without RANK: FAR_RANK_ANY */
#define FAR_RANK_ANY      (-2) /* a free rank of a dynamic group, over tcp:// from 1 on */
#define FAR_WORLD_ENV     0    /* world size from WORLD_SIZE, which may be "dynamic" */
#define FAR_WORLD_DYNAMIC (-2) /* a dynamic group: without a world size */
#define FAR_MEMBERS_MAX   256  /* default of far_opts.members_max */

/* ---- Start and stop: one application thread per agent; these block ---- */

/** far_init_rpc() with the version of the caller's headers and their size of struct far_opts. */
enum far_status far_init_rpc_sized(uint32_t version, const char *name, int rank, int world_size,
				   const struct far_opts *opts, size_t opts_bytes, struct far_agent **agent,
				   struct far_err *err);

/**
 * Joins a group. In a static group it returns when every member has joined and is connected (with FAR_CONNECT_LAZY: has
 * joined).
 * Blocks at most `opts->init_timeout_ns`; after 2 s and then every 10 s a line is logged that names what it waits for
 * (<farcall/log.h>).
 *
 * `name`: 1 to 127 of `A-Z a-z 0-9 - _ :`, unique in the group; "%d" in it stands for the rank, as in "worker%d".
 * `rank`: [0, world_size); rank 0 hosts the store, on the inherited listening socket FAR_STORE_FD if that is set.
 *
 * init_method "file:///path": the store is that file, or path/store if path is a directory. Every member reaches it;
 * it belongs to this user, and nobody else can access it (DENIED). Its file system has fcntl() locks, as local ones and
 * NFS have. A lock file path.lock is beside it. The members delete their records, and a file that is empty then. A
 * group that finds records of members that have all died begins anew. Without a key of their own (opts.key_file) the
 * members agree on one in the file.
 *
 * init_method "etcd://host:port[,host:port]": the store is in etcd 3.4 or later; FAR_ETCD_CA (a file: with TLS),
 * FAR_ETCD_CERT, FAR_ETCD_KEY, FAR_ETCD_USER, FAR_ETCD_PASSWORD_FILE. While etcd cannot be reached calls go on, and
 * joins wait. Records of a process that was killed last for 20 s; its rank is claimed anew then. A group that was
 * killed as a whole begins anew after that time. Without a key of their own the members agree on one in etcd, with TLS
 * and a user or certificate only (DENIED). PROTOCOL: the module libfarcall-etcd.so is not there.
 *
 * `opts` may be NULL. On FAR_OK `*agent` is the caller's until far_shutdown(). On failure nothing stays allocated, and
 * `err` names the missing members or the cause. After fork() without exec() only the parent may use the agent; peers
 * detect its death once the child has ended too.
 *
 * Restart: a worker whose process ended may join again with the same name, rank, number of shards, group and
 * init_method. It gets a new incarnation, does not wait for the others, and is reached under its name. Calls pending
 * with the previous incarnation end with PEER_LOST. With tcp:// rank 0 of a static group cannot join again: the store
 * ends with it, and a restarted rank 0 waits for a new group. With file:// and etcd:// it can. NOT_UNIQUE: the previous
 * process still runs, or its machine has been silent for less than 5 s. Once rank 0 is in far_shutdown() no worker can
 * join.
 *
 * Dynamic group (`world_size` FAR_WORLD_DYNAMIC, or WORLD_SIZE=dynamic): workers join at any time and wait for nobody.
 * `rank`: [0, opts.members_max), or FAR_RANK_ANY. When the function returns, the worker knows every member that joined
 * before, and each of them that answers within 1 s knows it (with FAR_CONNECT_LAZY: learns of it from the store). A
 * member leaves with far_shutdown() or far_shutdown_local(), whatever the others do; then, and when it dies, calls to
 * it end with PEER_LOST, later ones with UNKNOWN_WORKER, its references are released, and its name and its rank are
 * free, for a worker with any number of shards, too. A call to a name that has just come back may still meet the end of
 * the former member's sessions: PEER_LOST. With tcp:// the worker with rank 0 hosts the store: while it is not there,
 * nobody can join, and calls among the others go on. INVALID: the members that came before are static, or have
 * another opts.members_max. RESOURCE: no rank is free. NOT_UNIQUE: a member has the rank, or the name.
 *
 * Lease (dynamic groups): a member, except rank 0 of tcp://, that has had no contact to the store for `opts.lease_ns`
 * is none any more; one whose process has ended is none at once (with etcd://, if a member of the same user runs on its
 * host, in the same network and pid namespaces, or had a session over shm with it). By its own clock it has
 * stopped before: it ends its sessions, starts no handler, its calls end with PEER_LOST, it logs that, and joins again
 * by itself as another incarnation as soon as it can. Others lose it as one that has died (far_on_member() has the
 * reason); a replacement under its name serves at once, and the former worker waits until the name is free. References
 * to values of the former incarnation are lost. When rank 0 has died, calls among the others go on, and joins wait.
 * The same while its process is stopped or hangs and its host can be reached; no TCP proxy may be in between. Rank 0
 * may be started again: members keep their incarnations, and it has the keys of far_store_set() from another member.
 *
 * Errors: INVALID, ALREADY_INITIALIZED, NOT_UNIQUE, TIMEOUT, UNREACHABLE, DENIED, UNSUPPORTED, RESOURCE, SYSTEM.
 */
static inline enum far_status far_init_rpc(const char *name, int rank, int world_size, const struct far_opts *opts,
					   struct far_agent **agent, struct far_err *err)
{
	return far_init_rpc_sized(FAR_VERSION_NUMBER, name, rank, world_size, opts, sizeof(struct far_opts), agent,
				  err);
}

/**
 * Serves the calls of the group until there is a reason to stop, then returns FAR_OK; far_shutdown() or another
 * far_serve() follows. Blocks; the calling thread sleeps, or polls with FAR_PROGRESS_CALLER. Reasons:
 * - far_stop(), also an earlier one. The group does not end before this worker calls far_shutdown() then;
 * - SIGINT or SIGTERM. The function installs a handler for each that has its default action, and restores that action;
 * - the end of the group: one member at least has called far_shutdown() or is lost, every other one has, or serves, and
 *   all calls are answered. far_shutdown() then returns at once, with the error of lost members if there is one.
 *
 * At most `timeout_ns` (0: FAR_SERVE_TIMEOUT_NS, no limit): TIMEOUT. A worker serves when it has no work of its own:
 * only its handlers start calls. References that it holds to its own values when it is shut down are no leaks. While
 * rank 0 serves, lost workers can join again. A dynamic group does not end: there it serves until far_stop() or a
 * signal. Other errors: WOULD_DEADLOCK in a handler; INVALID (another thread is in it); RESOURCE (64 agents of this
 * process serve); SHUTDOWN (`agent` is NULL).
 */
enum far_status far_serve(struct far_agent *agent, uint64_t timeout_ns, struct far_err *err);

/** Makes far_serve() return, now or when it is called next. Any thread, handlers and signal handlers; never blocks. */
void far_stop(struct far_agent *agent);

/**
 * Leaves the group, then stops and frees the agent. Blocks at most `timeout_ns` (0: FAR_SHUTDOWN_TIMEOUT_NS, a minute)
 * until every member has called far_shutdown() or serves (far_serve()), the calls of all are answered (also those that
 * handlers start meanwhile), and the handlers of all one-way messages have returned. Handlers keep serving until then.
 * A worker that only serves calls far_serve() first, which has no such limit. Rank 0 leaves last. No other thread may
 * be inside a call on this agent. Futures stay valid until freed. In a dynamic group it waits for the calls and one-way
 * handlers of this worker alone; requests that its handlers still serve end with PEER_LOST at their callers.
 *
 * The agent is freed whatever is returned, except WOULD_DEADLOCK. Waits of handlers that still run then return
 * FAR_CANCELLED: fibers have one second to end, blocking handlers as long as they take; stderr reports both.
 *
 * Errors: TIMEOUT, with each member that did not call it, still had calls, or left at its own deadline; PEER_LOST, with
 * each member that died and did not join again; LEAKED (opts.leaks); WOULD_DEADLOCK in a handler.
 */
enum far_status far_shutdown(struct far_agent *agent, uint64_t timeout_ns, struct far_err *err);

/** Stops and frees the agent without waiting for other members. Pending calls fail; peers see PEER_LOST. */
enum far_status far_shutdown_local(struct far_agent *agent, struct far_err *err);

/* ---- Any thread; these never block ---- */

struct far_worker_info {
	char name[FAR_NAME_MAX];
	int32_t rank;
	uint32_t shards;
	bool alive;           /* is a member; false from its loss until its next incarnation has joined */
	uint64_t incarnation; /* random, one per process of a worker; the last one while `alive` is false */
	char nic[16];         /* driver of a session with it; "": no common driver */
	char nic_address[96]; /* its address for that driver, as text */
	char nic_why[192];    /* why this driver was chosen */
	char ip[46];          /* IP of that address or, if it has none (shm), of another network of the worker, as text;
				 "": it has no network, or none that this worker has a driver for */
	uint16_t port;        /* of `ip` */
	char lost_why[64];    /* in a callback about a lost member (<farcall/group.h>): why; else "" */
};

/** The functions below with the caller's size of struct far_worker_info. */
enum far_status far_worker_by_name_sized(struct far_agent *agent, const char *name, struct far_worker_info *out,
					 size_t bytes, struct far_err *err);
enum far_status far_worker_by_rank_sized(struct far_agent *agent, int rank, struct far_worker_info *out, size_t bytes,
					 struct far_err *err);
void far_worker_self_sized(struct far_agent *agent, struct far_worker_info *out, size_t bytes);

/** Looks up a member. UNKNOWN_WORKER, with the name or rank. `far_worker_self` does not fail. */
static inline enum far_status far_worker_by_name(struct far_agent *agent, const char *name, struct far_worker_info *out,
						 struct far_err *err)
{
	return far_worker_by_name_sized(agent, name, out, sizeof *out, err);
}
static inline enum far_status far_worker_by_rank(struct far_agent *agent, int rank, struct far_worker_info *out,
						 struct far_err *err)
{
	return far_worker_by_rank_sized(agent, rank, out, sizeof *out, err);
}
static inline void far_worker_self(struct far_agent *agent, struct far_worker_info *out)
{
	far_worker_self_sized(agent, out, sizeof *out);
}
/** far_workers() with the caller's size of struct far_worker_info. */
int far_workers_sized(struct far_agent *agent, struct far_worker_info *out, int cap, size_t bytes);
/** Writes all members by rank to out[0, cap), this worker and lost ones included, and returns their number. In a
 * dynamic group lost ones are no members any more. `out` may be NULL if `cap` is 0. */
static inline int far_workers(struct far_agent *agent, struct far_worker_info *out, int cap)
{
	return far_workers_sized(agent, out, cap, sizeof *out);
}
/** Shard of this worker as a destination: the default shard of the function. */
struct far_to far_self(struct far_agent *agent);

#define FAR_KEEP_AWAKE_NS_MAX (60 * FAR_SEC)

/**
 * Keeps a shard of a worker awake: for `ns`, FAR_KEEP_AWAKE_NS_MAX at most, the thread that polls it yields instead of
 * sleeping, so that the first call after a pause wakes nobody. Shard −1: all shards of the worker. A hint for a session
 * that is about to be used: it leaves as a call whose answer is not waited for, and a later one extends the time. Its
 * price is a core of that worker until then. far_self() keeps the shards of this worker awake, for answers that no
 * thread waits for. Ignored with FAR_PROGRESS_CALLER and by a worker whose CPU quota is below one CPU for each shard;
 * FAR_IDLE_BUSY never sleeps. Errors: as far_rpc_async_to().
 */
enum far_status far_keep_awake(struct far_agent *agent, struct far_to to, uint64_t ns, struct far_err *err);
/** Members of the group, this worker included; of a dynamic group at this moment. */
int far_world_size(struct far_agent *agent);

/** Default deadline of calls started later. Setting 0 sets FAR_RPC_TIMEOUT_NS; setting returns FAR_OK. */
uint64_t far_rpc_timeout_ns(struct far_agent *agent);
enum far_status far_set_rpc_timeout_ns(struct far_agent *agent, uint64_t timeout_ns);

/** Shards of this worker. */
unsigned far_shards(struct far_agent *agent);
/** The shard that calls of this thread use unless far_call_opts.via names another. */
unsigned far_shard_of_thread(struct far_agent *agent);

/* ---- Any thread; these take a lock for a moment ---- */

/**
 * Registers a function or a message handler after far_init_rpc(). A peer that calls it earlier gets FAR_NO_FUNCTION;
 * functions in `struct far_opts` avoid that. Errors: INVALID (malformed signature, with the column; a type that is not
 * registered; a name with the same parameters twice; a kind that is not stated), UNSUPPORTED (the kind, in an agent
 * without threads), RESOURCE.
 */
enum far_status far_register_function(struct far_agent *agent, const struct far_function *function,
				      struct far_err *err);
enum far_status far_register_message(struct far_agent *agent, const struct far_msg_handler *handler,
				     struct far_err *err);
/** Adds receive placement to a registered handler, once. Errors: INVALID, RESOURCE. */
enum far_status far_register_placement(struct far_agent *agent, const struct far_msg_placement *placement,
				       struct far_err *err);

/**
 * Registers a custom type. From then on this worker sends and receives its objects, and signatures may name it. A name
 * means one type per process, with the same functions and `user`, because any agent of the process may decode a result.
 * Errors: INVALID (the name; a missing function; registered twice), RESOURCE.
 */
enum far_status far_register_type(struct far_agent *agent, const struct far_custom_type *type, struct far_err *err);

/* ---- The thread of an event loop: FAR_PROGRESS_CALLER; these never block ---- */

/**
 * The agent in an event loop. The descriptor is readable when far_agent_poll() has something to do: packets, calls and
 * answers of other threads, timers, changes of the group. An idle agent wakes nobody. Watch it level-triggered for
 * reading (poll, epoll, libevent, libuv); do not read or close it. It is valid until far_shutdown(). Any thread. −1:
 * the agent has pollers.
 */
int far_agent_fd(struct far_agent *agent);

/**
 * Does what the agent has to do, at most 64 polls of each shard; the descriptor stays readable if there is more.
 * Returns the number of packets and submissions handled. Calls that the loop makes itself are sent when they are made;
 * their completions, callbacks and handlers run here, on the calling thread, or on a thread that waits. One thread at a
 * time polls: it returns 0 at once while another thread is in it, in a handler, and if the agent has pollers.
 * A thread that waits polls the shard of its future only, and none for a future that the application or several shards
 * complete: another thread has to poll the agent then.
 */
unsigned far_agent_poll(struct far_agent *agent);

/* ---- The thread that holds a shard ---- */

/**
 * Makes the calling thread the holder of shard 0 until far_shard_release(): its calls go through this shard straight to
 * the queue, its waits poll the shard, and no other thread does. Blocks at most `timeout_ns` (0:
 * FAR_ACQUIRE_TIMEOUT_NS) until the current holder releases the shard. The thread must wait or poll often while it
 * holds the shard: handlers run only then, and packets leave with the next poll, wait or release. The release runs no
 * handler. Errors: UNSUPPORTED with FAR_PROGRESS_DEDICATED; WOULD_DEADLOCK, INVALID in a handler; INVALID if the thread
 * holds it; TIMEOUT.
 */
enum far_status far_shard_acquire(struct far_agent *agent, uint64_t timeout_ns, struct far_err *err);
void far_shard_release(struct far_agent *agent);
/** Polls the shard once. Returns the number of packets and submissions handled. Never blocks. Does nothing in a handler
 * or callback of the shard; far_shard_release() does nothing in any handler. */
unsigned far_shard_poll(struct far_agent *agent);

/** far_shard_acquire(), far_shard_release() and far_shard_poll() for shard `shard`. FAR_INVALID if there is no such
 * shard; the other two do nothing then. */
enum far_status far_shard_acquire_at(struct far_agent *agent, unsigned shard, uint64_t timeout_ns, struct far_err *err);
void far_shard_release_at(struct far_agent *agent, unsigned shard);
unsigned far_shard_poll_at(struct far_agent *agent, unsigned shard);

/* ---- Crash reports: each thread that is to have one; never blocks ---- */

/**
 * Installs handlers for SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT that report the crash on stderr: signal, address,
 * the running handler and its worker, an overflow of a fiber's stack, the shard's last rare events, a backtrace. The
 * previous action (core dump or the application's handler) then runs and stays installed, so each signal is reported
 * once. The report needs no memory except the thread's alternate signal stack. The calling thread gets such a stack if
 * it has none; threads of agents get one if this is called before far_init_rpc(). Inline and fiber handlers also run on
 * application threads that wait: without a call on such a thread, a stack overflow there ends the process unreported.
 * May be called again. Errors: SYSTEM.
 */
enum far_status far_crash_report_install(struct far_err *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
