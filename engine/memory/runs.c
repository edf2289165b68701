/* SPDX-License-Identifier: BSD-3-Clause */
/* The allocator of page runs. Any thread; one lock, and no system call under it. */
#include "memory/runs.h"

#include "base/limits.h"
#include "base/must.h"
#include "memory/budget.h"
#include "memory/region.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define NONE UINT32_MAX
#define BINS 31u

enum { INSIDE, USED, FREE };

/* Tag of a page: set for the first and last page of a free run and the first page of a used one; INSIDE elsewhere. */
struct page {
	uint32_t pages; /* length of the run */
	uint32_t state;
	uint32_t prev, next; /* of the first page of a free run: neighbours in its list */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Protected by the lock. */
static struct page *table;
static uint64_t *backed; /* bit per page: the page is free and may be backed by memory */
static uint64_t backed_n, used_n, pages_n;
static uint32_t bins[BINS];
static bool failed;

static bool ready(void)
{
	if (likely(table != NULL) || failed)
		return !failed;
	pages_n = region.bytes >> region.page_shift;
	uint64_t bytes = pages_n * sizeof *table + (pages_n / 64 + 1) * sizeof *backed;
	void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	failed = m == MAP_FAILED;
	if (failed)
		return false;
	table = m;
	backed = (uint64_t *)(void *)(table + pages_n);
	for (unsigned i = 0; i < BINS; i++)
		bins[i] = NONE;
	return true;
}

static void *address(uint64_t page)
{
	return region.base + (page << region.page_shift);
}

static uint64_t number(const void *p)
{
	return ((uintptr_t)p - (uintptr_t)region.base) >> region.page_shift;
}

/* ---- backed bits of free pages ---- */

/* Mask of the bits of [at, end) in the word of `at`. */
static uint64_t mask(uint64_t at, uint64_t end)
{
	uint64_t m = ~UINT64_C(0) << (at % 64);
	return end / 64 == at / 64 && end % 64 ? m & ~(~UINT64_C(0) << (end % 64)) : m;
}

static uint64_t next_word(uint64_t at)
{
	return (at / 64 + 1) * 64;
}

static uint64_t backed_count(uint64_t at, uint64_t pages)
{
	uint64_t n = 0, end = at + pages;
	for (; at < end; at = next_word(at))
		n += (uint64_t)__builtin_popcountll(backed[at / 64] & mask(at, end));
	return n;
}

static void backed_set(uint64_t at, uint64_t pages, bool to)
{
	uint64_t end = at + pages;
	backed_n -= backed_count(at, pages);
	backed_n += to ? pages : 0;
	for (; at < end; at = next_word(at))
		backed[at / 64] = to ? backed[at / 64] | mask(at, end) : backed[at / 64] & ~mask(at, end);
}

/* Returns the pages to the system, unless they are registered with a device. Without the lock: the caller owns them. */
static bool purge(uint64_t at, uint64_t pages)
{
	if (!region_purge_begin(address(at), pages << region.page_shift))
		return false;
	bool gone = madvise(address(at), pages << region.page_shift, MADV_DONTNEED) == 0;
	region_purge_end();
	return gone;
}

/* ---- free runs ---- */

static unsigned bin_of(uint64_t pages)
{
	return 63u - (unsigned)__builtin_clzll(pages);
}

static void link_run(uint64_t at, uint64_t pages)
{
	uint32_t *head = &bins[bin_of(pages)];
	table[at + pages - 1] = (struct page){.pages = (uint32_t)pages, .state = FREE};
	table[at] = (struct page){.pages = (uint32_t)pages, .state = FREE, .prev = NONE, .next = *head};
	if (*head != NONE)
		table[*head].prev = (uint32_t)at;
	*head = (uint32_t)at;
}

/* Removes a free run and its tags, which inside a used run would look like a free neighbour. Returns its length. */
static uint64_t unlink_run(uint64_t at)
{
	struct page run = table[at];
	if (run.prev == NONE)
		bins[bin_of(run.pages)] = run.next;
	else
		table[run.prev].next = run.next;
	if (run.next != NONE)
		table[run.next].prev = run.prev;
	table[at + run.pages - 1].state = INSIDE;
	table[at].state = INSIDE;
	return run.pages;
}

static uint64_t link_coalesced(uint64_t at, uint64_t pages)
{
	if (at > region_bottom() && table[at - 1].state == FREE) {
		uint64_t before = table[at - 1].pages;
		at -= before;
		pages += unlink_run(at);
	}
	if (at + pages < pages_n && table[at + pages].state == FREE)
		pages += unlink_run(at + pages);
	link_run(at, pages);
	return at;
}

/* The shortest run of at least `pages` in a list, or NONE. */
static uint32_t best_in(unsigned bin, uint64_t pages)
{
	uint32_t best = NONE;
	for (uint32_t i = bins[bin]; i != NONE; i = table[i].next)
		if (table[i].pages >= pages && (best == NONE || table[i].pages < table[best].pages))
			best = i;
	return best;
}

/* Takes `pages` pages, which are in no list then; or NONE. */
static uint64_t take_free(uint64_t pages)
{
	uint32_t found = NONE;
	for (unsigned bin = bin_of(pages); bin < BINS && found == NONE; bin++)
		found = best_in(bin, pages);
	if (found == NONE)
		return NONE;
	uint64_t rest = unlink_run(found) - pages;
	if (rest)
		link_run(found, rest);
	return found + rest;
}

static uint64_t take_grown(uint64_t pages)
{
	uint64_t bottom = region_bottom(), below = 0;
	if (bottom < pages_n && table[bottom].state == FREE)
		below = table[bottom].pages;
	if (!region_lower(pages - below)) /* no free run was long enough */
		return NONE;
	if (below)
		unlink_run(bottom);
	return bottom + below - pages;
}

static uint64_t take(uint64_t pages)
{
	uint64_t at = pages <= pages_n ? take_free(pages) : NONE;
	return at == NONE && pages <= pages_n ? take_grown(pages) : at;
}

/* Cuts an aligned run of `pages` out of the `got` pages at `at`, and frees the rest. */
static uint64_t trim(uint64_t at, uint64_t got, uint64_t pages, uint64_t align)
{
	uintptr_t a = (uintptr_t)address(at);
	uint64_t lead = (((a + align - 1) & ~(uintptr_t)(align - 1)) - a) >> region.page_shift;
	uint64_t tail = got - lead - pages;
	if (tail)
		link_coalesced(at + lead + pages, tail);
	if (lead)
		link_coalesced(at, lead);
	return at + lead;
}

/* Clears the backed bits of a free run, whose pages were returned to the system. */
static void forget(uint64_t at, uint64_t pages)
{
	budget_give(backed_count(at, pages) << region.page_shift);
	backed_set(at, pages, false);
}

/* Returns the lowest free run to the gap if its pages are not backed, or are too many to retain and are purged. */
static void give_back_lowest(uint64_t at)
{
	uint64_t pages = table[at].pages;
	if (at != region_bottom())
		return;
	bool kept = backed_count(at, pages) > 0;
	if (kept && pages << region.page_shift <= budget_retained_max())
		return;
	unlink_run(at);
	if (kept) {
		pthread_mutex_unlock(&lock);
		bool gone = purge(at, pages);
		pthread_mutex_lock(&lock);
		if (gone)
			forget(at, pages);
		if (!gone || at != region_bottom()) {
			link_coalesced(at, pages);
			return;
		}
	}
	region_raise(pages);
}

void runs_free(void *p, size_t bytes)
{
	uint64_t at = number(p), pages = bytes >> region.page_shift;
	must(region_holds(p) && pages > 0 && pages <= pages_n - at && pages << region.page_shift == bytes &&
	     at << region.page_shift == (uintptr_t)p - (uintptr_t)region.base);
	pthread_mutex_lock(&lock);
	must(at >= region_bottom() && used_n >= pages && table[at].state != FREE);
	table[at].state = INSIDE;
	used_n -= pages;
	bool keep = (backed_n + pages) << region.page_shift <= budget_retained_max();
	if (!keep) {
		pthread_mutex_unlock(&lock);
		keep = !purge(at, pages); /* locked memory (mlockall) and registered memory stay */
		if (!keep)
			budget_give(bytes);
		pthread_mutex_lock(&lock);
	}
	if (keep)
		backed_set(at, pages, true);
	give_back_lowest(link_coalesced(at, pages));
	pthread_mutex_unlock(&lock);
}

/* Frees a run that the budget refused, and returns its backed pages to the system. */
static void put_back(uint64_t at, uint64_t pages, uint64_t fresh)
{
	bool gone = purge(at, pages);
	if (gone)
		budget_give((pages - fresh) << region.page_shift);
	else
		budget_force(fresh << region.page_shift);
	pthread_mutex_lock(&lock);
	table[at].state = INSIDE;
	used_n -= pages;
	backed_set(at, pages, !gone);
	give_back_lowest(link_coalesced(at, pages));
	pthread_mutex_unlock(&lock);
}

static uint64_t find_backed(void)
{
	for (unsigned bin = 0; table && bin < BINS; bin++)
		for (uint32_t i = bins[bin]; i != NONE; i = table[i].next)
			if (backed_count(i, table[i].pages))
				return i;
	return NONE;
}

/* Returns retained pages to the system; false: there were none. */
static bool give_retained(void)
{
	bool any = false, gone = true;
	pthread_mutex_lock(&lock);
	for (uint64_t at; gone && (at = find_backed()) != NONE;) {
		uint64_t pages = unlink_run(at);
		pthread_mutex_unlock(&lock);
		gone = purge(at, pages);
		pthread_mutex_lock(&lock);
		if (gone)
			forget(at, pages);
		any |= gone;
		give_back_lowest(link_coalesced(at, pages));
	}
	pthread_mutex_unlock(&lock);
	return any;
}

/* Allocates a run of `pages` at a multiple of `align`, or NONE; `*fresh`: its pages that are not backed. */
static uint64_t take_run(uint64_t pages, size_t align, uint64_t *fresh)
{
	size_t page = (size_t)1 << region.page_shift;
	uint64_t got = align > page ? pages + (align >> region.page_shift) - 1 : pages;
	pthread_mutex_lock(&lock);
	uint64_t at = ready() ? take(got) : NONE;
	if (at != NONE) {
		if (align > page)
			at = trim(at, got, pages, align);
		*fresh = pages - backed_count(at, pages);
		backed_set(at, pages, false);
		used_n += pages;
		table[at] = (struct page){.pages = (uint32_t)pages, .state = USED};
	}
	pthread_mutex_unlock(&lock);
	return at;
}

void *runs_alloc(size_t bytes, size_t align, bool *zeroed)
{
	if (region_reserve(NULL) != FAR_OK || bytes > region.bytes || align > region.bytes)
		return NULL;
	uint64_t pages = (bytes + ((size_t)1 << region.page_shift) - 1) >> region.page_shift, fresh = 0;
	for (;;) {
		uint64_t at = take_run(pages, align, &fresh);
		if (at == NONE) {
			budget_refuse();
			return NULL;
		}
		if (budget_take_pages(address(at), pages << region.page_shift, fresh << region.page_shift)) {
			if (zeroed)
				*zeroed = fresh == pages;
			return address(at);
		}
		put_back(at, pages, fresh);
		if (!give_retained())
			return NULL;
	}
}

size_t runs_size(const void *p)
{
	size_t bytes = 0;
	if (!region_holds(p) || ((uintptr_t)p - (uintptr_t)region.base) & (((size_t)1 << region.page_shift) - 1))
		return 0;
	pthread_mutex_lock(&lock);
	if (table && number(p) >= region_bottom() && table[number(p)].state == USED)
		bytes = (size_t)table[number(p)].pages << region.page_shift;
	pthread_mutex_unlock(&lock);
	return bytes;
}

static void free_totals(uint64_t *pages, uint64_t *runs)
{
	*pages = *runs = 0;
	for (unsigned bin = 0; table && bin < BINS; bin++)
		for (uint32_t i = bins[bin]; i != NONE; i = table[i].next) {
			*pages += table[i].pages;
			++*runs;
		}
}

void runs_stats(struct runs_stats *out)
{
	uint64_t pages;
	pthread_mutex_lock(&lock);
	free_totals(&pages, &out->free_runs);
	out->used = used_n << region.page_shift;
	out->retained = backed_n << region.page_shift;
	out->free = pages << region.page_shift;
	pthread_mutex_unlock(&lock);
}

/* Walks from the bottom by the tags. A used run has no tag at its end, so it is walked page by page. */
static bool tags_agree(void)
{
	uint64_t at = region_bottom(), free_pages = 0, free_runs = 0, want_pages, want_runs;
	bool before_free = false;
	free_totals(&want_pages, &want_runs);
	while (at < pages_n) {
		if (table[at].state != FREE) {
			before_free = false;
			if (backed_count(at, 1))
				return false;
			at++;
			continue;
		}
		uint64_t pages = table[at].pages;
		if (before_free || pages == 0 || pages > pages_n - at || table[at + pages - 1].pages != pages ||
		    table[at + pages - 1].state != FREE)
			return false;
		free_pages += pages;
		free_runs++;
		before_free = true;
		at += pages;
	}
	return free_pages == want_pages && free_runs == want_runs && used_n == pages_n - region_bottom() - free_pages &&
	       backed_n == backed_count(0, pages_n);
}

bool runs_sane(void)
{
	pthread_mutex_lock(&lock);
	bool sane = !table || tags_agree();
	pthread_mutex_unlock(&lock);
	return sane;
}
