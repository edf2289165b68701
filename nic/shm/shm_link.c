/* SPDX-License-Identifier: BSD-3-Clause */
/** Creates, maps and frees links, and allocates their numbers. Control thread. */
#include "nic/shm/shm.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* -1: all numbers are in use. */
static int shm_number_take(struct shm_numbers *n)
{
	for (uint32_t i = 0; i < SHM_PEERS_MAX / 64; i++) {
		if (n->taken[i] == UINT64_MAX)
			continue;
		unsigned bit = (unsigned)__builtin_ctzll(~n->taken[i]);
		n->taken[i] |= UINT64_C(1) << bit;
		return (int)(i * 64 + bit);
	}
	return -1;
}

static void shm_number_free(struct shm_numbers *n, uint32_t number)
{
	n->taken[number / 64] &= ~(UINT64_C(1) << number % 64);
}

struct shm_link *shm_link_new(struct shm_port *p, enum shm_link_state state)
{
	int index = shm_number_take(&p->peer_numbers);
	if (index < 0)
		return NULL;
	struct shm_link *link = aligned_alloc(64, (sizeof *link + 63) / 64 * 64);
	if (!link) {
		shm_number_free(&p->peer_numbers, (uint32_t)index);
		return NULL;
	}
	memset(link, 0, sizeof *link);
	link->index = (uint32_t)index;
	link->state = state;
	link->fd = link->pair_fd = link->wake_fd = -1;
	link->deadline = UINT64_MAX;
	link->next_pending = p->pending;
	if (p->pending)
		p->pending->prev_pending = link;
	p->pending = link;
	p->links[index] = link;
	return link;
}

void shm_link_own(struct shm_link *link, struct shm_queue *q)
{
	link->queue = q;
	/* Never fails: there are as many doorbells as links. */
	link->bell = (uint16_t)shm_number_take(&q->bell_numbers);
}

void shm_link_settled(struct shm_port *p, struct shm_link *link)
{
	if (link->next_pending)
		link->next_pending->prev_pending = link->prev_pending;
	if (link->prev_pending)
		link->prev_pending->next_pending = link->next_pending;
	else if (p->pending == link)
		p->pending = link->next_pending;
	link->next_pending = link->prev_pending = NULL;
}

void shm_link_free(struct shm_port *p, struct shm_link *link)
{
	shm_link_settled(p, link);
	shm_memory_drop(link);
	shm_close_fd(&link->fd);
	shm_close_fd(&link->pair_fd);
	shm_close_fd(&link->wake_fd);
	if (link->map) {
		shm_unmap(link->map);
		if (p->budget)
			p->budget->give(sizeof(struct shm_direction));
	}
	if (link->peer_bells)
		shm_unmap(link->peer_bells);
	shm_bulk_fini(&link->bulk);
	if (link->queue)
		shm_number_free(&link->queue->bell_numbers, link->bell);
	p->links[link->index] = NULL;
	shm_number_free(&p->peer_numbers, link->index);
	free(link);
}

/* True of AMD's processors from family 26 (Zen 5) on: there a prefetch gets the ownership of a line that another core
 * has read, and does not hold back the stores behind it. Those before ignore the request. */
static bool prefetches_own(void)
{
#if defined(__x86_64__)
	unsigned a, b, c, d;
	return __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx && __get_cpuid(1, &a, &b, &c, &d) &&
	       (a >> 8 & 15) + (a >> 20 & 255) >= 26;
#else
	return false;
#endif
}

/* Each end counts the direction that it writes in its budget. */
int shm_link_map(struct shm_port *p, struct shm_link *link, int pair_fd, bool connector, bool loopback)
{
	void *map;
	if (p->budget && !p->budget->take(sizeof(struct shm_direction)))
		return -ENOMEM;
	int error = shm_pair_map(pair_fd, &map);
	if (error) {
		if (p->budget)
			p->budget->give(sizeof(struct shm_direction));
		return error;
	}
	struct shm_pair *pair = map;
	unsigned out = connector ? 0 : 1, in = loopback ? out : 1 - out;
	link->map = map;
	link->tx = &pair->direction[out];
	link->rx = &pair->direction[in];
	link->tx_bulk = (uint8_t *)map + SHM_BULK_OFFSET(out);
	link->rx_bulk = (uint8_t *)map + SHM_BULK_OFFSET(in);
	lane_init(&link->lane, link->tx->slots, link->rx->slots, &link->rx->consumer.head);
	link->lane.prefetches = prefetches_own();
	return shm_bulk_init(&link->bulk, link->tx_bulk, p->budget);
}

int shm_link_bells(struct shm_link *link, int bells_fd, uint32_t bell)
{
	if (bell >= SHM_BELLS)
		return -EPROTO;
	link->peer_bell = (uint16_t)bell;
	return shm_bells_map(bells_fd, &link->peer_bells);
}
