/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls that a pass takes, and what waits for its second part. Threads of the test and of its agents. */
#include "train_gradients.h"

enum { LEAF_LONG = 40000 };

static struct far_var *held_leaf; /* of the third worker */

/** Twice the leaf, which is also sent to whom this worker does not know: its gradient waits for the second part. */
enum far_status holds_handler(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_err err;
	struct step s = {OLD, NULL, NULL};
	OK(far_context_find(trains[OLD], req, (uint64_t)args[0].u.i, &s.context, &err));
	OK(far_tape_new(pool, &s.tape, &err));
	send_var(&s, held_leaf);
	return answer(req, &s, far_tape_scale(s.tape, held_leaf, 2));
}

/** Three times what the third worker has: nothing waits here. */
enum far_status relays_handler(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_err err;
	struct far_val out;
	struct step s = {SERVER, NULL, NULL};
	OK(far_context_find(trains[SERVER], req, (uint64_t)args[0].u.i, &s.context, &err));
	OK(far_tape_new(pool, &s.tape, &err));
	OK(far_rpc_sync(far_req_agent(req), name_of(OLD), "g::holds", args, 1, NULL, &out, &err));
	struct far_var *y = far_tape_scale(s.tape, far_tape_recv(s.tape, s.context, &out), 3);
	far_val_fini(&out);
	return answer(req, &s, y);
}

static uint64_t calls_of(int rank)
{
	struct far_counters c;
	far_counters_read(agent_of(rank), &c);
	return c.calls_sent;
}

/** Runs a pass from `y`, and counts the calls of the trainer and of the server. */
static void pass_takes(struct step *s, struct far_var *y, uint64_t of_trainer, uint64_t of_server)
{
	struct far_err err;
	uint64_t trainer = calls_of(TRAINER), server = calls_of(SERVER);
	OK(backward_of(s, y, &err));
	trainer = calls_of(TRAINER) - trainer;
	server = calls_of(SERVER) - server;
	if (trainer != of_trainer || server != of_server)
		fprintf(stderr, "calls: %d of the trainer, %d of the server\n", (int)trainer, (int)server);
	CHECK(trainer == of_trainer && server == of_server);
}

/* A gradient goes with the number of its variable, where no other edge can lead to what it is for. The answer has what
 * comes back to the root: the server makes no call. */
void a_hop_is_one_call(void)
{
	const float one = 1;
	struct step s = step_begin(TRAINER);
	struct far_var *x = leaf_of(&one, 1, true);
	struct far_val v = send_var(&s, x), list = far_list(&v, 1);
	pass_takes(&s, call_var(&s, SERVER, "g::doubled", &list, 1), 1, 0);
	CHECK(gradient_of(&s, x)[0] == 2);
	/* The result of the first call is here, so the server cannot know that nothing else comes. */
	pass_takes(&s, call_var(&s, SERVER, "g::doubled", &list, 1), 2, 1);
	CHECK(gradient_of(&s, x)[0] == 4);
	step_end(&s);
	far_var_free(x);

	/* So does one that is not short, of a pass with little to compute. */
	static const float zeros[LEAF_LONG / 16];
	s = step_begin(TRAINER);
	x = leaf_of(zeros, LEAF_LONG / 16, true);
	v = send_var(&s, x);
	pass_takes(&s, call_var(&s, SERVER, "g::doubled", &list, 1), 1, 0);
	CHECK(gradient_of(&s, x)[LEAF_LONG / 16 - 1] == 2);
	step_end(&s);
	far_var_free(x);
}

/* Variables that are in more places than where they were sent to: all gradients count, once each. */
void copies_count(void)
{
	struct far_err err;
	const float one = 1;
	struct far_val first, again;
	struct far_future *f = NULL;
	struct step s = step_begin(TRAINER);
	struct far_var *x = leaf_of(&one, 1, true);
	struct far_val v = send_var(&s, x), list = far_list(&v, 1);
	/* One result, read twice. */
	OK(far_rpc_async(agent_of(TRAINER), name_of(SERVER), "g::doubled", &list, 1, NULL, &f, &err));
	OK(far_future_wait(f, WAIT_NS, &first, &err));
	OK(far_future_wait(f, WAIT_NS, &again, &err));
	far_future_free(f);
	struct far_var *y = far_tape_recv(s.tape, s.context, &first), *z = far_tape_recv(s.tape, s.context, &again);
	OK(backward_of(&s, far_tape_add(s.tape, y, far_tape_scale(s.tape, z, 4)), &err));
	CHECK(gradient_of(&s, x)[0] == 10);
	step_end(&s);

	/* One result, read here and passed on to a third worker as it came. */
	s = step_begin(TRAINER);
	v = send_var(&s, x);
	far_val_fini(&first);
	OK(far_rpc_sync(agent_of(TRAINER), name_of(SERVER), "g::doubled", &list, 1, NULL, &first, &err));
	y = far_tape_recv(s.tape, s.context, &first);
	list = far_list(&first, 1);
	z = call_var(&s, OLD, "g::doubled", &list, 1);
	OK(backward_of(&s, far_tape_add(s.tape, y, z), &err));
	CHECK(gradient_of(&s, x)[0] == 2 + 4);
	step_end(&s);
	far_val_fini(&first);
	far_val_fini(&again);
	far_var_free(x);
}

/** Two leaves of `n` elements that do not copy their gradients, which a second pass adds to. */
static void leaves_keep(size_t n)
{
	static float ones[LEAF_LONG];
	struct far_err err;
	struct far_context_counts c;
	struct far_var *x[2];
	struct far_val items[2];
	struct step s = step_begin(TRAINER);
	for (size_t i = 0; i < n; i++)
		ones[i] = 1;
	for (int i = 0; i < 2; i++) {
		x[i] = leaf_of(ones, n, true);
		items[i] = send_var(&s, x[i]);
	}
	struct far_val list = far_list(items, 2);
	for (int pass = 1; pass <= 2; pass++) {
		OK(backward_of(&s, call_var(&s, SERVER, "g::doubled", &list, 1), &err));
		c = counts_on(&s, TRAINER);
		CHECK(c.bytes_copied == 0 && c.bytes_kept == (uint64_t)pass * 2 * n * sizeof(float));
		for (int i = 0; i < 2; i++)
			for (size_t k = 0; k < n; k++)
				CHECK(gradient_of(&s, x[i])[k] == (float)(2 * pass));
	}
	step_end(&s);
	for (int i = 0; i < 2; i++)
		far_var_free(x[i]);
}

void leaves_keep_requests(void)
{
	leaves_keep(LEAF_LONG / 32); /* received on a fiber */
	leaves_keep(LEAF_LONG);      /* on a thread for blocking handlers */
}

/* A short step of an optimizer runs where its call arrives. A long one is called once more, for a thread of its worker;
 * the next one at once so. */
void long_steps_are_known(void)
{
	static float ones[LEAF_LONG];
	static const size_t sizes[] = {2, LEAF_LONG};
	struct far_optimizer_opts opts = far_optimizer_defaults(FAR_OPTIMIZER_SGD);
	struct far_err err;
	opts.lr = 0.5;
	for (size_t i = 0; i < LEAF_LONG; i++)
		ones[i] = 1;
	for (int i = 0; i < 2; i++) {
		struct far_rref *param;
		struct far_dist_optimizer *optimizer;
		struct step s = step_begin(SERVER);
		struct far_var *x = leaf_of(ones, sizes[i], true);
		OK(far_var_rref(trains[SERVER], x, &param, &err));
		OK(far_dist_optimizer_new(trains[SERVER], &opts, &param, 1, 0, &optimizer, &err));
		OK(backward_of(&s, far_tape_scale(s.tape, x, 3), &err));
		for (int step = 0; step < 2; step++) {
			uint64_t calls = calls_of(SERVER);
			OK(far_dist_optimizer_step(optimizer, s.context, 0, &err));
			CHECK(calls_of(SERVER) - calls == (i == 1 && step == 0 ? 2 : 1));
			for (size_t k = 0; k < sizes[i]; k++)
				CHECK(((const float *)far_var_tensor(x)->data)[k] == 1 - 0.5F * 3 * (float)(step + 1));
		}
		far_dist_optimizer_free(optimizer);
		far_rref_free(param);
		step_end(&s);
		far_var_free(x);
	}
}

/* A worker whose own part is done passes the second part on to one where something waits. */
void second_part_passes_through(void)
{
	struct far_err err;
	const float one = 1;
	struct far_context *there;
	struct far_gradient g;
	struct step s = step_begin(TRAINER);
	held_leaf = leaf_of(&one, 1, true);
	struct far_val id = far_int((int64_t)far_context_id(s.context));
	OK(backward_of(&s, call_var(&s, SERVER, "g::relays", &id, 1), &err));
	OK(far_context_find(trains[OLD], NULL, far_context_id(s.context), &there, &err));
	CHECK(far_grads_get(far_context_grads(there), held_leaf, &g) && ((const float *)g.values.data)[0] == 6);
	CHECK(counts_on(&s, SERVER).passes == 0 && counts_on(&s, OLD).passes == 0);
	far_context_free(there);
	step_end(&s);
	far_var_free(held_leaf);
}
