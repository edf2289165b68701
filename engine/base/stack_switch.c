/* SPDX-License-Identifier: BSD-3-Clause */
/* Switches between stacks, in assembly for x86-64 and AArch64, else by ucontext. The thread that runs the flow. */
#include "base/stack_switch.h"

#include "base/must.h"

#include <stdint.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define WITH_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WITH_TSAN 1
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef WITH_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#ifdef WITH_ASAN
#define NO_ASAN __attribute__((no_sanitize_address))
#else
#define NO_ASAN
#endif

/* ---- notification of sanitizers ---- */

static void before(struct stack_context *from, struct stack_context *to)
{
	to->from = from;
#ifdef WITH_ASAN
	__sanitizer_start_switch_fiber(&from->asan_fake, to->low, to->bytes);
#endif
#ifdef WITH_TSAN
	__tsan_switch_to_fiber(to->tsan, 0);
#endif
}

/* Runs on the stack of `me`, right after a switch to it. */
static void after(struct stack_context *me)
{
#ifdef WITH_ASAN
	__sanitizer_finish_switch_fiber(me->asan_fake, &me->from->low, &me->from->bytes);
#else
	(void)me;
#endif
}

__attribute__((noreturn, used)) NO_ASAN static void first_entry(struct stack_context *c)
{
	after(c);
	c->fn(c->arg);
	must_fail("a flow of its own stack never returns", __FILE__, __LINE__);
}

#ifndef FAR_SWITCH_UCONTEXT

/* Saves the registers on the stack, stores the stack pointer at *save, sets it to `sp`, and restores the registers
 * there.
 */
void far__stack_switch(void **save, void *sp);
/* Entry of a new stack: calls the function in one saved register with the argument in another. */
void far__stack_begin(void);

#if defined(__x86_64__)

enum { SAVED_CONTROL, SAVED_R15, SAVED_R14, SAVED_R13, SAVED_R12, SAVED_RBX, SAVED_RBP, SAVED_PC, SAVED_WORDS };
#define SAVED_FN  SAVED_R13
#define SAVED_ARG SAVED_R12

__asm__(".text\n"
	".p2align 4\n"
	".globl far__stack_switch\n"
	".hidden far__stack_switch\n"
	".type far__stack_switch, @function\n"
	"far__stack_switch:\n"
	".cfi_startproc\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	subq $8, %rsp\n"
	"	stmxcsr (%rsp)\n"
	"	fnstcw 4(%rsp)\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	ldmxcsr (%rsp)\n"
	"	fldcw 4(%rsp)\n"
	"	addq $8, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n"
	".cfi_endproc\n"
	".size far__stack_switch, . - far__stack_switch\n"
	".p2align 4\n"
	".globl far__stack_begin\n"
	".hidden far__stack_begin\n"
	".type far__stack_begin, @function\n"
	"far__stack_begin:\n"
	".cfi_startproc\n"
	".cfi_undefined %rip\n" /* unwinding ends here */
	"	xorl %ebp, %ebp\n"
	"	movq %r12, %rdi\n"
	"	callq *%r13\n"
	"	ud2\n"
	".cfi_endproc\n"
	".size far__stack_begin, . - far__stack_begin\n");

static void save_control(void **saved)
{
	uint32_t words[2];
	__asm__ volatile("stmxcsr %0" : "=m"(words[0]));
	__asm__ volatile("fnstcw %0" : "=m"(words[1]));
	memcpy(&saved[SAVED_CONTROL], words, sizeof words);
}

#else /* __aarch64__ */

/* x19–x28, x29, x30, d8–d15, fpcr, one word of padding */
enum { SAVED_X19, SAVED_X20, SAVED_PC = 11, SAVED_CONTROL = 20, SAVED_WORDS = 22 };
#define SAVED_FN  SAVED_X20
#define SAVED_ARG SAVED_X19

__asm__(".text\n"
	".p2align 4\n"
	".globl far__stack_switch\n"
	".hidden far__stack_switch\n"
	".type far__stack_switch, %function\n"
	"far__stack_switch:\n"
	".cfi_startproc\n"
	"	hint #34\n" /* bti c */
	"	sub sp, sp, #176\n"
	"	stp x19, x20, [sp]\n"
	"	stp x21, x22, [sp, #16]\n"
	"	stp x23, x24, [sp, #32]\n"
	"	stp x25, x26, [sp, #48]\n"
	"	stp x27, x28, [sp, #64]\n"
	"	stp x29, x30, [sp, #80]\n"
	"	stp d8, d9, [sp, #96]\n"
	"	stp d10, d11, [sp, #112]\n"
	"	stp d12, d13, [sp, #128]\n"
	"	stp d14, d15, [sp, #144]\n"
	"	mrs x9, fpcr\n"
	"	str x9, [sp, #160]\n"
	"	mov x9, sp\n"
	"	str x9, [x0]\n"
	"	mov sp, x1\n"
	"	ldp x19, x20, [sp]\n"
	"	ldp x21, x22, [sp, #16]\n"
	"	ldp x23, x24, [sp, #32]\n"
	"	ldp x25, x26, [sp, #48]\n"
	"	ldp x27, x28, [sp, #64]\n"
	"	ldp x29, x30, [sp, #80]\n"
	"	ldp d8, d9, [sp, #96]\n"
	"	ldp d10, d11, [sp, #112]\n"
	"	ldp d12, d13, [sp, #128]\n"
	"	ldp d14, d15, [sp, #144]\n"
	"	ldr x9, [sp, #160]\n"
	"	msr fpcr, x9\n"
	"	add sp, sp, #176\n"
	"	ret\n"
	".cfi_endproc\n"
	".size far__stack_switch, . - far__stack_switch\n"
	".p2align 4\n"
	".globl far__stack_begin\n"
	".hidden far__stack_begin\n"
	".type far__stack_begin, %function\n"
	"far__stack_begin:\n"
	".cfi_startproc\n"
	".cfi_undefined x30\n" /* unwinding ends here */
	"	hint #36\n"    /* bti j */
	"	mov x29, xzr\n"
	"	mov x0, x19\n"
	"	blr x20\n"
	"	brk #0\n"
	".cfi_endproc\n"
	".size far__stack_begin, . - far__stack_begin\n");

static void save_control(void **saved)
{
	uint64_t fpcr;
	__asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
	memcpy(&saved[SAVED_CONTROL], &fpcr, sizeof fpcr);
}

#endif

static void machine_make(struct stack_context *c, void *low, size_t bytes)
{
	uintptr_t top = ((uintptr_t)low + bytes) & ~(uintptr_t)15;
	void **saved = (void **)top - SAVED_WORDS;
	memset(saved, 0, SAVED_WORDS * sizeof *saved);
	save_control(saved);
	saved[SAVED_FN] = (void *)(uintptr_t)first_entry;
	saved[SAVED_ARG] = c;
	saved[SAVED_PC] = (void *)(uintptr_t)far__stack_begin;
	c->sp = saved;
}

#define machine_switch(from, to) far__stack_switch(&(from)->sp, (to)->sp)

#else /* FAR_SWITCH_UCONTEXT */

/* makecontext() passes ints only. */
static void ucontext_begin(unsigned high, unsigned low)
{
	first_entry((struct stack_context *)((uintptr_t)high << 16 << 16 | low));
}

static void machine_make(struct stack_context *c, void *low, size_t bytes)
{
	must(getcontext(&c->machine) == 0);
	c->machine.uc_stack.ss_sp = low;
	c->machine.uc_stack.ss_size = bytes;
	c->machine.uc_link = NULL;
	makecontext(&c->machine, (void (*)(void))ucontext_begin, 2, (unsigned)((uintptr_t)c >> 16 >> 16),
		    (unsigned)(uintptr_t)c);
}

#define machine_switch(from, to) must(swapcontext(&(from)->machine, &(to)->machine) == 0)

#endif

void stack_context_make(struct stack_context *c, void *low, size_t bytes, void (*fn)(void *arg), void *arg)
{
	memset(c, 0, sizeof *c);
	c->low = low;
	c->bytes = bytes;
	c->fn = fn;
	c->arg = arg;
	machine_make(c, low, bytes);
#ifdef WITH_TSAN
	c->tsan = __tsan_create_fiber(0);
#endif
}

void stack_context_fini(struct stack_context *c)
{
#ifdef WITH_TSAN
	if (c->tsan)
		__tsan_destroy_fiber(c->tsan);
	c->tsan = NULL;
#else
	(void)c;
#endif
}

void stack_context_here(struct stack_context *c)
{
	c->low = NULL;
	c->bytes = 0;
	c->asan_fake = NULL;
#ifdef WITH_TSAN
	c->tsan = __tsan_get_current_fiber();
#endif
}

NO_ASAN void stack_switch(struct stack_context *from, struct stack_context *to)
{
	before(from, to);
	machine_switch(from, to);
	after(from);
}
