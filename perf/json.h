/* SPDX-License-Identifier: BSD-3-Clause */
/** Writes one JSON object on one line. Keys are NULL inside an array. Any thread. */
#ifndef PERF_JSON_H
#define PERF_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_DEPTH_MAX 8

struct json {
	FILE *f;
	unsigned depth;
	bool array[JSON_DEPTH_MAX];
	bool more[JSON_DEPTH_MAX]; /* something was written at this depth */
};

void json_begin(struct json *j, FILE *f);
void json_object(struct json *j, const char *key);
void json_array(struct json *j, const char *key);
/** Ends the innermost object or array. */
void json_close(struct json *j);
/** Ends all that is open, and the line, and flushes. */
void json_end(struct json *j);

void json_string(struct json *j, const char *key, const char *value);
void json_u64(struct json *j, const char *key, uint64_t value);
void json_i64(struct json *j, const char *key, int64_t value);
void json_bool(struct json *j, const char *key, bool value);
/** null when it is not finite. */
void json_double(struct json *j, const char *key, double value);

#endif
