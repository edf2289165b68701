/* SPDX-License-Identifier: BSD-3-Clause */
/** Workers of several ports, and of none in common: which driver a session takes, what is reported, listen and
 * advertise. Main thread of each process; handlers on shard threads. */
#include "api_spawn.h"

#include <ftw.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define ROUNDS 200

static char dirs[2][64];
static struct far_err err;
static _Atomic bool *may_die; /* of both processes of a case: worker 0 has got what it needs of worker 1 */

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	far_reply(req, data, len);
}

static const struct far_msg_handler handlers[] = {{1, FAR_KIND_INLINE, echo, NULL}};

static struct far_opts options(const char *nic)
{
	return (struct far_opts){.nic = nic, .messages = handlers, .messages_n = 1};
}

static void call(struct far_agent *a, struct far_to to, size_t len)
{
	static char sent[1 << 20], got[1 << 20];
	size_t n = 0;
	for (size_t i = 0; i < len; i++)
		sent[i] = (char)(i * 7 + len);
	CHECK_STATUS(far_msg_call(a, to, 1, sent, len, NULL, got, sizeof got, &n, &err), FAR_OK, &err);
	CHECK(n == len && memcmp(sent, got, n) == 0);
}

static void calls(struct far_agent *a, int worker, int shards)
{
	for (int i = 0; i < ROUNDS; i++)
		call(a, (struct far_to){worker, i % shards}, (size_t)(i % 100));
	for (int shard = 0; shard < shards; shard++) {
		call(a, (struct far_to){worker, shard}, 5000);
		call(a, (struct far_to){worker, shard}, 1 << 20);
	}
}

static struct far_worker_info info_of(struct far_agent *a, int rank)
{
	struct far_worker_info info;
	CHECK_STATUS(far_worker_by_rank(a, rank, &info, &err), FAR_OK, &err);
	return info;
}

/* The counters of the published port of this driver. */
static bool stats_of(struct far_agent *a, const char *driver, struct far_nic_stats *out)
{
	for (unsigned i = 0; i < far_nic_ports(a); i++) {
		CHECK_STATUS(far_nic_stats_read(a, i, out, &err), FAR_OK, &err);
		if (strcmp(out->driver, driver) == 0 && !out->only_self)
			return true;
	}
	return false;
}

/* ---- groups of two ---- */

/* Workers without a directory in common cannot have the key that rank 0 makes: it is given. */
static void key_given(void)
{
	setenv("FAR_KEY", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", 1);
}

/* A path that means another directory to the other worker, as in containers that do not share one. */
static void own_directory(int rank)
{
	key_given();
	CHECK(chdir(dirs[rank]) == 0);
	setenv("FAR_RUNTIME_DIR", "runtime", 1);
}

static int two_over(int rank, const struct far_opts *opts, const char *nic, const char *why)
{
	struct far_agent *a = check_join(opts);
	struct far_worker_info info = info_of(a, !rank), self = info_of(a, rank);
	struct far_nic_stats before, after;
	if (strcmp(info.nic, nic) != 0 || (rank == 1 && !strstr(info.nic_why, why))) {
		fprintf(stderr, "worker %d: nic %s (%s), \"%s\"\n", rank, info.nic, info.nic_address, info.nic_why);
		return 1;
	}
	CHECK(strcmp(self.nic, "shm") == 0);
	CHECK(strncmp(info.nic_address, nic, strlen(nic)) == 0);
	CHECK(stats_of(a, nic, &before));
	calls(a, !rank, 1);
	calls(a, rank, 1);
	CHECK(stats_of(a, nic, &after));
	CHECK(strncmp(after.address, nic, strlen(nic)) == 0);
	/* shm counts nothing */
	CHECK(strcmp(nic, "shm") == 0 ||
	      (after.tx_packets >= before.tx_packets + ROUNDS && after.rx_packets >= before.rx_packets + ROUNDS));
	CHECK(far_nic_stats_read(a, far_nic_ports(a), &after, &err) == FAR_INVALID);
	CHECK_TEXT(&err, "no port");
	check_leave(a);
	return 0;
}

static int best_is_shm(int rank)
{
	struct far_opts opts = options("udp,shm");
	return two_over(rank, &opts, "shm", "shm is the best that both have");
}

/* Directories of their own: shm does not lead there. */
static int falls_to_udp(int rank)
{
	struct far_opts opts = options("auto");
	own_directory(rank);
	return two_over(rank, &opts, "udp", "runtime directory");
}

static int one_has_only_udp(int rank)
{
	struct far_opts opts = options(rank ? "shm;udp" : "udp");
	return two_over(rank, &opts, "udp", "shm: the other side has none");
}

/* Calls on oneself need no directory. */
static int without_a_directory(int rank)
{
	struct far_opts opts = options("udp");
	key_given();
	setenv("FAR_RUNTIME_DIR", "/proc/no-such-directory", 1);
	return two_over(rank, &opts, "udp", "udp is the best that both have");
}

static int auto_without_a_directory(int rank)
{
	struct far_opts opts = options(NULL);
	key_given();
	setenv("FAR_RUNTIME_DIR", "/proc/no-such-directory", 1);
	setenv("FAR_LISTEN", "127.0.0.1", 1);
	return two_over(rank, &opts, "udp", "udp is the best that both have");
}

static int shards_of_udp(int rank)
{
	struct far_opts opts = options("udp");
	opts.shards = 2;
	struct far_agent *a = check_join(&opts);
	calls(a, !rank, 2);
	calls(a, rank, 2);
	check_leave(a);
	return 0;
}

/* shm by name, and nothing but that. */
static int nothing_leads_there(int rank)
{
	struct far_opts opts = options("shm");
	struct far_agent *a = NULL;
	own_directory(rank);
	alarm(HANG_GUARD_S);
	CHECK_STATUS(far_init_rpc(check_name(rank), FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &a, &err), FAR_UNREACHABLE,
		     &err);
	CHECK_TEXT(&err, "no NIC leads there: shm runtime/");
	CHECK_TEXT(&err, " on one side, shm runtime/");
	CHECK_TEXT(&err, "is not the directory of that path on this host");
	return 0;
}

static int nothing_in_common(int rank)
{
	struct far_opts opts = options(rank ? "udp" : "shm");
	struct far_agent *a = NULL;
	alarm(HANG_GUARD_S);
	CHECK_STATUS(far_init_rpc(check_name(rank), FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &a, &err), FAR_UNREACHABLE,
		     &err);
	CHECK_TEXT(&err, "no NIC driver is shared");
	CHECK_TEXT(&err, "shm /");
	CHECK_TEXT(&err, "udp 127.0.0.1:");
	return 0;
}

static int with_lazy_sessions(int rank)
{
	struct far_opts opts = options("auto");
	opts.connect = FAR_CONNECT_LAZY;
	own_directory(rank);
	return two_over(rank, &opts, "udp", "runtime directory");
}

/* Worker 1 dies while nobody waits for anything of it, and udp does not report it. A worker that leaves finds out. */
static int idle_death(int rank)
{
	struct far_opts opts = options("udp");
	struct far_agent *a = check_join(&opts);
	call(a, (struct far_to){!rank, 0}, 10);
	if (rank == 1) {
		while (!atomic_load(may_die))
			usleep(1000);
		raise(SIGKILL);
	}
	atomic_store(may_die, true);
	usleep(1500000);
	CHECK_STATUS(far_shutdown(a, FAR_FOREVER, &err), FAR_PEER_LOST, &err);
	CHECK_TEXT(&err, "worker1");
	return 0;
}

/* The callee does not wait for the caller, and its handler is notified all the same. */
static _Atomic int notified;

static void waits(struct far_req *req, const void *data, size_t len, void *user)
{
	struct far_future *f;
	struct far_err e;
	atomic_store(may_die, true);
	CHECK(far_future_create(&f, &e) == FAR_OK);
	if (far_future_wait(f, FAR_FOREVER, NULL, &e) == FAR_CANCELLED)
		notified = 1;
	far_future_free(f);
	far_reply(req, NULL, 0);
}

static int death_of_a_caller(int rank)
{
	static const struct far_msg_handler h[] = {{1, FAR_KIND_INLINE, echo, NULL}, {2, FAR_KIND_FIBER, waits, NULL}};
	struct far_opts opts = {.nic = "udp", .messages = h, .messages_n = 2};
	struct far_agent *a = check_join(&opts);
	if (rank == 1) {
		size_t n;
		char got[8];
		alarm(0);
		if (fork() == 0) { /* a clock that does not run in the worker */
			while (!atomic_load(may_die))
				usleep(1000);
			usleep(700000);
			kill(getppid(), SIGKILL);
			_exit(0);
		}
		far_msg_call(a, (struct far_to){0, 0}, 2, NULL, 0, NULL, got, sizeof got, &n, &err);
		return 1;
	}
	while (!notified)
		usleep(1000);
	CHECK_STATUS(far_shutdown(a, FAR_FOREVER, &err), FAR_PEER_LOST, &err);
	return 0;
}

/* ---- groups of one: what far_init_rpc() refuses ---- */

static void refused(const struct far_opts *opts, enum far_status status, const char *part)
{
	struct far_agent *a = NULL;
	CHECK_STATUS(far_init_rpc("alone", 0, 1, opts, &a, &err), status, &err);
	CHECK_TEXT(&err, part);
	CHECK(!a);
}

static void taken(const struct far_opts *opts)
{
	struct far_agent *a = check_join(opts);
	calls(a, 0, 1);
	check_leave(a);
}

static int alone(int rank)
{
	struct far_opts opts = {.nic = "shm,carrier-pigeon"};
	refused(&opts, FAR_INVALID, "carrier-pigeon");
	opts.nic = "shm,,udp";
	refused(&opts, FAR_INVALID, "entry 2 is empty");
	opts.nic = "shm:private";
	refused(&opts, FAR_INVALID, "shm takes no arguments");
	opts.nic = "auto,udp";
	refused(&opts, FAR_INVALID, "stands alone");
	opts.nic = "shm";
	opts.listen = "127.0.0.1";
	refused(&opts, FAR_INVALID, "listen is \"127.0.0.1\"");
	opts.listen = NULL;
	opts.advertise = "192.0.2.1:7";
	refused(&opts, FAR_INVALID, "advertise is \"192.0.2.1:7\"");
	opts = (struct far_opts){.nic = "udp", .listen = "no-such-interface0"};
	refused(&opts, FAR_UNREACHABLE, "no-such-interface0");
	opts.nic = "auto";
	refused(&opts, FAR_UNREACHABLE, "no-such-interface0");
	opts = (struct far_opts){.checksum = "maybe"};
	refused(&opts, FAR_INVALID, "checksum is \"maybe\"; it can be");
	setenv("FAR_CHECKSUM", "no", 1);
	opts = (struct far_opts){.nic = "udp"};
	refused(&opts, FAR_INVALID, "checksum is \"no\"; it can be");
	unsetenv("FAR_CHECKSUM");
	setenv("FAR_LISTEN", "no-such-interface0", 1);
	opts = (struct far_opts){.nic = NULL};
	refused(&opts, FAR_UNREACHABLE, "no-such-interface0");
	setenv("FAR_NIC", "udp", 1);
	refused(&opts, FAR_UNREACHABLE, "no-such-interface0");
	/* For shm alone it means nothing; what the options say goes before the environment. */
	setenv("FAR_NIC", "shm", 1);
	opts = options(NULL);
	taken(&opts);
	return 0;
}

static int alone_by_options(int rank)
{
	struct far_opts opts = options("udp");
	setenv("FAR_NIC", "carrier-pigeon", 1);
	setenv("FAR_LISTEN", "no-such-interface0", 1);
	opts.listen = "lo";
	taken(&opts);
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

int main(void)
{
	static const struct {
		const char *name;
		int world;
		spawn_main *body;
		bool dies; /* worker 1 */
	} cases[] = {{"best_is_shm", 2, best_is_shm, false},
		     {"falls_to_udp", 2, falls_to_udp, false},
		     {"one_has_only_udp", 2, one_has_only_udp, false},
		     {"without_a_directory", 2, without_a_directory, false},
		     {"auto_without_a_directory", 2, auto_without_a_directory, false},
		     {"shards_of_udp", 2, shards_of_udp, false},
		     {"nothing_leads_there", 2, nothing_leads_there, false},
		     {"nothing_in_common", 2, nothing_in_common, false},
		     {"with_lazy_sessions", 2, with_lazy_sessions, false},
		     {"idle_death", 2, idle_death, true},
		     {"death_of_a_caller", 2, death_of_a_caller, true},
		     {"alone", 1, alone, false},
		     {"alone_by_options", 1, alone_by_options, false}};
	int bad = 0;
	may_die = mmap(NULL, sizeof *may_die, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(may_die != MAP_FAILED);
	unsetenv("FAR_NIC");
	unsetenv("FAR_LISTEN");
	unsetenv("FAR_ADVERTISE");
	unsetenv("FAR_DPDK");
	for (int i = 0; i < 2; i++) {
		snprintf(dirs[i], sizeof dirs[i], "/tmp/far-ports-XXXXXX");
		CHECK(mkdtemp(dirs[i]));
	}
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		atomic_store(may_die, false);
		struct spawned s = spawn(cases[i].world, cases[i].body);
		int failed = spawn_wait(&s, cases[i].dies ? 1 : -1);
		if (failed)
			fprintf(stderr, "%s failed\n", cases[i].name);
		bad |= failed;
	}
	for (int i = 0; i < 2; i++)
		nftw(dirs[i], remove_one, 8, FTW_DEPTH | FTW_PHYS);
	return bad;
}
