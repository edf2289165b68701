/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall train`: with a rank it is a server or a worker; without one it starts the whole job under `farcall run`.
 * Main thread. */
#include "train.h"
#include "apps/farcall/commands.h"
#include "perf/plot.h"
#include "planted.h"
#include "serve.h"
#include "service.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ADAM_LR       0.002
#define FACTOR_LR     0.1
#define FACTOR_DIM    8
#define VECTOR_DIM    64
#define HIDDEN_UNITS  32
#define WORD_WINDOW   5
#define WORD_NEGATIVE 5

static const char *mode_words[] = {"async", "bsp", NULL};
static const char *model_words[] = {"logistic", "fm", "mf", "word2vec", "deepfm", NULL}; /* as enum train_model */
static const char *format_words[] = {"auto", "libsvm", "criteo", "csv", NULL};           /* as enum rows_format */

static const char *progress_words[] = {"auto", "terminal", "lines", NULL}; /* as enum progress_where */

static const char *optimizer_words[] = {"sgd", "adagrad", "adam", "ftrl", NULL}; /* as enum train_optimizer */

const char *train_model_name(int model)
{
	return model_words[model];
}

const char *train_optimizer_name(int optimizer)
{
	return optimizer_words[optimizer];
}

const char *train_mode_name(int mode)
{
	return mode_words[mode];
}

static enum options_result parse(struct train_options *o, int argc, char **argv)
{
	const struct option_spec specs[] = {
		{"mode", 0, OPTION_CHOICE, &o->mode, 0, 0, "MODE",
		 "async (default): each push is applied on arrival; "
		 "bsp: the workers advance in step, each with its share of the gradient",
		 mode_words},
		{"model", 0, OPTION_CHOICE, &o->model, 0, 0, "NAME",
		 "logistic: logistic regression (default); fm: factorisation machine; mf: matrix "
		 "factorisation of ratings, lines of user, item and rating; word2vec: vectors of the words of a text "
		 "by "
		 "skip-grams with negative sampling; deepfm: fm and a hidden layer that reads the sum of a row's "
		 "factors",
		 model_words},
		{"dim", 0, OPTION_COUNT, &o->dim, 1, 1024, "N",
		 "elements of a factor (default 8), or of a word's vector (default 64)", NULL},
		{"l2", 0, OPTION_TEXT, &o->l2_text, 0, 0, "NUMBER",
		 "of fm, deepfm and mf: added to a factor's mean gradient of a batch, times the factor (default 0)",
		 NULL},
		{"hidden", 0, OPTION_COUNT, &o->hidden, 1, 4096, "N",
		 "of deepfm: units of the layer above the factors (default 32)", NULL},
		{"window", 0, OPTION_COUNT, &o->window, 1, 100, "N",
		 "of word2vec: words on either side that are near; each time drawn from 1 to N (default 5)", NULL},
		{"negative", 0, OPTION_COUNT, &o->negative, 1, 100, "N",
		 "of word2vec: samples for each pair of near words (default 5)", NULL},
		{"servers", 0, OPTION_COUNT, &o->servers, 1, PS_WORLD_MAX - 1, "N", "servers (default 2)", NULL},
		{"shards", 0, OPTION_COUNT, &o->shards, 1, PS_SHARDS_MAX, "N",
		 "shards of each server; the keys are divided among them (default 1)", NULL},
		{"optimizer", 0, OPTION_CHOICE, &o->optimizer, 0, 0, "NAME",
		 "optimizer of the servers: sgd (default), or adagrad, which keeps the sum of squares of each "
		 "coordinate (default of models with factors); adam; ftrl",
		 optimizer_words},
		{"epsilon", 0, OPTION_TEXT, &o->epsilon_text, 0, 0, "NUMBER",
		 "added to the root that adagrad divides by (default 1e-10)", NULL},
		{"workers", 0, OPTION_COUNT, &o->workers, 1, PS_WORLD_MAX - 1, "N", "workers (default 2)", NULL},
		{"data", 0, OPTION_TEXT, &o->data, 0, 0, "FILE", "file to train on (default: generated data)", NULL},
		{"test", 0, OPTION_TEXT, &o->test, 0, 0, "FILE", "file to test on; goes with --data", NULL},
		{"format", 0, OPTION_CHOICE, &o->format, 0, 0, "NAME",
		 "of the files: libsvm, criteo or csv; auto (default): .csv is CSV, .tsv Criteo, all else libsvm",
		 format_words},
		{"epochs", 0, OPTION_COUNT, &o->epochs, 1, 1000000, "N", "passes over the data (default 20)", NULL},
		{"batch", 0, OPTION_COUNT, &o->batch, 1, 1 << 24, "N", "rows per batch of a worker (default 100)",
		 NULL},
		{"rate", 0, OPTION_COUNT, &o->rate, 1, 10000000, "N",
		 "batches of each worker that begin in a second; their times count from when they should have begun "
		 "(default: each begins when the one before it has ended)",
		 NULL},
		{"lr", 0, OPTION_TEXT, &o->lr_text, 0, 0, "RATE",
		 "initial learning rate; of sgd and adagrad it decays to 0 (default 0.5, with factors 0.1; adam 0.002)",
		 NULL},
		{"seed", 0, OPTION_COUNT, &o->seed, 0, UINT64_C(1) << 53, "N",
		 "seed of shuffling and of generated data (default 1)", NULL},
		{"rows", 0, OPTION_COUNT, &o->rows, 1, UINT32_MAX, "N", "generated rows (default 50000)", NULL},
		{"test-rows", 0, OPTION_COUNT, &o->test_rows, 1, UINT32_MAX, "N", "generated test rows (default 20000)",
		 NULL},
		{"features", 0, OPTION_COUNT, &o->features, 1, PLANTED_FEATURES_MAX, "N",
		 "features of generated data (default 200)", NULL},
		{"timeout", 0, OPTION_DURATION, &o->timeout_ns, FAR_MS, 3600 * FAR_SEC, "TIME",
		 "deadline of a call (default 10s)", NULL},
		{"json", 0, OPTION_FLAG, &o->json, 0, 0, NULL, "one JSON object on stdout, all else on stderr", NULL},
		{"service", 0, OPTION_TEXT, &o->service, 0, 0, "NAME",
		 "train in a table of this running 'farcall pserver', as clients of it (default: servers of its own)",
		 NULL},
		{"load", 0, OPTION_TEXT, &o->load, 0, 0, "DIR", "load the tables that --save has written first", NULL},
		{"save", 0, OPTION_TEXT, &o->save, 0, 0, "DIR",
		 "save the tables at the end, on the host of the first worker", NULL},
		{"predict", 0, OPTION_TEXT, &o->predict, 0, 0, "FILE",
		 "write the probability or rating of each row of --test, or each word of the files "
		 "with "
		 "its vector; without --data nothing is trained, and the tables are those of --load or --service",
		 NULL},
		{"patience", 0, OPTION_COUNT, &o->patience, 1, 1000000, "N",
		 "with one worker: stop when the test loss has not fallen for N epochs. --save and --predict write the "
		 "model "
		 "each time that it falls, and the report is of that epoch; the tables of --service go on to the last "
		 "epoch",
		 NULL},
		{"progress", 0, OPTION_CHOICE, &o->progress, 0, 0, "WORD",
		 "terminal: also a line on the terminal that changes all the time; lines: only a line after an epoch; "
		 "auto (default): a line that changes where stderr is a terminal",
		 progress_words},
		{"plot", 0, OPTION_TEXT, &o->plot, 0, 0, "FILE.svg",
		 "draw the loss, and the figures of the test after each epoch, over the steps (needs "
		 "gnuplot)",
		 NULL},
		{"init-method", 0, OPTION_TEXT, &o->group.init_method, 0, 0, "URL",
		 "with a rank: tcp://HOST:PORT, or env:// (default)", NULL},
		{"rank", 0, OPTION_COUNT, &o->group.rank_flag, 0, PS_WORLD_MAX - 1, "N",
		 "run only this rank; ranks below --servers are servers (default: RANK)", NULL},
		{"world-size", 0, OPTION_COUNT, &o->group.world_flag, 1, PS_WORLD_MAX, "N",
		 "members of the group (default: WORLD_SIZE)", NULL},
		{"nic", 0, OPTION_TEXT, &o->group.nic, 0, 0, "NAME", "driver to use (default: the best available)",
		 NULL},
		{"security", 0, OPTION_CHOICE, &o->group.security, 0, 0, "WORD",
		 "none: the group has no key and trusts every process that reaches it (default: FAR_KEY_FILE, or a key "
		 "for one host)",
		 group_security_words},
		{"health", 0, OPTION_TEXT, &o->group.health_file, 0, 0, "FILE",
		 "health file for 'farcall health', one per member (default: FAR_HEALTH_FILE, or none)", NULL},
		{"", 0, OPTION_FLAG, NULL, 0, 0, NULL, NULL, NULL}};
	const struct option_command command = {
		o->group.program, "[OPTIONS]",
		"Trains a model by minibatches on a parameter server and tests the result. Without a rank\n"
		"it starts servers and workers as processes on this host; under 'farcall run', or with --rank, it is\n"
		"one of them.",
		specs};
	int rest;
	enum options_result result = options_parse(&command, argc, argv, &rest);
	if (result == OPTIONS_GO && rest < argc) {
		options_wrong(o->group.program, "unexpected argument '%s'", argv[rest]);
		return OPTIONS_WRONG;
	}
	return result;
}

/* Reads a number from 0, with `positive` above 0, to `most`. 0, or an exit status. */
static int number(const struct train_options *o, const char *flag, const char *text, bool positive, double most,
		  double *out)
{
	char *end;
	double v = strtod(text, &end);
	if (end == text || *end || !isfinite(v) || v < 0.0 || (positive && (float)v <= 0.0f) || v > most)
		return options_wrong(o->group.program, "--%s takes a number %s and up to %g, not '%s'", flag,
				     positive ? "above 0" : "from 0", most, text);
	*out = v;
	return 0;
}

/* The flags of models and optimizers, and their defaults. */
static int check_model(struct train_options *o)
{
	const char *program = o->group.program, *name = train_model_name(o->model);
	bool factors = o->model != MODEL_LOGISTIC, text = o->model == MODEL_WORD2VEC, pairs = factors && !text;
	if ((!factors && o->dim) || (!pairs && o->l2_text))
		return options_wrong(program, "--%s does not go with --model %s", o->dim && !factors ? "dim" : "l2",
				     name);
	if (!text && (o->window || o->negative))
		return options_wrong(program, "--%s goes with --model word2vec", o->window ? "window" : "negative");
	if (o->hidden && o->model != MODEL_DEEPFM)
		return options_wrong(program, "--hidden goes with --model deepfm");
	if ((text || o->model == MODEL_MF) && (o->format || !o->test))
		return options_wrong(program,
				     o->format ? "--format does not go with --model %s, which reads %s"
					       : "--model %s needs --data FILE and --test FILE: %s",
				     name, text ? "lines of words" : "lines of user, item and rating");
	if (factors && o->optimizer == TRAIN_FTRL)
		return options_wrong(program, "--optimizer ftrl sets new factors to 0, where their gradient is 0; "
					      "give sgd, adagrad or adam");
	if (o->optimizer == TRAIN_UNSET)
		o->optimizer = factors ? TRAIN_ADAGRAD : TRAIN_SGD;
	if (o->dim == 0)
		o->dim = text ? VECTOR_DIM : FACTOR_DIM;
	o->hidden = o->hidden ? o->hidden : HIDDEN_UNITS;
	o->window = o->window ? o->window : WORD_WINDOW;
	o->negative = o->negative ? o->negative : WORD_NEGATIVE;
	if (o->optimizer == TRAIN_ADAM)
		o->lr = ADAM_LR;
	else if (factors)
		o->lr = FACTOR_LR;
	int status = o->lr_text ? number(o, "lr", o->lr_text, true, 1e6, &o->lr) : 0;
	if (status == 0 && o->l2_text)
		status = number(o, "l2", o->l2_text, false, 1e3, &o->l2);
	if (status == 0 && o->epsilon_text)
		status = number(o, "epsilon", o->epsilon_text, true, 1.0, &o->epsilon);
	if (status == 0 && o->epsilon_text && o->optimizer != TRAIN_ADAGRAD)
		return options_wrong(program, "--epsilon goes with --optimizer adagrad");
	return status;
}

/* Checks what no table of flags expresses. 0 or an exit status after a message. */
static int check(struct train_options *o)
{
	const char *program = o->group.program;
	int status = check_model(o);
	if (status)
		return status;
	if (!(o->predict && o->test) && (o->data == NULL) != (o->test == NULL))
		return options_wrong(program, "%s: a model is tested on rows it has not seen",
				     o->data ? "--data needs --test FILE" : "--test needs --data FILE");
	if (o->test && !o->data && !o->service && !o->load)
		return options_wrong(program, "--predict without --data needs a trained model: give --load DIR, or "
					      "--service NAME");
	if (o->plot && o->test && !o->data)
		return options_wrong(program, "--plot draws a training; give --data FILE");
	const char *files[] = {o->data, o->test};
	for (int i = 0; i < 2; i++) {
		if (!files[i] || access(files[i], R_OK) == 0)
			continue;
		fprintf(stderr, "%s: %s: cannot open: %s\n", program, files[i], strerror(errno));
		return 1;
	}
	return 0;
}

/* Why a file cannot be written, as errno, or 0. It is left as it was. */
static int file_error(const char *path)
{
	struct stat st;
	if (stat(path, &st) == 0)
		return S_ISDIR(st.st_mode) ? EISDIR : access(path, W_OK) ? errno : 0;
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return errno;
	close(fd);
	unlink(path);
	return 0;
}

/* Likewise a directory, which may be missing. */
static int directory_error(const char *path)
{
	struct stat st;
	if (mkdir(path, 0777) == 0)
		return rmdir(path) ? errno : 0;
	if (errno != EEXIST)
		return errno;
	return stat(path, &st) ? errno : !S_ISDIR(st.st_mode) ? ENOTDIR : access(path, W_OK | X_OK) ? errno : 0;
}

/* Whether the first worker will be able to write its files, before it trains. 0, or an exit status after a message. */
static int check_outputs(const struct train_options *o)
{
	const char *program = o->group.program, *wrong = o->plot ? plot_check(o->plot) : NULL;
	int predict = o->predict ? file_error(o->predict) : 0, save = o->save ? directory_error(o->save) : 0;
	if (wrong)
		return options_wrong(program, "%s", wrong);
	if (!predict && !save)
		return 0;
	fprintf(stderr, "%s: --%s: %s: cannot write: %s\n", program, predict ? "predict" : "save",
		predict ? o->predict : o->save, strerror(predict ? predict : save));
	return 1;
}

/* Becomes `farcall run -n N -- farcall train …` with the same flags; each member then knows its rank. */
static int launch(const struct train_options *o, int argc, char **argv)
{
	char self[4096], world[24], progress[16];
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	char **args = calloc((size_t)argc + 10, sizeof *args);
	if (len < 0 || args == NULL) {
		fprintf(stderr, "%s: cannot start the workers: %s\n", o->group.program, strerror(errno));
		free(args);
		return 1;
	}
	self[len] = '\0';
	snprintf(world, sizeof world, "%d", (int)(o->servers + o->workers));
	snprintf(progress, sizeof progress, "%s", isatty(STDERR_FILENO) == 1 ? "terminal" : "lines");
	char *head[] = {self, (char[]){"run"}, (char[]){"-n"}, world, (char[]){"--"}, self, (char[]){"train"},
			/* The members' stderr is a pipe. A flag that was given counts, as the later one. */
			(char[]){"--progress"}, progress};
	memcpy(args, head, sizeof head);
	memcpy(args + sizeof head / sizeof *head, argv + 1, ((size_t)argc - 1) * sizeof *args);
	fflush(NULL);
	execv(self, args);
	fprintf(stderr, "%s: cannot start %s: %s\n", o->group.program, self, strerror(errno));
	free(args);
	return 1;
}

/* This process will start all members. 0 or an exit status after a message. */
static int alone(struct train_options *o)
{
	if (o->service)
		return options_wrong(o->group.program,
				     "--service needs --rank and --world-size, or RANK and WORLD_SIZE: "
				     "of the group that the servers belong to");
	o->workers = o->workers ? o->workers : 2;
	if (o->servers + o->workers > PS_WORLD_MAX)
		return options_wrong(o->group.program, "servers and workers together are at most %d", PS_WORLD_MAX);
	return 0;
}

/* This process is one member. 0 or an exit status after a message. */
static int identify(struct train_options *o)
{
	const char *program = o->group.program;
	if (group_identify(&o->group))
		return OPTIONS_EXIT_USAGE;
	if (o->group.dynamic)
		return options_wrong(program, "WORLD_SIZE is 'dynamic': training needs the number of members");
	if ((uint64_t)o->group.world <= o->servers)
		return options_wrong(program, "a group of %d with %d servers has no worker", o->group.world,
				     (int)o->servers);
	uint64_t workers = (uint64_t)o->group.world - o->servers;
	if (o->workers && o->workers != workers)
		return options_wrong(program, "%d servers and %d workers do not make a group of %d", (int)o->servers,
				     (int)o->workers, o->group.world);
	o->workers = workers;
	if (o->service && (uint64_t)o->group.rank < o->servers)
		return options_wrong(program,
				     "rank %d is a server when there are %d; start 'farcall pserver' there, or "
				     "give --servers",
				     o->group.rank, (int)o->servers);
	return 0;
}

int cmd_train(int argc, char **argv)
{
	struct train_options o = {.mode = TRAIN_ASYNC,
				  .servers = 2,
				  .shards = 1,
				  .optimizer = TRAIN_UNSET,
				  .epsilon = 1e-10,
				  .epochs = 20,
				  .batch = 100,
				  .lr = 0.5,
				  .seed = 1,
				  .rows = 50000,
				  .test_rows = 20000,
				  .features = 200,
				  .timeout_ns = 10 * FAR_SEC,
				  .group = {.program = "farcall train", .rank_flag = GROUP_RANK_UNSET}};
	enum options_result result = parse(&o, argc, argv);
	if (result != OPTIONS_GO)
		return result == OPTIONS_DONE ? 0 : OPTIONS_EXIT_USAGE;
	int status = check(&o);
	if (status)
		return status;
	bool member = group_has_rank(&o.group);
	status = member ? identify(&o) : alone(&o);
	if (status)
		return status;
	uint64_t rank = (uint64_t)o.group.rank;
	if (member && rank < o.servers) {
		struct serve_options serving = {.service = SERVICE_NAME,
						.servers = o.servers,
						.shards = (unsigned)o.shards,
						.workers = o.workers,
						.json = o.json};
		return serve(&o.group, &serving);
	}
	if (o.patience && o.workers > 1)
		return options_wrong(o.group.program, "--patience goes with one worker, here are %d", (int)o.workers);
	status = !member || rank == o.servers ? check_outputs(&o) : 0;
	if (status)
		return status;
	return member ? train_worker(&o) : launch(&o, argc, argv);
}
