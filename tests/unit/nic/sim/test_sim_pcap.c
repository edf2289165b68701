/* SPDX-License-Identifier: BSD-3-Clause */
/** Packets as a capture file. The test's thread. */
#include "sim_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

TestSuite(sim_pcap, .init = sim_fixture_init, .fini = sim_fixture_fini);

static uint32_t be16(const uint8_t *at)
{
	return (uint32_t)at[0] << 8 | at[1];
}

static unsigned always_5(const uint8_t *body, uint32_t len)
{
	return 5;
}

Test(sim_pcap, a_capture_is_what_wireshark_reads)
{
	char *file = NULL;
	size_t size;
	FILE *out = open_memstream(&file, &size);
	sim_fixture.priority_of = always_5;
	sim_fixture.queues = 3;
	sim_fixture_open(2);
	cr_assert_eq(sim_trace_pcap(sim_fixture.sim, out, true), 0);
	uint32_t at_1 = sim_fixture_dest(0, 1, 1, 2);
	cr_assert_eq(sim_fixture_send_from(0, 1, at_1, 0x1122334455667788, 100), 0);
	sim_fixture_run(100000);
	fclose(out);
	const uint8_t *f = (const uint8_t *)file, *record = f + 24, *eth = record + 16, *ip = eth + 14, *udp = ip + 20;
	uint32_t word, head[4];
	cr_assert_eq(size, 24 + 16 + 42 + 100);
	memcpy(&word, f, 4);
	cr_assert_eq(word, 0xa1b23c4d);
	memcpy(&word, f + 20, 4);
	cr_assert_eq(word, 1);
	memcpy(head, record, sizeof head);
	cr_assert(head[0] == 1 && head[1] == 2026 && head[2] == 142 && head[3] == 142, "%u", head[1]);
	cr_assert_eq(be16(eth + 12), 0x0800);
	cr_assert(ip[0] == 0x45 && ip[1] == 5 << 5 && ip[9] == 17);
	cr_assert_eq(be16(ip + 2), 128);
	uint32_t sum = 0;
	for (unsigned i = 0; i < 20; i += 2)
		sum += be16(ip + i);
	cr_assert_eq((sum & 0xffff) + (sum >> 16), 0xffff);
	const uint8_t from[] = {10, 0, 0, 0}, to[] = {10, 0, 0, 1};
	cr_assert_arr_eq(ip + 12, from, 4);
	cr_assert_arr_eq(ip + 16, to, 4);
	cr_assert(be16(udp) == 47001 && be16(udp + 2) == 47002 && be16(udp + 4) == 108);
	uint64_t seq;
	memcpy(&seq, udp + 8, 8);
	cr_assert_eq(seq, 0x1122334455667788);
	free(file);
}

Test(sim_pcap, a_capture_that_cannot_be_written_ends_the_run)
{
	FILE *full = fopen("/dev/full", "w");
	cr_assert(full);
	setvbuf(full, NULL, _IONBF, 0);
	sim_fixture_open(2);
	cr_assert_eq(sim_trace_pcap(sim_fixture.sim, full, false), -EIO);
	fclose(full);
	cr_assert_eq(sim_trace_pcap(sim_fixture.sim, NULL, false), 0);
	/* It fills up later: 24 bytes fit. */
	char room[64];
	FILE *small = fmemopen(room, sizeof room, "w");
	setvbuf(small, NULL, _IONBF, 0);
	cr_assert_eq(sim_trace_pcap(sim_fixture.sim, small, false), 0);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	cr_assert_eq(sim_fixture_send(0, at_1, 1, 64), 0);
	cr_assert(strstr(sim_failure(sim_fixture.sim), "capture"));
	fclose(small);
}

/* As packets leave, without what is lost behind the first link, and with the ports of flows. */
Test(sim_pcap, as_packets_leave)
{
	char *file = NULL;
	size_t size;
	FILE *out = open_memstream(&file, &size);
	sim_fixture.args = "hash";
	sim_fixture.queues = 2;
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 1, 1, NIC_ROUTE(0, 60000u));
	sim_partition(sim_fixture.ends[0].host, sim_fixture.ends[1].host, true);
	cr_assert_eq(sim_trace_pcap(sim_fixture.sim, out, false), 0);
	cr_assert_eq(sim_fixture_send_from(0, 1, at_1, 1, 8), 0);
	sim_fixture_run(100000);
	cr_assert_eq(sim_fixture_drain(1), 0);
	cr_assert_eq(sim_trace_pcap(sim_fixture.sim, NULL, false), 0);
	cr_assert_eq(sim_fixture_send_from(0, 1, at_1, 2, 8), 0);
	fclose(out);
	const uint8_t *eth = (const uint8_t *)file + 24 + 16, *udp = eth + 34;
	cr_assert_eq(size, 24 + 16 + 42 + 8, "one packet");
	cr_assert_eq(be16(udp), 16384 + 60000 % (65536 - 16384));
	cr_assert_eq(be16(eth + 14 + 6), 0x4000, "it must not be cut");
	free(file);
}
