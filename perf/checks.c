/* SPDX-License-Identifier: BSD-3-Clause */
/** Checks which options of a measurement go together. Main thread. */
#include "checks.h"

#include "address.h"
#include "agent/nic_spec.h"
#include "apps/cli/options.h"
#include "control/key.h"
#include "memif.h"
#include "netns.h"
#include "nic/nic.h"
#include "plot.h"
#include <string.h>

static int check_bytes(const struct perf_opts *o)
{
	if (o->api == PERF_API_RPC && o->bytes % 4 != 0)
		return options_wrong(o->what, "--bytes: tensors hold 4-byte elements; give a multiple of 4");
	if (o->api == PERF_API_RPC && o->bytes > (4 << 20))
		return options_wrong(o->what,
				     "--bytes: two tensors travel in one call; give at most 4M with --api rpc");
	if (o->api == PERF_API_MESSAGE && o->bytes && o->bytes < sizeof(uint64_t))
		return options_wrong(o->what, "--bytes: every request carries a check of 8 bytes; give at least 8");
	return 0;
}

static int check_address(const struct perf_opts *o, enum taker taker)
{
	struct address at;
	char text[ADDRESS_TEXT_MAX];
	if (taker == SERVE && !o->listen)
		return options_wrong(o->what, "give --listen HOST:PORT, such as --listen 127.0.0.1:29500");
	if (o->listen && address_parse(o->listen, true, &at, text) < 0)
		return options_wrong(o->what, "--listen: %s", text);
	if (o->connect && address_parse(o->connect, false, &at, text) < 0)
		return options_wrong(o->what, "--connect: %s", text);
	if (o->security && strcmp(o->security, "none") != 0)
		return options_wrong(o->what, "--security: \"%.64s\"; it can be none, or be left out", o->security);
	if (!o->connect && !o->listen && o->timeout_ns)
		return options_wrong(o->what, "--timeout goes with --connect; leave it out");
	return 0;
}

/* Where the two processes are, and by what they reach each other. */
static int check_places(const struct perf_opts *o)
{
	if (o->via == PERF_VIA_THREAD && o->server_nic)
		return options_wrong(o->what,
				     "a device that joins two agents has no place for a third; leave --via thread out");
	const char *option = o->netns          ? "--netns"
			     : o->server_netns ? "--server-netns"
			     : o->server_nic   ? "--server-nic"
					       : NULL;
	if (!option)
		return 0;
	if (o->connect)
		return options_wrong(o->what, "%s goes with processes that are started here; leave --connect or it out",
				     option);
	if (o->peers > 1 || o->target)
		return options_wrong(o->what, "%s goes with two processes; leave %s out", option,
				     o->target ? "--to self" : "--peers");
	return 0;
}

static int check_key(struct perf_opts *o)
{
	struct key_choice key;
	struct far_err err;
	if (key_choose(NULL, o->security, true, &key, &err))
		return options_wrong(o->what, "%s", err.text);
	auth_erase(&key.key, sizeof key.key);
	o->beyond_host = key.kind != KEY_AUTO;
	return 0;
}

/* What does not go together. */
static int check(const struct perf_opts *o, enum taker taker)
{
	int wrong = taker & CALLS ? check_bytes(o) : 0;
	if (!wrong)
		wrong = check_address(o, taker);
	if (!wrong && taker & SPAWNING)
		wrong = check_places(o);
	if (wrong || !(taker & PAIRS))
		return wrong;
	if (o->handler != PERF_HANDLER_INLINE && o->api == PERF_API_RPC)
		return options_wrong(o->what, "--handler: far::add is an inline handler; leave --api rpc out");
	if (o->handler != PERF_HANDLER_INLINE && o->via == PERF_VIA_THREAD)
		return options_wrong(o->what, "--handler and --via thread are each compared with the usual call; give "
					      "one of them at a time");
	if (o->connect && (o->peers > 1 || o->target))
		return options_wrong(o->what, "%s needs processes of its own; leave --connect out",
				     o->target ? "--to self" : "--peers");
	if (o->rates.n && (o->via || o->handler || o->shards > 1 || o->floor || o->target || o->release))
		return options_wrong(o->what,
				     "--rate measures calls of an inline handler of one shard of a peer, without a "
				     "floor; leave --%s out",
				     o->via          ? "via thread"
				     : o->handler    ? "handler"
				     : o->shards > 1 ? "shards"
				     : o->target     ? "to self"
				     : o->release    ? "release"
						     : "floor");
	if (taker == BANDWIDTH && o->api == PERF_API_RPC && (o->rates.n || (o->release && !o->memory)))
		return options_wrong(o->what, "--api rpc: %s",
				     o->rates.n ? "--rate sends messages; leave one of them out"
						: "--release goes with --memory region; add that, or leave it out");
	if (o->peers > 1 && (o->target || o->via == PERF_VIA_THREAD))
		return options_wrong(o->what, "--peers measures the usual call; leave --via thread and --to self out");
	return 0;
}

static int check_output(const struct perf_opts *o, enum taker taker)
{
	const char *wrong = NULL;
	if (o->peers_each.n > 1 && !o->csv && !o->plot)
		return options_wrong(o->what, "--peers with several numbers makes a table; give --csv or --plot, too");
	if (o->json && o->csv)
		return options_wrong(o->what, "stdout is for --json or for --csv; leave one of them out");
	if (o->plot && taker & (RATE | FANOUT | RREF) && !o->rates.n)
		return options_wrong(o->what, "--plot draws latency against load; give --rate N,N,...");
	if (o->plot && taker == LATENCY && o->peers_each.n < 2 && !o->rates.n)
		return options_wrong(o->what, "--plot draws latency against peers or load; give --peers N,N,... or "
					      "--rate N,N,...");
	if (o->plot && o->rates.n &&
	    (o->peers_each.n > 1 || (taker == BANDWIDTH && (o->sizes.n > 1 || o->depths.n > 1))))
		return options_wrong(o->what, "--plot draws one curve of latency against load; give one number to %s",
				     taker == LATENCY ? "--peers" : "--bytes and to --depth");
	if (o->plot)
		wrong = plot_check(o->plot);
	return wrong ? options_wrong(o->what, "%s", wrong) : 0;
}

/* Drivers that do not exist are refused here, once: each process of a measurement would report them. */
static int check_drivers(const struct perf_opts *o, const char *option, const char *text)
{
	struct nic_spec spec;
	struct far_err err;
	if (!text)
		return 0;
	if (nic_spec_parse(text, &spec, &err) != FAR_OK) {
		fprintf(stderr, "%s: %s: %s\n", o->what, option, err.text);
		return 1;
	}
	for (unsigned i = 0; i < spec.n; i++) {
		const char *const *name = nic_names;
		while (*name && strcmp(*name, spec.entries[i].name) != 0)
			name++;
		if (*name)
			continue;
		fprintf(stderr, "%s: %s: there is no NIC driver \"%s\"; `farcall info` lists them\n", o->what, option,
			spec.entries[i].name);
		return 1;
	}
	return 0;
}

int perf_check(struct perf_opts *o, enum taker taker)
{
	int wrong = taker & SPAWNING ? memif_expand(o) : 0;
	if (!wrong)
		wrong = check(o, taker);
	if (!wrong)
		wrong = check_key(o);
	if (!wrong)
		wrong = check_drivers(o, "--nic", o->nic) || check_drivers(o, "--server-nic", o->server_nic);
	if (!wrong && taker & SPAWNING)
		wrong = netns_check(o, o->netns) || netns_check(o, o->server_netns);
	return wrong ? wrong : check_output(o, taker);
}
