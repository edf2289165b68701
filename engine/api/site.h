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

/** True if `text` is the site's. May read bytes behind a shorter text, in the same page. */
static inline bool site_matches(const struct call_site *site, const char *text)
{
	size_t size = site->size;
	uint64_t x, y;
	if (TEXT_BY_BYTE || unlikely(((uintptr_t)text & 4095) > 4096 - SIGNATURE_NAME_MAX))
		return strcmp(text, site->text) == 0;
	memcpy(&x, text, 8);
	if (unlikely((x ^ site->first) & site->mask))
		return false;
	if (likely(size > 8)) {
		memcpy(&x, text + size - 8, 8);
		memcpy(&y, site->text + size - 8, 8);
		if (unlikely(x != y || (size > 16 && memcmp(text + 8, site->text + 8, size - 16) != 0)))
			return false;
	}
	return true;
}

/** Makes a call site of a function, without a form. `text`: its name, or a method's without the class, in `fn`. */
void site_set(struct call_site *site, const struct function *fn, const char *text);

/** Finds the function of a call site that is not known, or whose text changed. NULL: the general code decides. */
struct call_site *site_learn(const struct far_agent *a, struct call_site *site, const char *name, uint64_t cls);

/** The call site of a function; of a method, with the hash of its class. NULL: the general code decides. */
static inline struct call_site *site_of(const struct far_agent *a, struct shard *s, const char *name, uint64_t cls)
{
	struct call_site *site = &s->sites[((uintptr_t)name ^ (uintptr_t)name >> 6 ^ cls) % SHARD_SITES];
	if (likely(FACTOR(SITES) && site->name == name && name && site->cls == cls &&
		   !atomic_load_explicit(&site->fn->rivals, memory_order_relaxed) && site_matches(site, name)))
		return site;
	return site_learn(a, site, name, cls);
}

/** Arguments of another form than those of the site's last call: as line_put(). */
size_t site_put_other(struct call_site *site, const struct far_val *args, size_t n, uint8_t *to);

/** Sends a call through fast_session(), of a method: of the object with this count, and returns its future. NULL: the
 * general code decides. */
static inline __attribute__((always_inline)) struct far_future *site_call(struct shard *s, struct session *se,
									  struct call_site *site, uint64_t left,
									  uint32_t object, const struct far_val *args,
									  size_t n)
{
	uint8_t *line = fast_body(se->lane->tx_next);
	size_t len = line_put(&site->form, args, n, line);
	if (unlikely(!len) && !(len = site_put_other(site, args, n, line)))
		return NULL;
	unsigned there = session_functions(s, se)[site->fn->index], flags = PACKET_TYPED;
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
				 .kind = CALL_FUTURE | CALL_TYPED,
				 .word = FAST_WORD(PACKET_REQUEST, flags, there - 1),
				 .fn = (uint16_t)site->fn->index,
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
