/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What comes to a port of the dpdk driver beside the engine's packets, and what several queues on one ring owe each
 * other, with frames from a file by DPDK's net_pcap.
 *
 * usage: dpdk_exception_path CASE, each in a process of its own: MAC addresses are by the number of the device
 * - pmtu4, pmtu6: a router says what it has room for; others make it up
 * - events: the control thread is woken once for all that waits
 * - rooms: answers do not take the room of packets that are reserved
 * - share: each of several queues on one ring may count on its share of it
 * - turns: who finds the ring taken at its last look does not sleep
 */
#include "dpdk_ends.h"

#include "nic/dpdk/dpdk.h"

#define PINGS 10u
/* Of an interface of 1500. */
#define BODY_V4 1472u
#define BODY_V6 1452u

static char dir[] = "/tmp/farcall-exception.XXXXXX";
static struct frame_addr me, them;
static struct nic_addr there;

/* ---- frames in files ---- */

static FILE *file_begin(const char *name)
{
	const uint32_t head[6] = {0xa1b2c3d4, 2 | 4 << 16, 0, 0, 65535, 1};
	char path[128];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "wb");
	REQUIRE(f && fwrite(head, sizeof head, 1, f) == 1);
	return f;
}

static void file_put(FILE *f, const uint8_t *frame, uint32_t len)
{
	const uint32_t head[4] = {0, 0, len, len};
	REQUIRE(fwrite(head, sizeof head, 1, f) == 1 && fwrite(frame, len, 1, f) == 1);
}

static void put16(uint8_t *at, unsigned x)
{
	frame_store16(at, frame_be16((uint16_t)x));
}

/* An ICMP message to us, whose checksums are missing: where it is in the frame. */
static uint8_t *icmp_begin(uint8_t *frame, unsigned icmp_len)
{
	uint8_t *ip = frame + FRAME_MAC_BYTES;
	memcpy(frame, me.mac, 6);
	memcpy(frame + 6, (const uint8_t[6]){2, 0, 0, 0, 0, 99}, 6);
	put16(frame + 12, me.v6 ? 0x86dd : 0x0800);
	if (me.v6) {
		ip[0] = 0x60;
		put16(ip + 4, icmp_len);
		ip[6] = 58;
		ip[7] = 64;
		memcpy(ip + 8, me.ip, 16);
		ip[23] = 99;
		memcpy(ip + 24, me.ip, 16);
		return ip + 40;
	}
	ip[0] = 0x45;
	put16(ip + 2, 20 + icmp_len);
	ip[8] = 64;
	ip[9] = 1;
	memcpy(ip + 12, me.ip, 4);
	ip[15] = 99;
	memcpy(ip + 16, me.ip, 4);
	frame_store16(ip + 10, (uint16_t)~frame_fold(frame_sum(ip, 20)));
	return ip + 20;
}

static void icmp_end(const uint8_t *frame, uint8_t *icmp, unsigned icmp_len)
{
	const uint8_t *ip = frame + FRAME_MAC_BYTES;
	uint64_t pseudo = (uint64_t)frame_sum(ip + 8, 32) + frame_be16((uint16_t)icmp_len) + frame_be16(58);
	frame_store16(icmp + 2, (uint16_t)~frame_fold((me.v6 ? pseudo : 0) + frame_sum(icmp, icmp_len)));
}

/* A router had room for `mtu` only, and got a packet of 1500 from us to `to`. */
static void put_pmtu(FILE *f, unsigned mtu, const struct frame_addr *to, bool broken)
{
	static uint8_t packet[2048];
	uint8_t frame[128] = {0};
	struct frame_path path;
	frame_path_init(&path, &me, to);
	unsigned quoted = path.len - FRAME_MAC_BYTES, icmp_len = 8 + quoted;
	frame_write(packet, &path, me.v6 ? BODY_V6 : BODY_V4, packet + path.len, FRAME_SUM_FULL);
	uint8_t *icmp = icmp_begin(frame, icmp_len);
	icmp[0] = me.v6 ? 2 : 3;
	icmp[1] = me.v6 ? 0 : 4;
	put16(icmp + 6, mtu);
	memcpy(icmp + 8, packet + FRAME_MAC_BYTES, quoted);
	icmp_end(frame, icmp, icmp_len);
	icmp[3] ^= broken;
	file_put(f, frame, (uint32_t)(icmp + icmp_len - frame));
}

static void put_ping(FILE *f)
{
	uint8_t frame[64] = {0};
	uint8_t *icmp = icmp_begin(frame, 8);
	icmp[0] = me.v6 ? 128 : 8;
	icmp_end(frame, icmp, 8);
	file_put(f, frame, 60);
}

/* ---- ports ---- */

/* Where packets go: the first device; the one that is opened next has the next MAC address. */
static void begin(struct end *other, bool v6)
{
	char args[256];
	struct dpdk_blob blob;
	REQUIRE(mkdtemp(dir));
	snprintf(args, sizeof args, "net_pcap0,tx_pcap=%s/there.pcap,ip=%s", dir, v6 ? "fd99::2/64" : "10.9.9.2/24");
	end_open(other, args, 1);
	other->ops->address(other->port, &there);
	memcpy(&blob, there.blob, sizeof blob);
	them = (struct frame_addr){.v6 = v6, .port = blob.port};
	memcpy(them.mac, blob.mac, 6);
	memcpy(them.ip, blob.ip, 16);
	me = them;
	me.mac[5]++;
	me.ip[v6 ? 15 : 3] = 1;
}

/* Ours, which reads in.pcap and writes out.pcap. */
static void open_here(struct end *e, unsigned queues)
{
	char args[256];
	struct nic_addr addr;
	struct dpdk_blob blob;
	snprintf(args, sizeof args, "net_pcap1,rx_pcap=%s/in.pcap,tx_pcap=%s/out.pcap,ip=%s", dir, dir,
		 me.v6 ? "fd99::1/64" : "10.9.9.1/24");
	end_open(e, args, queues);
	e->ops->address(e->port, &addr);
	memcpy(&blob, addr.blob, sizeof blob);
	REQUIRE(memcmp(blob.mac, me.mac, 6) == 0 && memcmp(blob.ip, me.ip, 16) == 0 && blob.port == me.port);
}

static void end_close(struct end *e)
{
	e->ops->close(e->port);
}

static void step(struct end *e)
{
	e->ops->step(e->port, now_ns(), end_on_event, e);
}

/* Receives up to `frames` frames; none of them is for the engine. */
static void take(struct end *e, unsigned queue, unsigned frames)
{
	struct nic_pkt pkts[BURST];
	REQUIRE(e->q[queue]->ops->recv(e->q[queue], pkts, frames) == 0);
}

static uint64_t most(struct end *e, uint32_t peer)
{
	return e->q[0]->ops->tx_bytes_max(e->q[0], peer);
}

/* ---- cases ---- */

static void case_pmtu(bool v6)
{
	struct end other, e;
	unsigned body = v6 ? BODY_V6 : BODY_V4, heads = v6 ? 48 : 28;
	begin(&other, v6);
	struct frame_addr other_port = them, elsewhere = them;
	struct nic_addr far = there;
	struct dpdk_blob blob;
	other_port.port++;
	elsewhere.ip[v6 ? 15 : 3] = 7; /* nobody is sent to there */
	memcpy(&blob, there.blob, sizeof blob);
	blob.ip[v6 ? 15 : 3] = 3;
	memcpy(far.blob, &blob, sizeof blob);
	FILE *f = file_begin("in.pcap");
	put_pmtu(f, 1300, &elsewhere, false);
	put_pmtu(f, 1300, &other_port, false);
	put_pmtu(f, 1300, &them, true);
	put_pmtu(f, 1400, &them, false);
	put_pmtu(f, 1450, &them, false);
	put_pmtu(f, 100, &them, false);
	REQUIRE(fclose(f) == 0);
	open_here(&e, 1);
	/* The second has ports of its own to the same address, the third leads elsewhere. */
	uint32_t first = end_connect(&e, 0, &there, 0), second = end_connect(&e, 0, &there, NIC_ROUTE(0, 1)),
		 third = end_connect(&e, 0, &far, 0);
	for (unsigned i = 0; i < 3; i++) {
		take(&e, 0, 1);
		step(&e);
		REQUIRE(most(&e, first) == body && most(&e, second) == body);
	}
	take(&e, 0, 1);
	REQUIRE(most(&e, first) == body); /* the control thread has not looked yet */
	step(&e);
	REQUIRE(most(&e, first) == 1400 - heads && most(&e, second) == 1400 - heads && most(&e, third) == body);
	REQUIRE(send_one(&e, 0, first, 1, 1400 - heads + 1) == -EMSGSIZE);
	REQUIRE(send_one(&e, 0, first, 1, 1400 - heads) == 0 && send_one(&e, 0, third, 1, body) == 0);
	take(&e, 0, 1);
	step(&e);
	REQUIRE(most(&e, first) == 1400 - heads); /* it never rises */
	take(&e, 0, 1);
	step(&e);
	REQUIRE(most(&e, first) == (v6 ? 1232 : 1024) && most(&e, third) == body);
	end_close(&e);
	end_close(&other);
}

static unsigned long event_count(int fd)
{
	char path[64], line[128];
	unsigned long n = 0;
	bool found = false;
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f))
		found |= sscanf(line, "eventfd-count: %lx", &n) == 1;
	if (f)
		fclose(f);
	REQUIRE(found);
	return n;
}

static void put_pings(void)
{
	FILE *f = file_begin("in.pcap");
	for (unsigned i = 0; i < 2 * PINGS; i++)
		put_ping(f);
	REQUIRE(fclose(f) == 0);
}

static void case_events(void)
{
	struct end other, e;
	begin(&other, false);
	put_pings();
	open_here(&e, 1);
	const struct dpdk_port *p = (const struct dpdk_port *)e.port;
	step(&e);
	REQUIRE(event_count(p->event_fd) == 0);
	for (unsigned i = 0; i < 2; i++) {
		take(&e, 0, PINGS);
		REQUIRE(event_count(p->event_fd) == 1);
		step(&e);
		REQUIRE(event_count(p->event_fd) == 1); /* it has other things to do, and comes back */
		step(&e);
		REQUIRE(event_count(p->event_fd) == 0);
	}
	end_close(&e);
	end_close(&other);
}

/* How many frames out.pcap has, and how many of the first are pings' answers. */
static unsigned written(unsigned *answers_first)
{
	char path[128];
	uint32_t head[6], packet[4];
	uint8_t frame[2048];
	unsigned n = 0, answers = 0;
	snprintf(path, sizeof path, "%s/out.pcap", dir);
	FILE *f = fopen(path, "rb");
	REQUIRE(f && fread(head, sizeof head, 1, f) == 1);
	for (; fread(packet, sizeof packet, 1, f) == 1; n++) {
		REQUIRE(packet[2] <= sizeof frame && fread(frame, packet[2], 1, f) == 1);
		answers += answers == n && frame[23] == 1;
	}
	fclose(f);
	*answers_first = answers;
	return n;
}

/* Until PINGS frames are looked at. */
static void steps(struct end *e)
{
	for (unsigned i = 0; i < 2; i++)
		step(e);
}

static void case_rooms(void)
{
	struct end other, e;
	struct nic_tx tx[DPDK_TX_MAX];
	unsigned answers_first;
	begin(&other, false);
	put_pings();
	open_here(&e, 1);
	uint32_t peer = end_connect(&e, 0, &there, 0);
	for (unsigned i = 0; i < DPDK_TX_MAX; i++) {
		REQUIRE(e.q[0]->ops->tx_reserve(e.q[0], peer, 100, &tx[i]) == 0);
		memset(tx[i].body, 0, 100);
	}
	take(&e, 0, PINGS);
	steps(&e);
	take(&e, 0, PINGS); /* the answers would be sent now */
	for (unsigned i = 0; i < DPDK_TX_MAX; i++)
		REQUIRE(e.q[0]->ops->tx_commit(e.q[0], &tx[i]) == 0);
	flush(&e, 0);
	steps(&e);
	for (unsigned i = 0; i < 3; i++)
		take(&e, 0, PINGS);
	end_close(&e);
	end_close(&other);
	/* Those that found the ring of answers full are forgotten. */
	REQUIRE(written(&answers_first) == DPDK_TX_MAX + EXCEPTION_SLOTS && answers_first == 0);
}

static void case_share(void)
{
	struct end other, e;
	begin(&other, false);
	REQUIRE(fclose(file_begin("in.pcap")) == 0);
	open_here(&e, 2);
	REQUIRE(other.caps.rx_slots >= 2 && e.caps.rx_slots == other.caps.rx_slots / 2);
	end_close(&e);
	end_close(&other);
}

static void case_turns(void)
{
	struct end other, e;
	begin(&other, false);
	REQUIRE(fclose(file_begin("in.pcap")) == 0);
	open_here(&e, 2);
	struct dpdk_port *p = (struct dpdk_port *)e.port;
	const struct host_wake *wake = &p->queues[1]->wake;
	/* Awake it only looks again. */
	atomic_store(&p->ring_taken, 1);
	take(&e, 1, BURST);
	REQUIRE(event_count(wake->event) == 0);
	e.q[1]->ops->arm(e.q[1]);
	take(&e, 1, BURST);
	REQUIRE(event_count(wake->event) == 1);
	struct pollfd fd = {.fd = e.q[1]->ops->wake_fd(e.q[1]), .events = POLLIN};
	REQUIRE(poll(&fd, 1, 0) == 1);
	e.q[1]->ops->disarm(e.q[1]);
	e.q[1]->ops->wake_clear(e.q[1]);
	/* With the ring to itself it has seen all that was there, and may sleep. */
	atomic_store(&p->ring_taken, 0);
	e.q[1]->ops->arm(e.q[1]);
	take(&e, 1, BURST);
	REQUIRE(event_count(wake->event) == 0);
	e.q[1]->ops->disarm(e.q[1]);
	end_close(&e);
	end_close(&other);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {{"events", case_events}, {"rooms", case_rooms}, {"share", case_share}, {"turns", case_turns}};
	char command[64];
	bool ran = false;
	alarm(150);
	if (argc == 2 && strncmp(argv[1], "pmtu", 4) == 0)
		case_pmtu(argv[1][4] == '6'), ran = true;
	for (unsigned i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
		if (strcmp(argv[1], cases[i].name) == 0)
			cases[i].run(), ran = true;
	if (!ran) {
		fprintf(stderr, "usage: %s pmtu4|pmtu6|events|rooms|share|turns\n", argv[0]);
		return 2;
	}
	snprintf(command, sizeof command, "rm -rf %s", dir);
	return system(command) ? 1 : 0;
}
