/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A store in a file whose file system hangs, as that of a file server that does not answer: calls between members go
 * on, each call of far_store_*(), far_init_rpc() and far_shutdown() ends by its deadline. A filter of the kernel
 * (seccomp) that nobody answers holds every lock of a file in the process.
 */
#include "check.h"

#include <errno.h>
#include <farcall/store.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { CALLS = 200 };

static struct far_err err;
static char url[64] = "file:///tmp/farcall-hang-XXXXXX";

static enum far_status tick(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_return_int(req, 7);
}

static const struct far_function function = {"t::tick() -> int", FAR_KIND_INLINE, tick, NULL, 0};

static enum far_status joins(const char *name, int rank, uint64_t timeout_ns, struct far_agent **agent)
{
	const struct far_opts opts = {.init_method = url,
				      .functions = &function,
				      .functions_n = 1,
				      .security = "none",
				      .lease_ns = 100 * FAR_SEC,
				      .init_timeout_ns = timeout_ns};
	return check_init(name, rank, FAR_WORLD_DYNAMIC, &opts, agent, &err);
}

/* From now on fcntl(F_OFD_SETLK) of all threads does not return. Returns the filter's descriptor; -1: the kernel has no
 * such filter. */
static int hang(void)
{
	static struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_OFD_SETLK, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {sizeof code / sizeof *code, code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
			    SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_TSYNC |
				    SECCOMP_FILTER_FLAG_TSYNC_ESRCH,
			    &program);
}

static void calls(struct far_agent *agent)
{
	struct far_val out;
	for (int i = 0; i < CALLS; i++) {
		CHECK_STATUS(far_rpc_sync(agent, "b", "t::tick", FAR_NOARGS, NULL, &out, &err), FAR_OK, &err);
		CHECK(out.u.i == 7);
	}
}

int main(void)
{
	struct far_agent *a = NULL, *b = NULL, *late = NULL;
	struct far_store *store = NULL, *other = NULL;
	struct far_worker_info info;
	struct far_store_value value;
	const struct far_store_opts opts = {.security = "none"};
	alarm(HANG_GUARD_S);
	CHECK(mkdtemp(url + 7));
	CHECK_STATUS(joins("a", 0, 0, &a), FAR_OK, &err);
	CHECK_STATUS(joins("b", 1, 0, &b), FAR_OK, &err);
	CHECK_STATUS(far_worker_wait(a, "b", FAR_FOREVER, &info, &err), FAR_OK, &err);
	CHECK_STATUS(far_store_of(a, 0, &store, &err), FAR_OK, &err);
	CHECK_STATUS(far_store_set(store, "k", "v", 1, 0, &err), FAR_OK, &err);
	calls(a);
	int filter = hang();
	if (filter < 0) {
		printf("1..0 # SKIP the kernel has no filter of system calls with a listener: %s\n", strerror(errno));
		_exit(77);
	}
	CHECK_STATUS(far_store_set(store, "k", "w", 1, 100 * FAR_MS, &err), FAR_TIMEOUT, &err);
	CHECK_STATUS(far_store_get(store, "k", 100 * FAR_MS, &value, &err), FAR_TIMEOUT, &err);
	CHECK_STATUS(far_store_open(url, &opts, 100 * FAR_MS, &other, &err), FAR_TIMEOUT, &err);
	CHECK_STATUS(joins("late", 2, 200 * FAR_MS, &late), FAR_TIMEOUT, &err);
	calls(a);
	far_store_close(store);
	calls(a);
	CHECK_STATUS(far_shutdown(b, FAR_SEC, &err), FAR_OK, &err);
	CHECK_STATUS(far_shutdown(a, FAR_SEC, &err), FAR_OK, &err);
	close(filter); /* what hangs fails */
	char command[96];
	snprintf(command, sizeof command, "%s/store", url + 7);
	unlink(command);
	snprintf(command, sizeof command, "%s/store.lock", url + 7);
	unlink(command);
	rmdir(url + 7);
	return 0;
}
