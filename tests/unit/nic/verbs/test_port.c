/* SPDX-License-Identifier: BSD-3-Clause */
/** The verbs driver's ports over the fake device: the choice of a device, errors and their remedies, events.
 * The test's thread. */
#include "verbs_fixture.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/stat.h>

static struct verbs_args args;

Test(verbs_port, args)
{
	cr_assert_eq(verbs_args_parse(NULL, &args, &err), 0);
	cr_assert(args.device[0] == 0 && args.port == 0 && args.gid == -1 && args.rx_slots == VERBS_RX_SLOTS);
	cr_assert_eq(
		verbs_args_parse("rxe0,port=2,gid=3,rx_slots=64,mtu=1024,dscp=off,sl=0/1/2/3/4/5/6/15", &args, &err), 0,
		"%s", err.text);
	cr_assert_str_eq(args.device, "rxe0");
	cr_assert(args.port == 2 && args.gid == 3 && args.rx_slots == 64 && args.mtu == 1024);
	cr_assert(args.dscp.tos[7] == 0 && args.sl[7] == 15 && args.sl[1] == 1);
	cr_assert_eq(verbs_args_parse("device=mlx5_0", &args, &err), 0);
	cr_assert_str_eq(args.device, "mlx5_0");
	cr_assert_eq(verbs_args_parse("port=1", &args, &err), 0);
	cr_assert_eq(verbs_args_parse("rxe0,sl=off", &args, &err), 0);
}

Test(verbs_port, args_wrong)
{
	static const struct {
		const char *text, *named;
	} wrong[] = {{"rxe0,port=0", "port=0"},
		     {"rxe0,port=256", "port=256"},
		     {"rxe0,gid=-1", "gid=-1"},
		     {"gid=1", "needs a device"},
		     {"rxe0,rx_slots=63", "rx_slots=63"},
		     {"rxe0,rx_slots=16385", "16384"},
		     {"rxe0,mtu=1023", "mtu=1023"},
		     {"rxe0,dscp=1/2", "dscp=1/2"},
		     {"rxe0,sl=0/1/2/3/4/5/6/16", "[0, 15]"},
		     {"rxe0,sl=0/1/2/3/4/5/6", "[0, 15]"},
		     {"rxe0,sl=0/1/2/3/4/5/6/7/8", "[0, 15]"},
		     {"rxe0,colour=red", "\"colour\""},
		     {"rxe0,", "is not key=value"},
		     {",", "is not key=value"},
		     {"rxe0,=1", "is not key=value"},
		     {"rxe0,rxe1", "is not key=value"},
		     {"device=", "device="}};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		cr_assert_eq(verbs_args_parse(wrong[i].text, &args, &err), -EINVAL, "%s", wrong[i].text);
		cr_assert(strstr(err.text, wrong[i].named), "%s: %s", wrong[i].text, err.text);
	}
}

/* ---- the choice ---- */

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

Test(verbs_port, choice)
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

Test(verbs_port, choice_refused)
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

/* Whatever the device refuses, nothing of it is left, and the error says what helps. */
static void cannot_open(const char *text, int error, const char *why, const char *remedy)
{
	const struct nic_config config = {.queues = 3, .args = text};
	struct nic_port *port = NULL;
	cr_assert_eq(verbs_port_ops.open(&config, &port, &err), error, "%s", err.text);
	cr_assert(!port && strstr(err.text, why) && strstr(err.text, remedy), "%s", err.text);
	cr_assert(fake_verbs.contexts == 0 && fake_verbs.pds == 0 && fake_verbs.cqs == 0 && fake_verbs.qps == 0 &&
		  fake_verbs.mrs == 0 && fake_verbs.channels == 0);
	fake_verbs_reset();
}

Test(verbs_port, open_refused)
{
	fake_verbs.reg_error = ENOMEM;
	cannot_open(NULL, -ENOMEM, "RLIMIT_MEMLOCK is", "smaller rx_slots=");
	fake_verbs.reg_error = EFAULT;
	cannot_open(NULL, -EFAULT, "registering", "Bad address");
	fake_verbs.qp_error = ENOSPC;
	cannot_open(NULL, -ENOSPC, "no queue pair", "fewer shards");
	fake_verbs.cq_error = EMFILE;
	cannot_open(NULL, -EMFILE, "no completion queue", "fewer shards");
	fake_verbs.limits.max_qp = 2;
	cannot_open(NULL, -ENOSPC, "2 queue pairs", "fewer shards");
	fake_verbs.limits.max_qp_wr = 300;
	cannot_open(NULL, -EINVAL, "hold 300 packets", "rx_slots");
	fake_verbs.post_recv = NULL;
	cannot_open("rxe9", -ENODEV, "no device \"rxe9\"", "fake0");
}

Test(verbs_port, memory_limit_text_names_what_is_needed)
{
	verbs_cannot_lock("rxe0", 1 << 20, 4 << 20, ENOMEM, "give a smaller rx_slots=", &err);
	cr_assert(strstr(err.text, "1024 KiB of the 4096"), "%s", err.text);
}

Test(verbs_port, advice)
{
	char text[4096], small[100];
	fake_verbs.devices = 2;
	verbs_advice(text, sizeof text);
	cr_assert(strstr(text, "fake0: up to 1000 queue pairs") && strstr(text, "fake1 port 1: Ethernet, PORT_ACTIVE"));
	cr_assert(strstr(text, "fake0: memory windows of type 2; bulk="));
	cr_assert(strstr(text, "gid 2: 127.0.0.1 (RoCE v2, this host only"));
	cr_assert(strstr(text, "gid 1: 127.0.0.1 (RoCE v1, not used"));
	cr_assert_eq(text[strlen(text) - 1], '\n');
	fake_verbs.limits.max_mw = 0;
	verbs_advice(text, sizeof text);
	cr_assert(strstr(text, "fake0: no memory windows of type 2; messages go in packets"));
	verbs_advice(small, sizeof small);
	cr_assert(strlen(small) == 0 || small[strlen(small) - 1] == '\n');
	fake_verbs.open_error = EACCES;
	verbs_advice(text, sizeof text);
	cr_assert(strstr(text, "/dev/infiniband/uverbs0"), "%s", text);
	fake_verbs.devices = 0;
	verbs_advice(text, sizeof text);
	cr_assert_str_eq(text, "");
	cr_assert_eq(fake_verbs.contexts, 0);
}

/* ---- addresses ---- */

Test(verbs_port, addresses_that_lead_nowhere)
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

/* ---- destinations ---- */

static void connect_self(struct verbs_port *p, int expected)
{
	struct nic_addr addr;
	verbs_port_ops.address(&p->base, &addr);
	cr_assert_eq(verbs_port_ops.connect(&p->base, &(struct nic_connect){0, &addr, 0, NULL, 0, 0, NULL}, &err),
		     expected, "%s", err.text);
}

/* To 127.1.0.1 + n. */
static void connect_elsewhere(struct verbs_port *p, unsigned n, int expected)
{
	struct nic_addr addr;
	struct verbs_blob b = p->blob;
	verbs_port_ops.address(&p->base, &addr);
	b.gid[13] = 1;
	b.gid[14] = (uint8_t)((n + 1) >> 8);
	b.gid[15] = (uint8_t)(n + 1);
	memcpy(addr.blob, &b, sizeof b);
	cr_assert_eq(verbs_port_ops.connect(&p->base, &(struct nic_connect){0, &addr, 0, NULL, 0, 0, NULL}, &err),
		     expected, "%s", err.text);
}

/* Of several that wait for the thread, it makes no handle for those that were dropped, and one for those alike. */
Test(verbs_port, asked_and_dropped)
{
	struct verbs_port *p = fixture_open("dscp=off", 1);
	fake_verbs.ah_delay_ms = 100;
	connect_elsewhere(p, 0, 0); /* keeps the thread busy */
	while (p->resolver.first)   /* it has begun */
		usleep(1000);
	for (unsigned i = 1; i < 6; i++)
		connect_elsewhere(p, i, 0);
	for (unsigned i = 1; i < 5; i++)
		verbs_port_ops.drop(&p->base, i);
	connect_elsewhere(p, 5, 0);
	cr_assert(fixture_until(p, &ups, 3));
	cr_assert_eq(fake_verbs.ahs, 2);
	fixture_step(p);
	cr_assert_eq(p->ah_sets_n, 2);
	fixture_close(p);
}

/* A neighbour that is slow to answer keeps nobody waiting but the place. */
Test(verbs_port, slow_neighbour)
{
	struct verbs_port *p = fixture_open("dscp=off", 1);
	fake_verbs.ah_delay_ms = 300;
	connect_self(p, 0);
	fixture_step(p);
	connect_self(p, 0); /* shares the question */
	cr_assert(fixture_until(p, &ups, 2));
	cr_assert_eq(fake_verbs.ahs, 1);
	/* One is dropped before it is there. */
	verbs_port_ops.drop(&p->base, 0);
	verbs_port_ops.drop(&p->base, 1);
	for (unsigned i = 0; i < p->ah_sets_n; i++)
		p->ah_sets[i]->made = 0;
	connect_self(p, 0);
	verbs_port_ops.drop(&p->base, 2);
	fake_verbs.ah_delay_ms = 0;
	connect_self(p, 0);
	cr_assert(fixture_until(p, &ups, 3));
	cr_assert(ups == 3 && fails == 0);
	fixture_close(p);
}

Test(verbs_port, neighbour_that_is_not_there)
{
	struct verbs_port *p = fixture_open(NULL, 1);
	fake_verbs.ah_error = ETIMEDOUT;
	connect_self(p, 0);
	cr_assert(fixture_until(p, &fails, 1));
	cr_assert(strstr(failed_text, "127.0.0.1") && strstr(failed_text, "no host replies"), "%s", failed_text);
	fake_verbs.ah_error = 0;
	connect_self(p, 0);
	cr_assert(fixture_until(p, &ups, 1)); /* it is resolved again */
	fixture_step(p);
	cr_assert_eq(p->ah_sets_n, 1);
	fixture_close(p);
}

/* Those that nobody uses are destroyed after a while, and there is a bound. */
Test(verbs_port, idle_and_too_many)
{
	struct verbs_port *p = fixture_open("dscp=off", 1);
	for (unsigned i = 0; i < VERBS_AH_SETS_MAX; i++)
		connect_elsewhere(p, i, 0);
	connect_elsewhere(p, VERBS_AH_SETS_MAX, -ENOSPC);
	cr_assert(strstr(err.text, "4096 address handles"), "%s", err.text);
	cr_assert(fixture_until(p, &ups, VERBS_AH_SETS_MAX));
	cr_assert_eq(fake_verbs.ahs, VERBS_AH_SETS_MAX);
	for (uint32_t i = 0; i < 10; i++)
		verbs_port_ops.drop(&p->base, i);
	fixture_step(p);
	cr_assert_eq(fake_verbs.ahs, VERBS_AH_SETS_MAX); /* not yet: the device may be sending */
	uint64_t now = verbs_now(), at = verbs_ah_sets_sweep(p, now);
	cr_assert(at > now && at <= now + VERBS_AH_IDLE_NS);
	verbs_ah_sets_sweep(p, now + VERBS_AH_IDLE_NS);
	cr_assert_eq(fake_verbs.ahs, VERBS_AH_SETS_MAX - 10);
	connect_elsewhere(p, VERBS_AH_SETS_MAX, 0);
	fixture_close(p);
}

/* ---- events ---- */

static void until_down(struct verbs_port *p, enum verbs_down down)
{
	for (unsigned i = 0; i < 5000 && p->down != down; i++, usleep(1000))
		fixture_step(p);
	cr_assert_eq(p->down, down);
}

static int reach_self(struct verbs_port *p)
{
	struct nic_addr addr;
	verbs_port_ops.address(&p->base, &addr);
	return verbs_port_ops.reach(&p->base, &addr, &err);
}

Test(verbs_port, port_down_and_up)
{
	struct verbs_port *p = fixture_open(NULL, 1);
	fake_verbs.port_state = IBV_PORT_DOWN;
	fake_verbs_event(IBV_EVENT_PORT_ERR);
	until_down(p, VERBS_PORT_DOWN);
	cr_assert_eq(reach_self(p), -ENETDOWN);
	cr_assert(strstr(err.text, "port 1 is down"));
	verbs_queue_broken(p->queues[0]); /* as soft-RoCE does then */
	for (unsigned i = 0; i < 50; i++, usleep(1000))
		fixture_step(p);
	cr_assert_eq(fixture_state(p, 0), VERBS_BROKEN);
	fake_verbs.port_state = IBV_PORT_ACTIVE;
	fake_verbs_event(IBV_EVENT_PORT_ACTIVE);
	until_down(p, VERBS_UP);
	for (unsigned i = 0; i < 5000 && fixture_state(p, 0) == VERBS_BROKEN; i++, usleep(1000))
		fixture_step(p);
	cr_assert_eq(fixture_state(p, 0), VERBS_RECOVERED);
	cr_assert_eq(reach_self(p), 0);
	fake_verbs.gids[2].gid.raw[15]++;
	fake_verbs_event(IBV_EVENT_GID_CHANGE);
	until_down(p, VERBS_GID_GONE);
	cr_assert_eq(reach_self(p), -EADDRNOTAVAIL);
	cr_assert(strstr(err.text, "has lost address 127.0.0.1"));
	fixture_close(p);
}

/* The device is let go of when all queues have left it, and not before; what remains does no harm. */
Test(verbs_port, device_is_removed)
{
	struct verbs_port *p = fixture_open(NULL, 2);
	struct nic_pkt pkts[4];
	uint32_t peer = fixture_dest(p, p, 0);
	fixture_commit(p, peer, 1, 100, 0);
	fixture_flush(p);
	fixture_commit(p, peer, 2, 100, 0); /* waits */
	fake_verbs_event(IBV_EVENT_DEVICE_FATAL);
	until_down(p, VERBS_GONE);
	for (unsigned i = 0; i < 20; i++)
		fixture_step(p);
	cr_assert_eq(fake_verbs.qps, 2);
	cr_assert_eq(verbs_queue_ops.recv(&p->queues[0]->base, pkts, 4), 0);
	cr_assert_eq(fixture_state(p, 0), VERBS_RELEASED);
	fixture_step(p);
	cr_assert_eq(fake_verbs.qps, 2);
	verbs_queue_ops.flush(&p->queues[1]->base);
	for (unsigned i = 0; i < 5000 && fake_verbs.contexts; i++, usleep(1000))
		fixture_step(p);
	cr_assert(fake_verbs.contexts == 0 && fake_verbs.qps == 0 && fake_verbs.ahs == 0);
	/* The holder does not know of it. */
	for (uint64_t i = 0; i < 1000; i++)
		cr_assert_eq(fixture_commit(p, peer, i, 100, 7), 0);
	fixture_flush(p);
	verbs_queue_ops.arm(&p->queues[0]->base);
	verbs_queue_ops.wake_clear(&p->queues[0]->base);
	cr_assert_eq(verbs_queue_ops.recv(&p->queues[0]->base, pkts, 4), 0);
	verbs_queue_ops.disarm(&p->queues[0]->base);
	verbs_queue_ops.wake(&p->queues[0]->base);
	cr_assert(fixture_stats(p).tx_dropped >= 1001);
	connect_self(p, -ENODEV);
	cr_assert(strstr(err.text, "was removed or has failed"));
	verbs_queue_ops.detach(&p->queues[0]->base, peer);
	verbs_port_ops.drop(&p->base, peer);
	fixture_close(p);
}

/* While a neighbour is resolved, and a queue is broken. */
Test(verbs_port, device_is_removed_in_the_middle)
{
	struct verbs_port *p = fixture_open(NULL, 1);
	struct nic_pkt pkts[4];
	fake_verbs.ah_delay_ms = 50;
	connect_self(p, 0);
	verbs_queue_broken(p->queues[0]);
	fake_verbs_event(IBV_EVENT_DEVICE_FATAL);
	until_down(p, VERBS_GONE);
	verbs_queue_ops.recv(&p->queues[0]->base, pkts, 4);
	cr_assert_eq(fixture_state(p, 0), VERBS_RELEASED);
	for (unsigned i = 0; i < 5000 && fake_verbs.contexts; i++, usleep(1000))
		fixture_step(p);
	cr_assert_eq(fake_verbs.contexts, 0);
	for (unsigned i = 0; i < 5000 && !ups && !fails; i++, usleep(1000))
		fixture_step(p);
	cr_assert(ups + fails == 1, "one of the two: it is settled");
	fixture_close(p);
}

/* It reports nothing, and its node stays; what is there now of the same name is another device. */
Test(verbs_port, device_is_removed_in_silence)
{
	char dir[] = "/tmp/farcall-entry.XXXXXX", entry[64], other[64];
	cr_assert(mkdtemp(dir));
	snprintf(entry, sizeof entry, "%s/uverbs0", dir);
	snprintf(other, sizeof other, "%s/uverbs1", dir);
	fake_verbs.entry = entry;
	for (unsigned how = 0; how < 2; how++) {
		cr_assert_eq(mkdir(entry, 0700), 0);
		struct verbs_port *p = fixture_open(NULL, 1);
		uint64_t now = verbs_now(), next = verbs_port_ops.step(&p->base, now, on_event, NULL);
		cr_assert_leq(next, now + VERBS_ENTRY_NS);
		cr_assert_eq(verbs_port_ops.step(&p->base, next, on_event, NULL), next + VERBS_ENTRY_NS);
		cr_assert_eq(p->down, VERBS_UP);
		cr_assert_eq(mkdir(other, 0700), 0);
		cr_assert_eq(how ? rename(other, entry) : rmdir(entry), 0);
		verbs_port_ops.step(&p->base, next + VERBS_ENTRY_NS - 1, on_event, NULL);
		cr_assert_eq(p->down, VERBS_UP, "not looked at before its time");
		verbs_port_ops.step(&p->base, next + VERBS_ENTRY_NS, on_event, NULL);
		cr_assert_eq(p->down, VERBS_GONE);
		verbs_queue_ops.flush(&p->queues[0]->base);
		for (unsigned i = 0; i < 5000 && fake_verbs.contexts; i++, usleep(1000))
			fixture_step(p);
		cr_assert_eq(fake_verbs.contexts, 0);
		fixture_close(p);
		cr_assert_eq(rmdir(how ? entry : other), 0);
	}
	rmdir(dir);
}
