/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Is a run the same everywhere? A world with all that disturbs, its trace's SHA-256 against the one that is kept here,
 * whatever compiler built this; and in three processes, one of them with its addresses not randomised.
 * The test's thread.
 *
 * After a change of what worlds do, `sim_golden print` says the new one.
 */
#include "sim_fixture.h"

#include "base/must.h"

#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HOSTS = 12, SENDS = 20000, PLACES = HOSTS * HOSTS };

static const char golden[] = "28a08099d6cc4b7a563a620657cfde20f1764b09e0ba1cab0c3b69bea85b12d3";

static uint32_t places[HOSTS][HOSTS];

static void place_all(unsigned from)
{
	for (unsigned to = 0; to < HOSTS; to++)
		places[from][to] =
			sim_fixture_dest(from, to % sim_fixture.queues, to, NIC_ROUTE(from % sim_fixture.queues, to));
}

static unsigned priority_of(const uint8_t *body, uint32_t len)
{
	return len > 8 ? body[8] % 8 : 7;
}

static void world(void)
{
	sim_fixture_init();
	sim_fixture.config.seed = 20;
	sim_fixture.priority_of = priority_of;
	sim_fixture.config.topology.kind = SIM_LEAF_SPINE;
	sim_fixture.config.topology.leaves = 3;
	sim_fixture.config.topology.spines = 4;
	sim_fixture.config.topology.priorities = 8;
	sim_fixture.config.topology.buffer_bytes = 10000;
	sim_fixture.config.topology.switch_ns = 250;
	sim_fixture.config.topology.fabric.rate_bps = UINT64_C(40000000000);
	sim_fixture.queues = 4;
	sim_fixture.args = "hash,rx=32,tx=16,align=2";
	sim_fixture_open(HOSTS);
	for (unsigned i = 0; i < HOSTS; i++)
		place_all(i);
	const struct sim_disturbance some = {.loss = SIM_CERTAIN / 50,
					     .burst_begin = SIM_CERTAIN / 500,
					     .burst_end = SIM_CERTAIN / 10,
					     .duplicate = SIM_CERTAIN / 40,
					     .reorder = SIM_CERTAIN / 30,
					     .corrupt = SIM_CERTAIN / 60,
					     .cut = SIM_CERTAIN / 70};
	for (unsigned i = 0; i < HOSTS; i += 2)
		must(sim_link_disturb(sim_uplink(sim_fixture.ends[i].host, 0), &some) == 0);
	must(sim_pair_disturb(sim_fixture.ends[1].host, sim_fixture.ends[2].host, &some) == 0);
}

static void upset(struct sim_random *r)
{
	struct sim_host *a = sim_fixture.ends[sim_random_below(r, HOSTS)].host,
			*b = sim_fixture.ends[sim_random_below(r, HOSTS)].host;
	struct sim_shape shape = {.rate_bps = UINT64_C(25000000000), .delay_ns = 1000, .mtu = 1000};
	unsigned number = sim_host_number(a);
	switch (sim_random_below(r, 8)) {
	case 0:
		sim_host_pause(a);
		break;
	case 1:
		sim_host_resume(a);
		break;
	case 2:
		sim_host_crash(a);
		sim_fixture_run(3000);
		sim_fixture_port_close(number);
		sim_host_restart(a);
		sim_fixture_port_open(number);
		place_all(number);
		break;
	case 3:
		sim_partition(a, b, true);
		break;
	case 4:
		sim_heal(sim_fixture.sim);
		break;
	case 5:
		sim_link_set_up(sim_fabric_link(sim_fixture.sim, 0, number % 3, number % 4, false), false);
		sim_link_set_up(sim_uplink(b, 0), false);
		break;
	case 6:
		for (unsigned i = 0; i < HOSTS; i++) {
			sim_link_set_up(sim_fabric_link(sim_fixture.sim, 0, i % 3, i % 4, false), true);
			sim_link_set_up(sim_uplink(sim_fixture.ends[i].host, 0), true);
		}
		break;
	default:
		must(sim_link_reshape(sim_downlink(a, 0), &shape) == 0);
	}
}

static void run(char hash[SHA256_TEXT_BYTES])
{
	struct sim_random r;
	world();
	sim_random_init(&r, 1, "golden", 0);
	for (unsigned i = 0; i < SENDS; i++) {
		unsigned from = (unsigned)sim_random_below(&r, HOSTS), to = (unsigned)sim_random_below(&r, HOSTS);
		to = i % 3 ? to : 0; /* an incast */
		if (places[from][to] != NIC_PEER_NONE)
			sim_fixture_send_from(from, to % sim_fixture.queues, places[from][to], i,
					      8 + (uint32_t)sim_random_below(&r, 1400));
		sim_fixture_run(sim_random_below(&r, 200));
		if (i % 7 == 0)
			sim_fixture_drain((unsigned)sim_random_below(&r, HOSTS));
		if (i % 200 == 0)
			upset(&r);
	}
	sim_trace_note(sim_fixture.sim, "the end");
	sim_fixture_run(100000000);
	sim_trace_hash(sim_fixture.sim, hash);
	must(!sim_failure(sim_fixture.sim));
}

/* All that can become of a packet has become of some. */
static void check_mixture(void)
{
	struct sim_stats s;
	sim_stats(sim_fixture.sim, &s);
	must(s.duplicated && s.corrupted && s.reordered && s.arrived > SENDS / 4 && !s.in_flight);
	for (unsigned i = 0; i < SIM_DROP_N; i++) {
		if (s.dropped[i] || i == SIM_DROP_UNEXPECTED) /* all ports are open, with as many queues */
			continue;
		fprintf(stderr, "nothing was dropped by: %s\n", sim_drop_text((enum sim_drop)i));
		must(false);
	}
}

static void read_child(const char *self, bool randomised, char hash[SHA256_TEXT_BYTES])
{
	int fds[2], status;
	size_t n = 0;
	must(pipe(fds) == 0);
	pid_t child = fork();
	must(child >= 0);
	if (child == 0) {
		if (!randomised)
			personality(ADDR_NO_RANDOMIZE); /* where it is not allowed they are all alike */
		if (dup2(fds[1], STDOUT_FILENO) >= 0)
			execl(self, self, "print", (char *)NULL);
		_exit(127);
	}
	close(fds[1]);
	for (ssize_t got; n < SHA256_TEXT_BYTES - 1 && (got = read(fds[0], hash + n, SHA256_TEXT_BYTES - 1 - n)) > 0;)
		n += (size_t)got;
	hash[n] = '\0';
	close(fds[0]);
	must(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
	char hash[SHA256_TEXT_BYTES], other[SHA256_TEXT_BYTES];
	run(hash);
	check_mixture();
	sim_fixture_fini();
	if (argc == 2 && strcmp(argv[1], "print") == 0) {
		puts(hash);
		return 0;
	}
	int failed = strcmp(hash, golden) != 0;
	if (failed)
		fprintf(stderr, "the trace's hash is %s; %s was kept\n", hash, golden);
	for (int i = 0; i < 3; i++) {
		read_child("/proc/self/exe", i > 0, other);
		if (strcmp(hash, other) == 0)
			continue;
		fprintf(stderr, "another process has %s, this one %s\n", other, hash);
		failed = 1;
	}
	return failed;
}
