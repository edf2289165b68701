/* SPDX-License-Identifier: BSD-3-Clause */
/** Barriers of a parameter server: rounds, missing and lost members, another view, as many as there can be, bad input.
 * One server with two shards, three clients. Main thread of each process. */
#include "api_spawn.h"

#include <farcall/ps.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { WORLD = 4, CLIENTS = 3, ROUNDS = 50 };

struct shared {
	_Atomic int came, step;
};
static struct shared *shared;
static struct far_agent *agent;
static struct far_err err;
static struct far_ps *ps;
static unsigned me; /* of the clients */

static void step_reached(int step)
{
	while (atomic_load(&shared->step) < step)
		usleep(1000);
}

static struct far_future *come(const char *name, unsigned member, unsigned members, uint64_t timeout_ns)
{
	struct far_future *f;
	CHECK_STATUS(far_ps_barrier(ps, name, member, members, timeout_ns, &f, &err), FAR_OK, &err);
	return f;
}

static enum far_status end_of(struct far_future *f)
{
	struct far_val out;
	enum far_status status = far_future_wait(f, FAR_FOREVER, &out, &err);
	CHECK(status || (out.type == FAR_TYPE_INT && out.u.i == 1));
	far_future_free(f);
	return status;
}

static void pass(const char *name, unsigned member, unsigned members)
{
	CHECK_STATUS(end_of(come(name, member, members, FAR_FOREVER)), FAR_OK, &err);
}

static void rounds(void)
{
	for (int r = 1; r <= ROUNDS; r++) {
		atomic_fetch_add(&shared->came, 1);
		pass("round", me, CLIENTS);
		CHECK(atomic_load(&shared->came) >= CLIENTS * r);
		struct far_future *a = come(me ? "a" : "b", me, CLIENTS, FAR_FOREVER);
		struct far_future *b = come(me ? "b" : "a", me, CLIENTS, FAR_FOREVER);
		CHECK_STATUS(end_of(b), FAR_OK, &err);
		CHECK_STATUS(end_of(a), FAR_OK, &err);
	}
}

/* The members that are missing are named; another attempt passes, with another number of members. */
static void late(void)
{
	CHECK_STATUS(end_of(come("late", 1, 4, FAR_SEC / 2)), FAR_TIMEOUT, &err);
	CHECK_TEXT(&err, "barrier \"late\" of 4 members lacks 0, 2, 3");
	CHECK_STATUS(end_of(come("late", 0, 100, FAR_SEC / 2)), FAR_TIMEOUT, &err);
	CHECK_TEXT(&err, "lacks 1, 2, 3, 4, 5, 6, 7, 8 and 91 more");
	struct far_future *f = come("late", 1, 2, FAR_FOREVER);
	pass("late", 0, 2);
	CHECK_STATUS(end_of(f), FAR_OK, &err);
}

/* Of two that do not agree, the one that comes last is refused, whichever it is. */
static void disagreement(void)
{
	struct far_future *f[2] = {come("counted", 0, 2, FAR_FOREVER), come("counted", 0, 3, FAR_FOREVER)};
	while (!far_future_done(f[0]) && !far_future_done(f[1]))
		usleep(1000);
	unsigned refused = far_future_done(f[0]) ? 0 : 1, members = refused == 0 ? 3 : 2;
	CHECK_STATUS(end_of(f[refused]), FAR_INVALID, &err);
	CHECK_TEXT(&err, members == 3 ? "has 3 members, not 2" : "has 2 members, not 3");
	struct far_future *second = come("counted", 1, members, FAR_FOREVER);
	if (members == 3)
		pass("counted", 2, 3);
	CHECK_STATUS(end_of(second), FAR_OK, &err);
	CHECK_STATUS(end_of(f[!refused]), FAR_OK, &err);
}

/* One more than there is room for is refused while all wait; then names nobody waits at give way. */
static void many(void)
{
	enum { N = FAR_PS_BARRIERS_MAX + 1 };
	struct far_future *f[N];
	char name[N][16];
	int refused = -1;
	for (int i = 0; i < N; i++) {
		snprintf(name[i], sizeof name[i], "many%d", i);
		f[i] = come(name[i], 0, 2, FAR_FOREVER);
	}
	while (refused < 0) {
		for (int i = 0; i < N; i++)
			refused = far_future_done(f[i]) ? i : refused;
		usleep(1000);
	}
	CHECK_STATUS(end_of(f[refused]), FAR_RESOURCE, &err);
	for (int i = 0; i < N; i++) {
		if (i == refused)
			continue;
		pass(name[i], 1, 2);
		CHECK_STATUS(end_of(f[i]), FAR_OK, &err);
	}
	for (int i = 0; i < N; i++) {
		snprintf(name[i], sizeof name[i], "more%d", i);
		pass(name[i], 0, 1);
	}
}

static void bad(void)
{
	char name[FAR_PS_NAME_MAX + 1];
	struct far_future *f;
	memset(name, 'x', FAR_PS_NAME_MAX);
	name[FAR_PS_NAME_MAX] = 0;
	static const struct {
		unsigned member, members;
		const char *name, *text;
	} cases[] = {{0, 1, NULL, "name"},
		     {0, 1, "", "name"},
		     {0, 0, "x", "member 0 of 0"},
		     {2, 2, "x", "member 2 of 2"},
		     {0, FAR_PS_WORKERS_MAX + 1, "x", "member 0 of 4097"}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		CHECK_STATUS(far_ps_barrier(ps, cases[i].name, cases[i].member, cases[i].members, 0, &f, &err),
			     FAR_INVALID, &err);
		CHECK_TEXT(&err, cases[i].text);
	}
	CHECK_STATUS(far_ps_barrier(ps, name, 0, 1, 0, &f, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_ps_barrier(NULL, "x", 0, 1, 0, &f, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_ps_barrier(ps, "x", 0, 1, 0, NULL, &err), FAR_INVALID, &err);
}

/* Those that wait while the view changes come again by themselves. */
static void view(void)
{
	if (me == 0) {
		struct far_future *f = come("view", 0, 2, FAR_FOREVER);
		atomic_store(&shared->step, 1);
		while (far_ps_epoch(ps) < 2)
			usleep(1000);
		CHECK(!far_future_done(f));
		atomic_store(&shared->step, 2);
		CHECK_STATUS(end_of(f), FAR_OK, &err);
	} else {
		step_reached(2); /* nobody waits at a barrier before */
		if (me == 1)
			pass("view", 1, 2);
	}
	pass("round", me, CLIENTS);
}

static void use(void)
{
	CHECK_STATUS(far_ps_open(agent, "ads", NULL, &ps, &err), FAR_OK, &err);
	rounds();
	if (me == 0) {
		late();
		disagreement();
		many();
		bad();
	}
	view();
	pass("lost", me, CLIENTS);
	if (me == 2)
		raise(SIGKILL);
	pass("lost", me, CLIENTS);
	pass("lost", me, CLIENTS);
	if (me == 1) { /* the lost one is not missing */
		CHECK_STATUS(end_of(come("lost", me, CLIENTS, FAR_SEC / 2)), FAR_TIMEOUT, &err);
		CHECK_TEXT(&err, "lacks 0");
		CHECK(!strchr(strstr(err.text, "lacks"), ','));
		atomic_store(&shared->step, 4);
	}
	step_reached(4);
	pass("lost", me, CLIENTS);
	struct far_future *f = come("ends", me, CLIENTS, FAR_FOREVER);
	if (me == 0)
		atomic_store(&shared->step, 5);
	CHECK_STATUS(end_of(f), FAR_SHUTDOWN, &err);
	far_ps_close(ps);
}

static void serve(void)
{
	struct far_ps_server *server;
	static const char *const servers[] = {"worker0"};
	CHECK_STATUS(far_ps_serve(agent, "ads", NULL, &server, &err), FAR_OK, &err);
	step_reached(1);
	CHECK_STATUS(far_ps_server_view(server, servers, 1, 2, &err), FAR_OK, &err);
	step_reached(5);
	CHECK_STATUS(far_ps_server_stop(server, &err), FAR_OK, &err);
	static const char *const left[] = {"worker0", "worker1", "worker2"};
	CHECK_STATUS(far_barrier(agent, left, 3, 0, &err), FAR_OK, &err);
	(void)far_shutdown(agent, 0, &err);
	far_ps_server_free(server);
}

static int together(int rank)
{
	struct far_opts opts = {.shards = rank == 0 ? 2 : 1};
	static const char *const left[] = {"worker0", "worker1", "worker2"};
	agent = check_join(&opts);
	me = (unsigned)rank - 1;
	if (rank == 0) {
		serve();
		return 0;
	}
	use();
	CHECK_STATUS(far_barrier(agent, left, 3, 0, &err), FAR_OK, &err);
	(void)far_shutdown(agent, 0, &err);
	return 0;
}

int main(void)
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	struct spawned s = spawn(WORLD, together);
	return spawn_wait(&s, WORLD - 1);
}
