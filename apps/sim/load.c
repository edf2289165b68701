/* SPDX-License-Identifier: BSD-3-Clause */
/** The callers of a simulated application. The thread of the simulated world. */
#include "sim/load.h"

#include "agent/env.h"
#include "base/must.h"
#include "core/shard.h"
#include "sim/load_bytes.h"
#include "sim/load_inner.h"

#include <stdlib.h>

#define BUSY_NS UINT64_C(50000)   /* between two tries of what is not waited for */
#define HOLD_NS UINT64_C(1000000) /* between two looks whether calls may be made again */

/* ---- what is drawn ---- */

static uint64_t load_between(struct sim_random *r, struct range range)
{
	return range.min + (range.max > range.min ? sim_random_below(r, range.max - range.min + 1) : 0);
}

/* Every power of two as likely as the next. */
static uint64_t sized(struct sim_random *r, struct range range)
{
	unsigned low = 0, high = 0;
	while (high < 40 && UINT64_C(1) << (high + 1) <= range.max + 1)
		high++;
	while (low < high && UINT64_C(1) << (low + 1) <= range.min + 1)
		low++;
	unsigned power = low + (unsigned)sim_random_below(r, high - low + 1u);
	uint64_t base = UINT64_C(1) << power, n = base - 1 + sim_random_below(r, base);
	return n < range.min ? range.min : n > range.max ? range.max : n;
}

static enum load_kind draw_kind(struct load_worker *w)
{
	const uint32_t *mix = w->load->scenario->workload.mix;
	uint64_t sum = 0;
	for (unsigned i = 0; i < LOAD_KINDS; i++)
		sum += mix[i];
	uint64_t x = sim_random_below(&w->random, sum);
	unsigned kind = 0;
	while (x >= mix[kind])
		x -= mix[kind++];
	return (enum load_kind)kind;
}

/* Any worker but this one. */
static uint32_t load_other(struct load_worker *w)
{
	uint32_t n = w->load->scenario->workers;
	return (w->rank + 1 + (uint32_t)sim_random_below(&w->random, n - 1)) % n;
}

static uint32_t draw_target(struct load_worker *w)
{
	switch (w->load->scenario->workload.pattern) {
	case PATTERN_PAIRS:
		return w->rank ^ 1;
	case PATTERN_FIRST:
		return 0;
	default:
		return load_other(w);
	}
}

static uint8_t draw_shard(struct load_worker *w)
{
	uint32_t n = w->load->scenario->shards;
	return n > 1 ? (uint8_t)sim_random_below(&w->random, n) : 0;
}

uint8_t load_shard(void)
{
	return (uint8_t)agent_shard_here()->config.index;
}

/* Those of one-ways from the shard that this runs on. */
static uint32_t *sequence_of(struct load_worker *w, const struct history_call *c)
{
	uint32_t shards = w->load->scenario->shards;
	return &w->sequences[(c->to * shards + c->from_shard) * shards + c->to_shard];
}

static size_t sequences_bytes(const struct load *load)
{
	return (size_t)load->scenario->workers * load->scenario->shards * load->scenario->shards * sizeof(uint32_t);
}

/* ---- records ---- */

struct far_to load_to(const struct load *load, size_t number)
{
	const struct history_call *c = &load->history->calls[number];
	return (struct far_to){(int32_t)c->to, c->to_shard};
}

/* A record of a call, with what it is made of; its number. */
static size_t load_begin_call(struct load_worker *w, enum load_kind kind, uint32_t to, uint64_t timeout_ns,
			      uint32_t depth)
{
	struct load *load = w->load;
	const struct workload *wl = &load->scenario->workload;
	uint64_t now = sim_now(load->sim);
	size_t number = history_begin(load->history, &(struct history_call){.kind = (uint8_t)kind,
									    .from = w->rank,
									    .from_incarnation = w->incarnation,
									    .from_shard = load_shard(),
									    .to_shard = draw_shard(w),
									    .to = to,
									    .begun = now,
									    .deadline = now + timeout_ns});
	if (number >= load->plans_cap) {
		load->plans_cap = load->history->calls_cap;
		load->plans = realloc(load->plans, load->plans_cap * sizeof *load->plans);
		must(load->plans != NULL);
	}
	load->plans[number] = (struct load_plan){.request = (uint32_t)sized(&w->random, wl->request),
						 .reply = (uint32_t)sized(&w->random, wl->reply),
						 .depth = depth,
						 .work_ns = load_between(&w->random, wl->work)};
	/* Each handler of a nest waits for the next one only. And who cancels waits before. */
	load->history->calls[number].work_ns =
		load->plans[number].work_ns + (kind == LOAD_CANCEL ? wl->cancel_after.max : 0);
	return number;
}

/* Its request, from malloc(). */
static uint8_t *load_request(const struct load *load, size_t number, size_t *len)
{
	uint64_t n = number;
	*len = LOAD_NUMBER + load->plans[number].request;
	uint8_t *bytes = malloc(*len);
	must(bytes != NULL);
	memcpy(bytes, &n, LOAD_NUMBER);
	load_fill(number, bytes + LOAD_NUMBER, *len - LOAD_NUMBER);
	return bytes;
}

/* The process is gone, and its fibers are only being cleaned up. */
bool load_over(const struct load_worker *w, uint32_t incarnation)
{
	return !w->agent || w->incarnation != incarnation;
}

void load_end_call(struct load_worker *w, uint32_t incarnation, size_t number, enum far_status status,
		   const struct far_err *err)
{
	struct load *load = w->load;
	if (load_over(w, incarnation))
		return;
	history_end(load->history, number, sim_now(load->sim), status,
		    status == FAR_OK ? FAR_EXECUTED_YES : err->executed, status == FAR_OK ? NULL : err->text);
}

static void judge_reply(struct load *load, size_t number, const void *reply, size_t len)
{
	if (len != load->plans[number].reply || !load_fits(LOAD_REPLY((uint64_t)number), reply, len))
		load->history->calls[number].wrong_reply = true;
}

/* ---- calls ---- */

void load_sleep(uint64_t ns)
{
	if (ns)
		cluster_sleep(ns);
}

static void message_call(const struct load_job *j, uint16_t id)
{
	struct load *load = j->w->load;
	uint32_t cap = load->plans[j->number].reply;
	size_t len = 0;
	struct far_err err = {0};
	void *reply = malloc(cap + 1);
	must(reply != NULL);
	enum far_status status = far_msg_call(j->alive->agent, load_to(load, j->number), id, j->request, j->len,
					      &j->opts, reply, cap, &len, &err);
	if (status == FAR_OK)
		judge_reply(load, j->number, reply, len);
	if (status == FAR_TOO_LARGE && err.executed == FAR_EXECUTED_YES)
		load->history->calls[j->number].wrong_reply = true;
	if (j->kind == LOAD_FAIL && status == FAR_REMOTE && err.code != LOAD_CODE(j->number))
		load->history->calls[j->number].wrong_reply = true;
	load_end_call(j->w, j->alive->incarnation, j->number, status, &err);
	free(reply);
}

static void oneway(const struct load_job *j)
{
	struct load_worker *w = j->w;
	struct load *load = w->load;
	struct far_err err = {0};
	uint64_t until = sim_now(load->sim) + j->timeout_ns;
	enum far_status status;
	while ((status = far_msg_oneway(j->alive->agent, load_to(load, j->number), LOAD_ID_ONEWAY, j->request, j->len,
					&j->opts, &err)) == FAR_BUSY &&
	       sim_now(load->sim) < until && !load_over(w, j->alive->incarnation))
		load_sleep(BUSY_NS);
	if (status == FAR_BUSY) {
		err.executed = FAR_EXECUTED_NO;
		status = FAR_TIMEOUT;
	}
	if (status == FAR_OK)
		load->history->calls[j->number].sent = sim_now(load->sim);
	if (status == FAR_OK)
		load->history->calls[j->number].sequence = (*sequence_of(w, &load->history->calls[j->number]))++;
	else
		load_end_call(j->w, j->alive->incarnation, j->number, status, &err);
}

static void typed(const struct load_job *j)
{
	struct load_worker *w = j->w;
	struct load *load = w->load;
	struct far_err err = {0};
	struct far_future *f = NULL;
	struct far_val arg = far_bytes(j->request, j->len), out = {0};
	const char *name = j->kind == LOAD_CANCEL ? LOAD_FN_SLOW : j->kind == LOAD_SOME ? LOAD_FN_SOME : LOAD_FN_ECHO;
	uint64_t until = sim_now(load->sim) + j->timeout_ns;
	enum far_status status;
	while ((status = far_rpc_async_to(j->alive->agent, load_to(load, j->number), name, &arg, 1, &j->opts, &f,
					  &err)) == FAR_BUSY &&
	       sim_now(load->sim) < until && !load_over(w, j->alive->incarnation))
		load_sleep(BUSY_NS);
	if (status == FAR_BUSY) {
		err.executed = FAR_EXECUTED_NO;
		status = FAR_TIMEOUT;
	}
	if (status == FAR_OK && j->kind == LOAD_CANCEL) {
		load_sleep(load_between(&w->random, load->scenario->workload.cancel_after));
		load->history->calls[j->number].cancelled = sim_now(load->sim);
		far_future_cancel(f, NULL);
	}
	if (status == FAR_OK)
		status = far_future_wait(f, FAR_FOREVER, &out, &err);
	if (status == FAR_OK && out.type != FAR_TYPE_BYTES)
		load->history->calls[j->number].wrong_reply = true;
	else if (status == FAR_OK)
		judge_reply(load, j->number, out.u.s.data, out.u.s.len);
	load_end_call(j->w, j->alive->incarnation, j->number, status, &err);
	far_val_fini(&out);
	far_future_free(f);
}

enum far_status load_tried(const struct load_job *j, uint64_t until, enum far_status status, struct far_err *err)
{
	if (status == FAR_BUSY && sim_now(j->w->load->sim) < until && !load_over(j->w, j->alive->incarnation)) {
		load_sleep(BUSY_NS);
		return FAR_BUSY;
	}
	if (status != FAR_BUSY)
		return status;
	err->executed = FAR_EXECUTED_NO;
	return FAR_TIMEOUT;
}

/* The value is made on one worker and fetched by another, which hands the reference back beside it. */
static enum far_status shared(const struct load_job *j, struct far_rref *r, struct far_err *err)
{
	struct load *load = j->w->load;
	struct far_val arg = far_rref_val(r), out = {0};
	enum far_status status =
		far_rpc_sync_to(j->alive->agent, (struct far_to){(int32_t)load->history->calls[j->number].third, 0},
				LOAD_FN_FETCH, &arg, 1, &j->opts, &out, err);
	if (status == FAR_OK) {
		const struct far_val *v = far_list_get(&out, 0), *same = far_list_get(&out, 1);
		if (!v || v->type != FAR_TYPE_BYTES || !same || same->type != FAR_TYPE_RREF ||
		    !far_rref_same(same->u.rref, r))
			load->history->calls[j->number].wrong_reply = true;
		else
			judge_reply(load, j->number, v->u.s.data, v->u.s.len);
	}
	far_val_fini(&out);
	return status;
}

static void rref(const struct load_job *j)
{
	struct load_worker *w = j->w;
	struct load *load = w->load;
	struct far_err err = {0};
	struct far_rref *r = NULL;
	struct far_val arg = far_bytes(j->request, j->len);
	uint64_t until = sim_now(load->sim) + j->timeout_ns;
	enum far_status status;
	load->history->calls[j->number].third = load_other(w);
	do
		status = load_tried(j, until,
				    far_remote_to(j->alive->agent, load_to(load, j->number), LOAD_FN_ECHO, &arg, 1,
						  &j->opts, &r, &err),
				    &err);
	while (status == FAR_BUSY);
	if (status == FAR_OK) {
		status = shared(j, r, &err);
		/* Of three messages: the properties of one do not apply to the others. */
		err.executed = FAR_EXECUTED_MAYBE;
	}
	far_rref_free(r);
	load_end_call(w, j->alive->incarnation, j->number, status, &err);
}

/* All others at once. `j` is the call of the first. */
static void fanout(const struct load_job *j)
{
	struct load_worker *w = j->w;
	struct load *load = w->load;
	uint32_t n = load->scenario->workers - 1;
	struct far_target *targets = calloc(n, sizeof *targets);
	struct far_target_result *results = calloc(n, sizeof *results);
	struct far_fanout_opts opts = {.timeout_ns = j->timeout_ns, .errors = FAR_ERRORS_COLLECT};
	size_t *numbers = calloc(n, sizeof *numbers);
	struct far_future *f = NULL;
	struct far_err err = {0};
	must(targets && results && numbers);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t to = (w->rank + 1 + i) % load->scenario->workers;
		numbers[i] = load_begin_call(w, LOAD_FANOUT, to, j->timeout_ns, 0);
		uint32_t cap = load->plans[numbers[i]].reply;
		targets[i] = (struct far_target){.to = load_to(load, numbers[i]), .cap = cap};
		targets[i].data = load_request(load, numbers[i], &targets[i].len);
		targets[i].recv_buf = malloc(cap + 1);
		must(targets[i].recv_buf != NULL);
	}
	enum far_status status =
		far_msg_fanout(j->alive->agent, LOAD_ID_ECHO, NULL, 0, targets, n, &opts, results, &f, &err);
	if (status == FAR_OK)
		far_future_wait(f, FAR_FOREVER, NULL, NULL);
	far_future_free(f);
	for (uint32_t i = 0; i < n; i++) {
		struct far_err own = {.executed = f ? results[i].executed : FAR_EXECUTED_NO};
		snprintf(own.text, sizeof own.text, "%s", f ? results[i].text : err.text);
		enum far_status ended = f ? results[i].status : status;
		if (ended == FAR_OK)
			judge_reply(load, numbers[i], targets[i].recv_buf, results[i].len);
		load_end_call(w, j->alive->incarnation, numbers[i], ended, &own);
		free((void *)(uintptr_t)targets[i].data);
		free(targets[i].recv_buf);
	}
	free(targets);
	free(results);
	free(numbers);
}

enum far_status load_nested(struct load_worker *w, struct far_req *req, uint32_t depth)
{
	struct load *load = w->load;
	uint64_t left = far_req_time_left_ns(req);
	uint64_t timeout = load_between(&w->random, load->scenario->workload.timeout);
	uint32_t to = load_other(w);
	uint32_t incarnation = w->incarnation;
	struct far_err err = {0};
	size_t len, reply_len = 0;
	if (left < timeout)
		timeout = left ? left : 1;
	size_t number = load_begin_call(w, LOAD_NESTED, to, timeout, depth);
	uint8_t *request = load_request(load, number, &len);
	uint32_t cap = load->plans[number].reply;
	void *reply = malloc(cap + 1);
	must(reply != NULL);
	enum far_status status =
		far_msg_call(far_req_agent(req), load_to(load, number), LOAD_ID_NESTED, request, len,
			     &(struct far_call_opts){.timeout_ns = timeout}, reply, cap, &reply_len, &err);
	if (status == FAR_OK)
		judge_reply(load, number, reply, reply_len);
	if (status == FAR_CANCELLED && far_req_cancelled(req))
		load->history->calls[number].cancelled = sim_now(load->sim);
	load_end_call(w, incarnation, number, status, &err);
	free(reply);
	free(request);
	return status;
}

static void make_call(struct load_worker *w, const struct load_incarnation *alive)
{
	static const uint16_t ids[LOAD_KINDS] = {
		[LOAD_ECHO] = LOAD_ID_ECHO,         [LOAD_FIBER] = LOAD_ID_FIBER,   [LOAD_SLOW] = LOAD_ID_SLOW,
		[LOAD_DEFERRED] = LOAD_ID_DEFERRED, [LOAD_NESTED] = LOAD_ID_NESTED, [LOAD_RETRY] = LOAD_ID_SLOW,
		[LOAD_FAIL] = LOAD_ID_FAIL};
	const struct workload *wl = &w->load->scenario->workload;
	struct load_job j = {.w = w, .alive = alive, .kind = draw_kind(w), .to = draw_target(w)};
	j.timeout_ns = load_between(&w->random, wl->timeout);
	j.opts.timeout_ns = j.timeout_ns;
	if (j.kind == LOAD_FANOUT) {
		fanout(&j);
		return;
	}
	j.number = load_begin_call(w, j.kind, j.to, j.timeout_ns, wl->depth);
	j.request = load_request(w->load, j.number, &j.len);
	if (j.kind == LOAD_RETRY) {
		j.opts.retry = true;
		j.opts.retry_after_ns = load_between(&w->random, (struct range){FAR_MS, 50 * FAR_MS});
	}
	if (j.kind == LOAD_ONEWAY)
		oneway(&j);
	else if (j.kind == LOAD_RREF)
		rref(&j);
	else if (j.kind == LOAD_REFS)
		load_refs(&j);
	else if (j.kind == LOAD_TYPED || j.kind == LOAD_CANCEL || j.kind == LOAD_SOME)
		typed(&j);
	else
		message_call(&j, ids[j.kind]);
	free(j.request);
}

/* ---- callers ---- */

void load_run(struct cluster_worker *cw, void *arg)
{
	struct load_incarnation *incarnation = arg;
	struct load_worker *w = incarnation->worker;
	(void)cw;
	while (!load_over(w, incarnation->incarnation) && !w->load->stop && w->left) {
		if (w->load->hold) {
			load_sleep(HOLD_NS);
			continue;
		}
		w->left--;
		make_call(w, incarnation);
		if (!load_over(w, incarnation->incarnation))
			load_sleep(load_between(&w->random, w->load->scenario->workload.pause));
	}
	if (!load_over(w, incarnation->incarnation))
		w->busy--;
}

unsigned load_callers(const struct load_worker *w)
{
	const struct workload *wl = &w->load->scenario->workload;
	if (wl->pattern == PATTERN_FIRST && w->rank == 0)
		return 0;
	return wl->in_flight;
}

struct load_incarnation *load_begin(struct load_worker *w, struct far_agent *agent, struct sim_host *host,
				    uint32_t number)
{
	struct load_incarnation *incarnation = malloc(sizeof *incarnation);
	must(incarnation != NULL);
	*incarnation = (struct load_incarnation){w->load->incarnations, w, agent, number};
	w->load->incarnations = incarnation;
	w->agent = agent;
	w->host = host;
	w->incarnation = number;
	w->busy = load_callers(w);
	memset(w->sequences, 0, sequences_bytes(w->load));
	return incarnation;
}

void load_killed(struct load_worker *w)
{
	history_orphan(w->load->history, w->rank, w->incarnation);
	w->agent = NULL;
	w->busy = 0;
	load_forget_laters(w);
}

void load_dead(struct load_worker *w)
{
	load_refs_drop(w);
}

void load_let_go(struct load *load)
{
	for (uint32_t i = 0; i < load->scenario->workers; i++)
		load_refs_drop(&load->workers[i]);
}

bool load_done(const struct load *load)
{
	for (uint32_t i = 0; i < load->scenario->workers; i++)
		if (load->workers[i].busy)
			return false;
	return true;
}

void load_init(struct load *load, const struct scenario *scenario, struct sim *sim, struct history *history)
{
	*load = (struct load){.scenario = scenario, .sim = sim, .history = history};
	load->workers = calloc(scenario->workers, sizeof *load->workers);
	must(load->workers != NULL);
	for (uint32_t i = 0; i < scenario->workers; i++) {
		struct load_worker *w = &load->workers[i];
		w->load = load;
		w->rank = i;
		w->left = scenario->workload.calls;
		w->sequences = calloc(1, sequences_bytes(load));
		must(w->sequences != NULL);
		sim_random_init(&w->random, sim_seed(sim), "application", i);
	}
}

void load_fini(struct load *load)
{
	for (uint32_t i = 0; i < load->scenario->workers; i++) {
		load_forget_laters(&load->workers[i]);
		free(load->workers[i].sequences);
	}
	while (load->incarnations) {
		struct load_incarnation *incarnation = load->incarnations;
		load->incarnations = incarnation->next;
		free(incarnation);
	}
	free(load->workers);
	free(load->plans);
}
