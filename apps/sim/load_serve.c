/* SPDX-License-Identifier: BSD-3-Clause */
/** The handlers of a simulated application. The thread of the simulated world. */
#include "base/must.h"
#include "sim/load_bytes.h"
#include "sim/load_inner.h"

#include <stdlib.h>

/* Reads the number of a request. false: no caller sent it, or its bytes differ. */
bool load_arrived(struct load_worker *w, const void *data, size_t len, uint64_t *number)
{
	struct history *h = w->load->history;
	struct history_run run = {
		.at = sim_now(w->load->sim), .worker = w->rank, .incarnation = w->incarnation, .shard = load_shard()};
	if (len < LOAD_NUMBER) {
		h->strays++;
		return false;
	}
	memcpy(number, data, LOAD_NUMBER);
	if (!history_run(h, *number, &run))
		return false;
	const struct load_plan *plan = &w->load->plans[*number];
	if (len != LOAD_NUMBER + plan->request ||
	    !load_fits(*number, (const uint8_t *)data + LOAD_NUMBER, len - LOAD_NUMBER))
		h->calls[*number].wrong_request = true;
	return true;
}

static void reply(struct load_worker *w, struct far_req *req, uint64_t number)
{
	uint32_t len = w->load->plans[number].reply;
	void *at;
	if (far_reply_alloc(req, len, &at) == FAR_OK)
		load_fill(LOAD_REPLY(number), at, len);
	else
		far_fail(req, FAR_RESOURCE, 0, "no room for a reply of %u bytes", len);
}

static void on_echo(struct far_req *req, const void *data, size_t len, void *user)
{
	uint64_t number;
	if (load_arrived(user, data, len, &number))
		reply(user, req, number);
}

static void on_slow(struct far_req *req, const void *data, size_t len, void *user)
{
	struct load_worker *w = user;
	uint64_t number;
	if (!load_arrived(w, data, len, &number))
		return;
	load_sleep(w->load->plans[number].work_ns);
	w->load->history->calls[number].left = sim_now(w->load->sim);
	reply(w, req, number);
}

static void on_fail(struct far_req *req, const void *data, size_t len, void *user)
{
	uint64_t number;
	if (load_arrived(user, data, len, &number))
		far_fail(req, FAR_REMOTE, LOAD_CODE(number), "it fails on request");
}

static void on_oneway(struct far_req *req, const void *data, size_t len, void *user)
{
	uint64_t number;
	(void)req;
	load_arrived(user, data, len, &number);
}

/* ---- later ---- */

static void later_free(struct load_later *l)
{
	*l->prev = l->next;
	if (l->next)
		l->next->prev = l->prev;
	free(l);
}

void load_forget_laters(struct load_worker *w)
{
	while (w->laters)
		later_free(w->laters);
}

static void on_time(void *ctx)
{
	struct load_later *l = ctx;
	uint32_t len = l->worker->load->plans[l->number].reply;
	void *bytes = malloc(len + 1);
	must(bytes != NULL);
	load_fill(LOAD_REPLY(l->number), bytes, len);
	far_deferred_reply(l->deferred, bytes, len);
	free(bytes);
	later_free(l);
}

static void on_deferred(struct far_req *req, const void *data, size_t len, void *user)
{
	struct load_worker *w = user;
	struct far_deferred *deferred;
	uint64_t number;
	if (!load_arrived(w, data, len, &number))
		return;
	if (far_defer(req, &deferred) != FAR_OK) {
		far_fail(req, FAR_RESOURCE, 0, "no record");
		return;
	}
	struct load_later *l = malloc(sizeof *l);
	must(l != NULL);
	*l = (struct load_later){w->laters, &w->laters, w, deferred, number};
	if (l->next)
		l->next->prev = &l->next;
	w->laters = l;
	sim_host_at(w->host, sim_now(w->load->sim) + w->load->plans[number].work_ns, on_time, l);
}

/* ---- nested ---- */

static void on_nested(struct far_req *req, const void *data, size_t len, void *user)
{
	struct load_worker *w = user;
	uint64_t number;
	if (!load_arrived(w, data, len, &number))
		return;
	uint32_t depth = w->load->plans[number].depth;
	enum far_status status = depth > 1 ? load_nested(w, req, depth - 1) : FAR_OK;
	if (status == FAR_OK)
		reply(w, req, number);
	else
		far_fail(req, FAR_REMOTE, 0, "the call inside it ended with %s", far_status_name(status));
}

/* ---- typed ---- */

/* `kind`: whose function runs: of a call of another one it is the wrong one. */
static enum far_status answer_typed(struct load_worker *w, struct far_req *req, const struct far_val *args,
				    enum load_kind kind)
{
	uint64_t number;
	if (!load_arrived(w, args[0].u.s.data, args[0].u.s.len, &number))
		return FAR_INVALID;
	struct history_call *c = &w->load->history->calls[number];
	c->wrong_function |=
		(c->kind == LOAD_CANCEL) != (kind == LOAD_CANCEL) || (c->kind == LOAD_SOME) != (kind == LOAD_SOME);
	if (kind == LOAD_CANCEL) {
		load_sleep(w->load->plans[number].work_ns);
		w->load->history->calls[number].left = sim_now(w->load->sim);
	}
	uint32_t len = w->load->plans[number].reply;
	void *bytes = malloc(len + 1);
	must(bytes != NULL);
	load_fill(LOAD_REPLY(number), bytes, len);
	struct far_val v = far_bytes(bytes, len);
	enum far_status status = far_return(req, &v);
	free(bytes);
	return status;
}

static enum far_status fn_echo(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	return answer_typed(user, req, args, LOAD_TYPED);
}

static enum far_status fn_slow(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	return answer_typed(user, req, args, LOAD_CANCEL);
}

static enum far_status fn_some(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	return answer_typed(user, req, args, LOAD_SOME);
}

/* What the reference is to, which others made and keep; and the reference itself, to be handed on. */
static enum far_status fn_fetch(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_err err = {0};
	struct far_val v = {0};
	(void)n;
	(void)user;
	enum far_status status = far_rref_to_here(args[0].u.rref, 0, &v, &err);
	if (status)
		return far_fail(req, status, err.code, "%s", err.text);
	struct far_val both[2] = {v, args[0]}, list = far_list(both, 2);
	status = far_return(req, &list);
	far_val_fini(&v);
	return status;
}

/* Their numbers are those of the order in which they are given: another one in each incarnation. */
static void set_functions(struct load_worker *w, uint32_t incarnation, struct far_opts *opts)
{
	const struct far_function all[] = {
		{LOAD_FN_ECHO "(bytes data) -> bytes", FAR_KIND_INLINE, fn_echo, w},
		{LOAD_FN_SLOW "(bytes data) -> bytes", FAR_KIND_FIBER, fn_slow, w},
		{LOAD_FN_FETCH "(rref r) -> List", FAR_KIND_FIBER, fn_fetch, w},
		{LOAD_FN_HOLD "(bytes data, Any refs) -> List", FAR_KIND_INLINE, load_fn_hold, w},
		{LOAD_FN_KEEP "(bytes data, Any refs) -> List", FAR_KIND_FIBER, load_fn_keep, w},
		{LOAD_FN_SOME "(bytes data) -> bytes", FAR_KIND_INLINE, fn_some, w}};
	uint32_t n = sizeof all / sizeof *all - (LOAD_HAS_SOME(incarnation) ? 0 : 1);
	for (uint32_t i = 0; i < n; i++)
		w->functions[(i + incarnation) % n] = all[i];
	opts->functions = w->functions;
	opts->functions_n = n;
}

void load_opts(struct load_worker *w, uint32_t incarnation, struct far_opts *opts)
{
	w->messages[0] = (struct far_msg_handler){LOAD_ID_ECHO, FAR_KIND_INLINE, on_echo, w};
	w->messages[1] = (struct far_msg_handler){LOAD_ID_FIBER, FAR_KIND_FIBER, on_echo, w};
	w->messages[2] = (struct far_msg_handler){LOAD_ID_SLOW, FAR_KIND_FIBER, on_slow, w};
	w->messages[3] = (struct far_msg_handler){LOAD_ID_FAIL, FAR_KIND_INLINE, on_fail, w};
	w->messages[4] = (struct far_msg_handler){LOAD_ID_ONEWAY, FAR_KIND_INLINE, on_oneway, w};
	w->messages[5] = (struct far_msg_handler){LOAD_ID_DEFERRED, FAR_KIND_INLINE, on_deferred, w};
	w->messages[6] = (struct far_msg_handler){LOAD_ID_NESTED, FAR_KIND_FIBER, on_nested, w};
	set_functions(w, incarnation, opts);
	w->make = (struct far_function){LOAD_CLASS "(bytes data) -> " LOAD_CLASS, FAR_KIND_INLINE, load_fn_box, w};
	w->look = (struct far_method){"look() -> List", FAR_KIND_INLINE, load_box_look, w};
	w->box = (struct far_class){.name = LOAD_CLASS,
				    .constructors = &w->make,
				    .constructors_n = 1,
				    .methods = &w->look,
				    .methods_n = 1,
				    .destroy = load_box_free,
				    .user = w};
	opts->classes = &w->box;
	opts->classes_n = 1;
	opts->messages = w->messages;
	opts->messages_n = sizeof w->messages / sizeof *w->messages;
	if (w->load->scenario->workload.fibers)
		opts->fibers = w->load->scenario->workload.fibers;
	opts->connect = w->load->scenario->lazy ? FAR_CONNECT_LAZY : FAR_CONNECT_AUTO;
	opts->shards = w->load->scenario->shards;
	opts->peer_limit_ns = w->load->scenario->peer_limit_ns;
}
