/* SPDX-License-Identifier: BSD-3-Clause */
/** The connecting side of the handshake: what it refuses, and a queue that connects to itself. The test's thread. */
#include "transport_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static uint64_t some(uint64_t seq)
{
	return seq % 200;
}

Test(transport_connect, bad_arguments)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	fixture_init();
	end_open(0, 1);
	struct nic_port *port = fixture.ends[0].port;
	port->ops->address(port, &addr);
	cr_assert_eq(port->ops->connect(port, &(struct nic_connect){1, &addr, 0, NULL, 0, UINT64_MAX, NULL}, &err),
		     -EINVAL);
	cr_assert_eq(port->ops->connect(port, &(struct nic_connect){0, &addr, 16, NULL, 0, UINT64_MAX, NULL}, &err),
		     -EINVAL);
	cr_assert_eq(port->ops->connect(port, &(struct nic_connect){0, &addr, 0, "x", 200, UINT64_MAX, NULL}, &err),
		     -EINVAL);
	addr.len = 5;
	cr_assert_eq(port->ops->connect(port, &(struct nic_connect){0, &addr, 0, NULL, 0, UINT64_MAX, NULL}, &err),
		     -EINVAL);
	cr_assert(err.text[0]);
	addr.len = 10;
	addr.blob[0] = 1;  /* below */
	addr.blob[5] ^= 1; /* another identity */
	cr_assert_eq(port->ops->connect(port, &(struct nic_connect){0, &addr, 0, NULL, 0, UINT64_MAX, NULL}, &err),
		     -EINVAL);
	strcpy(addr.driver, "other");
	cr_assert_eq(port->ops->connect(port, &(struct nic_connect){0, &addr, 0, NULL, 0, UINT64_MAX, NULL}, &err),
		     -EINVAL);
	fixture_fini();
}

Test(transport_connect, no_such_queue_there)
{
	fixture_init();
	end_open(0, 1);
	end_open(1, 2);
	cr_assert_eq(fixture_connect(0, 0, 1, 2, 1000 * FIXTURE_MS), 0);
	cr_assert(fixture_until(&fixture.ends[0].fails, 1, 1000) || fixture.ends[0].fails);
	cr_assert_eq(fixture.ends[0].error, -ECHRNG, "%s", fixture.ends[0].text);
	fixture_fini();
}

Test(transport_connect, self)
{
	fixture_init();
	end_open(0, 2);
	cr_assert_eq(fixture_connect(0, 0, 0, 0, 1000 * FIXTURE_MS), 0);
	cr_assert(fixture_until(&fixture.ends[0].ups, 1, 10));
	cr_assert_eq(fixture.ends[0].connects, 0);
	cr_assert_eq(fixture.ends[0].q->ops->attach(fixture.ends[0].q, fixture.ends[0].up), 0);
	uint64_t before = fixture.fabric.sent;
	cr_assert(fixture_stream(0, fixture.ends[0].up, 0, 3000, some, 10000));
	cr_assert_eq(fixture.fabric.sent, before); /* nothing of it leaves */
	/* Another queue of the same port is another peer. */
	cr_assert_eq(fixture_connect(0, 0, 0, 1, 1000 * FIXTURE_MS), 0);
	cr_assert(fixture_until(&fixture.ends[0].ups, 3, 1000));
	cr_assert_eq(fixture.ends[0].connects, 1);
	cr_assert_neq(fixture.ends[0].up, fixture.ends[0].accepted);
	struct nic_queue *q1 = fixture.ends[0].port->ops->queue(fixture.ends[0].port, 1);
	cr_assert_eq(q1->ops->attach(q1, fixture.ends[0].accepted), 0);
	cr_assert_eq(fixture.ends[0].q->ops->attach(fixture.ends[0].q, fixture.ends[0].accepted), -EINVAL);
	fixture_fini();
}
