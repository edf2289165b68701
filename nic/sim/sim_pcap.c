/* SPDX-License-Identifier: BSD-3-Clause */
/** Writes packets to a capture file, with synthetic network headers. Times are the world's, in ns. The thread that runs
 * the world. */
#include "nic/sim/sim_world.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define PCAP_MAGIC_NS 0xa1b23c4du /* readers detect the byte order by it */
#define PCAP_ETHERNET 1u
#define HEADERS       42u
#define PORT_BASE     47000u
#define PATH_BASE     16384u

/* The formats of libpcap with times in ns, native-endian. */
struct pcap_file_head {
	uint32_t magic;
	uint16_t major, minor;
	uint32_t zone, accuracy, snap, network;
};
static_assert(sizeof(struct pcap_file_head) == 24, "as libpcap writes it");

struct pcap_head {
	uint32_t seconds, nanoseconds, len, wire_len;
};
static_assert(sizeof(struct pcap_head) == 16, "as libpcap writes it");

int sim_trace_pcap(struct sim *sim, FILE *out, bool arrived)
{
	const struct pcap_file_head head = {
		.magic = PCAP_MAGIC_NS, .major = 2, .minor = 4, .snap = 1 << 18, .network = PCAP_ETHERNET};
	sim->pcap = NULL;
	if (!out)
		return 0;
	if (fwrite(&head, sizeof head, 1, out) != 1)
		return -EIO;
	sim->pcap = out;
	sim->pcap_arrived = arrived;
	return 0;
}

static void put16(uint8_t *at, uint32_t x)
{
	at[0] = (uint8_t)(x >> 8);
	at[1] = (uint8_t)x;
}

static void put_address(uint8_t *at, const struct sim_packet *p, const struct sim_host *host)
{
	at[0] = 10;
	at[1] = p->rail;
	put16(at + 2, host->number);
}

static uint32_t checksum(const uint8_t *at, unsigned len)
{
	uint32_t sum = 0;
	for (unsigned i = 0; i < len; i += 2)
		sum += (uint32_t)at[i] << 8 | at[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	return ~(sum + (sum >> 16)) & 0xffff;
}

static void frame(const struct sim_packet *p, uint8_t *f)
{
	memset(f, 0, HEADERS);
	/* Locally administered MAC addresses, from the IP addresses. */
	f[0] = f[6] = 2;
	put_address(f + 2, p, p->to);
	put_address(f + 8, p, p->from);
	put16(f + 12, 0x0800);
	uint8_t *ip = f + 14, *udp = ip + 20;
	ip[0] = 0x45;
	ip[1] = (uint8_t)(p->priority << 5); /* class selector */
	put16(ip + 2, p->len + SIM_HEADERS);
	put16(ip + 4, (uint32_t)p->number);
	put16(ip + 6, p->fragments ? 0 : 0x4000);
	ip[8] = 64;
	ip[9] = 17;
	put_address(ip + 12, p, p->from);
	put_address(ip + 16, p, p->to);
	put16(ip + 10, checksum(ip, 20));
	put16(udp, p->path ? PATH_BASE + p->path % (65536 - PATH_BASE) : PORT_BASE + p->from_queue);
	put16(udp + 2, PORT_BASE + p->to_queue);
	put16(udp + 4, p->len + 8); /* and no checksum, as IPv4 allows */
}

void sim_pcap_packet(struct sim *sim, const struct sim_packet *p)
{
	uint8_t headers[HEADERS];
	const struct pcap_head head = {.seconds = (uint32_t)(sim->now / 1000000000),
				       .nanoseconds = (uint32_t)(sim->now % 1000000000),
				       .len = p->len + HEADERS,
				       .wire_len = p->len + HEADERS};
	frame(p, headers);
	if (fwrite(&head, sizeof head, 1, sim->pcap) != 1 || fwrite(headers, HEADERS, 1, sim->pcap) != 1 ||
	    (p->len && fwrite(p->body, p->len, 1, sim->pcap) != 1)) {
		sim->pcap = NULL; /* stop: a truncated file is better than a broken record */
		sim_fail(sim, "the packet capture could not be written: %s", strerror(errno));
	}
}
