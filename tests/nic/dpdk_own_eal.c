/* SPDX-License-Identifier: BSD-3-Clause */
/** An application that uses DPDK itself: EAL is its own, and a port that it made is taken by its name, and left there.
 * Main thread of each process. */
#include "dpdk_ends.h"

#include <rte_eal.h>
#include <rte_ethdev.h>

int main(int argc, char **argv)
{
	static char words[][24] = {"own_eal",        "--no-huge",     "-m", "64",           "--no-shconf",
				   "--no-telemetry", "--log-level=1", "-a", "0000:00:00.0", "--vdev=net_null0"};
	char *args[sizeof words / sizeof *words + 1] = {0};
	struct end own, s, c;
	struct nic_addr to;
	struct nic_err err;
	uint16_t id;
	char at[2][256];
	alarm(150);
	for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
		args[i] = words[i];
	REQUIRE(rte_eal_init((int)(sizeof words / sizeof *words), args) >= 0);
	for (unsigned round = 0; round < 2; round++) {
		end_open(&own, "net_null0", 1);
		REQUIRE(end_try(&s, "net_null0", 1, &err) == -EBUSY && strstr(err.text, "in use in this process"));
		own.ops->close(own.port);
		REQUIRE(rte_eth_dev_get_port_by_name("net_null0", &id) == 0);
	}
	struct rte_eth_dev_owner other = {.name = "the application"};
	REQUIRE(rte_eth_dev_owner_new(&other.id) == 0 && rte_eth_dev_owner_set(id, &other) == 0);
	REQUIRE(end_try(&s, "net_null0", 1, &err) == -EBUSY);
	for (unsigned i = 0; i < 2; i++)
		snprintf(at[i], sizeof at[i], "net_memif%u,role=%s,socket=own-eal-%d", i, i ? "client" : "server",
			 (int)getpid());
	end_open(&s, at[0], 1);
	end_open(&c, at[1], 1);
	s.ops->address(s.port, &to);
	uint32_t peer = end_connect(&c, 0, &to, 0);
	for (unsigned i = 0; i < 1000; i++)
		exchange(&c, 0, peer, &s, 0, 1 + i, 16 + i);
	s.ops->close(s.port);
	c.ops->close(c.port);
	REQUIRE(rte_eth_dev_count_total() == 1);
	REQUIRE(rte_eth_dev_owner_get(id, &other) == 0 && strcmp(other.name, "the application") == 0);
	/* rte_eal_cleanup() would wake EAL's interrupt thread, not wait for it, and unmap the entry of the listener
	 * that DPDK's memif leaves in the list that the thread reads then. */
	return 0;
}
