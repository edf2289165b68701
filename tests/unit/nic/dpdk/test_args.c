/* SPDX-License-Identifier: BSD-3-Clause */
/** What nic=dpdk:DEVICE,... may say: keys of this driver, those that are passed on, and how a device is classified.
 * The test's thread. */
#include "nic/dpdk/dpdk.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct dpdk_args a;
static struct nic_err err;

static void parse(const char *text)
{
	cr_assert_eq(dpdk_args_parse(text, &a, &err), 0, "%s: %s", text, err.text);
}

Test(dpdk_args, classes)
{
	static const struct {
		const char *text, *name, *bus;
		enum dpdk_class class;
		bool pci, beyond_host;
	} cases[] = {
		{"net_memif3,role=client", "net_memif3", "vdev", DPDK_MEMIF, false, false},
		{"net_af_packet0,iface=eth0", "net_af_packet0", "vdev", DPDK_IFACE, false, true},
		{"net_af_xdp0,iface=eth0", "net_af_xdp0", "vdev", DPDK_IFACE, false, true},
		{"eth_af_packet0,iface=eth0", "eth_af_packet0", "vdev", DPDK_IFACE, false, true},
		{"net_null0", "net_null0", "vdev", DPDK_OWN, false, false},
		{"net_tap0,iface=tap7", "net_tap0", "vdev", DPDK_OWN, false, true},
		{"net_pcap0,tx_pcap=/tmp/x", "net_pcap0", "vdev", DPDK_OWN, false, false},
		{"net_pcap0,iface=eth0", "net_pcap0", "vdev", DPDK_OWN, false, true},
		{"net_pcap0,rx_iface=eth0,tx_pcap=/x", "net_pcap0", "vdev", DPDK_OWN, false, true},
		{"net_virtio_user0,path=/run/sock", "net_virtio_user0", "vdev", DPDK_OWN, false, false},
		{"net_virtio_user0,path=/dev/vhost-net", "net_virtio_user0", "vdev", DPDK_OWN, false, true},
		{"net_vhost0,iface=/run/sock", "net_vhost0", "vdev", DPDK_OWN, false, false},
		{"03:00.0", "0000:03:00.0", "pci", DPDK_OWN, true, true},
		{"0000:AF:1f.7", "0000:af:1f.7", "pci", DPDK_OWN, true, true},
		{"mine", "mine", NULL, DPDK_OWN, false, true},
	};
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		parse(cases[i].text);
		cr_assert_str_eq(a.name, cases[i].name);
		cr_assert(cases[i].bus ? a.bus && strcmp(a.bus, cases[i].bus) == 0 : !a.bus, "%s", cases[i].text);
		cr_assert(a.class == cases[i].class && a.pci == cases[i].pci, "%s", cases[i].text);
		cr_assert_eq(a.beyond_host, cases[i].beyond_host, "%s", cases[i].text);
		cr_assert(a.huge == -1 && a.rxd == 0 && a.mtu == 0 && a.port == 0 && !a.has_ip);
	}
}

Test(dpdk_args, keys_of_this_driver)
{
	parse("03:00.0,huge=0,mtu=9000,port=7000,rxd=512,txd=64,dscp=off,ip=10.1.2.3,vlan=4094,gw=10.1.2.254,"
	      "neighbour=10.1.2.9/02:00:00:00:00:09,neighbour=fd00::9/02:00:00:00:00:0a,other=kept,more=also");
	cr_assert(a.huge == 0 && a.mtu == 9000 && a.port == 7000 && a.rxd == 512 && a.txd == 64 && a.vlan == 4094);
	cr_assert(a.dscp.tos[7] == 0 && a.has_ip && !a.v6 && a.prefix == 24 && memcmp(a.ip, "\12\1\2\3", 4) == 0);
	cr_assert(a.has_gw && !a.gw_v6 && a.gw[3] == 254 && !a.has_router);
	cr_assert(a.static_neighbours_n == 2 && !a.static_neighbours[0].v6 && a.static_neighbours[1].v6);
	cr_assert(a.static_neighbours[0].mac[5] == 9 && a.static_neighbours[1].mac[5] == 10);
	cr_assert_str_eq(a.devargs, "other=kept,more=also", "the rest is the device's");
	parse("03:00.0,ip=fd00::5/48,router=02:00:00:00:00:01");
	cr_assert(a.v6 == 1 && a.prefix == 48 && a.has_router && a.router[5] == 1);
	cr_assert_str_eq(a.devargs, "");
	parse("03:00.0,ip=fd00::5");
	cr_assert_eq(a.prefix, 64u);
}

Test(dpdk_args, memif)
{
	parse("net_memif0,role=server");
	cr_assert(a.server && a.abstract && a.id == 0 && a.bsize == 8192);
	cr_assert_str_eq(a.socket, "/run/memif.sock", "memif's own default");
	parse("net_memif0,role=client,id=4294967295,bsize=16384,socket=/run/"
	      "x,socket-abstract=no,zero-copy=no,mtu=1500");
	cr_assert(!a.server && !a.abstract && a.id == UINT32_MAX && a.bsize == 16384 && a.mtu == 1500);
	cr_assert_str_eq(a.socket, "/run/x");
	cr_assert_str_eq(a.devargs, "bsize=8192,rsize=8,role=client,id=4294967295,bsize=16384,zero-copy=no",
			 "ours, and then those given, without the socket, which is the proxy's");
}

static void wrong(const char *text, int error, const char *named)
{
	cr_assert_eq(dpdk_args_parse(text, &a, &err), error, "\"%s\"", text);
	cr_assert(strstr(err.text, named), "\"%s\": %s", text, err.text);
}

Test(dpdk_args, wrong)
{
	wrong(NULL, -ENODEV, "no device given");
	wrong("", -ENODEV, "nic=dpdk:net_memif0");
	wrong(",net_null0", -EINVAL, "is not a device");
	wrong("role=server", -EINVAL, "is not a device");
	wrong("net null0", -EINVAL, "is not a device");
	wrong("net_null0,size", -EINVAL, "\"size\" after net_null0 is not key=value");
	wrong("net_null0,=1", -EINVAL, "is not key=value");
	wrong("net_af_packet0", -EINVAL, "net_af_packet0 needs iface=");
	wrong("net_memif0,id=1", -EINVAL, "needs role=server on one side and role=client");
	static const struct {
		const char *pair, *named;
	} own[] = {
		{"huge=2", "0 or 1"},
		{"mtu=255", "256 to 65535"},
		{"mtu=65536", "256 to 65535"},
		{"port=0", "1 to 65520"},
		{"port=65521", "1 to 65520"},
		{"rxd=31", "32 to 4096"},
		{"txd=4097", "txd=4097"},
		{"txd=64x", "32 to 4096"},
		{"dscp=1/2", "eight numbers"},
		{"vlan=0", "1 to 4094"},
		{"vlan=4095", "1 to 4094"},
		{"router=01:00:00:00:00:01", "the MAC address of a router"},
		{"router=02:00:00:00:00", "the MAC address of a router"},
		{"router=02:00:00:00:00:01:02", "the MAC address of a router"},
		{"gw=10.0.0", "the IP address of a router"},
		{"neighbour=10.0.0.1", "an IP and a MAC address"},
		{"neighbour=10.0.0.1/01:00:00:00:00:01", "an IP and a MAC address"},
		{"ip=10.0.0.1/0", "as 10.0.0.1/24"},
		{"ip=10.0.0.1/33", "as 10.0.0.1/24"},
		{"ip=fd00::1/129", "as 10.0.0.1/24"},
		{"ip=10.0.0", "as 10.0.0.1/24"},
		{"ip=10.0.0.1/24,gw=10.0.1.1", "gw=10.0.1.1 is not in the subnet of ip="},
		{"gw=10.0.0.1", "is not in the subnet of ip="},
		{"ip=10.0.0.2/24,gw=10.0.0.1,router=02:00:00:00:00:01", "leave one of them out"},
	};
	for (unsigned i = 0; i < sizeof own / sizeof *own; i++) {
		char text[128];
		snprintf(text, sizeof text, "03:00.0,%s", own[i].pair);
		wrong(text, -EINVAL, own[i].named);
	}
	/* What is the kernel's on an interface. */
	wrong("net_af_packet0,iface=eth0,vlan=5", -EINVAL, "give iface= the VLAN interface");
	wrong("net_af_packet0,iface=eth0,gw=10.0.0.1", -EINVAL, "the kernel's routes apply");
	wrong("net_af_packet0,iface=eth0,neighbour=10.0.0.1/02:00:00:00:00:01", -EINVAL, "ip neigh");
	/* memif's driver ignores all arguments beside one that it does not know. */
	wrong("net_memif0,role=server,ringsize=5", -EINVAL, "not a memif argument");
	wrong("net_memif0,role=both", -EINVAL, "server or client");
	wrong("net_memif0,role=server,id=-1", -EINVAL, "the same on both sides");
	wrong("net_memif0,role=server,bsize=255", -EINVAL, "256 to 16384");
	wrong("net_memif0,role=server,zero-copy=yes", -EINVAL, "not supported");
}

Test(dpdk_args, as_long_as_they_may_be)
{
	char text[2000];
	int n = snprintf(text, sizeof text, "net_memif0,role=server,socket=");
	memset(text + n, '/', 106);
	text[n + 106] = 0;
	parse(text);
	cr_assert_eq(strlen(a.socket), 106u);
	strcat(text, "/");
	wrong(text, -EINVAL, "at most 106 bytes");
	snprintf(text, sizeof text, "net_null0");
	for (unsigned i = 0; i < 70; i++)
		strcat(text, ",key=val");
	wrong(text, -EINVAL, "the arguments of net_null0 take more than 511 bytes");
	memset(text, 'x', 1100);
	text[1100] = 0;
	wrong(text, -EINVAL, "exceed 1023 bytes");
	text[RTE_DEV_NAME_MAX_LEN] = 0;
	wrong(text, -EINVAL, "is not a device");
	text[RTE_DEV_NAME_MAX_LEN - 1] = 0;
	parse(text);
	/* As many neighbours as there is room for. */
	n = snprintf(text, sizeof text, "03:00.0");
	for (unsigned i = 0; i <= DPDK_STATIC_NEIGHBOURS_MAX; i++) {
		if (i)
			parse(text);
		n += snprintf(text + n, sizeof text - (size_t)n, ",neighbour=10.0.0.%u/02:00:00:00:00:01", i);
	}
	wrong(text, -EINVAL, "8 at most");
}
