/* SPDX-License-Identifier: BSD-3-Clause */
/** Servers: far_ps_serve() and its relatives, on the caller's thread; a thread that prepares the memory of tables. */
#include "psv_env.h"
#include "psv_metrics.h"
#include "psv_tenant.h"

#include "pst_fail.h"
#include <farcall/message.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define AHEAD_NS 5000000L /* between looks at the tables */
#define WAKE_NS  (10 * FAR_SEC)

bool psv_server_look(struct far_ps_server *server)
{
	bool prepared = false;
	for (unsigned s = 0; s < server->shards; s++) {
		struct psv_shard *shard = &server->shard[s];
		unsigned n = atomic_load_explicit(&shard->tables_n, memory_order_acquire);
		for (unsigned i = 0; i < n; i++)
			if (pst_table_ahead(atomic_load_explicit(&shard->table[i], memory_order_acquire)->rows))
				prepared = true;
		psv_shard_free_dropped(shard);
	}
	return prepared;
}

enum far_status psv_server_wake(struct far_ps_server *server, struct far_err *err)
{
	struct psv_request q = {.magic = PSV_MAGIC, .kind = PSV_WAKE, .service = server->service};
	enum far_status status = FAR_OK;
	for (unsigned i = 0; i < server->shards && !status; i++) {
		uint64_t end = psv_now_ns() + WAKE_NS;
		size_t more = 1;
		for (char byte; more && !status;)
			status = psv_now_ns() >= end
					 ? pst_fail(err, FAR_TIMEOUT, 0,
						    "shard %u erases rows of a new view, and goes on", i)
					 : far_msg_call(server->agent, server->shard[i].self, server->message, &q,
							sizeof q, &(struct far_call_opts){.timeout_ns = WAKE_NS}, &byte,
							1, &more, err);
	}
	return status;
}

/* Tables that grow fast want the next slab soon. While requests wait, shards look for lost workers. */
static void *run_ahead(void *user)
{
	struct far_ps_server *server = user;
	uint64_t woken = psv_now_ns();
	while (!atomic_load_explicit(&server->ahead_stop, memory_order_acquire)) {
		bool prepared = psv_server_look(server);
		if (atomic_load_explicit(&server->waiting, memory_order_relaxed) &&
		    psv_now_ns() - woken >= PSV_WAKE_EVERY_NS) {
			(void)psv_server_wake(server, NULL);
			woken = psv_now_ns();
		}
		if (!prepared)
			nanosleep(&(struct timespec){.tv_nsec = AHEAD_NS}, NULL);
	}
	return NULL;
}

static void server_free(struct far_ps_server *server)
{
	if (!server)
		return;
	for (unsigned i = 0; server->shard && i < server->shards; i++)
		psv_shard_fini(&server->shard[i]);
	free(server->shard);
	psv_views_free(atomic_load(&server->view));
	pthread_mutex_destroy(&server->lock);
	free(server->tenants);
	free(server);
}

/* A server without its view. */
static struct far_ps_server *server_new(struct far_agent *agent, const char *name, uint16_t message)
{
	struct far_ps_server *server = calloc(1, sizeof *server);
	if (!server)
		return NULL;
	struct far_worker_info self;
	far_worker_self(agent, &self);
	server->agent = agent;
	server->service = psv_name_id(name);
	strcpy(server->name, name);
	server->message = message ? message : FAR_PS_MESSAGE;
	server->shards = far_shards(agent);
	pthread_mutex_init(&server->lock, NULL);
	server->shard = calloc(server->shards, sizeof *server->shard);
	if (!server->shard) {
		server_free(server);
		return NULL;
	}
	for (unsigned i = 0; i < server->shards; i++)
		psv_shard_init(&server->shard[i], server, (struct far_to){self.rank, (int32_t)i});
	return server;
}

static enum far_status check_serve(struct far_agent *agent, const char *name, const struct far_ps_serve_opts *o,
				   struct far_ps_server **out, struct far_err *err)
{
	if (!agent || !out || !psv_name_ok(name))
		return pst_fail(err, FAR_INVALID, 0,
				"far_ps_serve needs an agent, a place for the server and a name of 1 to %d bytes",
				FAR_PS_NAME_MAX - 1);
	for (unsigned i = 0; i < 2; i++)
		if (o->reserved[i])
			return pst_fail(err, FAR_INVALID, 0, "a reserved word of far_ps_serve_opts is not 0");
	if (!o->servers != !o->servers_n)
		return pst_fail(err, FAR_INVALID, 0, "servers and servers_n do not fit: %zu names", o->servers_n);
	return FAR_OK;
}

enum far_status far_ps_serve(struct far_agent *agent, const char *name, const struct far_ps_serve_opts *opts,
			     struct far_ps_server **out, struct far_err *err)
{
	struct far_ps_serve_opts o = opts ? *opts : (struct far_ps_serve_opts){0};
	enum far_status status = check_serve(agent, name, &o, out, err);
	if (status)
		return status;
	struct far_worker_info self;
	far_worker_self(agent, &self);
	const char *alone = self.name;
	struct psv_view *view;
	status = psv_view_make(agent, o.servers ? o.servers : &alone, o.servers ? o.servers_n : 1,
			       o.epoch ? o.epoch : 1, &view, err);
	if (status)
		return status;
	if (psv_view_slot(view, (struct far_to){self.rank, 0}) < 0) {
		psv_views_free(view);
		return pst_fail(err, FAR_INVALID, 0, "the list of servers lacks this worker, \"%s\"", self.name);
	}
	struct far_ps_server *server = server_new(agent, name, o.message);
	if (!server) {
		psv_views_free(view);
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for a server");
	}
	atomic_store(&server->view, view);
	status = psv_tenants_copy(o.tenants, o.tenants_n, &server->tenants, err);
	if (status) {
		server_free(server);
		return status;
	}
	server->tenants_n = o.tenants_n;
	int rc = psv_env.threads ? pthread_create(&server->ahead, NULL, run_ahead, server) : 0;
	if (rc) {
		server_free(server);
		return pst_fail(err, FAR_RESOURCE, rc, "no thread for a server: %s", strerror(rc));
	}
	server->ahead_runs = psv_env.threads;
	if (psv_env.threads) /* a simulation does not read them */
		status = psv_metrics_add(server, err);
	struct far_msg_handler handler = {
		.id = server->message, .kind = FAR_KIND_INLINE, .fn = psv_shard_serve, .user = server};
	if (!status)
		status = far_register_message(agent, &handler, err);
	if (status) {
		psv_metrics_remove(server);
		far_ps_server_free(server);
		return status;
	}
	*out = server;
	return FAR_OK;
}

static void end_ahead(struct far_ps_server *server)
{
	atomic_store_explicit(&server->ahead_stop, true, memory_order_release);
	if (server->ahead_runs)
		pthread_join(server->ahead, NULL);
	server->ahead_runs = false;
}

enum far_status far_ps_server_view(struct far_ps_server *server, const char *const *servers, size_t n, uint64_t epoch,
				   struct far_err *err)
{
	struct psv_view *view;
	if (!server)
		return pst_fail(err, FAR_INVALID, 0, "server is NULL");
	enum far_status status = psv_view_make(server->agent, servers, n, epoch, &view, err);
	if (status)
		return status;
	pthread_mutex_lock(&server->lock);
	struct psv_view *now = atomic_load(&server->view);
	bool later = epoch > now->epoch;
	uint64_t had = now->epoch;
	if (later) {
		view->older = now;
		atomic_store_explicit(&server->view, view, memory_order_release);
	}
	pthread_mutex_unlock(&server->lock);
	if (later)
		return psv_server_wake(server, err);
	psv_views_free(view);
	return pst_fail(err, FAR_INVALID, 0, "epoch %llu is not later than %llu", (unsigned long long)epoch,
			(unsigned long long)had);
}

enum far_status far_ps_server_stop(struct far_ps_server *server, struct far_err *err)
{
	if (!server)
		return pst_fail(err, FAR_INVALID, 0, "server is NULL");
	psv_metrics_remove(server);
	atomic_store_explicit(&server->stopping, true, memory_order_release);
	end_ahead(server);
	return psv_server_wake(server, err);
}

void far_ps_server_free(struct far_ps_server *server)
{
	if (!server)
		return;
	end_ahead(server);
	server_free(server);
}
