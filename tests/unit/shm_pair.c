/* SPDX-License-Identifier: BSD-3-Clause */
#include "shm_pair.h"

#include "base/clock.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char shm_test_dir[] = "/tmp/far-shm-XXXXXX";

void shm_dir_setup(void)
{
	cr_assert_not_null(mkdtemp(shm_test_dir));
}

void shm_dir_teardown(void)
{
	DIR *d = opendir(shm_test_dir);
	struct dirent *e;
	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.') {
			char path[512];
			snprintf(path, sizeof path, "%s/%s", shm_test_dir, e->d_name);
			unlink(path);
		}
	if (d)
		closedir(d);
	rmdir(shm_test_dir);
}

void test_port_open(struct test_port *p, uint64_t id)
{
	test_port_open_queues(p, id, 1);
}

void test_port_open_queues(struct test_port *p, uint64_t id, unsigned queues)
{
	struct nic_err err = {""};
	struct nic_config config = {.runtime_dir = shm_test_dir, .id = id, .queues = queues, .head_bytes = 28};
	memset(p, 0, sizeof *p);
	cr_assert_eq(nic_shm_port_ops.open(&config, &p->port, &err), 0, "%s", err.text);
	p->q = p->port->ops->queue(p->port, 0);
	cr_assert_not_null(p->q);
}

void test_port_close(struct test_port *p)
{
	if (p->port)
		p->port->ops->close(p->port);
	p->port = NULL;
}

static int on_event(void *ctx, const struct nic_event *ev)
{
	struct test_port *p = ctx;
	cr_assert_lt(p->events_n, (unsigned)EVENTS_MAX);
	struct seen_event *seen = &p->events[p->events_n++];
	memset(seen, 0, sizeof *seen);
	seen->type = ev->type;
	seen->peer = ev->peer;
	seen->queue = ev->queue;
	seen->user = ev->user;
	seen->error = ev->error;
	if (ev->text)
		snprintf(seen->text, sizeof seen->text, "%s", ev->text);
	seen->hello_len = ev->hello_len;
	if (ev->hello_len)
		memcpy(seen->hello, ev->hello, ev->hello_len);
	if (ev->type != NIC_EVENT_HELLO)
		return 0;
	memcpy(ev->reply, "welcome", 7);
	*ev->reply_len = 7;
	return p->refuse;
}

static void step(struct test_port *p)
{
	if (p && p->port)
		p->port->ops->step(p->port, clock_now(&clock_monotonic), on_event, p);
}

void test_ports_step(struct test_port *a, unsigned a_events, struct test_port *b, unsigned b_events)
{
	uint64_t until = clock_now(&clock_monotonic) + UINT64_C(10000000000);
	do {
		step(a);
		step(b);
		if ((!a || a->events_n >= a_events) && (!b || b->events_n >= b_events))
			return;
		struct pollfd fds[2] = {{.fd = a && a->port ? a->port->ops->fd(a->port) : -1, .events = POLLIN},
					{.fd = b && b->port ? b->port->ops->fd(b->port) : -1, .events = POLLIN}};
		poll(fds, 2, 1);
	} while (clock_now(&clock_monotonic) < until);
	cr_assert_fail("%u and %u events instead of %u and %u", a ? a->events_n : 0, b ? b->events_n : 0, a_events,
		       b_events);
}

void test_ports_connect(struct test_port *a, struct test_port *b, uint32_t *peer_of_a, uint32_t *peer_of_b)
{
	test_ports_link(a, 0, b, 0, peer_of_a, peer_of_b);
}

static void attach(struct test_port *p, unsigned queue, uint32_t peer)
{
	struct nic_queue *q = p->port->ops->queue(p->port, queue);
	cr_assert_eq(q->ops->attach(q, peer), 0);
}

static const struct seen_event *up_of(const struct test_port *p, const void *user)
{
	for (unsigned i = 0; i < p->events_n; i++)
		if (p->events[i].type == NIC_EVENT_UP && p->events[i].user == user)
			return &p->events[i];
	cr_assert_fail("no UP among %u events", p->events_n);
	return NULL;
}

void test_ports_link(struct test_port *a, unsigned qa, struct test_port *b, unsigned qb, uint32_t *peer_of_a,
		     uint32_t *peer_of_b)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	b->port->ops->address(b->port, &addr);
	a->events_n = b->events_n = 0;
	cr_assert_eq(a->port->ops->connect(a->port, qa, &addr, qb, "hello", 5,
					   clock_now(&clock_monotonic) + UINT64_C(10000000000), a, &err),
		     0, "%s", err.text);
	if (a == b && qa == qb) {
		test_ports_step(a, 1, NULL, 0);
		*peer_of_a = *peer_of_b = a->events[0].peer;
		cr_assert_eq(a->events[0].type, NIC_EVENT_UP);
		cr_assert_eq(a->events[0].queue, qa);
		attach(a, qa, *peer_of_a);
		return;
	}
	if (a == b)
		test_ports_step(a, 3, NULL, 0);
	else
		test_ports_step(a, 1, b, 2);
	const struct seen_event *up_a = up_of(a, a), *up_b = up_of(b, NULL);
	cr_assert_eq(b->events[0].type, NIC_EVENT_HELLO);
	cr_assert_eq(b->events[0].queue, qb);
	cr_assert_eq(up_b->queue, qb);
	cr_assert_eq(up_a->queue, qa);
	*peer_of_a = up_a->peer;
	*peer_of_b = up_b->peer;
	attach(a, qa, *peer_of_a);
	attach(b, qb, *peer_of_b);
}
