/* SPDX-License-Identifier: BSD-3-Clause */
/** Arguments of a port, and the addresses of others. The test's thread. */
#include "nic/sim/sim_port.h"
#include "sim_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(sim_args, .init = sim_fixture_init, .fini = sim_fixture_fini);

Test(sim_args, arguments_are_read_word_by_word)
{
	static const struct {
		const char *args, *word;
	} bad[] = {
		{"rx", "\"rx\""},          {"rx=", "rx="},           {"rx=0", "rx="},
		{"rx=1x", "rx="},          {"tx=-1", "tx="},         {"tx=99999999999", "tx="},
		{"align=3", "align=3"},    {"align=128", "align="},  {"queues=17", "queues="},
		{"hash,,hold", "none of"}, {"Hash", "\"Hash\""},     {",", "none of"},
		{"peers=0", "peers="},     {"loss=1", "\"loss=1\""},
	};
	sim_fixture.args = "rx=5,tx=6,align=2,queues=3,peers=7,hash,hold,kick";
	sim_fixture_open(1);
	struct nic_caps caps;
	sim_fixture.ends[0].port->ops->caps(sim_fixture.ends[0].port, &caps);
	cr_assert(caps.slots == 6 && caps.body_align == 2 && caps.queues_max == 3 && caps.peers_max == 7);
	cr_assert(caps.steering == NIC_STEER_HASH && caps.zero_copy_rx && !caps.wake && !caps.connected);
	sim_fixture_port_close(0);
	for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
		const struct nic_config config = {.queues = 1, .args = bad[i].args};
		struct nic_err err = {""};
		struct nic_port *port = NULL;
		cr_assert_eq(sim_port_open(sim_fixture.ends[0].host, 0, &config, &port, &err), -EINVAL, "%s",
			     bad[i].args);
		cr_assert(strstr(err.text, bad[i].word), "%s: %s", bad[i].args, err.text);
		cr_assert_null(port);
	}
	const struct nic_config heads = {.queues = 1, .head_bytes = 28}, many = {.queues = 17}, none = {0};
	struct nic_err err;
	struct nic_port *port;
	cr_assert_eq(sim_port_open(sim_fixture.ends[0].host, 0, &heads, &port, &err), -EINVAL);
	cr_assert_eq(sim_port_open(sim_fixture.ends[0].host, 0, &many, &port, &err), -EINVAL);
	cr_assert_eq(sim_port_open(sim_fixture.ends[0].host, 0, &none, &port, &err), -EINVAL);
	cr_assert_eq(sim_port_ops(0)->open(&none, &port, &err), -EINVAL);
	cr_assert_null(sim_port_ops(4));
}

Test(sim_args, addresses_of_others_are_refused)
{
	struct nic_addr addr, bad;
	struct nic_err err = {""};
	unsigned host, rail;
	char text[NIC_TEXT_BYTES_MAX];
	sim_fixture.queues = 2;
	sim_fixture_open(2);
	struct nic_port *port = sim_fixture.ends[0].port;
	sim_fixture.ends[1].port->ops->address(sim_fixture.ends[1].port, &addr);
	cr_assert_eq(sim_address_host(&addr, &host, &rail), 0);
	cr_assert(host == 1 && rail == 0);
	port->ops->address_text(&addr, text, sizeof text);
	cr_assert_str_eq(text, "sim host 1, queues 0 to 1");
	for (unsigned i = 0; i < addr.len; i++) {
		bad = addr;
		bad.blob[i] ^= 1;
		cr_assert_eq(port->ops->reach(port, &bad, &err), -EINVAL);
		cr_assert_eq(sim_address_host(&bad, &host, &rail), -EINVAL);
		bad = addr;
		bad.len = (uint16_t)i;
		cr_assert_eq(port->ops->reach(port, &bad, &err), -EINVAL);
	}
	/* Another world, and a host that is not there. */
	struct sim_config config;
	struct sim_host_config hc;
	sim_config_init(&config, 2);
	sim_host_config_init(&hc);
	for (uint64_t seed = 1; seed <= 2; seed++) {
		config.seed = seed;
		struct sim *other = sim_create(&config, &err);
		for (unsigned i = 0; i < 3; i++)
			sim_host_add(other, &hc, &err);
		const struct nic_config nc = {.queues = 1};
		struct nic_port *theirs;
		cr_assert_eq(sim_port_open(sim_host(other, 2), 0, &nc, &theirs, &err), 0);
		theirs->ops->address(theirs, &bad);
		cr_assert_eq(port->ops->reach(port, &bad, &err), seed == 1 ? -EHOSTUNREACH : -ENETUNREACH);
		theirs->ops->close(theirs);
		sim_destroy(other);
	}
}

/* A text with an error changes nothing; words that are repeated replace each other. */
Test(sim_args, all_or_nothing)
{
	struct sim_nic nic = {.queues_max = 4, .rx_slots = 10, .tx_slots = 20, .body_align = 8, .peers_max = 30};
	const struct sim_nic before = nic;
	struct nic_err err = {""};
	cr_assert_eq(sim_args_parse(NULL, &nic, &err), 0);
	cr_assert_eq(sim_args_parse("", &nic, &err), 0);
	cr_assert_eq(memcmp(&nic, &before, sizeof nic), 0);
	cr_assert_eq(sim_args_parse("rx=5,hash,tx=0", &nic, &err), -EINVAL);
	cr_assert(strstr(err.text, "\"tx=0\": tx= takes 1 to 1048576"), "%s", err.text);
	cr_assert_eq(sim_args_parse("rx=5,align=24", &nic, &err), -EINVAL);
	cr_assert_eq(memcmp(&nic, &before, sizeof nic), 0);
	cr_assert_eq(sim_args_parse("rx=1,rx=1048576,hold,copy,peers=1,", &nic, &err), 0, "%s", err.text);
	cr_assert(nic.rx_slots == 1048576 && !nic.zero_copy && nic.peers_max == 1 && nic.tx_slots == 20);
}

Test(sim_args, addresses_and_back)
{
	static const struct sim_addr good[] = {
		{.world = 0, .host = 0, .rail = 0, .queues = 1},
		{.world = UINT64_MAX,
		 .host = SIM_HOSTS_MAX - 1,
		 .rail = SIM_RAILS_MAX - 1,
		 .queues = SIM_QUEUES_MAX,
		 .hash = true},
	};
	static const struct sim_addr bad[] = {
		{.host = SIM_HOSTS_MAX, .queues = 1},
		{.rail = SIM_RAILS_MAX, .queues = 1},
		{.queues = 0},
		{.queues = SIM_QUEUES_MAX + 1},
	};
	struct nic_addr addr = {.len = SIM_ADDR_BYTES};
	struct sim_addr out;
	for (unsigned i = 0; i < 2; i++) {
		sim_addr_encode(&good[i], addr.blob);
		cr_assert(sim_addr_decode(&addr, &out));
		cr_assert(out.world == good[i].world && out.host == good[i].host && out.rail == good[i].rail);
		cr_assert(out.queues == good[i].queues && out.hash == good[i].hash);
	}
	for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
		sim_addr_encode(&bad[i], addr.blob);
		cr_assert_not(sim_addr_decode(&addr, &out), "%u", i);
	}
}
