/* SPDX-License-Identifier: BSD-3-Clause */
/** Registers functions and optimizers; finds them; reduces what functions return. Any thread; shards hold what they
 * use. */
#include "psv_functions.h"

#include "pst_fail.h"
#include "psv_wire.h"
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define LOOK_NS 100000L /* between looks at the users of a function that is removed */

/* Records [0, n) have names. */
struct registry {
	const char *what;
	_Atomic unsigned n;
	struct psv_function function[FAR_PS_FNS_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of writers */
static struct registry functions = {.what = "function"}, rules = {.what = "rule"};

static struct psv_function *find(struct registry *r, const char *name)
{
	unsigned n = atomic_load_explicit(&r->n, memory_order_acquire); /* partner: publish() */
	for (unsigned i = 0; i < n; i++)
		if (!strcmp(r->function[i].name, name))
			return &r->function[i];
	return NULL;
}

/* A Dekker pair with take_away(): either this sees that it is not registered, or take_away() sees the user. */
bool psv_function_hold(struct psv_function *f)
{
	atomic_fetch_add_explicit(&f->users, 1, memory_order_seq_cst);
	if (atomic_load_explicit(&f->registered, memory_order_seq_cst))
		return true;
	psv_function_put(f);
	return false;
}

void psv_function_put(struct psv_function *f)
{
	atomic_fetch_sub_explicit(&f->users, 1, memory_order_release); /* partner: take_away() */
}

static struct psv_function *get(struct registry *r, const char *name)
{
	struct psv_function *f = find(r, name);
	return f && psv_function_hold(f) ? f : NULL;
}

struct psv_function *psv_function_get(const char *name)
{
	return get(&functions, name);
}

struct psv_function *psv_rule_get(const char *name)
{
	return get(&rules, name);
}

uint64_t psv_rule_state(const struct psv_function *f, unsigned dim)
{
	return (uint64_t)f->rule.state_each * dim + f->rule.state_more;
}

/* ---- Reductions ---- */

static double reduced(enum far_ps_reduce reduce, double a, double b)
{
	switch (reduce) {
	case FAR_PS_ADD:
		return a + b;
	case FAR_PS_MIN:
		return b < a ? b : a;
	default:
		return b > a ? b : a;
	}
}

void psv_reduce(enum far_ps_reduce reduce, unsigned width, double *to, const double *from)
{
	for (unsigned w = 0; w < width; w++)
		to[w] = reduced(reduce, to[w], from[w]);
}

void psv_reduce_begin(enum far_ps_reduce reduce, size_t n, double *to)
{
	for (size_t i = 0; i < n; i++)
		to[i] = reduce == FAR_PS_MIN ? INFINITY : reduce == FAR_PS_MAX ? -INFINITY : 0;
}

/* ---- Writers ---- */

/* A record for a name, which is not registered. With the lock. */
static enum far_status record(struct registry *r, const char *name, struct psv_function **out, struct far_err *err)
{
	struct psv_function *f = find(r, name);
	unsigned n = atomic_load_explicit(&r->n, memory_order_relaxed);
	if (f && atomic_load_explicit(&f->registered, memory_order_relaxed))
		return pst_fail(err, FAR_INVALID, 0, "%s \"%s\" is registered already", r->what, name);
	/* A name that was removed gives its place away only to itself: a table may refer to it. */
	if (!f && n == FAR_PS_FNS_MAX)
		return pst_fail(err, FAR_RESOURCE, 0,
				"%s \"%s\": this process had %d names of them, and has room for no more", r->what, name,
				FAR_PS_FNS_MAX);
	*out = f ? f : &r->function[n];
	return FAR_OK;
}

/* With the lock. */
static void publish(struct registry *r, struct psv_function *f, const char *name)
{
	unsigned n = atomic_load_explicit(&r->n, memory_order_relaxed);
	atomic_store_explicit(&f->registered, true, memory_order_seq_cst); /* partner: psv_function_hold() */
	if (f != &r->function[n])
		return;
	strcpy(f->name, name);
	atomic_store_explicit(&r->n, n + 1, memory_order_release); /* partner: find() */
}

static enum far_status take_away(struct registry *r, const char *name, struct far_err *err)
{
	pthread_mutex_lock(&lock);
	struct psv_function *f = name ? find(r, name) : NULL;
	bool was = f && atomic_exchange_explicit(&f->registered, false, memory_order_seq_cst);
	while (was && atomic_load_explicit(&f->users, memory_order_seq_cst))
		nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
	pthread_mutex_unlock(&lock);
	return was ? FAR_OK : pst_fail(err, FAR_GONE, 0, "no %s \"%s\" is registered", r->what, name ? name : "(NULL)");
}

static bool is_reserved(const uint64_t reserved[3])
{
	return reserved[0] || reserved[1] || reserved[2];
}

enum far_status far_ps_fn_register(const struct far_ps_fn *fn, struct far_err *err)
{
	struct psv_function *f;
	if (!fn || !psv_name_ok(fn->name))
		return pst_fail(err, FAR_INVALID, 0, "a function needs a name of 1 to %d bytes", FAR_PS_NAME_MAX - 1);
	if (!fn->run)
		return pst_fail(err, FAR_INVALID, 0, "function \"%s\": run is NULL", fn->name);
	if (fn->width > FAR_PS_WIDTH_MAX)
		return pst_fail(err, FAR_INVALID, 0, "function \"%s\": width is %u; at most %d are possible", fn->name,
				fn->width, FAR_PS_WIDTH_MAX);
	if (is_reserved(fn->reserved))
		return pst_fail(err, FAR_INVALID, 0, "function \"%s\": a reserved word is not 0", fn->name);
	pthread_mutex_lock(&lock);
	enum far_status status = record(&functions, fn->name, &f, err);
	if (!status) {
		f->fn = *fn;
		f->fn.name = f->name;
		publish(&functions, f, fn->name);
	}
	pthread_mutex_unlock(&lock);
	return status;
}

enum far_status far_ps_rule_register(const struct far_ps_rule_fn *rule, struct far_err *err)
{
	struct psv_function *f;
	if (!rule || !psv_name_ok(rule->name))
		return pst_fail(err, FAR_INVALID, 0, "a rule needs a name of 1 to %d bytes", FAR_PS_NAME_MAX - 1);
	if (!rule->apply)
		return pst_fail(err, FAR_INVALID, 0, "rule \"%s\": apply is NULL", rule->name);
	if (is_reserved(rule->reserved))
		return pst_fail(err, FAR_INVALID, 0, "rule \"%s\": a reserved word is not 0", rule->name);
	pthread_mutex_lock(&lock);
	enum far_status status = record(&rules, rule->name, &f, err);
	if (!status) {
		f->rule = *rule;
		f->rule.name = f->name;
		publish(&rules, f, rule->name);
	}
	pthread_mutex_unlock(&lock);
	return status;
}

enum far_status far_ps_fn_unregister(const char *name, struct far_err *err)
{
	return take_away(&functions, name, err);
}

enum far_status far_ps_rule_unregister(const char *name, struct far_err *err)
{
	return take_away(&rules, name, err);
}
