/* SPDX-License-Identifier: BSD-3-Clause */
/* Applications: each on a fiber of a shard, where the public interface is used as it is.
 * The thread of the simulated world. */
#include "apps/sim/cluster_world.h"

#include "base/must.h"
#include "core/context.h"
#include "core/fiber.h"
#include "core/fiber_pool.h"
#include "core/shard.h"
#include "core/spawn.h"

#include <errno.h>
#include <stdlib.h>

static void app_free(struct app *app)
{
	struct cluster_worker *w = app->worker;
	w->apps--;
	w->cluster->apps--;
	free(app);
}

static void app_drop(struct app *app)
{
	app->worker->cluster->apps_dropped++;
	app_free(app);
}

static void app_main(void *arg)
{
	struct app *app = arg;
	struct cluster_worker *w = app->worker;
	app->fn(w, app->ctx);
	app_free(app);
}

static void app_wait(struct app *app)
{
	struct cluster_worker *w = app->worker;
	app->next = NULL;
	*w->waiting_last = app;
	w->waiting_last = &app->next;
}

/* On the shard, outside of its fibers. */
static void app_begin(struct shard *s, struct shard_task *task)
{
	struct app *app = (struct app *)(void *)task;
	if (s->stopped)
		app_drop(app);
	else if (fiber_spawn(s, app_main, app))
		app_wait(app); /* until one ends */
}

static bool has_fiber(const struct shard *s)
{
	const struct fiber_pool *p = fiber_pool_of(s);
	return p && p->live < p->n;
}

void apps_begin(struct cluster_worker *w)
{
	unsigned n = 0;
	for (const struct app *app = w->waiting; app; app = app->next)
		n++;
	/* Each is looked at once: those whose shard has no fiber keep their places. */
	while (n-- && w->state == CLUSTER_READY) {
		struct app *app = w->waiting;
		struct shard *s = w->agent->shards[app->shard];
		w->waiting = app->next;
		if (!w->waiting)
			w->waiting_last = &w->waiting;
		if (!has_fiber(s)) {
			app_wait(app);
			continue;
		}
		shard_add_task(s, &app->task);
		core_schedule(&w->cores[app->shard], sim_now(w->cluster->sim));
	}
}

void apps_drop(struct cluster_worker *w)
{
	while (w->waiting) {
		struct app *app = w->waiting;
		w->waiting = app->next;
		app_drop(app);
	}
	w->waiting_last = &w->waiting;
}

int cluster_spawn(struct cluster_worker *w, int shard, cluster_app_fn *fn, void *ctx)
{
	if ((w->state != CLUSTER_JOINING && w->state != CLUSTER_READY) || w->dying)
		return -EPIPE;
	if (shard < -1 || shard >= (int)w->shards)
		return -EINVAL;
	struct app *app = calloc(1, sizeof *app);
	if (!app)
		return -ENOMEM;
	*app = (struct app){.task = {.run = app_begin}, .worker = w, .fn = fn, .ctx = ctx};
	app->shard = shard >= 0 ? (unsigned)shard : w->next_shard++ % w->shards;
	w->apps++;
	w->cluster->apps++;
	app_wait(app);
	apps_begin(w);
	return 0;
}

unsigned cluster_apps(const struct cluster_worker *w)
{
	return w->apps;
}

unsigned cluster_apps_all(const struct cluster *c)
{
	return c->apps;
}

uint64_t cluster_apps_dropped(const struct cluster *c)
{
	return c->apps_dropped;
}

/* ---- inside ---- */

struct cluster_worker *cluster_here(void)
{
	return agent_ctx_here();
}

bool cluster_dead(void)
{
	const struct cluster_worker *w = cluster_here();
	return w && w->dying && w->crash_requested;
}

/* A fiber's wait for a time of the world. The shard's own timers are of a tenth of a millisecond. */
struct nap {
	struct far_future *over;
	struct core *core;
	sim_event event;
};

static void nap_over(void *ctx)
{
	struct nap *nap = ctx;
	const struct far_val nothing = {.type = FAR_TYPE_NONE};
	nap->event = 0;
	far_future_set_value(nap->over, &nothing, NULL);
	core_schedule(nap->core, sim_now(nap->core->worker->cluster->sim));
}

static enum far_status nap_until(uint64_t when)
{
	struct cluster_worker *w = cluster_here();
	struct nap nap = {.core = &w->cores[agent_shard_here()->config.index]};
	enum far_status status = far_future_create(&nap.over, NULL);
	if (status)
		return status;
	/* Of one that unwinds every wait ends by itself. */
	if (when != TIME_NEVER && !w->dying)
		nap.event = sim_host_at(w->host, when, nap_over, &nap);
	status = far_future_wait(nap.over, FAR_FOREVER, NULL, NULL);
	sim_cancel(w->cluster->sim, nap.event);
	far_future_free(nap.over);
	return status;
}

enum far_status cluster_sleep(uint64_t ns)
{
	struct cluster_worker *w = cluster_here();
	must(w && shard_in_fiber()); /* inline handlers and the simulation loop cannot wait */
	return nap_until(sim_host_when(w->host, time_after(clock_now(sim_host_clock(w->host)), ns)));
}

enum far_status cluster_compute(uint64_t ns)
{
	struct cluster_worker *w = cluster_here();
	must(w != NULL);
	if (w->dying)
		return FAR_CANCELLED;
	if (w->cluster->running)
		w->cluster->running->extra_ns += ns;
	/* Its core is busy for longer than this. */
	return shard_in_fiber() ? nap_until(time_after(sim_now(w->cluster->sim), ns)) : FAR_OK;
}
