/* SPDX-License-Identifier: BSD-3-Clause */
/** Every bound of the engine, with its reason. */
#ifndef FAR_BASE_LIMITS_H
#define FAR_BASE_LIMITS_H

#include <stdint.h>

/* Members of a static group: what one store serves (FAR_STORE_CLIENTS_MAX) with each member's tables still small. */
#define FAR_WORLD_MAX 1024
/* Sets of workers whose rounds of far_all_gather() one worker gathers, and rounds that are open: 24 bytes a worker, and
 * 128 with its value. */
#define FAR_GATHER_SETS_MAX  1024u
#define FAR_GATHERS_OPEN_MAX 4096u

/* Shards of a worker, as <farcall/agent.h> says too: a session table of shards × world stays small. */
#define FAR_SHARDS_MAX 16

/* Members of a group in which everybody asks the store about everybody. In larger ones rank 0 does, and publishes what
 * it has read as a list: n requests and n lists instead of n * n requests. */
#define FAR_GATHER_DIRECT_MAX 64

/* Sessions of one worker that are set up at init; a group that needs more has them set up by their first calls. Each
 * costs two descriptors and a mapping at both ends. */
#define FAR_SESSIONS_EAGER_MAX 256

/* How long the set-up of a session on demand may take: the other side's control core only has to answer. */
#define FAR_CONNECT_TIMEOUT_NS UINT64_C(30000000000)

/* Calls that may be pending from one shard towards another: default and bound of opts.peer_calls. With it a ring can be
 * made that is never full, see SHARD_RING_SLOTS in core/shard.h. */
#define FAR_SESSION_CALLS_MAX 202

/* Calls towards one shard of a worker that wait at the caller, for a credit, for the session, or until the shard's
 * driver takes them over: default and largest opts.peer_waiting. Each is a copy of the request. */
#define FAR_SESSION_WAITING     1024
#define FAR_SESSION_WAITING_MAX 32768

/* One more for the engine's own words about references: whoever has used up his calls can still give back. */
#define FAR_SESSION_REQUESTS_MAX (FAR_SESSION_CALLS_MAX + 1)

/* Values of a shard that others refer to, and forks that others have of them: places of the tables, half of which may
 * be taken. Powers of two; 3 and 12 MiB of address space. */
#define FAR_RREF_RECORDS (1u << 17)
#define FAR_RREF_FORKS   (1u << 19)
/* When words that found no room are tried again. */
#define FAR_RREF_AGAIN_NS UINT64_C(200000)
/* When words to a member that no connection led to are tried again. */
#define FAR_RREF_UNREACHED_NS UINT64_C(100000000)
/* When a word that failed is said again for the first time: default and range of opts.rref_retry_ns. */
#define FAR_RREF_RETRY_NS     UINT64_C(1000000)
#define FAR_RREF_RETRY_NS_MIN UINT64_C(1000)
#define FAR_RREF_RETRY_NS_MAX UINT64_C(3600000000000)

/* One-way messages of a session that the peer has not acknowledged, and how many it acknowledges at once. Those that
 * find the window full wait in memory of their own, so many at most. */
#define FAR_POSTS_WINDOW     48
#define FAR_POSTS_BATCH      24
#define FAR_POSTS_QUEUED_MAX 256

/* Messages beyond FAR_MSG_WHOLE_MAX travel in fragments. Of one session, so many at a time each way (the others wait
 * at the sender); of one shard, so many have memory at a time (the others wait for a grant). */
#define FAR_LARGE_LANES  4
#define FAR_LARGE_IN_MAX 64
/* Packets of such messages that the peer has not acknowledged, and how many it acknowledges at once. */
#define FAR_LARGE_UNITS 8
#define FAR_LARGE_BATCH 4
/* One fragment: half of a common second-level cache, copied in some 25 us; a shard copies one each way in a pass, and
 * small calls go in between. Twice as much only makes them wait longer. */
#define FAR_CHUNK_BYTES (UINT64_C(256) << 10)
/* Of a part at least so much is left when a fragment is sent from where it lies, and has it to itself, where the driver
 * does that; a copy of less costs no more than what lending takes. */
#define FAR_LEND_BYTES (UINT64_C(32) << 10)
/* A shorter one, too, travels so when a part of it lies in memory that the application has registered; below this a
 * copy takes less than the announcement. */
#define FAR_REGISTERED_BYTES (UINT64_C(256) << 10)
/* Of one agent; devices have a bound of their own, which holds the engine's memory as well. */
#define FAR_MEM_REGIONS_MAX 512
/* What a receiver grants ahead of what it has copied: enough fragments that the sender never waits for the grant. */
#define FAR_LARGE_WINDOW (8 * FAR_CHUNK_BYTES)

/* The smallest limit that a receiver may set: what one-packet control traffic and errors need is far below. */
#define FAR_MESSAGE_LIMIT_MIN (UINT64_C(64) << 10)

/* Call slots of a shard, all its sessions together: default and bound of opts.calls. The bound holds all that may be
 * pending towards the largest group; those that were ever used are swept every 20 ms. */
#define FAR_CALLS     16384u
#define FAR_CALLS_MAX 262144u

/* Requests that a shard keeps open beyond their handler. A caller's pending calls bound it per session; this bounds the
 * sum: parked fibers and requests that wait for a worker thread included. Default and bound of opts.deferred. */
#define FAR_DEFERRED     32768u
#define FAR_DEFERRED_MAX 262144u

/* Handlers of kind fiber under way on a shard: default and bound of opts.fibers, and their stacks. */
#define FAR_FIBERS      1024u
#define FAR_FIBERS_MAX  65536u
#define FAR_STACK_BYTES ((size_t)256 << 10)
#define FAR_STACK_MIN   ((size_t)16 << 10)
#define FAR_STACK_MAX   ((size_t)64 << 20)

/* Threads for handlers of kind blocking, and requests that wait for one. */
#define FAR_BLOCKING           4u
#define FAR_BLOCKING_MAX       1024u
#define FAR_BLOCKING_QUEUE     1024u
#define FAR_BLOCKING_QUEUE_MAX 65536u

/* Calls of a session that may be repeated and have not ended: a request is refused with FAR_BUSY beyond it. More than a
 * session's pending calls, so that one that waits long does not hold up the others soon. Power of two; default and
 * bound of opts.retry_window, which is the caller's own: the callee keeps this many entries. */
#define FAR_RETRY_WINDOW 1024u
/* Answers that the callee keeps for repeats, of one session. */
#define FAR_RETRY_BYTES ((size_t)8 << 20)
/* When a call with opts.retry is first sent again by default; each further wait is half as long again, up to the
 * longest. */
#define FAR_RETRY_NS     UINT64_C(200000000)
#define FAR_RETRY_NS_MAX UINT64_C(10000000000)

/* Submission ring of a shard: calls handed over by threads that do not hold it. A full ring is FAR_BUSY. Default and
 * bounds of opts.submit_slots; with one slot a taken cell could not be told from a free one. The bound is 8 MiB. */
#define FAR_SUBMIT_SLOTS     1024u
#define FAR_SUBMIT_SLOTS_MIN 2u
#define FAR_SUBMIT_SLOTS_MAX 65536u

/* Mailbox of a shard, each way. Who finds it full tries again, in order. Default and bound of opts.mailbox_slots: a
 * mail for each session that a shard can have. */
#define FAR_MAILBOX_SLOTS     1024u
#define FAR_MAILBOX_SLOTS_MAX 16384u

/* Ports of an agent, as INFO_PORTS_MAX says too: their addresses fit a value of the store. */
#define FAR_PORTS_MAX 8

/* A queue beyond a shard's first whose empty recv() is a system call of some 0.3 us is polled once in so many passes
 * (of 50 ns and more), and once in so long; a sleep arms it. One without peers, where only a set-up can come, once in
 * FAR_COLD_ALONE times as many and as long: workers of one host have such a queue beside shm. After a packet a queue is
 * polled in so many passes for the next one: a round trip over a network and back. */
#define FAR_COLD_PASSES 4096u
#define FAR_COLD_NS     UINT64_C(50000)
#define FAR_COLD_ALONE  16u
#define FAR_HOT_POLLS   512u

/* Packets taken from a queue at once: enough to amortise a pass, few enough to stay in the first-level cache. */
#define FAR_BURST 16
/* So many bursts in one pass at most, while they are full, where receiving and sending are system calls: what a pass
 * has to send leaves by one of them. */
#define FAR_BURSTS_COSTLY 4

/* Payload that shares the header's line, on shm. */
#define FAR_LINE_PAYLOAD 32

/* String arguments of one call, their NULs included: they are copied to memory of the handler's side, because a C
 * string in memory that a peer can write cannot be trusted to end. Longer texts go as bytes. */
#define FAR_STRINGS_BYTES_MAX 65536

/* Custom types of a process, and overloads of a function: a call to an overloaded name looks at each of them. */
#define FAR_TYPES_MAX     1024
#define FAR_OVERLOADS_MAX 16

/* Futures of a process: 128 MiB of address space, reserved at once so that none allocates on a shard. A process that
 * cannot have so much gets less, by halves down to the least. */
#define FAR_FUTURES_MAX (1u << 20)
#define FAR_FUTURES_MIN 1024u

/* The region of buffers and payloads: its least and largest bound. The smallest holds a few of the largest slabs, the
 * largest is what one word can split (memory/region.c). */
#define FAR_MEMORY_BYTES_MIN (UINT64_C(16) << 20)
#define FAR_MEMORY_BYTES_MAX (UINT64_C(1) << 40)

/* Part of the region, 1/16, that large payloads leave to slabs: small calls go on when the rest is used up. */
#define FAR_MEMORY_SLAB_SHARE 16

/* Freed pages that are kept for the next large payload: enough that a stream of messages of 16 MiB faults its pages
 * once, little enough that nobody misses it. */
#define FAR_MEMORY_RETAINED_MAX (UINT64_C(64) << 20)
/* Control groups around the process, innermost first, whose memory limits are read; Kubernetes nests six. */
#define FAR_CONTAINER_LEVELS_MAX 16
/* Parts of a container's limit that stay free for others: beside large payloads, and beside slabs and bulk pages. */
#define FAR_CONTAINER_LARGE_SPARE 16
#define FAR_CONTAINER_SMALL_SPARE 32
/* A reading of the container allows this part of its room, so long: a few processes that fill their memory at the same
 * time do not exceed it together. Without a limit it is looked for so often. */
#define FAR_CONTAINER_CREDIT_SHARE 8
#define FAR_CONTAINER_CREDIT_NS    UINT64_C(50000000)
#define FAR_CONTAINER_LOOK_NS      UINT64_C(1000000000)
/* With less room than this, or than half of the limit, large payloads are backed at once, one process at a time. */
#define FAR_CONTAINER_TIGHT_BYTES (UINT64_C(256) << 20)
/* How long the others wait for one that does so: some 40 GB at 0.4 ms a MiB would be longer, but with as much room
 * nothing is tight. */
#define FAR_CONTAINER_LOCK_NS    100000000
#define FAR_CONTAINER_LOCK_TRIES 100
/* What a fiber's stack is counted as when it is used for the first time: what handlers of some depth touch. */
#define FAR_STACK_COUNTED (UINT64_C(16) << 10)

/* What is registered with a device at once: large, as each takes a system call and a place in the device's tables, and
 * small beside the memory of a machine, as all of it is pinned. And the longest message with its head, which may begin
 * at the end of one. */
#define FAR_MEMORY_PIECE      (UINT64_C(64) << 20)
#define FAR_MEMORY_PIECE_MORE (UINT64_C(18) << 20)

/* Alignment of memory that may be asked for: the largest huge page. */
#define FAR_MEMORY_ALIGN_MAX (UINT64_C(1) << 30)

/* Threads that may sleep for one shard at once and still be handed its driver token. More wait in naps of FAR_NAP_NS.
 */
#define FAR_SLEEPERS_MAX 128
#define FAR_NAP_NS       UINT64_C(1000000)

/* Adaptive idling: polls without work before the driver yields, and yields before it sleeps; perf/NOTES.md, "idle". */
#define FAR_SPIN_NS  UINT64_C(20000)
#define FAR_YIELD_NS UINT64_C(50000)
/* The same under a quota of less than one CPU for each shard: what going to sleep and waking costs. So looking for work
 * takes at most as much of the quota again as sleeping would have, however long the pauses are. */
#define FAR_SPIN_SCARCE_NS UINT64_C(5000)

/* Kicks that a sleeper takes from its side socket when it wakes; one that finds more is woken again. Enough for all
 * peers that kick at the same moment, and a bound on what a flood costs. */
#define FAR_KICKS_CLEARED_MAX 64

/* Store: keys and values of the rendezvous, requests waiting at the server, clients. */
#define FAR_STORE_KEY_MAX     255
#define FAR_STORE_VALUE_MAX   4096
#define FAR_STORE_KEYS_MAX    65536
#define FAR_STORE_CLIENTS_MAX 1024
/* Watches and undecided HOLDs of one client: a member has two of the former and one of the latter. */
#define FAR_STORE_WATCHES_MAX  4
#define FAR_STORE_CONTESTS_MAX 8
/* Keys beyond those, for what a group writes about its members: `rank`, `info`, and a `bye` of each wave until the next
 * but one, for each member that holds its rank; twice as many for rank 0, whose lists are in chunks. */
#define FAR_STORE_RESERVED_MAX  8
#define FAR_STORE_KEYS_RESERVED (2 * FAR_STORE_RESERVED_MAX * FAR_WORLD_MAX)
/* Connections that have not been admitted: they take no member's place. Room for members whose HELLO is on its way when
 * a large group starts; the oldest goes when one more comes, and comes again. And what they have for it: many round
 * trips, so that a member on a busy machine is in time. */
#define FAR_STORE_STRANGERS_MAX 256
#define FAR_STORE_HELLO_NS      UINT64_C(5000000000)
/* WAITs of all clients: a list of members in chunks (control/members.c) takes 40 of each client. Beyond it the client
 * with the most is dropped. */
#define FAR_STORE_WAITS_MAX (1u << 18)
/* How long a worker that cannot open its NIC takes to tell the group: it waits for the store to come up, and rank 0 for
 * the others to come and read it. Members of a group are started together. */
#define FAR_STORE_REFUSED_NS UINT64_C(5000000000)
/* How long rank 0, when all have left, waits for members to close their connections: what they have to read is on its
 * way by then, and lies ready for them when the store has gone. */
#define FAR_STORE_CLOSE_NS UINT64_C(2000000000)
/* What waits for a client before further changes are left where they are, and its requests unread: some of the longest
 * frames. */
#define FAR_STORE_WATCH_BYTES ((size_t)64 << 10)
/* Bytes that may wait for a client, beyond which it is dropped: only answers to WAITs come beside the above, and those
 * of a group in which everybody reads from everybody are 64 times 4 KiB. For all clients together: twice what pauses
 * each; beyond it the client with the most is dropped. And how long none of them may leave: as TCP_USER_TIMEOUT in
 * control/net_os.c. */
#define FAR_STORE_OUT_BYTES     ((size_t)1 << 20)
#define FAR_STORE_OUT_BYTES_ALL ((size_t)128 << 20)
#define FAR_STORE_STALLED_NS    UINT64_C(10000000000)
/* Deleted keys that are kept for clients that have not been told yet: four for each member. Beyond it the slowest one
 * is dropped. */
#define FAR_STORE_DELETED_MAX 4096
/* How long who holds a key that somebody else wants may take to give a sign of life: many times what a control core
 * takes on a machine that is busy, so that none is dropped that is merely slow. */
#define FAR_STORE_SILENT_NS UINT64_C(5000000000)

/* engine/transport: connections of a port: twice those of one of 16 shards to all shards of the largest group. A power
 * of two, 15 bits of the token that names one; 49 are random. Queues, as shm has them. */
#define FAR_LINK_PEERS_MAX  32768u
#define FAR_LINK_QUEUES_MAX 16u
/* Packets of one direction that are not acknowledged; power of two, four times what an acknowledgement's bitmap shows.
 * Their bytes: four UDP datagrams of the largest size, which a socket's usual receive buffer (208 KiB, counted double)
 * just holds. */
#define FAR_LINK_WINDOW       256u
#define FAR_LINK_WINDOW_BYTES (256u << 10)
/* Messages up to this size pass larger ones that have not left: some 2 us of a path of 16 Gb/s. Packets and bytes of
 * the window that larger ones leave to them, and the bytes of them after which a packet of a larger one goes in any
 * case. */
#define FAR_LINK_SMALL_BYTES     4096u
#define FAR_LINK_SMALL_PACKETS   32u
#define FAR_LINK_SMALL_IN_WINDOW (32u << 10)
#define FAR_LINK_SMALL_SHARE     (16u << 10)
/* Where the network has priorities: of larger messages, those up to the first come before those up to the second, and
 * these before others, as long as their bytes leave unasked. What a message of the next kind adds to the first kind's
 * time is some eight times what that takes by itself. */
#define FAR_LINK_MEDIUM_BYTES 8192u
#define FAR_LINK_LONG_BYTES   65536u
/* Bytes of larger messages that lie in the ring of a driver that can tell, at most; after so many packets that never
 * found it dry, a sixteenth less. */
#define FAR_LINK_RING_BYTES_MAX FAR_LINK_WINDOW_BYTES
#define FAR_LINK_RING_PACKETS   256u
/* Messages of one direction that are not acknowledged: what core/shard.h counts on, SHARD_RING_SLOTS. */
#define FAR_LINK_SLOTS 1024u
/* Their memory, by connection, and that of what arrived and was not taken or is not whole yet, by queue. */
#define FAR_LINK_OUT_BYTES (UINT64_C(64) << 20)
#define FAR_LINK_IN_BYTES  (UINT64_C(256) << 20)
/* Messages of a connection that are under way in fragments at once: a short one need not wait for the end of a long
 * one, nor for a grant to it. Those and as many that came before their turn are put together at once; the last place is
 * kept for the one that is due. */
#define FAR_LINK_OPEN       4u
#define FAR_LINK_ASSEMBLIES (2 * FAR_LINK_OPEN + 1)
/* Bodies of a queue's messages that its driver reads or lets be read at once, those of all connections together: a link
 * is full with a few. What finds none free goes in packets. */
#define FAR_LINK_ONESIDED 64u
/* Half of them at most are lent to others, who may have as many of ours: else both might wait for each other. */
#define FAR_LINK_EXPOSED (FAR_LINK_ONESIDED / 2)
/* What is not exposed by then, or has no memory that can be read into, goes in packets. */
#define FAR_LINK_ONESIDED_NS UINT64_C(50000000)
/* After that was waited for in vain nothing is read for so long: else each message would wait. */
#define FAR_LINK_UNREAD_NS UINT64_C(200000000)
/* Of the messages that wait at a sender, so many from the oldest on are looked at for the shortest. One packet in
 * FAR_LINK_GRANT_SHARE goes to the oldest in any case, and so does that part of what a receiver grants. */
#define FAR_LINK_LOOK        16u
#define FAR_LINK_GRANT_SHARE 16u
/* Incoming messages of a queue that are granted at once beside the oldest, each half of what the shorter one before it
 * gets: when the sender of one is slow, the next ones fill the link. */
#define FAR_LINK_GRANTED_MAX 8u
/* Bytes that a queue has granted and that have not arrived: twice what the path was seen to hold. As long as that is
 * not known, what a connection's window holds, twice. Then the second at least: the queues of a hundred receivers
 * behind one switch must fit its buffer (12 MB) with what comes unasked, and a host that looks at its queue every 30 us
 * shall still have 2 GB/s. The most is what the memory of a queue allows eight of. */
#define FAR_LINK_GRANT_BYTES     (2 * (uint64_t)FAR_LINK_WINDOW_BYTES)
#define FAR_LINK_GRANT_LEAST     (UINT64_C(64) << 10)
#define FAR_LINK_GRANT_BYTES_MAX (FAR_LINK_IN_BYTES / 8)
/* The round trip under those grants is measured anew after so long, since a path may have become longer. */
#define FAR_LINK_GRANT_RTT_NS UINT64_C(1000000000)
/* Bytes of a message that leave without a grant: of a sender that was told nothing, so that a hundred of them fit the
 * buffer of a switch's port; and all senders' together, as the receiver divides them. */
#define FAR_LINK_UNASKED     6144u
#define FAR_LINK_UNASKED_MAX FAR_LINK_WINDOW_BYTES
/* Packets of a receive ring that a sender may fill at least, however many share it: a loss among three is found by the
 * fourth. Beyond that many senders a drop is repaired. */
#define FAR_LINK_RING_LEAST 4u
/* An acknowledgement goes alone after so many messages or bytes, or so long after the first of them, a quarter
 * of the least time-out. The messages: with those that one recv() takes more, what a sender's slots may be late by. The
 * bytes: a sender of large packets never finds its window closed by what arrived. */
#define FAR_LINK_ACK_EVERY 96u
#define FAR_LINK_ACK_BYTES (FAR_LINK_WINDOW_BYTES / 4)
#define FAR_LINK_ACK_NS    (FAR_LINK_MARGIN_NS / 4)
/* A time-out is longer than the round trip by this at least: above what a host with a core for each shard takes from it
 * at a time (interrupts, some 0.3 ms), and the price of a lost packet that nothing else shows. Hosts with less show
 * gaps of 2 to 4 ms 50 times a second: those are recognised, and remembered so long, see transport/rtt.h. Longer ones
 * are rare, and cost a few needless packets each by the back-off; time-outs as long would make every loss cost as much.
 */
#define FAR_LINK_MARGIN_NS   UINT64_C(1000000)
#define FAR_LINK_PEAK_NS     UINT64_C(1000000000)
#define FAR_LINK_PEAK_NS_MAX UINT64_C(10000000)
/* The first time-out of a connection, before anything was measured, and the longest: of back-off, and of what is
 * measured, where the network is slow. */
#define FAR_LINK_RESEND_NS     UINT64_C(5000000)
#define FAR_LINK_RESEND_NS_MAX UINT64_C(100000000)
#define FAR_LINK_RTT_NS_MAX    UINT64_C(1000000000)
/* The round trip is measured so often at most: twice a reading of the clock. */
#define FAR_LINK_SAMPLE_NS UINT64_C(100000)
/* A packet counts as lost when so many that were sent after it have arrived. Doubled when that was wrong, up to half of
 * what the bitmap shows. */
#define FAR_LINK_REORDER     3u
#define FAR_LINK_REORDER_MAX 32u
/* opts.peer_limit_ns: default and bounds. Less than the gaps of a busy host would take every one of them for a death;
 * more is no limit. */
#define FAR_PEER_LIMIT_NS     UINT64_C(1000000000)
#define FAR_PEER_LIMIT_NS_MIN UINT64_C(10000000)
#define FAR_PEER_LIMIT_NS_MAX UINT64_C(3600000000000)
/* Of payload, when large packets vanish and small ones do not, and of what must be able to go on by any port: with its
 * head in a packet of 1024 bytes, the largest of RDMA devices on Ethernet of the usual MTU. */
#define FAR_LINK_SAFE_BYTES 928u
/* HELLO and WELCOME are repeated after this, half as long again each time up to the other. */
#define FAR_LINK_HELLO_NS     UINT64_C(4000000)
#define FAR_LINK_HELLO_NS_MAX UINT64_C(50000000)
/* Set-ups that were begun by others and are not decided yet; answers that keep no state beyond their sending:
 * CHALLENGE, and those to packets that name another incarnation of the port or no connection. Either is over after the
 * time, if it is not decided. */
#define FAR_LINK_HALF_OPEN_MAX 256u
#define FAR_LINK_STRANGERS_MAX 64u
#define FAR_LINK_HALF_OPEN_NS  UINT64_C(2000000000)
/* A cookie is taken for so long: some round trips, with HELLOs that are lost. */
#define FAR_LINK_COOKIE_NS UINT64_C(5000000000)
/* Refused set-ups that are remembered, so that a late HELLO of one is not taken for a new one. */
#define FAR_LINK_REFUSED_KEPT 256u
/* Paths that are tried to a queue that is chosen by a hash: of 16 queues, all miss once in 10^7. */
#define FAR_LINK_PATHS_MAX 256u
/* Ways of a connection beside its own: through the agent's other ports, an address of the peer's each. */
#define FAR_LINK_WAYS_MAX 7u
/* One that has left its own way asks after it so often; one that hears its peer by another way than it sends asks
 * whether its own still leads there, so often at most. */
#define FAR_LINK_BACK_NS UINT64_C(1000000000)
#define FAR_LINK_ASK_NS  UINT64_C(50000000)
/* Another port's queue, whose empty polls cost a system call, is polled for those in every pass so long. */
#define FAR_LINK_VISITS_EMPTY 512u
/* Peers that are told that a queue goes to sleep. Those beyond kick when they send again. */
#define FAR_LINK_TOLD_MAX 64u

/* Defaults of times, in ns. */
#define FAR_RPC_TIMEOUT_NS      UINT64_C(60000000000)
#define FAR_INIT_TIMEOUT_NS     UINT64_C(60000000000)
#define FAR_SHUTDOWN_TIMEOUT_NS UINT64_C(60000000000)

#endif
