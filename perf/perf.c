/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall perf`: finds what is to be measured. Main thread of each process. */
#include "perf.h"
#include "apps/cli/options.h"
#include "apps/farcall/commands.h"
#include "checks.h"
#include "floor_ring.h"
#include "memif.h"
#include "peer.h"
#include "plot.h"
#include "progress.h"
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND_NS UINT64_C(1000000000)
#define HOUR_NS   UINT64_C(3600000000000)

struct measurement {
	const char *name;
	int (*run)(const struct perf_opts *o);
	enum taker taker;
	uint64_t milliseconds;
	const char *help;
	const char *about;
};

static const struct measurement measurements[] = {
	{"latency", perf_latency, LATENCY, 3000, "round trip of one call at a time",
	 "Starts a second process and measures the round trip of calls, one call in flight. --via thread and "
	 "--handler\n"
	 "alternate with the default call in the same run and report the added time. A hand-over keeps three threads\n"
	 "polling; with fewer cores measure it with --via thread --to self. With --rate calls begin at fixed times,\n"
	 "answered or not, and their times count from when they should have begun; --seconds applies to each rate."},
	{"rate", perf_rate, RATE, 3000, "calls and bytes per second, many in flight",
	 "Starts a second process and keeps many calls in flight towards it. The receiver reads every byte; the reply\n"
	 "of the message API is empty. bytes_per_s counts request payload. With --shards each local shard calls the\n"
	 "remote shard of the same number, --inflight calls at a time; the ratio to the floor is that of one shard.\n"
	 "With --rate calls begin at fixed times, answered or not, and the times of a call count from when it should\n"
	 "have begun; --seconds applies to each rate."},
	{"bandwidth", perf_bandwidth, BANDWIDTH, 2000, "bytes per second of large messages, by size and depth",
	 "Starts a second process and sends messages of several sizes at several depths (messages in flight). The\n"
	 "receiver reads every byte, the reply is empty, bytes_per_s counts requests. The floor is one copy of the\n"
	 "same size and depth; the other core reads every byte. --seconds applies to each size and depth.\n"
	 "With --api rpc --memory region typed calls leave their argument in place, by turns with calls that copy it.\n"
	 "With --rate messages begin at fixed times, and their times count from when they should have begun; a "
	 "message\n"
	 "that finds --depth others in flight waits."},
	{"serve", perf_serve, SERVE, 0, "the peer process for latency, rate and bandwidth --connect",
	 "Listens as rank 0 of 2 for a measurement with --connect. Ends when the measurement leaves or dies, on "
	 "SIGINT\n"
	 "or SIGTERM, or when no client connects within --timeout. Prints the address; port 0 selects a free port."},
	{"fanout", perf_fanout, FANOUT, 6000, "one fan-out to many targets, against separate calls",
	 "Starts server processes and calls far::add on many targets, several per server: as one fan-out, alternating\n"
	 "with separate calls that are awaited together. Both write every result to its offset in one buffer.\n"
	 "With --rate fan-outs begin at fixed times, of 8 targets, and their times count from when they should have\n"
	 "begun; --seconds applies to each rate."},
	{"rref", perf_rref, RREF, 6000, "references and objects, against typed calls of the same size",
	 "Starts a second process. Measures remote + to_here, to_here alone and a method call of an object, each\n"
	 "alternating with a typed call of the same two tensors; then issues, fetches and deletes 5000 references.\n"
	 "With --rate calls of the method begin at fixed times, and their times count from when they should have "
	 "begun;\n"
	 "--seconds applies to each rate."},
	{"ps", perf_ps, PS, 1000, "tables of a parameter server, against flat arrays",
	 "Starts a second process that serves tables, and measures pulls and pushes of 2000 rows of 16 floats, batch "
	 "gets of\n500 rows of 512 bytes and training steps (a pull and a push of 128 x 26 keys). Keys are Zipf 1.2 "
	 "and "
	 "uniform.\nFloors of the same run: an exchange of the same keys and rows through shared memory with a flat "
	 "array, one pass\nof Adagrad over such an array, memcpy. With --rate operations begin at fixed times, "
	 "answered "
	 "or not, and their\ntime counts from then. --seconds applies to each workload, distribution and rate. With "
	 "--stop "
	 "pulls have a\ndeadline, and one of two servers is stopped again and again: how long after it they are "
	 "complete; a "
	 "wrong status or\nrow of a key ends the measurement. With --beside other threads push 100000 keys at a time "
	 "and "
	 "save the table to\n$TMPDIR meanwhile."},
	{"trace", perf_trace, TRACE, 3000, "what the time of slow round trips went into",
	 "Starts a second process, makes one call at a time and explains each round trip above --limit: a thread that\n"
	 "was stopped or had to leave its CPU, the handler, time that the host of a virtual machine took, page "
	 "faults,\n"
	 "interrupts, or nothing of these (unexplained). Counters of the system are\n"
	 "read each millisecond: what they show happened in the round trip or up to 1 ms before it."},
	{"idle", perf_idle, IDLE, 5000, "CPU and memory of an idle worker, and its first call afterwards",
	 "Runs in every worker of `farcall run -n N -- farcall perf idle`; alone, it starts two workers itself."},
	{"wake", perf_wake, WAKE, 3000, "the first call to a sleeping worker",
	 "Starts a second process that sleeps when idle, and calls it after pauses. The floor is the wake-up of a\n"
	 "thread of that process by an eventfd; for udp also the wake-up of epoll_wait() by a packet."},
	{"memory", perf_memory, MEMORY, 0, "resident memory of two workers as calls accumulate",
	 "Starts a second process, calls it many times (a tenth of the time with 64 KiB), and prints the resident\n"
	 "memory of both processes at each of --calls. It must not grow."},
	{"start", perf_start, START, 0, "how long groups take to form and to shut down",
	 "Starts groups of new processes that meet before they join. Measures the time until the last far_init_rpc()\n"
	 "has returned, the same for far_shutdown(), and the threads and resident memory of a worker."},
	{"group", perf_group, GROUP, 500, "how fast a dynamic group notices ends, replaces and admits members",
	 "Starts dynamic groups of new processes. Measures how long it takes to notice that a member was killed, "
	 "stopped or\n"
	 "cut off; until a replacement answers at the full rate; calls while another worker joins; and what samples, "
	 "spans\n"
	 "and readers of metrics add to a call. --seconds applies to each of the last six."},
	{"share", perf_share, SHARE, 3000, "workers that share two CPUs, against two workers alone",
	 "Starts pairs of workers, a caller and a server each, on two CPUs, none pinned, and measures the calls of "
	 "all\n"
	 "pairs together and of one pair alone by turns. Threads that wait must leave the CPUs to those that work."},
	{"floor", perf_floor, FLOOR, 2000, "the limits of this machine, without the engine",
	 "Measures two processes that share memory: round trips of a cache line and of a ring, ring rate, copies, and\n"
	 "an eventfd wake-up. With --nic: round trip, rate, one-way bytes and wake-up of raw packets instead."},
	{"peer", peer_main, PEER, 0, NULL, "The other processes of latency, rate, bandwidth and fanout."},
	{"attached", attached_main, ATTACHED, 0, NULL, "The idle agents of --peers."},
	{"starting", starting_main, STARTING, 0, NULL, "A worker of start."},
};
#define MEASUREMENTS (sizeof measurements / sizeof *measurements)

static const char *api_names[] = {"message", "rpc", NULL};
static const char *via_names[] = {"direct", "thread", NULL};
static const char *handler_names[] = {"inline", "fiber", "blocking", NULL};
static const char *workload_names[] = {"all", "pull", "push", "get", "step", "dense", NULL};
static const char *memory_names[] = {"own", "region", NULL};
static const char *keys_names[] = {"both", "uniform", "zipf", NULL};
static const char *target_names[] = {"peer", "self", NULL};

const char *perf_api_name(int api)
{
	return api_names[api];
}

const char *perf_via_name(int via)
{
	return via_names[via];
}

const char *perf_handler_name(int handler)
{
	return handler_names[handler];
}

/* Of the process, before any of its threads is pinned. */
static int cpus;

int perf_cpus(void)
{
	return cpus;
}

int perf_cpu(unsigned i)
{
	cpu_set_t set;
	if (sched_getaffinity(0, sizeof set, &set) < 0 || CPU_COUNT(&set) < 2)
		return -1;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set) && i-- == 0)
			return cpu;
	return -1;
}

void perf_pin(int cpu)
{
	cpu_set_t set;
	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof set, &set); /* refused: the figures are noisier, not wrong */
}

static void print_help(FILE *f)
{
	fprintf(f, "usage: farcall perf MEASUREMENT [OPTIONS]\n\nmeasurements:\n");
	for (size_t i = 0; i < MEASUREMENTS; i++)
		if (measurements[i].help)
			fprintf(f, "  %-10s %s\n", measurements[i].name, measurements[i].help);
	fprintf(f, "  %-10s %s\n", "sim", "the transport on simulated networks, one figure each");
	fprintf(f, "\n'farcall perf MEASUREMENT --help' lists the options.\n");
}

int perf_options(const char *name, const char *about, unsigned taker, const struct perf_option *table, size_t n,
		 int argc, char **argv)
{
	struct option_spec specs[OPTIONS_MAX + 1];
	const struct option_command command = {name, "[OPTIONS]", about, specs};
	size_t taken = 0;
	int rest;
	for (size_t i = 0; i < n; i++)
		if (table[i].takers & taker)
			specs[taken++] = table[i].spec;
	specs[taken] = (struct option_spec){.name = ""};
	enum options_result parsed = options_parse(&command, argc, argv, &rest);
	if (parsed != OPTIONS_GO)
		return parsed == OPTIONS_DONE ? 0 : OPTIONS_EXIT_USAGE;
	if (rest < argc)
		return options_wrong(name, "%s: arguments are not expected; options begin with --", argv[rest]);
	return -1;
}

/* What a measurement prints on stdout, as text with a NUL. */
static char *read_all(int fd)
{
	off_t n = lseek(fd, 0, SEEK_END);
	char *text = n < 0 ? NULL : calloc(1, (size_t)n + 1);
	if (text && pread(fd, text, (size_t)n, 0) != (ssize_t)n)
		text[0] = 0;
	return text;
}

/* The object of one measurement as a row or more. In a process of its own: a process hosts the store of one group. */
static int run_row(struct perf_opts *o, const struct measurement *m, struct table *t)
{
	int status = 1, fd = memfd_create("farcall-perf", MFD_CLOEXEC);
	if (fd < 0)
		return 1;
	o->json = true;
	fflush(NULL);
	pid_t parent = getpid(), pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent || dup2(fd, STDOUT_FILENO) < 0)
			_exit(1);
		exit(m->run(o));
	}
	if (pid > 0)
		waitpid(pid, &status, 0);
	int rc = pid < 0 || !WIFEXITED(status) ? 1 : WEXITSTATUS(status);
	char *text = read_all(fd);
	close(fd);
	if (text && *text && table_add(t, text) < 0) {
		fprintf(stderr, "%s: more columns than a table has\n", o->what);
		rc = 1;
	}
	free(text);
	return rc;
}

static int run_table(struct perf_opts *o, const struct measurement *m)
{
	static struct table t; /* large for a stack */
	int rc = 0;
	unsigned n = m->taker == LATENCY ? o->peers_each.n : 1;
	for (unsigned i = 0; i < n && rc == 0; i++) {
		if (m->taker == LATENCY)
			o->peers = o->peers_each.value[i];
		rc = run_row(o, m, &t);
	}
	if (o->csv && t.rows)
		table_csv(&t, stdout);
	if (rc == 0 && o->plot && plot_draw(&t, o->plot) < 0) {
		fprintf(stderr, "%s: gnuplot failed\n", o->what);
		rc = 1;
	}
	table_free(&t);
	return rc;
}

static int measure(const struct measurement *m, int argc, char **argv)
{
	char name[64];
	/* A worker of `start` reports as that. */
	snprintf(name, sizeof name, "farcall perf %s", m->taker == STARTING ? "start" : m->name);
	char seconds[48];
	snprintf(seconds, sizeof seconds, "how long to measure (%gs)", (double)m->milliseconds / 1e3);
	struct perf_opts o = {.what = name,
			      .nic = getenv("FAR_NIC") && m->taker != FLOOR ? getenv("FAR_NIC") : "auto",
			      .inflight = 64,
			      .shards = 1,
			      .peers = 1,
			      .marks = {{1000000, 10000000}, 2},
			      .peers_each = {{1}, 1},
			      .worlds = {{2, 64}, 2},
			      .rounds = 5,
			      .pairs = 2,
			      .rows = 630000,
			      .owners = {{1}, 1},
			      .limit_ns = m->taker == PS ? 300000 : 20000,
			      .duration_ns = m->milliseconds * (SECOND_NS / 1000)};
	const struct perf_option table[] = {
		{ALL & ~FLOOR & ~SPAWNING,
		 {"nic", 0, OPTION_TEXT, &o.nic, 0, 0, "SPEC",
		  "NIC drivers, best first: auto, shm, verbs, dpdk:..., udp (FAR_NIC, else auto)", NULL}},
		{SPAWNING & ~FLOOR,
		 {"nic", 0, OPTION_TEXT, &o.nic, 0, 0, "SPEC",
		  "NIC drivers, best first: auto, shm, verbs, dpdk:..., udp (FAR_NIC, else auto); "
		  "memif: a DPDK device between the two",
		  NULL}},
		{FLOOR,
		 {"nic", 0, OPTION_TEXT, &o.nic, 0, 0, "SPEC",
		  "udp, dpdk:..., or memif, a DPDK device between the two (memory)", NULL}},
		{SPAWNING,
		 {"server-nic", 0, OPTION_TEXT, &o.server_nic, 0, 0, "SPEC", "those of the other process (as --nic)",
		  NULL}},
		{SPAWNING | PEER,
		 {"netns", 0, OPTION_TEXT, &o.netns, 0, 0, "NAME",
		  "network namespace to measure from (the present one)", NULL}},
		{SPAWNING,
		 {"server-netns", 0, OPTION_TEXT, &o.server_netns, 0, 0, "NAME",
		  "network namespace of the other process (the present one)", NULL}},
		{MEMORY,
		 {"calls", 0, OPTION_COUNTS, &o.marks, 1, UINT64_C(1000000000000), "N,...",
		  "call counts at which memory is read (1000000,10000000)", NULL}},
		{CALLS | FANOUT | MEMORY | RREF,
		 {"bytes", 0, OPTION_SIZE, &o.bytes, 4, 16 << 20, "SIZE",
		  "request payload (32); of each tensor with --api rpc (8)", NULL}},
		{BANDWIDTH,
		 {"bytes", 0, OPTION_SIZES, &o.sizes, 8, 64 << 20, "SIZE,...",
		  "request payloads (64K,256K,1M,4M,8M; with --rate 1M)", NULL}},
		{BANDWIDTH,
		 {"depth", 0, OPTION_COUNTS, &o.depths, 1, PEER_INFLIGHT_MAX, "N,...",
		  "messages in flight (1,4); with --rate at most (16)", NULL}},
		{BANDWIDTH,
		 {"release", 0, OPTION_FLAG, &o.release, 0, 0, NULL,
		  "write each message anew and send it from there, with a release callback", NULL}},
		{BANDWIDTH,
		 {"memory", 0, OPTION_CHOICE, &o.memory, 0, 0, "WHICH",
		  "own (default), or region: far_alloc_shared(), sent from there; workers of one "
		  "host read it in place, which is the floor",
		  memory_names}},
		{RATE | FLOOR | MEMORY | SHARE,
		 {"inflight", 0, OPTION_COUNT, &o.inflight, 1, PEER_INFLIGHT_MAX, "N", "calls in flight (64)", NULL}},
		{LOADS,
		 {"rate", 0, OPTION_COUNTS, &o.rates, 1, UINT64_C(100000000), "N,...",
		  m->taker == RATE        ? "calls that begin in a second, several in turn (as --inflight allows)"
		  : m->taker == LATENCY   ? "calls that begin in a second, several in turn (one at a time)"
		  : m->taker == BANDWIDTH ? "messages that begin in a second, several in turn (as --depth allows)"
		  : m->taker == FANOUT    ? "fan-outs that begin in a second, several in turn (one at a time)"
				       : "calls of the method that begin in a second, several in turn (one at a time)",
		  NULL}},
		{PS,
		 {"rate", 0, OPTION_COUNTS, &o.rates, 1, UINT64_C(10000000), "N,...",
		  "operations that begin in a second, several in turn (one after the other)", NULL}},
		{PS, {"rows", 0, OPTION_COUNT, &o.rows, 1, UINT64_C(1) << 30, "N", "rows of 16 floats (630000)", NULL}},
		{PS,
		 {"memory", 0, OPTION_SIZE, &o.memory_bytes, 1 << 20, UINT64_C(1) << 40, "SIZE",
		  "instead: as many rows as this holds, with state, index and floors; bytes of the dense table (100 "
		  "MB)",
		  NULL}},
		{PS,
		 {"owners", 0, OPTION_COUNTS, &o.owners, 1, FAR_SHARDS_MAX, "N,...",
		  "shards that own the partitions, several numbers in turn (1)", NULL}},
		{PS,
		 {"workload", 0, OPTION_CHOICE, &o.workload, 0, 0, "NAME",
		  "all (default: the next four), pull, push, get, step; or dense, a table of 100 MB", workload_names}},
		{PS, {"keys", 0, OPTION_CHOICE, &o.keys, 0, 0, "HOW", "both (default), uniform or zipf", keys_names}},
		{PS,
		 {"stop", 0, OPTION_DURATION, &o.stop_ns, SECOND_NS / 100, HOUR_NS, "TIME",
		  "measure pulls of 26 keys with the deadline --limit, while one of two servers is "
		  "stopped for so long again and again",
		  NULL}},
		{PS,
		 {"beside", 0, OPTION_FLAG, &o.beside, 0, 0, NULL,
		  "measure pulls of 26 keys alone, beside large pushes, beside saves, and beside both", NULL}},
		{CALLS,
		 {"api", 0, OPTION_CHOICE, &o.api, 0, 0, "API", "message (default), or rpc: far::add of two tensors",
		  api_names}},
		{BANDWIDTH,
		 {"api", 0, OPTION_CHOICE, &o.api, 0, 0, "API",
		  "message (default), or rpc: calls with one tensor; with --memory region by "
		  "far_rpc_async_zero_copy()",
		  api_names}},
		{CALLS | FANOUT,
		 {"via", 0, OPTION_CHOICE, &o.via, 0, 0, "HOW",
		  "direct (default): the caller polls; thread: the agent's thread does", via_names}},
		{CALLS,
		 {"handler", 0, OPTION_CHOICE, &o.handler, 0, 0, "KIND", "inline (default), fiber or blocking",
		  handler_names}},
		{LATENCY,
		 {"to", 0, OPTION_CHOICE, &o.target, 0, 0, "WHOM", "peer (default), or self: this worker calls itself",
		  target_names}},
		{LATENCY,
		 {"peers", 0, OPTION_COUNTS, &o.peers_each, 1, ATTACHED_PEERS_MAX, "N,...",
		  "workers attached to the server: one active, the others idle (1); several "
		  "numbers in turn with --csv or --plot",
		  NULL}},
		{RATE | PEER | ATTACHED,
		 {"peers", 0, OPTION_COUNT, &o.peers, 1, ATTACHED_PEERS_MAX, "N",
		  "workers attached to the server: one active, the others idle (1)", NULL}},
		{RATE | SERVE | PEER,
		 {"shards", 0, OPTION_COUNT, &o.shards, 1, FAR_SHARDS_MAX, "N", "polling cores of each side (1)",
		  NULL}},
		{PAIRS,
		 {"connect", 0, OPTION_TEXT, &o.connect, 0, 0, "HOST:PORT", "measure with a 'farcall perf serve' there",
		  NULL}},
		{SERVE,
		 {"listen", 0, OPTION_TEXT, &o.listen, 0, 0, "HOST:PORT", "where to wait; port 0: a free one", NULL}},
		{SPAWNING | SERVE | PEER | IDLE | START | STARTING | GROUP | SHARE,
		 {"security", 0, OPTION_TEXT, &o.security, 0, 0, "NAME", "none: also beyond loopback and other users",
		  NULL}},
		{PAIRS | SERVE,
		 {"timeout", 0, OPTION_DURATION, &o.timeout_ns, SECOND_NS / 10, HOUR_NS, "TIME",
		  m->taker == SERVE ? "how long to wait for a client (300)" : "how long to wait for the listener (10)",
		  NULL}},
		{PAIRS | IDLE | FLOOR | FANOUT | WAKE | RREF | TRACE | PS | GROUP | SHARE,
		 {"seconds", 0, OPTION_DURATION, &o.duration_ns, SECOND_NS / 10, HOUR_NS, "TIME", seconds, NULL}},
		{PAIRS | IDLE | FLOOR | FANOUT | WAKE,
		 {"floor", 0, OPTION_FLAG, &o.floor, 0, 0, NULL,
		  "alternate with the floor of memory or NIC; report the ratio", NULL}},
		{TRACE,
		 {"limit", 0, OPTION_DURATION, &o.limit_ns, 1000, HOUR_NS, "TIME", "explain longer round trips (20us)",
		  NULL}},
		{PS,
		 {"limit", 0, OPTION_DURATION, &o.limit_ns, 1000, HOUR_NS, "TIME",
		  "report the share answered within this (300us)", NULL}},
		{TRACE,
		 {"spin", 0, OPTION_DURATION, &o.spin_ns, 1000, SECOND_NS, "TIME",
		  "have the handler of one call in 1024 take so long (none)", NULL}},
		{PAIRS | IDLE | FLOOR | FANOUT | WAKE | MEMORY | RREF | START | TRACE | PS | GROUP | SHARE,
		 {"json", 0, OPTION_FLAG, &o.json, 0, 0, NULL, "one object, the last line of stdout; text to stderr",
		  NULL}},
		{PAIRS | IDLE | FLOOR | FANOUT | WAKE | MEMORY | RREF | START | TRACE | PS | GROUP | SHARE,
		 {"csv", 0, OPTION_FLAG, &o.csv, 0, 0, NULL,
		  "a table on stdout, with names in its first row; text to stderr", NULL}},
		{LOADS,
		 {"plot", 0, OPTION_TEXT, &o.plot, 0, 0, "FILE.svg",
		  m->taker == BANDWIDTH
			  ? "draw bandwidth against size, or latency against load with --rate (needs gnuplot)"
		  : m->taker == LATENCY ? "draw latency against load with --rate, or against peers with --peers N,... "
					  "(needs gnuplot)"
					: "draw latency against load (with --rate; needs gnuplot)",
		  NULL}},
		{FANOUT,
		 {"targets", 0, OPTION_COUNT, &o.targets, 1, PERF_TARGETS_MAX, "N",
		  "targets of a fan-out (1, 8 and 64 in turn)", NULL}},
		{SHARE,
		 {"pairs", 0, OPTION_COUNT, &o.pairs, 2, SHARE_PAIRS_MAX, "N", "pairs of workers (2: four workers)",
		  NULL}},
		{FANOUT,
		 {"servers", 0, OPTION_COUNT, &o.servers, 1, PEER_SERVERS_MAX, "N", "server processes (1)", NULL}},
		{START,
		 {"workers", 0, OPTION_COUNTS, &o.worlds, 1, SPAWN_WORLD_MAX, "N,...", "sizes of the groups (2,64)",
		  NULL}},
		{START | GROUP,
		 {"rounds", 0, OPTION_COUNT, &o.rounds, 1, PERF_ROUNDS_MAX, "N",
		  m->taker == GROUP ? "groups for each figure (5)" : "groups of each size (5)", NULL}},
		{PEER | STARTING, {"peer-fd", 0, OPTION_COUNT, &o.peer_fd, 3, INT32_MAX, "FD", NULL, NULL}},
		{PEER, {"peer-cpu", 0, OPTION_COUNT, &o.peer_cpu, 0, CPU_SETSIZE, "CPU", NULL, NULL}},
		{PEER, {"peer-tables", 0, OPTION_FLAG, &o.peer_tables, 0, 0, NULL, NULL, NULL}},
		{PEER, {"peer-asleep", 0, OPTION_FLAG, &o.peer_asleep, 0, 0, NULL, NULL, NULL}},
		{PEER | ATTACHED,
		 {"peer-rank", 0, OPTION_COUNT, &o.peer_rank, 1, ATTACHED_PEERS_MAX, "RANK", NULL, NULL}},
		{PEER | ATTACHED,
		 {"peer-world", 0, OPTION_COUNT, &o.peer_world, 2, ATTACHED_PEERS_MAX, "N", NULL, NULL}},
	};
	int wrong = perf_options(name, m->about, m->taker, table, sizeof table / sizeof *table, argc, argv);
	if (wrong >= 0)
		return wrong;
	if (m->taker == LATENCY)
		o.peers = o.peers_each.value[0];
	o.to_self = o.target != 0;
	o.compare_via = m->taker == LATENCY && o.via == PERF_VIA_THREAD && !o.connect;
	if (!o.sizes.n)
		o.sizes = o.rates.n ? (struct option_list){{1 << 20}, 1}
				    : (struct option_list){{65536, 262144, 1 << 20, 4 << 20, 8 << 20}, 5};
	if (!o.depths.n)
		o.depths = o.rates.n ? (struct option_list){{16}, 1} : (struct option_list){{1, 4}, 2};
	wrong = perf_check(&o, m->taker);
	/* --seconds is the whole time of those that print one row. */
	bool is_part = m->taker & (BANDWIDTH | PS | GROUP) || o.rates.n;
	pid_t progress = wrong || m->taker & (SERVE | PEER | ATTACHED | STARTING)
				 ? 0
				 : progress_start(o.what, is_part ? 0 : o.duration_ns);
	int rc = wrong ? wrong : o.csv || o.plot ? run_table(&o, m) : m->run(&o);
	progress_end(progress);
	memif_clear();
	return rc;
}

int cmd_perf(int argc, char **argv)
{
	cpu_set_t set;
	cpus = sched_getaffinity(0, sizeof set, &set) < 0 ? 1 : CPU_COUNT(&set);
	if (argc < 2) {
		print_help(stderr);
		return OPTIONS_EXIT_USAGE;
	}
	const char *words[MEASUREMENTS + 2] = {"sim"};
	size_t n = 1;
	if (strcmp(argv[1], words[0]) == 0)
		return perf_sim(argc - 1, argv + 1);
	for (size_t i = 0; i < MEASUREMENTS; i++) {
		if (strcmp(argv[1], measurements[i].name) == 0)
			return measure(&measurements[i], argc - 1, argv + 1);
		if (measurements[i].help)
			words[n++] = measurements[i].name;
	}
	words[n] = NULL;
	static const struct option_spec none[] = {{.name = ""}};
	const struct option_command command = {"farcall perf", "MEASUREMENT [OPTIONS]", "", none};
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		print_help(stdout);
		return 0;
	}
	if (argv[1][0] == '-') {
		int rest;
		return options_parse(&command, argc, argv, &rest) == OPTIONS_DONE ? 0 : OPTIONS_EXIT_USAGE;
	}
	const char *near = options_suggest(argv[1], words);
	if (near)
		return options_wrong("farcall perf", "unknown measurement '%s'; did you mean '%s'?", argv[1], near);
	return options_wrong("farcall perf",
			     "unknown measurement '%s'; give latency, rate, bandwidth, serve, "
			     "fanout, rref, ps, trace, idle, wake, memory, start, group, share, floor or sim",
			     argv[1]);
}
