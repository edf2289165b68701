/* SPDX-License-Identifier: BSD-3-Clause */
/** Prints what travels on no datagram, as the engine writes it: a name and hexadecimal digits on each line.
 * Main thread. */
#include "control/info.h"
#include "control/store_wire.h"
#include "nic/udp/udp_addr.h"

#include <stdio.h>

static void print_hex(const char *name, const uint8_t *bytes, size_t len)
{
	printf("%s ", name);
	for (size_t i = 0; i < len; i++)
		printf("%02x", bytes[i]);
	putchar('\n');
}

/* A frame of the store for each operation and status, and what a member publishes. */
int main(void)
{
	static uint8_t out[STORE_FRAME_MAX];
	static const uint8_t old[300] = "old"; /* its length fills both bytes of its field */
	static struct info info = {.name = "trainer",
				   .incarnation = 0xabc,
				   .shards = 3,
				   .lazy = true,
				   .message_bytes_max = 1 << 20,
				   .addrs_n = 2,
				   .addrs = {{"shm", 3, {1, 2, 3}}, {"udp", 2, {4, 5}}}};
	static const struct udp_addr address = {.host = 0x1234,
						.netns = 0x5678,
						.queues = 2,
						.ips_n = 2,
						.ports = {7000, 7001},
						.ips = {{{.family = AF_INET, .bytes = {10, 0, 0, 1}}, false},
							{{.family = AF_INET6, .bytes = {0xfd, [15] = 9}}, true}}};
	for (unsigned op = STORE_LOGIN; op < STORE_OP_COUNT; op++) {
		bool keyless = op == STORE_LOGIN || op == STORE_PING || op == STORE_PROVE || op == STORE_REPORT;
		struct store_msg m = {
			.op = (enum store_op)op,
			.id = 1000 + op,
			.timeout_ns = 5000,
			.number = op == STORE_ADD      ? 7
				  : op == STORE_REPORT ? 9
						       : 0,
			.key = (const uint8_t *)"key",
			.key_len = keyless ? 0 : 3,
			.value = (const uint8_t *)"value",
			.value_len = op == STORE_SET || op == STORE_CAS || op == STORE_HOLD || op == STORE_COPY ? 5 : 0,
			.expected = old,
			.expected_len = op == STORE_CAS ? sizeof old : 0};
		print_hex("store", out, store_msg_encode(&m, out));
	}
	for (unsigned status = STORE_OK; status < STORE_STATUS_COUNT; status++) {
		struct store_msg m = {
			.op = STORE_GET, .reply = true, .status = (enum store_status)status, .id = status};
		print_hex("store", out, store_msg_encode(&m, out));
	}
	print_hex("info", out, info_encode(&info, out));
	print_hex("udp_address", out, udp_addr_encode(&address, out));
	return 0;
}
