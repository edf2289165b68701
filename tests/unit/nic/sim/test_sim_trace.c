/* SPDX-License-Identifier: BSD-3-Clause */
/** Traces as text and as a capture file, and their hash. The test's thread. */
#include "sim_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

TestSuite(sim_trace, .init = sim_fixture_init, .fini = sim_fixture_fini);

static void hash_of(char out[SHA256_TEXT_BYTES])
{
	sim_trace_hash(sim_fixture.sim, out);
}

/* One packet there, with what may happen to it. */
static void one_packet(char hash[SHA256_TEXT_BYTES], uint32_t len, uint64_t seq, uint64_t wait)
{
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	sim_fixture_run(wait);
	cr_assert_eq(sim_fixture_send(0, at_1, seq, len), 0);
	sim_fixture_run(100000);
	hash_of(hash);
	sim_fixture_fini();
}

Test(sim_trace, the_hash_is_of_everything)
{
	char hashes[7][SHA256_TEXT_BYTES];
	one_packet(hashes[0], 64, 1, 0);
	sim_fixture_init();
	one_packet(hashes[1], 65, 1, 0);
	sim_fixture_init();
	one_packet(hashes[2], 64, 2, 0);
	sim_fixture_init();
	one_packet(hashes[3], 64, 1, 1);
	sim_fixture_init();
	sim_fixture.config.topology.host.delay_ns = 999;
	one_packet(hashes[4], 64, 1, 0);
	sim_fixture_init();
	sim_fixture.config.untraced = true;
	one_packet(hashes[5], 64, 1, 0);
	cr_assert_str_eq(hashes[5], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	for (unsigned i = 0; i < 6; i++)
		for (unsigned k = 0; k < i; k++)
			cr_assert_str_neq(hashes[i], hashes[k]);
	sim_fixture_init();
	one_packet(hashes[6], 64, 1, 0);
	cr_assert_str_eq(hashes[0], hashes[6]);
}

Test(sim_trace, watching_changes_nothing)
{
	char plain[SHA256_TEXT_BYTES], watched[SHA256_TEXT_BYTES], noted[SHA256_TEXT_BYTES];
	FILE *null = fopen("/dev/null", "w");
	for (unsigned round = 0; round < 3; round++) {
		sim_fixture_init();
		sim_fixture_open(2);
		if (round == 1) {
			sim_trace_text(sim_fixture.sim, null);
			cr_assert_eq(sim_trace_pcap(sim_fixture.sim, null, false), 0);
		}
		if (round == 2)
			sim_trace_note(sim_fixture.sim, "a word");
		uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
		for (unsigned i = 0; i < 100; i++)
			cr_assert_eq(sim_fixture_send(0, at_1, i, 64), 0);
		sim_fixture_run(1000000);
		hash_of(round == 0 ? plain : round == 1 ? watched : noted);
		sim_fixture_fini();
	}
	fclose(null);
	cr_assert_str_eq(plain, watched);
	cr_assert_str_neq(plain, noted);
}

Test(sim_trace, text_has_a_line_for_each_event)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	const struct sim_disturbance all = {.loss = SIM_CERTAIN};
	snprintf(sim_fixture.host.name, sizeof sim_fixture.host.name, "w");
	sim_fixture.config.topology.rails = 2;
	sim_fixture_open(2);
	sim_trace_text(sim_fixture.sim, out);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	cr_assert_eq(sim_fixture_send(0, at_1, 7, 64), 0);
	sim_fixture_run(100000);
	cr_assert_eq(sim_link_disturb(sim_uplink(sim_fixture.ends[0].host, 0), &all), 0);
	cr_assert_eq(sim_fixture_send(0, at_1, 8, 64), 0);
	sim_fixture_run(100000);
	sim_trace_note(sim_fixture.sim, "the application says this");
	sim_trace_text(sim_fixture.sim, NULL);
	cr_assert_eq(sim_fixture_send(0, at_1, 9, 64), 0);
	fclose(out);
	static const char *const lines[] = {
		"1.000000000 #1 sent w/0 -> w/0 64 bytes ",
		"\n1.000002020 #1 arrived w/0 -> w/0 64 bytes ",
		"\n1.000100000 #2 sent ",
		"\n1.000100010 #2 dropped ",
		": loss (w -> switch)\n",
		"\n1.000200000 the application says this\n",
	};
	const char *at = text;
	for (unsigned i = 0; i < sizeof lines / sizeof *lines; i++) {
		at = strstr(at, lines[i]);
		cr_assert(at, "%s is not in order in:\n%s", lines[i], text);
	}
	unsigned n = 0;
	for (const char *c = text; *c; c++)
		n += *c == '\n';
	cr_assert_eq(n, 5);
	free(text);
}

static uint32_t be16(const uint8_t *at)
{
	return (uint32_t)at[0] << 8 | at[1];
}

static unsigned always_5(const uint8_t *body, uint32_t len)
{
	return 5;
}

Test(sim_trace, a_capture_is_what_wireshark_reads)
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

Test(sim_trace, a_capture_that_cannot_be_written_ends_the_run)
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

/* ---- worlds beside each other ---- */

static void traffic(unsigned step)
{
	for (unsigned i = 0; i < 4; i++)
		cr_assert_eq(sim_fixture_send(i, 0, step * 4 + i, 64 + step % 1000), 0);
	sim_fixture_run(500 + step % 7 * 100);
	for (unsigned i = 0; step % 5 == 0 && i < 4; i++)
		sim_fixture_drain(i);
}

static void lossy_world(uint64_t seed)
{
	const struct sim_disturbance some = {.loss = SIM_CERTAIN / 10, .duplicate = SIM_CERTAIN / 10};
	sim_fixture_init();
	sim_fixture.config.seed = seed;
	sim_fixture_open(4);
	for (unsigned i = 0; i < 4; i++) {
		cr_assert_eq(sim_fixture_dest(i, 0, (i + 1) % 4, 0), 0);
		cr_assert_eq(sim_link_disturb(sim_uplink(sim_fixture.ends[i].host, 0), &some), 0);
	}
}

Test(sim_trace, worlds_do_not_know_of_each_other)
{
	char alone[2][SHA256_TEXT_BYTES], beside[2][SHA256_TEXT_BYTES];
	static struct sim_fixture worlds[2];
	for (unsigned w = 0; w < 2; w++) {
		lossy_world(w + 1);
		for (unsigned step = 0; step < 500; step++)
			traffic(step);
		hash_of(alone[w]);
		sim_fixture_fini();
	}
	for (unsigned w = 0; w < 2; w++) {
		lossy_world(w + 1);
		worlds[w] = sim_fixture;
	}
	for (unsigned step = 0; step < 500; step++)
		for (unsigned w = 0; w < 2; w++) {
			sim_fixture = worlds[w];
			traffic(step);
			worlds[w] = sim_fixture;
		}
	for (unsigned w = 0; w < 2; w++) {
		sim_fixture = worlds[w];
		hash_of(beside[w]);
		sim_fixture_fini();
		cr_assert_str_eq(alone[w], beside[w]);
	}
	cr_assert_str_neq(alone[0], alone[1]);
}
