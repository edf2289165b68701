/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall decode`: what a capture holds of ours, a line for each packet. Main thread. */
#include "decode.h"
#include "apps/cli/options.h"
#include "commands.h"
#include "decode_summary.h"
#include "pcap.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NAME "farcall decode"

struct counts {
	uint64_t shown, others, cut;
	uint64_t first_ns;
	struct decode decode; /* without a summary: a line for each packet */
};

static void decode_frame(const struct pcap *p, const struct pcap_frame *frame, uint64_t port, struct counts *counts)
{
	struct pcap_datagram d;
	if (frame->number == 1)
		counts->first_ns = frame->time_ns;
	if (!pcap_udp(p->link_type, frame->bytes, frame->len, &d) ||
	    (port ? d.from_port != port && d.to_port != port : !decode_likely(d.bytes, d.len))) {
		counts->others++;
		return;
	}
	double seconds = (double)(int64_t)(frame->time_ns - counts->first_ns) / 1e9;
	fprintf(counts->decode.out, "%" PRIu64 " %.6f %s > %s %" PRIu32, frame->number, seconds, d.from, d.to, d.len);
	decode_packet(&counts->decode, &(struct decode_frame){frame->time_ns, d.from, d.to, d.bytes, d.len});
	putc('\n', counts->decode.out);
	counts->shown++;
	counts->cut += d.cut;
}

static int decode_file(const char *path, FILE *file, uint64_t port, bool summary)
{
	struct counts counts = {.decode = {.calls = decode_calls_new(),
					   .summary = summary ? summary_new() : NULL,
					   .out = summary ? fopen("/dev/null", "we") : stdout}};
	struct pcap_frame frame;
	struct pcap *p = malloc(sizeof *p);
	if (!p || !counts.decode.calls || !counts.decode.out || (summary && !counts.decode.summary)) {
		fprintf(stderr, NAME ": no memory for a frame, or for the requests in them\n");
		decode_calls_free(counts.decode.calls);
		free(p);
		return 1;
	}
	int rc = pcap_open(p, file);
	while (!rc && (rc = pcap_next(p, &frame)) > 0) {
		decode_frame(p, &frame, port, &counts);
		rc = ferror(stdout) ? -EPIPE : 0;
		if (file == stdin)
			fflush(stdout);
	}
	if (counts.decode.summary && counts.shown)
		summary_print(counts.decode.summary, stdout);
	fflush(stdout);
	if (rc < 0 && !ferror(stdout))
		fprintf(stderr, NAME ": %s %s\n", path, p->text);
	if (counts.cut)
		fprintf(stderr,
			NAME ": %" PRIu64 " packets were cut when they were captured; capture all of them: "
			     "tcpdump -s 0\n",
			counts.cut);
	if (!rc && !counts.shown)
		fprintf(stderr, NAME ": %s holds no packet of ours among %" PRIu64 " frames%s\n", path, counts.others,
			port ? "" : "; --port shows all datagrams of a port");
	if (summary)
		fclose(counts.decode.out);
	summary_free(counts.decode.summary);
	decode_calls_free(counts.decode.calls);
	free(p);
	return rc < 0 ? 1 : 0;
}

int cmd_decode(int argc, char **argv)
{
	uint64_t port = 0;
	bool summary = false;
	const struct option_spec specs[] = {
		{"port", 'p', OPTION_COUNT, &port, 1, 65535, "N",
		 "every UDP datagram from or to this port (default: datagrams that have a Farcall header)", NULL},
		{"summary", 's', OPTION_FLAG, &summary, 0, 0, NULL,
		 "totals at the end instead: of each session calls by function, retransmissions, latency", NULL},
		{.name = ""}};
	const struct option_command command = {
		NAME, "[OPTIONS] FILE",
		"Prints the Farcall packets of a capture, one per line: every field, and 'ok' or the reason why a\n"
		"receiver refuses the packet. FILE is a classic pcap as tcpdump writes it; - is standard input:\n\n"
		"  tcpdump -i eth0 -U -w - udp | farcall decode -\n\n"
		"Datagrams of RDMA devices over Ethernet (RoCE v2, UDP port 4791) are decoded too; from and to are\n"
		"then queue pairs.\n\n"
		"On the sending host a capture may show several packets as one before segmentation; FAR_NIC=udp:gso=0\n"
		"turns that off. Shared memory has no packets to capture.",
		specs};
	int rest;
	enum options_result parsed = options_parse(&command, argc, argv, &rest);
	if (parsed != OPTIONS_GO)
		return parsed == OPTIONS_DONE ? 0 : OPTIONS_EXIT_USAGE;
	if (rest >= argc)
		return options_wrong(NAME, "no capture is named; give a pcap file, or - for standard input");
	if (rest + 1 < argc)
		return options_wrong(NAME, "%s: one capture at a time", argv[rest + 1]);
	const char *path = argv[rest];
	FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rbe");
	if (!file) {
		fprintf(stderr, NAME ": %s cannot be opened: %s\n", path, strerror(errno));
		return 1;
	}
	int rc = decode_file(file == stdin ? "standard input" : path, file, port, summary);
	if (file != stdin)
		fclose(file);
	return rc;
}
