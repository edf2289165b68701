/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Memories by reference: our shared memories (base/shared.h) that peers have mapped, and those of peers that we have.
 * The control thread passes descriptors and maps; the poller makes references and follows them.
 *
 * Giving: the poller that finds a message in a memory that the peer lacks sets its slot's bit in `wanted` and wakes the
 * control thread, which sends the descriptor. The peer stores the key in `mapped` of the direction; from then on the
 * poller makes references. A memory that is freed is taken back: the peer ends its mapping with its last reader.
 *
 * Taking: a reference is a key and an offset, from the peer: the key must be that of a memory of this peer that is
 * mapped, offset and length must lie within it. Its size was checked against the file, which is sealed, so no read of
 * it raises SIGBUS. A mapping has a reference count: one for the link, one for each hold.
 */
#include "nic/shm/shm.h"
#include "nic/shm/shm_control.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define RETRY_NS UINT64_C(100000000) /* after a peer's socket was full */

/* A mapping, of any link of the process. It may outlast its link, so it lies here. */
struct mapping {
	_Atomic uint32_t refs; /* 0: free, or being made or unmapped by who has it */
	_Atomic uint32_t used; /* 1: not free; stored by who makes it, and who drops the last reference */
	uint32_t key;
	const uint8_t *at;
	uint64_t bytes;
};
static struct mapping mappings[FAR_SHARED_MAPPED_MAX];

static _Atomic uint64_t mapped_bytes;

/* ---- mappings: any thread ---- */

/* Counts them; false: more than our own region may have. The pages are the sender's, so they are no part of the budget;
 * but reading a sparse file takes pages of ours. */
static bool mapped_take(const struct shm_port *p, uint64_t bytes)
{
	uint64_t before = atomic_fetch_add_explicit(&mapped_bytes, bytes, memory_order_relaxed);
	if (!p->memory_bytes || (before < p->memory_bytes && bytes <= p->memory_bytes - before))
		return true;
	atomic_fetch_sub_explicit(&mapped_bytes, bytes, memory_order_relaxed);
	return false;
}

/* Number of a new one, with one reference; -ENOMEM: as many exist, or as many bytes, or no address space. */
static int mapping_new(const struct shm_port *p, int fd, uint32_t key, uint64_t bytes)
{
	unsigned i = 0;
	uint32_t free = 0;
	while (i < FAR_SHARED_MAPPED_MAX &&
	       !atomic_compare_exchange_strong_explicit(&mappings[i].used, &free, 1, memory_order_acquire,
							memory_order_relaxed)) {
		i++;
		free = 0;
	}
	if (i == FAR_SHARED_MAPPED_MAX)
		return -ENOMEM;
	struct mapping *m = &mappings[i];
	void *at = mapped_take(p, bytes) ? mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0) : NULL;
	if (!at || at == MAP_FAILED) {
		if (at)
			atomic_fetch_sub_explicit(&mapped_bytes, bytes, memory_order_relaxed);
		atomic_store_explicit(&m->used, 0, memory_order_release);
		return -ENOMEM;
	}
	madvise(at, bytes, MADV_DONTFORK);
	m->key = key;
	m->at = at;
	m->bytes = bytes;
	atomic_store_explicit(&m->refs, 1, memory_order_release); /* pairs with mapping_hold() */
	return (int)i;
}

static bool mapping_hold(struct mapping *m)
{
	uint32_t refs = atomic_load_explicit(&m->refs, memory_order_relaxed);
	while (refs && !atomic_compare_exchange_weak_explicit(&m->refs, &refs, refs + 1, memory_order_acquire,
							      memory_order_relaxed))
		;
	return refs != 0;
}

void shm_unmap_hold(void *hold)
{
	struct mapping *m = hold;
	if (atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1)
		return;
	munmap((void *)(uintptr_t)m->at, m->bytes);
	atomic_fetch_sub_explicit(&mapped_bytes, m->bytes, memory_order_relaxed);
	atomic_store_explicit(&m->used, 0, memory_order_release); /* pairs with mapping_new() */
}

/* ---- giving ---- */

static void wake_control(const struct shm_port *p)
{
	uint64_t one = 1;
	ssize_t n = write(p->memory_fd, &one, sizeof one);
	(void)n; /* EAGAIN: it is readable */
}

int shm_refer(struct nic_queue *nq, uint32_t peer, const void *at, uint64_t len, uint64_t *reference)
{
	struct shm_queue *q = (struct shm_queue *)nq;
	struct shm_link *link = shm_attached_link(q, peer);
	uint32_t key;
	uint64_t offset;
	if (!link || link->fd < 0 || q->port->memory_fd < 0 || !shared_find(at, len, &key, &offset))
		return -EOPNOTSUPP;
	unsigned slot = SHARED_SLOT(key);
	if (atomic_load_explicit(&link->tx->mapped[slot], memory_order_relaxed) == key) {
		*reference = (uint64_t)key << SHARED_OFFSET_BITS | offset;
		return 0;
	}
	if (link->offered[slot] == key)
		return -EAGAIN;
	link->offered[slot] = key;
	atomic_fetch_or_explicit(&link->wanted, UINT64_C(1) << slot, memory_order_release);
	wake_control(q->port);
	return -EAGAIN;
}

int shm_memory_open(struct shm_port *p)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.u32 = SHM_TAG_MEMORY};
	p->memory_at = UINT64_MAX;
	p->memory_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (p->memory_fd < 0 || epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, p->memory_fd, &ev) < 0)
		return -errno;
	if (shared_watch(p->memory_fd)) /* too many agents in one process: this one gives none */
		shm_close_fd(&p->memory_fd);
	return 0;
}

void shm_memory_close(struct shm_port *p)
{
	if (p->memory_fd >= 0)
		shared_unwatch(p->memory_fd);
	shm_close_fd(&p->memory_fd);
}

/* Sends a memory, or (bytes 0) that it is freed. */
static int send_memory(const struct shm_link *link, uint32_t key, uint64_t bytes, int fd)
{
	struct shm_memory_msg content = {.key = key, .bytes = bytes};
	struct shm_control_msg message = shm_control_make(SHM_CONTROL_MEMORY, 0, &content, sizeof content);
	return shm_control_send(link->fd, &message, &fd, fd >= 0);
}

/* -EAGAIN: the socket is full. Other errors leave the peer without the memory. */
static int give(struct shm_link *link, unsigned slot)
{
	uint64_t bytes = 0;
	uint32_t key = shared_key(slot);
	if (link->given[slot] && link->given[slot] != key) {
		if (send_memory(link, link->given[slot], 0, -1) == -EAGAIN)
			return -EAGAIN;
		link->given[slot] = 0;
	}
	if (!key || !(atomic_load_explicit(&link->wanted, memory_order_acquire) >> slot & 1))
		return 0;
	int fd = shared_fd(key, &bytes), error = fd;
	if (fd >= 0) {
		error = send_memory(link, key, bytes, fd);
		close(fd);
	}
	if (error == -EAGAIN)
		return error;
	atomic_fetch_and_explicit(&link->wanted, ~(UINT64_C(1) << slot), memory_order_relaxed);
	link->given[slot] = key;
	return 0;
}

uint64_t shm_memory_step(struct shm_port *p, uint64_t now)
{
	uint64_t count;
	if (now < p->memory_at)
		return p->memory_at;
	ssize_t n = p->memory_fd < 0 ? 0 : read(p->memory_fd, &count, sizeof count);
	(void)n; /* before the look: what comes later is an event of its own */
	p->memory_at = UINT64_MAX;
	for (uint32_t i = 0; i < SHM_PEERS_MAX; i++) {
		struct shm_link *link = p->peer_numbers.taken[i / 64] >> i % 64 & 1 ? p->links[i] : NULL;
		for (unsigned slot = 0; link && link->state == SHM_LINK_UP && link->fd >= 0 && slot < FAR_SHARED_MAX;
		     slot++)
			if (give(link, slot) == -EAGAIN)
				p->memory_at = now + RETRY_NS;
	}
	return p->memory_at;
}

/* ---- taking ---- */

/* The poller finds no mapping in the slot from now on; those that hold it keep it. */
static void slot_clear(struct shm_link *link, unsigned slot)
{
	uint32_t number = atomic_load_explicit(&link->mappings[slot], memory_order_relaxed);
	if (!number)
		return;
	atomic_store_explicit(&link->rx->mapped[slot], 0, memory_order_relaxed);
	atomic_store_explicit(&link->mappings[slot], 0, memory_order_release);
	shm_unmap_hold(&mappings[number - 1]);
}

void shm_memory_take(struct shm_port *p, struct shm_link *link, const struct shm_control_msg *message, int fd)
{
	struct shm_memory_msg m;
	struct stat st;
	if (message->len != sizeof m)
		return;
	memcpy(&m, message->bytes, sizeof m);
	unsigned slot = SHARED_SLOT(m.key);
	if (m.key < FAR_SHARED_MAX || m.key >= SHARED_KEY_END)
		return;
	slot_clear(link, slot);
	if (fd < 0 || m.bytes > SHARED_BYTES_MAX || shm_check_file(fd, m.bytes, &st))
		return;
	int number = mapping_new(p, fd, m.key, m.bytes);
	if (number < 0)
		return;
	atomic_store_explicit(&link->mappings[slot], (uint32_t)number + 1, memory_order_release);
	atomic_store_explicit(&link->rx->mapped[slot], m.key, memory_order_release);
}

void shm_memory_drop(struct shm_link *link)
{
	for (unsigned slot = 0; slot < FAR_SHARED_MAX; slot++)
		slot_clear(link, slot);
}

/* The mapping of the slot, held; NULL: there is none. */
static struct mapping *slot_hold(const struct shm_link *link, unsigned slot)
{
	uint32_t number = atomic_load_explicit(&link->mappings[slot], memory_order_acquire);
	struct mapping *m = number ? &mappings[number - 1] : NULL;
	if (!m || !mapping_hold(m))
		return NULL;
	/* Cleared meanwhile, the mapping may be another link's by now. Pairs with slot_clear(): who holds a reference
	 * of a later one sees the slot as it was cleared. */
	if (atomic_load_explicit(&link->mappings[slot], memory_order_acquire) == number)
		return m;
	shm_unmap_hold(m);
	return NULL;
}

int shm_map(struct nic_queue *nq, uint32_t peer, uint64_t reference, uint64_t len, const uint8_t **at, void **hold)
{
	const struct shm_link *link = shm_attached_link((struct shm_queue *)nq, peer);
	uint64_t key = reference >> SHARED_OFFSET_BITS, offset = reference & (SHARED_BYTES_MAX - 1);
	struct mapping *m = link ? slot_hold(link, SHARED_SLOT(key)) : NULL;
	if (!m)
		return -EINVAL;
	if (m->key != key || offset > m->bytes || len > m->bytes - offset) {
		shm_unmap_hold(m);
		return -EINVAL;
	}
	*at = m->at + offset;
	*hold = m;
	return 0;
}
