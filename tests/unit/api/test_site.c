/* SPDX-License-Identifier: BSD-3-Clause */
/** Call sites: which text is theirs, which function they learn. The test's thread. */
#include "agents_fixture.h"
#include "api/site.h"
#include "handlers.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct far_function functions[] = {
	{"t::f(int a) -> int", FAR_KIND_INLINE, handler_twice, NULL},
	{"t::a_function_of_a_longer_name(int a) -> int", FAR_KIND_INLINE, handler_twice, NULL}};

static void setup(void)
{
	const struct far_opts opts = {.functions = functions, .functions_n = 2};
	agents_begin(1, &opts);
}

TestSuite(api_site, .init = setup, .fini = agents_end);

static const struct function *find(const char *name)
{
	const struct function *fn = registry_find(&agents[0]->registry, name);
	cr_assert_not_null(fn);
	return fn;
}

/* Texts of every length, with each byte changed, cut and continued. Expect the very text alone to match. */
Test(api_site, texts)
{
	for (size_t len = 1; len < 40; len++) {
		struct call_site site;
		char text[64], other[64];
		for (size_t i = 0; i < len; i++)
			text[i] = (char)('a' + i % 26);
		text[len] = '\0';
		site_set(&site, find("t::f"), text);
		cr_assert_eq(site.size, len + 1);
		memset(other, '!', sizeof other);
		memcpy(other, text, len + 1);
		cr_assert(site_matches(&site, other), "of %zu bytes", len);
		for (size_t i = 0; i <= len; i++) {
			other[i] ^= 1;
			cr_assert_not(site_matches(&site, other), "of %zu bytes, byte %zu differs", len, i);
			other[i] ^= 1;
		}
	}
}

/* A text at the end of its page, before one that cannot be read. */
Test(api_site, no_byte_of_the_next_page_is_read)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct call_site site;
	cr_assert_neq(two, MAP_FAILED);
	cr_assert_eq(mprotect(two + page, page, PROT_NONE), 0);
	site_set(&site, find("t::f"), "t::a_function_of_a_longer_name");
	cr_assert(site_matches(&site, memcpy(two + page - 31, "t::a_function_of_a_longer_name", 31)));
	cr_assert_not(site_matches(&site, memcpy(two + page - 5, "t::f", 5)));
	cr_assert_not(site_matches(&site, memcpy(two + page - 1, "", 1)));
	munmap(two, 2 * page);
}

/* Expect a function found by its text, another text at the same address too, and none that has overloads. */
Test(api_site, learns_functions)
{
	static char name[64] = "t::f";
	struct shard *s = agents[0]->shards[0];
	struct call_site *site = site_of(agents[0], s, name, 0);
	cr_assert_not_null(site);
	cr_assert(site->fn == find("t::f") && site->name == name && site->cls == 1);
	cr_assert_eq(site_of(agents[0], s, name, 0), site, "the same one again");
	strcpy(name, "t::a_function_of_a_longer_name");
	cr_assert_eq(site_of(agents[0], s, name, 0)->fn, find("t::a_function_of_a_longer_name"));
	strcpy(name, "t::none");
	cr_assert_null(site_of(agents[0], s, name, 0));
	cr_assert_null(site_of(agents[0], s, NULL, 0));
	const struct far_function overload = {"t::f(str a) -> int", FAR_KIND_INLINE, handler_twice, NULL};
	strcpy(name, "t::f");
	cr_assert_not_null(site_of(agents[0], s, name, 0));
	cr_assert_eq(far_register_function(agents[0], &overload, &err), FAR_OK, "%s", err.text);
	cr_assert_null(site_of(agents[0], s, name, 0), "the arguments choose among them");
	cr_assert_null(site_of(agents[0], s, name, 12345), "no class has this hash");
}

/* Names that end before the end of a page, and too near to it to be read by words. Expect each to be found again, a
 * changed one not. */
Test(api_site, names_at_the_end_of_a_page)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct shard *s = agents[0]->shards[0];
	cr_assert_neq(two, MAP_FAILED);
	cr_assert_eq(mprotect(two + page, page, PROT_NONE), 0);
	for (size_t left = 5; left < 2 * SIGNATURE_NAME_MAX; left++) {
		char *name = strcpy(two + page - left, "t::f");
		struct call_site *site = site_of(agents[0], s, name, 0);
		cr_assert_not_null(site);
		cr_assert_eq(site->fn, find("t::f"), "%zu bytes before the end", left);
		site->index = 77; /* learned again it would be another */
		cr_assert(site_of(agents[0], s, name, 0) == site && site->index == 77, "%zu bytes before", left);
		name[3] = 'g';
		cr_assert_null(site_of(agents[0], s, name, 0));
		memset(name, 0, 5);
	}
	munmap(two, 2 * page);
}

/* The site of a function and of its arguments is none of a method of the same text, nor of other arguments. */
Test(api_site, another_class_and_other_arguments)
{
	static const char name[] = "t::f";
	struct shard *s = agents[0]->shards[0];
	struct call_site *site = site_of(agents[0], s, name, 0);
	uint8_t line[FAR_LINE_PAYLOAD];
	float data = 1;
	const struct far_val v = {.type = FAR_TYPE_TENSOR,
				  .u.t = {.data = &data, .dtype = FAR_F32, .ndim = 1, .shape = {1}}};
	cr_assert_not_null(site);
	cr_assert_null(site_learn(agents[0], site, name, 77), "no such class");
	cr_assert_not(site_put_other(site, &v, 1, line), "t::f takes an int: the general code refuses it");
	cr_assert_eq(site->form.n, 0);
}
