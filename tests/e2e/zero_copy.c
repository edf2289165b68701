/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Memory that is registered, sent from where it lies, and written over as soon as it is released: what arrives is what
 * it was. Then how often its bytes are copied by either process.
 * usage: farcall run -n 2 -- zero_copy [--copies | --places | --read]     --places: none by the sender, and by the
 * receiver only packets that it could not expect; --read: by devices alone, but for a packet of each fragment
 *
 * Main thread of each process; handlers on shard threads.
 */
#include "check.h"
#include "in_place.h"
#include "pattern.h"

#include <stdatomic.h>
#include <time.h>

enum { MIB = 1 << 20, LARGEST = 24 * MIB, MANY = 6, HEADER = 24 };
enum { CHECKED = 1, NOTE, SAME, SAID };
#define WAIT_S 120

static struct far_agent *_Atomic agent; /* handlers run before it is known: NULL */
static struct far_err err;
static const struct far_to to = {1, -1};
static uint8_t *memory;
static _Atomic uint64_t noted;

/* A build with a sanitizer counts none. */
__attribute__((weak)) unsigned long in_place_copied_bytes(void)
{
	return 0;
}

/* ---- the other worker ---- */

/* Checks a message: a header with the length and the pattern of the bytes that follow, and these bytes. */
static bool holds(const void *data, size_t len)
{
	uint64_t said[3];
	if (len < HEADER)
		return false;
	memcpy(said, data, sizeof said);
	return said[0] == len - HEADER && said[2] == ~said[0] &&
	       pattern_holds((const uint8_t *)data + HEADER, said[0], said[1]);
}

static void checked(struct far_req *req, const void *data, size_t len, void *user)
{
	uint64_t ok = holds(data, len);
	CHECK(far_reply(req, &ok, sizeof ok) == FAR_OK);
}

static void record_message(struct far_req *req, const void *data, size_t len, void *user)
{
	CHECK(holds(data, len));
	atomic_fetch_add(&noted, 1);
}

static void same(struct far_req *req, const void *data, size_t len, void *user)
{
	uint64_t ok = 1;
	const uint8_t *bytes = data;
	for (size_t i = 0; i < len; i++)
		ok &= bytes[i] == IN_PLACE_BYTE;
	CHECK(far_reply(req, &ok, sizeof ok) == FAR_OK);
}

static uint64_t read_bytes(void)
{
	uint64_t bytes = 0;
	struct far_nic_stats nic;
	struct far_agent *a = agent;
	for (unsigned port = 0; a && far_nic_stats_read(a, port, &nic, NULL) == FAR_OK; port++)
		bytes += nic.read_bytes;
	return bytes;
}

/* Bytes that it has copied since the last query, bytes that its devices have read, number of notes that came. */
static void said(struct far_req *req, const void *data, size_t len, void *user)
{
	uint64_t answer[3] = {in_place_copied_bytes(), read_bytes(), atomic_load(&noted)};
	CHECK(far_reply(req, answer, sizeof answer) == FAR_OK);
}

static void query(uint64_t answer[3])
{
	size_t len;
	CHECK_STATUS(far_msg_call(agent, to, SAID, NULL, 0, NULL, answer, 3 * sizeof *answer, &len, &err), FAR_OK,
		     &err);
	CHECK(len == 3 * sizeof *answer);
}

/* ---- this one ---- */

struct message {
	uint64_t header[3];
	uint8_t *at;
	size_t len;
	_Atomic int released, done;
};

/* Nobody reads it any more: it is something else from now on. */
static void on_release(void *user)
{
	struct message *m = user;
	memset(m->at, 0xff, m->len);
	memset(m->header, 0xff, sizeof m->header);
	atomic_fetch_add(&m->released, 1);
}

static void on_done(enum far_status status, const void *data, size_t len, const struct far_err *e, void *user)
{
	struct message *m = user;
	uint64_t ok = 0;
	if (status)
		far_err_print(stderr, e);
	CHECK(status == FAR_OK && len == sizeof ok);
	memcpy(&ok, data, sizeof ok);
	CHECK(ok == 1);
	atomic_store(&m->done, 1);
}

static void fill(struct message *m, uint8_t *at, size_t len, uint64_t seed)
{
	*m = (struct message){.header = {len, seed, ~(uint64_t)len}, .at = at, .len = len};
	pattern_fill(at, 0, len, seed);
}

static void await(_Atomic int *what)
{
	for (int i = 0; i < WAIT_S * 1000 && !atomic_load(what); i++) {
		struct timespec ms = {0, 1000000};
		nanosleep(&ms, NULL);
	}
	CHECK(atomic_load(what) == 1);
}

static void send(struct message *m)
{
	struct far_part parts[2] = {{m->header, HEADER}, {m->at, m->len}};
	CHECK_STATUS(far_msg_send_parts(agent, to, CHECKED, parts, 2, on_release, m, NULL, on_done, m, &err), FAR_OK,
		     &err);
}

static void one_by_one(void)
{
	static const size_t lens[] = {1000, 256 * 1024 - HEADER - 1, 256 * 1024 - HEADER, 300001,
				      MIB,  16 * MIB - HEADER,       LARGEST - 7};
	for (unsigned i = 0; i < sizeof lens / sizeof *lens; i++) {
		struct message m;
		fill(&m, memory + i % 8, lens[i], i);
		send(&m);
		/* What is shorter is copied, and released before the call returns. */
		CHECK(lens[i] + HEADER >= 256 * 1024 || atomic_load(&m.released) == 1);
		await(&m.done);
		await(&m.released);
	}
}

/* A message of one part is sent from where it lies while the call is made: then the memory is the caller's again. */
static void at_once(void)
{
	static const size_t lens[] = {128 * 1024 - HEADER, 300001, MIB, 2 * MIB + 1, 8 * MIB, 16 * MIB - HEADER};
	for (unsigned i = 0; i < 3 * sizeof lens / sizeof *lens; i++) {
		struct message m;
		fill(&m, memory + HEADER, lens[i / 3], 50 + i);
		memcpy(memory, m.header, HEADER);
		CHECK_STATUS(far_msg_send(agent, to, CHECKED, memory, HEADER + m.len, NULL, on_done, &m, &err), FAR_OK,
			     &err);
		memset(memory, 0xff, HEADER + m.len);
		await(&m.done);
	}
}

static void many(bool oneways)
{
	static struct message m[MANY];
	for (unsigned i = 0; i < MANY; i++)
		fill(&m[i], memory + i * (size_t)(LARGEST / MANY), LARGEST / MANY - i, 100 + i);
	for (unsigned i = 0; i < MANY; i++) {
		struct far_part parts[2] = {{m[i].header, HEADER}, {m[i].at, m[i].len}};
		if (oneways)
			CHECK_STATUS(far_msg_oneway_parts(agent, to, NOTE, parts, 2, on_release, &m[i], NULL, &err),
				     FAR_OK, &err);
		else
			send(&m[i]);
	}
	for (unsigned i = 0; i < MANY; i++) {
		if (!oneways)
			await(&m[i].done);
		await(&m[i].released);
	}
}

static void misuse(void)
{
	CHECK_STATUS(far_mem_register(agent, NULL, 100, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "are not a range of memory");
	CHECK_STATUS(far_mem_register(agent, memory, 0, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_mem_register(agent, memory, SIZE_MAX, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_mem_unregister(agent, memory, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "no memory is registered that begins at");
	CHECK_STATUS(far_mem_register(agent, memory, LARGEST, &err), FAR_OK, &err);
	CHECK_STATUS(far_mem_register(agent, memory + LARGEST - 1, 2, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "registered already");
	CHECK_STATUS(far_mem_unregister(agent, memory + 1, &err), FAR_INVALID, &err);
}

/* Released, though devices may take a moment more to let go of it. */
static void take_back(void)
{
	enum far_status status = FAR_BUSY;
	for (int i = 0; i < WAIT_S && status == FAR_BUSY; i++)
		status = far_mem_unregister(agent, memory, &err);
	CHECK_STATUS(status, FAR_OK, &err);
	struct message m;
	fill(&m, memory, MIB, 7);
	send(&m);
	CHECK(atomic_load(&m.released) == 1); /* it is not registered: it was copied */
	await(&m.done);
}

static void contents(void)
{
	misuse();
	one_by_one();
	at_once();
	many(false);
	many(true);
	uint64_t there[3];
	do
		query(there); /* far_shutdown() would wait for them, too */
	while (there[2] < MANY);
	take_back();
}

/* How many bytes of one message were copied here and there. */
static void count(uint64_t *here, uint64_t *other)
{
	struct message m = {.at = memory, .len = LARGEST};
	uint64_t there[3];
	memset(memory, IN_PLACE_BYTE, LARGEST);
	query(there);
	in_place_copied_bytes();
	struct far_part part = {memory, LARGEST};
	CHECK_STATUS(far_msg_send_parts(agent, to, SAME, &part, 1, on_release, &m, NULL, on_done, &m, &err), FAR_OK,
		     &err);
	await(&m.done);
	await(&m.released);
	*here = in_place_copied_bytes();
	query(there);
	*other = there[0];
}

/* By packets: into them and out of them, once each, and what was sent again. Into places: the short first packet of
 * each fragment, and what a busy machine brings out of turn. By reads: what is in the first and last packet of each
 * fragment. The first ones find no connection yet, and memory that the devices do not know. */
static void copies(bool by_reads, bool by_places)
{
	uint64_t here = 0, other = 0, most = by_reads ? LARGEST / 16 : by_places ? LARGEST / 5 : LARGEST / 2 * 3;
	CHECK_STATUS(far_mem_register(agent, memory, LARGEST, &err), FAR_OK, &err);
	for (int i = 0; i < (by_reads || by_places ? 20 : 1); i++) {
		count(&here, &other);
		printf("round %d: of %d bytes %llu were copied by the sender, %llu by the receiver\n", i, LARGEST,
		       (unsigned long long)here, (unsigned long long)other);
		fflush(stdout);
		if (here <= most && other <= most)
			break;
	}
	CHECK(here <= most && other <= most);
	/* They are counted. Over shm the kernel copies, once, where it permits that: then none is ours. */
	bool pulled = !by_reads && !by_places && here == 0 && other == 0;
	CHECK(by_reads || by_places || pulled || here >= LARGEST);
	CHECK(by_reads || pulled || other >= (by_places ? LARGEST / 1024 : LARGEST));
	uint64_t there[3];
	query(there);
	CHECK(!by_reads || there[1] >= LARGEST / 16 * 15);
}

int main(int argc, char **argv)
{
	static const struct far_msg_handler handlers[] = {{.id = CHECKED, .fn = checked, .kind = FAR_KIND_INLINE},
							  {.id = NOTE, .fn = record_message, .kind = FAR_KIND_INLINE},
							  {.id = SAME, .fn = same, .kind = FAR_KIND_INLINE},
							  {.id = SAID, .fn = said, .kind = FAR_KIND_INLINE}};
	struct far_opts opts = {
		.messages = handlers, .messages_n = sizeof handlers / sizeof *handlers, .peer_limit_ns = 5 * FAR_SEC};
	agent = check_join(&opts);
	alarm(2 * WAIT_S);
	memory = aligned_alloc(4096, LARGEST);
	CHECK(memory);
	if (check_rank() == 0 && argc == 1)
		contents();
	else if (check_rank() == 0)
		copies(strcmp(argv[1], "--read") == 0, strcmp(argv[1], "--places") == 0);
	check_leave(agent);
	free(memory);
	return 0;
}
