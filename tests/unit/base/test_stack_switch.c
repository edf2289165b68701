/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Flows on stacks of their own: what a switch keeps, on every machine that it is written for. Plain C without the rest
 * of the library, since it is also compiled for machines that are only emulated (stack_switch.sh).
 * The test's thread, and threads that it starts.
 */
#include "base/stack_switch.h"

#include <execinfo.h>
#include <fenv.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__clang__)
#pragma STDC FENV_ACCESS ON
#endif

enum { STACK = 64 << 10, FLOWS = 1000, ROUNDS = 10, ALIVE = 24 };

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                  \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

struct flow {
	struct stack_context context;
	struct stack_context *back;
	char *stack;
	size_t bytes;
	void (*body)(struct flow *f);
	unsigned number;
	uint64_t sum;
	int steps;
	int mode;
};

/* ---- running them ---- */

static void flow_main(void *arg)
{
	struct flow *f = arg;
	f->body(f);
	f->steps = -1;
	stack_switch(&f->context, f->back);
	abort(); /* it has ended */
}

static void flow_new(struct flow *f, size_t bytes, void (*body)(struct flow *f), unsigned number)
{
	memset(f, 0, sizeof *f);
	f->stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(f->stack != MAP_FAILED);
	f->bytes = bytes;
	f->body = body;
	f->number = number;
	/* Any top will do: it is aligned down. */
	stack_context_make(&f->context, f->stack, bytes - number % 64, flow_main, f);
}

static void flow_free(struct flow *f)
{
	stack_context_fini(&f->context);
	munmap(f->stack, f->bytes);
}

static void flow_step(struct flow *f)
{
	struct stack_context here;
	f->back = &here;
	stack_context_here(&here);
	stack_switch(&here, &f->context);
}

static void flow_leave(struct flow *f)
{
	f->steps++;
	stack_switch(&f->context, f->back);
}

/* ---- registers ---- */

static volatile uint64_t seed = 1;

static uint64_t next(uint64_t *x)
{
	*x = *x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *x >> 11;
}

/* More values live across the switch than there are registers to keep them in: every one that the ABI calls
 * callee-saved is used, of both kinds, where the compiler optimises. */
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)

static uint64_t churn(struct flow *f, void (*leave)(struct flow *f))
{
	uint64_t x = seed + f->number;
#define MAKE(i)                                                                                                        \
	uint64_t a##i = next(&x);                                                                                      \
	double d##i = (double)next(&x);
	EACH(MAKE)
	for (int round = 0; round < ROUNDS; round++) {
		leave(f);
#define TURN(i)                                                                                                        \
	a##i = a##i * 3 + (unsigned)round;                                                                             \
	d##i = d##i * 0.5 + (double)round;
		EACH(TURN)
	}
	double d = 0;
	uint64_t a = 0;
#define SUM(i)                                                                                                         \
	a ^= a##i;                                                                                                     \
	d += d##i * (i + 1);
	EACH(SUM)
	uint64_t bits;
	memcpy(&bits, &d, sizeof bits);
	return a ^ bits;
}

static void stay(struct flow *f)
{
	(void)f;
}

static void keeps_registers(struct flow *f)
{
	f->sum = churn(f, flow_leave);
}

static void registers(void)
{
	static struct flow flows[FLOWS];
	for (unsigned i = 0; i < FLOWS; i++)
		flow_new(&flows[i], STACK, keeps_registers, i);
	for (int round = 0; round <= ROUNDS; round++)
		for (unsigned i = 0; i < FLOWS; i++)
			flow_step(&flows[round % 2 ? i : FLOWS - 1 - i]);
	for (unsigned i = 0; i < FLOWS; i++) {
		struct flow alone = {.number = i};
		CHECK(flows[i].steps == -1);
		CHECK(flows[i].sum == churn(&alone, stay));
		flow_free(&flows[i]);
	}
}

/* The driving side keeps its own across the switches too. */
static struct flow partner;

static void partner_main(struct flow *f)
{
	for (;;)
		(void)churn(f, flow_leave);
}

static void step_partner(struct flow *f)
{
	(void)f;
	flow_step(&partner);
}

static void registers_of_the_driver(void)
{
	struct flow me = {.number = 77};
	flow_new(&partner, STACK, partner_main, 5);
	CHECK(churn(&me, step_partner) == churn(&me, stay));
	flow_free(&partner);
}

/* ---- rounding ---- */

static const int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
static volatile double one = 1, three = 3;

static void has_its_rounding(struct flow *f)
{
	CHECK(fegetround() == FE_UPWARD); /* as it was where the flow was made */
	CHECK(fesetround(f->mode) == 0);
	volatile double before = one / three;
	for (int i = 0; i < ROUNDS; i++) {
		flow_leave(f);
		CHECK(fegetround() == f->mode);
		volatile double now = one / three;
		CHECK(now == before);
	}
}

static void rounding(void)
{
	struct flow flows[4];
	CHECK(fesetround(FE_UPWARD) == 0);
	for (unsigned i = 0; i < 4; i++) {
		flow_new(&flows[i], STACK, has_its_rounding, i);
		flows[i].mode = modes[i];
	}
	CHECK(fesetround(FE_TONEAREST) == 0);
	for (int round = 0; round <= ROUNDS; round++)
		for (unsigned i = 0; i < 4; i++) {
			CHECK(fesetround(modes[(i + (unsigned)round) % 4]) == 0);
			flow_step(&flows[i]);
			CHECK(fegetround() == modes[(i + (unsigned)round) % 4]);
		}
	CHECK(fesetround(FE_TONEAREST) == 0);
	for (unsigned i = 0; i < 4; i++) {
		CHECK(flows[i].steps == -1);
		flow_free(&flows[i]);
	}
}

/* ---- stacks ---- */

static void is_aligned(struct flow *f)
{
	struct {
		_Alignas(16) double lanes[4]; /* moved as one by instructions that insist on the alignment */
	} spill = {{1, 2, 3, 4}};
	volatile _Alignas(16) char local[16];
	CHECK(((uintptr_t)&spill & 15) == 0 && ((uintptr_t)local & 15) == 0);
	char text[64];
	flow_leave(f);
	/* Variadic calls with doubles spill vector registers to the stack. */
	snprintf(text, sizeof text, "%.1f %.1f %.1f %.1f", spill.lanes[0], spill.lanes[1], spill.lanes[2],
		 spill.lanes[3]);
	CHECK(strcmp(text, "1.0 2.0 3.0 4.0") == 0);
	f->sum = 1;
}

static void alignment(void)
{
	for (unsigned i = 0; i < 64; i++) {
		struct flow f;
		flow_new(&f, STACK, is_aligned, i);
		flow_step(&f);
		flow_step(&f);
		CHECK(f.sum == 1);
		flow_free(&f);
	}
}

__attribute__((noinline)) static uint64_t deep(struct flow *f, unsigned n)
{
	volatile uint64_t frame[16];
	frame[n % 16] = n;
	if (n == 0) {
		flow_leave(f);
		return 0;
	}
	uint64_t below = deep(f, n - 1);
	return below + frame[n % 16];
}

static void goes_deep(struct flow *f)
{
	f->sum = deep(f, 10000);
	f->sum += deep(f, 10000);
}

static void recursion(void)
{
	struct flow f;
	flow_new(&f, (size_t)16 << 20, goes_deep, 0);
	while (f.steps >= 0)
		flow_step(&f);
	CHECK(f.sum == UINT64_C(10000) * 10001);
	flow_free(&f);
}

static void looks_back(struct flow *f)
{
	void *frames[64];
	int n = backtrace(frames, 64);
	CHECK(n < 64); /* it ends where the stack begins */
	f->sum = (uint64_t)n;
}

static void unwinding(void)
{
	struct flow f;
	flow_new(&f, (size_t)1 << 20, looks_back, 0);
	flow_step(&f);
	CHECK(f.steps == -1);
	flow_free(&f);
}

/* ---- threads ---- */

static void *step_on_thread(void *flow)
{
	flow_step(flow);
	return NULL;
}

/* Each step on a thread of its own, which ends: nothing of it may be left in the flow. */
static void migration(void)
{
	struct flow f, g = {.number = 9};
	flow_new(&f, STACK, keeps_registers, 9);
	for (int round = 0; round <= ROUNDS; round++) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, step_on_thread, &f) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
	}
	CHECK(f.steps == -1 && f.sum == churn(&g, stay));
	flow_free(&f);
}

struct crowd {
	pthread_mutex_t lock;
	struct flow flows[ALIVE];
	bool taken[ALIVE], ended[ALIVE];
};

static void *crowd_main(void *arg)
{
	struct crowd *c = arg;
	for (unsigned i = 0;; i++) {
		struct flow *mine = NULL;
		unsigned at = 0;
		bool left = false;
		pthread_mutex_lock(&c->lock);
		for (unsigned k = 0; k < ALIVE && !mine; k++) {
			at = (i + k) % ALIVE;
			left |= !c->ended[at];
			if (!c->ended[at] && !c->taken[at])
				mine = &c->flows[at];
		}
		if (mine)
			c->taken[at] = true;
		pthread_mutex_unlock(&c->lock);
		if (!mine && !left)
			return NULL;
		if (!mine)
			continue;
		flow_step(mine);
		pthread_mutex_lock(&c->lock);
		c->taken[at] = false;
		c->ended[at] = mine->steps < 0;
		pthread_mutex_unlock(&c->lock);
	}
}

/* Several threads take whichever flow is free, so that each goes through many hands, from inside another flow too. */
static void crowd(void)
{
	static struct crowd c = {.lock = PTHREAD_MUTEX_INITIALIZER};
	pthread_t threads[3];
	for (unsigned i = 0; i < ALIVE; i++)
		flow_new(&c.flows[i], STACK, keeps_registers, i);
	for (int i = 0; i < 3; i++)
		CHECK(pthread_create(&threads[i], NULL, crowd_main, &c) == 0);
	for (int i = 0; i < 3; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	for (unsigned i = 0; i < ALIVE; i++) {
		struct flow alone = {.number = i};
		CHECK(c.flows[i].sum == churn(&alone, stay));
		flow_free(&c.flows[i]);
	}
}

/* ---- flows that run flows ---- */

static void runs_another(struct flow *f)
{
	struct flow inner, alone = {.number = f->number + 1};
	flow_new(&inner, STACK, keeps_registers, f->number + 1);
	while (inner.steps >= 0) {
		flow_step(&inner);
		flow_leave(f);
	}
	f->sum = inner.sum == churn(&alone, stay);
	flow_free(&inner);
}

static void nesting(void)
{
	struct flow f;
	flow_new(&f, STACK, runs_another, 3);
	while (f.steps >= 0)
		flow_step(&f);
	CHECK(f.sum == 1);
	flow_free(&f);
}

int main(void)
{
	static const struct {
		const char *name;
		void (*fn)(void);
	} cases[] = {
		{"registers", registers}, {"the driver's registers", registers_of_the_driver},
		{"rounding", rounding},   {"alignment", alignment},
		{"recursion", recursion}, {"unwinding", unwinding},
		{"migration", migration}, {"crowd", crowd},
		{"nesting", nesting},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		cases[i].fn();
		printf("PASS %s\n", cases[i].name);
		fflush(stdout);
	}
	return 0;
}
