/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * One of several processes that exchange packets over a datagram driver, each maybe in a network namespace of its own:
 * every one sends requests of all lengths to every other, which sends them back, and compares what returns. Packets may
 * be lost: a request is repeated until its answer is there. They find each other by files in a directory that all of
 * them see. Main thread of each process.
 *
 * usage: nic_peer --dir DIR --index I --peers N [--driver NAME] [--args ARGS] [--listen WHERE] [--queues Q]
 *                 [--calls C] [--until FILE] [--sleep] [--nap MS] [--shift S] [--again N] [--patience SECONDS]
 *
 * Requests are sent to each queue of each peer, C to each at least (default 300), and until FILE is there: then
 * called.INDEX is in DIR as soon as C were answered. With
 * --sleep a process that has nothing to do sleeps until it is woken, and with --nap it does nothing before each call.
 * Queue q sends to queue q + S of the others. With --again the port is opened and closed N times before, which must
 * leave no descriptor open. A process that is silent for PATIENCE seconds, 20 unless it is said, has failed. The last
 * line are its counters: "name=value ...".
 */
#include "nic/nic.h"

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PEERS_MAX = 8, QUEUES_MAX = 16, BURST = 32, PATHS_TRIED = 64 };
#define MAGIC          0x70656572u
#define SECOND         UINT64_C(1000000000)
#define GIVE_UP_NS     (opt.patience_s * SECOND)
#define REPEAT_NS      (SECOND / 50)
#define KICK_NS        (SECOND / 1000)
#define SLEEP_AFTER_NS (SECOND / 500)
#define SLEEP_MS_MAX   1000

/** In front of every packet's body. */
struct words {
	uint32_t magic, number, len;
	uint16_t from;      /* process that called */
	uint8_t answer;     /* 0: a request */
	uint8_t queue;      /* it was meant for */
	uint8_t arrived_at; /* set by who answers */
	uint8_t unused[7];
};

static struct {
	const char *dir, *driver, *args, *listen, *until;
	unsigned index, peers, queues, calls, nap_ms, shift, again, patience_s;
	bool sleep;
} opt = {.driver = "dpdk", .queues = 1, .calls = 300, .patience_s = 20};

static struct nic_port *port;
static struct nic_caps caps;
static struct nic_queue *queues[QUEUES_MAX];
/* Places to send to, by local queue and process; what is sent there arrives at queue target(). */
static uint32_t dests[QUEUES_MAX][PEERS_MAX];
static uint32_t last_up;
static bool failed;
static uint64_t repeated, wakes, quiet_since;
static unsigned answered_at; /* queue, of the last answer */
static uint32_t awaited;
static bool is_answered;
static unsigned longest;

static void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void die(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "nic_peer %u: ", opt.index);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SECOND + (uint64_t)ts.tv_nsec;
}

static uint8_t pattern(unsigned from, uint32_t number, uint32_t i)
{
	return (uint8_t)(from * 101 + number * 31 + i * 7 + (i >> 8));
}

static void file_name(char out[512], const char *what, unsigned index)
{
	snprintf(out, 512, "%s/%s.%u", opt.dir, what, index);
}

/* Appears as a whole or not at all. */
static void publish(const char *what, const void *bytes, size_t len)
{
	char name[512], temporary[520];
	file_name(name, what, opt.index);
	snprintf(temporary, sizeof temporary, "%s.new", name);
	FILE *f = fopen(temporary, "w");
	if (!f || fwrite(bytes, 1, len, f) != len || fclose(f) != 0 || rename(temporary, name) != 0)
		die("cannot write %s: %s", name, strerror(errno));
}

static bool is_there(const char *what, unsigned index)
{
	char name[512];
	file_name(name, what, index);
	return access(name, F_OK) == 0;
}

static int on_event(void *ctx, const struct nic_event *event)
{
	if (event->type == NIC_EVENT_UP)
		last_up = event->peer;
	else
		failed = true;
	if (event->type == NIC_EVENT_FAILED)
		fprintf(stderr, "nic_peer %u: %s\n", opt.index, event->text);
	return 0;
}

static void fill(uint8_t *body, const struct words *w)
{
	memcpy(body, w, sizeof *w);
	for (uint32_t i = 0; i < w->len; i++)
		body[sizeof *w + i] = pattern(w->from, w->number, i);
}

/* As a datagram: when there is no room it is lost. */
static void send_to(unsigned q, uint32_t dest, const struct words *w)
{
	const struct nic_queue_ops *ops = queues[q]->ops;
	struct nic_tx tx;
	int rc = ops->tx_reserve(queues[q], dest, sizeof *w + w->len, &tx);
	if (rc == 0) {
		fill(tx.body, w);
		rc = ops->tx_commit(queues[q], &tx);
		if (rc)
			ops->tx_cancel(queues[q], &tx);
	}
	if (rc != 0 && rc != -EAGAIN && rc != -ENOBUFS)
		die("sending %zu bytes: %s", sizeof *w + w->len, strerror(-rc));
	ops->flush(queues[q]);
}

static void handle(unsigned q, const struct nic_pkt *pkt)
{
	struct words w;
	if (pkt->peer != NIC_PEER_NONE || pkt->body_len < sizeof w)
		die("a packet of %llu bytes from peer %u", (unsigned long long)pkt->body_len, pkt->peer);
	memcpy(&w, pkt->body, sizeof w);
	if (w.magic != MAGIC || w.len != pkt->body_len - sizeof w || w.from >= opt.peers)
		die("a packet that none of us sent");
	for (uint32_t i = 0; i < w.len; i++)
		if (pkt->body[sizeof w + i] != pattern(w.from, w.number, i))
			die("byte %u of %u is wrong", i, w.len);
	if (w.len > longest)
		longest = w.len;
	if (w.answer) {
		if (w.from != opt.index)
			die("the answer to another");
		if (w.number == awaited) {
			is_answered = true;
			answered_at = w.arrived_at;
		}
		return;
	}
	w.answer = 1;
	w.arrived_at = (uint8_t)q;
	send_to(w.queue < opt.queues ? w.queue : 0, dests[w.queue < opt.queues ? w.queue : 0][w.from], &w);
}

/* Nothing came for a while: sleeps on the first queue, as a worker of one shard does. */
static void sleep_on(unsigned q)
{
	const struct nic_queue_ops *ops = queues[q]->ops;
	struct nic_pkt pkt[BURST];
	ops->arm(queues[q]);
	unsigned n = ops->recv(queues[q], pkt, BURST);
	for (unsigned i = 0; i < n; i++)
		handle(q, &pkt[i]);
	struct pollfd in = {.fd = ops->wake_fd(queues[q]), .events = POLLIN};
	if (n == 0 && poll(&in, 1, SLEEP_MS_MAX) == 1) {
		wakes++;
		ops->wake_clear(queues[q]);
	}
	ops->disarm(queues[q]);
	quiet_since = now_ns();
}

static void turn(bool may_sleep)
{
	unsigned all = 0;
	for (unsigned q = 0; q < opt.queues; q++) {
		struct nic_pkt pkt[BURST];
		unsigned n = queues[q]->ops->recv(queues[q], pkt, BURST);
		for (unsigned i = 0; i < n; i++) {
			handle(q, &pkt[i]);
			if (pkt[i].cookie)
				queues[q]->ops->release(queues[q], pkt[i].peer, pkt[i].cookie);
		}
		if (n == 0)
			queues[q]->ops->flush(queues[q]);
		all += n;
	}
	if (all || !may_sleep)
		quiet_since = now_ns();
	else if (opt.sleep && now_ns() - quiet_since > SLEEP_AFTER_NS)
		sleep_on(0);
	port->ops->step(port, now_ns(), on_event, NULL);
}

/* Whether the answer came within `limit`. */
static bool call(unsigned q, uint32_t dest, uint32_t len, uint64_t limit)
{
	static uint32_t number;
	struct words w = {MAGIC, ++number, len, (uint16_t)opt.index, 0, (uint8_t)q, 0, {0}};
	uint64_t begin = now_ns(), sent = begin, kicked = begin;
	const struct nic_queue_ops *ops = queues[q]->ops;
	awaited = number;
	is_answered = false;
	send_to(q, dest, &w);
	while (!is_answered) {
		turn(false);
		uint64_t now = now_ns();
		if (now - begin > limit)
			return false;
		if (ops->kick && now - kicked > KICK_NS) {
			ops->kick(queues[q], dest);
			kicked = now;
		}
		if (now - sent > REPEAT_NS) {
			send_to(q, dest, &w);
			sent = now;
			repeated++;
		}
	}
	return true;
}

static unsigned target(unsigned q)
{
	return (q + opt.shift) % opt.queues;
}

static uint32_t connect_to(unsigned q, unsigned i, const struct nic_addr *addr, unsigned route)
{
	struct nic_err err = {""};
	uint64_t deadline = now_ns() + GIVE_UP_NS;
	last_up = NIC_PEER_NONE;
	int rc = port->ops->connect(port, &(struct nic_connect){q, addr, route, NULL, 0, deadline, NULL}, &err);
	if (rc)
		die("connect to %u: %s: %s", i, strerror(-rc), err.text);
	while (last_up == NIC_PEER_NONE && !failed && now_ns() < deadline)
		port->ops->step(port, now_ns(), on_event, NULL);
	if (last_up == NIC_PEER_NONE)
		die("connect to %u: no UP", i);
	rc = queues[q]->ops->attach(queues[q], last_up);
	if (rc)
		die("attach: %s", strerror(-rc));
	return last_up;
}

static struct nic_addr addr_of(unsigned i)
{
	char name[512];
	struct nic_addr addr;
	uint64_t until = now_ns() + GIVE_UP_NS;
	while (!is_there("addr", i)) {
		if (now_ns() > until)
			die("worker %u does not appear", i);
		poll(NULL, 0, 5);
	}
	file_name(name, "addr", i);
	FILE *f = fopen(name, "r");
	if (!f || fread(&addr, sizeof addr, 1, f) != 1)
		die("cannot read %s", name);
	fclose(f);
	return addr;
}

/* A device that steers by hash: other paths arrive at other queues, until one arrives at the right one. */
static void find_path(unsigned q, unsigned i, const struct nic_addr *addr)
{
	for (unsigned path = 1; path < PATHS_TRIED; path++) {
		if (call(q, dests[q][i], 0, GIVE_UP_NS) && answered_at == target(q))
			return;
		queues[q]->ops->detach(queues[q], dests[q][i]);
		port->ops->drop(port, dests[q][i]);
		dests[q][i] = connect_to(q, i, addr, NIC_ROUTE(target(q), path));
	}
	die("no path leads to queue %u of worker %u", target(q), i);
}

static void meet(unsigned i)
{
	struct nic_err err = {""};
	struct nic_addr addr = addr_of(i);
	char text[256];
	port->ops->address_text(&addr, text, sizeof text);
	int rc = port->ops->reach(port, &addr, &err);
	if (rc)
		die("reach %s: %s: %s", text, strerror(-rc), err.text);
	printf("worker %u is at %s\n", i, text);
	for (unsigned q = 0; q < opt.queues; q++)
		dests[q][i] = connect_to(q, i, &addr, NIC_ROUTE(target(q), 0));
}

static bool all(const char *what)
{
	for (unsigned i = 0; i < opt.peers; i++)
		if (!is_there(what, i))
			return false;
	return true;
}

/* Serves the others until all are so far. */
static void wait_for_all(const char *what)
{
	uint64_t until = now_ns() + GIVE_UP_NS;
	publish(what, "", 0);
	while (!all(what)) {
		turn(true);
		if (now_ns() > until)
			die("the others are not %s", what);
	}
}

static void call_all(void)
{
	for (unsigned n = 0; n < opt.calls || (opt.until && access(opt.until, F_OK) != 0); n++) {
		if (n == opt.calls)
			publish("called", "", 0);
		for (unsigned q = 0; q < opt.queues; q++) {
			for (unsigned i = 0; i < opt.peers; i++) {
				if (i == opt.index)
					continue;
				uint64_t max = queues[q]->ops->tx_bytes_max(queues[q], dests[q][i]);
				if (max <= sizeof(struct words))
					die("packets of %llu bytes at most", (unsigned long long)max);
				max -= sizeof(struct words);
				/* All lengths, and the largest ones again and again. */
				uint32_t len = (uint32_t)(n % 4 == 3 ? max - n % 16 / 4 : n * 7 % max);
				if (!call(q, dests[q][i], len, GIVE_UP_NS))
					die("worker %u does not answer", i);
				if (answered_at != target(q))
					die("sent to queue %u, arrived at %u", target(q), answered_at);
				if (opt.nap_ms)
					poll(NULL, 0, (int)opt.nap_ms);
			}
		}
	}
}

static void close_all(void)
{
	for (unsigned q = 0; q < opt.queues; q++) {
		for (unsigned i = 0; i < opt.peers; i++) {
			if (i == opt.index)
				continue;
			queues[q]->ops->detach(queues[q], dests[q][i]);
			port->ops->drop(port, dests[q][i]);
		}
	}
	port->ops->close(port);
}

static void report(void)
{
	struct nic_stats s = {0};
	port->ops->stats(port, &s);
	printf("repeated=%llu wakes=%llu longest=%u rx_packets=%llu tx_packets=%llu rx_unexpected=%llu "
	       "rx_malformed=%llu "
	       "rx_missed=%llu tx_dropped=%llu kicks=%llu\n",
	       (unsigned long long)repeated, (unsigned long long)wakes, longest + (unsigned)sizeof(struct words),
	       (unsigned long long)s.rx_packets, (unsigned long long)s.tx_packets, (unsigned long long)s.rx_unexpected,
	       (unsigned long long)s.rx_malformed, (unsigned long long)s.rx_missed, (unsigned long long)s.tx_dropped,
	       (unsigned long long)s.kicks);
}

static void open_port(void)
{
	struct nic_err err = {""};
	const struct nic_port_ops *driver = nic_find(opt.driver, &err);
	if (!driver)
		die("%s", err.text);
	struct nic_config config = {.id = ((uint64_t)getpid() << 8) + opt.index,
				    .beyond_host = true,
				    .queues = opt.queues,
				    .args = opt.args,
				    .listen = opt.listen};
	int rc = driver->open(&config, &port, &err);
	if (rc)
		die("open: %s: %s", strerror(-rc), err.text);
	port->ops->caps(port, &caps);
	if (caps.connected)
		die("%s is no datagram driver", opt.driver);
	for (unsigned q = 0; q < opt.queues; q++)
		queues[q] = port->ops->queue(port, q);
}

static unsigned descriptors(void)
{
	unsigned n = 0;
	DIR *d = opendir("/proc/self/fd");
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{"dir", 1, NULL, 'd'},   {"index", 1, NULL, 'i'},    {"peers", 1, NULL, 'n'},  {"driver", 1, NULL, 'D'},
		{"args", 1, NULL, 'a'},  {"listen", 1, NULL, 'l'},   {"queues", 1, NULL, 'q'}, {"calls", 1, NULL, 'c'},
		{"until", 1, NULL, 'u'}, {"sleep", 0, NULL, 's'},    {"nap", 1, NULL, 'N'},    {"shift", 1, NULL, 'S'},
		{"again", 1, NULL, 'A'}, {"patience", 1, NULL, 'p'}, {NULL, 0, NULL, 0},
	};
	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (c) {
		case 'd':
			opt.dir = optarg;
			break;
		case 'i':
			opt.index = (unsigned)atoi(optarg);
			break;
		case 'n':
			opt.peers = (unsigned)atoi(optarg);
			break;
		case 'D':
			opt.driver = optarg;
			break;
		case 'a':
			opt.args = optarg;
			break;
		case 'l':
			opt.listen = optarg;
			break;
		case 'q':
			opt.queues = (unsigned)atoi(optarg);
			break;
		case 'c':
			opt.calls = (unsigned)atoi(optarg);
			break;
		case 'u':
			opt.until = optarg;
			break;
		case 'N':
			opt.nap_ms = (unsigned)atoi(optarg);
			break;
		case 'A':
			opt.again = (unsigned)atoi(optarg);
			break;
		case 'S':
			opt.shift = (unsigned)atoi(optarg);
			break;
		case 'p':
			opt.patience_s = (unsigned)atoi(optarg);
			break;
		case 's':
			opt.sleep = true;
			break;
		default:
			exit(2);
		}
	}
	if (!opt.dir || opt.peers < 2 || opt.peers > PEERS_MAX || opt.index >= opt.peers || opt.queues < 1 ||
	    opt.queues > QUEUES_MAX) {
		fprintf(stderr, "usage: nic_peer --dir DIR --index I --peers 2..%d ...; see its source\n", PEERS_MAX);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	parse(argc, argv);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (unsigned first = 0, n = 0; n < opt.again; n++) {
		open_port();
		port->ops->close(port);
		unsigned open_now = descriptors();
		if (n == 0) /* EAL keeps some for good */
			first = open_now;
		if (open_now != first)
			die("%u descriptors are open after %u openings, %u after the first", open_now, n + 1, first);
	}
	open_port();
	struct nic_addr own = {0};
	port->ops->address(port, &own);
	publish("addr", &own, sizeof own);
	for (unsigned i = 0; i < opt.peers; i++)
		if (i != opt.index)
			meet(i);
	wait_for_all("ready");
	if (caps.steering == NIC_STEER_HASH && opt.queues > 1) {
		for (unsigned q = 0; q < opt.queues; q++) {
			for (unsigned i = 0; i < opt.peers; i++) {
				struct nic_addr addr = addr_of(i);
				if (i != opt.index)
					find_path(q, i, &addr);
			}
		}
	}
	call_all();
	wait_for_all("done");
	report();
	close_all();
	return 0;
}
