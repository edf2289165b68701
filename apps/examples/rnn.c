/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A recurrent network in three parts: the embedding table and the decoder on worker 1, the LSTM on worker 0. It learns
 *a language in which each word depends on the two words before. Each parameter is updated on its own worker.
 *
 *	farcall run -n 2 -- ./rnn
 */
#include "args.h"
#include <farcall/farcall.h>
#include <farcall/train.h>
#include <math.h>

enum { WORDS = 12, WIDTH = 24, HIDDEN = 64, TIME = 20, TEXTS = 32, STEPS = 150, PARAMS = 16 };

static struct far_pool *pool;
static struct far_train *train;

/* Words [time][text], and the word that follows each. */
struct texts {
	int64_t words[TIME][TEXTS], next[TIME][TEXTS];
};

struct model {
	struct far_rref *embedding, *decoder, *params[PARAMS];
	struct far_module *lstm;
	struct far_dist_optimizer *optimizer;
	size_t params_n;
};

/** Constructor of a part on the server: the embedding, or the decoder. */
FAR_HANDLER(make_part)
{
	struct far_init init = {.dtype = FAR_F32, .seed = 1};
	struct far_module *module;
	struct far_err err = {0};
	if (args[0].u.b)
		far_module_embedding(pool, &init, WORDS, WIDTH, true, &module, &err);
	else
		far_module_linear(pool, &init, HIDDEN, WORDS, true, &module, &err);
	return err.status ? far_fail(req, err.status, 0, "%s", err.text) : far_return_object(req, module);
}

/** Texts that begin with two random words. */
static void write_texts(struct texts *texts)
{
	for (int k = 0; k < TEXTS; k++) {
		int64_t a = rand() % WORDS, b = rand() % WORDS;
		for (int t = 0; t < TIME; t++) {
			texts->words[t][k] = b, texts->next[t][k] = (3 * a + b * b + 1) % WORDS;
			a = b, b = texts->next[t][k];
		}
	}
}

/** The scores of the next words, [time * texts, words]. */
static struct far_var *scores(struct model *m, struct far_context *context, struct far_tape *tape,
			      const struct texts *texts)
{
	struct far_tensor words = far_tensor_2d(FAR_I64, texts->words, TIME, TEXTS);
	struct far_var *x = far_tape_input(tape, &words);
	x = far_remote_module_forward(m->embedding, context, tape, x, 0);
	x = x ? far_module_forward(m->lstm, tape, x) : NULL;
	x = x ? far_remote_module_forward(m->decoder, context, tape, x, 0) : NULL;
	return far_tape_reshape(tape, x, 2, (uint64_t[]){TIME * TEXTS, WORDS});
}

static enum far_status step(struct model *m, struct far_tape *tape, const struct texts *texts, double *loss,
			    struct far_err *err)
{
	struct far_tensor next = far_tensor_1d(FAR_I64, texts->next, TIME * TEXTS);
	struct far_context *context;
	if (far_context_begin(train, &context, err))
		return err->status;
	struct far_var *root = scores(m, context, tape, texts);
	root = far_tape_cross_entropy(tape, root, far_tape_input(tape, &next), FAR_OP_REDUCE_MEAN);
	*loss = far_var_scalar(root);
	if (!far_tape_status(tape, err) && !far_backward(context, &root, 1, NULL, 0, err))
		far_dist_optimizer_step(m->optimizer, context, 0, err);
	far_context_end(context), far_tape_reset(tape);
	return err->status;
}

static enum far_status make_model(struct model *m, struct far_err *err)
{
	struct far_optimizer_opts opts = far_optimizer_defaults(FAR_OPTIMIZER_ADAGRAD); /* takes sparse gradients */
	struct far_init init = {.dtype = FAR_F32, .seed = 2};
	struct far_var *local[PARAMS];
	size_t n;
	opts.lr = 0.1;
	if (far_module_lstm(pool, &init, WIDTH, HIDDEN, true, &m->lstm, err))
		return err->status;
	m->params_n = far_module_parameters(m->lstm, local, PARAMS);
	for (size_t i = 0; i < m->params_n; i++)
		if (far_var_rref(train, local[i], &m->params[i], err))
			return err->status;
	for (int k = 0; k < 2; k++) {
		struct far_rref **part = k ? &m->decoder : &m->embedding;
		if (far_remote_module_new(train, "worker1", "net::Part", FAR_ARGS(far_bool(!k)), 0, part, err) ||
		    far_remote_module_parameters(train, *part, 0, m->params + m->params_n, PARAMS - m->params_n, &n,
						 err))
			return err->status;
		m->params_n += n;
	}
	return far_dist_optimizer_new(train, &opts, m->params, m->params_n, 0, &m->optimizer, err);
}

static enum far_status learn(struct far_err *err)
{
	static struct model m;
	static struct texts texts;
	struct far_tape *tape;
	struct far_var *found = NULL;
	double loss = 0;
	int right = 0;
	if (far_tape_new(pool, &tape, err) || make_model(&m, err))
		return err->status;
	for (int i = 0; i < STEPS && !err->status; i++) {
		write_texts(&texts);
		step(&m, tape, &texts, &loss, err);
	}
	write_texts(&texts);
	far_tape_max_axis(tape, scores(&m, NULL, tape, &texts), 1, false, &found);
	for (int i = TEXTS; found && i < TIME * TEXTS; i++) /* the first word alone does not tell the next one */
		right += ((const int64_t *)far_var_tensor(found)->data)[i] == (&texts.next[0][0])[i];
	printf("%d steps: perplexity %.3f, %.2f %% of the next words right\n", STEPS, exp(loss),
	       100.0 * right / ((TIME - 1) * TEXTS));
	for (size_t i = 0; i < m.params_n; i++)
		far_rref_free(m.params[i]);
	far_dist_optimizer_free(m.optimizer), far_rref_free(m.embedding), far_rref_free(m.decoder);
	far_tape_free(tape), far_module_free(m.lstm);
	return err->status;
}

int main(int argc, char **argv)
{
	const struct far_function functions[] = {
		{"net::Part(bool embedding) -> far::Module", FAR_KIND_FIBER, make_part, NULL, 0}};
	struct far_opts opts = {.functions = functions, .functions_n = 1};
	struct far_agent *agent;
	struct far_err err = {0};
	args_read(argc, argv, "farcall run -n 2 -- ", "An LSTM whose embedding and decoder are on a server.", NULL, 0);
	if (far_pool_new(0, &pool, &err) || far_train_new(pool, &train, &err) ||
	    far_train_init_rpc(train, "worker%d", FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err))
		return far_err_print(stderr, &err);
	if ((far_self(agent).worker == 0 ? learn(&err) : far_serve(agent, 0, &err)) || far_shutdown(agent, 0, &err))
		return far_err_print(stderr, &err);
	far_train_free(train), far_pool_free(pool);
	return 0;
}
