/* SPDX-License-Identifier: BSD-3-Clause */
/** What the lossy driver does to packets, each thing by itself and for certain; and what it takes as arguments.
 * The test's thread. */
#include "nic/lossy/lossy.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEN = 100, MANY = 4000 };

static char dir[] = "/tmp/far-lossy-XXXXXX";
static struct nic_port *from, *to;
static struct nic_queue *q, *to_q;
static uint32_t peer;
static struct {
	unsigned ups, fails, others;
	uint32_t peer;
} seen;

static int on_event(void *ctx, const struct nic_event *ev)
{
	seen.ups += ev->type == NIC_EVENT_UP;
	seen.fails += ev->type == NIC_EVENT_FAILED;
	seen.others += ev->type != NIC_EVENT_UP && ev->type != NIC_EVENT_FAILED;
	if (ev->type == NIC_EVENT_UP)
		seen.peer = ev->peer;
	return 0;
}

static struct nic_port *port_open(const char *args, uint64_t id, unsigned queues)
{
	struct nic_port *port = NULL;
	struct nic_err err = {""};
	struct nic_config config = {.runtime_dir = dir, .id = id, .queues = queues, .args = args};
	cr_assert_eq(nic_lossy_port_ops.open(&config, &port, &err), 0, "%s", err.text);
	return port;
}

static void step_both(void)
{
	struct nic_pkt pkt;
	from->ops->step(from, lossy_now(), on_event, NULL);
	to->ops->step(to, lossy_now(), on_event, NULL);
	to_q->ops->recv(to_q, &pkt, 0);
}

/* From queue `queue` of a port with these arguments to one that does nothing. */
static void connect_with(const char *args, unsigned queue)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	cr_assert(mkdtemp(dir));
	from = port_open(args, 1, 2);
	to = port_open("over=shm", 2, 1);
	q = from->ops->queue(from, queue);
	to_q = to->ops->queue(to, 0);
	to->ops->address(to, &addr);
	cr_assert_eq(from->ops->connect(from,
					&(struct nic_connect){queue, &addr, 0, NULL, 0,
							      lossy_now() + UINT64_C(10000000000), &peer},
					&err),
		     0, "%s", err.text);
	while (!seen.ups && !seen.fails)
		step_both();
	cr_assert_eq(seen.ups, 1u);
	cr_assert_eq(seen.others, 0u);
	peer = seen.peer;
	cr_assert_eq(q->ops->attach(q, peer), 0);
}

static void disconnect(void)
{
	if (q && peer != NIC_PEER_NONE)
		q->ops->detach(q, peer);
	if (from)
		from->ops->close(from);
	if (to)
		to->ops->close(to);
	from = to = NULL;
	q = to_q = NULL;
	memset(&seen, 0, sizeof seen);
}

static void teardown(void)
{
	DIR *d;
	disconnect();
	d = opendir(dir);
	for (struct dirent *e; d && (e = readdir(d));)
		cr_assert_eq(e->d_name[0], '.', "%s was left behind", e->d_name);
	if (d)
		closedir(d);
	rmdir(dir);
}

TestSuite(lossy, .fini = teardown);

/* No part of it can change and another number's still be whole. */
static void fill(uint8_t *body, uint32_t number)
{
	uint32_t inverse = ~number;
	memset(body, (int)number, LEN);
	memcpy(body, &number, sizeof number);
	memcpy(body + sizeof number, &inverse, sizeof inverse);
}

static int send_number(uint32_t number)
{
	struct nic_tx tx;
	int error = q->ops->tx_reserve(q, peer, LEN, &tx);
	if (error)
		return error;
	fill(tx.body, number);
	error = q->ops->tx_commit(q, &tx);
	q->ops->flush(q);
	return error;
}

/* Takes one; false: there is none. `whole`: as it was sent. */
static bool take_number(uint32_t *number, bool *whole)
{
	struct nic_pkt pkt;
	uint8_t want[LEN];
	if (to_q->ops->recv(to_q, &pkt, 1) == 0)
		return false;
	cr_assert(pkt.head && pkt.peer == NIC_PEER_NONE && pkt.cookie == 0);
	cr_assert_leq(pkt.body_len, (uint64_t)LEN);
	*number = UINT32_MAX;
	if (pkt.body_len >= sizeof *number)
		memcpy(number, pkt.body, sizeof *number);
	fill(want, *number);
	*whole = pkt.body_len == LEN && memcmp(want, pkt.body, LEN) == 0;
	return true;
}

static uint64_t dropped(void)
{
	struct nic_stats stats;
	from->ops->stats(from, &stats);
	return stats.tx_dropped;
}

/* ---- effects ---- */

Test(lossy, nothing)
{
	uint32_t number;
	bool whole;
	connect_with("over=shm", 0);
	for (uint32_t i = 0; i < MANY; i++) {
		cr_assert_eq(send_number(i), 0);
		cr_assert(take_number(&number, &whole));
		cr_assert(number == i && whole);
	}
	cr_assert_eq(dropped(), 0u);
	cr_assert_eq(q->ops->deadline(q), UINT64_MAX);
}

Test(lossy, drop)
{
	uint32_t number;
	bool whole;
	connect_with("over=shm,drop=1", 0);
	for (uint32_t i = 0; i < MANY; i++)
		cr_assert_eq(send_number(i), 0);
	cr_assert_not(take_number(&number, &whole));
	cr_assert_eq(dropped(), (uint64_t)MANY);
}

Test(lossy, duplicate)
{
	uint32_t number;
	bool whole;
	connect_with("over=shm,duplicate=100%", 0);
	for (uint32_t i = 0; i < MANY; i++) {
		cr_assert_eq(send_number(i), 0);
		for (unsigned copy = 0; copy < 2; copy++) {
			cr_assert(take_number(&number, &whole));
			cr_assert(number == i && whole);
		}
		cr_assert_not(take_number(&number, &whole));
	}
}

Test(lossy, corrupt)
{
	uint32_t number, cut = 0;
	bool whole;
	connect_with("over=shm,corrupt=1.0", 0);
	for (uint32_t i = 0; i < MANY; i++) {
		struct nic_pkt pkt;
		cr_assert_eq(send_number(i), 0);
		if (i % 2) {
			cr_assert_eq(to_q->ops->recv(to_q, &pkt, 1), 1u);
			cut += pkt.body_len < LEN;
			continue;
		}
		cr_assert(take_number(&number, &whole));
		cr_assert_not(whole, "packet %u arrived as it was sent", i);
	}
	cr_assert(cut > MANY / 16 && cut < MANY / 4, "%u of %u were cut short", cut, MANY / 2);
}

/* One bit is all that there is to flip, or nothing. */
Test(lossy, corrupt_small)
{
	connect_with("over=shm,corrupt=1", 0);
	for (unsigned i = 0; i < 200; i++) {
		struct nic_tx tx;
		struct nic_pkt pkt;
		cr_assert_eq(q->ops->tx_reserve(q, peer, i % 2, &tx), 0);
		if (i % 2)
			tx.body[0] = 0x5a;
		cr_assert_eq(q->ops->tx_commit(q, &tx), 0);
		q->ops->flush(q);
		cr_assert_eq(to_q->ops->recv(to_q, &pkt, 1), 1u);
		cr_assert(pkt.body_len == 0 || (i % 2 && pkt.body[0] != 0x5a));
	}
}

/* Nothing before it is due, all of it later: by deadline(), with nobody sending any more. */
Test(lossy, delay)
{
	uint32_t number;
	bool whole, had[50] = {false};
	connect_with("over=shm,delay=1:200ms", 0);
	uint64_t begin = lossy_now();
	for (uint32_t i = 0; i < 50; i++)
		cr_assert_eq(send_number(i), 0);
	for (unsigned n = 0; n < 50;) {
		struct nic_pkt pkt;
		uint64_t due = q->ops->deadline(q), now = lossy_now();
		cr_assert(due > begin && due <= now + UINT64_C(200000000), "due in %ld ns", (long)(due - now));
		if (due > now) {
			usleep((useconds_t)((due - now) / 1000 + 1));
			cr_assert(!take_number(&number, &whole), "nobody sent it");
		}
		cr_assert_eq(q->ops->recv(q, &pkt, 1), 0u);
		for (; take_number(&number, &whole); n++) {
			cr_assert(whole && number < 50 && !had[number]);
			had[number] = true;
		}
	}
	cr_assert_eq(q->ops->deadline(q), UINT64_MAX);
}

/* What cannot be held is sent at once. */
Test(lossy, delay_full)
{
	uint32_t number, n = 0;
	bool whole;
	connect_with("over=shm,delay=1:10s", 0);
	for (uint32_t i = 0; i < LOSSY_HELD_MAX + 100; i++)
		cr_assert_eq(send_number(i), 0);
	for (; take_number(&number, &whole); n++)
		cr_assert(whole && number == LOSSY_HELD_MAX + n);
	cr_assert_eq(n, 100u);
	q->ops->detach(q, peer);
	cr_assert_eq(dropped(), (uint64_t)LOSSY_HELD_MAX);
	cr_assert_eq(q->ops->deadline(q), UINT64_MAX);
	cr_assert_eq(q->ops->attach(q, peer), 0);
	cr_assert_eq(send_number(7), 0);
	cr_assert_neq(q->ops->deadline(q), UINT64_MAX);
}

/* Overtaken by up to three; the last ones leave by time, not later than all of it. */
Test(lossy, reorder)
{
	uint32_t number, late = 0, n = 0;
	bool whole, had[MANY] = {false};
	connect_with("over=shm,reorder=0.3:3,seed=4", 0);
	for (uint32_t i = 0; i < MANY; i++) {
		cr_assert_eq(send_number(i), 0);
		for (; take_number(&number, &whole); n++) {
			cr_assert(whole && number <= i && !had[number]);
			cr_assert_leq(i - number, 3u);
			late += number < i;
			had[number] = true;
		}
	}
	cr_assert(late > MANY / 5 && late < MANY / 2, "%u late", late);
	while (n < MANY) {
		struct nic_pkt pkt;
		cr_assert_leq(q->ops->deadline(q), lossy_now() + LOSSY_REORDER_NS_MAX);
		cr_assert_eq(q->ops->recv(q, &pkt, 1), 0u);
		for (; take_number(&number, &whole); n++)
			cr_assert(whole && !had[number]);
	}
	cr_assert_eq(dropped(), 0u);
}

/* Which of many arrive, as bits. */
static void fates(const char *args, unsigned queue, uint8_t bits[MANY / 8])
{
	uint32_t number;
	bool whole;
	connect_with(args, queue);
	memset(bits, 0, MANY / 8);
	for (uint32_t i = 0; i < MANY; i++) {
		cr_assert_eq(send_number(i), 0);
		if (take_number(&number, &whole))
			bits[number / 8] |= (uint8_t)(1u << number % 8);
	}
	disconnect();
	cr_assert_eq(rmdir(dir), 0);
	memcpy(dir + strlen(dir) - 6, "XXXXXX", 6);
}

Test(lossy, seed)
{
	uint8_t first[MANY / 8], again[MANY / 8];
	fates("over=shm,drop=0.5,seed=7", 0, first);
	fates("over=shm,drop=0.5,seed=7", 0, again);
	cr_assert_eq(memcmp(first, again, sizeof first), 0, "the seed decides");
	fates("over=shm,drop=0.5,seed=8", 0, again);
	cr_assert_neq(memcmp(first, again, sizeof first), 0, "another seed");
	fates("over=shm,drop=0.5,seed=7", 1, again);
	cr_assert_neq(memcmp(first, again, sizeof first), 0, "another queue");
	unsigned arrived = 0;
	for (unsigned i = 0; i < MANY; i++)
		arrived += first[i / 8] >> i % 8 & 1;
	cr_assert(arrived > MANY * 2 / 5 && arrived < MANY * 3 / 5, "%u of %u", arrived, MANY);
}

/* All at once: each packet arrives whole at most twice, and nearly all do. */
Test(lossy, everything)
{
	static uint8_t had[MANY];
	uint32_t number, whole_n = 0;
	bool whole;
	connect_with("over=shm,drop=1%,delay=1%:2ms,duplicate=1%,reorder=1%,corrupt=1%,seed=3", 0);
	memset(had, 0, sizeof had);
	for (uint32_t i = 0; i < MANY || q->ops->deadline(q) != UINT64_MAX; i++) {
		struct nic_pkt pkt;
		if (i < MANY)
			cr_assert_eq(send_number(i), 0);
		cr_assert_eq(q->ops->recv(q, &pkt, 1), 0u);
		while (take_number(&number, &whole))
			if (whole) {
				cr_assert(number < MANY && ++had[number] <= 2);
				whole_n++;
			}
	}
	cr_assert(whole_n > MANY * 95 / 100, "%u of %u", whole_n, MANY);
	cr_assert_geq(dropped(), 10u);
}

/* ---- the end of the lower connection ---- */

/* Who has gone is not reported, and what is sent there is lost; there is room for it for ever. */
Test(lossy, gone)
{
	connect_with("over=shm", 0);
	to->ops->close(to);
	to = NULL;
	uint64_t until = lossy_now() + UINT64_C(10000000000), lost = 0;
	while (lost < 3000 && lossy_now() < until) {
		from->ops->step(from, lossy_now(), on_event, NULL);
		lost = send_number(0) == 0 ? lost + 1 : 0;
	}
	cr_assert_eq(lost, 3000u);
	cr_assert_gt(dropped(), 0u);
	cr_assert_eq(seen.others + seen.fails, 0u);
	cr_assert_gt(q->ops->tx_room(q, peer), 0u);
	struct nic_tx tx[LOSSY_HELD_MAX + 1];
	for (unsigned i = 0; i < LOSSY_HELD_MAX; i++)
		cr_assert_eq(q->ops->tx_reserve(q, peer, 50000, &tx[i]), 0);
	cr_assert_eq(q->ops->tx_reserve(q, peer, 50000, &tx[LOSSY_HELD_MAX]), -ENOBUFS);
	for (unsigned i = 0; i < LOSSY_HELD_MAX; i++)
		q->ops->tx_cancel(q, &tx[i]);
	cr_assert_eq(q->ops->tx_reserve(q, peer, 50000, &tx[0]), 0);
	q->ops->tx_cancel(q, &tx[0]);
}

/* Those that others made come and go: each is attached, heard to its end, and its number used again. */
Test(lossy, others_come_and_go)
{
	connect_with("over=shm", 0);
	for (unsigned round = 0; round < 300; round++) {
		struct nic_addr addr;
		struct nic_err err;
		uint32_t number;
		bool whole;
		to->ops->address(to, &addr);
		unsigned ups = seen.ups;
		cr_assert_eq(send_number(round), 0);
		q->ops->detach(q, peer);
		from->ops->drop(from, peer);
		while (!take_number(&number, &whole))
			to->ops->step(to, lossy_now(), on_event, NULL);
		cr_assert(whole && number == round);
		cr_assert_eq(
			from->ops->connect(from, &(struct nic_connect){0, &addr, 0, NULL, 0, UINT64_MAX, NULL}, &err),
			0);
		while (seen.ups == ups)
			step_both();
		peer = seen.peer;
		cr_assert_lt(peer, 8u, "numbers are used again");
		cr_assert_eq(q->ops->attach(q, peer), 0);
	}
	cr_assert_eq(seen.others + seen.fails, 0u);
}

/* Somebody who is no lossy driver does not get in. */
Test(lossy, not_one_of_us)
{
	struct nic_err err = {""};
	struct nic_addr addr = {.driver = "shm"};
	struct nic_config config = {.runtime_dir = dir, .id = 3, .queues = 1, .head_bytes = 28};
	struct nic_port *plain;
	connect_with("over=shm", 0);
	struct nic_addr lossy;
	to->ops->address(to, &lossy);
	addr.len = (uint16_t)(lossy.len - strlen("shm") - 1);
	memcpy(addr.blob, lossy.blob + strlen("shm") + 1, addr.len);
	cr_assert_eq(nic_shm_port_ops.open(&config, &plain, &err), 0, "%s", err.text);
	cr_assert_eq(plain->ops->connect(plain, &(struct nic_connect){0, &addr, 0, "hello", 5, UINT64_MAX, NULL}, &err),
		     0);
	while (!seen.fails) {
		plain->ops->step(plain, lossy_now(), on_event, NULL);
		step_both();
	}
	cr_assert_eq(seen.ups, 1u, "only ours");
	/* And an address of another driver than ours is below is none for us. */
	cr_assert_lt(to->ops->reach(to, &addr, &err), 0);
	memcpy(lossy.blob, "udp", 4);
	cr_assert_eq(to->ops->reach(to, &lossy, &err), -EXDEV);
	cr_assert(strstr(err.text, "over=shm"), "%s", err.text);
	plain->ops->close(plain);
}

/* ---- arguments ---- */

static void check_bad(const char *args, const char *names)
{
	struct lossy_args out;
	struct nic_err err = {""};
	cr_assert_eq(lossy_args_parse(args, &out, &err), -EINVAL, "\"%s\" is taken", args ? args : "(none)");
	cr_assert(strstr(err.text, names), "\"%s\": %s", args ? args : "(none)", err.text);
}

Test(lossy, bad_arguments)
{
	check_bad(NULL, "over=");
	check_bad("", "over=");
	check_bad("drop=0.1", "over=");
	check_bad("over=", "over= takes");
	check_bad("over=a-name-that-is-too-long", "over= takes");
	check_bad("over=shm,over=udp", "over= is there twice");
	check_bad("over=shm,drop=0.1,drop=0.1", "drop= is there twice");
	check_bad("over=shm,dorp=0.1", "\"dorp=0.1\" is none of");
	check_bad("over=shm,drop", "\"drop\" is none of");
	check_bad("over=shm,,drop=1", "\"\" is none of");
	const char *chances[] = {"",     "1.1", "2", "101%",  "-1",   "x",    "0.1x",       "1%%",         "0,1x",
				 "1e-2", "nan", ".", "1.1%%", "0.1 ", " 0.1", "1234567890", "0.1234567890"};
	const char *keys[] = {"drop", "duplicate", "delay", "reorder", "corrupt"};
	for (unsigned k = 0; k < sizeof keys / sizeof *keys; k++)
		for (unsigned i = 0; i < sizeof chances / sizeof *chances; i++) {
			char text[100], names[100];
			snprintf(text, sizeof text, "over=shm,%s=%s", keys[k], chances[i]);
			snprintf(names, sizeof names, strchr(chances[i], ',') ? "%s" : "%s= takes",
				 strchr(chances[i], ',') ? "1x" : keys[k]);
			check_bad(text, names);
		}
	check_bad("over=shm,delay=0.1:", "delay= takes");
	check_bad("over=shm,delay=0.1:5", "delay= takes");
	check_bad("over=shm,delay=0.1:5m", "delay= takes");
	check_bad("over=shm,delay=0.1:0ms", "delay= takes");
	check_bad("over=shm,delay=0.1:11s", "delay= takes");
	check_bad("over=shm,delay=0.1:999999999s", "delay= takes");
	check_bad("over=shm,delay=:5ms", "delay= takes");
	check_bad("over=shm,reorder=0.1:0", "reorder= takes");
	check_bad("over=shm,reorder=0.1:1025", "reorder= takes");
	check_bad("over=shm,reorder=0.1:3x", "reorder= takes");
	check_bad("over=shm,reorder=0.1:18446744073709551617", "reorder= takes");
	check_bad("over=shm,seed=", "seed= takes");
	check_bad("over=shm,seed=-1", "seed= takes");
	check_bad("over=shm,seed=18446744073709551616", "seed= takes");
	check_bad("over=shm,bytes=63", "bytes= takes");
	check_bad("over=shm,bytes=65536", "bytes= takes");
}

Test(lossy, arguments)
{
	struct lossy_args a;
	struct nic_err err = {""};
	cr_assert_eq(lossy_args_parse("over=udp", &a, &err), 0, "%s", err.text);
	cr_assert_str_eq(a.over, "udp");
	cr_assert(!a.lower_args && !(a.drop | a.duplicate | a.delay | a.reorder | a.corrupt) && a.seed == 1);
	cr_assert_eq(lossy_args_parse("over=dpdk,drop=0.25,delay=.5:1.5ms,duplicate=0%,reorder=1:1024,corrupt=12.5%,"
				      "seed=18446744073709551615,bytes=1400,args=net_memif0,role=server,drop=x",
				      &a, &err),
		     0, "%s", err.text);
	cr_assert_eq(a.drop, UINT64_C(1) << 30);
	cr_assert_eq(a.delay, UINT64_C(1) << 31);
	cr_assert_eq(a.delay_ns, UINT64_C(1500000));
	cr_assert_eq(a.duplicate, 0u);
	cr_assert(a.reorder == UINT64_C(1) << 32 && a.reorder_by == 1024);
	cr_assert_eq(a.corrupt, UINT64_C(1) << 29);
	cr_assert_eq(a.seed, UINT64_MAX);
	cr_assert_eq(a.bytes, 1400u);
	cr_assert_str_eq(a.lower_args, "net_memif0,role=server,drop=x");
	cr_assert_eq(lossy_args_parse("over=shm,delay=1:250ns", &a, &err), 0);
	cr_assert_eq(a.delay_ns, 250u);
	cr_assert_eq(lossy_args_parse("over=shm,delay=1:10s", &a, &err), 0);
	cr_assert_eq(a.delay_ns, UINT64_C(10000000000));
}

Test(lossy, bad_lower)
{
	const struct {
		const char *args, *names;
	} bad[] = {{"over=shmm", "shmm"}, {"over=lossy,args=over=shm", "over=lossy"}, {NULL, "over="}};
	cr_assert(mkdtemp(dir));
	for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct nic_port *port = NULL;
		struct nic_err err = {""};
		struct nic_config config = {.runtime_dir = dir, .queues = 1, .args = bad[i].args};
		cr_assert_lt(nic_lossy_port_ops.probe(&config, &err), 0);
		cr_assert(strstr(err.text, bad[i].names), "%s", err.text);
		cr_assert_lt(nic_lossy_port_ops.open(&config, &port, &err), 0);
		cr_assert(strstr(err.text, bad[i].names) && !port, "%s", err.text);
	}
	struct nic_port *port = NULL;
	struct nic_err err = {""};
	struct nic_config config = {.runtime_dir = "/nowhere/at/all", .queues = 1, .args = "over=shm"};
	cr_assert_lt(nic_lossy_port_ops.open(&config, &port, &err), 0);
	cr_assert(strstr(err.text, "/nowhere/at/all"), "%s", err.text);
}

Test(lossy, promises)
{
	struct nic_caps caps;
	connect_with("over=shm,bytes=1400", 0);
	from->ops->caps(from, &caps);
	cr_assert(!caps.connected && !caps.reliable && !caps.ordered && !caps.crc && !caps.authenticated);
	cr_assert(!caps.zero_copy_rx && !caps.zero_copy_tx && caps.head_bytes_max == 0 && caps.wake);
	cr_assert_eq(caps.body_bytes_max, 1400u);
	cr_assert_eq(q->ops->tx_bytes_max(q, peer), 1400u);
	cr_assert_null(q->ops->kick);
	cr_assert_null(q->ops->raw);
}
