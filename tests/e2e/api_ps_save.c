/* SPDX-License-Identifier: BSD-3-Clause */
/** Saves, loads, scans and drops of a parameter server: saved = loaded to the bit on 3, 1, 7 and 16 servers, by
 * io_uring and without; partitions are cut between requests; damaged files and a full disk; a client that is killed
 * while it saves. Main thread of each process. */
#include "api_spawn.h"
#include "no_io_uring.h"

#include <dirent.h>
#include <errno.h>
#include <farcall/ps.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum {
	KEYS = 3000,
	DIM = 5,
	CUTS = 200,
	TABLES = 4,
	STATE_MAX = 32,
	WIDE = 600,
	WIDE_DIM = 1024,
	FILES = 5,
	SERVERS = 16
};

/* All of a table, in the order of the scan. */
struct dump {
	size_t n;
	uint64_t keys[KEYS];
	float rows[KEYS * DIM], state[KEYS * STATE_MAX];
};

struct shared {
	_Atomic int step;
	_Atomic int pid;
	int servers; /* of the present group */
	char dir[64];
	struct dump dump[2];
	float wide[WIDE * WIDE_DIM];
};
static struct shared *shared;
static struct far_agent *agent;
static struct far_err err;
static struct far_ps *ps;

static const char *const names[] = {"a/adagrad", "adam", "empty", "wide"};

static void step_reached(int step)
{
	while (atomic_load(&shared->step) < step)
		usleep(1000);
}

static void done(enum far_status started, struct far_future *const *f)
{
	CHECK_STATUS(started, FAR_OK, &err);
	CHECK_STATUS(far_future_wait(*f, 0, NULL, &err), FAR_OK, &err);
	far_future_free(*f);
}

#define BAD(call, want, text)                                                                                          \
	do {                                                                                                           \
		CHECK_STATUS(call, want, &err);                                                                        \
		CHECK_TEXT(&err, text);                                                                                \
	} while (0)

static struct far_ps_schema schema_of(int table)
{
	struct far_ps_schema s = {.dim = DIM, .init = {FAR_PS_INIT_NORMAL, 0, 1, 7}};
	far_ps_rule_defaults(&s.rule, table == 1 ? FAR_PS_ADAM : FAR_PS_ADAGRAD);
	if (table == 1) {
		s.stored = FAR_BF16;
		s.ttl_ms = 3600 * 1000;
	}
	if (table == 2)
		s.dense_rows = 9;
	if (table == 3) {
		s.dim = WIDE_DIM;
		far_ps_rule_defaults(&s.rule, FAR_PS_SGD);
	}
	return s;
}

static struct far_ps_table *open_table(int table)
{
	struct far_ps_table *t;
	CHECK_STATUS(far_ps_table_open(ps, names[table], 0, &t, &err), FAR_OK, &err);
	CHECK(far_ps_table_schema(t)->dense_rows == (table == 2 ? 9 : 0));
	return t;
}

static void fill(void)
{
	static uint64_t keys[KEYS];
	static float grads[KEYS * DIM];
	struct far_future *f;
	for (int table = 0; table < TABLES; table++) {
		struct far_ps_schema schema = schema_of(table);
		struct far_ps_table *t;
		CHECK_STATUS(far_ps_table_create(ps, names[table], &schema, 0, &t, &err), FAR_OK, &err);
		for (int i = 0; i < KEYS; i++) {
			keys[i] = (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15);
			for (int d = 0; d < DIM; d++)
				grads[i * DIM + d] = (float)((i + d) % 11) / 7 - 0.5f;
		}
		grads[0] = 1e30f; /* its square is infinite: state that could not be assigned */
		if (table < 2)
			for (int i = 0; i < 2; i++)
				done(far_ps_push(t, keys, KEYS, grads, NULL, NULL, &f, &err), &f);
		if (table == 3) {
			memset(shared->wide, 0, sizeof shared->wide);
			done(far_ps_push(t, keys, WIDE, shared->wide, NULL, NULL, &f, &err), &f);
			done(far_ps_pull(t, keys, WIDE, NULL, shared->wide, NULL, &f, &err), &f);
		}
		far_ps_table_free(t);
	}
}

/* ---- Scans ---- */

static void scan(int table, struct dump *out)
{
	struct far_ps_table *t = open_table(table);
	unsigned state = far_ps_table_state(t);
	CHECK(state <= STATE_MAX);
	memset(out, 0, sizeof *out);
	for (unsigned p = 0; p < FAR_PS_PARTITIONS;) {
		struct far_ps_rows rows;
		unsigned from = p;
		CHECK_STATUS(far_ps_scan(t, &p, 0, &rows, &err), FAR_OK, &err);
		CHECK(p > from && p <= FAR_PS_PARTITIONS && out->n + rows.n <= KEYS);
		memcpy(out->keys + out->n, rows.keys, rows.n * sizeof *rows.keys);
		memcpy(out->rows + out->n * DIM, rows.rows, rows.n * DIM * sizeof *rows.rows);
		memcpy(out->state + out->n * state, rows.state, rows.n * state * sizeof *rows.state);
		out->n += rows.n;
		for (size_t i = 0; i < rows.n; i++)
			CHECK(table == 1 ? rows.ages_ms[i] < 3600 * 1000 : rows.ages_ms[i] == 0);
		far_ps_rows_free(&rows);
	}
	far_ps_table_free(t);
}

static void check_scan(void)
{
	static struct dump now;
	for (int table = 0; table < 2; table++) {
		scan(table, &now);
		CHECK(now.n == KEYS && memcmp(&now, &shared->dump[table], sizeof now) == 0);
	}
	scan(2, &now);
	CHECK(now.n == 0);
}

static void check_pulls(void)
{
	static float rows[KEYS * DIM];
	static uint8_t status[KEYS];
	struct far_future *f;
	for (int table = 0; table < 2; table++) {
		struct far_ps_table *t = open_table(table);
		done(far_ps_pull(t, shared->dump[table].keys, KEYS, NULL, rows, status, &f, &err), &f);
		CHECK(memcmp(rows, shared->dump[table].rows, sizeof rows) == 0);
		for (int i = 0; i < KEYS; i++)
			CHECK(status[i] == FAR_PS_ROW);
		far_ps_table_free(t);
	}
	static float wide[WIDE * WIDE_DIM];
	static uint64_t keys[WIDE];
	for (int i = 0; i < WIDE; i++)
		keys[i] = (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15);
	struct far_ps_table *t = open_table(3);
	done(far_ps_pull(t, keys, WIDE, NULL, wide, status, &f, &err), &f);
	for (int i = 0; i < WIDE; i++)
		CHECK(status[i] == FAR_PS_ROW);
	CHECK(memcmp(wide, shared->wide, sizeof wide) == 0);
	far_ps_table_free(t);
}

/* Two keys of a partition are pushed together: no scan has one of them alone. */
static void cuts(void)
{
	struct far_ps_schema schema = {.dim = 1};
	struct far_ps_table *t;
	struct far_ps_rows rows;
	uint64_t pair[2] = {0};
	unsigned first = 0, p = 0;
	float grads[] = {1, 1}, last = 1;
	far_ps_rule_defaults(&schema.rule, FAR_PS_SGD);
	CHECK_STATUS(far_ps_table_create(ps, "cuts", &schema, 0, &t, &err), FAR_OK, &err);
	struct far_future *f;
	done(far_ps_push(t, shared->dump[0].keys, 2, (float[]){0, 0}, NULL, NULL, &f, &err), &f);
	/* The first key that shares a partition with another one: neighbours of the dump, by the table's own scan. */
	static float zeros[KEYS];
	done(far_ps_push(t, shared->dump[0].keys, KEYS, zeros, NULL, NULL, &f, &err), &f);
	for (size_t i = 0; i + 1 < KEYS && !pair[1]; i++) {
		uint64_t hash[2];
		for (int k = 0; k < 2; k++) {
			uint64_t x = shared->dump[0].keys[i + (size_t)k];
			x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
			x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
			hash[k] = (x ^ x >> 33) >> 52;
		}
		if (hash[0] != hash[1])
			continue;
		memcpy(pair, shared->dump[0].keys + i, sizeof pair);
		first = (unsigned)hash[0];
	}
	CHECK(pair[1]);
	for (int i = 0; i < CUTS; i++) {
		struct far_future *pushed[4];
		for (int k = 0; k < 4; k++)
			CHECK_STATUS(far_ps_push(t, pair, 2, grads, NULL, NULL, &pushed[k], &err), FAR_OK, &err);
		p = first;
		CHECK_STATUS(far_ps_scan(t, &p, 0, &rows, &err), FAR_OK, &err);
		float seen[2] = {1, 1};
		for (size_t r = 0; r < rows.n; r++)
			for (int k = 0; k < 2; k++)
				if (rows.keys[r] == pair[k])
					seen[k] = rows.rows[r];
		CHECK(seen[0] <= 0 && memcmp(&seen[0], &seen[1], sizeof seen[0]) == 0 && seen[0] <= last);
		last = seen[0];
		far_ps_rows_free(&rows);
		for (int k = 0; k < 4; k++)
			done(FAR_OK, &pushed[k]);
	}
	far_ps_table_free(t);
}

static void drops(void)
{
	char list[FAR_PS_TABLES_MAX][FAR_PS_NAME_MAX];
	struct far_ps_schema schema = {.dim = 2};
	struct far_ps_table *t, *again;
	struct far_ps_rows rows;
	struct far_future *f;
	unsigned p = 0;
	size_t n;
	CHECK_STATUS(far_ps_tables(ps, 0, list, &n, &err), FAR_OK, &err);
	CHECK(n == TABLES + 1 && !strcmp(list[0], names[0]) && !strcmp(list[1], names[1]) && !strcmp(list[2], "cuts") &&
	      !strcmp(list[3], names[2]) && !strcmp(list[4], names[3]));
	CHECK_STATUS(far_ps_table_open(ps, "cuts", 0, &t, &err), FAR_OK, &err);
	CHECK_STATUS(far_ps_table_drop(ps, "cuts", 0, &err), FAR_OK, &err);
	CHECK_STATUS(far_ps_table_drop(ps, "cuts", 0, &err), FAR_GONE, &err);
	CHECK_STATUS(far_ps_scan(t, &p, 0, &rows, &err), FAR_GONE, &err);
	CHECK_STATUS(far_ps_tables(ps, 0, list, &n, &err), FAR_OK, &err);
	CHECK(n == TABLES);
	/* With another schema, and no rows; the old handle's requests are of another table. */
	far_ps_rule_defaults(&schema.rule, FAR_PS_SGD);
	CHECK_STATUS(far_ps_table_create(ps, "cuts", &schema, 0, &again, &err), FAR_OK, &err);
	CHECK_STATUS(far_ps_scan(again, &p, 0, &rows, &err), FAR_OK, &err);
	CHECK(rows.n == 0);
	far_ps_rows_free(&rows);
	CHECK_STATUS(far_ps_push(t, shared->dump[0].keys, 1, (float[]){1, 1}, NULL, NULL, &f, &err), FAR_OK, &err);
	BAD(far_future_wait(f, 0, NULL, &err), FAR_GONE, "it was dropped and made anew");
	far_future_free(f);
	far_ps_table_free(again);
	far_ps_table_free(t);
	CHECK_STATUS(far_ps_table_drop(ps, "cuts", 0, &err), FAR_OK, &err);
	/* Bad calls. */
	BAD(far_ps_table_drop(ps, "", 0, &err), FAR_INVALID, "name");
	BAD(far_ps_tables(ps, 0, list, NULL, &err), FAR_INVALID, "NULL");
	t = open_table(0);
	p = FAR_PS_PARTITIONS;
	BAD(far_ps_scan(t, &p, 0, &rows, &err), FAR_INVALID, "partition is 4096");
	BAD(far_ps_scan(t, NULL, 0, &rows, &err), FAR_INVALID, "NULL");
	far_ps_table_free(t);
}

/* ---- Files ---- */

static const char *in_dir(const char *name)
{
	static char path[2][512];
	static int turn;
	snprintf(path[turn ^= 1], sizeof path[0], "%s/%s", shared->dir, name);
	return path[turn];
}

/* Names of the data files; returns their number. */
static int data_files(char found[8][256])
{
	DIR *dir = opendir(shared->dir);
	int n = 0;
	CHECK(dir);
	for (const struct dirent *e; (e = readdir(dir));)
		if (strstr(e->d_name, ".rows")) {
			CHECK(n < 8);
			snprintf(found[n++], 256, "%s", e->d_name);
		}
	closedir(dir);
	return n;
}

static void remove_dir(void)
{
	DIR *dir = opendir(shared->dir);
	CHECK(dir);
	for (const struct dirent *e; (e = readdir(dir));)
		if (e->d_name[0] != '.')
			CHECK(unlink(in_dir(e->d_name)) == 0);
	closedir(dir);
	CHECK(rmdir(shared->dir) == 0);
}

static void save(void)
{
	struct far_ps_saved saved;
	char found[8][256];
	CHECK_STATUS(far_ps_save(ps, shared->dir, NULL, &saved, &err), FAR_OK, &err);
	CHECK(saved.tables == TABLES && saved.rows == 2 * KEYS + WIDE && saved.bytes > 2 * KEYS * DIM &&
	      !saved.refused);
	CHECK(data_files(found) == FILES && access(in_dir("manifest.new"), F_OK) != 0);
}

/* A byte of a file, from its end on if `at` is negative, changed and brought back. */
static void damaged(const char *name, off_t at, enum far_status want, const char *text)
{
	char list[FAR_PS_TABLES_MAX][FAR_PS_NAME_MAX];
	unsigned char byte, other;
	size_t n;
	int fd = open(in_dir(name), O_RDWR);
	if (at < 0)
		at += lseek(fd, 0, SEEK_END);
	CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
	other = byte ^ 0x40;
	CHECK(pwrite(fd, &other, 1, at) == 1);
	BAD(far_ps_load(ps, shared->dir, NULL, NULL, &err), want, text);
	CHECK(pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
	CHECK_STATUS(far_ps_tables(ps, 0, list, &n, &err), FAR_OK, &err);
	CHECK(n == 0);
}

static void torn(const char *name, const char *text)
{
	struct stat st;
	CHECK(rename(in_dir(name), in_dir("kept")) == 0);
	BAD(far_ps_load(ps, shared->dir, NULL, NULL, &err), FAR_SYSTEM, name);
	CHECK(err.code == ENOENT && mkfifo(in_dir(name), 0600) == 0);
	BAD(far_ps_load(ps, shared->dir, NULL, NULL, &err), FAR_INVALID, "is no regular file");
	CHECK(rename(in_dir("kept"), in_dir(name)) == 0 && stat(in_dir(name), &st) == 0);
	char *bytes = malloc((size_t)st.st_size);
	int fd = open(in_dir(name), O_RDWR);
	CHECK(bytes && fd >= 0 && read(fd, bytes, (size_t)st.st_size) == st.st_size);
	static const off_t cut[] = {1, 8, 100};
	for (int i = 0; i < 3; i++) {
		CHECK(ftruncate(fd, st.st_size - cut[i]) == 0);
		BAD(far_ps_load(ps, shared->dir, NULL, NULL, &err), FAR_INVALID, text);
	}
	CHECK(pwrite(fd, bytes, (size_t)st.st_size, 0) == st.st_size && close(fd) == 0);
	free(bytes);
}

/* Before a load: nothing of these is loaded. */
static void bad_files(void)
{
	char found[8][256];
	CHECK(data_files(found) == FILES);
	damaged("manifest", 0, FAR_INVALID, "none of saved tables");
	damaged("manifest", 8, FAR_UNSUPPORTED, "this library reads version 3");
	damaged("manifest", 24, FAR_INVALID, "torn");
	damaged("manifest", 40, FAR_INVALID, "CRC32C");
	damaged("manifest", -1, FAR_INVALID, "CRC32C");
	damaged(found[0], 8, FAR_INVALID, "CRC32C");
	damaged(found[1], 20000, FAR_INVALID, "CRC32C");
	torn("manifest", "torn");
	torn(found[0], "torn");
	int fd = open(shared->dir, O_RDONLY);
	CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0);
	CHECK_STATUS(far_ps_load(ps, shared->dir, NULL, NULL, &err), FAR_BUSY, &err);
	CHECK(flock(fd, LOCK_SH) == 0);
	CHECK_STATUS(far_ps_save(ps, shared->dir, NULL, NULL, &err), FAR_BUSY, &err);
	close(fd);
	struct far_ps_save_opts opts = {.reserved = {0, 0, 1}};
	BAD(far_ps_load(ps, shared->dir, &opts, NULL, &err), FAR_INVALID, "reserved");
	BAD(far_ps_save(ps, "", NULL, NULL, &err), FAR_INVALID, "empty");
	CHECK_STATUS(far_ps_load(ps, "/no/such/directory", NULL, NULL, &err), FAR_SYSTEM, &err);
	BAD(far_ps_load(ps, "/", NULL, NULL, &err), FAR_SYSTEM, "/: no tables are saved there");
	CHECK_STATUS(far_ps_save(ps, "/no/such/directory", NULL, NULL, &err), FAR_SYSTEM, &err);
}

/* A save that fails leaves what was saved. */
static void full_disk(void)
{
	char before[8][256], after[8][256];
	struct rlimit all, few;
	CHECK(data_files(before) == FILES && getrlimit(RLIMIT_FSIZE, &all) == 0);
	signal(SIGXFSZ, SIG_IGN);
	static const rlim_t limits[] = {30000, 100};
	for (int i = 0; i < 2; i++) {
		few = all;
		few.rlim_cur = limits[i];
		CHECK(setrlimit(RLIMIT_FSIZE, &few) == 0);
		BAD(far_ps_save(ps, shared->dir, NULL, NULL, &err), FAR_RESOURCE, "cannot write");
		CHECK_TEXT(&err, shared->dir);
		CHECK(err.code == EFBIG && setrlimit(RLIMIT_FSIZE, &all) == 0);
		CHECK(data_files(after) == FILES);
	}
	for (int i = 0; i < FILES; i++) {
		bool there = false;
		for (int k = 0; k < FILES; k++)
			there = there || !strcmp(after[i], before[k]);
		CHECK(there);
	}
	CHECK(access(in_dir("manifest.new"), F_OK) != 0);
}

static void load(void)
{
	struct far_ps_saved loaded;
	CHECK_STATUS(far_ps_load(ps, shared->dir, NULL, &loaded, &err), FAR_OK, &err);
	CHECK(loaded.tables == TABLES && loaded.rows == 2 * KEYS + WIDE && loaded.refused == 0);
	BAD(far_ps_load(ps, shared->dir, NULL, NULL, &err), FAR_INVALID, "has 3000 rows already: drop it first");
}

static void drop_all(void)
{
	for (int table = 0; table < TABLES; table++)
		CHECK_STATUS(far_ps_table_drop(ps, names[table], 0, &err), FAR_OK, &err);
}

/* A file system with room for one save, not for a second one beside it. */
static void full_file_system(void)
{
	char all[64], small[80];
	struct stat st;
	snprintf(small, sizeof small, "%s/small", shared->dir);
	CHECK(mkdir(small, 0700) == 0);
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("farcall-ps", small, "tmpfs", 0, "size=4m")) {
		fprintf(stderr, "no file system of its own for a full one: %s\n", strerror(errno));
		CHECK(rmdir(small) == 0);
		return;
	}
	memcpy(all, shared->dir, sizeof all);
	snprintf(shared->dir, sizeof shared->dir, "%.63s", small);
	save();
	CHECK(stat(in_dir("manifest"), &st) == 0);
	ino_t manifest = st.st_ino;
	for (int i = 0; i < 2; i++) {
		char found[8][256];
		BAD(far_ps_save(ps, shared->dir, NULL, NULL, &err), FAR_RESOURCE, "cannot write");
		CHECK_TEXT(&err, shared->dir);
		CHECK(err.code == ENOSPC && data_files(found) == FILES);
		CHECK(stat(in_dir("manifest"), &st) == 0 && st.st_ino == manifest);
		CHECK(access(in_dir("manifest.new"), F_OK) != 0);
	}
	drop_all();
	load();
	check_scan();
	check_pulls();
	memcpy(shared->dir, all, sizeof all);
	CHECK(umount2(small, MNT_DETACH) == 0 && rmdir(small) == 0);
}

/* ---- Groups ---- */

static void serve(int servers)
{
	struct far_ps_server *server;
	const char *list[SERVERS];
	char text[SERVERS][16];
	for (int i = 0; i < servers; i++) {
		snprintf(text[i], sizeof text[i], "worker%d", i);
		list[i] = text[i];
	}
	struct far_ps_serve_opts opts = {.servers = list, .servers_n = (size_t)servers};
	CHECK_STATUS(far_ps_serve(agent, "rows", &opts, &server, &err), FAR_OK, &err);
	step_reached(1);
	CHECK_STATUS(far_ps_server_stop(server, &err), FAR_OK, &err);
	CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
	far_ps_server_free(server);
}

static void first_group(void)
{
	fill();
	for (int table = 0; table < 2; table++)
		scan(table, &shared->dump[table]);
	CHECK(shared->dump[0].n == KEYS && shared->dump[1].n == KEYS);
	int infinite = 0;
	for (int i = 0; i < KEYS * DIM; i++)
		infinite += isinf(shared->dump[0].state[i]) != 0;
	CHECK(infinite == 1);
	check_pulls();
	cuts();
	drops();
	save();
	save();
	full_disk();
	full_file_system();
}

static void next_group(void)
{
	bad_files();
	load();
	check_scan();
	check_pulls();
	if (shared->servers == 7 && !no_io_uring())
		fprintf(stderr, "io_uring could not be taken away\n");
	save();
}

static int together(int rank)
{
	agent = check_join(&(struct far_opts){.shards = rank == 0 && shared->servers == 3 ? 2 : 1});
	if (rank < shared->servers) {
		serve(shared->servers);
		return 0;
	}
	CHECK_STATUS(far_ps_open(agent, "rows", NULL, &ps, &err), FAR_OK, &err);
	if (shared->servers == 3)
		first_group();
	else
		next_group();
	far_ps_close(ps);
	atomic_store(&shared->step, 1);
	CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
	return 0;
}

/* One server; worker 1 saves until it is killed; worker 2 kills it, and loads. */
static int with_killed(int rank)
{
	agent = check_join(NULL);
	if (rank == 0) {
		serve(1);
		return 0;
	}
	CHECK_STATUS(far_ps_open(agent, "rows", NULL, &ps, &err), FAR_OK, &err);
	if (rank == 1) {
		load();
		atomic_store(&shared->pid, getpid());
		for (;;)
			save();
	}
	while (!atomic_load(&shared->pid))
		usleep(1000);
	for (int i = 0; i < 5; i++) /* saves go on */
		check_scan();
	CHECK(kill(atomic_load(&shared->pid), SIGKILL) == 0);
	/* Its lock of the directory goes with it. */
	for (enum far_status s = FAR_BUSY; s == FAR_BUSY;) {
		s = far_ps_save(ps, shared->dir, NULL, NULL, &err);
		CHECK(s == FAR_OK || s == FAR_BUSY);
	}
	drop_all();
	load();
	check_scan();
	far_ps_close(ps);
	atomic_store(&shared->step, 1);
	CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
	return 0;
}

int main(void)
{
	static const int groups[] = {3, 1, 7, SERVERS};
	const char *tmp = getenv("TMPDIR");
	int bad = 0;
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	snprintf(shared->dir, sizeof shared->dir, "%.40s/farcall-ps-XXXXXX", tmp ? tmp : "/tmp");
	CHECK(mkdtemp(shared->dir));
	for (int g = 0; g < 4 && !bad; g++) {
		shared->servers = groups[g];
		atomic_store(&shared->step, 0);
		struct spawned s = spawn(groups[g] + 1, together);
		bad = spawn_wait(&s, -1);
	}
	if (!bad) {
		atomic_store(&shared->step, 0);
		struct spawned s = spawn(3, with_killed);
		bad = spawn_wait(&s, 1);
	}
	remove_dir();
	return bad;
}
