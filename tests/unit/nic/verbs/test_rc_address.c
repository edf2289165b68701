/* SPDX-License-Identifier: BSD-3-Clause */
/** Socket addresses of GIDs, and the addresses of a device without a GID table. The test's thread. */
#include "verbs_fixture.h"

#include "nic/verbs/rc.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>

static const uint8_t *gid(const char *text)
{
	static uint8_t raw[16];
	cr_assert_eq(inet_pton(AF_INET6, text, raw), 1);
	return raw;
}

Test(verbs_rc_address, socket_addresses)
{
	struct sockaddr_storage at = verbs_rc_sockaddr(gid("::ffff:10.1.2.3"), 7000, 5);
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	memcpy(&in, &at, sizeof in);
	cr_assert(in.sin_family == AF_INET && ntohs(in.sin_port) == 7000);
	cr_assert_eq(ntohl(in.sin_addr.s_addr), 0x0a010203u);
	at = verbs_rc_sockaddr(gid("fd00::5"), 7001, 5);
	memcpy(&in6, &at, sizeof in6);
	cr_assert(in6.sin6_family == AF_INET6 && ntohs(in6.sin6_port) == 7001 && in6.sin6_scope_id == 0);
	cr_assert_eq(memcmp(&in6.sin6_addr, gid("fd00::5"), 16), 0);
	at = verbs_rc_sockaddr(gid("fe80::5"), 1, 5);
	memcpy(&in6, &at, sizeof in6);
	cr_assert_eq(in6.sin6_scope_id, 5u, "a link-local address is of an interface");
}

Test(verbs_rc_address, of_this_host)
{
	cr_assert(verbs_gid_is_here(gid("::ffff:127.0.0.1"), 0));
	cr_assert_not(verbs_gid_is_here(gid("::ffff:198.51.100.77"), 0), "an address for documentation");
	cr_assert_not(verbs_gid_is_here(gid("2001:db8::77"), 0));
}

/* The fake device has 127.0.0.1 and ::1. */
Test(verbs_rc_address, of_a_device)
{
	struct ibv_gid_entry *list = NULL;
	int n = 0;
	ibv_free_device_list(ibv_get_device_list(&n)); /* names the devices */
	n = verbs_rc_addresses("fake0", &list, &err);
	cr_assert_geq(n, 1, "%s", err.text);
	bool found = false;
	for (int i = 0; i < n; i++) {
		cr_assert(list[i].gid_type == IBV_GID_TYPE_ROCE_V2 && list[i].port_num == 1);
		cr_assert_eq(list[i].gid_index, (uint32_t)i);
		cr_assert(verbs_gid_is_loopback(list[i].gid.raw), "no address of another device");
		found |= memcmp(list[i].gid.raw, gid("::ffff:127.0.0.1"), 16) == 0;
	}
	cr_assert(found);
	free(list);
	cr_assert_eq(verbs_rc_addresses("fake1", &list, &err), 0, "they are of the first");
	free(list);
	cr_assert(fake_cm.ids == 0 && fake_cm.channels == 0);
}

Test(verbs_rc_address, without_rdma_cm)
{
	struct ibv_gid_entry *list = NULL;
	fake_cm.channel_error = EACCES;
	cr_assert_eq(verbs_rc_addresses("fake0", &list, &err), -EACCES);
	cr_assert(strstr(err.text, "fake0") && strstr(err.text, "modprobe rdma_ucm"), "%s", err.text);
	fake_cm.channel_error = 0;
	fake_cm.absent = true;
	cr_assert_eq(verbs_rc_addresses("fake0", &list, &err), -ENOENT);
	cr_assert(strstr(err.text, "librdmacm"), "%s", err.text);
	cr_assert_null(list);
}
