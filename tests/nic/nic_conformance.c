/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What nic/nic.h promises, checked against a driver by its tables alone: `nic_conformance --driver shm`. Each case
 * opens ports of its own. The last line is "N passed, N failed, N skipped"; the exit status is 1 when one failed.
 * Main thread of each process.
 */
#include "first_tier.h"
#include "nic_bulk.h"
#include "nic_datagrams.h"
#include "nic_defects.h"
#include "nic_dests.h"
#include "nic_fixture.h"
#include "nic_links.h"
#include "nic_over_link.h"
#include "nic_packets.h"
#include "nic_processes.h"
#include "nic_sim.h"

/* ---- connecting ---- */

static void case_connect(void)
{
	two();
	REQUIRE(ends[0].last_user == &ends[0]);
	REQUIRE(strcmp(ends[0].handshake, "reply") == 0);
	REQUIRE(ends[1].connects == 1);
	REQUIRE(strcmp(ends[1].handshake, "hello") == 0);
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
	ends[1].port_ops->address(ends[1].port, &addr);
	end_close(1);
	int error = ends[0].port_ops->connect(
		ends[0].port, &(struct nic_connect){0, &addr, 0, "hello", 5, now_ns() + 50000000, &ends[0]}, &err);
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
	if (over_network) { /* what has not arrived is lost with the sender */
		REQUIRE(room_again(1, at_0));
		REQUIRE(send_one(0, at_1, 1, 1) == 0);
		flush(0);
	}
	ends[1].ops->detach(ends[1].q, at_0);
	end_close(1);
	REQUIRE(step_until(&ends[0].downs, 1));
	REQUIRE(ends[0].last_down == at_1);
	for (unsigned got = 0; got < 2;) {
		unsigned n = take(0, pkts, 4);
		REQUIRE(n > 0 && got + n <= 2);
		for (unsigned i = 0; i < n; i++, got++) {
			pkt_check(&pkts[i], got + 1, got ? 50000 : 5);
			give(0, &pkts[i]);
		}
	}
	/* Nobody reads any more, but sending must not hurt. */
	for (unsigned i = 0; i < 2 * caps.slots; i++)
		if (send_one(0, at_1, i, i % 40))
			break;
	flush(0);
	ends[0].ops->detach(ends[0].q, at_1);
	ends[0].port_ops->drop(ends[0].port, at_1);
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
	ends[0].port_ops->drop(ends[0].port, at_1);
	REQUIRE(step_until(&ends[1].downs, 1));
	REQUIRE(ends[1].last_down == at_0);
}

/* ---- running ---- */

enum { CASES_MAX = 32 };

struct test_case {
	const char *name;
	void (*run)(void);
};

/* Of connected drivers, and of a link over the others. */
static const struct test_case connected_cases[] = {
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
	{"connect", case_connect},
	{"refused", case_refused},
	{"nobody there", case_nobody},
	{"down", case_down},
	{"drop", case_drop},
	{"several queues", case_several_queues},
	{"several queues of one port", case_own_queues},
	{"a thousand links", case_thousand_links},
	{"a thousand links, one wakes", case_thousand_asleep},
	{"bad configuration", case_bad_configuration},
	{"two processes", case_two_processes},
	{NULL, NULL},
};

static const struct test_case datagram_cases[] = {
	{"up without words", two_dests},
	{"sizes", case_datagram_sizes},
	{"too large", case_datagram_too_large},
	{"not attached", case_datagram_not_attached},
	{"bursts", case_datagram_bursts},
	{"referred bytes", case_datagram_referred},
	{"at once", case_datagram_at_once},
	{"places", case_datagram_dests},
	{"priorities", case_datagram_priorities},
	{"held packets", case_datagram_held},
	{"ring full", case_datagram_full},
	{"cancel", case_datagram_cancel},
	{"open side by side", case_datagram_side_by_side},
	{"bulk", case_bulk},
	{"bulk ranges", case_bulk_ranges},
	{"several handles of one address", case_dests},
	{"unexpected peers and self", case_unexpected_peers},
	{"several queues", case_dest_queues},
	{"counters", case_counters},
	{"wake", case_datagram_wake},
	{"arm and look", case_datagram_arm_and_look},
	{"deadline", case_deadline},
	{"address in words", case_address_text},
	{"reach", case_reach},
	{"connect to nonsense", case_nonsense},
	{"bad configuration", case_bad_configuration},
	{"somebody has gone", case_gone},
	{"close with places left", case_close_with_dests},
	{"two processes", case_datagram_processes},
	{NULL, NULL},
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

static struct {
	unsigned passed, failed, skipped;
	const char *only[CASES_MAX]; /* cases by name; none: all */
	unsigned only_n;
	const char *found;  /* the first that failed */
	bool first_failure; /* ends it all */
	bool defects, only_link;
	const char *child; /* what this process is the other one of */
} tally;

static bool is_wanted(const char *name)
{
	for (unsigned i = 0; i < tally.only_n; i++)
		if (strcmp(tally.only[i], name) == 0)
			return true;
	return !tally.only_n;
}

static void run_case(const struct test_case *c, const char *family)
{
	bool ok;
	uint64_t began = now_ns();
	if (!is_wanted(c->name) || (tally.first_failure && tally.failed))
		return;
	running = c->name;
	skip_reason = unfit_reason = NULL;
	alarm((unsigned)(150 * slow));
	ok = setjmp(failed_case) == 0;
	if (ok)
		c->run();
	step_all();
	for (unsigned k = 0; k <= PEERS; k++)
		end_close(k);
	kept_free(true);
	alarm(0);
	const char *why = !ok ? NULL : skip_reason ? skip_reason : unfit_reason;
	const char *what = !ok ? "FAILED" : skip_reason ? "SKIP" : unfit_reason ? "not for this driver" : "ok";
	unsigned took_s = (unsigned)((now_ns() - began) / 1000000000);
	char time_text[32] = "";
	if (took_s > 0)
		snprintf(time_text, sizeof time_text, " (%u s)", took_s);
	if (!tally.first_failure)
		printf("%s%s: %s%s%s%s\n", family, c->name, what, why ? ": " : "", why ? why : "", time_text);
	if (!ok && !tally.found)
		tally.found = c->name;
	fflush(stdout);
	tally.failed += !ok;
	tally.skipped += ok && skip_reason;
	tally.passed += ok && !why;
}

static void run_cases(const struct test_case *cases, const char *family)
{
	for (const struct test_case *c = cases; c->name; c++)
		run_case(c, family);
}

/* Opens one port and reads its capabilities; datagram drivers take no heads, the others no packets without. */
static int look_at_driver(void)
{
	struct nic_err err = {""};
	struct nic_config config = {.runtime_dir = dir,
				    .id = 99,
				    .queues = 1,
				    .beyond_host = beyond_host,
				    .args = driver_args_n ? driver_args[0] : NULL};
	struct nic_port *port;
	int error = driver->probe(&config, &err);
	if (error) {
		fprintf(stderr, "%s cannot work here: %s\n", driver->name, err.text);
		return error;
	}
	error = driver->open(&config, &port, &err);
	if (error == -EINVAL) {
		config.head_bytes = HEAD;
		error = driver->open(&config, &port, &err);
	}
	if (error) {
		fprintf(stderr, "%s\n", err.text);
		return error;
	}
	driver_head = config.head_bytes;
	driver->caps(port, &caps);
	driver->close(port);
	return 0;
}

/* The part of the process that a case has started, with `dir` from it. */
static int child_main(void)
{
	struct facts facts;
	running = tally.child;
	alarm((unsigned)(150 * slow));
	if (setjmp(failed_case))
		return 1;
	REQUIRE(recv(0, &facts, sizeof facts, MSG_WAITALL) == (ssize_t)sizeof facts);
	caps = facts.caps;
	driver_head = facts.driver_head;
	case_head = facts.case_head;
	patience_ns = facts.patience_ns;
	over_network = facts.over_network;
	port_wrap = over_network ? wrap_in_link : NULL;
	if (strcmp(tally.child, "player") == 0)
		player_main(0);
	else
		sender_main(0);
	return 0;
}

static void run_all(void)
{
	case_head = caps.connected ? HEAD : 0;
	if (caps.connected)
		run_cases(connected_cases, "");
	else if (!tally.only_link)
		run_cases(datagram_cases, "");
	if (caps.connected || tally.defects)
		return;
	tally.failed += !go_over_link();
	case_head = HEAD;
	if (over_network)
		run_cases(connected_cases, "link: ");
}

/* In a process of its own, which says by which case it was found. */
static void run_defect(enum defect which)
{
	char by[64] = "";
	int said[2], status;
	if (pipe(said) < 0)
		exit(2);
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		if (!freopen("/dev/null", "w", stderr))
			_exit(2);
		if (which != DEFECT_NONE) /* the driver itself must pass beside anything else */
			patience_ns = UINT64_C(1500000000) * slow;
		tally.first_failure = true;
		tally.failed = 0;
		driver_break(which);
		run_all();
		const char *found = tally.found ? tally.found : "";
		_exit(write(said[1], found, strlen(found)) < 0);
	}
	close(said[1]);
	ssize_t len = child < 0 ? -1 : read(said[0], by, sizeof by - 1);
	close(said[0]);
	bool ended = waitpid(child, &status, 0) == child && len >= 0 && status == 0;
	bool ok = ended && (by[0] != 0) == (which != DEFECT_NONE);
	printf("defect: %s: %s%s\n", defect_names[which],
	       !ended  ? "FAILED: it crashed"
	       : by[0] ? "found by "
		       : "not found",
	       by);
	tally.passed += ok;
	tally.failed += !ok;
}

static void run_defects(void)
{
	for (unsigned i = 0; i < DEFECTS; i++) {
		bool other = caps.connected ? i >= DEFECTS_CONNECTED : i >= DEFECTS_COMMON && i < DEFECTS_CONNECTED;
		if (!other)
			run_defect((enum defect)i);
	}
}

static const char usage[] =
	"usage: nic_conformance --driver NAME [--args ARGS]... [--case NAME]... [--only-link | --defects] [--open] "
	"[--slow N] [--brief | --second]\n"
	"  --args  what follows ':' in nic=; several: of each end one\n"
	"  --only-link  of a datagram driver only the cases with a link over it: it may lose packets\n"
	"  --open  other hosts may be reached, as with security=none\n"
	"  --slow  everything may take N times longer\n"
	"  --brief  a third of the repetitions\n"
	"  --second  a second way of a driver: likewise, in the first tier of tests/run.sh\n"
	"  --defects  is each of a list of broken drivers over this one found?\n";

static bool is_case(const char *name)
{
	for (unsigned i = 0; connected_cases[i].name; i++)
		if (strcmp(connected_cases[i].name, name) == 0)
			return true;
	for (unsigned i = 0; datagram_cases[i].name; i++)
		if (strcmp(datagram_cases[i].name, name) == 0)
			return true;
	fprintf(stderr, "--case: there is no case \"%s\"\n", name);
	return false;
}

static bool parse(int argc, char **argv)
{
	struct nic_err err = {""};
	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : NULL;
		if (strcmp(argv[i], "--defects") == 0) {
			tally.defects = true;
			continue;
		}
		if (strcmp(argv[i], "--open") == 0) {
			beyond_host = true;
			continue;
		}
		if (strcmp(argv[i], "--brief") == 0) {
			brief = true;
			continue;
		}
		if (strcmp(argv[i], "--second") == 0) {
			brief |= first_tier();
			continue;
		}
		if (strcmp(argv[i], "--only-link") == 0) {
			tally.only_link = true;
			continue;
		}
		if (value && strcmp(argv[i], "--slow") == 0 && atoi(value) > 0) {
			slow = (uint64_t)atoi(value);
			patience_ns = CONNECT_NS;
		} else if (value && strcmp(argv[i], "--driver") == 0 && !driver) {
			driver = strcmp(value, "sim") == 0 ? sim_driver_begin() : nic_find(value, &err);
			if (!driver)
				fprintf(stderr, "%s\n", err.text);
		} else if (value && strcmp(argv[i], "--args") == 0 && driver_args_n < ARGS_MAX) {
			driver_args[driver_args_n++] = value;
		} else if (value && strcmp(argv[i], "--case") == 0 && tally.only_n < CASES_MAX && is_case(value)) {
			tally.only[tally.only_n++] = value;
		} else if (i + 2 < argc && strcmp(argv[i], "--child") == 0) {
			tally.child = value;
			snprintf(dir, sizeof dir, "%s", argv[i + 2]);
			i++;
		} else {
			return false;
		}
		i++;
	}
	return driver;
}

int main(int argc, char **argv)
{
	if (!parse(argc, argv)) {
		fputs(usage, stderr);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	if (tally.child)
		return child_main();
	if (!mkdtemp(dir)) {
		perror(dir);
		return 2;
	}
	int error = look_at_driver();
	if (!error && tally.defects)
		run_defects();
	else if (!error)
		run_all();
	dir_remove();
	sim_destroy(sim_world);
	printf("%u passed, %u failed, %u skipped\n", tally.passed, tally.failed, tally.skipped);
	return error ? 2 : tally.failed != 0;
}
