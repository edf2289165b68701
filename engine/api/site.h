/* SPDX-License-Identifier: BSD-3-Clause */
/** Typed calls of functions and methods through call sites (core/plan.h), by the fast path. Application threads that
 * hold the shard. */
#ifndef FAR_API_SITE_H
#define FAR_API_SITE_H

#include "api/fast.h"
#include "core/plan.h"
#include "value/registry.h"

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define TEXT_BY_BYTE 1
#endif
#endif
#if !defined(TEXT_BY_BYTE) && defined(__SANITIZE_ADDRESS__)
#define TEXT_BY_BYTE 1
#elif !defined(TEXT_BY_BYTE)
#define TEXT_BY_BYTE 0
#endif

/** True if bytes behind a text, as many as a name can have, may lie in a page that cannot be read. */
static inline bool site_ends_page(const char *text)
{
	return ((uintptr_t)text & 4095) > 4096 - SIGNATURE_NAME_MAX;
}

/** True if `text` is the site's. May read bytes behind a shorter text, in the same page: site_ends_page() is false. */
static inline bool site_has_text(const struct call_site *site, const char *text)
{
	uint64_t first, last;
	if (TEXT_BY_BYTE)
		return strcmp(text, site->text) == 0;
	memcpy(&first, text, 8);
	memcpy(&last, text + site->last_at, 8);
	if (unlikely(((first ^ site->first) | (last ^ site->last)) & site->mask))
		return false;
	return likely(site->size <= 16) || memcmp(text + 8, site->text + 8, site->size - 16) == 0;
}

/** The same of any text. */
static inline bool site_matches(const struct call_site *site, const char *text)
{
	return site_ends_page(text) ? strcmp(text, site->text) == 0 : site_has_text(site, text);
}

/** Makes a call site of a function, without a form. `text`: its name, or a method's without the class, in `fn`. */
void site_set(struct call_site *site, const struct function *fn, const char *text);

/** Finds the function of a call site that is not known, or whose text changed. NULL: the general code decides. */
struct call_site *site_learn(const struct far_agent *a, struct call_site *site, const char *name, uint64_t cls);

/** The call site of a function; of a method, whose name is not NULL, with the hash of its class. NULL: the general code
 * decides. */
static inline struct call_site *site_of(const struct far_agent *a, struct shard *s, const char *name, uint64_t cls)
{
	struct call_site *site = &s->sites[((uintptr_t)name ^ (uintptr_t)name >> 6 ^ cls) % SHARD_SITES];
	if (likely(FACTOR(SITES) && site->at == name && site->cls == cls + 1 &&
		   !atomic_load_explicit(&site->fn->rivals, memory_order_relaxed) && site_has_text(site, name)))
		return site;
	return site_learn(a, site, name, cls);
}

/** Arguments of another form than those of the site's last call: as line_put(). */
bool site_put_other(struct call_site *site, const struct far_val *args, size_t n, uint8_t *to);

/** Sends a call through fast_session(), of a method: of the object with this count, and returns its future. NULL: the
 * general code decides. */
static inline __attribute__((always_inline)) struct far_future *site_call(struct shard *s, struct session *se,
									  struct call_site *site, uint64_t left,
									  uint32_t object, const struct far_val *args,
									  size_t n)
{
	uint8_t *line = fast_body(se->lane->tx_next);
	if (unlikely(!line_put(&site->form, args, n, line)) && !site_put_other(site, args, n, line))
		return NULL;
	size_t len = site->form.len;
	unsigned there = session_functions(s, se)[site->index], flags = PACKET_TYPED;
	if (unlikely(!there)) /* not known yet at the callee */
		return NULL;
	if (object) {
		if (unlikely(len + sizeof object > FAR_LINE_PAYLOAD))
			return NULL;
		memcpy(line + len, &object, sizeof object);
		len += sizeof object;
		flags |= PACKET_METHOD | PACKET_NAMED;
	}
	struct far_future *f = future_cache_take(&s->futures, s);
	if (unlikely(!f))
		return NULL;
	struct fast_call call = {.done = agent_done_future,
				 .user = f,
				 .what = site->what,
				 .word = (there << 16) + FAST_WORD(PACKET_REQUEST, flags, 0) - FAST_WORD(0, 0, 1),
				 .left = left};
	fast_take(s, se, &call);
	f->call = fast_send(s, se, &call, len);
	return f;
}

/** Polls until the call's future is done. The thread may wait: agent_may_wait_fast(). */
static inline void site_await(struct shard *s, const struct session *se, const struct far_future *f)
{
	struct idler idler = {0};
	shard_flush(s);
	while (!future_done(f))
		agent_fast_poll(s, se, &idler);
}

/** Enters the shard for a call that is waited for, where the thread has none: shard_leave() then, if *entered. false:
 * the general code decides. */
static inline bool site_enter(struct far_agent *a, bool *entered)
{
	*entered = !shard_context_top();
	return !*entered || (a->shards_n == 1 && a->progress == FAR_PROGRESS_SHARED && shard_enter(a->shards[0]));
}

#endif
