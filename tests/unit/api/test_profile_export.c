/* SPDX-License-Identifier: BSD-3-Clause */
/** Files of profiles: every span once, valid texts, lanes on which spans nest, arrows to requests. The test's thread,
 * and fibers of agents that it steps. */
#include "agents_fixture.h"
#include "own_dir.h"

#include <farcall/profile.h>

static struct far_profile *p;

static void setup(void)
{
	own_dir_make();
	cr_assert_eq(far_profile_begin(NULL, &p, &err), FAR_OK, "%s", err.text);
}

static void teardown(void)
{
	far_profile_free(p);
	own_dir_remove();
}

TestSuite(api_profile_export, .init = setup, .fini = teardown);

/* The file's text. */
static const char *written(struct far_agent *a, enum far_profile_format format)
{
	static char text[1 << 16];
	char path[96];
	snprintf(path, sizeof path, "%s/profile", top);
	cr_assert_eq(far_profile_write(p, a, format, path, &err), FAR_OK, "%s", err.text);
	FILE *f = fopen(path, "r");
	text[fread(text, 1, sizeof text - 1, f)] = '\0';
	fclose(f);
	return text;
}

static unsigned count(const char *text, const char *part)
{
	unsigned n = 0;
	while ((text = strstr(text, part)))
		text += strlen(part), n++;
	return n;
}

static void range(const char *name)
{
	cr_assert_eq(far_range_begin(name), FAR_OK);
	cr_assert_eq(far_range_end(), FAR_OK);
}

Test(api_profile_export, no_spans)
{
	cr_assert_str_eq(written(NULL, FAR_PROFILE_CHROME), "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n]}\n");
	cr_assert_str_eq(written(NULL, FAR_PROFILE_OTLP), "{\"resourceSpans\":[\n]}\n");
}

/* What JSON has escapes for, and what is no UTF-8. */
Test(api_profile_export, names)
{
	static const char expected[] = "\"name\":\"a \\\"quoted\\\\\\u000a\\u00e9\\u007f\"";
	range("a \"quoted\\\n\xe9\x7f");
	cr_assert(strstr(written(NULL, FAR_PROFILE_CHROME), expected), "%s", written(NULL, FAR_PROFILE_CHROME));
	cr_assert(strstr(written(NULL, FAR_PROFILE_OTLP), expected), "%s", written(NULL, FAR_PROFILE_OTLP));
}

/* Ranges that nest, or follow each other, share a lane. One that is open beside others that end later has its own. */
Test(api_profile_export, lanes)
{
	struct far_future *f;
	cr_assert_eq(far_range_begin("outer"), FAR_OK);
	range("first");
	range("second");
	cr_assert_eq(far_range_end(), FAR_OK);
	const char *text = written(NULL, FAR_PROFILE_CHROME);
	cr_assert_eq(count(text, "\"ph\":\"X\",\"cat\":\"range\""), 3u, "%s", text);
	cr_assert_eq(count(text, "\"thread_name\""), 1u, "%s", text);
	cr_assert_eq(count(text, "\"process_name\",\"pid\":-1"), 1u, "%s", text);
	cr_assert_eq(far_future_create(&f, &err), FAR_OK);
	cr_assert_eq(far_range_begin("around"), FAR_OK);
	cr_assert_eq(far_range_begin("beyond"), FAR_OK);
	cr_assert_eq(far_range_end_with(f, &err), FAR_OK);
	cr_assert_eq(far_range_end(), FAR_OK);
	cr_assert_eq(count(written(NULL, FAR_PROFILE_CHROME), "\"thread_name\""), 2u, "%s", text);
	struct far_val done = far_int(1);
	cr_assert_eq(far_future_set_value(f, &done, &err), FAR_OK);
	far_future_free(f);
}

static void call(void)
{
	struct far_val out;
	struct far_future *none;
	cr_assert_eq(far_profile_begin(NULL, &p, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_rpc_sync(agents[0], "w1", "far::identity", FAR_ARGS(1), NULL, &out, &err), FAR_OK);
	cr_assert_eq(far_rpc_async_unchecked(agents[0], "w1", "t::none", NULL, 0, NULL, &none, &err), FAR_OK);
	cr_assert_eq(far_future_wait(none, FAR_FOREVER, NULL, &err), FAR_NO_FUNCTION);
	far_future_free(none);
	cr_assert_eq(far_profile_end(p, &err), FAR_OK, "%s", err.text);
}

/* A call and its request. Expect a process for each worker, an arrow, and in OTLP a resource with kind and parent. */
Test(api_profile_export, calls)
{
	struct far_profile *own = p;
	size_t n;
	char part[160];
	agents_begin(2, NULL);
	agents_run(0, call);
	const struct far_span *s = far_profile_spans(p, agents[0], &n);
	cr_assert(n >= 3 && s[0].kind == FAR_SPAN_CALL);
	uint64_t id = s[0].id;
	const char *text = written(agents[0], FAR_PROFILE_CHROME);
	cr_assert(strstr(text, "\"process_name\",\"pid\":0,\"tid\":65536,\"args\":{\"name\":\"w0\"}}"), "%s", text);
	cr_assert(strstr(text, "\"process_name\",\"pid\":1,\"tid\":65536,\"args\":{\"name\":\"w1\"}}"), "%s", text);
	cr_assert(strstr(text, "\"args\":{\"name\":\"calls of w0\"}}"), "%s", text);
	cr_assert_geq(count(text, "{\"ph\":\"s\",\"cat\":\"rpc\""), 1u, "%s", text);
	cr_assert_eq(count(text, "{\"ph\":\"s\",\"cat\":\"rpc\""), count(text, "{\"ph\":\"f\",\"bp\":\"e\""));
	cr_assert(strstr(text, "\"mode\":\"async\""), "%s", text);
	text = written(agents[0], FAR_PROFILE_OTLP);
	cr_assert_eq(count(text, "\"service.name\""), 2u, "%s", text);
	cr_assert_eq(count(text, "\"traceId\""), n, "%s", text);
	cr_assert(strstr(text, "\"status\":{\"code\":2,\"message\":\""), "%s", text);
	const uint8_t *b = (const uint8_t *)&id;
	snprintf(part, sizeof part, "\"parentSpanId\":\"%02x%02x%02x%02x%02x%02x%02x%02x\",\"kind\":2,", b[0], b[1],
		 b[2], b[3], b[4], b[5], b[6], b[7]);
	cr_assert(strstr(text, part), "%s is not in %s", part, text);
	agents_end();
	far_profile_free(p);
	p = own;
}

Test(api_profile_export, what_cannot_be_written)
{
	char path[96];
	snprintf(path, sizeof path, "%s/none/profile", top);
	cr_assert_eq(far_profile_write(p, NULL, FAR_PROFILE_CHROME, path, &err), FAR_SYSTEM);
	cr_assert(strstr(err.text, "cannot write the profile to ") && strstr(err.text, path), "%s", err.text);
	range("r");
	cr_assert_eq(far_profile_write(p, NULL, FAR_PROFILE_OTLP, "/dev/full", &err), FAR_SYSTEM, "no room");
	cr_assert_eq(far_profile_write(p, NULL, (enum far_profile_format)2, path, &err), FAR_INVALID);
	cr_assert_eq(far_profile_write(p, NULL, FAR_PROFILE_OTLP, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_profile_write(NULL, NULL, FAR_PROFILE_OTLP, path, &err), FAR_INVALID);
}
