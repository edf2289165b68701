/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Messages in memory of far_alloc_shared(): read in place by each kind of handler, written over as soon as they are
 * released, held by a receiver that reads on, freed early; ends of either process in each phase; a receiver without
 * descriptors.
 * usage: api_shared messages | hold | many | files | death0 | death1 | together
 *
 * Main thread of each process; handlers on shard threads.
 */
#include "api_together.h"
#include "pattern.h"

#include <stdatomic.h>
#include <sys/resource.h>

enum { INLINE = 1, FIBER, BLOCKING, HOLD, GO, READ, NOTE, DIE, FILES };
enum { MIB = 1 << 20, LARGEST = 64 * MIB };

static const struct far_to to = {1, -1};
static struct far_agent *agent;
static struct far_err err;
static int killed_rank = -1; /* worker that dies */

/* ---- the receiver ---- */

static _Atomic uint64_t held, go, noted;

static void checked(struct far_req *req, const void *data, size_t len, void *user)
{
	uint64_t ok = pattern_holds(data, len, len);
	CHECK(far_reply(req, &ok, sizeof ok) == FAR_OK);
}

/* Lets the sender go on before it reads. */
static void checked_late(struct far_req *req, const void *data, size_t len, void *user)
{
	for (int i = 0; i < 3; i++)
		usleep(1000);
	checked(req, data, len, user);
}

static void note(struct far_req *req, const void *data, size_t len, void *user)
{
	CHECK(pattern_holds(data, len, len));
	atomic_fetch_add(&noted, 1);
}

static bool is_alive(int rank)
{
	struct far_worker_info info = {.alive = true};
	return far_worker_by_rank(agent, rank, &info, NULL) == FAR_OK && info.alive;
}

/* Reads on until GO, or until the sender is lost: the bytes must be there all the time. */
static void hold(struct far_req *req, const void *data, size_t len, void *user)
{
	uint64_t ok = 1;
	atomic_fetch_add(&held, 1);
	do {
		ok &= pattern_holds(data, len, len);
		usleep(1000);
	} while (!atomic_load(&go) && (killed_rank != 0 || is_alive(0)));
	ok &= pattern_holds(data, len, len);
	CHECK(ok);
	far_reply(req, &ok, sizeof ok);
	atomic_fetch_sub(&held, 1);
}

static void set_go(struct far_req *req, const void *data, size_t len, void *user)
{
	CHECK(len == sizeof(uint64_t));
	uint64_t to_be;
	memcpy(&to_be, data, sizeof to_be);
	atomic_store(&go, to_be);
	CHECK(far_reply(req, NULL, 0) == FAR_OK);
}

/* Bytes that were received by reference, handlers of HOLD, notes. */
static void state(struct far_req *req, const void *data, size_t len, void *user)
{
	struct far_counters c;
	far_counters_read(far_req_agent(req), &c);
	uint64_t answer[3] = {c.bytes_by_reference, atomic_load(&held), atomic_load(&noted)};
	CHECK(far_reply(req, answer, sizeof answer) == FAR_OK);
}

/* No descriptor is left from here on. */
static void use_up_files(struct far_req *req, const void *data, size_t len, void *user)
{
	struct rlimit files;
	int next = dup(0);
	close(next);
	CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
	files.rlim_cur = (rlim_t)next;
	CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
	if (req)
		CHECK(far_reply(req, NULL, 0) == FAR_OK);
}

static void die(struct far_req *req, const void *data, size_t len, void *user)
{
	raise(SIGKILL);
}

static const struct far_msg_handler handlers[] = {
	{INLINE, FAR_KIND_INLINE, checked, NULL},
	{FIBER, FAR_KIND_FIBER, checked, NULL},
	{BLOCKING, FAR_KIND_BLOCKING, checked_late, NULL},
	{HOLD, FAR_KIND_BLOCKING, hold, NULL},
	{GO, FAR_KIND_INLINE, set_go, NULL},
	{READ, FAR_KIND_INLINE, state, NULL},
	{NOTE, FAR_KIND_INLINE, note, NULL},
	{DIE, FAR_KIND_INLINE, die, NULL},
	{FILES, FAR_KIND_INLINE, use_up_files, NULL},
};

static const struct far_opts options = {.messages = handlers,
					.messages_n = sizeof handlers / sizeof *handlers,
					.blocking_threads = 5,
					.peer_limit_ns = 5 * FAR_SEC};

static void join(void)
{
	agent = check_join(&options);
}

/* ---- the sender ---- */

/* A message, its memory, what became of it. */
struct message {
	uint8_t *at;
	size_t len;
	_Atomic int released, done;
	enum far_status status;
	uint64_t ok;
};

/* Nobody reads it any more: it is something else from now on. */
static void on_release(void *user)
{
	struct message *m = user;
	memset(m->at, 0xff, m->len);
	atomic_store(&m->released, 1);
}

static void on_done(enum far_status status, const void *data, size_t len, const struct far_err *e, void *user)
{
	struct message *m = user;
	if (!status)
		memcpy(&m->ok, data, sizeof m->ok);
	m->status = status;
	atomic_store(&m->done, 1);
}

static void start(struct message *m, uint16_t id, uint8_t *at, size_t len, uint64_t timeout)
{
	struct far_part part = {at, len};
	struct far_call_opts opts = {.timeout_ns = timeout};
	*m = (struct message){.at = at, .len = len};
	pattern_fill(at, 0, len, len);
	CHECK_STATUS(
		far_msg_send_parts(agent, to, id, &part, 1, on_release, m, timeout ? &opts : NULL, on_done, m, &err),
		FAR_OK, &err);
}

/* The hang guard bounds the wait. */
static void await(_Atomic int *what)
{
	while (!atomic_load(what))
		usleep(200);
}

static void send_one(uint16_t id, uint8_t *at, size_t len)
{
	static struct message m;
	start(&m, id, at, len, 0);
	await(&m.done);
	CHECK(m.status == FAR_OK && m.ok == 1);
	await(&m.released);
}

static void query(uint64_t answer[3])
{
	CHECK_STATUS(far_msg_call(agent, to, READ, NULL, 0, NULL, answer, 3 * sizeof *answer, NULL, &err), FAR_OK,
		     &err);
}

static uint64_t by_reference(void)
{
	uint64_t answer[3];
	query(answer);
	return answer[0];
}

static void let_go(uint64_t to_be)
{
	CHECK_STATUS(far_msg_call(agent, to, GO, &to_be, sizeof to_be, NULL, NULL, 0, NULL, &err), FAR_OK, &err);
}

static void await_held(uint64_t n)
{
	uint64_t answer[3];
	do
		query(answer);
	while (answer[1] != n);
}

static uint8_t *memory_of(size_t bytes)
{
	uint8_t *p = far_alloc_shared(bytes, &err);
	CHECK(p && far_alloc_size(p) >= bytes && (uintptr_t)p % FAR_ALLOC_ALIGN == 0);
	return p;
}

/* Sends until the receiver has mapped the memory. */
static void introduce(uint8_t *at)
{
	uint64_t before = by_reference();
	while (by_reference() == before)
		send_one(INLINE, at, MIB);
}

static void sizes(uint8_t *at)
{
	static const size_t lens[] = {1,   32,       64 * 1024 - 1, 64 * 1024,   64 * 1024 + 1, 256 * 1024,
				      MIB, 16 * MIB, 16 * MIB + 1,  LARGEST - 9, LARGEST};
	for (unsigned i = 0; i < sizeof lens / sizeof *lens; i++)
		for (uint16_t id = INLINE; id <= BLOCKING; id++) {
			uint64_t before = by_reference();
			send_one(id, at + (LARGEST - lens[i] < 7 ? 0 : 7), lens[i]);
			CHECK(by_reference() - before == (lens[i] < 64 * 1024 ? 0 : lens[i]));
		}
}

/* A header of its own memory, or two parts of shared memory: it arrives as one. */
static void parts(uint8_t *at)
{
	struct message m = {.at = at, .len = 2 * MIB};
	uint8_t header[64];
	for (int how = 0; how < 2; how++) {
		uint64_t before = by_reference();
		struct far_part two[2] = {{how ? at : header, 64}, {at + 64, 2 * MIB - 64}};
		pattern_fill(at, 0, 2 * MIB, 2 * MIB);
		memcpy(header, at, 64);
		atomic_store(&m.done, 0);
		atomic_store(&m.released, 0);
		CHECK_STATUS(far_msg_send_parts(agent, to, BLOCKING, two, 2, on_release, &m, NULL, on_done, &m, &err),
			     FAR_OK, &err);
		await(&m.done);
		await(&m.released);
		CHECK(m.status == FAR_OK && m.ok == 1);
		CHECK(by_reference() - before == (how ? 2 * MIB : 0));
	}
}

static void oneways(uint8_t *at)
{
	static struct message m[8];
	uint64_t answer[3];
	for (int i = 0; i < 8; i++) {
		m[i] = (struct message){.at = at + i * MIB, .len = MIB};
		pattern_fill(m[i].at, 0, MIB, MIB);
		struct far_part part = {m[i].at, MIB};
		CHECK_STATUS(far_msg_oneway_parts(agent, to, NOTE, &part, 1, on_release, &m[i], NULL, &err), FAR_OK,
			     &err);
	}
	for (int i = 0; i < 8; i++)
		await(&m[i].released);
	do
		query(answer);
	while (answer[2] < 8);
}

/* Freed as soon as it is released; the next memory of the slot has other bytes. */
static void freed_early(void)
{
	for (int i = 0; i < 20; i++) {
		uint8_t *at = memory_of(2 * MIB);
		if (i % 2)
			introduce(at);
		send_one(BLOCKING, at, 2 * MIB - (size_t)i);
		far_free(at);
	}
}

static void messages(void)
{
	struct far_memory before, during, after;
	far_memory_stats(&before);
	uint8_t *at = memory_of(LARGEST);
	far_memory_stats(&during);
	CHECK(during.shared - before.shared == far_alloc_size(at));
	introduce(at);
	sizes(at);
	parts(at);
	oneways(at);
	freed_early();
	far_free(at);
	far_memory_stats(&after);
	CHECK(after.shared == before.shared);
}

static int messages_worker(int rank)
{
	join();
	if (rank == 0)
		messages();
	check_leave(agent);
	return 0;
}

/* Handlers that read on: calls go by meanwhile, each message stays, and each is released by itself. */
static void holds(void)
{
	static struct message m[4];
	uint8_t *at = memory_of(8 * MIB), *other = memory_of(MIB);
	introduce(at);
	introduce(other);
	for (int i = 0; i < 3; i++)
		start(&m[i], HOLD, at + i * MIB, MIB, 0);
	await_held(3);
	/* Its call ends first: the receiver reads on, and the memory stays until it has ended. */
	start(&m[3], HOLD, at + 3 * MIB, MIB, FAR_SEC / 2);
	await(&m[3].done);
	CHECK(m[3].status == FAR_TIMEOUT);
	for (int i = 0; i < 50; i++)
		send_one(INLINE, other, MIB);
	for (int i = 0; i < 4; i++)
		CHECK(!atomic_load(&m[i].released));
	let_go(1);
	for (int i = 0; i < 4; i++)
		await(&m[i].released);
	for (int i = 0; i < 3; i++) {
		await(&m[i].done);
		CHECK(m[i].status == FAR_OK && m[i].ok == 1);
	}
	far_free(at);
	far_free(other);
}

static int hold_worker(int rank)
{
	join();
	if (rank == 0)
		holds();
	check_leave(agent);
	return 0;
}

/* Both workers in one process: a race detector sees both sides. */
static int together(void)
{
	struct together t[2];
	together_begin(t, 2, &options);
	agent = t[0].agent;
	messages();
	holds();
	together_all(t, 2, together_leave);
	return 0;
}

/* More than may be shared: the rest is other memory, and works. */
static int many_worker(int rank)
{
	enum { MANY = 80 };
	join();
	if (rank == 0) {
		uint8_t *all[MANY];
		for (int i = 0; i < MANY; i++)
			all[i] = memory_of(MIB);
		for (int round = 0; round < 2; round++)
			for (int i = 0; i < MANY; i++)
				send_one(INLINE, all[i], MIB - (size_t)i);
		CHECK(by_reference() >= 32 * (uint64_t)MIB);
		for (int i = 0; i < MANY; i++)
			far_free(all[i]);
		uint8_t *again = memory_of(MIB);
		introduce(again);
		far_free(again);
	}
	check_leave(agent);
	return 0;
}

/* The receiver has no descriptor left: messages travel as others. Then the sender: its memory is other memory. */
static int files_worker(int rank)
{
	join();
	if (rank == 0) {
		struct far_memory m;
		struct rlimit files;
		CHECK_STATUS(far_msg_call(agent, to, FILES, NULL, 0, NULL, NULL, 0, NULL, &err), FAR_OK, &err);
		for (int i = 0; i < 20; i++) {
			uint8_t *at = memory_of(MIB);
			send_one(FIBER, at, MIB);
			send_one(FIBER, at, MIB);
			far_free(at);
		}
		CHECK(by_reference() == 0);
		CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
		use_up_files(NULL, NULL, 0, NULL);
		uint8_t *at = memory_of(MIB);
		far_memory_stats(&m);
		CHECK(m.shared == 0);
		send_one(FIBER, at, MIB);
		far_free(at);
		CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
	}
	check_leave(agent);
	return 0;
}

/* A driver without references: below 256 KiB a message is copied during the call. */
static int udp_worker(int rank)
{
	static const size_t lens[] = {64 * 1024, 256 * 1024 - 1};
	setenv("FAR_NIC", "udp", 1);
	join();
	if (rank == 0) {
		static struct message m;
		uint8_t *at = memory_of(MIB);
		send_one(INLINE, at, MIB);
		for (unsigned i = 0; i < sizeof lens / sizeof *lens; i++) {
			start(&m, INLINE, at, lens[i], 0);
			CHECK(atomic_load(&m.released));
			await(&m.done);
			CHECK(m.status == FAR_OK && m.ok == 1);
		}
		CHECK(by_reference() == 0);
		far_free(at);
	}
	check_leave(agent);
	return 0;
}

/* Worker 0 sends without end, and has some held; one of the two dies meanwhile. */
static int death_worker(int rank)
{
	enum { N = 6 };
	static struct message m[N], kept;
	join();
	if (rank == 0) {
		uint8_t *at = memory_of(16 * MIB);
		introduce(at);
		start(&kept, HOLD, at + 8 * MIB, 4 * MIB, 0);
		await_held(1);
		for (int i = 0; i < N; i++)
			start(&m[i], i % 2 ? INLINE : BLOCKING, at + i * MIB, MIB, 0);
		if (killed_rank == 0)
			raise(SIGKILL);
		CHECK_STATUS(far_msg_oneway(agent, to, DIE, NULL, 0, NULL, &err), FAR_OK, &err);
		await(&kept.done);
		CHECK(kept.status == FAR_PEER_LOST);
		await(&kept.released);
		for (int i = 0; i < N; i++) {
			await(&m[i].done);
			await(&m[i].released);
		}
		far_free(at);
	}
	while (is_alive(killed_rank) || atomic_load(&held))
		usleep(1000);
	CHECK_STATUS(far_shutdown(agent, 5 * FAR_SEC, &err), FAR_PEER_LOST, &err);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "messages";
	struct {
		const char *name;
		spawn_main *body;
		int killed;
	} groups[] = {{"messages", messages_worker, -1}, {"hold", hold_worker, -1}, {"many", many_worker, -1},
		      {"files", files_worker, -1},       {"udp", udp_worker, -1},   {"death0", death_worker, 0},
		      {"death1", death_worker, 1}};
	for (unsigned i = 0; i < sizeof groups / sizeof *groups; i++)
		if (strcmp(what, groups[i].name) == 0) {
			killed_rank = groups[i].killed;
			struct spawned s = spawn(2, groups[i].body);
			return spawn_wait(&s, killed_rank);
		}
	if (strcmp(what, "together") == 0)
		return together();
	fprintf(stderr, "unknown group %s\n", what);
	return 2;
}
