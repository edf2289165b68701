/* SPDX-License-Identifier: BSD-3-Clause */
/** Two shm ports in one process, in a directory of their own, connected. For the tests of the driver. */
#ifndef SHM_PAIR_H
#define SHM_PAIR_H

#include "nic/shm/shm.h"

enum { EVENTS_MAX = 64 };

struct seen_event {
	enum nic_event_type type;
	uint32_t peer, queue;
	void *user;
	int error;
	char text[NIC_TEXT_BYTES_MAX];
	uint8_t hello[NIC_HELLO_BYTES_MAX];
	size_t hello_len;
};

struct test_port {
	struct nic_port *port;
	struct nic_queue *q; /* queue 0 */
	int refuse;          /* what HELLO is answered with */
	struct seen_event events[EVENTS_MAX];
	unsigned events_n;
};

extern char shm_test_dir[];

void shm_dir_setup(void);
void shm_dir_teardown(void);

void test_port_open(struct test_port *p, uint64_t id);
void test_port_open_queues(struct test_port *p, uint64_t id, unsigned queues);
void test_port_close(struct test_port *p);
/** Steps the ports until each has `events[i]` events at least, 10 s at most. */
void test_ports_step(struct test_port *a, unsigned a_events, struct test_port *b, unsigned b_events);
/** Connects a to b (which may be a) and attaches both ends: the peers' numbers. */
void test_ports_connect(struct test_port *a, struct test_port *b, uint32_t *peer_of_a, uint32_t *peer_of_b);
/** The same from queue `qa` of a to queue `qb` of b. */
void test_ports_link(struct test_port *a, unsigned qa, struct test_port *b, unsigned qb, uint32_t *peer_of_a,
		     uint32_t *peer_of_b);

#endif
