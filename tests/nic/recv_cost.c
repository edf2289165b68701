/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * One queue with many links, one of them active: the cost of a pass, and the memory of an idle link.
 * usage: recv_cost --driver NAME LINKS ROUNDS active|idle; a round is a packet, sent and received (active), or an empty
 * pass (idle). recv_cost.sh runs it under callgrind. Exit status 77: the machine has no room for so many links.
 *
 * Main thread of each process.
 */
#include "nic_fixture.h"
#include "nic_many.h"

static unsigned long field_kib(const char *file, const char *field)
{
	char line[256];
	unsigned long kib = 0;
	FILE *f = fopen(file, "r");
	while (f && fgets(line, sizeof line, f))
		if (strncmp(line, field, strlen(field)) == 0)
			kib = strtoul(line + strlen(field), NULL, 10);
	if (f)
		fclose(f);
	return kib;
}

static struct memory {
	unsigned long anonymous, shared, tables; /* KiB */
} memory(void)
{
	/* status counts in batches; smaps_rollup walks the tables. */
	return (struct memory){field_kib("/proc/self/smaps_rollup", "Anonymous:"),
			       field_kib("/proc/self/smaps_rollup", "Pss_Shmem:"),
			       field_kib("/proc/self/status", "VmPTE:")};
}

static int run(unsigned links, unsigned long rounds, bool active)
{
	struct nic_pkt pkts[BURST];
	struct memory before, after;
	if (setjmp(failed_case))
		return 1;
	before = memory();
	end_open(0);
	after = memory();
	printf("a port: %lu KiB private, %lu KiB shared\n", after.anonymous - before.anonymous,
	       after.shared - before.shared);
	end_open(1);
	before = memory();
	if (!many_up(links)) {
		printf("no room for %u links: %s\n", links, skip_reason ? skip_reason : unfit_reason);
		return 77;
	}
	take(0, pkts, BURST);
	take(1, pkts, BURST);
	after = memory();
	printf("a link, each end: %lu B private; both: %lu B shared, %lu B of page tables\n",
	       (after.anonymous - before.anonymous) * 512 / links, (after.shared - before.shared) * 1024 / links,
	       (after.tables - before.tables) * 1024 / links);
	/* Until everything that is idle counts as idle. */
	for (unsigned i = 0; i < 20000; i++)
		REQUIRE(take(0, pkts, BURST) == 0);
	for (unsigned long i = 0; i < rounds; i++) {
		if (!active) {
			REQUIRE(take(0, pkts, BURST) == 0);
			continue;
		}
		struct nic_tx tx;
		REQUIRE(ends[1].ops->tx_reserve(ends[1].q, many_there[links / 2], 32, &tx) == 0);
		REQUIRE(ends[1].ops->tx_commit(ends[1].q, &tx) == 0);
		flush(1);
		while (take(0, pkts, BURST) == 0)
			;
	}
	return 0;
}

static void remove_dir(void)
{
	end_close(0);
	end_close(1);
	rmdir(dir);
}

int main(int argc, char **argv)
{
	unsigned long links = argc == 6 ? strtoul(argv[3], NULL, 10) : 0;
	if (links == 0 || links > MANY_MAX || strcmp(argv[1], "--driver") != 0) {
		fprintf(stderr, "usage: %s --driver NAME LINKS ROUNDS active|idle\n", argv[0]);
		return 2;
	}
	for (unsigned i = 0; nic_drivers[i]; i++)
		if (strcmp(nic_drivers[i]->name, argv[2]) == 0)
			driver = nic_drivers[i];
	driver_head = case_head = HEAD;
	running = "recv_cost";
	if (!driver || !mkdtemp(dir)) {
		fprintf(stderr, "there is no driver \"%s\", or no room in /tmp\n", argv[2]);
		return 2;
	}
	int status = run((unsigned)links, strtoul(argv[4], NULL, 10), strcmp(argv[5], "active") == 0);
	remove_dir();
	return status;
}
