/* SPDX-License-Identifier: BSD-3-Clause */
/** Every bound of the engine, with its reason. Constants. Any thread. */
#ifndef FAR_BASE_LIMITS_H
#define FAR_BASE_LIMITS_H

#include <stdint.h>

/* Members of a static group: one store serves so many (FAR_STORE_CLIENTS_MAX), and each member's tables stay small. */
#define FAR_WORLD_MAX 1024
/* Sets of workers for which one worker gathers far_all_gather(), and open rounds of them: 24 bytes for each worker, 128
 * with its value. */
#define FAR_GATHER_SETS_MAX  1024u
#define FAR_GATHERS_OPEN_MAX 4096u

/* Shards of a worker, as in <farcall/agent.h>: a session table of shards × world stays small. */
#define FAR_SHARDS_MAX 16

/* Largest group in which each member reads all infos from the store. In larger ones rank 0 reads them and publishes a
 * list: n requests and n lists instead of n * n requests. */
#define FAR_GATHER_DIRECT_MAX 64

/* Sessions of one worker that are set up at init; with more they are set up on demand. Each needs two descriptors and a
 * mapping at both ends. */
#define FAR_SESSIONS_EAGER_MAX 256

/* Limit of the set-up of a session on demand: the other side's control thread only has to reply. */
#define FAR_CONNECT_TIMEOUT_NS UINT64_C(30000000000)

/* Pending calls from one shard to another: default and bound of opts.peer_calls. It makes a ring possible that is never
 * full, see SHARD_RING_SLOTS in core/shard.h. */
#define FAR_SESSION_CALLS_MAX 202

/* Calls to one shard of a worker that wait at the caller for a credit, for the session, or for the next poll of the
 * local shard: default and largest opts.peer_waiting. Each is a copy of the request. */
#define FAR_SESSION_WAITING     1024
#define FAR_SESSION_WAITING_MAX 32768

/* One more for the engine's control messages about references: a caller without credits can still return forks. */
#define FAR_SESSION_REQUESTS_MAX (FAR_SESSION_CALLS_MAX + 1)

/* Entries of a shard's tables of values with remote references, and of forks of them; at most half is used. Powers of
 * two; 3 and 12 MiB of address space. */
#define FAR_RREF_RECORDS (1u << 17)
#define FAR_RREF_FORKS   (1u << 19)
/* Interval at which control messages about references without room are tried again. */
#define FAR_RREF_AGAIN_NS UINT64_C(200000)
/* Interval at which control messages to an unreachable member are tried again. */
#define FAR_RREF_UNREACHED_NS UINT64_C(100000000)
/* First interval of a failed control message: default and range of opts.rref_retry_ns. */
#define FAR_RREF_RETRY_NS     UINT64_C(1000000)
#define FAR_RREF_RETRY_NS_MIN UINT64_C(1000)
#define FAR_RREF_RETRY_NS_MAX UINT64_C(3600000000000)

/* Unacknowledged one-way messages of a session, messages per acknowledgement, and copies that wait at most while the
 * window is full. */
#define FAR_ONEWAYS_WINDOW     48
#define FAR_ONEWAYS_BATCH      24
#define FAR_ONEWAYS_QUEUED_MAX 256

/* Messages beyond FAR_MSG_EAGER_MAX are sent in fragments. Messages of one session in each direction at once (others
 * wait at the sender), and of one shard with receive memory at once (others wait for a grant). */
#define FAR_RENDEZVOUS_LANES  4
#define FAR_RENDEZVOUS_IN_MAX 64
/* Unacknowledged packets of such messages, and packets per acknowledgement. */
#define FAR_RENDEZVOUS_PACKETS 8
#define FAR_RENDEZVOUS_BATCH   4
/* Bytes of a fragment: half of a common second-level cache, copied in some 25 us. A pass copies one in each direction,
 * with small calls in between; twice as much only makes these wait longer. */
#define FAR_CHUNK_BYTES (UINT64_C(256) << 10)
/* Least bytes of an announced message that is offered to its receiver, and most parts, empty ones not counted: in more
 * parts it is sent in fragments. */
#define FAR_PULL_BYTES_MIN (UINT64_C(32) << 10)
#define FAR_PULL_PARTS_MAX 4
/* Messages of a session, in each direction, that the receiver reads in shared memory of the sender: beyond that they
 * are copied. Bounds what a receiver that keeps messages holds at its sender, and what a pass looks at. */
#define FAR_REFERRED_MAX 64
/* Least bytes of a part that are sent zero-copy, in a fragment of their own, where the driver supports it; a copy of
 * less costs no more than the bookkeeping. */
#define FAR_ZERO_COPY_BYTES_MIN (UINT64_C(32) << 10)
/* Bytes of an eager request from which on it is sent from the caller's memory while the call is made, where the driver
 * can: two of the largest packets, so that some of it is acknowledged by then. */
#define FAR_BORROW_BYTES_MIN (UINT64_C(128) << 10)
/* Bytes from which on a driver copies into its packets (nic_queue_ops.tx_copy): with less, plain copies are as fast
 * between cores that share a cache. */
#define FAR_STREAM_BYTES_MIN (UINT64_C(8) << 10)
/* Least message with a part in registered memory that is sent so, too; below this a copy takes less time than the
 * announcement. */
#define FAR_REGISTERED_BYTES (UINT64_C(256) << 10)
/* Least message with a part in memory of far_alloc_shared() that is sent by reference: below this a copy of memory that
 * is written anew is faster (perf/NOTES.md, 74). */
#define FAR_REFERRED_BYTES (UINT64_C(64) << 10)
/* Memories of far_alloc_shared() of a process, with a descriptor each and a bit of a word for each peer; and those of
 * peers that it has mapped. */
#define FAR_SHARED_MAX        64
#define FAR_SHARED_MAPPED_MAX 1024
/* Registered memory regions of one agent; devices have bounds of their own, which include the engine's memory. */
#define FAR_MEM_REGIONS_MAX 512

/* Smallest message limit of a receiver: control messages and errors need far less. */
#define FAR_MESSAGE_LIMIT_MIN (UINT64_C(64) << 10)

/* Call slots of a shard, all sessions together: default and bound of opts.calls. The bound is for calls to the largest
 * group; used slots are scanned every 20 ms. */
#define FAR_CALLS     16384u
#define FAR_CALLS_MAX 262144u

/* Requests of a shard that outlive their handler, waiting fibers and requests queued for a blocking thread included. A
 * caller's pending calls bound them per session, this the sum: default and bound of opts.deferred. */
#define FAR_DEFERRED     32768u
#define FAR_DEFERRED_MAX 262144u

/* Running handlers of kind fiber of a shard: default and bound of opts.fibers, and bytes of their stacks. */
#define FAR_FIBERS      1024u
#define FAR_FIBERS_MAX  65536u
#define FAR_STACK_BYTES ((size_t)256 << 10)
#define FAR_STACK_MIN   ((size_t)16 << 10)
#define FAR_STACK_MAX   ((size_t)64 << 20)

/* Threads for handlers of kind blocking, and requests queued for them. */
#define FAR_BLOCKING           4u
#define FAR_BLOCKING_MAX       1024u
#define FAR_BLOCKING_QUEUE     1024u
#define FAR_BLOCKING_QUEUE_MAX 65536u

/* Pending calls of a session that may be retried; further requests are rejected with FAR_BUSY. More than a session's
 * pending calls, so that one slow call does not block the others soon. Power of two; default and bound of
 * opts.retry_window at the caller; the callee keeps this many entries. */
#define FAR_RETRY_WINDOW 1024u
/* Replies that the callee keeps for retries of one session, in bytes. */
#define FAR_RETRY_BYTES ((size_t)8 << 20)
/* Default interval before the first retry of a call with opts.retry; each further one is 1.5 times as long, up to the
 * maximum. */
#define FAR_RETRY_NS     UINT64_C(200000000)
#define FAR_RETRY_NS_MAX UINT64_C(10000000000)

/* Submission ring of a shard, for calls of threads that do not hold it; a full ring is FAR_BUSY. Default and bounds of
 * opts.submit_slots; with one slot a full cell could not be distinguished from a free one. The bound is 8 MiB. */
#define FAR_SUBMIT_SLOTS     1024u
#define FAR_SUBMIT_SLOTS_MIN 2u
#define FAR_SUBMIT_SLOTS_MAX 65536u

/* Mailbox of a shard, for each direction; a sender retries in order when it is full. Default and bound of
 * opts.mailbox_slots: a mail for each session of a shard. */
#define FAR_MAILBOX_SLOTS     1024u
#define FAR_MAILBOX_SLOTS_MAX 16384u

/* Ports of an agent, as INFO_PORTS_MAX: their addresses fit a value of the store. */
#define FAR_PORTS_MAX 8

/* A secondary queue whose empty recv() is a system call (some 0.3 us) is polled once in FAR_COLD_PASSES passes (of 50
 * ns and more) and FAR_COLD_NS; before a sleep it is armed. A queue without peers, where only a connect request can
 * arrive, is polled FAR_COLD_ALONE times less often: workers of one host have such a queue beside shm. After a packet a
 * queue is polled in each of FAR_HOT_POLLS passes, about a round trip. */
#define FAR_COLD_PASSES 4096u
#define FAR_COLD_NS     UINT64_C(50000)
#define FAR_COLD_ALONE  16u
#define FAR_HOT_POLLS   512u

/* Packets received from a queue at once: enough to amortise a pass, few enough for the first-level cache. */
#define FAR_BURST 16
/* Full bursts in one pass at most, where receiving and sending are system calls: one call sends what a pass produces.
 */
#define FAR_BURSTS_COSTLY 4

/* Payload bytes that share the header's cache line on shm. */
#define FAR_LINE_PAYLOAD 32

/* Bytes of the string arguments of one call, NULs included. They are copied at the handler's side, since a peer could
 * overwrite the NUL of a C string in shared memory. Longer texts are passed as bytes. */
#define FAR_STRINGS_BYTES_MAX 65536

/* Custom types of a process, and overloads of a function: a call of an overloaded name checks each of them. */
#define FAR_TYPES_MAX     1024
#define FAR_OVERLOADS_MAX 16

/* Futures of a process: 128 MiB of address space, reserved at start so that no shard allocates. With too little address
 * space the number is halved, down to the minimum. */
#define FAR_FUTURES_MAX (1u << 20)
#define FAR_FUTURES_MIN 1024u

/* Range of the size of the region for buffers and payloads: the smallest holds a few of the largest slabs, the largest
 * fits the word of memory/region.c. */
#define FAR_MEMORY_BYTES_MIN (UINT64_C(16) << 20)
#define FAR_MEMORY_BYTES_MAX (UINT64_C(1) << 40)

/* 1/16 of the region is reserved for slabs: small calls work when large payloads have used up the rest. */
#define FAR_MEMORY_SLAB_SHARE 16

/* Freed pages retained for the next large payload: enough that a stream of messages of 16 MiB faults its pages once. */
#define FAR_MEMORY_RETAINED_MAX (UINT64_C(64) << 20)
/* Nested control groups whose memory limits are read, innermost first; Kubernetes nests six. */
#define FAR_CONTAINER_LEVELS_MAX 16
/* Reserve of a container's limit for other users, as 1/n: for large payloads, and for slabs and bulk pages. */
#define FAR_CONTAINER_LARGE_SPARE 16
#define FAR_CONTAINER_SMALL_SPARE 32
/* A reading of the container allows 1/8 of its room for 50 ms, so that a few processes that allocate at the same time
 * do not exceed it together. Without a limit the container is read at the third interval. */
#define FAR_CONTAINER_CREDIT_SHARE 8
#define FAR_CONTAINER_CREDIT_NS    UINT64_C(50000000)
#define FAR_CONTAINER_LOOK_NS      UINT64_C(1000000000)
/* With less room than this, or than half of the limit, large payloads are backed at once, by one process at a time. */
#define FAR_CONTAINER_TIGHT_BYTES (UINT64_C(256) << 20)
/* Wait for another process that backs its pages: enough for 256 MiB at 0.4 ms a MiB. */
#define FAR_CONTAINER_LOCK_NS    100000000
#define FAR_CONTAINER_LOCK_TRIES 100
/* Bytes counted for a fiber's stack at its first use: what handlers of some depth touch. */
#define FAR_STACK_COUNTED (UINT64_C(16) << 10)

/* Unit of registration with a device: large, since each takes a system call and an entry of the device's tables; small
 * compared with a machine's memory, since all of it is pinned. And the longest message with its head, which may begin
 * at the end of a unit. */
#define FAR_MEMORY_PIECE      (UINT64_C(64) << 20)
#define FAR_MEMORY_PIECE_MORE (UINT64_C(18) << 20)

/* Largest alignment of an allocation: the largest huge page. */
#define FAR_MEMORY_ALIGN_MAX (UINT64_C(1) << 30)

/* Threads that sleep for one shard at once and are woken when its progress token is released. Further threads wait in
 * naps of FAR_NAP_NS. */
#define FAR_SLEEPERS_MAX 128
#define FAR_NAP_NS       UINT64_C(1000000)

/* Passes of a shard in far_agent_poll(), each of FAR_BURST packets of each queue at most: what a ring can hold, and
 * less than a millisecond of inline handlers of a few microseconds. */
#define FAR_POLL_PASSES 64u

/* Adaptive idling: time of polls without work before the thread yields, and of yields before it sleeps; perf/NOTES.md,
 * "idle". */
#define FAR_SPIN_NS  UINT64_C(20000)
#define FAR_YIELD_NS UINT64_C(50000)
/* The same under a quota of less than one CPU for each shard: the cost of a sleep and a wake-up. So polling uses at
 * most as much of the quota as sleeping would, for pauses of any length. */
#define FAR_SPIN_SCARCE_NS UINT64_C(5000)

/* Wake-up datagrams that a shard reads from its side socket when it wakes; with more it is woken again. Enough for all
 * peers at the same moment, and a bound on the cost of a flood. */
#define FAR_KICKS_CLEARED_MAX 64

/* Store: bytes of a key and of a value, keys, clients: members, and as many others. */
#define FAR_STORE_KEY_MAX     255
#define FAR_STORE_VALUE_MAX   4096
#define FAR_STORE_KEYS_MAX    65536
#define FAR_STORE_CLIENTS_MAX 1024
/* Watches and pending HOLDs of one client: a member has two and one. */
#define FAR_STORE_WATCHES_MAX  4
#define FAR_STORE_CONTESTS_MAX 8
/* Reserved keys beyond FAR_STORE_KEYS_MAX for each member of a group: `rank`, `info`, and the `bye` of up to three
 * waves; twice as many in total, for rank 0's lists. */
#define FAR_STORE_RESERVED_MAX  8
#define FAR_STORE_KEYS_RESERVED (2 * FAR_STORE_RESERVED_MAX * FAR_WORLD_MAX)
/* Connections before their login is complete, which do not count as clients: room for members whose LOGIN is in flight
 * when a large group starts; one more replaces the oldest, which connects again. And their time for it: many round
 * trips, so that a member on a busy machine is in time. */
#define FAR_STORE_UNAUTHENTICATED_MAX 256
#define FAR_STORE_LOGIN_NS            UINT64_C(5000000000)
/* Pending WAITs of all clients: a list of members in chunks (control/members.c) takes 40 of each client. Beyond it the
 * client with the most is dropped. */
#define FAR_STORE_WAITS_MAX (1u << 18)
/* Time of a worker that cannot open its NIC to publish that: it waits for the store, and rank 0 for the others to read
 * it. Members of a group are started together. */
#define FAR_STORE_REFUSED_NS UINT64_C(5000000000)
/* Time that rank 0 waits for members to close their connections after the last bye: the replies are in flight by then,
 * and can be read after the store has closed. */
#define FAR_STORE_CLOSE_NS UINT64_C(2000000000)
/* Bytes in a client's send buffer beyond which no further changes are sent and no requests read: some of the longest
 * frames. */
#define FAR_STORE_WATCH_BYTES ((size_t)64 << 10)
/* Bytes in a client's send buffer beyond which it is dropped: besides the above only replies to WAITs are added, at
 * most 64 times 4 KiB in a group without lists. For all clients together: twice the pausing bytes of each; beyond it
 * the client with the most is dropped. And the time without a sent byte: as TCP_USER_TIMEOUT in control/net_os.c. */
#define FAR_STORE_OUT_BYTES     ((size_t)1 << 20)
#define FAR_STORE_OUT_BYTES_ALL ((size_t)128 << 20)
#define FAR_STORE_STALLED_NS    UINT64_C(10000000000)
/* Deleted keys kept for watches that have not reported them: four for each member. Beyond it the slowest client is
 * dropped. */
#define FAR_STORE_DELETED_MAX 4096
/* Limit of a holder's reply to a PING: many times what a control thread needs on a busy machine, so that a slow one is
 * not dropped. */
#define FAR_STORE_SILENT_NS UINT64_C(5000000000)

/* engine/transport: connections of a port: twice those of one of 16 shards to all shards of the largest group; a power
 * of two: 15 bits of a connection's token, whose other 49 are random. And queues of a port, as shm has. */
#define FAR_TRANSPORT_PEERS_MAX  32768u
#define FAR_TRANSPORT_QUEUES_MAX 16u
/* Unacknowledged packets of one direction; a power of two, four times an acknowledgement's bitmap. Their bytes: four
 * UDP datagrams of the largest size, which fit a socket's usual receive buffer (208 KiB, counted double). */
#define FAR_TRANSPORT_WINDOW       256u
#define FAR_TRANSPORT_WINDOW_BYTES (256u << 10)
/* Messages up to this size overtake larger ones that wait: some 2 us of a path of 16 Gb/s. Packets and bytes of the
 * window reserved for them, and their bytes after which a packet of a larger message is sent in any case. */
#define FAR_TRANSPORT_SMALL_BYTES     4096u
#define FAR_TRANSPORT_SMALL_PACKETS   32u
#define FAR_TRANSPORT_SMALL_IN_WINDOW (32u << 10)
#define FAR_TRANSPORT_SMALL_SHARE     (16u << 10)
/* With network priorities: size classes of the unscheduled bytes of larger messages; up to the first bound before up to
 * the second, before all others. A message of the next class delays the first class by some eight times its own time.
 */
#define FAR_TRANSPORT_MEDIUM_BYTES 8192u
#define FAR_TRANSPORT_LONG_BYTES   65536u
/* Bytes of larger messages in the send ring of a driver that reports its fill, at most; reduced by 1/16 after so many
 * packets without finding the ring empty. */
#define FAR_TRANSPORT_RING_BYTES_MAX FAR_TRANSPORT_WINDOW_BYTES
#define FAR_TRANSPORT_RING_PACKETS   256u
/* Unacknowledged messages of one direction, as SHARD_RING_SLOTS of core/shard.h requires. */
#define FAR_TRANSPORT_SLOTS 1024u
/* Bytes of these for each connection, and bytes of a queue's messages that are incomplete or not taken yet. */
#define FAR_TRANSPORT_OUT_BYTES (UINT64_C(64) << 20)
#define FAR_TRANSPORT_IN_BYTES  (UINT64_C(256) << 20)
/* Messages of a connection sent in fragments at once, so that a short one need not wait for the end of a long one, nor
 * for its grant. The receiver assembles these and as many out of order; the last slot is reserved for the next in
 * order. */
#define FAR_TRANSPORT_OPEN_MAX   4u
#define FAR_TRANSPORT_ASSEMBLIES (2 * FAR_TRANSPORT_OPEN_MAX + 1)
/* Bodies of a queue's messages in one-sided transfers at once, all connections together: a few fill the path. Others
 * are sent in packets. */
#define FAR_TRANSPORT_ONESIDED 64u
/* At most half of them are exposed to peers, which may expose as many: else both sides could wait for each other. */
#define FAR_TRANSPORT_EXPOSED (FAR_TRANSPORT_ONESIDED / 2)
/* A body that is not exposed within this time, or without memory to read into, is sent in packets. */
#define FAR_TRANSPORT_ONESIDED_NS UINT64_C(50000000)
/* After such a time-out nothing is read for this time: else each message would wait. */
#define FAR_TRANSPORT_UNREAD_NS UINT64_C(200000000)
/* Waiting messages of a sender, from the oldest on, among which the shortest is selected. One packet in
 * FAR_TRANSPORT_GRANT_SHARE is of the oldest in any case, and so is that part of a receiver's grants. */
#define FAR_TRANSPORT_SCAN_MAX    16u
#define FAR_TRANSPORT_GRANT_SHARE 16u
/* Incoming messages of a queue with grants at once besides the oldest, each with half the grant of the next shorter
 * one: when one sender is slow, the others fill the path. */
#define FAR_TRANSPORT_GRANTED_MAX 8u
/* Granted bytes of a queue that have not arrived: twice the measured capacity of the path. Before a measurement: two
 * windows of a connection. Minimum: the queues of a hundred receivers behind one switch must fit its buffer (12 MB)
 * with their unscheduled bytes, and a host that polls its queue every 30 us must reach 2 GB/s; over memif a window.
 * Maximum: 1/8 of the queue's memory. */
#define FAR_TRANSPORT_GRANT_BYTES     (2 * (uint64_t)FAR_TRANSPORT_WINDOW_BYTES)
#define FAR_TRANSPORT_GRANT_BYTES_MIN (UINT64_C(64) << 10)
#define FAR_TRANSPORT_GRANT_BYTES_MAX (FAR_TRANSPORT_IN_BYTES / 8)
/* Interval of new measurements of the round trip under grants, since a path may change. */
#define FAR_TRANSPORT_GRANT_RTT_NS UINT64_C(1000000000)
/* Unscheduled bytes of a message: of a sender without information from the receiver, so that a hundred of them fit the
 * buffer of a switch port; and of all senders together, which the receiver divides. */
#define FAR_TRANSPORT_UNSCHEDULED_BYTES     6144u
#define FAR_TRANSPORT_UNSCHEDULED_BYTES_MAX FAR_TRANSPORT_WINDOW_BYTES
/* Least packets of a receive ring for each sender, however many share it: the fourth packet reveals a loss among three.
 * With more senders than that, drops are repaired by retransmission. */
#define FAR_TRANSPORT_RING_SHARE_MIN 4u
/* A separate acknowledgement is sent after so many messages or bytes, or this time after the first, a quarter of the
 * least time-out. Messages: with those of one recv() they bound how late a sender's slots become free. Bytes: packets
 * that have arrived never close the window of a sender of large packets. */
#define FAR_TRANSPORT_ACK_EVERY 96u
#define FAR_TRANSPORT_ACK_BYTES (FAR_TRANSPORT_WINDOW_BYTES / 4)
#define FAR_TRANSPORT_ACK_NS    (FAR_TRANSPORT_MARGIN_NS / 4)
/* Least margin of a time-out above the round trip: more than the pauses of a host with a core for each shard
 * (interrupts, some 0.3 ms), and the price of a loss that only the time-out reveals. Hosts with fewer cores have pauses
 * of 2 to 4 ms 50 times a second: transport/rtt.h recognises and remembers those. Longer pauses are rare, and cost a
 * few spurious retransmissions each; time-outs of that length would delay the repair of each loss. */
#define FAR_TRANSPORT_MARGIN_NS   UINT64_C(1000000)
#define FAR_TRANSPORT_PEAK_NS     UINT64_C(1000000000)
#define FAR_TRANSPORT_PEAK_NS_MAX UINT64_C(10000000)
/* First time-out of a connection, before a measurement; longest after back-off; longest measured, on slow networks. */
#define FAR_TRANSPORT_RTO_NS     UINT64_C(5000000)
#define FAR_TRANSPORT_RTO_NS_MAX UINT64_C(100000000)
#define FAR_TRANSPORT_RTT_NS_MAX UINT64_C(1000000000)
/* Least interval of round-trip measurements. A measurement reads the clock twice. */
#define FAR_TRANSPORT_SAMPLE_NS UINT64_C(100000)
/* A packet counts as lost when so many later ones have arrived; doubled when that was wrong, up to half of the bitmap.
 */
#define FAR_TRANSPORT_REORDER     3u
#define FAR_TRANSPORT_REORDER_MAX 32u
/* Default and range of opts.peer_limit_ns: a shorter limit than the pauses of a busy host would end its sessions. */
#define FAR_PEER_LIMIT_NS     UINT64_C(1000000000)
#define FAR_PEER_LIMIT_NS_MIN UINT64_C(10000000)
#define FAR_PEER_LIMIT_NS_MAX UINT64_C(3600000000000)
/* Default and range of opts.lease_ns: a shorter one would end with the pauses of a busy host. Margin of the store
 * beyond an eighth of the lease; value of the word that control thread and shards share when it is over. */
#define FAR_LEASE_NS        UINT64_C(10000000000)
#define FAR_LEASE_NS_MIN    UINT64_C(100000000)
#define FAR_LEASE_NS_MAX    UINT64_C(3600000000000)
#define FAR_LEASE_MARGIN_NS UINT64_C(20000000)
#define LEASE_OVER          UINT64_C(1)
/* Time that the members of a dynamic group have to write their records into a store that has begun anew, before a
 * worker that waited for it takes a free rank: they try to connect every 50 ms at least. */
#define FAR_STORE_REBUILD_NS 300000000
/* Time for the backup of the application's keys to acknowledge a change, before another member takes its place. */
#define FAR_STORE_COPY_NS UINT64_C(1000000000)
/* Payload of a packet when large ones are lost and small ones are not, and of messages that must be able to fail over
 * to any port: with its head 1024 bytes, the largest packet of RDMA devices on Ethernet of the usual MTU. */
#define FAR_TRANSPORT_MTU_MIN 928u
/* Largest packet of several messages where the path takes far larger ones. It has at most 125 messages. */
#define FAR_TRANSPORT_WIDE_PACKET 4096u
/* First and longest interval of repeated connect requests and accepts; each is 1.5 times as long as the one before. */
#define FAR_TRANSPORT_CONNECT_NS     UINT64_C(4000000)
#define FAR_TRANSPORT_CONNECT_NS_MAX UINT64_C(50000000)
/* Undecided set-ups begun by peers, and replies without state under way (CHALLENGE, and replies to packets of another
 * incarnation of the port or of no connection). Both end after the third value if they are not decided. */
#define FAR_TRANSPORT_HALF_OPEN_MAX 256u
#define FAR_TRANSPORT_STATELESS_MAX 64u
#define FAR_TRANSPORT_HALF_OPEN_NS  UINT64_C(2000000000)
/* Validity of a cookie: some round trips, with lost connect requests. */
#define FAR_TRANSPORT_COOKIE_NS UINT64_C(5000000000)
/* Rejected set-ups that are remembered, so that a late connect request does not begin a new one. */
#define FAR_TRANSPORT_REFUSED_KEPT 256u
/* Flows tried to reach a queue that a hash selects: with 16 queues, all miss once in 10^7. */
#define FAR_TRANSPORT_FLOWS_MAX 256u
/* Secondary paths of a connection: through the agent's other ports, each to one address of the peer. */
#define FAR_TRANSPORT_SECONDARY_PATHS_MAX 7u
/* Interval of probes of the primary path after a failover; and least interval of probes of the path in use when packets
 * arrive over another one. */
#define FAR_TRANSPORT_FAILBACK_NS   UINT64_C(1000000000)
#define FAR_TRANSPORT_PATH_PROBE_NS UINT64_C(50000000)
/* Empty polls in consecutive passes of another port's queue for such a path, where a poll is a system call. */
#define FAR_TRANSPORT_EMPTY_POLLS 512u
/* Peers that a queue notifies before it sleeps. Others send a wake-up with their next packet. */
#define FAR_TRANSPORT_AWAKE_MAX 64u

#endif
