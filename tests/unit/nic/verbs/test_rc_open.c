/* SPDX-License-Identifier: BSD-3-Clause */
/** What connections need of arguments and device, and why they cannot be had. The test's thread. */
#include "verbs_conns.h"

static void refused(const char *text, int error, const char *why, const char *remedy)
{
	const struct nic_config config = {.queues = 1, .args = text};
	struct nic_port *port;
	cr_assert_eq(verbs_port_ops.open(&config, &port, &err), error, "%s: %s", text, err.text);
	cr_assert(strstr(err.text, why) && strstr(err.text, remedy), "%s: %s", text, err.text);
	cr_assert(fake_verbs.contexts == 0 && fake_cm.ids == 0 && fake_cm.channels == 0);
}

Test(verbs_rc_open, refused)
{
	refused("fake0,connections=8", -EINVAL, "sends datagrams", "give rc=1");
	refused("fake0,rc=0,connections=8", -EINVAL, "sends datagrams", "give rc=1");
	refused("fake0,rc=2", -EINVAL, "rc=2", "1 for connections");
	refused("fake0,rc=1,connections=1", -EINVAL, "connections=1", "2 to 1024");
	fake_cm.channel_error = ENOENT;
	refused(RC, -ENOENT, "rdma_cm", "modprobe rdma_ucm");
	fake_cm.channel_error = 0;
	fake_cm.absent = true;
	refused(RC, -ENOENT, "no librdmacm", "");
	fake_cm.absent = false;
	fake_verbs.srq_error = ENOMEM;
	refused(RC, -ENOMEM, "shared receive queue", "rx_slots=");
	fake_verbs.srq_error = 0;
	fake_verbs.limits.max_qp = 10;
	refused("fake0,gid=2,rc=1,connections=11", -ENOSPC, "10 queue pairs", "smaller connections=");
	fake_verbs.limits.max_qp = 1000;
	fake_verbs.port.link_layer = IBV_LINK_LAYER_INFINIBAND;
	refused("fake0,rc=1", -EPROTONOSUPPORT, "is InfiniBand", "leave rc=1 out");
	fake_verbs.port.link_layer = IBV_LINK_LAYER_ETHERNET;
	fake_verbs.transport = IBV_TRANSPORT_IWARP;
	refused("fake0,rc=0", -EINVAL, "iWARP, which has no datagrams", "leave rc=0 out");
	refused("fake0,gid=1", -EINVAL, "whose addresses are not GIDs", "listen=");
}
