/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Random operations on references. Each worker keeps some, to values and objects that anybody made anywhere, itself
 * included; an operation makes a value, which may hold references to older ones (so there are no circles), or an
 * object, or fetches a value, or calls an object's method, hands some on, nested in lists and dicts, to anybody, their
 * owners and itself included, who keeps some of them and hands others back, or gives some back. A value's bytes, and
 * those that an object answers with, follow from the number of the call that made it, which travels with each
 * reference to it. The thread of the simulated world.
 */
#include "base/must.h"
#include "sim/load_bytes.h"
#include "sim/load_inner.h"

#include <stdlib.h>

#define BAG_MAX  3 /* references in a message */
#define NEST_MAX 3

/* References to be sent, held until they have been. */
struct bag {
	struct load_ref refs[BAG_MAX];
	unsigned n;
	struct far_dict_entry pair[BAG_MAX][2], outer;
	struct far_val dicts[BAG_MAX], list, nested[NEST_MAX];
};

static uint32_t chance(struct load_worker *w, uint32_t n)
{
	return (uint32_t)sim_random_below(&w->random, n);
}

/* ---- what is kept ---- */

void load_refs_drop(struct load_worker *w)
{
	while (w->refs_n) {
		far_rref_free(w->refs[--w->refs_n].rref);
		w->refs[w->refs_n] = (struct load_ref){0};
	}
}

/* Takes a hold of its own, in place of another one if need be. */
static void keep(struct load_worker *w, struct far_rref *r, uint64_t number)
{
	if (w->load->hold || w->load->stop || !w->agent)
		return;
	uint32_t at = w->refs_n < LOAD_REFS_MAX ? w->refs_n++ : chance(w, LOAD_REFS_MAX);
	far_rref_free(w->refs[at].rref);
	w->refs[at] = (struct load_ref){far_rref_ref(r), number};
}

static void give_back(struct load_worker *w)
{
	uint32_t at = chance(w, w->refs_n);
	far_rref_free(w->refs[at].rref);
	w->refs[at] = w->refs[--w->refs_n];
	w->refs[w->refs_n] = (struct load_ref){0};
}

/* ---- in messages ---- */

/* Any number of those that are kept, the same one twice now and then. */
static void bag_pick(struct load_worker *w, struct bag *b)
{
	*b = (struct bag){0};
	for (unsigned n = w->refs_n ? chance(w, BAG_MAX + 1) : 0; b->n < n; b->n++) {
		b->refs[b->n] = w->refs[chance(w, w->refs_n)];
		far_rref_ref(b->refs[b->n].rref);
	}
}

static void bag_free(struct bag *b)
{
	while (b->n)
		far_rref_free(b->refs[--b->n].rref);
}

/* None, one dict, or a list of them, in so many lists or a dict. The value is the bag's. */
static struct far_val bag_value(struct load_worker *w, struct bag *b)
{
	for (unsigned i = 0; i < b->n; i++) {
		b->pair[i][0] = far_entry(far_str("number"), far_int((int64_t)b->refs[i].number));
		b->pair[i][1] = far_entry(far_str("rref"), far_rref_val(b->refs[i].rref));
		b->dicts[i] = far_dict(b->pair[i], 2);
	}
	if (b->n == 0)
		return far_none();
	struct far_val v = b->n == 1 ? b->dicts[0] : far_list(b->dicts, b->n);
	for (unsigned depth = chance(w, NEST_MAX + 1), i = 0; i < depth; i++) {
		b->nested[i] = v;
		v = far_list(&b->nested[i], 1);
	}
	if (chance(w, 4) == 0) {
		b->outer = far_entry(far_int(7), v);
		v = far_dict(&b->outer, 1);
	}
	return v;
}

/* What is done with each reference that came. */
typedef void ref_fn(struct load_worker *w, struct far_rref *r, uint64_t number, void *ctx);

/* false: what came is not what bag_value() makes. */
static bool each_ref(struct load_worker *w, const struct far_val *v, ref_fn *fn, void *ctx)
{
	const struct far_val *number = far_dict_get(v, "number"), *rref = far_dict_get(v, "rref");
	if (number && rref && number->type == FAR_TYPE_INT && rref->type == FAR_TYPE_RREF) {
		if ((uint64_t)number->u.i >= w->load->history->calls_n)
			return false;
		fn(w, rref->u.rref, (uint64_t)number->u.i, ctx);
		return true;
	}
	if (v->type == FAR_TYPE_DICT)
		return far_len(v) == 1 && each_ref(w, &v->u.dict.entries[0].value, fn, ctx);
	for (size_t i = 0; i < far_len(v) && v->type == FAR_TYPE_LIST; i++)
		if (!each_ref(w, far_list_get(v, i), fn, ctx))
			return false;
	return v->type == FAR_TYPE_LIST || v->type == FAR_TYPE_NONE;
}

static void maybe_keep(struct load_worker *w, struct far_rref *r, uint64_t number, void *ctx)
{
	(void)ctx;
	if (chance(w, 2))
		keep(w, r, number);
}

/* The value of call `number`, or the answer to it: its bytes, and references. */
static bool as_made(struct load_worker *w, const struct far_val *v, uint64_t number)
{
	const struct far_val *bytes = far_list_get(v, 0), *refs = far_list_get(v, 1);
	return bytes && refs && bytes->type == FAR_TYPE_BYTES && far_len(bytes) == w->load->plans[number].reply &&
	       load_fits(LOAD_REPLY(number), bytes->u.s.data, far_len(bytes)) && each_ref(w, refs, maybe_keep, NULL);
}

/* ---- handlers ---- */

static enum far_status answer(struct load_worker *w, struct far_req *req, uint64_t number, struct far_val refs)
{
	uint32_t len = w->load->plans[number].reply;
	void *bytes = malloc(len + 1);
	must(bytes != NULL);
	load_fill(LOAD_REPLY(number), bytes, len);
	struct far_val both[2] = {far_bytes(bytes, len), refs}, list = far_list(both, 2);
	enum far_status status = far_return(req, &list);
	free(bytes);
	return status;
}

enum far_status load_fn_hold(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	uint64_t number;
	(void)n;
	if (!load_arrived(user, args[0].u.s.data, args[0].u.s.len, &number))
		return FAR_INVALID;
	return answer(user, req, number, args[1]);
}

/* Objects: a method returns the number that its constructor received. */
struct box {
	struct load_worker *w;
	uint64_t number;
};

enum far_status load_fn_box(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct load_worker *w = user;
	uint64_t number;
	(void)n;
	if (!load_arrived(w, args[0].u.s.data, args[0].u.s.len, &number))
		return FAR_INVALID;
	struct box *b = malloc(sizeof *b);
	must(b != NULL);
	*b = (struct box){w, number};
	w->load->boxes++;
	enum far_status status = far_return_object(req, b);
	if (status)
		load_box_free(b, w);
	return status;
}

void load_box_free(void *object, void *user)
{
	struct load_worker *w = user;
	w->load->boxes--;
	free(object);
}

enum far_status load_box_look(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	const struct box *b = object;
	(void)args;
	(void)n;
	return answer(user, req, b->number, far_none());
}

/* Fetches the value of a reference, or calls the method `look` of its object. */
static enum far_status value_of(struct far_rref *r, uint64_t timeout_ns, struct far_val *out, struct far_err *err)
{
	if (!far_rref_class(r))
		return far_rref_to_here(r, timeout_ns, out, err);
	return far_rref_rpc_sync(r, "look", FAR_NOARGS, &(struct far_call_opts){.timeout_ns = timeout_ns}, out, err);
}

/* The same by a future, after the handle was freed. Objects are not copied, and a full window is not awaited. */
static enum far_status value_of_freed(struct far_rref *r, uint64_t timeout_ns, struct far_val *out, struct far_err *err)
{
	struct far_future *f = NULL;
	enum far_status status = FAR_BUSY;
	if (!far_rref_class(r))
		status = far_rref_to_here_async(r, timeout_ns, &f, err);
	if (status == FAR_BUSY)
		status = value_of(r, timeout_ns, out, err);
	far_rref_free(r);
	if (f)
		status = far_future_wait(f, FAR_FOREVER, out, err);
	far_future_free(f);
	return status;
}

/* Fetches a value that somebody has handed on. */
static void look_at(struct load_worker *w, struct far_rref *r, uint64_t number, void *ctx)
{
	bool *wrong = ctx;
	struct far_val v = {0};
	if (chance(w, 3) == 0) {
		enum far_status status = far_rref_is_owner(r) && !far_rref_class(r)
						 ? far_rref_local_value(r, 0, &v, NULL)
						 : value_of(r, 0, &v, NULL);
		if (status == FAR_OK && !as_made(w, &v, number))
			*wrong = true;
		far_val_fini(&v);
	}
	maybe_keep(w, r, number, NULL);
}

enum far_status load_fn_keep(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct load_worker *w = user;
	uint64_t number;
	bool wrong = false;
	struct bag back;
	(void)n;
	if (!load_arrived(w, args[0].u.s.data, args[0].u.s.len, &number))
		return FAR_INVALID;
	if (!each_ref(w, &args[1], look_at, &wrong))
		wrong = true;
	if (chance(w, 2))
		load_sleep(w->load->plans[number].work_ns);
	if (wrong)
		w->load->history->calls[number].wrong_request = true;
	bag_pick(w, &back);
	enum far_status status = answer(w, req, number, bag_value(w, &back));
	bag_free(&back);
	return status;
}

/* ---- operations ---- */

/* A call may end as badly as a reference that it carries has, and that may have been made with less time. */
static void excuse(struct load *load, size_t number, uint64_t maker)
{
	struct history_call *c = &load->history->calls[number];
	uint64_t from = load->history->calls[maker].deadline;
	if (!c->excused_from || from < c->excused_from)
		c->excused_from = from;
}

/* The request of a call: its number and pattern, and what is in the bag. */
static void arguments(const struct load_job *j, struct bag *b, struct far_val args[2])
{
	bag_pick(j->w, b);
	for (unsigned i = 0; i < b->n; i++)
		excuse(j->w->load, j->number, b->refs[i].number);
	args[0] = far_bytes(j->request, j->len);
	args[1] = bag_value(j->w, b);
}

/* It may be used by others here before the owner knows of it. */
static void make(const struct load_job *j)
{
	struct load_worker *w = j->w;
	uint64_t until = sim_now(w->load->sim) + j->timeout_ns;
	struct far_rref *r = NULL;
	struct far_err err = {0};
	struct far_val args[2];
	enum far_status status;
	struct bag b;
	bool object = chance(w, 3) == 0;
	arguments(j, &b, args);
	do
		status = load_tried(j, until,
				    far_remote_to(j->alive->agent, load_to(w->load, j->number),
						  object ? LOAD_CLASS : LOAD_FN_HOLD, args, object ? 1 : 2, &j->opts,
						  &r, &err),
				    &err);
	while (status == FAR_BUSY);
	bag_free(&b);
	if (status == FAR_OK && !load_over(w, j->alive->incarnation))
		keep(w, r, j->number);
	if (status == FAR_OK)
		status = far_rref_wait(r, 0, &err);
	far_rref_free(r);
	load_end_call(w, j->alive->incarnation, j->number, status, &err);
}

static void share(const struct load_job *j)
{
	struct load_worker *w = j->w;
	struct far_val args[2], out = {0};
	struct far_err err = {0};
	struct bag b;
	arguments(j, &b, args);
	bool none = b.n == 0;
	enum far_status status = far_rpc_sync_to(j->alive->agent, load_to(w->load, j->number), LOAD_FN_KEEP, args, 2,
						 &j->opts, &out, &err);
	bag_free(&b);
	if (status == FAR_OK && !load_over(w, j->alive->incarnation) && !as_made(w, &out, j->number))
		w->load->history->calls[j->number].wrong_reply = true;
	far_val_fini(&out);
	/* The fate of a reference is not that of the call's own handler. */
	if (!none)
		err.executed = FAR_EXECUTED_MAYBE;
	load_end_call(w, j->alive->incarnation, j->number, status, &err);
}

static void fetch(const struct load_job *j)
{
	struct load_worker *w = j->w;
	struct load_ref *of = &w->refs[chance(w, w->refs_n)], at = *of;
	struct far_val v = {0};
	struct far_err err = {0};
	if (chance(w, 4)) {
		far_rref_ref(at.rref);
	} else { /* the last handle here */
		*of = w->refs[--w->refs_n];
		w->refs[w->refs_n] = (struct load_ref){0};
	}
	w->load->history->calls[j->number].fetches = true;
	w->load->history->calls[j->number].to = (uint32_t)far_rref_owner(at.rref).worker;
	excuse(w->load, j->number, at.number);
	enum far_status status = value_of_freed(at.rref, j->timeout_ns, &v, &err);
	if (status == FAR_OK && !load_over(w, j->alive->incarnation) && !as_made(w, &v, at.number))
		w->load->history->calls[j->number].wrong_reply = true;
	far_val_fini(&v);
	err.executed = FAR_EXECUTED_MAYBE;
	load_end_call(w, j->alive->incarnation, j->number, status, &err);
}

void load_refs(const struct load_job *j)
{
	struct load_worker *w = j->w;
	/* To itself now and then. */
	if (chance(w, 6) == 0)
		w->load->history->calls[j->number].to = w->rank;
	for (uint32_t n = chance(w, 3); n && w->refs_n; n--)
		give_back(w);
	uint32_t what = w->refs_n ? chance(w, 8) : 0;
	if (what < 3)
		make(j);
	else if (what < 6)
		share(j);
	else
		fetch(j);
}
