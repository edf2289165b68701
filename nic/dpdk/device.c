/* SPDX-License-Identifier: BSD-3-Clause */
/** The ethdev of a port: finds or creates it, sets up its rings, starts and removes it. Control thread. */
#include "nic/dpdk/dpdk.h"

#include <errno.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Descriptors of a ring, unless rxd= or txd= is given or the device has other bounds. */
#define RING_SLOTS 1024u
/* Bytes of an mbuf beyond the frame; of these, TAIL_BYTES may be written: a VLAN tag, a checksum. */
#define ROOM_SPARE 64u
#define TAIL_BYTES 8u
/* Mbufs of a queue beyond those in rings, transmit queues and bursts. */
#define SPARE 256u

/* Serialises operations on ethdevs and pools, which belong to the process: its ports may have several control threads.
 */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* True if the mbuf pools must be safe for several threads: for drivers that pass mbufs on or free them on threads of
 * their own, and for rings that several queues share. */
static bool needs_shared_pool(const struct dpdk_port *p)
{
	const char *name = p->info.driver_name;
	return p->shares_ring || strstr(name, "ring") || strstr(name, "bonding") || strstr(name, "failsafe") ||
	       strstr(name, "softnic");
}

/* True for memory shared with a process or a virtual machine: a ring delivers to the ring of the same index, whatever
 * the headers state. */
static bool steers_by_ring(const struct dpdk_port *p)
{
	return strcmp(p->info.driver_name, "net_vhost") == 0 || strcmp(p->info.driver_name, "net_virtio_user") == 0;
}

/* net_virtio_user writes to a socket whose other end may be gone: SIGPIPE must not end the process. */
static void block_sigpipe(sigset_t *before)
{
	sigset_t pipe;
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &pipe, before);
}

static void unblock_sigpipe(const sigset_t *before)
{
	sigset_t pipe;
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	if (!sigismember(before, SIGPIPE))
		sigtimedwait(&pipe, NULL, &(struct timespec){0});
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* Registers this port as the owner of the ethdev. -EPERM: another port owns it, or a part of the application does. A
 * device that the application has started cannot be configured again. */
static int claim(struct dpdk_port *p)
{
	static struct rte_eth_dev_owner owner = {.name = "farcall"};
	int error = owner.id == RTE_ETH_DEV_NO_OWNER ? rte_eth_dev_owner_new(&owner.id) : 0;
	if (!error)
		error = rte_eth_dev_owner_set(p->ethdev, &owner);
	p->owner = error ? RTE_ETH_DEV_NO_OWNER : owner.id;
	return error;
}

static int find(struct dpdk_port *p, struct nic_err *err)
{
	struct dpdk_args *a = &p->args;
	uint16_t id;
	bool there = rte_eth_dev_get_port_by_name(a->name, &id) == 0;
	if (there && a->class != DPDK_OWN)
		return dpdk_error(err, -EBUSY, "dpdk: %s is in use in this process; give the device another number",
				  a->name);
	if (!there && !a->bus)
		return dpdk_error(err, -ENODEV,
				  "dpdk: \"%s\" is neither net_…, nor a PCI address, nor a port that this process has",
				  a->name);
	if (!there) {
		dpdk_log_begin();
		int error = rte_eal_hotplug_add(a->bus, a->name, a->devargs);
		const char *why = dpdk_log_end();
		if (error)
			return dpdk_error(err, error, "dpdk: %s cannot be opened: %.180s%s", a->name,
					  *why ? why : strerror(-error), dpdk_card_advice(p));
		p->probed = true;
		if (rte_eth_dev_get_port_by_name(a->name, &id))
			return dpdk_error(err, -ENODEV, "dpdk: %s is not an Ethernet device", a->name);
	}
	if (rte_eth_dev_info_get(id, &p->info) < 0)
		return dpdk_error(err, -EIO, "dpdk: the capabilities of %s cannot be read", a->name);
	p->ethdev = id;
	p->device = p->info.device;
	dpdk_log_begin();
	int error = claim(p);
	dpdk_log_end();
	return error ? dpdk_error(err, -EBUSY, "dpdk: %s is in use in this process", a->name) : 0;
}

/* Rings per direction. memif needs one for each pair of queues, since a ring leads to the ring of the same index only.
 */
static unsigned rings(const struct dpdk_port *p)
{
	if (dpdk_is_xdp(&p->args))
		return p->xdp_rings;
	return p->args.class == DPDK_MEMIF ? p->queues_n * p->queues_n : p->shares_ring ? 1 : p->queues_n;
}

static int check_queues(struct dpdk_port *p, struct nic_err *err)
{
	unsigned n = rings(p),
		 most = p->info.max_rx_queues < p->info.max_tx_queues ? p->info.max_rx_queues : p->info.max_tx_queues;
	if (p->args.class == DPDK_MEMIF && p->queues_n > DPDK_MEMIF_QUEUES_MAX)
		return dpdk_error(err, -ERANGE, "dpdk: memif serves at most %u shards, not %u; see far_opts.shards",
				  DPDK_MEMIF_QUEUES_MAX, p->queues_n);
	/* With fewer rings than shards, all shards share ring 0: a fixed mapping would need steering rules. */
	if (n > most && most > 0 && p->args.class == DPDK_OWN) {
		p->shares_ring = true;
		return 0;
	}
	if (n > most)
		return dpdk_error(err, -ERANGE,
				  "dpdk: %s has %u queues, but each of the %u shards needs one: use fewer shards%s",
				  p->args.name, most, p->queues_n,
				  p->args.class == DPDK_IFACE ? "; see qpairs= and queue_count=" : "");
	return 0;
}

static uint64_t tx_offloads(struct dpdk_port *p)
{
	/* The IPv4 header checksum is computed in software at no cost, since its parts are precomputed. */
	return p->info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
}

static int configure(struct dpdk_port *p)
{
	uint64_t sums = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
	uint64_t hash = p->info.flow_type_rss_offloads & (RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP);
	struct rte_eth_conf conf = {0};
	conf.txmode.offloads = tx_offloads(p);
	p->udp_sums = conf.txmode.offloads != 0;
	conf.rxmode.offloads = (p->info.rx_offload_capa & sums) == sums ? sums : 0;
	/* Cards with VLAN filters may drop all tagged frames until the filter is set. */
	if (p->args.vlan)
		conf.rxmode.offloads |= p->info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_VLAN_FILTER;
	/* Without the link interrupt (conf.intr_conf.lsc) each query of the link state reads the device. Some never
	 * raise it: net_e1000_em under vfio-pci, which assigns it no vector. */
	if (p->args.mtu && p->args.class != DPDK_MEMIF)
		conf.rxmode.mtu = p->args.mtu;
	if (rings(p) > 1 && hash) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = hash;
	}
	uint16_t n = (uint16_t)rings(p);
	int error = rte_eth_dev_configure(p->ethdev, n, n, &conf);
	p->started = !error;
	/* Forward packets that arrive by another queue's ring: on an interface shared with the kernel (net_af_xdp uses
	 * the interface's own rings, and net_af_packet lets a full ring roll over into the next, whatever the hash), on
	 * a shared ring, and where the ring index alone selects the receiver. */
	p->forwards_rx = p->args.class == DPDK_IFACE || p->shares_ring || (n > 1 && steers_by_ring(p));
	p->steering = p->args.class == DPDK_OWN && n > 1 && !p->forwards_rx ? NIC_STEER_HASH : NIC_STEER_QUEUE;
	return error;
}

/* Sets body_max from the largest frame of the device. */
static int set_body_max(struct dpdk_port *p)
{
	uint16_t mtu = 1500;
	if (p->args.class == DPDK_MEMIF) {
		p->body_max = (p->args.mtu && p->args.mtu < p->args.bsize ? p->args.mtu : p->args.bsize) - p->head_len;
		return 0;
	}
	int error = 0;
	if (p->args.class == DPDK_IFACE)
		mtu = dpdk_iface_mtu(p);
	else
		error = rte_eth_dev_get_mtu(p->ethdev, &mtu);
	p->body_max = mtu - (p->head_len - FRAME_MAC_BYTES);
	return error;
}

/* True if the device's peer, a vhost-user server, maps EAL's memory and nothing else. */
static bool shares_eal_memory(const struct dpdk_port *p)
{
	return strcmp(p->info.driver_name, "net_virtio_user") == 0;
}

static struct rte_mempool *pool_of(struct dpdk_port *p, unsigned slots)
{
	char name[RTE_MEMPOOL_NAMESIZE];
	static unsigned serial;
	unsigned tx_queues = p->args.class == DPDK_MEMIF ? p->queues_n : 1;
	unsigned bursts = p->shares_ring ? p->queues_n : 1; /* queues whose bursts hold mbufs of the same pool */
	unsigned n = tx_queues * (DPDK_TX_MAX + DPDK_TX_URGENT) + 2 * bursts * DPDK_BURST + SPARE + slots;
	unsigned frame = p->head_len + (unsigned)p->body_max, room = frame > 2048 ? frame : 2048;
	bool dma = !p->args.bus || strcmp(p->args.bus, "vdev") != 0 || shares_eal_memory(p),
	     xdp = dpdk_is_xdp(&p->args);
	if (p->args.class == DPDK_IFACE)
		room = dpdk_iface_room(p);
	/* memif joins the segments of a frame if an mbuf has more room than its buffers (queue_refer.c). */
	if (p->args.class == DPDK_MEMIF && room < p->args.bsize)
		room = p->args.bsize;
	/* Cards of this family use buffers of powers of two only, and round down. */
	if (strcmp(p->info.driver_name, "net_e1000_em") == 0)
		for (room = frame + TAIL_BYTES > room ? frame + TAIL_BYTES : room; room & (room - 1);)
			room += room & -room;
	/* net_af_xdp's kernel side expects frames at a fixed offset. Cards get an address that moves with the mbuf's
	 * memory; it stays even, as some require. */
	unsigned head_len = p->head_len + (p->args.vlan ? DPDK_TAG_BYTES : 0);
	p->rx_shift = xdp ? 0 : (64 + DPDK_BODY_ALIGN - head_len % 64) % 64;
	snprintf(name, sizeof name, "farcall-%u", serial++);
	/* net_af_xdp requires the pool to be contiguous, which memory for DMA may not be. */
	return dpdk_pool_create(name, n, room + ROOM_SPARE, p->rx_shift, needs_shared_pool(p),
				dma || (dpdk_eal_huge() && !xdp));
}

/* Mbufs that the device rings of one queue may hold. */
static unsigned slots(const struct dpdk_port *p, unsigned rx, unsigned tx)
{
	if (p->args.class == DPDK_MEMIF || strncmp(p->args.name, "net_af_packet", 13) == 0)
		return 0; /* packets are copied */
	if (!dpdk_is_xdp(&p->args))
		return rx + tx;
	return (p->xdp_rings + p->queues_n - 1) / p->queues_n * (rx + tx + 4096u);
}

static int make_pools(struct dpdk_port *p, uint16_t rx, uint16_t tx, struct nic_err *err)
{
	int error = 0;
	for (unsigned i = 0; !error && i < p->queues_n; i++) {
		p->pools[i] = pool_of(p, slots(p, rx, tx));
		error = p->pools[i]
				? dpdk_iface_may_lock(p, dpdk_pool_bytes(p->pools[i]), err)
				: dpdk_error(err, -ENOMEM,
					     "dpdk: no memory for the packet buffers of %s; use more huge pages "
					     "(sysctl vm.nr_hugepages), smaller rings (rxd=, txd=) or a smaller mtu=",
					     p->args.name);
	}
	return error;
}

static int set_rings_up(struct dpdk_port *p, uint16_t rx, uint16_t tx)
{
	int error = 0, socket = rte_eth_dev_socket_id(p->ethdev);
	unsigned n = rings(p);
	/* memif: ring i · queues + j leads from queue i to the peer's queue j, whose pool it uses at the peer. */
	for (unsigned i = 0; !error && i < n; i++)
		error = rte_eth_rx_queue_setup(p->ethdev, (uint16_t)i, rx, (unsigned)socket, NULL,
					       p->pools[i % p->queues_n]);
	for (unsigned i = 0; !error && i < n; i++)
		error = rte_eth_tx_queue_setup(p->ethdev, (uint16_t)i, tx, (unsigned)socket, NULL);
	return error;
}

static int setup_failed(const struct dpdk_port *p, int error, struct nic_err *err)
{
	const char *why = dpdk_log_end();
	return dpdk_error(err, error, "dpdk: %s cannot be set up: %s", p->args.name, *why ? why : strerror(-error));
}

static int open_locked(struct dpdk_port *p, struct nic_err *err)
{
	int error = find(p, err);
	if (!error)
		error = check_queues(p, err);
	if (error)
		return error;
	uint16_t rx = (uint16_t)(p->args.rxd ? p->args.rxd : RING_SLOTS),
		 tx = (uint16_t)(p->args.txd ? p->args.txd : RING_SLOTS);
	dpdk_log_begin();
	error = configure(p);
	if (!error)
		error = set_body_max(p);
	if (!error)
		error = rte_eth_dev_adjust_nb_rx_tx_desc(p->ethdev, &rx, &tx);
	if (error)
		return setup_failed(p, error, err);
	p->rx_ring = rx;
	dpdk_log_end();
	error = make_pools(p, rx, tx, err);
	if (error)
		return error;
	dpdk_log_begin();
	error = set_rings_up(p, rx, tx);
	if (error)
		return setup_failed(p, error, err);
	dpdk_log_end();
	return 0;
}

int dpdk_device_open(struct dpdk_port *p, struct nic_err *err)
{
	sigset_t before;
	block_sigpipe(&before);
	pthread_mutex_lock(&mutex);
	int error = open_locked(p, err);
	pthread_mutex_unlock(&mutex);
	unblock_sigpipe(&before);
	return error;
}

int dpdk_device_start(struct dpdk_port *p, struct nic_err *err)
{
	sigset_t before;
	block_sigpipe(&before);
	pthread_mutex_lock(&mutex);
	dpdk_log_begin();
	int error = rte_eth_dev_start(p->ethdev);
	if (!error && p->args.vlan && p->info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_VLAN_FILTER)
		error = rte_eth_dev_vlan_filter(p->ethdev, (uint16_t)p->args.vlan, 1);
	if (!error)
		dpdk_flow_open(p);
	const char *why = dpdk_log_end();
	if (error)
		dpdk_error(err, error, "dpdk: %s cannot be started: %s", p->args.name, *why ? why : strerror(-error));
	pthread_mutex_unlock(&mutex);
	unblock_sigpipe(&before);
	return error;
}

void dpdk_device_close(struct dpdk_port *p)
{
	sigset_t before;
	block_sigpipe(&before);
	pthread_mutex_lock(&mutex);
	dpdk_log_begin(); /* messages are discarded */
	if (p->started) {
		dpdk_flow_close(p);
		rte_eth_dev_stop(p->ethdev);
		if (p->probed)
			rte_eth_dev_close(p->ethdev);
	}
	if (!p->probed && p->owner != RTE_ETH_DEV_NO_OWNER)
		rte_eth_dev_owner_unset(p->ethdev, p->owner);
	p->owner = RTE_ETH_DEV_NO_OWNER;
	if (p->probed && p->device)
		rte_dev_remove(p->device);
	else if (p->probed)
		rte_eal_hotplug_remove(p->args.bus, p->args.name);
	p->started = p->probed = false;
	dpdk_log_end();
	pthread_mutex_unlock(&mutex);
	unblock_sigpipe(&before);
}

void dpdk_device_free(struct dpdk_port *p)
{
	pthread_mutex_lock(&mutex);
	for (unsigned i = 0; i < p->queues_n; i++)
		rte_mempool_free(p->pools[i]);
	memset(p->pools, 0, sizeof p->pools);
	pthread_mutex_unlock(&mutex);
}
