/* SPDX-License-Identifier: BSD-3-Clause */
/** The choice of a device, a port and an address, and why none is chosen. The test's thread. */
#include "verbs_fixture.h"

#include <arpa/inet.h>

static struct verbs_args args;

static void gid(unsigned i, enum ibv_gid_type type, const char *text)
{
	fake_verbs.gids[i] = (struct ibv_gid_entry){.gid_index = i, .port_num = 1, .gid_type = type, .ndev_ifindex = 1};
	cr_assert_eq(inet_pton(AF_INET6, text, fake_verbs.gids[i].gid.raw), 1);
}

/* Of an open network, with an address of each kind. */
static void a_network(void)
{
	gid(0, IBV_GID_TYPE_ROCE_V2, "fe80::1");
	gid(1, IBV_GID_TYPE_ROCE_V2, "fd00::5");
	gid(2, IBV_GID_TYPE_ROCE_V1, "::ffff:10.1.2.3");
	gid(3, IBV_GID_TYPE_ROCE_V2, "::ffff:127.0.0.1");
	gid(4, IBV_GID_TYPE_ROCE_V2, "::ffff:10.1.2.3");
	fake_verbs.gids_n = 5;
}

/* The index that is chosen, or -errno with the reason. */
static int chosen(const char *text, const char *listen, bool beyond_host)
{
	const struct nic_config config = {.queues = 1, .listen = listen, .beyond_host = beyond_host};
	struct verbs_choice on;
	cr_assert_eq(verbs_args_parse(text, &args, &err), 0);
	int error = verbs_device_open(&args, &config, &on, &err);
	if (!error)
		ibv_close_device(on.context);
	cr_assert_eq(fake_verbs.contexts, 0);
	return error ? error : (int)on.gid.gid_index;
}

Test(verbs_device, choice)
{
	a_network();
	cr_assert_eq(chosen(NULL, NULL, true), 4);
	cr_assert_eq(chosen(NULL, NULL, false), 3);
	cr_assert_eq(chosen("fake0,gid=1", NULL, true), 1);
	cr_assert_eq(chosen("fake0,gid=0", NULL, true), 0);
	cr_assert_eq(chosen("fake0,gid=3", NULL, true), 3);
	cr_assert_eq(chosen(NULL, "10.1.0.0/16", true), 4);
	cr_assert_eq(chosen(NULL, "fd00::/64", true), 1);
	cr_assert_eq(chosen(NULL, "fd00::5", true), 1);
	cr_assert_eq(chosen(NULL, "::", true), 1);
	cr_assert_eq(chosen(NULL, "0.0.0.0", true), 4);
	cr_assert_eq(chosen(NULL, "lo", true), 4); /* interface 1 */
	fake_verbs.gids_n = 2;
	cr_assert_eq(chosen(NULL, NULL, true), 1);
	fake_verbs.devices = 3;
	cr_assert_eq(chosen("fake2", NULL, true), 1);
}

static void refused(int error, const char *text, const char *listen, bool beyond_host, const char *why,
		    const char *remedy)
{
	cr_assert_eq(chosen(text, listen, beyond_host), error, "%s: %s", why, err.text);
	cr_assert(strstr(err.text, why) && strstr(err.text, remedy), "%s: %s", why, err.text);
	cr_assert(strlen(err.text) < sizeof err.text - 1, "it is cut: %s", err.text);
}

Test(verbs_device, choice_refused)
{
	a_network();
	refused(-EINVAL, "fake0,port=2", NULL, true, "1 ports", "not a port 2");
	refused(-ENODEV, "mlx5_7", NULL, true, "no device \"mlx5_7\"", "there are: fake0");
	refused(-EADDRNOTAVAIL, "fake0,gid=2", NULL, true, "no such GID of RoCE v2", "farcall info");
	refused(-EPERM, "fake0,gid=4", NULL, false, "leads to other hosts", "security=none");
	refused(-EADDRNOTAVAIL, NULL, "10.9.0.0/16", true, "listen=10.9.0.0/16", "it has");
	refused(-EADDRNOTAVAIL, NULL, "10.1.2.3/999", true, "listen=10.1.2.3/999", "it has");
	fake_verbs.port.active_mtu = IBV_MTU_512;
	refused(-EMSGSIZE, NULL, NULL, true, "packets of 512 bytes, 1024 are needed", "mtu to 1500");
	fake_verbs.port.active_mtu = IBV_MTU_1024;
	fake_verbs.gids_n = 1;
	refused(-EADDRNOTAVAIL, NULL, NULL, true, "no GID of RoCE v2 with an address", "ip addr add");
	fake_verbs.port_state = IBV_PORT_DOWN;
	refused(-ENETDOWN, NULL, NULL, true, "is PORT_DOWN", "set its interface up");
	fake_verbs.port.link_layer = IBV_LINK_LAYER_INFINIBAND;
	refused(-ENETDOWN, NULL, NULL, true, "is PORT_DOWN", "opensm");
	fake_verbs.open_error = ENOENT;
	refused(-ENODEV, NULL, NULL, true, "/dev/infiniband/uverbs0 does not exist",
		"--device /dev/infiniband/uverbs0");
	fake_verbs.transport = IBV_TRANSPORT_USNIC;
	refused(-EPROTONOSUPPORT, NULL, NULL, true, "neither InfiniBand, RoCE nor iWARP", "use udp");
	fake_verbs.devices = 0;
	refused(-ENODEV, NULL, NULL, true, "no RDMA device", "modprobe rdma_rxe");
}
