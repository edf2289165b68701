/* SPDX-License-Identifier: BSD-3-Clause */
/** Rounds of all-gather and barriers: over all, over some, from several threads, and what ends them without success. */
#include "api_spawn.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { WORLD = 4, ROUNDS = 100, THREADS = 4, THREAD_ROUNDS = 50, BIG = 3 << 20 };

struct shared {
	_Atomic int come[ROUNDS];
	_Atomic int step;
};
static struct shared *shared;
static struct far_agent *agent;
static struct far_err err;
static int self;

static const char *const evens[] = {"worker2", "worker0"}, *const odds[] = {"worker1", "worker3"};
static const char *const behind[] = {"worker1", "worker2", "worker3"};

static int64_t int_of(const struct far_val *list, size_t i)
{
	const struct far_val *v = far_list_get(list, i);
	CHECK(v && v->type == FAR_TYPE_INT);
	return v->u.i;
}

/* Workers beyond the group's own tools meet in memory. */
static void step_reached(int step)
{
	while (atomic_load(&shared->step) < step)
		usleep(1000);
}

static void all(void)
{
	for (int64_t k = 0; k < ROUNDS; k++) {
		struct far_val mine = far_int(self * 1000 + k), out = {0};
		CHECK_STATUS(far_all_gather(agent, NULL, 0, &mine, 0, &out, &err), FAR_OK, &err);
		CHECK(far_len(&out) == WORLD);
		for (int i = 0; i < WORLD; i++)
			CHECK(int_of(&out, (size_t)i) == i * 1000 + k);
		far_val_fini(&out);
	}
}

/* Rounds of the halves, more of one than of the other, know nothing of each other. */
static void halves(void)
{
	const char *const *mine = self % 2 ? odds : evens;
	for (int64_t k = 0; k < ROUNDS * (1 + self % 2); k++) {
		struct far_val v = far_int(self + 10 * k), out = {0};
		CHECK_STATUS(far_all_gather(agent, mine, 2, &v, 0, &out, &err), FAR_OK, &err);
		CHECK(far_len(&out) == 2);
		CHECK(int_of(&out, 0) == self % 2 + 10 * k && int_of(&out, 1) == self % 2 + 2 + 10 * k);
		far_val_fini(&out);
	}
}

static void barriers(void)
{
	for (int k = 0; k < ROUNDS; k++) {
		atomic_fetch_add(&shared->come[k], 1);
		CHECK_STATUS(far_barrier(agent, NULL, 0, 0, &err), FAR_OK, &err);
		CHECK(atomic_load(&shared->come[k]) == WORLD);
	}
	/* Of one it is over at once, and none is left out that is named alone. */
	const char *alone = check_name(self);
	CHECK_STATUS(far_barrier(agent, &alone, 1, 0, &err), FAR_OK, &err);
}

static void *one_thread(void *arg)
{
	struct far_err own;
	for (int k = 0; k < THREAD_ROUNDS; k++) {
		struct far_val mine = far_int(self), out = {0};
		CHECK_STATUS(far_all_gather(agent, NULL, 0, &mine, 0, &out, &own), FAR_OK, &own);
		for (int i = 0; i < WORLD; i++)
			CHECK(int_of(&out, (size_t)i) == i);
		far_val_fini(&out);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t t[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, one_thread, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
}

static void values(void)
{
	uint8_t *bytes = malloc(BIG);
	struct far_val out = {0};
	CHECK(bytes);
	memset(bytes, 'a' + self, BIG);
	struct far_dict_entry entry = {far_str("big"), far_bytes(bytes, (size_t)(BIG - self))};
	struct far_val dict = far_dict(&entry, 1);
	CHECK_STATUS(far_all_gather(agent, NULL, 0, self == 2 ? NULL : &dict, 0, &out, &err), FAR_OK, &err);
	memset(bytes, 0, BIG);
	for (int i = 0; i < WORLD; i++) {
		const struct far_val *v = far_list_get(&out, (size_t)i);
		CHECK(v && v->type == (i == 2 ? FAR_TYPE_NONE : FAR_TYPE_DICT));
		if (i == 2)
			continue;
		const struct far_val *got = far_dict_get(v, "big");
		CHECK(got && got->u.s.len == (size_t)(BIG - i));
		const uint8_t *at = got->u.s.data;
		CHECK(at[0] == 'a' + i && at[BIG - i - 1] == 'a' + i);
	}
	far_val_fini(&out);
	free(bytes);
}

static void mistakes(void)
{
	const char *const twice[] = {check_name(self), check_name(self)}, *const unknown[] = {"nobody"};
	struct far_val out = {0};
	CHECK_STATUS(far_barrier(NULL, NULL, 0, 0, &err), FAR_SHUTDOWN, &err);
	CHECK_STATUS(far_barrier(agent, twice, 0, 0, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_barrier(agent, twice, 2, 0, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "twice");
	CHECK_STATUS(far_barrier(agent, self % 2 ? evens : odds, 2, 0, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "itself is not among");
	CHECK_STATUS(far_barrier(agent, unknown, 1, 0, &err), FAR_UNKNOWN_WORKER, &err);
	CHECK_TEXT(&err, "nobody");
	CHECK_STATUS(far_barrier(agent, behind, WORLD + 1, 0, &err), FAR_INVALID, &err);
	/* Who calls the function by itself must say it right. */
	static const struct {
		size_t len;
		uint8_t bytes[4];
	} wrong[] = {{0, {0}},
		     {1, {0}},
		     {3, {0}},
		     {4, {1, 0, 0, 0}},
		     {4, {0, 0, 0, 0}},
		     {4, {0, 0, 9, 0}},
		     {4, {0, 0, 255, 255}},
		     {2, {0, 0}},
		     {2, {1, 0}}};
	for (size_t i = 0; self == 1 && i < sizeof wrong / sizeof *wrong; i++) {
		struct far_val args[] = {far_bytes(wrong[i].bytes, wrong[i].len), far_int(0), far_int(0), far_none()};
		CHECK_STATUS(far_rpc_sync(agent, "worker0", "far::gather", args, 4, NULL, &out, &err), FAR_BAD_ARGS,
			     &err);
	}
	CHECK_STATUS(far_barrier(agent, NULL, 0, 0, &err), FAR_OK, &err);
}

/* Worker 3 is late for a round: the others give it up, and it is notified; the next one is everybody's. */
static void late(void)
{
	if (self == 3) {
		step_reached(3);
		CHECK_STATUS(far_barrier(agent, NULL, 0, 20 * FAR_SEC, &err), FAR_TIMEOUT, &err);
		CHECK_TEXT(&err, "far_barrier: the other workers have left");
	} else {
		CHECK_STATUS(far_barrier(agent, NULL, 0, 50 * FAR_MS, &err), FAR_TIMEOUT, &err);
		CHECK_TEXT(&err, "\"worker3\"");
		CHECK_TEXT(&err, "of 4 workers have joined");
		atomic_fetch_add(&shared->step, 1);
	}
	CHECK_STATUS(far_barrier(agent, NULL, 0, 0, &err), FAR_OK, &err);
}

static enum far_status meet_here(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val mine = far_int(self), out = {0};
	struct far_err own;
	enum far_status status = far_all_gather(far_req_agent(req), NULL, 0, &mine, 0, &out, &own);
	if (user) { /* inline */
		CHECK(status == FAR_WOULD_DEADLOCK);
		return far_return(req, NULL);
	}
	CHECK_STATUS(status, FAR_OK, &own);
	status = far_return(req, &out);
	far_val_fini(&out);
	return status;
}

/* A round without application threads: worker 0 calls a fiber handler of each worker, which joins in. */
static void in_handlers(void)
{
	struct far_future *f[WORLD];
	struct far_val out = {0};
	for (int i = 0; self == 0 && i < WORLD; i++)
		CHECK_STATUS(far_rpc_async(agent, check_name(i), "t::fiber", FAR_NOARGS, NULL, &f[i], &err), FAR_OK,
			     &err);
	for (int i = 0; self == 0 && i < WORLD; i++) {
		CHECK_STATUS(far_future_wait(f[i], FAR_FOREVER, &out, &err), FAR_OK, &err);
		CHECK(far_len(&out) == WORLD && int_of(&out, 3) == 3);
		far_val_fini(&out);
		far_future_free(f[i]);
		CHECK_STATUS(far_rpc_sync(agent, check_name(i), "t::inline", FAR_NOARGS, NULL, NULL, &err), FAR_OK,
			     &err);
	}
	/* Another round of the main threads would be mixed with that of the fibers. */
	if (self == 0)
		atomic_fetch_add(&shared->step, 1);
	step_reached(4);
}

static struct far_agent *join(unsigned shards)
{
	static int is_inline;
	static const struct far_function table[] = {{"t::fiber() -> List", FAR_KIND_FIBER, meet_here, NULL},
						    {"t::inline() -> none", FAR_KIND_INLINE, meet_here, &is_inline}};
	struct far_opts opts = {.functions = table, .functions_n = 2, .shards = shards};
	return check_join(&opts);
}

static int together(int rank)
{
	self = rank;
	agent = join(1 + (unsigned)rank % 2);
	all();
	halves();
	barriers();
	threads();
	values();
	mistakes();
	late();
	in_handlers();
	check_leave(agent);
	return 0;
}

/* Worker 3 dies while the others wait for it; then the one who gathers for those that are left does. */
static int deaths(int rank)
{
	self = rank;
	agent = join(1);
	CHECK_STATUS(far_barrier(agent, NULL, 0, 0, &err), FAR_OK, &err);
	if (rank == 3) {
		usleep(20000);
		raise(SIGKILL);
	}
	CHECK_STATUS(far_barrier(agent, NULL, 0, FAR_FOREVER, &err), FAR_PEER_LOST, &err);
	CHECK_TEXT(&err, "worker3");
	atomic_fetch_add(&shared->step, 1);
	step_reached(3);
	if (rank == 1) {
		usleep(20000);
		raise(SIGKILL);
	}
	if (rank == 2) {
		CHECK_STATUS(far_barrier(agent, behind, 3, FAR_FOREVER, &err), FAR_PEER_LOST, &err);
		CHECK_TEXT(&err, "far_barrier: ");
	}
	/* It gathers no more: who waits for it is notified. */
	const char *const rest[] = {"worker0", "worker2"};
	if (rank == 2) {
		enum far_status status = far_barrier(agent, rest, 2, FAR_FOREVER, &err);
		CHECK(status == FAR_SHUTDOWN || status == FAR_PEER_LOST);
	} else {
		struct far_worker_info info;
		do {
			usleep(1000);
			CHECK_STATUS(far_worker_by_rank(agent, 1, &info, &err), FAR_OK, &err);
		} while (info.alive);
		usleep(50000);
	}
	CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
	return 0;
}

int main(void)
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	struct spawned s = spawn(WORLD, together);
	if (spawn_wait(&s, -1))
		return 1;
	memset(shared, 0, sizeof *shared);
	s = spawn(WORLD, deaths);
	for (int i = 0; i < WORLD; i++) {
		int status;
		CHECK(waitpid(s.pids[i], &status, 0) == s.pids[i]);
		CHECK(i % 2 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0);
	}
	return 0;
}
