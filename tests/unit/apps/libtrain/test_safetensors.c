/* SPDX-License-Identifier: BSD-3-Clause */
/** The state of modules in safetensors files: what is written, read back, and refused. The test's thread. */
#define BEGIN begin
#define END   end
#include "train_fixture.h"

#include "safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <farcall/module.h>
#include <sys/stat.h>
#include <unistd.h>

static struct far_init init;
static char folder[64], path[128];
static struct far_module *module;

static void begin(void)
{
	struct far_module *parts[3];
	setup();
	snprintf(folder, sizeof folder, "/tmp/farcall-train.XXXXXX");
	cr_assert_not_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/state.safetensors", folder);
	init = (struct far_init){.dtype = FAR_BF16, .seed = 3};
	OK(far_module_linear(pool, &init, 3, 1, true, &parts[0], &err));
	init.dtype = FAR_F64;
	OK(far_module_linear(pool, &init, 2, 2, false, &parts[1], &err));
	init.dtype = FAR_F32;
	OK(far_module_layer_norm(pool, &init, 4, 0, &parts[2], &err));
	OK(far_module_sequential(pool, parts, 3, &module, &err));
}

static void end(void)
{
	char command[128];
	snprintf(command, sizeof command, "rm -rf %s", folder);
	cr_assert_eq(system(command), 0);
	far_module_free(module);
	teardown();
}

static char content[4096];

static size_t read_file(void)
{
	FILE *f = fopen(path, "rb");
	cr_assert_not_null(f);
	size_t n = fread(content, 1, sizeof content, f);
	fclose(f);
	return n;
}

static void write_file(const void *data, size_t n)
{
	FILE *f = fopen(path, "wb");
	cr_assert_not_null(f);
	cr_assert_eq(fwrite(data, 1, n, f), n);
	fclose(f);
}

/** A file of a header and this many bytes of data. */
static void write_header(const char *json, size_t data)
{
	uint64_t len = strlen(json);
	memset(content, 0, sizeof content);
	memcpy(content, &len, 8);
	memcpy(content + 8, json, len);
	write_file(content, 8 + len + data);
}

static size_t files(void)
{
	DIR *dir = opendir(folder);
	size_t n = 0;
	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 2;
}

/* ---- writing ---- */

/* Byte by byte: larger elements first, so that all are aligned. */
CASE(safetensors, file)
{
	static const char wanted[] = "{\"1.weight\":{\"dtype\":\"F64\",\"shape\":[2,2],\"data_offsets\":[0,32]},"
				     "\"2.weight\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[32,48]},"
				     "\"2.bias\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[48,64]},"
				     "\"0.weight\":{\"dtype\":\"BF16\",\"shape\":[1,3],\"data_offsets\":[64,70]},"
				     "\"0.bias\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[70,72]}}";
	uint64_t len;
	size_t padded = (strlen(wanted) + 7) / 8 * 8;
	OK(far_module_save(module, path, &err));
	cr_assert_eq(files(), 1);
	size_t n = read_file();
	memcpy(&len, content, 8);
	cr_assert_eq(len, padded);
	cr_assert_eq(memcmp(content + 8, wanted, strlen(wanted)), 0, "%.400s", content + 8);
	for (size_t i = strlen(wanted); i < padded; i++)
		cr_assert_eq(content[8 + i], ' ');
	cr_assert_eq(n, 8 + padded + 72);
	const char *data = content + 8 + padded;
	cr_assert_arr_eq(data, far_var_tensor(far_module_parameter(module, "1.weight"))->data, 32);
	cr_assert_arr_eq(data + 32, ((float[]){1, 1, 1, 1, 0, 0, 0, 0}), 32);
	cr_assert_arr_eq(data + 70, far_var_tensor(far_module_parameter(module, "0.bias"))->data, 2);
}

CASE(safetensors, saved_and_loaded)
{
	char before[32];
	struct far_tensor t;
	struct far_var *w = far_module_parameter(module, "1.weight");
	memcpy(before, far_var_tensor(w)->data, 32);
	OK(far_module_save(module, path, &err));
	OK(far_module_save(module, path, &err)); /* over the old one */
	OK(far_var_edit(w, &t, &err));
	memset(t.data, 0, 32);
	struct far_var *root = sum_of(far_tape_mul(tape, w, w));
	OK(far_module_load(module, path, &err));
	cr_assert_arr_eq(before, far_var_tensor(w)->data, 32);
	FAILS(FAR_INVALID, "was changed", far_grads_backward(grads, &root, 1, NULL, &err));
}

CASE(safetensors, saving_fails)
{
	char missing[200];
	snprintf(missing, sizeof missing, "%s/none/state", folder);
	FAILS(FAR_SYSTEM, "cannot create", far_module_save(module, missing, &err));
	cr_assert_eq(err.code, ENOENT);
	/* The old file stays, and no temporary one. */
	cr_assert_eq(mkdir(path, 0700), 0);
	FAILS(FAR_SYSTEM, "cannot rename", far_module_save(module, path, &err));
	cr_assert_eq(files(), 1);
	FAILS(FAR_SYSTEM, "cannot open", far_module_load(module, missing, &err));
	FAILS(FAR_INVALID, "not a safetensors file", far_module_load(module, folder, &err));
}

/* A full disk. */
CASE(safetensors, writing_fails)
{
	if (access("/dev/full", W_OK))
		cr_skip("/dev/full is not there");
	FILE *f = fopen("/dev/full", "w");
	setvbuf(f, NULL, _IONBF, 0);
	cr_assert(!safetensors_write_header(f, NULL, 0));
	fclose(f);
}

/* ---- files that do not fit the module ---- */

#define TWO                                                                                                            \
	"\"2.weight\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[32,48]},"                                     \
	"\"2.bias\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[48,64]},"                                       \
	"\"0.weight\":{\"dtype\":\"BF16\",\"shape\":[1,3],\"data_offsets\":[64,70]},"
#define REST TWO "\"0.bias\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[70,72]}"

static void refused(enum far_status status, const char *part, const char *json, size_t data)
{
	char before[32];
	const void *now = far_var_tensor(far_module_parameter(module, "1.weight"))->data;
	memcpy(before, now, 32);
	write_header(json, data);
	FAILS(status, part, far_module_load(module, path, &err));
	cr_assert_arr_eq(before, now, 32);
}

CASE(safetensors, other_modules)
{
#define FIRST(dtype, shape) "{\"1.weight\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[0,32]},"
	write_header(FIRST("F64", "2,2") "\"__metadata__\":{\"format\":\"pt\",\"a\":\"b\"}," REST "} \n", 72);
	OK(far_module_load(module, path, &err));
	cr_assert_eq(f64_of(far_module_parameter(module, "1.weight"))[0], 0);
	refused(FAR_INVALID, "\"1.weight\" is i64[2,2]; the parameter is f64[2,2]", FIRST("I64", "2,2") REST "}", 72);
	refused(FAR_INVALID, "\"1.weight\" is f32[2,4]; the parameter is f64[2,2]", FIRST("F32", "2,4") REST "}", 72);
	refused(FAR_INVALID, "\"1.weight\" is f64[4]; the parameter is f64[2,2]", FIRST("F64", "4") REST "}", 72);
	refused(FAR_INVALID, "there is no \"0.bias\"",
		FIRST("F64", "2,2") TWO "\"0.bia\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[70,72]}}", 72);
	refused(FAR_INVALID, "\"more\" is no parameter of the module",
		FIRST("F64", "2,2") REST ",\"more\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[72,73]}}", 73);
}

/* ---- files that are wrong ---- */

#define ONE(dtype, shape, offsets) "{\"x\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

CASE(safetensors, wrong_files)
{
	write_file("1234567", 7);
	FAILS(FAR_INVALID, "no 8 bytes of a header's length", far_module_load(module, path, &err));
	write_file("\377\377\377\377\377\377\377\377", 8);
	FAILS(FAR_INVALID, "a header of 18446744073709551615 bytes", far_module_load(module, path, &err));
	write_file("\2\0\0\0\0\0\0\0{", 9);
	FAILS(FAR_INVALID, "a header of 2 bytes in a file of 9", far_module_load(module, path, &err));
	/* Torn: each length of a good file but the whole. */
	OK(far_module_save(module, path, &err));
	size_t n = read_file();
	static char good[sizeof content];
	memcpy(good, content, n);
	for (size_t cut = 0; cut < n; cut++) {
		write_file(good, cut);
		cr_assert_eq(far_module_load(module, path, &err), FAR_INVALID, "%zu bytes", cut);
	}
	write_file(good, n + 1);
	FAILS(FAR_INVALID, "73 bytes of data, its tensors 72", far_module_load(module, path, &err));
	static const struct {
		enum far_status status;
		const char *part, *json;
		size_t data;
	} cases[] = {
		{FAR_INVALID, "ends at byte 5 of the data, which have 4", ONE("F32", "[1]", "[1,5]"), 4},
		{FAR_INVALID, "after unused bytes", ONE("F32", "[1]", "[1,5]"), 5},
		{FAR_INVALID, "do not fit its shape", ONE("F32", "[1]", "[5,1]"), 5},
		{FAR_INVALID, "do not fit its shape", ONE("F32", "[2]", "[0,4]"), 4},
		{FAR_INVALID, "do not fit its shape", ONE("F32", "[4611686018427387905,4]", "[0,16]"), 16},
		{FAR_INVALID, "4 bytes of data, its tensors 0", ONE("F32", "[0]", "[0,0]"), 4},
		{FAR_INVALID, "\"y\" begins at byte 2 of the data, inside another tensor",
		 "{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
		 "\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
		 6},
		{FAR_INVALID, "\"x\" is there twice",
		 "{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
		 "\"\\u0078\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[4,6]}}",
		 6},
		{FAR_UNSUPPORTED, "the dtype \"F8_E4M3\"", ONE("F8_E4M3", "[1]", "[0,1]"), 1},
		{FAR_UNSUPPORTED, "9 dimensions", ONE("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1},
		{FAR_INVALID, "a tensor without dtype", "{\"x\":{\"dtype\":\"U8\",\"shape\":[]}}", 1},
		{FAR_INVALID, "unknown or there twice", "{\"x\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 1},
		{FAR_INVALID, "unknown or there twice", "{\"x\":{\"size\":1}}", 1},
		{FAR_INVALID, "two offsets", ONE("U8", "[1]", "[0]"), 1},
		{FAR_INVALID, "too many numbers", ONE("U8", "[1]", "[0,1,2]"), 1},
		{FAR_INVALID, "a whole number", ONE("U8", "[-1]", "[0,1]"), 1},
		{FAR_INVALID, "a whole number", ONE("U8", "[01]", "[0,1]"), 1},
		{FAR_INVALID, "']' expected", ONE("U8", "[1.5]", "[0,1]"), 1},
		{FAR_INVALID, "too large", ONE("U8", "[99999999999999999999]", "[0,1]"), 1},
		{FAR_INVALID, "'{' expected", "[]", 0},
		{FAR_INVALID, "'{' expected", "", 0},
		{FAR_INVALID, "text after the end", "{}{", 0},
		{FAR_INVALID, "ends in a string", "{\"x", 0},
		{FAR_INVALID, "control character", "{\"x\n\"", 0},
		{FAR_INVALID, "unknown escape", "{\"\\x\"", 0},
		{FAR_INVALID, "hexadecimal", "{\"\\u12g4\"", 0},
		{FAR_INVALID, "surrogate", "{\"\\ud800x\"", 0},
		{FAR_INVALID, "not a character", "{\"\\u0000\"", 0},
		{FAR_INVALID, "metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0},
		{FAR_INVALID, "'\"' expected", "{\"__metadata__\":{\"a\":1}}", 0},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		refused(cases[i].status, cases[i].part, cases[i].json, cases[i].data);
}

/* Names of every kind of character come back; so do tensors of all dtypes, without elements, and of rank 8. */
CASE(safetensors, names_and_dtypes)
{
	char header[] =
		"{\"a\\\"\\\\\\/\\n\\u00e9\\ud83d\\ude00\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[0,2]} ,"
		" \"none\" : {\"shape\":[0,7],\"data_offsets\":[2,2],\"dtype\":\"I64\"},"
		"\"one\":{\"dtype\":\"I16\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[2,4]}}";
	struct safetensors s;
	OK(safetensors_read(header, sizeof header - 1, 4, &s, &err));
	cr_assert_eq(s.n, 3);
	const struct safetensor *t = safetensors_find(&s, "a\"\\/\n\xc3\xa9\xf0\x9f\x98\x80");
	cr_assert(t && t->dtype == FAR_BOOL && t->end == 2);
	char *text;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	cr_assert(safetensors_write_header(f, s.tensors, s.n));
	fclose(f);
	cr_assert_eq(len % 8, 0);
	struct safetensors again;
	OK(safetensors_read(text + 8, len - 8, 4, &again, &err));
	cr_assert_eq(again.n, 3);
	for (size_t i = 0; i < 3; i++)
		cr_assert(strcmp(again.tensors[i].name, s.tensors[i].name) == 0 &&
			  again.tensors[i].dtype == s.tensors[i].dtype && again.tensors[i].ndim == s.tensors[i].ndim);
	cr_assert_null(safetensors_find(&again, "two"));
	safetensors_free(&again);
	safetensors_free(&s);
	free(text);
}
