/* SPDX-License-Identifier: BSD-3-Clause */
/** Writes the options of a training job as JSON, for its report. Main thread. */
#include "train.h"
#include <inttypes.h>
#include <stdio.h>

#define TEXT_MAX (REPORT_SETTINGS_MAX / 4)

/* A string, or null. */
static const char *json_text(char to[TEXT_MAX], const char *text)
{
	size_t n = 1;
	if (text == NULL)
		return "null";
	to[0] = '"';
	for (; *text && n + 9 < TEXT_MAX; text++) {
		unsigned char c = (unsigned char)*text;
		if (c < 0x20 || c == '"' || c == '\\')
			n += (size_t)snprintf(to + n, TEXT_MAX - n, "\\u%04x", c);
		else
			to[n++] = (char)c;
	}
	to[n++] = '"';
	to[n] = '\0';
	return to;
}

/* What applies to the model and optimizer alone. */
static void own_settings(const struct train_options *o, char *to, size_t room)
{
	bool text = o->model == MODEL_WORD2VEC;
	size_t n = 0;
	to[0] = '\0';
	if (o->model != MODEL_LOGISTIC)
		n += (size_t)snprintf(to, room, ", \"dim\": %" PRIu64, o->dim);
	if (o->model != MODEL_LOGISTIC && !text)
		n += (size_t)snprintf(to + n, room - n, ", \"l2\": %g", o->l2);
	if (o->model == MODEL_DEEPFM)
		n += (size_t)snprintf(to + n, room - n, ", \"hidden\": %" PRIu64, o->hidden);
	if (text)
		n += (size_t)snprintf(to + n, room - n, ", \"window\": %" PRIu64 ", \"negative\": %" PRIu64, o->window,
				      o->negative);
	if (o->optimizer == TRAIN_ADAGRAD)
		n += (size_t)snprintf(to + n, room - n, ", \"epsilon\": %g", o->epsilon);
	if (o->patience)
		snprintf(to + n, room - n, ", \"patience\": %" PRIu64, o->patience);
}

void train_settings(const struct train_options *o, uint64_t epochs, char text[REPORT_SETTINGS_MAX])
{
	char service[TEXT_MAX], data[TEXT_MAX], test[TEXT_MAX], generated[128] = "", own[192];
	own_settings(o, own, sizeof own);
	if (!o->test)
		snprintf(generated, sizeof generated,
			 ", \"rows\": %" PRIu64 ", \"test_rows\": %" PRIu64 ", \"features\": %" PRIu64, o->rows,
			 o->test_rows, o->features);
	snprintf(text, REPORT_SETTINGS_MAX,
		 "{\"service\": %s, \"servers\": %" PRIu64 ", \"shards\": %" PRIu64
		 ", \"model\": \"%s\", \"optimizer\": \"%s\"%s, \"workers\": %" PRIu64 ", \"epochs\": %" PRIu64
		 ", \"batch\": %" PRIu64 ", \"lr\": %g, \"seed\": %" PRIu64 ", \"rate\": %" PRIu64
		 ", \"timeout_s\": %g, \"data\": %s, \"test\": %s%s}",
		 json_text(service, o->service), o->servers, o->shards, train_model_name(o->model),
		 train_optimizer_name(o->optimizer), own, o->workers, epochs, o->batch, o->lr, o->seed, o->rate,
		 (double)o->timeout_ns / 1e9, json_text(data, o->data), json_text(test, o->test), generated);
}
