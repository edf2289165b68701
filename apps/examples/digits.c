/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Local training: a network of two layers learns handwritten digits, images of 8 × 8 pixels. The file has a line for
 * each image: 64 pixels of 0 to 16 and the digit, separated by commas. Main thread of each worker.
 *
 *	zcat /usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz >digits.csv
 *	./digits digits.csv digits.safetensors
 */
#include "args.h"

#include <farcall/farcall.h>
#include <farcall/module.h>
#include <farcall/optim.h>

#define PIXELS     64
#define UNITS      512
#define CLASSES    10
#define IMAGES_MAX 5000
#define BATCH      32
#define EPOCHS     60

static struct image {
	float pixels[PIXELS];
	int64_t digit;
} images[IMAGES_MAX];

struct trainer {
	struct far_tape *tape;   /* records the operators of a step */
	struct far_grads *grads; /* gradients by parameter */
	struct far_module *model;
	struct far_optimizer *optimizer;
};

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
		*other = images[i - 1];
		images[i - 1] = swap;
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

static enum far_status make_model(struct far_pool *pool, struct far_module **model, struct far_err *err)
{
	struct far_init init = {.dtype = FAR_F32, .seed = 1};
	struct far_module *layers[4];
	if (far_module_linear(pool, &init, PIXELS, UNITS, true, &layers[0], err) ||
	    far_module_map(pool, FAR_MODULE_RELU, &layers[1], err) ||
	    far_module_dropout(pool, &init, 0.5, &layers[2], err) ||
	    far_module_linear(pool, &init, UNITS, CLASSES, true, &layers[3], err))
		return err->status;
	return far_module_sequential(pool, layers, 4, model, err);
}

static enum far_status make_trainer(struct far_pool *pool, struct trainer *t, struct far_err *err)
{
	struct far_var *params[8];
	struct far_optimizer_opts opts = far_optimizer_defaults(FAR_OPTIMIZER_ADAM);
	if (make_model(pool, &t->model, err) || far_tape_new(pool, &t->tape, err) ||
	    far_grads_new(pool, &t->grads, err))
		return err->status;
	size_t n = far_module_parameters(t->model, params, 8);
	return far_optimizer_new(pool, &opts, params, n, &t->optimizer, err);
}

/** A step: forward, backward, and the update of the parameters. */
static enum far_status step(struct trainer *t, size_t at, size_t n, double *loss, struct far_err *err)
{
	struct far_var *targets;
	far_tape_reset(t->tape), far_grads_clear(t->grads);
	struct far_var *y = far_module_forward(t->model, t->tape, batch(t->tape, at, n, &targets));
	struct far_var *root = far_tape_cross_entropy(t->tape, y, targets, FAR_OP_REDUCE_MEAN);
	enum far_status status = far_tape_status(t->tape, err); /* the first error of all operators */
	if (!status)
		status = far_grads_backward(t->grads, &root, 1, NULL, err);
	*loss = far_var_scalar(root);
	return status ? status : far_optimizer_step(t->optimizer, t->grads, err);
}

/** Fraction of the images [at, at + n) whose largest result is that of the right digit. */
static double accuracy(struct trainer *t, size_t at, size_t n)
{
	struct far_var *targets, *found;
	size_t right = 0;
	far_tape_reset(t->tape);
	far_module_train(t->model, false); /* without dropout */
	struct far_var *y = far_module_forward(t->model, t->tape, batch(t->tape, at, n, &targets));
	far_tape_max_axis(t->tape, y, 1, false, &found);
	for (size_t i = 0; found && i < n; i++)
		right += ((const int64_t *)far_var_tensor(found)->data)[i] == images[at + i].digit;
	return (double)right / (double)n;
}

int main(int argc, char **argv)
{
	struct far_pool *pool;
	struct far_err err = {0};
	struct trainer t = {0};
	const struct arg args[] = {{"DIGITS.CSV", "images of 8 x 8 pixels", NULL, 0, 0},
				   {"STATE.SAFETENSORS", "file to write: the parameters", NULL, 0, 0}};
	args_read(argc, argv, "", "A network of two layers learns handwritten digits.", args, 2);
	size_t n = read_images(argv[1]), learned = n * 4 / 5; /* the others are for the test */
	if (n < 100)
		args_wrong(argv[0], "%s: has not 100 images", argv[1]);
	if (far_pool_new(0, &pool, &err) || make_trainer(pool, &t, &err))
		return far_err_print(stderr, &err);
	for (int epoch = 1; epoch <= EPOCHS; epoch++) {
		double loss = 0, sum = 0;
		for (size_t at = 0; at < learned; at += BATCH, sum += loss)
			if (step(&t, at, at + BATCH < learned ? BATCH : learned - at, &loss, &err))
				return far_err_print(stderr, &err);
		if (epoch % 20 == 0)
			printf("epoch %d: loss %.4f\n", epoch, sum * BATCH / (double)learned);
	}
	double right = accuracy(&t, learned, n - learned);
	printf("%zu images learned, %zu others: %.2f %% right\n", learned, n - learned, 100 * right);
	if (far_module_save(t.model, argv[2], &err))
		return far_err_print(stderr, &err);
	far_optimizer_free(t.optimizer), far_grads_free(t.grads), far_tape_free(t.tape), far_module_free(t.model);
	far_pool_free(pool);
	return 0;
}
