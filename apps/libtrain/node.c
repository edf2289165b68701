/* SPDX-License-Identifier: BSD-3-Clause */
/** Nodes of the graph: an operator that was applied, with the values that its derivative needs. Any thread. */
#include "node.h"

struct node *node_new(struct far_pool *pool, const struct op *op, const struct params *p, unsigned n, unsigned m)
{
	size_t edges = (sizeof(struct node) + 15) / 16 * 16;
	size_t helds = edges + (n * sizeof(struct edge) + 15) / 16 * 16;
	char *memory = pool_zero(pool, helds + (n + m) * sizeof(struct held));
	if (!memory)
		return NULL;
	struct node *node = (struct node *)(void *)memory;
	atomic_init(&node->refs, 1);
	node->n = n;
	node->m = m;
	node->op = op;
	node->p = *p;
	node->pool = pool;
	node->edges = (struct edge *)(void *)(memory + edges);
	node->in = (struct held *)(void *)(memory + helds);
	node->out = node->in + n;
	return node;
}

void node_ref(struct node *node)
{
	atomic_fetch_add_explicit(&node->refs, 1, memory_order_relaxed);
}

static void free_saved(struct node *node)
{
	for (unsigned i = 0; i < node->n + node->m; i++)
		held_drop(&node->in[i]);
}

bool node_enter(struct node *node, bool frees)
{
	unsigned use = atomic_load_explicit(&node->use, memory_order_relaxed);
	do {
		if (use & NODE_FREED)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&node->use, &use, (use + 1) | (frees ? NODE_FREED : 0),
							memory_order_acquire, memory_order_relaxed));
	return true;
}

void node_leave(struct node *node, bool keeps)
{
	if (keeps)
		atomic_fetch_and_explicit(&node->use, ~NODE_FREED, memory_order_relaxed);
	/* The last one drops what the others have read. */
	if (atomic_fetch_sub_explicit(&node->use, 1, memory_order_acq_rel) == (NODE_FREED | 1))
		free_saved(node);
}

static bool last_reference(struct node *node)
{
	/* The last one sees the writes of all others. */
	return node && atomic_fetch_sub_explicit(&node->refs, 1, memory_order_acq_rel) == 1;
}

/** A chain of nodes may be long: those that are freed with it wait in a list, not on the stack. */
void node_unref(struct node *node)
{
	struct node *list = last_reference(node) ? node : NULL;
	if (list)
		list->next = NULL;
	while (list) {
		struct node *last = list;
		list = last->next;
		free_saved(last);
		hooks_free(last->hooks);
		for (unsigned i = 0; i < last->n; i++) {
			far_var_free(last->edges[i].leaf);
			if (!last_reference(last->edges[i].node))
				continue;
			last->edges[i].node->next = list;
			list = last->edges[i].node;
		}
		pool_give(last);
	}
}

void node_link(struct node *node, unsigned input, struct far_var *var)
{
	struct edge *edge = &node->edges[input];
	if (!var || !var->requires_grad)
		return;
	edge->output = var->output;
	if (var->node) {
		edge->node = var->node;
		node_ref(edge->node);
		atomic_fetch_add_explicit(&edge->node->edges_in, 1, memory_order_relaxed);
	} else {
		edge->leaf = far_var_ref(var);
		if (var->sent_id > 0)
			atomic_fetch_add_explicit(&var->edges_in, 1, memory_order_relaxed);
	}
}

const char *node_name(const struct node *node)
{
	return node->p.function ? node->p.function->name : node->op->name;
}

struct hook **node_hooks(struct node *node)
{
	return &node->hooks;
}

void gradient_drop(struct gradient *g)
{
	held_drop(&g->values);
	held_drop(&g->index);
	g->set = false;
}

void gradient_move(struct gradient *to, struct gradient *from)
{
	held_move(&to->values, &from->values);
	held_move(&to->index, &from->index);
	to->set = from->set;
	from->set = false;
}
