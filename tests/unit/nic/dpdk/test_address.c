/* SPDX-License-Identifier: BSD-3-Clause */
/** Published addresses of dpdk ports: which are well-formed, which lead somewhere, and their texts.
 * The test's thread. */
#include "nic/dpdk/dpdk.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct dpdk_port p;
static struct nic_err err;

static struct dpdk_blob blob(enum dpdk_class class, uint8_t number)
{
	struct dpdk_blob b = {.version = DPDK_BLOB_VERSION,
			      .class = (uint8_t) class,
			      .queues = 2,
			      .prefix = 24,
			      .mac = {2, 0, 0, 0, 0, number},
			      .ip = {10, 8, 0, number},
			      .port = 7471,
			      .body = 1472,
			      .name = "net0"};
	return b;
}

static struct nic_addr addr_of(const struct dpdk_blob *b)
{
	struct nic_addr addr = {.driver = "dpdk", .len = sizeof *b};
	memcpy(addr.blob, b, sizeof *b);
	return addr;
}

static int reads(const struct dpdk_blob *b)
{
	struct nic_addr addr = addr_of(b);
	struct dpdk_blob out;
	int error = dpdk_blob_read(&addr, &out, &err);
	if (!error)
		cr_assert_eq(memcmp(&out, b, sizeof out), 0);
	return error;
}

Test(dpdk_address, well_formed)
{
	const struct dpdk_blob good = blob(DPDK_OWN, 1);
	struct dpdk_blob b;
#define TRY(change, expected)                                                                                          \
	do {                                                                                                           \
		b = good;                                                                                              \
		change;                                                                                                \
		cr_assert_eq(reads(&b), expected, "%s", #change);                                                      \
	} while (0)
	TRY((void)0, 0);
	TRY(b.version++, -EINVAL);
	cr_assert(strstr(err.text, "version 2 is not supported, only 1"), "%s", err.text);
	TRY(b.class = DPDK_OWN + 1, -EINVAL);
	TRY(b.queues = 0, -EINVAL);
	TRY(b.queues = DPDK_QUEUES_MAX, 0);
	TRY(b.queues = DPDK_QUEUES_MAX + 1, -EINVAL);
	TRY(b.v6 = 2, -EINVAL);
	TRY(b.prefix = 33, -EINVAL);
	TRY((b.v6 = 1, b.prefix = 128), 0);
	TRY((b.v6 = 1, b.prefix = 129), -EINVAL);
	TRY(b.port = 0, -EINVAL);
	TRY(b.port = 65534, 0);
	TRY(b.port = 65535, -EINVAL); /* of its second queue there is none */
	TRY(b.body = FRAME_PAYLOAD_MAX, 0);
	TRY(b.body = FRAME_PAYLOAD_MAX + 1, -EINVAL);
	TRY(memset(b.name, 'x', sizeof b.name), -EINVAL);
	struct nic_addr addr = addr_of(&good);
	addr.len--;
	cr_assert_eq(dpdk_blob_read(&addr, &b, &err), -EINVAL);
	cr_assert(strstr(err.text, "malformed address of 87 bytes"), "%s", err.text);
}

Test(dpdk_address, texts)
{
	struct dpdk_blob b = blob(DPDK_OWN, 5);
	char text[80];
	struct nic_addr addr = addr_of(&b);
	dpdk_address_text(&addr, text, sizeof text);
	cr_assert_str_eq(text, "dpdk 10.8.0.5:7471");
	b.v6 = 1;
	memset(b.ip, 0, sizeof b.ip);
	b.ip[0] = 0xfd;
	b.ip[15] = 5;
	addr = addr_of(&b);
	dpdk_address_text(&addr, text, sizeof text);
	cr_assert_str_eq(text, "dpdk [fd00::5]:7471");
	b = blob(DPDK_MEMIF, 5);
	b.id = 4000000000u;
	b.server = 1;
	addr = addr_of(&b);
	dpdk_address_text(&addr, text, sizeof text);
	cr_assert_str_eq(text, "dpdk memif id 4000000000 (server)");
	addr.len = 0;
	dpdk_address_text(&addr, text, sizeof text);
	cr_assert_str_eq(text, "dpdk (malformed)");
	const struct frame_addr at = dpdk_blob_frame_addr(&b);
	cr_assert(at.port == 7471 && at.v6 == 0 && at.mac[5] == 5 && at.ip[3] == 5);
}

Test(dpdk_address, subnets)
{
	static const struct {
		const char *a, *b;
		unsigned prefix;
		bool same;
	} cases[] = {{"10.8.0.1", "10.8.0.254", 24, true}, {"10.8.0.1", "10.8.1.1", 24, false},
		     {"10.8.0.1", "10.8.1.1", 23, true},   {"10.8.0.1", "10.8.2.1", 23, false},
		     {"10.8.0.1", "192.0.2.1", 0, true},   {"10.8.0.1", "10.8.0.1", 32, true},
		     {"10.8.0.1", "10.8.0.0", 32, false},  {"10.8.0.1", "10.8.0.0", 31, true},
		     {"fd00::1", "fd00::ffff", 112, true}, {"fd00::1", "fd00::1:0", 112, false},
		     {"fd00::1", "fd00::1", 128, true},    {"10.8.0.1", "a08:1::", 24, false},
		     {"10.8.0.1", "a08:1::", 0, false}};
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint8_t a[16] = {0}, b[16] = {0};
		bool a6 = strchr(cases[i].a, ':') != NULL, b6 = strchr(cases[i].b, ':') != NULL;
		cr_assert_eq(inet_pton(a6 ? AF_INET6 : AF_INET, cases[i].a, a), 1);
		cr_assert_eq(inet_pton(b6 ? AF_INET6 : AF_INET, cases[i].b, b), 1);
		cr_assert_eq(dpdk_same_subnet(a6, a, cases[i].prefix, b6, b), cases[i].same, "%s %s/%u", cases[i].a,
			     cases[i].b, cases[i].prefix);
	}
}

static int reach(const struct dpdk_blob *b)
{
	struct nic_addr addr = addr_of(b);
	err.text[0] = 0;
	return dpdk_reach(&p.base, &addr, &err);
}

static void unreachable(const struct dpdk_blob *b, const char *why)
{
	cr_assert_eq(reach(b), -EHOSTUNREACH, "%s: %s", why, err.text);
	cr_assert(strstr(err.text, why), "%s: %s", why, err.text);
}

/* Both ends of one memif, and no other one. */
Test(dpdk_address, memif)
{
	struct dpdk_blob b;
	p.args.class = DPDK_MEMIF;
	p.blob = blob(DPDK_MEMIF, 1);
	p.blob.where = 77;
	p.blob.server = 1;
	cr_assert_eq(reach(&p.blob), 0, "itself");
	b = p.blob;
	b.mac[5] = 9;
	unreachable(&b, "both sides are memif's server; one must have role=client");
	b.server = 0;
	cr_assert_eq(reach(&b), 0, "%s", err.text);
	p.blob.server = 0;
	unreachable(&b, "both sides are memif's client; one must have role=server");
	p.blob.server = 1;
	b.id = 3;
	unreachable(&b, "memif id 0 here, 3 there; see id=");
	b.id = 0;
	b.queues = 3;
	unreachable(&b, "the same number of shards on both sides: 2 here, 3 there");
	b.queues = 2;
	b.where++;
	unreachable(&b, "uses another socket");
	b = blob(DPDK_OWN, 2);
	unreachable(&b, "net0 is memif, net0 is not");
	cr_assert(dpdk_is_on_link(&p, &b), "memif has one link");
}

Test(dpdk_address, interfaces)
{
	struct dpdk_blob b = blob(DPDK_OWN, 2);
	p.args.class = DPDK_OWN;
	p.blob = blob(DPDK_OWN, 1);
	snprintf(p.flow_text, sizeof p.flow_text, "flow rules");
	cr_assert_eq(reach(&p.blob), 0);
	cr_assert_str_eq(err.text, "flow rules", "of itself it is what `farcall info` prints");
	cr_assert_eq(reach(&b), 0, "%s", err.text);
	cr_assert(dpdk_is_on_link(&p, &b));
	b.ip[2] = 1;
	cr_assert_not(dpdk_is_on_link(&p, &b));
	unreachable(&b, "10.8.1.2 is not in the subnet of 10.8.0.1/24");
	p.args.has_gw = true;
	cr_assert_eq(reach(&b), 0, "%s", err.text);
	memcpy(b.mac, p.blob.mac, 6);
	unreachable(&b, "are the same interface");
	b = blob(DPDK_OWN, 2);
	b.v6 = 1;
	unreachable(&b, "differ in their IP version; use udp");
	b = blob(DPDK_MEMIF, 2);
	unreachable(&b, "net0 is memif, net0 is not");
}
