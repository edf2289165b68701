/* SPDX-License-Identifier: BSD-3-Clause */
/** Ports of the lossy driver: the driver below, what is promised above it, and its connections. The test's thread. */
#include "lossy_pair.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

TestSuite(lossy_port, .fini = lossy_pair_teardown);

/* Who has gone is not reported, and what is sent there is lost; there is room for it for ever. */
Test(lossy_port, gone)
{
	lossy_pair_open("over=shm", 0);
	lossy_pair.to->ops->close(lossy_pair.to);
	lossy_pair.to = NULL;
	uint64_t until = lossy_now() + UINT64_C(10000000000), lost = 0;
	while (lost < 3000 && lossy_now() < until) {
		lossy_pair.from->ops->step(lossy_pair.from, lossy_now(), lossy_pair_event, NULL);
		lost = lossy_pair_send(0) == 0 ? lost + 1 : 0;
	}
	cr_assert_eq(lost, 3000u);
	cr_assert_gt(lossy_pair_dropped(), 0u);
	cr_assert_eq(lossy_pair.seen.others + lossy_pair.seen.fails, 0u);
	cr_assert_gt(lossy_pair.q->ops->tx_room(lossy_pair.q, lossy_pair.peer), 0u);
	struct nic_tx tx[LOSSY_HELD_MAX + 1];
	for (unsigned i = 0; i < LOSSY_HELD_MAX; i++)
		cr_assert_eq(lossy_pair.q->ops->tx_reserve(lossy_pair.q, lossy_pair.peer, 50000, &tx[i]), 0);
	cr_assert_eq(lossy_pair.q->ops->tx_reserve(lossy_pair.q, lossy_pair.peer, 50000, &tx[LOSSY_HELD_MAX]),
		     -ENOBUFS);
	for (unsigned i = 0; i < LOSSY_HELD_MAX; i++)
		lossy_pair.q->ops->tx_cancel(lossy_pair.q, &tx[i]);
	cr_assert_eq(lossy_pair.q->ops->tx_reserve(lossy_pair.q, lossy_pair.peer, 50000, &tx[0]), 0);
	lossy_pair.q->ops->tx_cancel(lossy_pair.q, &tx[0]);
}

/* Those that others made come and go: each is attached, heard to its end, and its number used again. */
Test(lossy_port, others_come_and_go)
{
	lossy_pair_open("over=shm", 0);
	for (unsigned round = 0; round < 300; round++) {
		struct nic_addr addr;
		struct nic_err err;
		uint32_t number;
		bool whole;
		lossy_pair.to->ops->address(lossy_pair.to, &addr);
		unsigned ups = lossy_pair.seen.ups;
		cr_assert_eq(lossy_pair_send(round), 0);
		lossy_pair.q->ops->detach(lossy_pair.q, lossy_pair.peer);
		lossy_pair.from->ops->drop(lossy_pair.from, lossy_pair.peer);
		while (!lossy_pair_take(&number, &whole))
			lossy_pair.to->ops->step(lossy_pair.to, lossy_now(), lossy_pair_event, NULL);
		cr_assert(whole && number == round);
		cr_assert_eq(
			lossy_pair.from->ops->connect(
				lossy_pair.from, &(struct nic_connect){0, &addr, 0, NULL, 0, UINT64_MAX, NULL}, &err),
			0);
		while (lossy_pair.seen.ups == ups)
			lossy_pair_step();
		lossy_pair.peer = lossy_pair.seen.peer;
		cr_assert_lt(lossy_pair.peer, 8u, "numbers are used again");
		cr_assert_eq(lossy_pair.q->ops->attach(lossy_pair.q, lossy_pair.peer), 0);
	}
	cr_assert_eq(lossy_pair.seen.others + lossy_pair.seen.fails, 0u);
}

/* Somebody who is no lossy driver does not get in. */
Test(lossy_port, not_one_of_us)
{
	struct nic_err err = {""};
	struct nic_addr addr = {.driver = "shm"};
	struct nic_config config = {.runtime_dir = lossy_pair.dir, .id = 3, .queues = 1, .head_bytes = 28};
	struct nic_port *plain;
	lossy_pair_open("over=shm", 0);
	struct nic_addr lossy;
	lossy_pair.to->ops->address(lossy_pair.to, &lossy);
	addr.len = (uint16_t)(lossy.len - strlen("shm") - 1);
	memcpy(addr.blob, lossy.blob + strlen("shm") + 1, addr.len);
	cr_assert_eq(nic_shm_port_ops.open(&config, &plain, &err), 0, "%s", err.text);
	cr_assert_eq(plain->ops->connect(plain, &(struct nic_connect){0, &addr, 0, "hello", 5, UINT64_MAX, NULL}, &err),
		     0);
	while (!lossy_pair.seen.fails) {
		plain->ops->step(plain, lossy_now(), lossy_pair_event, NULL);
		lossy_pair_step();
	}
	cr_assert_eq(lossy_pair.seen.ups, 1u, "only ours");
	/* And an address of another driver than ours is below is none for us. */
	cr_assert_lt(lossy_pair.to->ops->reach(lossy_pair.to, &addr, &err), 0);
	memcpy(lossy.blob, "udp", 4);
	cr_assert_eq(lossy_pair.to->ops->reach(lossy_pair.to, &lossy, &err), -EXDEV);
	cr_assert(strstr(err.text, "over=shm"), "%s", err.text);
	plain->ops->close(plain);
}

Test(lossy_port, bad_lower)
{
	const struct {
		const char *args, *names;
	} bad[] = {{"over=shmm", "shmm"}, {"over=lossy,args=over=shm", "over=lossy"}, {NULL, "over="}};
	lossy_pair_dir();
	for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct nic_port *port = NULL;
		struct nic_err err = {""};
		struct nic_config config = {.runtime_dir = lossy_pair.dir, .queues = 1, .args = bad[i].args};
		cr_assert_lt(nic_lossy_port_ops.probe(&config, &err), 0);
		cr_assert(strstr(err.text, bad[i].names), "%s", err.text);
		cr_assert_lt(nic_lossy_port_ops.open(&config, &port, &err), 0);
		cr_assert(strstr(err.text, bad[i].names) && !port, "%s", err.text);
	}
	struct nic_port *port = NULL;
	struct nic_err err = {""};
	struct nic_config config = {.runtime_dir = "/nowhere/at/all", .queues = 1, .args = "over=shm"};
	cr_assert_lt(nic_lossy_port_ops.open(&config, &port, &err), 0);
	cr_assert(strstr(err.text, "/nowhere/at/all"), "%s", err.text);
}

Test(lossy_port, promises)
{
	struct nic_caps caps;
	lossy_pair_open("over=shm,bytes=1400", 0);
	lossy_pair.from->ops->caps(lossy_pair.from, &caps);
	cr_assert(!caps.connected && !caps.reliable && !caps.ordered && !caps.crc && !caps.authenticated);
	cr_assert(!caps.zero_copy_rx && !caps.zero_copy_tx && caps.head_bytes_max == 0 && caps.wake);
	cr_assert_eq(caps.body_bytes_max, 1400u);
	cr_assert_eq(lossy_pair.q->ops->tx_bytes_max(lossy_pair.q, lossy_pair.peer), 1400u);
	cr_assert_null(lossy_pair.q->ops->kick);
	cr_assert_null(lossy_pair.q->ops->raw);
}
