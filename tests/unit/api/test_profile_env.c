/* SPDX-License-Identifier: BSD-3-Clause */
/** The profile that FAR_PROFILE wants: its file, in either format, of the last agent that ends. The test's thread. */
#include "own_agent.h"

#include <unistd.h>

TestSuite(api_profile_env, .init = own_dir_make, .fini = own_dir_remove);

static void call(struct far_agent *a, const char *name)
{
	struct far_val out;
	cr_assert_eq(far_rpc_sync(a, name, "far::identity", FAR_ARGS(1), NULL, &out, &err), FAR_OK, "%s", err.text);
}

/* Whether the file is there, and contains a text. */
static bool has(const char *file, const char *part)
{
	static char text[1 << 18];
	char path[96];
	snprintf(path, sizeof path, "%s/%s", top, file);
	FILE *f = fopen(path, "r");
	if (!f)
		return false;
	text[fread(text, 1, sizeof text - 1, f)] = '\0';
	fclose(f);
	return strstr(text, part) != NULL;
}

static void want(const char *file)
{
	char path[96];
	snprintf(path, sizeof path, "%s/%s", top, file);
	setenv("FAR_PROFILE", path, 1);
}

Test(api_profile_env, a_file_for_each_rank)
{
	want("p.json");
	struct far_agent *a = own_begin(NULL);
	call(a, "w0");
	cr_assert_not(has("p.json.0", ""), "before its end");
	own_end(a);
	cr_assert(has("p.json.0", "\"traceEvents\":["));
	cr_assert(has("p.json.0", "rpc_sync#far::identity(w0 -> w0)"));
}

Test(api_profile_env, the_other_format)
{
	want("p.otlp.json");
	struct far_agent *a = own_begin(NULL);
	call(a, "w0");
	own_end(a);
	cr_assert(has("p.otlp.json.0", "{\"resourceSpans\":["));
	cr_assert(has("p.otlp.json.0", "rpc_sync#far::identity(w0 -> w0)"));
}

/* Two agents of a process have one profile, which ends with the last. */
Test(api_profile_env, of_several_agents)
{
	struct far_agent *a, *b;
	want("p");
	a = own_begin(NULL);
	cr_assert_eq(own_join("b1", 1, FAR_WORLD_DYNAMIC, &(struct far_opts){.group = "b"}, &b), FAR_OK, "%s",
		     err.text);
	own_end(a);
	cr_assert_not(has("p.0", ""));
	call(b, "b1");
	own_end(b);
	cr_assert(has("p.1", "far::identity(b1 -> b1)"));
}

/* Without the variable, or with an empty one, nothing is recorded. A file that cannot be written ends nothing. */
Test(api_profile_env, without_a_file)
{
	setenv("FAR_PROFILE", "", 1);
	struct far_agent *a = own_begin(NULL);
	cr_assert_null(a->profile);
	own_end(a);
	want("none/p");
	a = own_begin(NULL);
	call(a, "w0");
	own_end(a);
	cr_assert_not(has("none/p.0", ""));
}
