/* SPDX-License-Identifier: BSD-3-Clause */
/** Ports on an interface of the kernel: sizes of packets and rings, memory that may be locked, what is reserved of the
 * kernel, when an open is tried again. The test's thread. */
#include "nic/dpdk/dpdk.h"
#include "open_files.h"
#include "veth.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static struct dpdk_port p;
static struct nic_err err;

static void parse(const char *args, unsigned queues)
{
	memset(&p, 0, sizeof p);
	cr_assert_eq(dpdk_args_parse(args, &p.args, &err), 0, "%s", err.text);
	p.queues_n = queues;
	p.xdp_object = p.xdp_link = -1;
	p.iface.mtu = 1500;
}

/* The interface's MTU, that of mtu=, and what an mbuf of net_af_xdp holds, which lies within a page. */
Test(dpdk_iface, sizes_of_packets)
{
	parse("net_af_packet0,iface=x", 1);
	cr_assert(dpdk_iface_mtu(&p) == 1500 && dpdk_iface_room(&p) == 2048);
	p.args.mtu = 1400;
	cr_assert_eq(dpdk_iface_mtu(&p), 1400);
	p.args.mtu = 9000;
	cr_assert_eq(dpdk_iface_mtu(&p), 1500);
	p.args.mtu = 0;
	p.iface.mtu = 1 << 20;
	cr_assert_eq(dpdk_iface_mtu(&p), UINT16_MAX);
	parse("net_af_packet0,iface=x,framesz=4096", 1);
	cr_assert_eq(dpdk_iface_room(&p), 4096u);
	parse("net_af_xdp0,iface=x", 1);
	cr_assert(dpdk_iface_mtu(&p) == 1500 && dpdk_iface_room(&p) == 2048);
	p.iface.mtu = 2000;
	cr_assert(dpdk_iface_mtu(&p) == 2000 && dpdk_iface_room(&p) == 2000 + 256 + 14 + 4);
	p.iface.mtu = 9000;
	cr_assert(dpdk_iface_mtu(&p) > 3300 && dpdk_iface_mtu(&p) < 3700, "%u", dpdk_iface_mtu(&p));
	cr_assert_leq(dpdk_iface_room(&p) + RTE_PKTMBUF_HEADROOM + sizeof(struct rte_mbuf), 4096u);
}

Test(dpdk_iface, polls_that_cost)
{
	parse("net_af_packet0,iface=x", 1);
	cr_assert_not(dpdk_iface_poll_costs(&p));
	parse("net_af_xdp0,iface=x", 1);
	cr_assert(dpdk_iface_poll_costs(&p));
	parse("net_af_xdp0,iface=x,busy_budget=0", 1);
	cr_assert_not(dpdk_iface_poll_costs(&p));
}

/* The kernel counts what it shares with a process that has no CAP_IPC_LOCK. */
static void may_lock_kib(unsigned kib)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	const struct rlimit limit = {kib << 10, kib << 10};
	cr_assert_eq(syscall(SYS_capget, &head, data), 0);
	data[0].effective &= ~(1u << CAP_IPC_LOCK);
	cr_assert_eq(syscall(SYS_capset, &head, data), 0);
	cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

Test(dpdk_iface, memory_that_may_be_locked)
{
	may_lock_kib(64);
	parse("net_af_packet0,iface=x", 1);
	cr_assert_eq(dpdk_iface_may_lock(&p, 1 << 30, &err), 0, "its buffers are the process's own");
	parse("net_af_xdp0,iface=x", 1);
	p.xdp_rings = 4;
	cr_assert_eq(dpdk_iface_may_lock(&p, 16 << 10, &err), 0);
	cr_assert_eq(dpdk_iface_may_lock(&p, 17 << 10, &err), -ENOMEM);
	cr_assert(strstr(err.text, "net_af_xdp0 locks 68 KiB of memory, but `ulimit -l` allows 64: raise it"), "%s",
		  err.text);
}

/* Only queues of the kernel that are still held are worth another try. */
Test(dpdk_iface, failures_that_stay)
{
	struct nic_err held = {"Failed to create xsk socket"}, other = {"no memory"};
	parse("net_af_packet0,iface=x", 1);
	cr_assert_not(dpdk_iface_retry(&p, 0, &held));
	parse("net_af_xdp0,iface=x", 1);
	cr_assert_not(dpdk_iface_retry(&p, 0, &other));
	cr_assert_not(dpdk_iface_retry(&p, 0, NULL));
	cr_assert_not(dpdk_iface_retry(&p, 100, &held), "the last try");
	cr_assert_eq(dpdk_iface_attach_link(&p, &err), 0, "without a filter there is no link");
	dpdk_iface_detach_link(&p);
	dpdk_iface_close(&p);
	dpdk_iface_close(&p);
}

static void opened(const char *args, unsigned queues)
{
	parse(args, queues);
	cr_assert_eq(dpdk_iface_open(&p, &(struct nic_config){.queues = queues}, &err), 0, "%s", err.text);
}

/* Expect UDP ports of the kernel reserved for each queue, kicks received, and rings as large as the interface needs. */
Test(dpdk_iface, what_it_takes_of_the_kernel, .init = veth_setup)
{
	unsigned before = open_files();
	opened("net_af_packet0,iface=far0", 1);
	cr_assert(p.reserved_ports.n == 1 && p.kicks.n == 1 && !p.ip.v6 && p.iface.mtu == 1400);
	cr_assert_null(strstr(p.args.devargs, "qpairs"));
	cr_assert_null(strstr(p.args.devargs, "framesz"));
	cr_assert_eq(open_files(), before + 2);
	dpdk_iface_close(&p);
	cr_assert_eq(open_files(), before);
	veth_run("ip link set far0 mtu 9000");
	opened("net_af_packet0,iface=far0", 2);
	cr_assert(p.reserved_ports.n == 2 && p.kicks.n == 2);
	cr_assert(strstr(p.args.devargs, ",qpairs=2"), "%s", p.args.devargs);
	cr_assert(strstr(p.args.devargs, ",framesz=12288,blocksz=12288"), "%s", p.args.devargs);
	dpdk_iface_close(&p);
	opened("net_af_packet0,iface=far0,framesz=16384", 1);
	cr_assert_null(strstr(p.args.devargs, "framesz=12288"));
	dpdk_iface_close(&p);
	cr_assert_eq(open_files(), before);
}

/* Little memory may be locked. Expect a shorter ring, and an error with both figures where none would do. */
Test(dpdk_iface, rings_within_the_limit, .init = veth_setup)
{
	may_lock_kib(1024);
	opened("net_af_packet0,iface=far0", 1);
	cr_assert(strstr(p.args.devargs, ",framecnt=256"), "%s", p.args.devargs);
	dpdk_iface_close(&p);
	may_lock_kib(64);
	parse("net_af_packet0,iface=far0", 1);
	cr_assert_eq(dpdk_iface_open(&p, &(struct nic_config){.queues = 1}, &err), -ENOMEM);
	cr_assert(strstr(err.text, "net_af_packet0 locks 256 KiB of memory, but `ulimit -l` allows 64"), "%s",
		  err.text);
	dpdk_iface_close(&p);
}

/* Nothing is changed. */
Test(dpdk_iface, probed, .init = veth_setup)
{
	const struct nic_config config = {.queues = 1};
	unsigned before = open_files();
	parse("net_af_packet0,iface=far0", 1);
	cr_assert_eq(dpdk_iface_probe(&p.args, &config, &err), 0, "%s", err.text);
	parse("net_af_packet0,iface=far9", 1);
	cr_assert_eq(dpdk_iface_probe(&p.args, &config, &err), -ENODEV);
	cr_assert(strstr(err.text, "far9"), "%s", err.text);
	cr_assert_eq(open_files(), before);
}
