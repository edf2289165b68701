/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Training with a parameter server: the network is on worker 1, the images and the loss on worker 0. Each step is a
 * forward pass through the remote module, a backward pass through the call, and a step of the optimizer on the server.
 * Main thread of each worker; handlers run on shard threads.
 *
 *	farcall run -n 2 -- ./digits_server digits.csv
 */
#include "args.h"
#include <farcall/train.h>

#define PIXELS     64
#define UNITS      512
#define CLASSES    10
#define IMAGES_MAX 5000
#define BATCH      32
#define EPOCHS     40
#define PARAMS     4

static struct image {
	float pixels[PIXELS];
	int64_t digit;
} images[IMAGES_MAX];

static struct far_pool *pool;
static struct far_train *train;

/** The constructor of the network, on the server. */
FAR_HANDLER(network)
{
	struct far_init init = {.dtype = FAR_F32, .seed = 1};
	struct far_module *layers[4], *model;
	struct far_err err;
	if (far_module_linear(pool, &init, PIXELS, UNITS, true, &layers[0], &err) ||
	    far_module_map(pool, FAR_MODULE_RELU, &layers[1], &err) ||
	    far_module_dropout(pool, &init, 0.5, &layers[2], &err) ||
	    far_module_linear(pool, &init, UNITS, CLASSES, true, &layers[3], &err) ||
	    far_module_sequential(pool, layers, 4, &model, &err))
		return far_fail(req, err.status, 0, "%s", err.text);
	return far_return_object(req, model);
}

/** Reads images, and brings them in a random order that is always the same. Returns their number; 0: no file. */
static size_t read_images(const char *path)
{
	FILE *f = fopen(path, "r");
	size_t n = 0;
	for (float x; f && n < IMAGES_MAX; n++) {
		size_t k = 0;
		for (; k < PIXELS && fscanf(f, "%f,", &x) == 1; k++)
			images[n].pixels[k] = x / 16;
		if (k < PIXELS || fscanf(f, "%f", &x) != 1)
			break;
		images[n].digit = (int64_t)x;
	}
	if (f)
		fclose(f);
	srand(1);
	for (size_t i = n; i > 1; i--) {
		struct image *other = &images[(size_t)rand() % i], swap = *other;
		*other = images[i - 1], images[i - 1] = swap;
	}
	return n;
}

/** Images [at, at + n) as inputs of the tape: views of the array. */
static struct far_var *batch(struct far_tape *tape, size_t at, size_t n, struct far_var **targets)
{
	static const int64_t pixel_strides[] = {sizeof(struct image) / sizeof(float), 1};
	static const int64_t digit_strides[] = {sizeof(struct image) / sizeof(int64_t)};
	struct far_tensor x = {images[at].pixels, pixel_strides, FAR_F32, .ndim = 2, .shape = {n, PIXELS}};
	struct far_tensor y = {&images[at].digit, digit_strides, FAR_I64, .ndim = 1, .shape = {n}};
	*targets = far_tape_input(tape, &y);
	return far_tape_input(tape, &x);
}

/** A step: forward, backward, and the update of the parameters where they are. */
static enum far_status step(struct far_rref *model, struct far_dist_optimizer *optimizer, struct far_tape *tape,
			    size_t at, size_t n, struct far_err *err)
{
	struct far_context *context;
	struct far_var *targets;
	if (far_context_begin(train, &context, err))
		return err->status;
	struct far_var *x = batch(tape, at, n, &targets);
	struct far_var *y = far_remote_module_forward(model, context, tape, x, 0);
	struct far_var *loss = far_tape_cross_entropy(tape, y, targets, FAR_OP_REDUCE_MEAN);
	enum far_status status = far_tape_status(tape, err); /* the first error of the call and of all operators */
	if (!status)
		status = far_backward(context, &loss, 1, NULL, 0, err);
	if (!status)
		status = far_dist_optimizer_step(optimizer, context, 0, err);
	far_context_end(context);
	far_tape_reset(tape);
	return status;
}

static enum far_status learn(size_t n, struct far_err *err)
{
	struct far_rref *model = NULL, *params[PARAMS];
	struct far_dist_optimizer *optimizer = NULL;
	struct far_optimizer_opts opts = far_optimizer_defaults(FAR_OPTIMIZER_ADAM);
	struct far_tape *tape;
	struct far_var *targets, *found = NULL;
	size_t params_n, learned = n * 4 / 5, right = 0; /* the others are for the test */
	if (far_tape_new(pool, &tape, err) ||
	    far_remote_module_new(train, "worker1", "net::Digits", FAR_NOARGS, 0, &model, err) ||
	    far_remote_module_parameters(train, model, 0, params, PARAMS, &params_n, err) ||
	    far_dist_optimizer_new(train, &opts, params, params_n, 0, &optimizer, err))
		return err->status;
	for (int epoch = 0; epoch < EPOCHS; epoch++)
		for (size_t at = 0; at < learned; at += BATCH)
			if (step(model, optimizer, tape, at, at + BATCH < learned ? BATCH : learned - at, err))
				return err->status;
	if (far_remote_module_train(model, false, 0, err)) /* without dropout */
		return err->status;
	struct far_var *x = batch(tape, learned, n - learned, &targets);
	far_tape_max_axis(tape, far_remote_module_forward(model, NULL, tape, x, 0), 1, false, &found);
	for (size_t i = 0; found && i < n - learned; i++)
		right += ((const int64_t *)far_var_tensor(found)->data)[i] == images[learned + i].digit;
	printf("%zu images learned, %zu others: %.2f %% right\n", learned, n - learned,
	       100 * (double)right / (double)(n - learned));
	for (size_t i = 0; i < params_n; i++)
		far_rref_free(params[i]);
	far_dist_optimizer_free(optimizer), far_rref_free(model), far_tape_free(tape);
	return FAR_OK;
}

int main(int argc, char **argv)
{
	const struct far_function functions[] = {{"net::Digits() -> far::Module", FAR_KIND_FIBER, network, NULL, 0}};
	struct far_opts opts = {.functions = functions, .functions_n = 1};
	struct far_agent *agent;
	struct far_err err = {0};
	const struct arg file = {"DIGITS.CSV", "images of 8 x 8 pixels", NULL, 0, 0};
	args_read(argc, argv, "farcall run -n 2 -- ", "A network on a server learns digits.", &file, 1);
	size_t n = read_images(argv[1]);
	if (n < 100)
		args_wrong(argv[0], "%s: has not 100 images", argv[1]);
	if (far_pool_new(0, &pool, &err) || far_train_new(pool, &train, &err) ||
	    far_train_init_rpc(train, "worker%d", FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err))
		return far_err_print(stderr, &err);
	bool trainer = far_self(agent).worker == 0;
	if ((trainer ? learn(n, &err) : far_serve(agent, 0, &err)) || far_shutdown(agent, 0, &err))
		return far_err_print(stderr, &err);
	far_train_free(train), far_pool_free(pool);
	return 0;
}
