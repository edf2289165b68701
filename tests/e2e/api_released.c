/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Memory of the application that the engine was given and has let go of: nobody reads or writes it any more, whatever
 * is still sent again for it. What was released becomes inaccessible at once, in the release itself, and stays so while
 * other traffic goes on; results that are complete, or that nobody waits for any more, too. Over drivers that lose and
 * repeat packets.
 * usage: api_released NIC
 *
 * Main thread of each process; handlers on shard threads.
 */
#include "api_spawn.h"
#include "pattern.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { CHECKED = 1, MAKE = 2, NOTE = 3, MIB = 1 << 20, PIECES = 8, ROUNDS = 4 };

static const char *nic;
static struct far_agent *agent;
static const struct far_to to = {1, -1};

/* ---- worker 1 ---- */

static void checked(struct far_req *req, const void *data, size_t len, void *user)
{
	uint64_t ok = pattern_holds(data, len, len);
	far_reply(req, &ok, sizeof ok);
}

static void make(struct far_req *req, const void *data, size_t len, void *user)
{
	uint64_t bytes;
	void *at;
	CHECK(len == sizeof bytes);
	memcpy(&bytes, data, sizeof bytes);
	if (far_reply_alloc(req, bytes, &at) == FAR_OK)
		pattern_fill(at, 0, bytes, bytes);
	else
		far_fail(req, FAR_RESOURCE, 0, "no memory");
}

static _Atomic uint64_t noted, spoilt;

static void record_message(struct far_req *req, const void *data, size_t len, void *user)
{
	atomic_fetch_add(pattern_holds(data, len, len) ? &noted : &spoilt, 1);
}

/* ---- worker 0 ---- */

/* One message or result in pages of its own, at their end. */
struct piece {
	uint8_t *pages, *data;
	size_t room, len;
	_Atomic int released, done;
	enum far_status status;
	uint64_t ok;
};

static void piece_make(struct piece *p, size_t len, bool filled)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	*p = (struct piece){.len = len, .room = (len + page - 1) / page * page};
	p->pages = mmap(NULL, p->room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p->pages != MAP_FAILED);
	p->data = p->pages + (p->room - len) / 8 * 8;
	if (filled)
		pattern_fill(p->data, 0, len, len);
}

static void piece_forbid(const struct piece *p)
{
	CHECK(mprotect(p->pages, p->room, PROT_NONE) == 0);
}

static void piece_free(struct piece *p)
{
	CHECK(munmap(p->pages, p->room) == 0);
}

static void on_release(void *user)
{
	struct piece *p = user;
	CHECK(atomic_fetch_add(&p->released, 1) == 0);
	piece_forbid(p);
}

static void on_checked(enum far_status status, const void *data, size_t len, const struct far_err *err, void *user)
{
	struct piece *p = user;
	p->status = status;
	if (status == FAR_OK && len == sizeof p->ok)
		memcpy(&p->ok, data, len);
	CHECK(atomic_fetch_add(&p->done, 1) == 0);
}

/* A result in the piece's own memory. */
static void on_made(enum far_status status, const void *data, size_t len, const struct far_err *err, void *user)
{
	struct piece *p = user;
	p->status = status;
	if (status == FAR_OK)
		p->ok = data == p->data && len == p->len && pattern_holds(data, len, len);
	piece_forbid(p);
	CHECK(atomic_fetch_add(&p->done, 1) == 0);
}

/* Small calls, which have packets sent again too, and drive the shard. */
static void traffic(unsigned n)
{
	struct far_err err;
	uint8_t bytes[2000] = {0};
	uint64_t ok;
	while (n-- > 0) {
		size_t len = n * 37 % sizeof bytes;
		pattern_fill(bytes, 0, len, len);
		CHECK_STATUS(far_msg_call(agent, to, CHECKED, bytes, len, NULL, &ok, sizeof ok, NULL, &err), FAR_OK,
			     &err);
		CHECK(ok == 1);
	}
}

static void finish(struct piece *p, const _Atomic int *what)
{
	while (atomic_load(what) == 0)
		traffic(1);
}

static size_t length(unsigned i)
{
	static const size_t lens[PIECES] = {1, 100, 1500, 60000, MIB, 16 * MIB, 16 * MIB + 1, 20 * MIB};
	return lens[i];
}

/* Parts of a message: forbidden by their release, before the answer or after it. */
static void parts(void)
{
	struct piece p[PIECES];
	struct far_err err;
	for (unsigned i = 0; i < PIECES; i++) {
		piece_make(&p[i], length(i), true);
		struct far_part part[2] = {{p[i].data, p[i].len / 2},
					   {p[i].data + p[i].len / 2, p[i].len - p[i].len / 2}};
		CHECK_STATUS(far_msg_send_parts(agent, to, CHECKED, part, 2, on_release, &p[i], NULL, on_checked, &p[i],
						&err),
			     FAR_OK, &err);
	}
	for (unsigned i = 0; i < PIECES; i++) {
		finish(&p[i], &p[i].done);
		finish(&p[i], &p[i].released);
		CHECK(p[i].status == FAR_OK && p[i].ok == 1 && atomic_load(&p[i].released) == 1);
	}
	traffic(50);
	for (unsigned i = 0; i < PIECES; i++)
		piece_free(&p[i]);
}

/* Given up after a moment: the release comes, and nothing is read after it. */
static void given_up(unsigned round)
{
	struct piece p[PIECES];
	struct far_err err;
	for (unsigned i = 0; i < PIECES; i++) {
		struct far_call_opts opts = {.timeout_ns = (round * 7 + i) % 20 * UINT64_C(200000) + 1000};
		piece_make(&p[i], length(PIECES - 1 - i), true);
		struct far_part part = {p[i].data, p[i].len};
		enum far_status status = far_msg_send_parts(agent, to, CHECKED, &part, 1, on_release, &p[i], &opts,
							    on_checked, &p[i], &err);
		if (status)
			atomic_store(&p[i].done, 1);
	}
	for (unsigned i = 0; i < PIECES; i++) {
		finish(&p[i], &p[i].done);
		finish(&p[i], &p[i].released);
	}
	traffic(50);
	for (unsigned i = 0; i < PIECES; i++)
		piece_free(&p[i]);
}

/* Results in memory of the caller's: forbidden when they are complete, or not awaited any more. */
static void recv_buf(unsigned round)
{
	struct piece p[PIECES];
	struct far_err err;
	for (unsigned i = 0; i < PIECES; i++) {
		piece_make(&p[i], length(i), false);
		uint64_t len = p[i].len;
		struct far_call_opts opts = {.recv_buf = {p[i].data, p[i].len}};
		if (round % 2)
			opts.timeout_ns = (round * 11 + i) % 20 * UINT64_C(300000) + 1000;
		enum far_status status = far_msg_send(agent, to, MAKE, &len, sizeof len, &opts, on_made, &p[i], &err);
		CHECK(status == FAR_OK || round % 2);
		if (status)
			atomic_store(&p[i].done, 1);
	}
	for (unsigned i = 0; i < PIECES; i++) {
		finish(&p[i], &p[i].done);
		CHECK(round % 2 || (p[i].status == FAR_OK && p[i].ok == 1));
	}
	traffic(50);
	for (unsigned i = 0; i < PIECES; i++)
		piece_free(&p[i]);
}

/* What is copied or sent before the function returns is forbidden when it has. */
static void oneways(void)
{
	struct far_err err;
	for (unsigned i = 0; i < 64; i++) {
		struct piece p;
		enum far_status status;
		piece_make(&p, length(i % 5), true);
		while ((status = far_msg_oneway(agent, to, NOTE, p.data, p.len, NULL, &err)) == FAR_BUSY)
			traffic(1);
		CHECK_STATUS(status, FAR_OK, &err);
		piece_forbid(&p);
		traffic(1);
		piece_free(&p);
	}
}

/* Packets that were sent again. */
static uint64_t again(void)
{
	uint64_t n = 0;
	struct far_nic_stats s;
	struct far_err err;
	for (unsigned i = 0; i < far_nic_ports(agent); i++) {
		CHECK_STATUS(far_nic_stats_read(agent, i, &s, &err), FAR_OK, &err);
		printf("%s: %" PRIu64 " packets sent, %" PRIu64 " again, after %" PRIu64 " time-outs; %" PRIu64
		       " probes; %" PRIu64 " for nothing\n",
		       s.driver, s.tx_packets, s.resent, s.timeouts, s.tail_loss_probes, s.spurious_retransmits);
		n += s.resent + s.tail_loss_probes;
	}
	return n;
}

static int worker(int rank)
{
	static const struct far_msg_handler messages[] = {{CHECKED, FAR_KIND_FIBER, checked, NULL},
							  {MAKE, FAR_KIND_FIBER, make, NULL},
							  {NOTE, FAR_KIND_INLINE, record_message, NULL}};
	struct far_opts opts = {.messages = messages, .messages_n = 3, .nic = nic, .peer_limit_ns = 20 * FAR_SEC};
	agent = check_join(&opts);
	for (unsigned round = 0; rank == 0 && round < ROUNDS; round++) {
		parts();
		given_up(round);
		recv_buf(round);
		oneways();
	}
	if (rank == 0)
		CHECK(again() > 0 || !strstr(nic, "lossy"));
	check_leave(agent);
	CHECK(spoilt == 0 && (rank == 0 || noted > 0));
	fflush(stdout);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s NIC\n", argv[0]);
		return 2;
	}
	nic = argv[1];
	struct spawned s = spawn(2, worker);
	return spawn_wait(&s, -1);
}
