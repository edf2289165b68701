/* SPDX-License-Identifier: BSD-3-Clause */
#include "interleave.h"
#include "value/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

/* No future here holds a tree. */
void tree_fini(struct far_buf *b)
{
	(void)b;
}

enum { STEPS_MAX = 400, STACK_BYTES = 256 * 1024 };

enum run_state { RUNNABLE, ASLEEP, ENDED };

struct thread {
	ucontext_t context;
	enum run_state state;
	const void *sleeps_on;
	void (*body)(void);
};

/* A choice: which of the threads that can go on goes on. */
struct choice {
	int taken, options;
	int thread;
	const char *step;
};

static struct thread threads[THREADS_MAX];
static _Alignas(64) char stacks[THREADS_MAX][STACK_BYTES];
static ucontext_t scheduler;
static struct choice path[STEPS_MAX];
static int depth, self = -1;
static const char *violation, *next_step[THREADS_MAX];

int interleave_self(void)
{
	return self;
}

static void yield_here(void)
{
	swapcontext(&threads[self].context, &scheduler);
}

void interleave_hook(const char *step)
{
	if (self < 0)
		return;
	next_step[self] = step;
	yield_here();
}

void interleave_violated(const char *what)
{
	violation = what;
	if (self < 0)
		return;
	threads[self].state = ENDED;
	yield_here();
}

void interleave_sleep(const void *word, bool equal)
{
	if (!equal)
		return;
	threads[self].state = ASLEEP;
	threads[self].sleeps_on = word;
	next_step[self] = "(woken)";
	yield_here();
}

void interleave_wake(const void *word)
{
	for (int i = 0; i < THREADS_MAX; i++)
		if (threads[i].state == ASLEEP && threads[i].sleeps_on == word)
			threads[i].state = RUNNABLE;
}

static void thread_main(void)
{
	threads[self].body();
	threads[self].state = ENDED;
	yield_here();
}

static void start_thread(int i, void (*body)(void))
{
	struct thread *t = &threads[i];
	t->body = body;
	t->state = body ? RUNNABLE : ENDED;
	next_step[i] = "(start)";
	if (!body)
		return;
	getcontext(&t->context);
	t->context.uc_stack.ss_sp = stacks[i];
	t->context.uc_stack.ss_size = STACK_BYTES;
	t->context.uc_link = NULL;
	makecontext(&t->context, thread_main, 0);
}

/* The threads that may go on, the last one first: to leave it while it can go on is a preemption. */
static int options_of(int last, int preemptions, int *options)
{
	int n = 0;
	bool goes_on = last >= 0 && threads[last].state == RUNNABLE;
	if (goes_on)
		options[n++] = last;
	for (int i = 0; i < THREADS_MAX && !(goes_on && preemptions == 0); i++)
		if (i != last && threads[i].state == RUNNABLE)
			options[n++] = i;
	return n;
}

static void check_end(const struct scenario *s)
{
	for (int i = 0; i < THREADS_MAX; i++)
		if (threads[i].state == ASLEEP)
			violation = "a thread sleeps for ever";
	if (!violation)
		s->check();
}

static void run_schedule(const struct scenario *s)
{
	int last = -1, preemptions = s->preemptions, options[THREADS_MAX], n;
	violation = NULL;
	s->setup();
	for (int i = 0; i < THREADS_MAX; i++)
		start_thread(i, s->threads[i]);
	int at = 0;
	for (; !violation && (n = options_of(last, preemptions, options)) > 0; at++) {
		if (at == STEPS_MAX) {
			violation = "too many steps";
			break;
		}
		if (at == depth)
			path[depth++].taken = 0;
		struct choice *c = &path[at];
		c->options = n;
		c->thread = options[c->taken];
		c->step = next_step[c->thread];
		if (last >= 0 && c->thread != last && threads[last].state == RUNNABLE)
			preemptions--;
		self = last = c->thread;
		swapcontext(&scheduler, &threads[self].context);
		self = -1;
	}
	if (!violation)
		check_end(s);
}

static void show_schedule(const struct scenario *s)
{
	fprintf(stderr, "%s: %s, after\n", s->name, violation);
	for (int i = 0; i < depth; i++)
		fprintf(stderr, "  thread %d: %s\n", path[i].thread, path[i].step);
}

uint64_t interleave_search(const struct scenario *s, bool show, bool *violated)
{
	uint64_t schedules = 0;
	depth = 0;
	for (;;) {
		run_schedule(s);
		schedules++;
		*violated = violation != NULL;
		if (violation) {
			if (show)
				show_schedule(s);
			return schedules;
		}
		while (depth && path[depth - 1].taken + 1 >= path[depth - 1].options)
			depth--;
		if (!depth)
			return schedules;
		path[depth - 1].taken++;
	}
}
