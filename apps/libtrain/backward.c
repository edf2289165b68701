/* SPDX-License-Identifier: BSD-3-Clause */
/** A pass from roots to leaves. The thread that runs the pass. */
#include "pass.h"

#include "rows.h"
#include "tape.h"

/* ---- the nodes of a pass ---- */

static uint32_t *table_find(const struct pass *p, const void *key)
{
	size_t at = slot_of(key, p->table_capacity);
	while (p->table[at] && p->entries[p->table[at] - 1].key != key)
		at = (at + 1) & (p->table_capacity - 1);
	return &p->table[at];
}

static bool table_grow(struct pass *p)
{
	size_t capacity = 4 * p->table_capacity;
	uint32_t *table = pool_zero(p->pool, capacity * sizeof *table);
	if (!table)
		return false;
	if (p->table != p->few_table)
		pool_give(p->table);
	p->table = table;
	p->table_capacity = capacity;
	for (size_t i = 0; i < p->n; i++)
		*table_find(p, p->entries[i].key) = (uint32_t)(i + 1);
	return true;
}

static bool push_ready(struct pass *p, uint32_t entry)
{
	if (!pool_grow_few(p->pool, (void **)&p->ready, &p->ready_capacity, p->ready_n, sizeof *p->ready, p->few_ready))
		return false;
	p->ready[p->ready_n++] = entry;
	return true;
}

/** An entry has all of its gradients. */
static bool make_ready(struct pass *p, uint32_t at)
{
	struct entry *entry = &p->entries[at];
	entry->ready = true;
	if (entry->node)
		return push_ready(p, at);
	entry->next = p->leaves;
	p->leaves = at + 1;
	return true;
}

static void begin(struct pass *p)
{
	p->entries = p->few_entries;
	p->capacity = PASS_FEW;
	p->ready = p->few_ready;
	p->ready_capacity = PASS_FEW;
	p->table = p->few_table;
	p->table_capacity = PASS_FEW_TABLE;
}

/** The slots of the next entry. NULL: no memory. */
static struct gradient *slots_make(struct pass *p, unsigned m)
{
	if (m == 1 && p->n < PASS_FEW)
		return &p->few_slots[p->n];
	return pool_zero(p->pool, m * sizeof(struct gradient));
}

static void slots_give(struct pass *p, struct gradient *slots)
{
	if (slots < p->few_slots || slots >= p->few_slots + PASS_FEW)
		pool_give(slots);
}

/** The entry of a node or leaf, made and pushed if it is new. False: no memory. */
static bool reach(struct pass *p, struct node *node, struct far_var *leaf, uint32_t *entry)
{
	const void *key = node ? (const void *)node : (const void *)leaf;
	if (!p->entries)
		begin(p);
	if (2 * (p->n + 1) > p->table_capacity && !table_grow(p))
		return false;
	uint32_t *slot = table_find(p, key);
	if (*slot) {
		*entry = *slot - 1;
		return true;
	}
	if (p->n >= UINT32_MAX - 1 ||
	    !pool_grow_few(p->pool, (void **)&p->entries, &p->capacity, p->n, sizeof *p->entries, p->few_entries))
		return false;
	struct gradient *slots = slots_make(p, node ? node->m : 1);
	if (!slots)
		return false;
	p->entries[p->n] = (struct entry){.key = key, .node = node, .leaf = leaf, .slots = slots};
	*entry = (uint32_t)p->n++;
	p->left++;
	*slot = *entry + 1;
	return push_ready(p, *entry);
}

static enum far_status no_memory(const struct pass *p, struct far_err *err)
{
	return fail_memory(err, "backward", p->capacity * sizeof *p->entries);
}

/** One more edge leads to an entry. */
static enum far_status expect(struct pass *p, uint32_t entry, struct far_err *err)
{
	if (p->entries[entry].run)
		return fail(err, FAR_INVALID, "backward: a gradient is to come for what has run");
	p->entries[entry].edges++;
	p->entries[entry].pending++;
	return FAR_OK;
}

#define WEIGHT_NODE  64    /* of an operator, whatever its values */
#define WEIGHT_LIGHT 32768 /* one product of matrices has 1 million multiplications then at most */

static uint64_t weight_of(const struct node *node)
{
	uint64_t weight = WEIGHT_NODE;
	for (unsigned i = 0; node && i < node->n + node->m; i++)
		weight += far_tensor_count(&node->in[i].t);
	return weight;
}

static bool runs_user_code(const struct node *node)
{
	return node->hooks || node->p.function;
}

static void weigh(struct pass *p, const struct entry *entry)
{
	p->user_code |= entry->node ? runs_user_code(entry->node) : entry->leaf->hooks != NULL;
	p->weight += weight_of(entry->node);
}

bool pass_is_light(const struct pass *p)
{
	return !p->user_code && p->weight <= WEIGHT_LIGHT;
}

enum far_status pass_discover(struct pass *p, struct far_err *err)
{
	while (p->ready_n > 0) {
		const struct entry *entry = &p->entries[p->ready[--p->ready_n]];
		struct node *node = entry->node;
		weigh(p, entry);
		for (unsigned i = 0; node && i < node->n; i++) {
			uint32_t to;
			if (!node_wants(node, i))
				continue;
			if (!reach(p, node->edges[i].node, node->edges[i].leaf, &to))
				return no_memory(p, err);
			TRY(expect(p, to, err));
		}
	}
	return FAR_OK;
}

enum far_status pass_expect(struct pass *p, struct far_var *var, struct far_err *err)
{
	uint32_t at;
	if (!reach(p, var->node, var->node ? NULL : var, &at))
		return no_memory(p, err);
	return expect(p, at, err);
}

/* ---- derivatives ---- */

/** Are the saved values those that the operator saw. */
static enum far_status check_saved(const struct node *node, struct far_err *err)
{
	for (unsigned i = 0; i < node->n + node->m; i++) {
		const struct held *saved = &node->in[i];
		if (saved->store &&
		    atomic_load_explicit(&saved->store->version, memory_order_relaxed) != saved->version)
			return fail(
				err, FAR_INVALID,
				"backward: %s %u of %s was changed after the operator read it: run the pass before the "
				"change, or set allow_changed",
				i < node->n ? "input" : "output", i < node->n ? i : i - node->n, node_name(node));
	}
	return FAR_OK;
}

static const struct far_tensor *present(const struct held *held)
{
	return held->t.dtype == FAR_DTYPE_NONE ? NULL : &held->t;
}

/** Is it an operator such as x * x: twice the derivative of one input is that of both. */
static bool is_doubled(const struct node *node)
{
	return node->op->even && node->n == 2 && node_wants(node, 0) && node->edges[0].node == node->edges[1].node &&
	       node->edges[0].leaf == node->edges[1].leaf && node->edges[0].output == node->edges[1].output;
}

/** Runs op->backward with dense memory for the wanted gradients. */
static enum far_status run_dense(struct node *node, const struct gradient *grads, struct gradient *dx,
				 struct far_err *err)
{
	struct pointers in, to;
	const struct far_tensor *grad[NODE_OUTPUTS_MAX];
	const struct far_tensor *out[NODE_OUTPUTS_MAX];
	const void **ins = pointers_take(&in, node->pool, node->n);
	const void **dxs = pointers_take(&to, node->pool, node->n);
	bool doubled = is_doubled(node);
	enum far_status status = FAR_OK;
	if (!ins || !dxs)
		status = fail_memory(err, node_name(node), node->n * sizeof *ins);
	for (unsigned i = 0; i < node->n && !status; i++) {
		const struct far_tensor *t = &node->in[i].t;
		ins[i] = present(&node->in[i]);
		dxs[i] = node_wants(node, i) && !(doubled && i == 1) ? &dx[i].values.t : NULL;
		if (dxs[i] && !held_new(&dx[i].values, node->pool, (enum far_dtype)t->dtype, t->ndim, t->shape))
			status = fail_memory(err, node_name(node), far_tensor_bytes(t));
		dx[i].set = dxs[i] && !status;
	}
	for (unsigned k = 0; k < node->m; k++) {
		out[k] = present(&node->out[k]);
		grad[k] = grads[k].set ? &grads[k].values.t : NULL;
	}
	if (!status) {
		struct far_op_work work = {0};
		struct call call = {.p = &node->p,
				    .in = (const struct far_tensor *const *)ins,
				    .n = node->n,
				    .out = (struct far_tensor *const *)out,
				    .m = node->m,
				    .grad = grad,
				    .dx = (struct far_tensor *const *)dxs,
				    .work = &work};
		status = call_with_work(node->pool, node_name(node), node->op->backward, &call, err);
	}
	if (!status && doubled) /* to the bit what the sum of two equal ones is */
		status = far_op_add(&dx->values.t, &dx->values.t, &dx->values.t, err);
	pointers_give(&in);
	pointers_give(&to);
	return status;
}

static enum far_status derive(struct pass *p, struct node *node, const struct gradient *grads, struct gradient *dx,
			      struct far_err *err)
{
	if (!node->op->backward && !node->op->share)
		return fail(err, FAR_UNSUPPORTED,
			    "backward: %s has no derivative: give it one, or detach its inputs with far_tape_detach()",
			    node_name(node));
	if (!p->opts.allow_changed)
		TRY(check_saved(node, err));
	return node->op->share ? node->op->share(node, grads, dx, err) : run_dense(node, grads, dx, err);
}

/* ---- the pass ---- */

struct entry *pass_entry(const struct pass *p, const struct far_var *var)
{
	uint32_t at = p->n ? *table_find(p, var->node ? (const void *)var->node : (const void *)var) : 0;
	return at ? &p->entries[at - 1] : NULL;
}

bool pass_is_closed(const struct pass *p, const struct entry *entry)
{
	const _Atomic unsigned *made = entry->node ? &entry->node->edges_in : &entry->leaf->edges_in;
	return p->known || (!entry->open && entry->edges >= atomic_load_explicit(made, memory_order_relaxed));
}

/** May an entry run once its known edges have delivered. */
static bool may_run(const struct pass *p, uint32_t at)
{
	const struct entry *entry = &p->entries[at];
	if (!p->runs || p->started)
		return p->runs;
	if (!entry->node)
		return p->early ? p->early(p->user, at) : p->known;
	return pass_is_closed(p, entry);
}

/** Adds `g` (none: the derivative is zero) to the end of an edge. */
static enum far_status deliver(struct pass *p, const struct edge *edge, const struct held *of, struct gradient *g,
			       struct far_err *err)
{
	uint32_t at = *table_find(p, edge->node ? (const void *)edge->node : (const void *)edge->leaf) - 1;
	struct entry *to = &p->entries[at];
	if (g->set)
		TRY(gradient_add(p->pool, &of->t, &to->slots[edge->output], g, err));
	if (--to->pending == 0 && may_run(p, at) && !make_ready(p, at))
		return fail_memory(err, "backward", p->ready_capacity * sizeof *p->ready);
	return FAR_OK;
}

enum far_status pass_deliver(struct pass *p, struct far_var *var, struct gradient *g, struct far_err *err)
{
	struct edge edge = {var->node, var->node ? NULL : var, var->output};
	const struct entry *entry = pass_entry(p, var);
	if (!entry || entry->pending == 0)
		return fail(err, FAR_INVALID, "backward: a gradient arrived that this pass does not expect");
	return deliver(p, &edge, &var->value, g, err);
}

static bool any_set(const struct gradient *slots, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (slots[i].set)
			return true;
	return false;
}

static enum far_status run_hooks_before(struct pass *p, const struct hook *hooks, struct far_var *leaf,
					struct gradient *slots, unsigned n, struct far_err *err)
{
	for (unsigned k = 0; k < n && hooks; k++) {
		if (!slots[k].set)
			continue;
		TRY(gradient_own(p->pool, &slots[k], err));
		TRY(hooks_run(hooks, FAR_HOOK_BEFORE, k, leaf, &slots[k], err));
	}
	return FAR_OK;
}

/* ---- without the lock ---- */

/** Drops the lock if the pass is not light. */
static bool step_out(struct pass *p)
{
	bool out = p->lock && !pass_is_light(p);
	if (out)
		pthread_mutex_unlock(p->lock);
	return out;
}

/** Takes the lock again after step_out() returned true. */
static enum far_status step_in(struct pass *p, bool out, enum far_status status, struct far_err *err)
{
	if (out)
		pthread_mutex_lock(p->lock);
	return !status && p->ended ? fail(err, FAR_INVALID, "backward: the pass has ended") : status;
}

/** Before a node runs, or the hooks of a leaf (NULL): what is ready to be sent waits for no long computation. */
static enum far_status before(struct pass *p, const struct node *node, struct far_err *err)
{
	if (!p->flush || pass_is_light(p))
		return FAR_OK;
	uint64_t weight = weight_of(node);
	p->delayed += weight;
	if (node && !runs_user_code(node) && p->delayed <= WEIGHT_LIGHT)
		return FAR_OK;
	p->delayed = weight;
	return p->flush(p->user, err);
}

static enum far_status run_leaf(struct pass *p, struct far_var *leaf, struct gradient *sum, struct far_err *err)
{
	bool taken = false, out;
	if (sum->set && leaf->hooks) {
		TRY(before(p, NULL, err));
		out = step_out(p);
		TRY(step_in(p, out, run_hooks_before(p, leaf->hooks, leaf, sum, 1, err), err));
	}
	if (p->leaf)
		TRY(p->leaf(p->user, leaf, sum, &taken, err));
	if (taken || !sum->set)
		return FAR_OK;
	out = step_out(p);
	return step_in(p, out, grads_accumulate(p->grads, leaf, sum, err), err);
}

/** The gradients of the node's inputs, from those of its outputs. */
static enum far_status compute(struct pass *p, struct node *node, struct gradient *slots, struct gradient *dx,
			       struct far_err *err)
{
	TRY(run_hooks_before(p, node->hooks, NULL, slots, node->m, err));
	return derive(p, node, slots, dx, err);
}

/** Runs a node that node_enter() has let in, or whose gradients are all zero. */
static enum far_status run_entered(struct pass *p, struct node *node, struct gradient *slots, struct far_err *err)
{
	enum far_status status = FAR_OK;
	struct gradient *dx = pool_zero(p->pool, node->n * sizeof *dx);
	if (!dx)
		return fail_memory(err, "backward", node->n * sizeof *dx);
	bool out = step_out(p);
	if (any_set(slots, node->m))
		status = compute(p, node, slots, dx, err);
	for (unsigned k = 0; k < node->m; k++)
		gradient_drop(&slots[k]);
	status = step_in(p, out, status, err);
	for (unsigned i = 0; i < node->n && !status; i++)
		if (node_wants(node, i))
			status = deliver(p, &node->edges[i], &node->in[i], &dx[i], err);
	for (unsigned i = 0; i < node->n; i++)
		gradient_drop(&dx[i]);
	pool_give(dx);
	return status;
}

static enum far_status run_node(struct pass *p, struct node *node, struct gradient *slots, struct far_err *err)
{
	TRY(before(p, node, err));
	bool frees = !p->opts.retain_graph, in = node_enter(node, frees);
	if (!in && any_set(slots, node->m))
		return fail(err, FAR_INVALID,
			    "backward: the graph of %s was freed by an earlier pass: set retain_graph there",
			    node_name(node));
	enum far_status status = run_entered(p, node, slots, err);
	if (in)
		node_leave(node, frees && status);
	return status;
}

static enum far_status release(struct pass *p, struct far_err *err)
{
	for (uint32_t i = 0; i < p->n; i++)
		if (p->entries[i].pending == 0 && !p->entries[i].ready && may_run(p, i) && !make_ready(p, i))
			return fail_memory(err, "backward", p->ready_capacity * sizeof *p->ready);
	return FAR_OK;
}

enum far_status pass_early(struct pass *p, struct far_err *err)
{
	p->runs = true;
	TRY(release(p, err));
	TRY(pass_run(p, err));
	p->runs = false;
	return FAR_OK;
}

enum far_status pass_start(struct pass *p, struct far_err *err)
{
	p->runs = p->started = true;
	return release(p, err);
}

/** Takes what runs next off the ready ones. */
static struct entry *next_ready(struct pass *p)
{
	if (p->leaves == 0)
		return &p->entries[p->ready[--p->ready_n]];
	struct entry *leaf = &p->entries[p->leaves - 1];
	p->leaves = leaf->next;
	return leaf;
}

enum far_status pass_run(struct pass *p, struct far_err *err)
{
	while (pass_is_ready(p)) {
		struct entry *entry = next_ready(p);
		entry->run = true;
		/* Others may move the entries while the lock is dropped. */
		struct gradient *slots = entry->slots;
		TRY(entry->node ? run_node(p, entry->node, slots, err) : run_leaf(p, entry->leaf, slots, err));
		p->left--;
	}
	return FAR_OK;
}

void pass_end(struct pass *p)
{
	for (size_t i = 0; i < p->n; i++) {
		struct entry *entry = &p->entries[i];
		for (unsigned k = 0; k < (entry->node ? entry->node->m : 1); k++)
			gradient_drop(&entry->slots[k]);
		slots_give(p, entry->slots);
	}
	if (p->entries != p->few_entries)
		pool_give(p->entries);
	if (p->table != p->few_table)
		pool_give(p->table);
	if (p->ready != p->few_ready)
		pool_give(p->ready);
}

/* ---- roots ---- */

static enum far_status check_root(const struct far_var *root, size_t i, struct far_err *err)
{
	char text[TENSOR_TEXT];
	if (!root)
		return fail(err, FAR_INVALID, "backward: root %zu is NULL", i);
	if (!root->requires_grad)
		return fail(err, FAR_INVALID, "backward: root %zu requires no gradient", i);
	if (far_tensor_count(&root->value.t) != 1)
		return fail(err, FAR_INVALID, "backward: root %zu is %s, not a scalar; roots have one element", i,
			    tensor_text(&root->value.t, text));
	if (!root->node)
		return fail(err, FAR_INVALID, "backward: root %zu has no gradient function: it is a leaf", i);
	return FAR_OK;
}

enum far_status pass_check_roots(struct far_var *const *roots, size_t n, struct far_err *err)
{
	if (n == 0)
		return fail(err, FAR_INVALID, "backward: no roots to begin with");
	for (size_t i = 0; i < n; i++)
		TRY(check_root(roots[i], i, err));
	return FAR_OK;
}

enum far_status pass_root(struct pass *p, const struct far_var *root, struct far_err *err)
{
	uint32_t at;
	struct gradient one = {.set = true};
	const struct far_tensor *t = &root->value.t;
	if (!reach(p, root->node, NULL, &at) ||
	    !held_new(&one.values, p->pool, (enum far_dtype)t->dtype, t->ndim, t->shape))
		return fail_memory(err, "backward", sizeof(struct entry));
	far_op_fill(1, &one.values.t, NULL);
	enum far_status status = gradient_add(p->pool, t, &p->entries[at].slots[root->output], &one, err);
	gradient_drop(&one);
	return status;
}

enum far_status far_grads_backward(struct far_grads *grads, struct far_var *const *roots, size_t n,
				   const struct far_backward_opts *opts, struct far_err *err)
{
	struct far_err unwanted;
	if (!err)
		err = &unwanted; /* functions of the application get one */
	TRY(pass_check_roots(roots, n, err));
	struct pass p = {.pool = grads_pool(grads), .grads = grads};
	if (opts)
		p.opts = *opts;
	enum far_status status = FAR_OK;
	for (size_t i = 0; i < n && !status; i++)
		status = pass_root(&p, roots[i], err);
	if (!status)
		status = pass_discover(&p, err);
	if (!status)
		status = pass_start(&p, err);
	if (!status)
		status = pass_run(&p, err);
	pass_end(&p);
	return status;
}
