/* SPDX-License-Identifier: BSD-3-Clause */
/** Learns call sites, so that the next call by the same name or handle takes the fast path (site.h). Application
 * threads that hold the shard; site_set(): any thread. */
#include "api/site.h"

#include "value/classes.h"

void site_set(struct call_site *site, const struct function *fn, const char *text)
{
	*site = (struct call_site){.fn = fn,
				   .text = text,
				   .size = (uint32_t)strlen(text) + 1,
				   .index = fn->index,
				   .what = FAST_WHAT(fn->index, CALL_FUTURE | CALL_TYPED)};
	uint32_t word = site->size < 8 ? site->size : 8;
	site->last_at = site->size - word;
	memcpy(&site->first, text, word);
	memcpy(&site->last, text + site->last_at, word);
	site->mask = UINT64_MAX >> (64 - 8 * word);
}

__attribute__((cold)) struct call_site *site_learn(const struct far_agent *a, struct call_site *site, const char *name,
						   uint64_t cls)
{
	if (FACTOR(SITES) && name && site->name == name && site->cls == cls + 1 && site_matches(site, name) &&
	    !atomic_load_explicit(&site->fn->rivals, memory_order_relaxed))
		return site; /* its text ends a page */
	const struct object_class *of = cls ? registry_find_class(&a->registry, cls) : NULL;
	const struct function *fn = !name  ? NULL
				    : !cls ? registry_find(&a->registry, name)
				    : of   ? registry_find_method(&a->registry, of, name)
					   : NULL;
	if (!fn || atomic_load_explicit(&fn->rivals, memory_order_relaxed))
		return NULL;
	site_set(site, fn, fn->signature.name + (of ? strlen(of->name) + 1 : 0));
	site->at = site_ends_page(name) ? (const char *)site : name;
	site->name = name;
	site->cls = cls + 1;
	return site;
}

bool site_put_other(struct call_site *site, const struct far_val *args, size_t n, uint8_t *to)
{
	line_learn(&site->form, args, n);
	plan_check(&site->form, &site->fn->signature);
	return line_put(&site->form, args, n, to);
}
