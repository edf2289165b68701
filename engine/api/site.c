/* SPDX-License-Identifier: BSD-3-Clause */
/** Learns call sites, so that the next call by the same name or handle takes the fast path (site.h). Application
 * threads that hold the shard; site_set(): any thread. */
#include "api/site.h"

#include "value/classes.h"

void site_set(struct call_site *site, const struct function *fn, const char *text)
{
	*site = (struct call_site){.fn = fn, .text = text, .size = (uint32_t)strlen(text) + 1};
	memcpy(&site->first, text, site->size < 8 ? site->size : 8);
	site->mask = site->size < 8 ? (UINT64_C(1) << 8 * site->size) - 1 : UINT64_MAX;
}

__attribute__((cold)) struct call_site *site_learn(const struct far_agent *a, struct call_site *site, const char *name,
						   uint64_t cls)
{
	const struct object_class *of = cls ? registry_find_class(&a->registry, cls) : NULL;
	const struct function *fn = !name  ? NULL
				    : !cls ? registry_find(&a->registry, name)
				    : of   ? registry_find_method(&a->registry, of, name)
					   : NULL;
	if (!fn || atomic_load_explicit(&fn->rivals, memory_order_relaxed))
		return NULL;
	site_set(site, fn, fn->signature.name + (of ? strlen(of->name) + 1 : 0));
	site->name = name;
	site->cls = cls;
	return site;
}

size_t site_put_other(struct call_site *site, const struct far_val *args, size_t n, uint8_t *to)
{
	line_learn(&site->form, args, n);
	plan_check(&site->form, &site->fn->signature);
	return line_put(&site->form, args, n, to);
}
