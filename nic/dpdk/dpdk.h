/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The dpdk driver's own structures. A port is an ethdev that is ours alone; its queues send and receive UDP datagrams
 * in Ethernet frames. Frames are received, and written, in place: the body handed to the engine is part of the mbuf.
 */
#ifndef NIC_DPDK_DPDK_H
#define NIC_DPDK_DPDK_H

#include "nic/dpdk/exception_path.h"
#include "nic/dpdk/frame.h"
#include "nic/dpdk/host.h"
#include "nic/dpdk/host_pci.h"
#include "nic/dpdk/nexthop.h"
#include "nic/dpdk/queue_forward.h"
#include "nic/dpdk/xdp/xdp.h"
#include "nic/dscp.h"
#include "nic/nic.h"

#include <pthread.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <stdatomic.h>
#include <sys/un.h>

/* Descriptors of a device's ring that rxd= and txd= may ask for; the device has bounds of its own. */
#define DPDK_RING_MIN 32u
#define DPDK_RING_MAX 4096u
/* Of a VLAN, in front of the type (IEEE 802.1Q). */
#define DPDK_TAG_BYTES 4u
/* Queues of a port: one per shard. */
#define DPDK_QUEUES_MAX 16u
/* Places to send to, of a port. Each is 256 bytes. */
#define DPDK_PLACES_MAX 16384u
/* Frames that wait in a queue for the device, towards one of its transmit rings: what a burst of a shard makes, several
 * times over. Beyond it commit says -EAGAIN. */
#define DPDK_TX_MAX 256u
/* And so many more of the highest priority: acknowledgements, grants and what gives credits back wait for no other. */
#define DPDK_TX_URGENT 32u
/* Frames taken from the device at once; more than the engine takes in a pass would only wait in the cache. */
#define DPDK_BURST 32u
/* Received bodies, and those being written, begin so that what follows a header of 96 bytes in them begins a line. */
#define DPDK_BODY_ALIGN 32u
/* memif has 255 rings each way at most, and every pair of queues has one of its own. */
#define DPDK_MEMIF_QUEUES_MAX 15u
/* Packet and XDP sockets of a process that are told apart: more than its ports could have. */
#define DPDK_SOCKETS_MAX 256u
/* Where a router throws datagrams away (RFC 863). */
#define DPDK_DISCARD_PORT 9u
/* First UDP port where no kernel has a say: any would do. */
#define DPDK_UDP_PORT 7471u

/* What the address and the limits of a device depend on. */
enum dpdk_class {
	DPDK_MEMIF, /* shared memory of two processes; point to point */
	DPDK_IFACE, /* an interface of the kernel, which goes on using it: af_packet, af_xdp */
	DPDK_OWN    /* all others: the device is ours alone, and has the address that we give it */
};

/* Of neighbour=. */
#define DPDK_STATICS_MAX 8u

/** neighbour=IP/MAC: nobody is asked for it. */
struct dpdk_static {
	uint8_t v6;
	uint8_t ip[16];
	uint8_t mac[6];
};

/** nic=dpdk:DEVICE[,KEY=VALUE…], taken apart; see nic/dpdk/README.md. */
struct dpdk_args {
	char name[RTE_DEV_NAME_MAX_LEN]; /* net_memif0, 0000:03:00.0, or an ethdev that exists */
	char devargs[512];               /* the driver's own keys, as given */
	const char *bus;                 /* vdev, pci; NULL: it exists */
	enum dpdk_class class;
	int huge;          /* 1, 0; −1: not said */
	unsigned mtu;      /* 0: the device's */
	unsigned port;     /* first UDP port; 0: ours to choose */
	bool pci;          /* a card on PCI: name is its whole address */
	unsigned rxd, txd; /* descriptors of a ring; 0: not said */
	struct nic_dscp dscp;
	bool has_ip; /* ip= */
	uint8_t v6;
	uint8_t ip[16];
	unsigned prefix; /* of ip= */
	unsigned vlan;   /* frames carry its tag; 0: none */
	bool has_router; /* router= */
	uint8_t router[6];
	bool has_gw; /* gw= */
	uint8_t gw_v6;
	uint8_t gw[16];
	unsigned statics_n;
	struct dpdk_static statics[DPDK_STATICS_MAX];
	char iface[32]; /* IFACE: its name */
	/* MEMIF */
	bool server;
	bool abstract;
	unsigned id;
	unsigned bsize;
	char socket[108];
};

/** A published address, as bytes of the blob; the rest of the blob is 0. Fields in the machine's order: a cluster of
 * both orders does not exist for this project's targets, and `version` would tell. */
struct dpdk_blob {
	uint16_t version; /* DPDK_BLOB_VERSION */
	uint8_t class;    /* enum dpdk_class */
	uint8_t server;   /* MEMIF */
	uint8_t queues;
	uint8_t prefix; /* of the subnet */
	uint8_t v6;
	uint8_t mac[6];
	uint8_t zero[3];
	uint8_t ip[16];
	uint16_t port; /* UDP, of queue 0 */
	uint16_t kick; /* IFACE: UDP port of the kernel's socket that wakes queue 0; 0: none */
	uint32_t body; /* largest that is received */
	uint32_t id;   /* MEMIF */
	uint32_t zero2;
	uint64_t where; /* MEMIF: hash of what identifies the socket; else of host and network namespace */
	char name[32];  /* of the device, for messages */
};
static_assert(sizeof(struct dpdk_blob) == 88, "no holes: it is hashed and compared as bytes");
static_assert(sizeof(struct dpdk_blob) <= 208, "engine/transport adds to it");
#define DPDK_BLOB_VERSION 1

/** Frames that wait for one transmit ring. */
struct dpdk_lane {
	uint16_t ring;
	uint16_t n;
	struct rte_mbuf *m[DPDK_TX_MAX + DPDK_TX_URGENT];
};

struct dpdk_queue;

/** A place to send to. Written before it is UP, read by its queue. */
struct dpdk_place {
	struct frame_path path;
	struct dpdk_lane *lane;    /* NULL: a queue of this port */
	struct loop *loop;         /* then */
	int loop_wake;             /* likewise: the other queue's eventfd */
	_Atomic uint64_t body_max; /* sinks, by the control core, when routers say so; nothing else goes with it */
	struct dpdk_queue *queue;
	struct hop *hop; /* whose MAC address is that of the path; NULL: it does not change */
	unsigned remote_queue;
	bool attached; /* the queue's */
	uint32_t number;
	struct dpdk_place *next; /* not reported yet */
	void *user;
	struct host_kick kick;
};

/* Counters of a queue, written by its holder alone. */
struct dpdk_counters {
	_Atomic uint64_t rx_packets, tx_packets, rx_bytes, tx_bytes, foreign, malformed, missed, dropped, kicks;
};

struct dpdk_port;

struct dpdk_queue {
	struct nic_queue base;
	struct dpdk_port *port;
	uint16_t ethdev;
	uint16_t index;
	uint16_t rx_rings; /* [first, first + n · step) */
	uint16_t rx_first;
	uint16_t rx_step;
	uint16_t rx_next; /* where the next look begins */
	uint16_t body_at; /* of a body that is written, from buf_addr on */
	uint16_t lanes_n;
	uint16_t held;          /* of the last burst: given back by the next */
	uint32_t open;          /* reserved, not committed */
	uint32_t waiting;       /* in all lanes */
	bool fence;             /* no membarrier(): see dpdk_enter() */
	_Atomic uint32_t *turn; /* the port's ring_taken, where all queues use the device's only ring; else NULL */
	enum frame_sum sum;     /* on transmit */
	uint64_t tx_flags;      /* of mbufs */
	uint64_t tx_offload;    /* likewise: lengths of headers */
	struct rte_mempool *pool;
	struct frame_addr me; /* port of queue 0 */
	unsigned queues_n;
	_Atomic uint32_t busy;   /* inside a burst; partner: the port's `shut`, in dpdk_shut() */
	struct dpdk_lane *lanes; /* [lanes_n] */
	struct rte_mbuf *rx[DPDK_BURST];
	_Atomic uint32_t loops_n;                    /* of the next: how far to look */
	struct loop *_Atomic loops[DPDK_QUEUES_MAX]; /* by the queue that sends */
	struct dpdk_counters counters;
	uint32_t tag;        /* of the VLAN, as it is on the wire, in the machine's order of bytes; 0: none */
	struct aside *aside; /* for neighbours; NULL: there are none */
	bool answers;        /* their questions; the kernel does where the address is its own */
	/* What came by this queue's rings for another queue of the port is put into the loop to there. */
	bool hands_over;
	/* Sleeps, or is about to look for the last time. Partner: fences in dpdk_arm() and rouse(). */
	_Atomic uint32_t asleep;
	struct host_wake wake;
	int sender; /* a socket for kicks; −1: none */
};

struct dpdk_memif;

/* Whether queues may use the device. */
enum dpdk_shut {
	DPDK_OPEN,
	DPDK_PAUSED, /* in a moment again: frames wait */
	DPDK_DOWN    /* there is nobody on the other side: frames are dropped */
};

struct dpdk_port {
	struct nic_port base;
	_Atomic uint32_t shut; /* enum dpdk_shut */
	struct dpdk_args args;
	uint16_t ethdev;
	uint64_t owner; /* of the device, while it is ours; RTE_ETH_DEV_NO_OWNER: it is not */
	bool probed;    /* the device is ours to remove */
	bool started;   /* configured, so to be closed */
	bool udp_sums;  /* the device computes them on transmit */
	unsigned queues_n;
	struct dpdk_queue *queues[DPDK_QUEUES_MAX];
	struct rte_mempool *pools[DPDK_QUEUES_MAX];
	struct rte_device *device;
	struct rte_eth_dev_info info;
	enum nic_steering steering;
	struct dpdk_blob blob;
	uint32_t rx_ring; /* packets that a receive ring of the device holds */
	uint64_t body_max;
	/* The device has fewer rings than there are shards: all use its first, by turns. Who finds it taken does not
	 * wait: frames to be sent stay until the next look, and who receives hands over what is others'. */
	bool shares_ring;
	bool hands_over;                         /* what comes by a queue's ring may be another's */
	struct rte_flow *flows[DPDK_QUEUES_MAX]; /* rules, as far as there are any */
	char flow_text[160];                     /* of them, for `farcall info`; "": they would mean nothing */
	_Atomic uint32_t ring_taken;             /* partner: itself, in dpdk_enter() and dpdk_leave() */
	struct host_pci card;                    /* a card on PCI */
	int claim;                               /* what keeps it from other processes; −1: nothing */
	unsigned head_len;                       /* of a frame's headers */
	unsigned rx_shift; /* bytes by which received frames are moved so that bodies are aligned */
	struct dpdk_memif *memif;
	struct host_iface iface;         /* IFACE */
	struct host_ip ip;               /* IFACE: the chosen one */
	struct host_socks holder;        /* IFACE: our UDP ports, at the kernel */
	struct host_socks kicks;         /* IFACE */
	uint32_t xdp_program;            /* net_af_xdp: its number; 0: not known */
	unsigned xdp_rings;              /* net_af_xdp: queues of the interface, all of which are looked at */
	int xdp_object, xdp_link;        /* net_af_xdp; −1: none */
	int sockets[XDP_QUEUES_MAX];     /* IFACE: DPDK's own, of the rings, as far as they could be found */
	uint64_t inodes[XDP_QUEUES_MAX]; /* of them: what the descriptors are of */
	unsigned sockets_n;
	int others[DPDK_SOCKETS_MAX]; /* of the same kind, that were there before */
	unsigned others_n;
	int fd;                  /* epoll */
	int event_fd;            /* there are places to report */
	struct hops hops;        /* routers */
	uint64_t hops_sent;      /* packets of all queues when hops were looked at last */
	struct host_kick hop_to; /* IFACE: where the kernel is made to look for the router */
	int hop_socket;          /* IFACE: for that; −1: none */
	struct dpdk_place *places[DPDK_PLACES_MAX];
	uint32_t places_next;                     /* where the search for a free number begins */
	struct dpdk_place *new_first, **new_last; /* not reported yet */
};

/* ---- eal.c ---- */

/** Starts EAL, once per process. `huge` as dpdk_args.huge; `physical`: devices must be told physical addresses. Any
 * thread; may take a second. */
int dpdk_eal_start(int huge, bool physical, struct nic_err *err);
/** Whether EAL has huge pages. After dpdk_eal_start(). */
bool dpdk_eal_huge(void);
/** DPDK's messages from here on to dpdk_log_end() belong to one operation; one at a time. */
void dpdk_log_begin(void);
/** What DPDK said about why it failed, without line ends; "" when it said nothing. Valid until the next begin. */
const char *dpdk_log_end(void);
/** DPDK's messages are of no interest until it is called with false. By who has begun, or nobody. */
void dpdk_log_quiet(bool quiet);

/* ---- pool.c ---- */

/**
 * `n` mbufs for frames of `room` bytes, of a pool that only one thread at a time may use: the one that holds the queue.
 * Last in, first out, so the mbufs in use stay in the cache; no atomics. With `shared` threads may share it. Received
 * frames begin at `shift` bytes beyond the usual headroom. NULL: no memory.
 */
struct rte_mempool *dpdk_pool_create(const char *name, unsigned n, unsigned room, unsigned shift, bool shared,
				     bool for_dma);

/** Of all its mbufs. */
uint64_t dpdk_pool_bytes(const struct rte_mempool *mp);

/* ---- args.c ---- */

/** Is it net_af_xdp: packets in the kernel's copy of our memory, and a filter on the interface. */
static inline bool dpdk_is_xdp(const struct dpdk_args *args)
{
	return strncmp(args->name, "net_af_xdp", 10) == 0;
}

int dpdk_args_parse(const char *text, struct dpdk_args *out, struct nic_err *err);

/* ---- device.c ---- */

/** Finds or makes the device, and sets its queues up. On failure nothing is left. */
int dpdk_device_open(struct dpdk_port *p, struct nic_err *err);
int dpdk_device_start(struct dpdk_port *p, struct nic_err *err);
/** Stops it, and takes it away if it was made here. */
void dpdk_device_close(struct dpdk_port *p);
/** Frees the packets' memory: nobody may touch the queues any more. */
void dpdk_device_free(struct dpdk_port *p);

/* ---- flow.c ---- */

/** The device runs: rules for its queues, if it has them. Says in flow_text what came of it. */
void dpdk_flow_open(struct dpdk_port *p);
/** Before the device is stopped; may be called twice. */
void dpdk_flow_close(struct dpdk_port *p);

/* ---- iface.c: what a port needs of the kernel whose interface it shares ---- */

int dpdk_iface_probe(const struct dpdk_args *args, const struct nic_config *config, struct nic_err *err);
int dpdk_iface_open(struct dpdk_port *p, const struct nic_config *config, struct nic_err *err);
/** MTU of IP packets that the device can send and receive. */
uint16_t dpdk_iface_mtu(const struct dpdk_port *p);
/** Bytes that the driver needs in an mbuf behind its headroom. */
unsigned dpdk_iface_room(const struct dpdk_port *p);
/** May `bytes` be locked, that each of the rings' shares of net_af_xdp needs; -ENOMEM. */
int dpdk_iface_may_lock(const struct dpdk_port *p, uint64_t bytes, struct nic_err *err);
/**
 * After dpdk_device_open() has failed: whether it may succeed now, since the kernel lets go of the queues of an
 * interface a moment after the sockets were closed. Waits 20 ms, and takes away what is left of the device. False: it
 * is no such failure, or it was one 100 times.
 */
bool dpdk_iface_try_again(struct dpdk_port *p, unsigned tries, const struct nic_err *err);
/** Is a look at an empty queue a system call. */
bool dpdk_iface_poll_costs(const struct dpdk_port *p);
/** When the device's queues are set up: nothing of it survives the process from here on. */
int dpdk_iface_keep(struct dpdk_port *p, struct nic_err *err);
/**
 * Has the queues wake when something arrives at their rings, where that may be for another queue: who sends only knows
 * whether that one sleeps, so no kick would come. When all queues are open.
 */
int dpdk_iface_watch(struct dpdk_port *p, struct nic_err *err);
/** Before the device is closed. */
void dpdk_iface_leave(struct dpdk_port *p);
void dpdk_iface_close(struct dpdk_port *p);

/* ---- address.c ---- */

void dpdk_address_set(struct dpdk_port *p);
int dpdk_reach(const struct nic_port *port, const struct nic_addr *addr, struct nic_err *err);
void dpdk_address_text(const struct nic_addr *addr, char *out, size_t cap);
/** The blob, checked; -EINVAL. */
int dpdk_blob_read(const struct nic_addr *addr, struct dpdk_blob *out, struct nic_err *err);
struct frame_addr dpdk_blob_frame_addr(const struct dpdk_blob *blob);
/** Whether `b` is in the subnet of the first `prefix` bits of `a`. */
bool dpdk_same_subnet(bool a_v6, const uint8_t *a, unsigned prefix, bool b_v6, const uint8_t *b);
/** Whether frames to it need no router. */
bool dpdk_is_near(const struct dpdk_port *p, const struct dpdk_blob *to);

/* ---- card.c: network cards on PCI ---- */

/** Whether the card could be had, without changing anything; a remark on it in `err` when it could. */
int dpdk_card_probe(const struct dpdk_args *args, struct nic_err *err);
/** Looks at the card and claims it for this process. dpdk_card_close() undoes it. */
int dpdk_card_open(struct dpdk_port *p, struct nic_err *err);
void dpdk_card_close(struct dpdk_port *p);
/** DPDK could not open the device: what to do, where that can be told; else "". */
const char *dpdk_card_advice(const struct dpdk_port *p);
/** Remarks on a link that is down, of a card or an interface of the kernel's, in place of what `err` has. */
void dpdk_link_remark(const struct dpdk_port *p, struct nic_err *err);
/** Does it reach memory by physical addresses. */
bool dpdk_card_is_physical(const struct dpdk_port *p);

/* ---- neighbour.c ---- */

/** When all queues are open: from now on neighbours are answered. */
int dpdk_neighbour_open(struct dpdk_port *p, struct nic_err *err);
/** Has the device, which runs, take what neighbours send to groups. */
int dpdk_neighbour_listen(struct dpdk_port *p, struct nic_err *err);
/** The queue's holder: a frame that is not for the engine. */
void dpdk_neighbour_note(struct dpdk_queue *q, const uint8_t *frame, unsigned len);
/** The control core: answers, and asks for routers; when it wants to be called again. */
uint64_t dpdk_neighbour_step(struct dpdk_port *p, uint64_t now);
/**
 * Where frames to `to` go: its own MAC address or a router's in `mac`, with *hop NULL; or a router whose address is
 * asked for, in *hop, which dpdk_neighbour_leave() gives back. -EHOSTUNREACH, -ENETUNREACH, -ENOSPC.
 */
int dpdk_neighbour_way(struct dpdk_port *p, const struct dpdk_blob *to, uint8_t mac[6], struct hop **hop,
		       struct nic_err *err);
/** The same without taking anything: is there a way. With 0 a router that does not answer is remarked upon. */
int dpdk_neighbour_remark(const struct dpdk_port *p, const struct dpdk_blob *to, struct nic_err *err);
/** -EHOSTUNREACH with what is wrong with a router that is silent. */
int dpdk_neighbour_silent(const struct dpdk_port *p, const struct hop *h, struct nic_err *err);
/** The queue's holder: puts the answers into the lane. */
void dpdk_neighbour_send(struct dpdk_queue *q);

/** Puts the tag between the MAC addresses and the rest of a frame, or takes it out. There is room in front. */
static inline uint8_t *dpdk_tag_put(uint8_t *frame, uint32_t tag)
{
	memmove(frame - DPDK_TAG_BYTES, frame, 12);
	memcpy(frame - DPDK_TAG_BYTES + 12, &tag, DPDK_TAG_BYTES);
	return frame - DPDK_TAG_BYTES;
}
static inline uint8_t *dpdk_tag_take(uint8_t *frame)
{
	memmove(frame + DPDK_TAG_BYTES, frame, 12);
	return frame + DPDK_TAG_BYTES;
}

/* ---- memif.c ---- */

/** Before the device is made: where its sockets are. dpdk_memif_close() undoes it. */
int dpdk_memif_prepare(struct dpdk_port *p, const struct nic_config *config, struct nic_err *err);
/** Starts the device, which has its other side later, or never. */
int dpdk_memif_open(struct dpdk_port *p, struct nic_err *err);
/** Closes the device too. */
void dpdk_memif_close(struct dpdk_port *p);
uint64_t dpdk_memif_step(struct dpdk_port *p, uint64_t now);
/* ---- memif_kick.c ---- */

/** The address of the socket, or of one beside it; 0: its path would be too long. */
socklen_t dpdk_memif_address(const struct dpdk_args *a, const char *suffix, struct sockaddr_un *out);
/** A socket that receives the kicks of queue `index`: the descriptor or -errno. */
int dpdk_memif_kick_open(struct dpdk_port *p, unsigned index, struct nic_err *err);
void dpdk_memif_kick_unlink(const struct dpdk_port *p, unsigned index);
/** Where the server's, or the client's, queue `index` receives kicks; len 0: its path would be too long. */
void dpdk_memif_kick_path(const struct dpdk_args *a, bool server, unsigned index, struct host_kick *out);
/** Where the other side receives those of its queue `index`. */
void dpdk_memif_kick(struct dpdk_port *p, unsigned index, struct host_kick *out);

/* ---- queue.c, queue_open.c ---- */

extern const struct nic_queue_ops dpdk_queue_ops;
/** Of devices whose sleepers nobody can kick: they look. */
extern const struct nic_queue_ops dpdk_looking_ops;
int dpdk_queue_open(struct dpdk_port *p, unsigned index, struct nic_err *err);
void dpdk_queue_close(struct dpdk_queue *q);
/** Has each queue give the others what came by its rings, but is theirs. When all queues are open. */
int dpdk_queues_hand_over(struct dpdk_port *p, struct nic_err *err);
/** The ring from queue `from` of the same port to this one; made when there is none. NULL: no memory. */
struct loop *dpdk_queue_loop(struct dpdk_queue *q, unsigned from);
/** Keeps the port's queues out of the device, and waits until none is in it, 1 s at most: -ETIMEDOUT, when a thread in
 * a burst gets no CPU. */
int dpdk_shut(struct dpdk_port *p, enum dpdk_shut how);

/* ---- port.c ---- */

extern const struct nic_port_ops dpdk_port_ops;
int dpdk_error(struct nic_err *err, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
uint64_t dpdk_now(void);

/**
 * A queue is about to use the device, unless the port is shut, when the device's memory may be taken away at any
 * moment, or another queue uses the ring that all share. The store of `busy` must be seen before the load of `shut`:
 * dpdk_shut() makes it so with membarrier(), so that this side needs no fence; `fence` is set where the kernel has
 * none.
 */
static inline bool dpdk_enter(struct dpdk_queue *q)
{
	atomic_store_explicit(&q->busy, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (__builtin_expect(q->fence, 0))
		atomic_thread_fence(memory_order_seq_cst);
	if (__builtin_expect(atomic_load_explicit(&q->port->shut, memory_order_acquire), 0)) {
		atomic_store_explicit(&q->busy, 0, memory_order_release);
		return false;
	}
	if (__builtin_expect(q->turn != NULL, 0) && atomic_exchange_explicit(q->turn, 1, memory_order_acquire)) {
		atomic_store_explicit(&q->busy, 0, memory_order_release);
		return false;
	}
	return true;
}

static inline void dpdk_leave(struct dpdk_queue *q)
{
	if (__builtin_expect(q->turn != NULL, 0))
		atomic_store_explicit(q->turn, 0, memory_order_release);
	atomic_store_explicit(&q->busy, 0, memory_order_release);
}

static inline void dpdk_count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

#endif
