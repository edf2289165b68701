/* SPDX-License-Identifier: BSD-3-Clause */
/* `farcall perf sim`: its options, and the conditions that every figure states. The thread of the simulated world. */
#include "figure.h"

#include "base/limits.h"
#include "base/must.h"
#include "perf.h"

#include <farcall/version.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NAME    "farcall perf sim"
#define HOUR_NS UINT64_C(3600000000000)
#define MILLIS  UINT64_C(1000000)

enum taker { GOODPUT = 1, INCAST = 2, MIX = 4, SESSIONS = 8, SWITCHED = INCAST | MIX, WORLDS = 7, ALL = 15 };

struct figure_kind {
	const char *name;
	int (*run)(const struct figure_opts *o);
	enum taker taker;
	struct figure_opts usual;
	const char *help, *about;
};

static const struct figure_kind kinds[] = {
	{"goodput",
	 figure_goodput,
	 GOODPUT,
	 {.gbps = 100, .bytes = 8 << 20, .messages = 100, .depth = 2, .losses = {{0, 10, 100, 1000}, 4}},
	 "long messages over a cable that loses packets",
	 "One worker sends long messages to another, some at a time, over a cable that loses packets in both "
	 "directions.\nThe framing limit is what of the line's rate full packets leave to messages, beside all "
	 "headers."},
	{"incast",
	 figure_incast,
	 INCAST,
	 {.gbps = 25,
	  .bytes = 256 << 10,
	  .messages = 10,
	  .workers = 100,
	  .buffer_bytes = 1000000,
	  .priorities = {{1, 8}, 2}},
	 "many workers send to one, and another calls it",
	 "Many workers send long messages to one, each the next when the last was taken, and one more worker makes "
	 "small\ncalls of it. Measured until every sender has had so many taken, or the limit has come."},
	{"mix",
	 figure_mix,
	 MIX,
	 {.gbps = 10, .messages = 0, .workers = 100, .load = 80, .buffer_bytes = 12 << 20, .priorities = {{8}, 1}},
	 "all call all, with the sizes of data centres",
	 "All workers send to all, at random times, messages with the sizes of a mix of the Homa paper (SIGCOMM "
	 "2018).\nThe slowdown is how many times longer one takes, the empty answer included, than its bytes do on an "
	 "idle network."},
	{"sessions",
	 figure_sessions,
	 SESSIONS,
	 {.messages = 100000, .sessions = 20000, .depth = 16},
	 "one shard calls many others, at random",
	 "One shard calls many others, over a session each: at random, and as few of them as calls are under way.\n"
	 "Memory and time are this machine's, and vary; the others are virtual, and cost next to nothing.\n"
	 "Not in it: what the control thread knows of a session, and the driver below of a place."},
};
#define KINDS (sizeof kinds / sizeof *kinds)

FILE *figure_human(const struct figure_opts *o)
{
	return o->json ? stderr : stdout;
}

/* ---- output ---- */

static void print_conditions(const struct figure_opts *o, const struct cluster_cost *cost, uint64_t rtt_ns, FILE *f)
{
	fprintf(f, "%s: MTU %" PRIu64 ", %" PRIu64 " Gb/s, base round trip %.2f us, seed %" PRIu64 ", ", o->what,
		o->mtu, o->gbps, (double)rtt_ns / 1e3, o->seed);
	if (o->ghz)
		fprintf(f, "cores of %" PRIu64 " GHz, %" PRIu32 " instructions a packet and %" PRIu32 " a KiB, ",
			o->ghz, cost->packet, cost->byte_1024);
	else
		fprintf(f, "cores that take no time, ");
	fprintf(f, "simulator %d of farcall %s\n", SIM_MODEL, FAR_VERSION);
	fprintf(f, "of the line's rate messages can have %.3f; %" PRIu64 " packets in a transmit ring",
		figure_framing(o), o->tx_slots);
	if (o->buffer_bytes)
		fprintf(f, ", %" PRIu64 " bytes in the switch", o->buffer_bytes);
	fprintf(f, "\n");
}

static void put_conditions(const struct figure_opts *o, const struct cluster_cost *cost, uint64_t rtt_ns,
			   struct json *j)
{
	json_string(j, "figure", strrchr(o->what, ' ') + 1);
	json_string(j, "version", FAR_VERSION);
	json_u64(j, "simulator", SIM_MODEL);
	json_u64(j, "seed", o->seed);
	json_u64(j, "mtu", o->mtu);
	json_u64(j, "rate_bits_per_s", o->gbps * UINT64_C(1000000000));
	json_u64(j, "delay_ns", o->delay_ns);
	json_u64(j, "tx_ring_packets", o->tx_slots);
	json_u64(j, "base_rtt_ns", rtt_ns);
	json_double(j, "framing_limit", figure_framing(o));
	json_u64(j, "ghz", o->ghz);
	json_u64(j, "instructions_per_packet", o->ghz ? cost->packet : 0);
	json_u64(j, "instructions_per_kib", o->ghz ? cost->byte_1024 : 0);
}

void figure_begin(struct figure_report *r, const struct figure_world *w)
{
	if (r->begun)
		return;
	r->begun = true;
	print_conditions(r->o, &cluster_cost_default, w->rtt_ns, figure_human(r->o));
	r->f = open_memstream(&r->text, &r->size);
	must(r->f != NULL);
	json_begin(&r->json, r->f);
	put_conditions(r->o, &cluster_cost_default, w->rtt_ns, &r->json);
}

int figure_end(struct figure_report *r, int bad)
{
	if (!r->begun)
		return bad;
	json_end(&r->json);
	fclose(r->f);
	if (r->o->json && !bad)
		fwrite(r->text, 1, r->size, stdout);
	free(r->text);
	return bad;
}

static void print_more(const struct figure_world *w, const struct sim_stats *s, const struct far_nic_stats *sum)
{
	FILE *f = figure_human(w->o);
	fprintf(f,
		"    %" PRIu64 " packets; %" PRIu64 " lost by chance, %" PRIu64 " by full queues; %" PRIu64
		" sent again, %" PRIu64 " of them for nothing, %" PRIu64 " time-outs; %" PRIu64 " calls failed",
		s->sent, s->dropped[SIM_DROP_LOSS], s->dropped[SIM_DROP_QUEUE], sum->resent, sum->spurious_retransmits,
		sum->timeouts, w->failed_n);
	if (w->failed_n)
		fprintf(f, ", the first: %s", w->failed.text);
	fprintf(f, "\n");
}

void figure_print_world(const struct figure_world *w, struct json *j)
{
	struct far_nic_stats sum = {.resent = 0};
	struct sim_stats s;
	sim_stats(cluster_sim(w->c), &s);
	for (unsigned i = 0; i < cluster_workers(w->c); i++) {
		struct far_agent *a = cluster_agent(cluster_worker(w->c, i));
		struct far_nic_stats one;
		for (unsigned p = 0; a && p < far_nic_ports(a); p++)
			if (far_nic_stats_read(a, p, &one, NULL) == FAR_OK) {
				sum.resent += one.resent;
				sum.spurious_retransmits += one.spurious_retransmits;
				sum.timeouts += one.timeouts;
			}
	}
	json_u64(j, "packets", s.sent);
	json_u64(j, "lost", s.dropped[SIM_DROP_LOSS]);
	json_u64(j, "dropped_by_queues", s.dropped[SIM_DROP_QUEUE]);
	json_u64(j, "resent", sum.resent);
	json_u64(j, "spurious_retransmits", sum.spurious_retransmits);
	json_u64(j, "timeouts", sum.timeouts);
	json_u64(j, "calls_failed", w->failed_n);
	print_more(w, &s, &sum);
}

/* ---- the command ---- */

static void print_help(FILE *f)
{
	fprintf(f, "usage: farcall perf sim FIGURE [OPTIONS]\n\n"
		   "What the transport does on simulated networks. The same options and seed give\n"
		   "the same numbers, but for those of sessions, which are this machine's.\n\n"
		   "figures:\n");
	for (size_t i = 0; i < KINDS; i++)
		fprintf(f, "  %-10s %s\n", kinds[i].name, kinds[i].help);
	fprintf(f, "\n'farcall perf sim FIGURE --help' lists the options.\n");
}

static int check(const struct figure_opts *o, const struct figure_kind *k)
{
	for (unsigned i = 0; k->taker & GOODPUT && i < o->losses.n; i++)
		if (o->losses.value[i] > 100000)
			return options_wrong(o->what, "--loss: %" PRIu64 " of a million is more than a tenth",
					     o->losses.value[i]);
	return 0;
}

static int measure(const struct figure_kind *k, int argc, char **argv)
{
	char name[64];
	snprintf(name, sizeof name, NAME " %s", k->name);
	struct figure_opts o = k->usual;
	o.what = name;
	o.seed = 1;
	o.mtu = 1500;
	o.tx_slots = 512;
	o.delay_ns = 1000;
	o.limit_ns = k->taker == INCAST ? FAR_SEC : 10 * FAR_SEC;
	const struct perf_option table[] = {
		{ALL,
		 {"seed", 0, OPTION_COUNT, &o.seed, 0, UINT64_C(1) << 62, "N", "seed of all random draws (1)", NULL}},
		{WORLDS, {"mtu", 0, OPTION_COUNT, &o.mtu, SIM_MTU_MIN, 9216, "BYTES", "of IP (1500)", NULL}},
		{WORLDS,
		 {"rate", 0, OPTION_COUNT, &o.gbps, 1, 1000, "GBPS",
		  "rate of every host's link (goodput 100, incast 25, mix 10)", NULL}},
		{WORLDS,
		 {"delay", 0, OPTION_DURATION, &o.delay_ns, 1, 10 * MILLIS, "TIME", "of every cable, one way (1us)",
		  NULL}},
		{WORLDS,
		 {"ring", 0, OPTION_COUNT, &o.tx_slots, 8, 16384, "N", "transmit ring of each NIC, in packets (512)",
		  NULL}},
		{WORLDS,
		 {"ghz", 0, OPTION_COUNT, &o.ghz, 1, 100, "N",
		  "model cores of N GHz with 2 instructions per cycle (default: cores take no time)", NULL}},
		{WORLDS,
		 {"limit", 0, OPTION_DURATION, &o.limit_ns, MILLIS, HOUR_NS, "TIME",
		  "virtual time of a run (incast 1s, else 10s)", NULL}},
		{GOODPUT,
		 {"loss", 0, OPTION_COUNTS, &o.losses, 0, 1000000, "N,...",
		  "packets lost of a million, a run with each (0,10,100,1000)", NULL}},
		{GOODPUT,
		 {"small", 0, OPTION_FLAG, &o.small, 0, 0, NULL,
		  "calls of 32 bytes from the same worker at the same time", NULL}},
		{GOODPUT, {"depth", 0, OPTION_COUNT, &o.depth, 1, 16, "N", "messages at a time (2)", NULL}},
		{SWITCHED,
		 {"priorities", 0, OPTION_COUNTS, &o.priorities, 1, SIM_PRIORITIES_MAX, "N,...",
		  "strict ones of the switch, a run with each (incast 1,8; mix 8)", NULL}},
		{SWITCHED,
		 {"buffer", 0, OPTION_SIZE, &o.buffer_bytes, 10000, 1 << 30, "SIZE",
		  "of the switch; a queue may have 8 times what is free (incast 1000000, mix 12M)", NULL}},
		{SWITCHED, {"workers", 0, OPTION_COUNT, &o.workers, 2, 1000, "N", "workers that send (100)", NULL}},
		{GOODPUT | INCAST,
		 {"bytes", 0, OPTION_SIZE, &o.bytes, 1, FAR_MSG_EAGER_MAX, "SIZE",
		  "of a message (goodput 8M, incast 256K)", NULL}},
		{GOODPUT | INCAST,
		 {"messages", 0, OPTION_COUNT, &o.messages, 1, 1000000, "N",
		  "messages to measure: in all (100), or at least per sender (incast 10)", NULL}},
		{SESSIONS,
		 {"sessions", 0, OPTION_COUNT, &o.sessions, 1, FAR_TRANSPORT_PEERS_MAX, "N", "other shards (20000)",
		  NULL}},
		{SESSIONS,
		 {"depth", 0, OPTION_COUNT, &o.depth, 1, 64, "N", "calls at a time, after one at a time (16)", NULL}},
		{SESSIONS,
		 {"messages", 0, OPTION_COUNT, &o.messages, 1, 100000000, "N", "calls of each measurement (100000)",
		  NULL}},
		{MIX,
		 {"messages", 0, OPTION_COUNT, &o.messages, 10, 1000000, "N",
		  "of each worker (as many as make 2 GB of all)", NULL}},
		{MIX, {"mix", 0, OPTION_CHOICE, &o.mix, 0, 0, "NAME", "W1 (default) to W5", figure_mix_names}},
		{MIX,
		 {"load", 0, OPTION_COUNT, &o.load, 1, 99, "PERCENT",
		  "of every cable, headers and answers included (80)", NULL}},
		{ALL,
		 {"json", 0, OPTION_FLAG, &o.json, 0, 0, NULL, "one object, the last line of stdout; text to stderr",
		  NULL}},
	};
	int wrong = perf_options(name, k->about, k->taker, table, sizeof table / sizeof *table, argc, argv);
	if (wrong >= 0) /* help, too */
		return wrong;
	wrong = check(&o, k);
	return wrong ? wrong : k->run(&o);
}

int perf_sim(int argc, char **argv)
{
	const char *words[KINDS + 1] = {NULL};
	if (argc < 2) {
		print_help(stderr);
		return OPTIONS_EXIT_USAGE;
	}
	for (size_t i = 0; i < KINDS; i++) {
		if (strcmp(argv[1], kinds[i].name) == 0)
			return measure(&kinds[i], argc - 1, argv + 1);
		words[i] = kinds[i].name;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		print_help(stdout);
		return 0;
	}
	const char *near = options_suggest(argv[1], words);
	if (near)
		return options_wrong(NAME, "unknown figure '%s'; did you mean '%s'?", argv[1], near);
	return options_wrong(NAME, "unknown figure '%s'; give goodput, incast, mix or sessions", argv[1]);
}
