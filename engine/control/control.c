/* SPDX-License-Identifier: BSD-3-Clause */
/* The control thread and its interface for application threads. */
#include "control/control.h"

#include "base/error.h"
#include "base/must.h"
#include "base/signals.h"
#include "control/group.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ctl {
	struct group group; /* control thread only, but for constant fields, and `members` as in control.h */
	char identity[URL_TEXT_MAX + 2 * FAR_NAME_MAX];

	_Atomic int state;            /* enum ctl_state; writer: control thread, release, pairs with ctl_state() */
	_Atomic bool leave_requested; /* writer: ctl_leave, release after leave_deadline; pairs with ctl_step */
	_Atomic bool serves;          /* writer: ctl_serve; relaxed, ctl_wake() orders it */
	_Atomic bool stop;            /* writer: ctl_stop; relaxed, ctl_wake() orders it */
	uint64_t leave_deadline;      /* absolute, in ns; constant once leave_requested */

	pthread_mutex_t lock; /* protects `err` and `settled` */
	pthread_cond_t settled;
	struct far_err err; /* result of the present state */

	bool running;
	pthread_t thread;
};

static enum far_status word_check(const char *what, const char *s, struct far_err *err)
{
	size_t len = s ? strlen(s) : 0;
	if (len == 0 || len >= FAR_NAME_MAX)
		return err_set(err, FAR_INVALID, "%s name has %zu characters, expected 1 to %d", what, len,
			       FAR_NAME_MAX - 1);
	for (size_t i = 0; i < len; i++) {
		char c = s[i];
		if ((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
		    (c != '\0' && strchr("-_:", c)))
			continue;
		return err_set(err, FAR_INVALID, "%s name \"%s\" has a character outside A-Z a-z 0-9 - _ : at %zu",
			       what, s, i);
	}
	return FAR_OK;
}

enum far_status ctl_check_name(const char *name, struct far_err *err)
{
	return word_check("worker", name, err);
}

static enum far_status store_fd_read(int *out, struct far_err *err)
{
	const char *s = getenv("FAR_STORE_FD");
	char *end;
	*out = -1;
	if (!s || !*s)
		return FAR_OK;
	errno = 0;
	long fd = strtol(s, &end, 10);
	if (errno || *end || fd < 0 || fd > 1 << 20)
		return err_set(
			err, FAR_INVALID,
			"environment variable FAR_STORE_FD is \"%.64s\", expected the number of an open listening "
			"socket; unset it",
			s);
	*out = (int)fd;
	return FAR_OK;
}

static enum far_status ports_watch(const struct ctl_config *config, struct far_err *err)
{
	for (unsigned i = 0; i < config->ports_n; i++) {
		int fd = config->ports[i]->ops->fd(config->ports[i]);
		int rc = fd < 0 ? 0 : config->net->ops->watch(config->net, fd);
		if (rc)
			return err_sys(err, -rc, "cannot watch the %s port", config->ports[i]->ops->name);
	}
	return FAR_OK;
}

enum far_status ctl_create(struct ctl **out, const struct ctl_config *config, struct far_err *err)
{
	struct url url = {0};
	int store_fd = -1;
	must(config->clock && config->net && config->post && config->take && config->outstanding && config->begun);
	must(config->shards >= 1 && config->shards <= FAR_SHARDS_MAX);
	must(config->incarnation != 0 && config->ports_n <= INFO_PORTS_MAX);
	must(config->refused || config->self < config->ports_n);
	must(config->private_n <= config->ports_n && !(config->refused && config->ports_n));
	enum far_status status = ctl_check_name(config->name, err);
	if (status == FAR_OK && config->group)
		status = word_check("group", config->group, err);
	if (status == FAR_OK)
		status = url_parse(config->init_method, config->rank, config->world, &url, err);
	if (status == FAR_OK)
		status = url_bound(&url, config->members_max ? config->members_max : FAR_MEMBERS_MAX, err);
	if (status == FAR_OK && url.rank == RANK_OPEN)
		status = err_set(err, FAR_INVALID, "worker \"%s\" of a dynamic group has no rank; pass one",
				 config->name);
	if (status == FAR_OK && url.rank == 0 && url.scheme == URL_TCP)
		status = store_fd_read(&store_fd, err);
	if (status != FAR_OK)
		return status;
	struct ctl *ctl = calloc(1, sizeof *ctl);
	if (!ctl || group_create(&ctl->group, config, &url, store_fd)) {
		free(ctl);
		return err_set(err, FAR_RESOURCE, "no memory for the control thread's tables of %d members", url.world);
	}
	status = ports_watch(config, err);
	if (status != FAR_OK) {
		group_destroy(&ctl->group);
		free(ctl);
		return status;
	}
	pthread_mutex_init(&ctl->lock, NULL);
	pthread_cond_init(&ctl->settled, NULL);
	snprintf(ctl->identity, sizeof ctl->identity, "%s/%s/%s", ctl->group.store, ctl->group.group, ctl->group.name);
	atomic_init(&ctl->state, CTL_JOINING);
	*out = ctl;
	return FAR_OK;
}

uint64_t ctl_step(struct ctl *ctl, uint64_t now)
{
	struct group *g = &ctl->group;
	g->serves = atomic_load_explicit(&ctl->serves, memory_order_relaxed);
	if (!g->leave_requested && atomic_load_explicit(&ctl->leave_requested, memory_order_acquire)) {
		g->leave_requested = true;
		g->leave_deadline = ctl->leave_deadline;
	}
	uint64_t next = group_step(g, now);
	enum ctl_state state = group_state(g);
	if (state != ctl_state(ctl)) {
		pthread_mutex_lock(&ctl->lock);
		ctl->err = g->err;
		atomic_store_explicit(&ctl->state, state, memory_order_release);
		pthread_cond_broadcast(&ctl->settled);
		pthread_mutex_unlock(&ctl->lock);
		if (g->config.changed)
			g->config.changed(g->config.ctx, state);
	}
	return next;
}

static void *ctl_main(void *arg)
{
	struct ctl *ctl = arg;
	struct ctl_net *net = ctl->group.config.net;
	while (!atomic_load_explicit(&ctl->stop, memory_order_relaxed)) {
		uint64_t now = clock_now(ctl->group.config.clock);
		uint64_t next = ctl_step(ctl, now);
		if (next > now)
			net->ops->wait(net, next);
	}
	return NULL;
}

enum far_status ctl_start(struct ctl *ctl, struct far_err *err)
{
	sigset_t masked, before;
	signals_thread_mask(&masked);
	pthread_sigmask(SIG_SETMASK, &masked, &before);
	int rc = pthread_create(&ctl->thread, NULL, ctl_main, ctl);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		return err_sys(err, rc, "cannot start the control thread");
	pthread_setname_np(ctl->thread, "far-ctl");
	ctl->running = true;
	return FAR_OK;
}

void ctl_stop(struct ctl *ctl)
{
	if (ctl->running) {
		atomic_store_explicit(&ctl->stop, true, memory_order_relaxed);
		ctl_wake(ctl);
		pthread_join(ctl->thread, NULL);
		ctl->running = false;
	}
	group_close(&ctl->group);
}

void ctl_destroy(struct ctl *ctl)
{
	if (!ctl)
		return;
	ctl_stop(ctl);
	struct ctl_net *net = ctl->group.config.net;
	group_destroy(&ctl->group);
	net->ops->destroy(net);
	pthread_cond_destroy(&ctl->settled);
	pthread_mutex_destroy(&ctl->lock);
	free(ctl);
}

void ctl_wake(struct ctl *ctl)
{
	struct ctl_net *net = ctl->group.config.net;
	net->ops->wake(net);
}

enum ctl_state ctl_state(const struct ctl *ctl)
{
	return (enum ctl_state)atomic_load_explicit(&((struct ctl *)ctl)->state, memory_order_acquire);
}

bool ctl_settled(const struct ctl *ctl)
{
	enum ctl_state state = ctl_state(ctl);
	bool leaving = atomic_load_explicit(&((struct ctl *)ctl)->leave_requested, memory_order_relaxed);
	return state == CTL_LEFT || state == CTL_FAILED || (state == CTL_READY && !leaving);
}

enum far_status ctl_wait_settled(struct ctl *ctl, struct far_err *err)
{
	enum far_status status;
	pthread_mutex_lock(&ctl->lock);
	while (!ctl_settled(ctl))
		pthread_cond_wait(&ctl->settled, &ctl->lock);
	status = ctl->err.status;
	if (status != FAR_OK && err)
		*err = ctl->err;
	pthread_mutex_unlock(&ctl->lock);
	return status;
}

void ctl_serve(struct ctl *ctl)
{
	atomic_store_explicit(&ctl->serves, true, memory_order_relaxed);
	ctl_wake(ctl);
}

void ctl_leave(struct ctl *ctl, uint64_t timeout_ns)
{
	if (atomic_load_explicit(&ctl->leave_requested, memory_order_relaxed))
		return;
	uint64_t now = clock_now(ctl->group.config.clock);
	ctl->leave_deadline = time_after(now, timeout_ns);
	atomic_store_explicit(&ctl->leave_requested, true, memory_order_release);
	ctl_wake(ctl);
}

const struct ctl_member *ctl_members(const struct ctl *ctl, int *world)
{
	if (world)
		*world = ctl->group.url.world;
	return ctl->group.members;
}

bool ctl_is_dynamic(const struct ctl *ctl)
{
	return ctl->group.url.dynamic;
}

int ctl_rank(const struct ctl *ctl)
{
	return ctl->group.url.rank;
}

unsigned ctl_sessions(const struct ctl *ctl)
{
	return ctl->group.lazy ? 0 : ctl->group.shards_all;
}

void ctl_store(const struct ctl *ctl, struct url *url, struct key_choice *key)
{
	*url = ctl->group.url;
	*key = ctl->group.config.key;
	if (key->kind == KEY_AUTO)
		key->kind = KEY_GIVEN;
}

const char *ctl_group(const struct ctl *ctl)
{
	return ctl->group.group;
}

const char *ctl_store_text(const struct ctl *ctl)
{
	return ctl->group.store;
}

const char *ctl_identity(const struct ctl *ctl)
{
	return ctl->identity;
}
