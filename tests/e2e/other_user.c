/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Another user of the host, nobody, against root's group: takes its empty seat, joins in place of a member that is
 * there, writes to its store, reads its key, reaches its sockets. All of it is refused, and the group's calls and its
 * end are as without him. Needs root; the exit status is 77 without.
 * Main thread of each process; handlers on shard threads.
 */
#include "base/clock.h"
#include "base/random.h"
#include "check.h"
#include "control/store.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define NOBODY  65534
#define WORLD   3
#define SEAT    2
#define JOIN_NS (4 * FAR_SEC)
#define CALLS   200

static char dirs[] = "/tmp/farcall-users-XXXXXX";
static char root_dir[64], nobody_dir[64];
static uint16_t port;
static int ready[2], go[2]; /* members report that they have joined; they go on when the other end is closed */

static void store_socket(void)
{
	char number[16];
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 64) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
	port = ntohs(at.sin_port);
	snprintf(number, sizeof number, "%d", fd);
	setenv("FAR_STORE_FD", number, 1);
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	snprintf(number, sizeof number, "%u", (unsigned)port);
	setenv("MASTER_PORT", number, 1);
}

/* ---- root's members ---- */

static _Atomic unsigned served; /* calls of the members of this group, and of nobody else */

static enum far_status serve(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val one = far_int(1);
	served++;
	return far_return(req, &one);
}

static pid_t member(int rank)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid)
		return pid;
	char byte = 1;
	struct far_err err;
	struct far_agent *agent;
	struct far_function f = {.signature = "users::serve() -> int", .kind = FAR_KIND_INLINE, .fn = serve};
	struct far_opts opts = {.functions = &f, .functions_n = 1};
	close(go[1]);
	if (rank)
		unsetenv("FAR_STORE_FD");
	alarm(HANG_GUARD_S);
	CHECK_STATUS(far_init_rpc(check_name(rank), rank, WORLD, &opts, &agent, &err), FAR_OK, &err);
	CHECK(write(ready[1], &byte, 1) == 1);
	CHECK(read(go[0], &byte, 1) == 0);
	for (int i = 0; i < CALLS * WORLD; i++) {
		struct far_val out;
		CHECK_STATUS(far_rpc_sync(agent, check_name(i % WORLD), "users::serve", NULL, 0, NULL, &out, &err),
			     FAR_OK, &err);
		far_val_fini(&out);
	}
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_OK, &err);
	CHECK(served == CALLS * WORLD);
	_exit(0);
}

/* ---- nobody ---- */

static void joins_as(const char *name, int rank, const char *security, const char *part)
{
	struct far_err err;
	struct far_agent *agent;
	struct far_opts opts = {.init_timeout_ns = JOIN_NS, .security = security};
	CHECK_STATUS(far_init_rpc(name, rank, WORLD, &opts, &agent, &err), FAR_DENIED, &err);
	CHECK_TEXT(&err, part);
}

static void seat(int rank)
{
	setenv("FAR_RUNTIME_DIR", root_dir, 1);
	setenv("FAR_NIC", "udp", 1); /* shm refuses that directory first */
	joins_as(check_name(rank), rank, NULL, root_dir);
	setenv("FAR_RUNTIME_DIR", nobody_dir, 1);
	joins_as(check_name(rank), rank, NULL, "was not found in");
	joins_as(check_name(rank), rank, "none", "requires its group's key");
	setenv("FAR_KEY", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", 1);
	joins_as(check_name(rank), rank, NULL, "has another key than worker");
	unsetenv("FAR_KEY");
}

static int own_key(void *ctx, struct auth_key *out)
{
	memset(out, 7, sizeof *out);
	return 0;
}

static void store_answered(void *user, int result, const struct store_msg *reply)
{
	int *answer = user;
	*answer = result ? result : reply->status == STORE_DENIED ? -EACCES : 1;
}

/* One request on a connection of its own. */
static void store_refuses(enum store_op op, const char *key, bool with_key)
{
	struct ctl_net *net = ctl_net_os_create();
	struct store_client *c = store_client_create(store_stream_tcp(net, "127.0.0.1", port));
	struct store_login login = {
		.who = {.rank = STORE_RANK_NONE}, .random = &random_kernel, .key = with_key ? own_key : NULL};
	struct store_msg m = {.op = op,
			      .key = (const uint8_t *)key,
			      .key_len = strlen(key),
			      .value = (const uint8_t *)"x",
			      .value_len = op == STORE_SET};
	int answer = 0;
	uint64_t now = clock_now(&clock_monotonic), until = now + JOIN_NS;
	store_client_login(c, &login);
	CHECK(store_client_submit(c, &m, now, until, store_answered, &answer) == 0);
	while (!answer && clock_now(&clock_monotonic) < until + FAR_SEC) {
		bool busy = false;
		uint64_t next = store_client_step(c, clock_now(&clock_monotonic), &busy);
		if (!busy)
			net->ops->wait(net, next);
	}
	CHECK(answer == (with_key ? -EKEYREJECTED : -ENOKEY));
	store_client_destroy(c);
	net->ops->destroy(net);
}

static void store(void)
{
	static const char *const keys[] = {"default/rank/2", "default/rank/1", "default/info/0", "default/abort"};
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		for (int with_key = 0; with_key < 2; with_key++) {
			store_refuses(STORE_DELETE, keys[i], with_key);
			store_refuses(STORE_SET, keys[i], with_key);
			store_refuses(STORE_GET, keys[i], with_key);
		}
}

static void files(void)
{
	CHECK(opendir(root_dir) == NULL && errno == EACCES);
	CHECK(chdir(root_dir) < 0 && errno == EACCES);
}

/* As nobody, in a process of its own. */
static void attack(void (*what)(int rank), int rank)
{
	int status;
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		close(go[1]);
		unsetenv("FAR_STORE_FD");
		CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0 && geteuid() == NOBODY);
		alarm(HANG_GUARD_S);
		what(rank);
		store();
		files();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void remove_all(void)
{
	char command[96];
	snprintf(command, sizeof command, "rm -rf %s", dirs);
	CHECK(system(command) == 0);
}

int main(void)
{
	pid_t pids[WORLD];
	char byte;
	if (geteuid() != 0) {
		printf("SKIP: another user: missing right: root\n");
		return 77;
	}
	CHECK(mkdtemp(dirs) && chmod(dirs, 0711) == 0);
	snprintf(root_dir, sizeof root_dir, "%s/root", dirs);
	snprintf(nobody_dir, sizeof nobody_dir, "%s/nobody", dirs);
	CHECK(mkdir(root_dir, 0700) == 0 && mkdir(nobody_dir, 0700) == 0 && chown(nobody_dir, NOBODY, NOBODY) == 0);
	setenv("FAR_RUNTIME_DIR", root_dir, 1);
	CHECK(pipe(ready) == 0 && pipe(go) == 0);
	store_socket();
	pids[0] = member(0);
	pids[1] = member(1);
	attack(seat, SEAT);
	pids[SEAT] = member(SEAT);
	for (int i = 0; i < WORLD; i++)
		CHECK(read(ready[0], &byte, 1) == 1);
	for (int rank = 1; rank < WORLD; rank++)
		attack(seat, rank);
	close(go[1]);
	for (int i = 0; i < WORLD; i++) {
		int status;
		CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0);
	}
	remove_all();
	printf("nobody was refused everything, and the group of root ended as it should\n");
	return 0;
}
