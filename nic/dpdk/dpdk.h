/* SPDX-License-Identifier: BSD-3-Clause */
/** Declarations shared by the files of the dpdk driver. A port is one ethdev that no other port uses; its queues carry
 * UDP datagrams in Ethernet frames. Bodies are received and written in place, inside the mbuf. Each field of a queue
 * belongs to its poller (the thread that holds the queue's shard) and each field of a port to the control thread,
 * unless the comment names another thread. */
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

/* Bounds of rxd= and txd=: descriptors of one device ring. The device may have narrower bounds. */
#define DPDK_RING_MIN 32u
#define DPDK_RING_MAX 4096u
/* Bytes of a VLAN tag, in front of the EtherType (IEEE 802.1Q). */
#define DPDK_TAG_BYTES 4u
/* Queues of a port, one per shard. */
#define DPDK_QUEUES_MAX 16u
/* Destinations of a port; each takes 256 bytes. */
#define DPDK_DESTS_MAX 16384u
/* Frames that may wait for one transmit ring: several bursts of a shard. At this limit tx_commit() returns -EAGAIN. */
#define DPDK_TX_MAX 256u
/* Additional frames of priority NIC_PRIORITY_MAX beyond DPDK_TX_MAX, so that acknowledgements, grants and credit
 * returns never wait behind data. */
#define DPDK_TX_URGENT 32u
/* Bytes that frames refer to after which they leave at once: memif publishes a burst when all of it is copied, and the
 * peer can copy one meanwhile. */
#define DPDK_REFERRED_MAX (32u << 10)
/* Frames per receive burst. The engine takes no more in one pass; a larger burst would only wait in the cache. */
#define DPDK_BURST 32u
/* Received and written bodies begin at 32 modulo 64, so that the data behind a 96-byte header begins on a cache line.
 */
#define DPDK_BODY_ALIGN 32u
/* memif has at most 255 rings per direction, and each pair of queues needs one: 15 x 15. */
#define DPDK_MEMIF_QUEUES_MAX 15u
/* Packet and XDP sockets of the process that list_sockets() can hold; more than the ports of a process open. */
#define DPDK_SOCKETS_MAX 256u
/* The discard service (RFC 863): a router drops datagrams to this port. */
#define DPDK_DISCARD_PORT 9u
/* First UDP port of a device whose address the kernel does not own; arbitrary. */
#define DPDK_UDP_PORT 7471u

/* Device class: decides the source of the address and the limits. */
enum dpdk_class {
	DPDK_MEMIF, /* Shared memory of two processes; point to point. */
	DPDK_IFACE, /* af_packet, af_xdp: an interface that the kernel keeps using. */
	DPDK_OWN    /* All other devices: used by this port alone; the driver assigns the address. */
};

/* neighbour= entries of a port. */
#define DPDK_STATIC_NEIGHBOURS_MAX 8u

/** A neighbour=IP/MAC entry: this address is never solicited. */
struct dpdk_static_neighbour {
	uint8_t v6;     /* 0: IPv4, in the first 4 bytes of `ip` */
	uint8_t ip[16]; /* network order */
	uint8_t mac[6];
};

/** The parsed form of nic=dpdk:DEVICE[,KEY=VALUE…]; see nic/dpdk/README.md. */
struct dpdk_args {
	char name[RTE_DEV_NAME_MAX_LEN]; /* net_memif0, 0000:03:00.0, or the name of an existing ethdev */
	char devargs[512];               /* keys of the device itself, as the user wrote them */
	const char *bus;                 /* "vdev" or "pci"; NULL: the ethdev exists already */
	enum dpdk_class class;
	int huge;          /* huge=: 1, 0; −1: not given */
	unsigned mtu;      /* mtu=, bytes of an IP packet; 0: the device's MTU */
	unsigned port;     /* port=, first UDP port; 0: chosen by the driver */
	bool pci;          /* a PCI device; name is then the full PCI address */
	bool beyond_host;  /* the device may lead to other hosts */
	unsigned rxd, txd; /* rxd=, txd=: descriptors of a ring; 0: not given */
	struct nic_dscp dscp;
	bool has_ip; /* ip= was given */
	uint8_t v6;
	uint8_t ip[16];
	unsigned prefix; /* prefix length of ip=, bits */
	unsigned vlan;   /* vlan=: frames carry this tag; 0: untagged */
	bool has_router; /* router= was given */
	uint8_t router[6];
	bool has_gw; /* gw= was given */
	uint8_t gw_v6;
	uint8_t gw[16];
	unsigned static_neighbours_n;
	struct dpdk_static_neighbour static_neighbours[DPDK_STATIC_NEIGHBOURS_MAX];
	char iface[32]; /* DPDK_IFACE: name of the kernel's interface */
	/* Only DPDK_MEMIF: */
	bool server;
	bool abstract;
	unsigned id;
	unsigned bsize;
	char socket[108];
};

/** A published address, the bytes of nic_addr.blob; the rest of the blob is 0. Fields are in host byte order: clusters
 * of mixed byte order are not supported, and `version` detects them. */
struct dpdk_blob {
	uint16_t version; /* DPDK_BLOB_VERSION */
	uint8_t class;    /* enum dpdk_class */
	uint8_t server;   /* DPDK_MEMIF: role=server */
	uint8_t queues;
	uint8_t prefix; /* prefix length of the subnet, bits */
	uint8_t v6;
	uint8_t mac[6];
	uint8_t zero[3];
	uint8_t ip[16];
	uint16_t port; /* UDP port of queue 0 */
	uint16_t kick; /* DPDK_IFACE: UDP port of the kernel socket that wakes queue 0; 0: none */
	uint32_t body; /* largest body that the port receives, bytes */
	uint32_t id;   /* DPDK_MEMIF: id= */
	uint32_t zero2;
	uint64_t where; /* DPDK_MEMIF: hash that identifies the socket; otherwise hash of host and network namespace */
	char name[32];  /* device name, for messages */
};
static_assert(sizeof(struct dpdk_blob) == 88, "no holes: it is hashed and compared as bytes");
static_assert(sizeof(struct dpdk_blob) <= 208, "engine/transport adds to it");
#define DPDK_BLOB_VERSION 1

/** Frames that wait for one transmit ring of the device. */
struct dpdk_tx_queue {
	uint16_t ring; /* of the device */
	uint16_t n;    /* frames in m[0, n); owned until the device takes them */
	struct rte_mbuf *m[DPDK_TX_MAX + DPDK_TX_URGENT];
};

struct dpdk_queue;

/** A destination. The control thread writes it before UP is reported; afterwards the queue's poller reads it. */
struct dpdk_dest {
	struct frame_path path;
	struct dpdk_tx_queue *tx_queue;    /* NULL: the destination is a queue of this port */
	struct forward_ring *forward_ring; /* used if `tx_queue` is NULL */
	int forward_wake;                  /* used if `tx_queue` is NULL: eventfd of the destination queue */
	_Atomic uint64_t body_max; /* largest body, bytes; only the control thread lowers it, on an ICMP message.
				      Relaxed: no other data depends on it */
	struct dpdk_queue *queue;
	struct nexthop *nexthop; /* the next hop whose MAC address path carries; NULL: the MAC address is constant */
	unsigned remote_queue;
	bool attached; /* written by the poller */
	uint32_t number;
	struct dpdk_dest *next; /* next destination whose UP or FAILED is not reported yet */
	void *user;
	struct host_kick kick;
};

/* Counters of a queue; written by its poller, read by any thread. */
struct dpdk_counters {
	_Atomic uint64_t rx_packets, tx_packets, rx_bytes, tx_bytes, unexpected, malformed, missed, dropped, kicks;
};

struct dpdk_port;

struct dpdk_queue {
	struct nic_queue base;
	struct dpdk_port *port;
	uint16_t ethdev;
	uint16_t index;
	uint16_t rx_rings; /* rings to poll: rx_first + i * rx_step, i in [0, rx_rings) */
	uint16_t rx_first;
	uint16_t rx_step;
	uint16_t rx_next; /* index i of the ring that the next receive polls first */
	uint16_t body_at; /* offset of a written body from buf_addr, bytes */
	uint16_t tx_queues_n;
	uint16_t held;          /* mbufs of the last burst in rx[]; the next recv() frees them */
	uint32_t open;          /* packets reserved and neither committed nor cancelled */
	uint32_t waiting;       /* frames in all transmit queues */
	bool fence;             /* the kernel has no membarrier(): dpdk_enter() needs a fence */
	_Atomic uint32_t *turn; /* the port's ring_taken if all queues share the device's only ring; else NULL */
	enum frame_sum sum;     /* checksum mode of transmitted packets */
	uint64_t tx_flags;      /* ol_flags of transmitted mbufs */
	uint64_t tx_offload;    /* tx_offload of transmitted mbufs: header lengths */
	struct rte_mempool *pool;
	struct rte_mempool *tails;  /* mbufs for bytes that lie elsewhere; memif only */
	uint32_t referred;          /* bytes that frames in the transmit queues refer to */
	struct dpdk_places *places; /* receive placement; memif only, NULL: none */
	struct frame_addr me;       /* own address, with the port of queue 0 */
	unsigned queues_n;
	_Atomic uint32_t busy;           /* 1 inside a burst; partner: the port's `shut`, in dpdk_shut() */
	struct dpdk_tx_queue *tx_queues; /* [tx_queues_n] */
	struct rte_mbuf *rx[DPDK_BURST];
	_Atomic uint32_t forward_rings_n; /* entries of loops[] to scan; written by the control thread */
	struct forward_ring *_Atomic forward_rings[DPDK_QUEUES_MAX]; /* by the index of the sending queue; NULL: none */
	struct dpdk_counters counters;
	uint64_t raw_sum;                      /* of the words of raw packets, so that they are read */
	uint32_t tag;                          /* VLAN tag as the 4 wire bytes, in host order; 0: untagged */
	struct exception_path *exception_path; /* ARP, ND and ICMP frames to and from the control thread; NULL: none */
	bool responds; /* the driver answers ARP, ND and pings; false where the kernel owns the address */
	/* Packets received by this queue's rings for another queue of the port are copied into the forward ring to that
	 * queue. */
	bool forwards_rx;
	/* 1 from arm() to disarm(). Partner: the fences in dpdk_arm() and rouse(). */
	_Atomic uint32_t asleep;
	struct host_wake wake;
	int sender; /* socket that sends kicks; −1: none */
};

struct dpdk_memif;

/* Whether queues may use the device. The control thread writes it. */
enum dpdk_shut {
	DPDK_OPEN,
	DPDK_PAUSED, /* for a moment: committed frames wait */
	DPDK_DOWN    /* no peer: committed frames are dropped */
};

struct dpdk_port {
	struct nic_port base;
	_Atomic uint32_t shut; /* enum dpdk_shut */
	struct dpdk_args args;
	uint16_t ethdev;
	uint64_t owner; /* DPDK owner id while this port owns the ethdev; else RTE_ETH_DEV_NO_OWNER */
	bool probed;    /* this port created the ethdev and removes it */
	bool started;   /* the ethdev is configured and must be closed */
	bool udp_sums;  /* the device computes UDP checksums on transmit */
	unsigned queues_n;
	struct dpdk_queue *queues[DPDK_QUEUES_MAX];
	struct rte_mempool *pools[DPDK_QUEUES_MAX];
	struct rte_device *device;
	struct rte_eth_dev_info info;
	enum nic_steering steering;
	struct dpdk_blob blob;
	uint32_t rx_ring; /* descriptors of a device receive ring */
	uint64_t body_max;
	/* The device has fewer rings than the port has shards: all queues take turns at ring 0. A queue that finds it
	 * taken does not wait; its frames stay until its next pass, and the receiving queue forwards packets of other
	 * queues. */
	bool shares_ring;
	bool forwards_rx;                        /* a receive ring may deliver packets of another queue */
	struct rte_flow *flows[DPDK_QUEUES_MAX]; /* by queue; NULL: no rule */
	char flow_text[160];                     /* result of the flow rules for `farcall info`; "": not applicable */
	_Atomic uint32_t ring_taken;             /* 1: taken; partner: itself, in dpdk_enter() and dpdk_leave() */
	struct host_pci card;                    /* valid for PCI devices */
	int claim;         /* descriptor that locks the card against other processes; −1: none */
	unsigned head_len; /* bytes of the Ethernet, IP and UDP headers */
	unsigned rx_shift; /* bytes added to the headroom of received frames, to align bodies */
	struct dpdk_memif *memif;
	struct host_iface iface;            /* DPDK_IFACE */
	struct host_ip ip;                  /* DPDK_IFACE: the address in use */
	struct host_sockets reserved_ports; /* DPDK_IFACE: kernel sockets that reserve our UDP ports */
	struct host_sockets kicks;          /* DPDK_IFACE: kernel sockets that receive kicks, until queues take them */
	uint32_t xdp_program;               /* net_af_xdp: program id; 0: not known */
	unsigned xdp_rings;                 /* net_af_xdp: queues of the interface; all are polled */
	int xdp_object, xdp_link;           /* net_af_xdp: descriptors; −1: none */
	int sockets[XDP_QUEUES_MAX]; /* DPDK_IFACE: sockets of the rings that DPDK opened, as far as they were found */
	uint64_t inodes[XDP_QUEUES_MAX]; /* their inodes, to detect a reused descriptor */
	unsigned sockets_n;
	int earlier_sockets[DPDK_SOCKETS_MAX]; /* sockets of the same kind that existed before the device was opened */
	unsigned earlier_sockets_n;
	int fd;                            /* epoll */
	int event_fd;                      /* eventfd: step() has work */
	struct nexthops nexthops;          /* routers in use */
	uint64_t nexthops_sent;            /* packets sent by all queues at the last solicitation pass */
	struct host_kick nexthop_probe_to; /* DPDK_IFACE: a datagram to it makes the kernel resolve the router */
	int nexthop_probe_socket;          /* DPDK_IFACE: the socket for that; −1: none */
	struct dpdk_dest *dests[DPDK_DESTS_MAX];
	uint32_t dests_next;                             /* index where the search for a free entry begins */
	struct dpdk_dest *pending_first, **pending_last; /* destinations whose UP or FAILED is not reported yet */
};

/* ---- eal.c: any thread ---- */

/** Starts EAL, once per process. `huge` as in dpdk_args.huge; `physical`: devices use physical addresses. May take a
 * second. */
int dpdk_eal_start(int huge, bool physical, struct nic_err *err);
/** True if EAL uses huge pages. Call after dpdk_eal_start(). */
bool dpdk_eal_huge(void);
/** Begins to capture DPDK's log messages for one operation; ended by dpdk_log_end(). One operation at a time. */
void dpdk_log_begin(void);
/** Ends the capture. Returns the captured error messages joined, without line ends; "" if there were none. Valid until
 * the next dpdk_log_begin(). */
const char *dpdk_log_end(void);
/** Discards DPDK's messages until called with false. Only inside a capture, or outside all captures. */
void dpdk_log_quiet(bool quiet);

/* ---- pool.c: control thread ---- */

/** Creates a pool of `n` mbufs for frames of `room` bytes. Without `shared` only one thread at a time may use it: the
 * queue's poller. It is a stack (last in, first out, so mbufs stay warm in the cache) without atomics. `shared`:
 * several threads may use it at once. Received frames begin `shift` bytes behind the usual headroom. NULL: out of
 * memory. */
struct rte_mempool *dpdk_pool_create(const char *name, unsigned n, unsigned room, unsigned shift, bool shared,
				     bool for_dma);

/** Bytes of all mbufs of the pool. */
uint64_t dpdk_pool_bytes(const struct rte_mempool *mp);
/** True for the stack of dpdk_pool_create(); DPDK may have no room for another kind of pool. */
bool dpdk_pool_is_stack(const struct rte_mempool *mp);
typedef void dpdk_pool_taken_fn(void *ctx, struct rte_mbuf *m);
/** Poller: calls `taken` for each mbuf that is taken out of a stack by itself, not several at once. NULL: no more. */
void dpdk_pool_watch(struct rte_mempool *mp, dpdk_pool_taken_fn *taken, void *ctx);

/* ---- args.c: control thread ---- */

/** True for net_af_xdp: packets are in memory that the kernel shares, and the interface has an XDP filter. */
static inline bool dpdk_is_xdp(const struct dpdk_args *args)
{
	return strncmp(args->name, "net_af_xdp", 10) == 0;
}

int dpdk_args_parse(const char *text, struct dpdk_args *out, struct nic_err *err);

/* ---- device.c: control thread ---- */

/** Finds or creates the ethdev and sets up its rings. dpdk_device_close() and dpdk_device_free() follow, after a
 * failure too. */
int dpdk_device_open(struct dpdk_port *p, struct nic_err *err);
int dpdk_device_start(struct dpdk_port *p, struct nic_err *err);
/** Stops the ethdev, and removes it if this port created it. */
void dpdk_device_close(struct dpdk_port *p);
/** Frees the mbuf pools. No poller may use the queues any more. */
void dpdk_device_free(struct dpdk_port *p);

/* ---- flow.c: control thread ---- */

/** Installs flow rules on the running device, if its driver supports them. Writes the result to flow_text. */
void dpdk_flow_open(struct dpdk_port *p);
/** Removes the flow rules. Call before the device is stopped; may be called twice. */
void dpdk_flow_close(struct dpdk_port *p);

/* ---- iface.c: control thread. Ports on an interface that the kernel uses too ---- */

int dpdk_iface_probe(const struct dpdk_args *args, const struct nic_config *config, struct nic_err *err);
int dpdk_iface_open(struct dpdk_port *p, const struct nic_config *config, struct nic_err *err);
/** Bytes of the largest IP packet that the device can send and receive. */
uint16_t dpdk_iface_mtu(const struct dpdk_port *p);
/** Bytes that the DPDK driver needs in an mbuf behind the headroom. */
unsigned dpdk_iface_room(const struct dpdk_port *p);
/** -ENOMEM if the process may not lock `bytes` bytes for each ring of net_af_xdp. */
int dpdk_iface_may_lock(const struct dpdk_port *p, uint64_t bytes, struct nic_err *err);
/** Call after dpdk_device_open() failed: true if another try may succeed, because the kernel releases the queues of an
 * interface some time after their sockets were closed. Waits 20 ms and removes what is left of the device. False:
 * another kind of failure, or the 100th try. */
bool dpdk_iface_retry(struct dpdk_port *p, unsigned tries, const struct nic_err *err);
/** True if polling an empty queue makes a system call. */
bool dpdk_iface_poll_costs(const struct dpdk_port *p);
/** Attaches the XDP filter by a link of this process, so that it ends with the process. Call when the device's rings
 * are set up. */
int dpdk_iface_attach_link(struct dpdk_port *p, struct nic_err *err);
/** Wakes each queue when its rings receive something. Needed where a ring may deliver packets of another queue: the
 * sender kicks only the queue that the packet is for. Call when all queues are open. */
int dpdk_iface_wake_on_sockets(struct dpdk_port *p, struct nic_err *err);
/** Detaches the XDP filter. Call before the device is closed. */
void dpdk_iface_detach_link(struct dpdk_port *p);
void dpdk_iface_close(struct dpdk_port *p);

/* ---- address.c: control thread; dpdk_address_text(), dpdk_blob_read(): any thread ---- */

void dpdk_address_set(struct dpdk_port *p);
int dpdk_reach(const struct nic_port *port, const struct nic_addr *addr, struct nic_err *err);
void dpdk_address_text(const struct nic_addr *addr, char *out, size_t cap);
/** Copies the blob out and checks it; -EINVAL: malformed. */
int dpdk_blob_read(const struct nic_addr *addr, struct dpdk_blob *out, struct nic_err *err);
struct frame_addr dpdk_blob_frame_addr(const struct dpdk_blob *blob);
/** True if `a` and `b` agree in the first `prefix` bits. */
bool dpdk_same_subnet(bool a_v6, const uint8_t *a, unsigned prefix, bool b_v6, const uint8_t *b);
/** True if frames to `to` need no router. */
bool dpdk_is_on_link(const struct dpdk_port *p, const struct dpdk_blob *to);

/* ---- card.c: control thread. Network cards on PCI ---- */

/** 0 if this process could use the card, with a remark in `err`; else -errno with the reason. Changes nothing. */
int dpdk_card_probe(const struct dpdk_args *args, struct nic_err *err);
/** Reads the card and locks it for this process until dpdk_card_close(). */
int dpdk_card_open(struct dpdk_port *p, struct nic_err *err);
void dpdk_card_close(struct dpdk_port *p);
/** The remedy after DPDK failed to open the device, as the end of a message; "": none known. */
const char *dpdk_card_advice(const struct dpdk_port *p);
/** Replaces `err` by a remark if the link of the card or of the kernel's interface is down. */
void dpdk_link_remark(const struct dpdk_port *p, struct nic_err *err);
/** True if the card addresses memory physically. */
bool dpdk_card_is_physical(const struct dpdk_port *p);

/* ---- neighbour.c ---- */

/** Control thread: creates the exception paths. Call when all queues are open. */
int dpdk_neighbour_open(struct dpdk_port *p, struct nic_err *err);
/** Control thread: joins the multicast groups of neighbour discovery on the running device. */
int dpdk_neighbour_join_groups(struct dpdk_port *p, struct nic_err *err);
/** Poller: passes a frame that is not a packet of ours to the control thread, if it is ARP, ND or ICMP for us. */
void dpdk_neighbour_rx(struct dpdk_queue *q, const uint8_t *frame, unsigned len);
/** Control thread: processes frames, replies, and solicits routers. Returns the time of the next call. */
uint64_t dpdk_neighbour_step(struct dpdk_port *p, uint64_t now);
/** Control thread: finds the MAC address for frames to `to`. Success: the address is in `mac` and *hop is NULL, or *hop
 * is a router that is being resolved, with one reference more (nexthop_put() drops it). -EHOSTUNREACH, -ENETUNREACH: no
 * route; -ENOSPC: too many routers. */
int dpdk_neighbour_resolve(struct dpdk_port *p, const struct dpdk_blob *to, uint8_t mac[6], struct nexthop **nexthop,
			   struct nic_err *err);
/** Control thread: the same without taking a reference. With 0 and an unreachable router `err` holds a remark. */
int dpdk_neighbour_remark(const struct dpdk_port *p, const struct dpdk_blob *to, struct nic_err *err);
/** Returns -EHOSTUNREACH and describes the unreachable router in `err`. */
int dpdk_neighbour_unreachable(const struct dpdk_port *p, const struct nexthop *h, struct nic_err *err);
/** Poller: moves replies and solicitations from the control thread to the transmit queue. */
void dpdk_neighbour_send(struct dpdk_queue *q);

/** Inserts the tag behind the MAC addresses, or removes it. The headroom has room for it. */
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

/* ---- memif.c: control thread ---- */

/** Creates the proxy of a server's socket, and completes the device arguments. Call before the ethdev is created;
 * undone by dpdk_memif_close(). */
int dpdk_memif_prepare(struct dpdk_port *p, const struct nic_config *config, struct nic_err *err);
/** Starts the device. The peer may connect later, or never. */
int dpdk_memif_open(struct dpdk_port *p, struct nic_err *err);
/** Ends everything, the ethdev included. */
void dpdk_memif_close(struct dpdk_port *p);
uint64_t dpdk_memif_step(struct dpdk_port *p, uint64_t now);
/* ---- memif_kick.c: control thread ---- */

/** Writes the address of the memif socket, or of one beside it with `suffix`. 0: the path is too long. */
socklen_t dpdk_memif_address(const struct dpdk_args *a, const char *suffix, struct sockaddr_un *out);
/** Opens the socket that receives the kicks of queue `index`: the descriptor or -errno. */
int dpdk_memif_kick_open(struct dpdk_port *p, unsigned index, struct nic_err *err);
void dpdk_memif_kick_unlink(const struct dpdk_port *p, unsigned index);
/** Writes the address where queue `index` of the peer receives kicks. */
void dpdk_memif_peer_kick(struct dpdk_port *p, unsigned index, struct host_kick *out);

/* ---- queue.c: poller; queue_open.c: control thread ---- */

extern const struct nic_queue_ops dpdk_queue_ops;
/** Queue operations of devices without kicks: a sleeping queue wakes by timer. */
extern const struct nic_queue_ops dpdk_timer_queue_ops;
extern const struct nic_queue_ops dpdk_memif_queue_ops;
int dpdk_queue_open(struct dpdk_port *p, unsigned index, struct nic_err *err);
void dpdk_queue_close(struct dpdk_queue *q);
/** Makes each queue forward packets of other queues. Call when all queues are open. */
int dpdk_queues_forward(struct dpdk_port *p, struct nic_err *err);
/** The forward ring from queue `from` of the same port to this one; created if absent. NULL: out of memory. */
struct forward_ring *dpdk_queue_forward_ring(struct dpdk_queue *q, unsigned from);
/** Keeps all queues of the port out of the device, and waits until none is inside, at most 1 s. -ETIMEDOUT: a poller
 * inside a burst got no CPU. */
int dpdk_shut(struct dpdk_port *p, enum dpdk_shut how);

/* ---- queue_refer.c: poller; dpdk_refer_open(): control thread ---- */

int dpdk_refer_open(struct dpdk_queue *q, struct nic_err *err);
void dpdk_tx_refer(struct nic_queue *queue, struct nic_tx *tx, const void *bytes, uint32_t len);
/** Copies what frames in the transmit queues refer to. */
void dpdk_refer_end(struct dpdk_queue *q);

/* ---- queue_place.c: poller; dpdk_places_open(): control thread ---- */

int dpdk_places_open(struct dpdk_queue *q, struct nic_err *err);
void dpdk_rx_place(struct nic_queue *queue, uint32_t head, uint8_t *at, uint32_t bytes, uint32_t each, uint32_t before);
/** Before a receive burst. False: no place was offered. */
bool dpdk_places_begin(struct dpdk_queue *q);
/** After it: the mbufs are in memory of their own again. */
void dpdk_places_end(struct dpdk_queue *q);
/** Completes packet `number` of the recv(), which is in the mbuf rx[mbuf]. */
void dpdk_place_packet(const struct dpdk_queue *q, uint32_t mbuf, uint32_t number, struct nic_pkt *pkt);

/* ---- port.c: control thread ---- */

extern const struct nic_port_ops dpdk_port_ops;
int dpdk_error(struct nic_err *err, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
uint64_t dpdk_now(void);

/** Poller: enters the device. False if the port is shut (the device's memory may be unmapped at any moment), or if
 * another queue holds the shared ring. The store of `busy` must become visible before `shut` is loaded: dpdk_shut()
 * ensures it by membarrier(), so this side needs no fence. `fence` is set where the kernel has no membarrier(). */
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
