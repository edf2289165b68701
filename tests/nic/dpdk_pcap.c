/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Frames in files, by DPDK's net_pcap: what is written can be shown to tshark, and what is read may be anything.
 * `dpdk_pcap DIR write4` writes v4.pcap and leaves the address that it is for; `read4` reads it, `others` what is
 * unexpected and broken. Each in a process of its own, since the first device always has the same MAC address.
 * Main thread of each process.
 */
#include "dpdk_ends.h"

#include "nic/dpdk/frame.h"

#define SENT 400u

static const char *dir;

static void open_file(struct end *e, unsigned number, const char *key, const char *file, const char *ip)
{
	char args[512];
	snprintf(args, sizeof args, "net_pcap%u,%s=%s/%s,ip=%s", number, key, dir, file, ip);
	end_open(e, args, 1);
}

static size_t len_of(const struct end *e, unsigned i)
{
	return i == SENT - 1 ? e->caps.body_bytes_max : 16 + i * 7 % (e->caps.body_bytes_max - 16);
}

/* From a port that writes to one that will read: its address is made with a file that need not be there yet. */
static void write_frames(const char *file, const char *from, const char *to, struct nic_addr *reader)
{
	struct end w, r;
	open_file(&r, 1, "tx_pcap", "unused.pcap", to);
	r.ops->address(r.port, reader);
	open_file(&w, 0, "tx_pcap", file, from);
	uint32_t peer = end_connect(&w, 0, reader, 0);
	for (unsigned i = 0; i < SENT; i++) {
		REQUIRE(send_one(&w, 0, peer, i, len_of(&w, i)) == 0);
		flush(&w, 0);
	}
	w.ops->close(w.port);
	r.ops->close(r.port);
}

static void read_frames(const char *file, const char *to, const struct nic_addr *expected)
{
	struct end r;
	struct nic_addr here;
	struct nic_stats stats;
	uint64_t seq, next = 0, limit = now_ns() + HANG_NS;
	open_file(&r, 1, "rx_pcap", file, to);
	r.ops->address(r.port, &here);
	REQUIRE(memcmp(&here, expected, sizeof here) == 0);
	while (next < SENT) {
		struct nic_pkt pkts[BURST];
		REQUIRE(now_ns() < limit);
		unsigned n = r.q[0]->ops->recv(r.q[0], pkts, BURST);
		for (unsigned i = 0; i < n; i++, next++) {
			REQUIRE(is_whole(&pkts[i], &seq) && seq == next &&
				pkts[i].body_len == len_of(&r, (unsigned)next));
			REQUIRE((uintptr_t)pkts[i].body % r.caps.body_align == 0);
		}
	}
	r.ops->stats(r.port, &stats);
	REQUIRE(stats.rx_packets == SENT && stats.rx_unexpected == 0 && stats.rx_malformed == 0);
	r.ops->close(r.port);
}

/* ---- frames that are not ours, or broken ---- */

struct pcap_head {
	uint32_t magic;
	uint16_t major, minor;
	uint32_t zone, accuracy, snap, link;
};

struct pcap_packet {
	uint32_t s, us, kept, len;
};

static void put(FILE *f, const void *frame, uint32_t len)
{
	struct pcap_packet p = {0, 0, len, len};
	REQUIRE(fwrite(&p, sizeof p, 1, f) == 1 && (len == 0 || fwrite(frame, len, 1, f) == 1));
}

static void read_others(const char *file, const struct nic_addr *reader)
{
	struct end r;
	struct nic_stats stats;
	struct pcap_head head = {0xa1b2c3d4, 2, 4, 0, 0, 65535, 1};
	uint8_t frame[256] = {0}, good[256];
	char path[512];
	struct frame_path access;
	struct frame_addr from = {.ip = {10, 9, 9, 1}, .port = 9}, me = {.ip = {10, 9, 9, 2}};
	/* The address is the driver's business, but a MAC address and a port can be found in it. */
	memcpy(me.mac, reader->blob + 7, 6);
	me.port = 7471;
	frame_path_init(&access, &from, &me);
	unsigned at = frame_write(frame, &access, 100, frame, FRAME_SUM_NONE), len = at + 100;
	memcpy(good, frame, sizeof good);
	snprintf(path, sizeof path, "%s/%s", dir, file);
	FILE *f = fopen(path, "wb");
	REQUIRE(f && fwrite(&head, sizeof head, 1, f) == 1);
	put(f, good, len);
	unsigned unexpected = 0, malformed = 0;
	for (uint32_t cut = 1; cut < len; cut++) { /* too short to be ours, then too short for what it says */
		put(f, good, cut);
		unexpected += cut < at - 4;
		malformed += cut >= at - 4;
	}
	static const struct {
		unsigned byte;
		bool broken;
	} changes[] = {{0, false},  {12, false}, {23, false}, {30, false},
		       {36, false}, {17, true},  {24, true},  {38, true}};
	for (unsigned i = 0; i < sizeof changes / sizeof *changes; i++) {
		memcpy(frame, good, sizeof frame);
		frame[changes[i].byte] ^= 0xff;
		put(f, frame, len);
		unexpected += !changes[i].broken;
		malformed += changes[i].broken;
	}
	put(f, good, len);
	REQUIRE(fclose(f) == 0);

	open_file(&r, 1, "rx_pcap", file, "10.9.9.2/24");
	unsigned ours = 0;
	for (uint64_t limit = now_ns() + HANG_NS; ours < 2;) {
		struct nic_pkt pkts[BURST];
		REQUIRE(now_ns() < limit);
		unsigned n = r.q[0]->ops->recv(r.q[0], pkts, BURST);
		for (unsigned i = 0; i < n; i++)
			REQUIRE(pkts[i].body_len == 100);
		ours += n;
	}
	r.ops->stats(r.port, &stats);
	if (stats.rx_unexpected != unexpected || stats.rx_malformed != malformed)
		fprintf(stderr, "%lu unexpected of %u, %lu malformed of %u\n", (unsigned long)stats.rx_unexpected,
			unexpected, (unsigned long)stats.rx_malformed, malformed);
	REQUIRE(stats.rx_packets == 2 && stats.rx_unexpected == unexpected && stats.rx_malformed == malformed);
	r.ops->close(r.port);
}

static void address_file(struct nic_addr *addr, bool write)
{
	char path[512];
	snprintf(path, sizeof path, "%s/address", dir);
	FILE *f = fopen(path, write ? "wb" : "rb");
	REQUIRE(f && (write ? fwrite(addr, sizeof *addr, 1, f) : fread(addr, sizeof *addr, 1, f)) == 1);
	REQUIRE(fclose(f) == 0);
}

int main(int argc, char **argv)
{
	struct nic_addr addr;
	alarm(150);
	if (argc != 3) {
		fprintf(stderr, "usage: %s DIR write4|write6|read4|read6|others\n", argv[0]);
		return 2;
	}
	dir = argv[1];
	bool v6 = strchr(argv[2], '6'), write = argv[2][0] == 'w';
	const char *file = v6 ? "v6.pcap" : "v4.pcap", *to = v6 ? "fd99::2/64" : "10.9.9.2/24";
	if (!write)
		address_file(&addr, false);
	if (write)
		write_frames(file, v6 ? "fd99::1/64" : "10.9.9.1/24", to, &addr);
	else if (argv[2][0] == 'r')
		read_frames(file, to, &addr);
	else
		read_others("others.pcap", &addr);
	if (write)
		address_file(&addr, true);
	return 0;
}
