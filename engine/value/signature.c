/* SPDX-License-Identifier: BSD-3-Clause */
/** Parses signatures and writes them as text. Any thread. */
#include "value/signature.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/must.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#define BIT(type)    ((signature_types)(1u << (type)))
#define TYPES_SCALAR (BIT(FAR_TYPE_BOOL) | BIT(FAR_TYPE_INT) | BIT(FAR_TYPE_FLOAT))
#define TYPES_ANY    ((BIT(FAR_TYPE_COUNT) - 1) & ~BIT(FAR_TYPE_CUSTOM))

static_assert(FAR_TYPE_COUNT <= 16, "a set of types has 16 bits");

/* In the order of canonical texts: a set is written with the first entries that cover it. */
static const struct {
	const char *name;
	signature_types types;
} type_words[] = {
	{"Tensor", BIT(FAR_TYPE_TENSOR)}, {"Scalar", TYPES_SCALAR},     {"float", BIT(FAR_TYPE_FLOAT)},
	{"int", BIT(FAR_TYPE_INT)},       {"bool", BIT(FAR_TYPE_BOOL)}, {"str", BIT(FAR_TYPE_STRING)},
	{"bytes", BIT(FAR_TYPE_BYTES)},   {"List", BIT(FAR_TYPE_LIST)}, {"Dict", BIT(FAR_TYPE_DICT)},
	{"rref", BIT(FAR_TYPE_RREF)},     {"none", BIT(FAR_TYPE_NONE)},
};
#define TYPE_WORDS_N (sizeof type_words / sizeof type_words[0])

/* A text in a buffer of `len` bytes, cut at its end. `at`: length without the cut. */
struct text {
	char *buf;
	size_t len, at;
};

__attribute__((format(printf, 2, 3))) static void append(struct text *t, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int n = t->at < t->len ? vsnprintf(t->buf + t->at, t->len - t->at, format, args) : 0;
	va_end(args);
	t->at += n > 0 ? (size_t)n : 0;
}

/** The custom type of the set that follows `last` in alphabetical order; NULL: none. */
static const char *next_custom(const struct signature *s, uint16_t customs, const char *last)
{
	const char *next = NULL;
	for (unsigned i = 0; i < s->customs_n; i++) {
		const char *name = s->customs[i].name;
		if ((customs >> i & 1) && (!last || strcmp(name, last) > 0) && (!next || strcmp(name, next) < 0))
			next = name;
	}
	return next;
}

static void append_set(struct text *t, const struct signature *s, struct signature_set set)
{
	const char *bar = "", *custom = NULL;
	if (set.types == TYPES_ANY && set.customs == SIGNATURE_CUSTOMS_ALL) {
		append(t, "Any");
		return;
	}
	if (set.tensor) {
		append(t, "Tensor<%s", far_dtype_name((enum far_dtype)(set.tensor & 0xff)));
		append(t, set.tensor >> 8 ? ",%u>" : ">", (set.tensor >> 8) - 1u);
		bar = "|";
	}
	for (size_t i = 0; i < TYPE_WORDS_N && set.types; i++) {
		if ((set.types & type_words[i].types) != type_words[i].types)
			continue;
		set.types = (signature_types)(set.types & ~type_words[i].types);
		append(t, "%s%s", bar, type_words[i].name);
		bar = "|";
	}
	while ((custom = next_custom(s, set.customs, custom))) {
		append(t, "%s%s", bar, custom);
		bar = "|";
	}
}

const char *signature_set_name(const struct signature *s, struct signature_set set, char *buf, size_t len)
{
	struct text t = {buf, len, 0};
	if (len > 0)
		buf[0] = '\0';
	append_set(&t, s, set);
	return buf;
}

static void append_default(struct text *t, const struct signature *s, const struct signature_default *d)
{
	switch ((enum far_type)d->type) {
	case FAR_TYPE_BOOL:
		append(t, "=%s", d->u.b ? "true" : "false");
		break;
	case FAR_TYPE_INT:
		append(t, "=%" PRId64, d->u.i);
		break;
	case FAR_TYPE_FLOAT:
		append(t, "=%.9g", d->u.f);
		break;
	case FAR_TYPE_STRING:
		append(t, "=\"%s\"", s->strings + d->at);
		break;
	default:
		append(t, "=none");
		break;
	}
}

const char *signature_show(const struct signature *s, char *buf, size_t len)
{
	struct text t = {buf, len, 0};
	append(&t, "%s(", s->name);
	for (unsigned i = 0; i < s->params_n; i++) {
		append(&t, "%s", i ? ", " : "");
		append_set(&t, s, s->params[i].set);
		append(&t, " %s", s->params[i].name);
		if (s->params[i].def.given)
			append_default(&t, s, &s->params[i].def);
	}
	append(&t, ") -> ");
	append_set(&t, s, s->result);
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

static bool is_type(char c)
{
	return is_word(c) || c == ':';
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

/** The word at the parser's position, for an error text. */
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

static bool parse_token(struct parser *p, const char *token, const char *what)
{
	char buf[40];
	skip_space(p);
	if (strncmp(p->at, token, strlen(token)) != 0)
		return complain(p, "expected %s, found %s", what, found(p, buf, sizeof buf));
	p->at += strlen(token);
	return true;
}

/** Copies the run of characters that `take` accepts to out[0, cap), with a NUL. */
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

/** The type that a misspelled word means, or NULL. */
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

/** Adds a custom type to the signature and to the set. */
static bool parse_custom(struct parser *p, struct signature *s, const char *word, struct signature_set *set)
{
	unsigned i = 0;
	while (i < s->customs_n && strcmp(s->customs[i].name, word) != 0)
		i++;
	if (i == SIGNATURE_CUSTOMS_MAX)
		return complain(p, "more than %d custom types", SIGNATURE_CUSTOMS_MAX);
	if (i == s->customs_n) {
		memcpy(s->customs[i].name, word, strlen(word) + 1);
		s->customs[i].hash = hash64(word, strlen(word));
		s->customs_n++;
	}
	set->customs = (uint16_t)(set->customs | 1u << i);
	return true;
}

/** What follows "Tensor<": a dtype and, behind a comma, a rank. */
static bool parse_tensor(struct parser *p, struct signature_set *set)
{
	char word[16], *end;
	unsigned dtype = FAR_DTYPE_NONE + 1, rank = 0;
	skip_space(p);
	const struct parser start = *p;
	if (!parse_run(p, is_word, word, sizeof word, "a dtype, as f32"))
		return false;
	while (dtype < FAR_DTYPE_COUNT && strcmp(far_dtype_name((enum far_dtype)dtype), word) != 0)
		dtype++;
	*p = dtype < FAR_DTYPE_COUNT ? *p : start;
	if (dtype == FAR_DTYPE_COUNT)
		return complain(p, "unknown dtype '%s', expected one of far_dtype_name(), as f32 or i64", word);
	skip_space(p);
	if (*p->at == ',') {
		p->at++;
		if (!parse_run(p, is_word, word, sizeof word, "a rank"))
			return false;
		unsigned long n = strtoul(word, &end, 10);
		if (*end || n > FAR_DIMS_MAX)
			return complain(p, "the rank is '%s', expected a number up to %d", word, FAR_DIMS_MAX);
		rank = (unsigned)n + 1;
	}
	uint16_t tensor = (uint16_t)(dtype | rank << 8);
	if (set->tensor && set->tensor != tensor)
		return complain(p, "two kinds of Tensor<...>; use Tensor, or an overload for each");
	set->tensor = tensor;
	return parse_token(p, ">", "'>'");
}

static bool parse_type(struct parser *p, struct signature *s, struct signature_set *set)
{
	char word[SIGNATURE_TYPE_MAX];
	skip_space(p);
	const char *start = p->at;
	if (!parse_run(p, is_type, word, sizeof word, "a type"))
		return false;
	if (strcmp(word, "Tensor") == 0 && *p->at == '<') {
		p->at++;
		return parse_tensor(p, set);
	}
	if (strcmp(word, "Any") == 0) {
		set->types = TYPES_ANY;
		set->customs = SIGNATURE_CUSTOMS_ALL;
		return true;
	}
	for (size_t i = 0; i < TYPE_WORDS_N; i++) {
		if (strcmp(word, type_words[i].name) == 0) {
			set->types = (signature_types)(set->types | type_words[i].types);
			return true;
		}
	}
	if (strchr(word, ':'))
		return parse_custom(p, s, word, set);
	p->at = start;
	const char *meant = near_miss(word);
	if (meant)
		return complain(p, "unknown type '%s', did you mean %s?", word, meant);
	return complain(
		p,
		"unknown type '%s', expected none, bool, int, float, str, bytes, Tensor, Scalar, List, Dict, Any "
		"or a custom one, as in geo::Polygon",
		word);
}

static bool parse_set(struct parser *p, struct signature *s, struct signature_set *set)
{
	memset(set, 0, sizeof *set);
	for (;;) {
		if (!parse_type(p, s, set))
			return false;
		skip_space(p);
		if (set->types & BIT(FAR_TYPE_TENSOR)) /* "Tensor" includes it */
			set->tensor = 0;
		if (*p->at != '|')
			return true;
		p->at++;
	}
}

/* ---- defaults ---- */

static bool parse_string(struct parser *p, struct signature *s, struct signature_default *d)
{
	const char quote = *p->at++;
	d->type = FAR_TYPE_STRING;
	d->at = (uint16_t)s->strings_n;
	while (*p->at != quote) {
		char c = *p->at;
		if (c == '\\') {
			if (p->at[1] == '\0' || !strchr("\"'\\nt", p->at[1]))
				return complain(p, "expected \\\", \\', \\\\, \\n or \\t");
			p->at++;
			c = *p->at == 'n' ? '\n' : *p->at == 't' ? '\t' : *p->at;
		}
		if (*p->at == '\0')
			return complain(p, "expected the %c that ends the string, found the end", quote);
		if (s->strings_n + 1 >= sizeof s->strings)
			return complain(p, "default strings of more than %d bytes together", SIGNATURE_STRINGS_MAX);
		s->strings[s->strings_n++] = c;
		p->at++;
	}
	p->at++;
	d->len = (uint16_t)(s->strings_n - d->at);
	s->strings[s->strings_n++] = '\0';
	return true;
}

static bool parse_number(struct parser *p, struct signature_default *d, const char *word)
{
	char *end;
	errno = 0;
	if (!strpbrk(word, ".eEnN")) { /* inf and nan contain n */
		d->type = FAR_TYPE_INT;
		d->u.i = strtoll(word, &end, 10);
	} else {
		d->type = FAR_TYPE_FLOAT;
		d->u.f = strtod(word, &end);
		if (isinf(d->u.f) == 0 && errno == ERANGE)
			errno = 0; /* underflow */
	}
	if (end == word || *end != '\0')
		return complain(p, "expected a value, one of none, true, false, a number or a \"string\"");
	return errno == 0 || complain(p, "the number '%s' is too large", word);
}

/** Converts the default to a type of the parameter, or fails. */
static bool default_fits(struct parser *p, const struct signature *s, const struct signature_param *param,
			 struct signature_default *d)
{
	char types[128];
	signature_types wanted = param->set.types;
	if (wanted >> d->type & 1)
		return true;
	if (d->type == FAR_TYPE_INT && (wanted & BIT(FAR_TYPE_FLOAT))) {
		d->type = FAR_TYPE_FLOAT;
		d->u.f = (double)d->u.i;
		return true;
	}
	return complain(p, "the default is of type %s, the parameter takes %s", far_type_name((enum far_type)d->type),
			signature_set_name(s, param->set, types, sizeof types));
}

static bool is_number(char c)
{
	return is_word(c) || c == '.' || c == '-' || c == '+';
}

static bool parse_default(struct parser *p, struct signature *s, struct signature_param *param)
{
	char word[48];
	struct signature_default *d = &param->def;
	p->at++;
	skip_space(p);
	struct parser start = *p;
	if (*p->at == '"' || *p->at == '\'') {
		if (!parse_string(p, s, d))
			return false;
	} else {
		if (!parse_run(p, is_number, word, sizeof word, "a value"))
			return false;
		if (strcmp(word, "none") == 0) {
			d->type = FAR_TYPE_NONE;
		} else if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0) {
			d->type = FAR_TYPE_BOOL;
			d->u.b = word[0] == 't';
		} else if (!parse_number(&start, d, word)) {
			return false;
		}
	}
	d->given = true;
	return default_fits(&start, s, param, d);
}

static bool parse_param(struct parser *p, struct signature *s)
{
	char buf[SIGNATURE_PARAM_MAX];
	skip_space(p);
	if (s->params_n == FAR_ARGS_MAX)
		return complain(p, "more than %d parameters", FAR_ARGS_MAX);
	struct signature_param *param = &s->params[s->params_n];
	if (!parse_set(p, s, &param->set))
		return false;
	struct parser start = *p;
	if (!parse_run(p, is_word, buf, sizeof buf, "the parameter's name"))
		return false;
	for (unsigned i = 0; i < s->params_n; i++)
		if (strcmp(s->params[i].name, buf) == 0)
			return complain(&start, "a second parameter named '%s'", buf);
	memcpy(param->name, buf, sizeof buf);
	s->params_n++;
	skip_space(p);
	if (*p->at == '=') {
		if (!parse_default(p, s, param))
			return false;
		skip_space(p);
	} else if (s->required_n + 1 < s->params_n) {
		return complain(&start, "parameter '%s' without a default after one with", buf);
	} else {
		s->required_n = s->params_n;
	}
	return true;
}

static bool parse_params(struct parser *p, struct signature *s)
{
	char buf[40];
	if (!parse_token(p, "(", "'('"))
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

static bool write_canonical(struct parser *p, struct signature *s)
{
	struct text t = {s->text, sizeof s->text, 0};
	append(&t, "%s(", s->name);
	for (unsigned i = 0; i < s->params_n; i++) {
		append(&t, "%s", i ? "," : "");
		append_set(&t, s, s->params[i].set);
	}
	append(&t, ")");
	s->params_len = t.at;
	append(&t, "->");
	append_set(&t, s, s->result);
	if (t.at >= sizeof s->text)
		return complain(p, "its types take more than %d bytes", SIGNATURE_TEXT_MAX);
	s->name_hash = hash64(s->name, strlen(s->name));
	s->canonical_hash = hash64(s->text, t.at);
	return true;
}

enum far_status signature_parse(const char *text, struct signature *out, struct far_err *err)
{
	if (!text)
		return err_set(err, FAR_INVALID, "the signature is NULL, expected name(Type a, ...) -> Type");
	struct parser p = {text, text, err};
	struct signature s;
	char buf[40];
	memset(&s, 0, sizeof s);
	if (!parse_run(&p, is_name, s.name, sizeof s.name, "the function's name") || !parse_params(&p, &s) ||
	    !parse_token(&p, "->", "'-> Type'") || !parse_set(&p, &s, &s.result))
		return FAR_INVALID;
	skip_space(&p);
	if (*p.at != '\0') {
		complain(&p, "expected the end, found %s", found(&p, buf, sizeof buf));
		return FAR_INVALID;
	}
	if (!write_canonical(&p, &s))
		return FAR_INVALID;
	*out = s;
	return FAR_OK;
}
