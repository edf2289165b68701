/* SPDX-License-Identifier: BSD-3-Clause */
/** Watches a thread: its system calls by a filter, its allocations and locks by hooks. */
#include "watch.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "name the architecture's AUDIT_ARCH"
#endif

enum { ANY = -1, RULES_MAX = 16, RULE_CODE = 5, FRAMES = 32 };

/* A system call, with the low word of one of its arguments. */
struct rule {
	uint32_t number;
	int arg;
	uint32_t value;
};

static int report_fd; /* the filter knows it: nothing else may write what is not eight bytes */
static _Thread_local bool is_watched;

bool watched(void)
{
	return is_watched;
}

void watch_print(const char *format, ...)
{
	char text[512];
	bool was = is_watched;
	va_list args;
	is_watched = false;
	va_start(args, format);
	int n = vsnprintf(text, sizeof text, format, args);
	va_end(args);
	ssize_t written = write(report_fd, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
	(void)written;
	is_watched = was;
}

static _Noreturn void end(void)
{
	void *frames[FRAMES];
	is_watched = false;
	backtrace_symbols_fd(frames, backtrace(frames, FRAMES), report_fd);
	_exit(WATCH_STATUS);
}

void watch_refuse(const char *function, size_t bytes)
{
	if (!is_watched)
		return;
	watch_print("clean path: the thread of a shard called %s(%zu)\n", function, bytes);
	end();
}

static void on_refused(int number, siginfo_t *info, void *context)
{
	watch_print("clean path: the thread of a shard made system call %d, which is not on the declared list\n",
		    info->si_syscall);
	end();
}

void watch_init(void)
{
	struct sigaction action = {.sa_sigaction = on_refused, .sa_flags = SA_SIGINFO};
	void *frame;
	report_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	CHECK(report_fd >= 0);
	CHECK(backtrace(&frame, 1) >= 0); /* the first one loads a library */
	CHECK(sigaction(SIGSYS, &action, NULL) == 0);
}

static unsigned add_rules(struct rule *r, bool shared)
{
	/* The declared list of engine/README.md. */
	const struct rule declared[] = {
		{SYS_write, 2, sizeof(uint64_t)}, /* an eventfd */
		{SYS_read, 2, sizeof(uint64_t)},
		{SYS_ppoll, 1, 1},
		{SYS_sched_yield, ANY, 0},
#ifdef SYS_nanosleep
		{SYS_nanosleep, ANY, 0},
#endif
		{SYS_clock_nanosleep, ANY, 0},
		{SYS_clock_gettime, ANY, 0},
		{SYS_futex, 1, FUTEX_WAKE_PRIVATE},
		{SYS_process_vm_readv, 5, 0},
		/* The kernel's own, when a sleep goes on after a stop; this program's. */
		{SYS_restart_syscall, ANY, 0},
		{SYS_write, 0, (uint32_t)report_fd},
		{SYS_writev, 0, (uint32_t)report_fd},
		{SYS_exit_group, ANY, 0},
	};
	unsigned n = sizeof declared / sizeof *declared;
	memcpy(r, declared, sizeof declared);
	if (shared)
		r[n++] = (struct rule){SYS_futex, 1, FUTEX_WAIT_BITSET_PRIVATE};
	return n;
}

/* Falls through to what follows when the call is another one. */
static unsigned add_code(struct sock_filter *code, const struct rule *r)
{
	const struct sock_filter number = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
				 is_it = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, r->number, 0, r->arg == ANY ? 1 : 3),
				 argument = BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						     (uint32_t)offsetof(struct seccomp_data, args) +
							     8u * (uint32_t)r->arg),
				 has_it = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, r->value, 0, 1),
				 allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	unsigned n = 0;
	code[n++] = number;
	code[n++] = is_it;
	if (r->arg != ANY) {
		code[n++] = argument;
		code[n++] = has_it;
	}
	code[n++] = allow;
	return n;
}

void watch_thread(bool shared)
{
	struct rule rules[RULES_MAX];
	struct sock_filter code[4 + RULES_MAX * RULE_CODE] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	unsigned rules_n = add_rules(rules, shared), n = 3;
	if (is_watched)
		return;
	for (unsigned i = 0; i < rules_n; i++)
		n += add_code(&code[n], &rules[i]);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
	struct sock_fprog program = {.len = (unsigned short)n, .filter = code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) {
		watch_print("clean path: this system filters no system calls: %s\n", strerror(errno));
		_exit(WATCH_SKIP);
	}
	is_watched = true;
}

/* ---- what allocates or locks, of the C library ---- */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);
void __libc_free(void *p);
void *memalign(size_t align, size_t bytes);
int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);

void *malloc(size_t bytes)
{
	watch_refuse("malloc", bytes);
	return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
	watch_refuse("calloc", n * bytes);
	return __libc_calloc(n, bytes);
}

void *realloc(void *p, size_t bytes)
{
	watch_refuse("realloc", bytes);
	return __libc_realloc(p, bytes);
}

void *memalign(size_t align, size_t bytes)
{
	watch_refuse("memalign", bytes);
	return __libc_memalign(align, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
	watch_refuse("aligned_alloc", bytes);
	return __libc_memalign(align, bytes);
}

int posix_memalign(void **out, size_t align, size_t bytes)
{
	watch_refuse("posix_memalign", bytes);
	*out = __libc_memalign(align, bytes);
	return *out ? 0 : ENOMEM;
}

void free(void *p)
{
	watch_refuse("free", 0);
	__libc_free(p);
}

/* By the linker, in the library's objects: a lock that is free makes no system call. */
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
	watch_refuse("pthread_mutex_lock", 0);
	return __real_pthread_mutex_lock(mutex);
}
