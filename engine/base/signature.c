/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/signature.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/must.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>

#define BIT(type)    ((signature_types)(1u << (type)))
#define TYPES_SCALAR (BIT(FAR_TYPE_BOOL) | BIT(FAR_TYPE_INT) | BIT(FAR_TYPE_FLOAT))
#define TYPES_ANY    (BIT(FAR_TYPE_COUNT) - 1)

static_assert(FAR_TYPE_COUNT <= 16, "a set of types has 16 bits");

/* In the order of canonical texts: a set is written with the first entries that cover it. */
static const struct {
	const char *name;
	signature_types types;
} type_words[] = {
	{"Any", TYPES_ANY},
	{"Tensor", BIT(FAR_TYPE_TENSOR)},
	{"Scalar", TYPES_SCALAR},
	{"float", BIT(FAR_TYPE_FLOAT)},
	{"int", BIT(FAR_TYPE_INT)},
	{"bool", BIT(FAR_TYPE_BOOL)},
	{"str", BIT(FAR_TYPE_STRING)},
	{"bytes", BIT(FAR_TYPE_BYTES)},
	{"none", BIT(FAR_TYPE_NONE)},
};
#define TYPE_WORDS_N (sizeof type_words / sizeof type_words[0])

const char *signature_types_name(signature_types types, char *buf, size_t len)
{
	size_t at = 0;
	if (len > 0)
		buf[0] = '\0';
	for (size_t i = 0; i < TYPE_WORDS_N && types; i++) {
		if ((types & type_words[i].types) != type_words[i].types)
			continue;
		types = (signature_types)(types & ~type_words[i].types);
		if (at < len)
			at += (size_t)snprintf(buf + at, len - at, "%s%s", at ? "|" : "", type_words[i].name);
	}
	return buf;
}

/* ---- parsing ---- */

struct parser {
	const char *text;
	const char *at;
	struct far_err *err;
};

__attribute__((format(printf, 2, 3))) static bool complain(struct parser *p, const char *format, ...)
{
	char what[160];
	va_list args;
	va_start(args, format);
	vsnprintf(what, sizeof what, format, args);
	va_end(args);
	err_set(p->err, FAR_INVALID, "signature \"%.160s\", column %zu: %s", p->text, (size_t)(p->at - p->text) + 1,
		what);
	return false;
}

static bool is_word(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

static bool is_name(char c)
{
	return is_word(c) || c == ':' || c == '.';
}

static void skip_space(struct parser *p)
{
	while (*p->at == ' ' || *p->at == '\t' || *p->at == '\n')
		p->at++;
}

/** What stands at the parser's place, for a message. */
static const char *found(const struct parser *p, char *buf, size_t len)
{
	size_t n = 0;
	if (*p->at == '\0')
		return "the end";
	while (n < 24 && is_word(p->at[n]))
		n++;
	if (n == 0)
		n = 1;
	snprintf(buf, len, "'%.*s'", (int)n, p->at);
	return buf;
}

static bool expect(struct parser *p, const char *token, const char *what)
{
	char buf[40];
	skip_space(p);
	if (strncmp(p->at, token, strlen(token)) != 0)
		return complain(p, "expected %s, found %s", what, found(p, buf, sizeof buf));
	p->at += strlen(token);
	return true;
}

/** A run of characters that `take` accepts, into out[0, cap) with its NUL. */
static bool parse_run(struct parser *p, bool (*take)(char), char *out, size_t cap, const char *what)
{
	char buf[40];
	size_t n = 0;
	skip_space(p);
	while (take(p->at[n]))
		n++;
	if (n == 0)
		return complain(p, "expected %s, found %s", what, found(p, buf, sizeof buf));
	if (n >= cap)
		return complain(p, "%s of %zu characters, at most %zu are possible", what, n, cap - 1);
	memcpy(out, p->at, n);
	out[n] = '\0';
	p->at += n;
	return true;
}

/** A word that is nearly a type, or NULL. */
static const char *near_miss(const char *word)
{
	static const char *const pairs[][2] = {
		{"string", "str"}, {"boolean", "bool"},  {"double", "float"}, {"integer", "int"},
		{"long", "int"},   {"number", "Scalar"}, {"void", "none"},    {"object", "Any"},
	};
	for (size_t i = 0; i < TYPE_WORDS_N; i++)
		if (strcasecmp(word, type_words[i].name) == 0)
			return type_words[i].name;
	for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
		if (strcasecmp(word, pairs[i][0]) == 0)
			return pairs[i][1];
	return NULL;
}

static bool parse_type(struct parser *p, signature_types *types)
{
	char word[SIGNATURE_PARAM_MAX];
	skip_space(p);
	const char *start = p->at;
	if (!parse_run(p, is_word, word, sizeof word, "a type"))
		return false;
	for (size_t i = 0; i < TYPE_WORDS_N; i++) {
		if (strcmp(word, type_words[i].name) == 0) {
			*types = (signature_types)(*types | type_words[i].types);
			return true;
		}
	}
	p->at = start;
	const char *meant = near_miss(word);
	if (meant)
		return complain(p, "unknown type '%s', did you mean %s?", word, meant);
	return complain(p, "unknown type '%s', expected none, bool, int, float, str, bytes, Tensor, Scalar or Any",
			word);
}

static bool parse_types(struct parser *p, signature_types *types)
{
	*types = 0;
	for (;;) {
		if (!parse_type(p, types))
			return false;
		skip_space(p);
		if (*p->at != '|')
			return true;
		p->at++;
	}
}

static bool parse_param(struct parser *p, struct signature *s)
{
	char buf[SIGNATURE_PARAM_MAX];
	skip_space(p);
	if (s->params_n == FAR_ARGS_MAX)
		return complain(p, "more than %d parameters", FAR_ARGS_MAX);
	struct signature_param *param = &s->params[s->params_n];
	if (!parse_types(p, &param->types))
		return false;
	const char *start = p->at;
	if (!parse_run(p, is_word, buf, sizeof buf, "the parameter's name"))
		return false;
	for (unsigned i = 0; i < s->params_n; i++) {
		if (strcmp(s->params[i].name, buf) == 0) {
			p->at = start;
			return complain(p, "a second parameter named '%s'", buf);
		}
	}
	memcpy(param->name, buf, sizeof buf);
	s->params_n++;
	skip_space(p);
	if (*p->at == '=')
		return complain(p, "default values are not supported yet");
	return true;
}

static bool parse_params(struct parser *p, struct signature *s)
{
	char buf[40];
	if (!expect(p, "(", "'('"))
		return false;
	skip_space(p);
	if (*p->at == ')') {
		p->at++;
		return true;
	}
	for (;;) {
		if (!parse_param(p, s))
			return false;
		if (*p->at == ')') {
			p->at++;
			return true;
		}
		if (*p->at != ',')
			return complain(p, "expected ',' or ')', found %s", found(p, buf, sizeof buf));
		p->at++;
	}
}

static void write_canonical(struct signature *s)
{
	char types[64];
	size_t at = (size_t)snprintf(s->text, sizeof s->text, "%s(", s->name);
	for (unsigned i = 0; i < s->params_n; i++)
		at += (size_t)snprintf(s->text + at, sizeof s->text - at, "%s%s", i ? "," : "",
				       signature_types_name(s->params[i].types, types, sizeof types));
	at += (size_t)snprintf(s->text + at, sizeof s->text - at, ")->%s",
			       signature_types_name(s->result, types, sizeof types));
	must(at < sizeof s->text);
	s->name_hash = hash64(s->name, strlen(s->name));
	s->canonical_hash = hash64(s->text, at);
}

/* Every type word and its bar once, for each parameter and the result, beside the name. */
static_assert(SIGNATURE_NAME_MAX + (FAR_ARGS_MAX + 1) * 48 < SIGNATURE_TEXT_MAX, "a canonical text fits");

enum far_status signature_parse(const char *text, struct signature *out, struct far_err *err)
{
	if (!text)
		return err_set(err, FAR_INVALID, "the signature is NULL, expected name(Type a, ...) -> Type");
	struct parser p = {text, text, err};
	struct signature s;
	char buf[40];
	memset(&s, 0, sizeof s);
	if (!parse_run(&p, is_name, s.name, sizeof s.name, "the function's name") || !parse_params(&p, &s) ||
	    !expect(&p, "->", "'-> Type'") || !parse_types(&p, &s.result))
		return FAR_INVALID;
	skip_space(&p);
	if (*p.at != '\0') {
		complain(&p, "expected the end, found %s", found(&p, buf, sizeof buf));
		return FAR_INVALID;
	}
	write_canonical(&s);
	*out = s;
	return FAR_OK;
}

/* ---- checking arguments ---- */

static enum far_status wrong_count(const struct signature *s, size_t n, struct far_err *err)
{
	char list[FAR_ERR_TEXT_MAX];
	char types[64];
	size_t at = 0;
	if (s->params_n == 0)
		return err_set(err, FAR_BAD_ARGS, "%s: takes no arguments, %zu given", s->name, n);
	for (unsigned i = 0; i < s->params_n && at < sizeof list; i++)
		at += (size_t)snprintf(list + at, sizeof list - at, "%s%s %s", i ? ", " : "",
				       signature_types_name(s->params[i].types, types, sizeof types),
				       s->params[i].name);
	/* A long list is cut so that the number given is still seen. */
	return err_set(err, FAR_BAD_ARGS, "%s: takes %u argument%s (%.180s%s), %zu given", s->name, s->params_n,
		       s->params_n == 1 ? "" : "s", list, at > 180 ? "..." : "", n);
}

static enum far_status wrong_type(const struct signature *s, size_t i, const struct far_val *v, struct far_err *err)
{
	static const char *const given[FAR_TYPE_COUNT] = {"none",     "a bool", "an int",  "a float",
							  "a string", "bytes",  "a tensor"};
	const struct signature_param *param = &s->params[i];
	char types[64];
	signature_types_name(param->types, types, sizeof types);
	if (v->type >= FAR_TYPE_COUNT)
		return err_set(err, FAR_BAD_ARGS, "%s: argument %zu (%s) is of the unknown type %u, wanted %s", s->name,
			       i + 1, param->name, v->type, types);
	if (v->type == FAR_TYPE_INT && (param->types & BIT(FAR_TYPE_BOOL)))
		return err_set(err, FAR_BAD_ARGS, "%s: argument %zu (%s) is the int %" PRId64 ", wanted %s or 0 or 1",
			       s->name, i + 1, param->name, v->u.i, types);
	return err_set(err, FAR_BAD_ARGS, "%s: argument %zu (%s) is %s, wanted %s", s->name, i + 1, param->name,
		       given[v->type], types);
}

/** Converts an int where only a float or a bool is taken. */
static bool convert(signature_types types, struct far_val *v)
{
	if (v->type != FAR_TYPE_INT)
		return false;
	int64_t i = v->u.i;
	if (types & BIT(FAR_TYPE_FLOAT)) {
		v->type = FAR_TYPE_FLOAT;
		v->u.f = (double)i;
		return true;
	}
	if ((types & BIT(FAR_TYPE_BOOL)) && (i == 0 || i == 1)) {
		v->type = FAR_TYPE_BOOL;
		v->u.b = i != 0;
		return true;
	}
	return false;
}

enum far_status signature_check(const struct signature *s, const struct far_val *args, size_t n, struct far_val *out,
				struct far_err *err)
{
	if (unlikely(n != s->params_n))
		return wrong_count(s, n, err);
	for (size_t i = 0; i < n; i++) {
		if (unlikely(args[i].kw != NULL))
			return err_set(err, FAR_BAD_ARGS,
				       "%s: keyword argument '%.64s' is not supported yet, pass it by position",
				       s->name, args[i].kw);
		out[i] = args[i];
		if (likely(args[i].type < FAR_TYPE_COUNT && (s->params[i].types & BIT(args[i].type))))
			continue;
		if (!convert(s->params[i].types, &out[i]))
			return wrong_type(s, i, &args[i], err);
	}
	return FAR_OK;
}

bool signature_result_fits(const struct signature *s, const struct far_val *v)
{
	if (s->result == 0)
		return v->type == FAR_TYPE_NONE;
	return v->type < FAR_TYPE_COUNT && (s->result & BIT(v->type)) != 0;
}
