/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What nic/nic.h promises, checked against a driver by its tables alone: `nic_conformance --driver shm`. Each case
 * opens ports of its own. The last line is "N passed, N failed, N skipped"; the exit status is 1 when one failed.
 */
#include "nic_bench.h"
#include "nic_links.h"
#include "nic_packets.h"
#include "nic_processes.h"

/* ---- connecting ---- */

static void case_hello(void)
{
	two();
	REQUIRE(ends[0].last_user == &ends[0]);
	REQUIRE(strcmp(ends[0].hello, "reply") == 0);
	REQUIRE(ends[1].hellos == 1);
	REQUIRE(strcmp(ends[1].hello, "hello") == 0);
	REQUIRE(ends[1].last_user == NULL);
}

static void case_refused(void)
{
	end_open(0);
	end_open(1);
	ends[1].refuse = -EACCES;
	start_connect(0, 1, now_ns() + CONNECT_NS);
	REQUIRE(step_until(&ends[0].fails, 1));
	REQUIRE(ends[0].last_user == &ends[0]);
	REQUIRE(ends[0].failed_text[0]);
	REQUIRE(ends[0].ups == 0 && ends[1].ups == 0);
	ends[1].refuse = 0;
	pair_up(0, 1, &at_1, &at_0);
}

static void case_nobody(void)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	end_open(0);
	end_open(1);
	driver->address(ends[1].port, &addr);
	end_close(1);
	int error = driver->connect(ends[0].port, 0, &addr, 0, "hello", 5, now_ns() + 50000000, &ends[0], &err);
	if (error)
		REQUIRE(err.text[0]);
	else
		REQUIRE(step_until(&ends[0].fails, 1) && ends[0].failed_text[0]);
	REQUIRE(ends[0].ups == 0);
	/* Somebody who is there and never steps. */
	end_open(1);
	struct nic_port *asleep = ends[1].port;
	start_connect(0, 1, now_ns() + 20000000);
	ends[1].port = NULL;
	unsigned before = ends[0].fails;
	bool failed = step_until(&ends[0].fails, before + 1);
	ends[1].port = asleep;
	REQUIRE(failed);
}

static void case_down(void)
{
	struct nic_pkt pkts[4];
	two();
	REQUIRE(send_one(1, at_0, 1, 5) == 0);
	REQUIRE(send_one(1, at_0, 2, 50000) == 0);
	flush(1);
	ends[1].ops->detach(ends[1].q, at_0);
	end_close(1);
	REQUIRE(step_until(&ends[0].downs, 1));
	REQUIRE(ends[0].last_down == at_1);
	REQUIRE(take(0, pkts, 4) == 2);
	pkt_check(&pkts[0], 1, 5);
	pkt_check(&pkts[1], 2, 50000);
	give(0, &pkts[1]);
	/* Nobody reads any more, but sending must not hurt. */
	for (unsigned i = 0; i < 2 * caps.slots; i++)
		if (send_one(0, at_1, i, i % 40))
			break;
	flush(0);
	ends[0].ops->detach(ends[0].q, at_1);
	driver->drop(ends[0].port, at_1);
	end_open(1);
	pair_up(0, 1, &at_1, &at_0);
	REQUIRE(send_one(0, at_1, 3, 7) == 0);
	flush(0);
	expect_one(1, at_0, 3, 7);
}

static void case_drop(void)
{
	two();
	ends[0].ops->detach(ends[0].q, at_1);
	driver->drop(ends[0].port, at_1);
	REQUIRE(step_until(&ends[1].downs, 1));
	REQUIRE(ends[1].last_down == at_0);
}

/* ---- running ---- */

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"sizes", case_sizes},
	{"too large", case_too_large},
	{"not attached", case_not_attached},
	{"order", case_order},
	{"held packets", case_held},
	{"ring full", case_ring_full},
	{"bulk memory full", case_bulk_full},
	{"cancel", case_cancel},
	{"open side by side", case_open_side_by_side},
	{"wake", case_wake},
	{"arm and look", case_arm_and_look},
	{"flush", case_flush},
	{"several peers", case_several_peers},
	{"fairness", case_fair},
	{"self", case_self},
	{"hello", case_hello},
	{"refused", case_refused},
	{"nobody there", case_nobody},
	{"down", case_down},
	{"drop", case_drop},
	{"several queues", case_several_queues},
	{"several queues of one port", case_own_queues},
	{"a thousand links", case_thousand_links},
	{"a thousand links, one wakes", case_thousand_asleep},
	{"two processes", case_two_processes},
};

static void dir_remove(void)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.') {
			char path[512];
			snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
			unlink(path);
		}
	if (d)
		closedir(d);
	rmdir(dir);
}

static bool run_case(unsigned i)
{
	running = cases[i].name;
	skip_reason = NULL;
	alarm(60);
	bool ok = setjmp(out) == 0;
	if (ok)
		cases[i].run();
	step_all();
	for (unsigned k = 0; k <= PEERS; k++)
		end_close(k);
	alarm(0);
	printf("%s: %s%s%s\n", cases[i].name,
	       !ok           ? "FAILED"
	       : skip_reason ? "SKIP"
			     : "ok",
	       ok && skip_reason ? ": " : "", ok && skip_reason ? skip_reason : "");
	fflush(stdout);
	return ok;
}

static int open_driver(const char *name)
{
	struct nic_err err = {""};
	struct nic_config config = {.runtime_dir = dir, .id = 99, .queues = 1, .head_bytes = HEAD};
	for (unsigned i = 0; nic_drivers[i]; i++)
		if (strcmp(nic_drivers[i]->name, name) == 0)
			driver = nic_drivers[i];
	if (!driver) {
		fprintf(stderr, "there is no driver \"%s\"\n", name);
		return -ENOENT;
	}
	int error = driver->probe(&config, &err);
	if (error) {
		fprintf(stderr, "%s cannot work here: %s\n", name, err.text);
		return error;
	}
	struct nic_port *port;
	error = driver->open(&config, &port, &err);
	if (error) {
		fprintf(stderr, "%s\n", err.text);
		return error;
	}
	driver->caps(port, &caps);
	driver->close(port);
	return 0;
}

int main(int argc, char **argv)
{
	unsigned passed = 0, failed = 0, skipped = 0;
	if (argc != 3 || strcmp(argv[1], "--driver") != 0) {
		fprintf(stderr, "usage: %s --driver NAME\n", argv[0]);
		return 2;
	}
	if (!mkdtemp(dir)) {
		perror(dir);
		return 2;
	}
	int error = open_driver(argv[2]);
	for (unsigned i = 0; !error && i < sizeof cases / sizeof *cases; i++) {
		bool ok = run_case(i);
		failed += !ok;
		passed += ok && !skip_reason;
		skipped += ok && skip_reason;
	}
	dir_remove();
	printf("%u passed, %u failed, %u skipped\n", passed, failed, skipped);
	return error ? 2 : failed != 0;
}
