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
