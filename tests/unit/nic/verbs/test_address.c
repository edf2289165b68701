/* SPDX-License-Identifier: BSD-3-Clause */
/** Published addresses: those that cannot be, those that lead nowhere, and their texts. The test's thread. */
#include "verbs_conns.h"

Test(verbs_address, addresses_that_lead_nowhere)
{
	struct verbs_port *p = fixture_open("bulk=off", 1);
	struct nic_addr addr;
	struct verbs_blob b, per_conn_buffers = p->blob;
	verbs_port_ops.address(&p->base, &addr);
#define TRY(change, expected)                                                                                          \
	do {                                                                                                           \
		b = per_conn_buffers;                                                                                  \
		change;                                                                                                \
		memcpy(addr.blob, &b, sizeof b);                                                                       \
		err.text[0] = 0;                                                                                       \
		cr_assert_eq(verbs_port_ops.reach(&p->base, &addr, &err), expected, "%s: %s", #change, err.text);      \
		cr_assert(!(expected) == !err.text[0]);                                                                \
	} while (0)
	TRY(b.queue[0].qkey ^= 1, 0);
	TRY(b.version++, -EINVAL);
	TRY(b.ethernet = 2, -EINVAL);
	TRY(b.zero = 1, -EINVAL);
	TRY(b.bulk = UINT16_MAX + 1u, -EINVAL);
	TRY(b.bulk = b.service = 7000, -EINVAL);
	TRY(b.bulk = 7000, 0); /* who has none sends packets there */
	TRY(b.queues = 0, -EINVAL);
	TRY(b.queues = VERBS_QUEUES_MAX + 1, -EINVAL);
	TRY(b.mtu = 1023, -EINVAL);
	TRY(b.mtu = 4097, -EINVAL);
	TRY(b.queue[0].qpn = 1, -EINVAL);
	TRY(b.queue[0].qpn = VERBS_QPN_MULTICAST, -EINVAL);
	TRY(b.queue[0].qkey |= VERBS_QKEY_CONTROLLED, -EINVAL);
	TRY(b.gid_type = IBV_GID_TYPE_ROCE_V1, -EINVAL);
	TRY(b.gid[0] = 0xff, -EINVAL);
	TRY(b.gid[12] = 224, -EINVAL);
	TRY(b.gid[12] = 255, -EINVAL);
	TRY(memset(b.gid + 12, 0, 4), -EINVAL);
	TRY(memset(b.gid, 0, sizeof b.gid), -EINVAL);
	TRY(b.service = 1, -EHOSTUNREACH);
	TRY(b.service = 65536, -EINVAL);
	TRY(b.gid_type = VERBS_GID_IWARP, -EINVAL);
	TRY((b.gid_type = VERBS_GID_IWARP, b.service = 1), -EHOSTUNREACH);
	TRY(memset(b.name, 'x', sizeof b.name), -EINVAL);
	TRY(b.where++, -EXDEV);
	TRY(b.gid[12] = 10, -EXDEV);
	TRY(b.gid[0] = 0xfd, -EHOSTUNREACH);
	TRY((b.ethernet = 0, b.lid = 5), -EHOSTUNREACH);
	TRY((b.ethernet = 0, b.lid = 0xc000), -EINVAL);
	addr.len--;
	cr_assert_eq(verbs_port_ops.reach(&p->base, &addr, &err), -EINVAL);
	fixture_close(p);
}

/* Datagrams here and connections there do not go together. */
Test(verbs_address, reach)
{
	struct nic_addr addr;
	char text[64], service[16];
	struct verbs_port *a = open_one(RC), *b = open_one("fake0,gid=2");
	verbs_port_ops.address(&b->base, &addr);
	cr_assert_eq(verbs_port_ops.reach(&a->base, &addr, &err), -EHOSTUNREACH);
	cr_assert(strstr(err.text, "give rc=1 on both"), "%s", err.text);
	verbs_port_ops.address(&a->base, &addr);
	cr_assert_eq(verbs_port_ops.reach(&b->base, &addr, &err), -EHOSTUNREACH);
	cr_assert_eq(verbs_port_ops.reach(&a->base, &addr, &err), 0);
	verbs_port_ops.address_text(&addr, text, sizeof text);
	snprintf(service, sizeof service, ":%u", a->rc->service);
	cr_assert(strstr(text, service), "%s", text);
	close_all();
}
