/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A forger without the key, who has seen every control message: as user nobody, where this is root. He sends thousands
 * of them to the ports of both members of a udp group, as they were and changed: of a group before it with the same key
 * and ports, and of this one, while it joins, calls and leaves. No call fails, no session is made or ended, nothing is
 * sent to him, and no answer to a copy is longer than that. Then he connects to the sockets of a shm group, whose
 * directory this test opens to him. All in a network namespace of its own; skipped where that is not to be had.
 * Main thread of each process; handlers on shard threads.
 */
#include "../nic/netns.h"
#include "base/crc32c.h"
#include "check.h"
#include "core/packet.h"
#include "handlers.h"
#include "nic/shm/shm_control.h"
#include "nic/shm/shm_layout.h"
#include "transport/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#define NOBODY      65534
#define FORGER_PORT 7499
#define PORT(rank)  (7401 + (rank))
#define HEAD        (unsigned)sizeof(struct wire_message)

enum {
	MEMBERS = 2,
	KEPT_MAX = 4096,
	PACKET_MAX = 640,
	ROUND = 16,
	FORGED_MIN = 6000,
	DROPPED_MIN = 1000,
	REFUSED_MIN = 500,
	DRAWN_KEPT = 64,
	NOTES = 200
};

struct packet {
	uint32_t len;
	uint8_t bytes[PACKET_MAX];
};

static struct shared {
	_Atomic unsigned ready, stop, quit;
	_Atomic uint64_t calls[MEMBERS], refused[MEMBERS], dropped[MEMBERS];
	_Atomic uint64_t forged, answers; /* sent by the forger; received by him */
	_Atomic unsigned kept_n;
	struct packet kept[KEPT_MAX]; /* of members, by the observer */
} * shared;
static struct far_err err;
static char dir[] = "/tmp/farcall-forger-XXXXXX";

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* A member that has failed has said why; who waits for it ends, too. */
static void check_none_failed(void)
{
	siginfo_t ended = {0};
	if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid)
		CHECK(ended.si_code == CLD_EXITED && ended.si_status == 0);
}

/* ---- the members ---- */

/* Since `before`: for want of a proof, and all that was dropped. */
static void counters(struct far_agent *a, int rank, uint64_t before[2])
{
	struct far_nic_stats s;
	uint64_t refused = 0, all = 0;
	for (unsigned i = 0; i < far_nic_ports(a); i++) {
		CHECK_STATUS(far_nic_stats_read(a, i, &s, &err), FAR_OK, &err);
		refused += s.refused;
		all += s.refused + s.unknown_connection_drops + s.handshake_backlog_drops + s.rx_malformed +
		       s.crc_errors;
	}
	if (!before[1]) {
		before[0] = refused;
		before[1] = all + 1;
	}
	atomic_store(&shared->refused[rank], refused - before[0]);
	atomic_store(&shared->dropped[rank], all + 1 - before[1]);
}

static int member(int rank, const char *driver)
{
	static const struct far_function function = {"forger::echo(int x) -> int", FAR_KIND_INLINE, handler_echo, NULL};
	char nic[32];
	uint64_t before[2] = {0};
	struct far_agent *a;
	struct far_val out;
	struct far_opts opts = {.functions = &function, .functions_n = 1, .peer_limit_ns = 30 * FAR_SEC};
	/* Each packet is to be seen by itself. */
	snprintf(nic, sizeof nic, strcmp(driver, "udp") ? "%s" : "%s:port=%d,gso=0", driver, PORT(rank));
	opts.nic = nic;
	alarm(HANG_GUARD_S);
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	setenv("MASTER_PORT", "7400", 1);
	setenv("FAR_KEY", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", 1);
	CHECK_STATUS(far_init_rpc(check_name(rank), rank, MEMBERS, &opts, &a, &err), FAR_OK, &err);
	counters(a, rank, before);
	atomic_fetch_add(&shared->ready, 1);
	for (int64_t i = 0; !atomic_load(&shared->stop); i++) {
		CHECK_STATUS(far_rpc_sync(a, check_name(!rank), "forger::echo", FAR_ARGS(i), NULL, &out, &err), FAR_OK,
			     &err);
		CHECK(out.u.i == i);
		far_val_fini(&out);
		atomic_fetch_add(&shared->calls[rank], 1);
		counters(a, rank, before);
	}
	check_leave(a);
	return 0;
}

static pid_t start(int rank, const char *driver)
{
	fflush(NULL);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	_exit(member(rank, driver));
}

static void group_start(pid_t pids[MEMBERS], const char *driver)
{
	atomic_store(&shared->ready, 0);
	atomic_store(&shared->stop, 0);
	for (int i = 0; i < MEMBERS; i++) {
		atomic_store(&shared->calls[i], 0);
		atomic_store(&shared->refused[i], 0);
		atomic_store(&shared->dropped[i], 0);
		pids[i] = start(i, driver);
	}
}

static void ended_well(pid_t pid)
{
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	if (status)
		fprintf(stderr, "status %d, signal %d\n", WEXITSTATUS(status), WTERMSIG(status));
	CHECK(status == 0);
}

/* ---- the observer: control messages of the members ---- */

static int tap;
static struct {
	uint64_t drawn; /* CHALLENGE, REFUSED, WRONG_QUEUE, RESET */
	unsigned of[WIRE_KINDS];
} seen;

static void tap_open(void)
{
	/* UDP, not of the forger, and kind is PING or above: of IP without options. */
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 9),  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 5),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 20), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FORGER_PORT, 3, 0),
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 29), BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, WIRE_PING, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, 65535),       BPF_STMT(BPF_RET | BPF_K, 0)};
	struct sock_fprog filter = {sizeof code / sizeof *code, code};
	tap = socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	CHECK(tap >= 0 && setsockopt(tap, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0);
	struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP)};
	CHECK(bind(tap, (struct sockaddr *)&at, sizeof at) == 0);
}

/* Every packet that answers has the nonce of what it answers, which was a member's, and at least as long. */
static void check_drawn(const uint8_t *bytes, uint32_t len)
{
	bool challenge = bytes[offsetof(struct wire_head, kind)] == WIRE_CHALLENGE;
	const uint8_t *nonce =
		bytes + HEAD +
		(challenge ? offsetof(struct wire_handshake, nonce) : offsetof(struct wire_reject, nonce));
	unsigned n = atomic_load(&shared->kept_n), i = 0;
	for (; i < n; i++) {
		const struct packet *p = &shared->kept[i];
		unsigned kind = p->bytes[offsetof(struct wire_head, kind)];
		if ((kind == WIRE_CONNECT || kind == WIRE_ACCEPT || kind == WIRE_PING) && p->len >= len &&
		    memcmp(p->bytes + HEAD + offsetof(struct wire_handshake, nonce), nonce, 16) == 0)
			break;
	}
	CHECK(i < n);
	seen.drawn++;
}

static void note_sent(const uint8_t *ip, uint32_t len)
{
	unsigned from = (unsigned)(ip[20] << 8 | ip[21]), to = (unsigned)(ip[22] << 8 | ip[23]), kind = ip[29];
	CHECK(from == PORT(0) || from == PORT(1));
	CHECK(to == PORT(0) || to == PORT(1));
	CHECK(kind < WIRE_KINDS);
	unsigned n = atomic_load(&shared->kept_n);
	uint32_t bytes = len - 28;
	bool draws = kind == WIRE_CHALLENGE || kind == WIRE_REJECT || kind == WIRE_WRONG_QUEUE || kind == WIRE_RESET;
	seen.of[kind]++;
	if (draws)
		check_drawn(ip + 28, bytes);
	if (draws && seen.drawn > DRAWN_KEPT)
		return;
	CHECK(n < KEPT_MAX && bytes <= PACKET_MAX);
	shared->kept[n].len = bytes;
	memcpy(shared->kept[n].bytes, ip + 28, bytes);
	atomic_store(&shared->kept_n, n + 1);
}

static void observe(void)
{
	uint8_t ip[2048];
	for (;;) {
		struct sockaddr_ll from;
		socklen_t from_len = sizeof from;
		ssize_t len = recvfrom(tap, ip, sizeof ip, 0, (struct sockaddr *)&from, &from_len);
		if (len < 0)
			return;
		if (from.sll_pkttype != PACKET_OUTGOING && len >= 28 + (ssize_t)HEAD) /* lo shows each twice */
			note_sent(ip, (uint32_t)len);
	}
}

/* Looks until the condition holds; the hang guard ends what never does. */
#define OBSERVE_UNTIL(condition)                                                                                       \
	do {                                                                                                           \
		observe();                                                                                             \
		check_none_failed();                                                                                   \
		nap();                                                                                                 \
	} while (!(condition))

static void calls_go_on(void)
{
	uint64_t first = atomic_load(&shared->calls[0]), second = atomic_load(&shared->calls[1]);
	OBSERVE_UNTIL(atomic_load(&shared->calls[0]) > first + 20 && atomic_load(&shared->calls[1]) > second + 20);
}

/* Nothing is acknowledged while one of them stands still: the other one sends PING. */
static void ping_is_seen(pid_t pid)
{
	unsigned before = seen.of[WIRE_PING];
	CHECK(kill(pid, SIGSTOP) == 0);
	OBSERVE_UNTIL(seen.of[WIRE_PING] > before);
	CHECK(kill(pid, SIGCONT) == 0);
}

/* ---- the forger ---- */

static uint64_t chance = 88172645463325252u;

static uint32_t below(uint32_t n)
{
	chance ^= chance << 13;
	chance ^= chance >> 7;
	chance ^= chance << 17;
	return (uint32_t)(chance % n);
}

static void noise(uint8_t *at, size_t n)
{
	while (n-- > 0)
		*at++ = (uint8_t)below(256);
}

/* RESET, BYE, REFUSED or WRONG_QUEUE with the token that the packet's sender chose for its peer, and its nonce. */
static void make_end(struct packet *p)
{
	static const uint8_t kinds[] = {WIRE_RESET, WIRE_CLOSE, WIRE_REJECT, WIRE_WRONG_QUEUE};
	struct wire_control h = {.version = WIRE_VERSION, .kind = kinds[below(4)]};
	struct wire_handshake w;
	struct wire_reject no = {.error = le32_of(ESTALE), .flow = le32_of(below(3)), .path = le32_of(below(3))};
	if (p->len < HEAD + sizeof w)
		return;
	memcpy(&w, p->bytes + HEAD, sizeof w);
	h.incarnation = w.incarnation;
	h.token = w.token;
	memcpy(no.nonce, w.nonce, sizeof no.nonce);
	if (below(2))
		memcpy(h.tag, p->bytes + offsetof(struct wire_control, tag), sizeof h.tag);
	memcpy(p->bytes, &h, sizeof h);
	memcpy(p->bytes + HEAD, &no, sizeof no);
	p->len = HEAD + sizeof no;
}

/* The address in it becomes the forger's: the port of the first queue, behind 20 bytes of a udp_address. */
static void redirect(struct packet *p)
{
	struct wire_handshake w;
	if (p->len < HEAD + sizeof w)
		return;
	memcpy(&w, p->bytes + HEAD, sizeof w);
	uint32_t at = HEAD + (uint32_t)sizeof w + le16_get(w.payload_bytes) + 20;
	if (at + 2 > p->len)
		return;
	p->bytes[at] = FORGER_PORT & 255;
	p->bytes[at + 1] = FORGER_PORT >> 8;
}

static void change(struct packet *p)
{
	const size_t words = HEAD;
	switch (below(14)) {
	case 0:
	case 1:
		break; /* as it was */
	case 2:
		noise(p->bytes + offsetof(struct wire_head, token), 8);
		break;
	case 3:
		noise(p->bytes + words + offsetof(struct wire_handshake, token), 8);
		break;
	case 4:
		p->bytes[below(p->len)] ^= (uint8_t)(1u << below(8));
		break;
	case 5:
		p->bytes[offsetof(struct wire_head, kind)] = (uint8_t)(WIRE_MESSAGE + below(WIRE_KINDS - WIRE_MESSAGE));
		break;
	case 6:
		noise(p->bytes + offsetof(struct wire_head, incarnation), 8);
		break;
	case 7:
		memset(p->bytes + offsetof(struct wire_control, tag), 0, 16);
		break;
	case 8:
		noise(p->bytes + offsetof(struct wire_control, tag), 16);
		break;
	case 9:
		noise(p->bytes + words + 8,
		      16); /* `path` and `nonce` of what says no; token, queue and more of the others */
		break;
	case 10:
		p->len = 1 + below(p->len);
		break;
	case 11:
		p->len = PACKET_MAX;
		break;
	case 12:
		redirect(p);
		break;
	default:
		make_end(p);
	}
}

/* Not by a bad checksum alone is it to be dropped. */
static void checksum(struct packet *p)
{
	const size_t at = offsetof(struct wire_head, crc);
	if (p->len < HEAD)
		return;
	memset(p->bytes + at, 0, sizeof(le32));
	le32 sum = le32_of(crc32c(0, p->bytes, p->len));
	memcpy(p->bytes + at, &sum, sizeof sum);
}

static void forge(int fd)
{
	char byte[PACKET_MAX];
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	unsigned n = atomic_load(&shared->kept_n);
	for (unsigned i = 0; n && i < ROUND; i++) {
		/* Of this group as often as of all. */
		unsigned newest = n < 64 ? n : 64;
		struct packet p = shared->kept[below(2) ? below(n) : n - 1 - below(newest)];
		change(&p);
		if (below(16))
			checksum(&p);
		to.sin_port = htons((uint16_t)PORT(below(MEMBERS)));
		if (sendto(fd, p.bytes, p.len, 0, (struct sockaddr *)&to, sizeof to) >= 0)
			atomic_fetch_add(&shared->forged, 1);
	}
	while (recv(fd, byte, sizeof byte, MSG_DONTWAIT) >= 0)
		atomic_fetch_add(&shared->answers, 1);
}

/* False: root of a user namespace has nobody else to be. */
static bool become_nobody(void)
{
	if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
		return false;
	CHECK(geteuid() == NOBODY && setuid(0) < 0);
	return true;
}

static pid_t forger_start(void)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid > 0)
		return pid;
	become_nobody();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	struct sockaddr_in own = {
		.sin_family = AF_INET, .sin_port = htons(FORGER_PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&own, sizeof own) == 0);
	while (!atomic_load(&shared->quit)) {
		forge(fd);
		nap();
	}
	_exit(0);
}

/* ---- udp ---- */

static void group_before(void)
{
	pid_t pids[MEMBERS];
	group_start(pids, "udp");
	OBSERVE_UNTIL(atomic_load(&shared->ready) == MEMBERS);
	calls_go_on();
	ping_is_seen(pids[1]);
	ping_is_seen(pids[0]);
	calls_go_on();
	atomic_store(&shared->stop, 1);
	for (int i = 0; i < MEMBERS; i++)
		ended_well(pids[i]);
	observe();
	CHECK(seen.of[WIRE_CONNECT] && seen.of[WIRE_CHALLENGE] && seen.of[WIRE_ACCEPT] && seen.of[WIRE_CLOSE]);
}

static bool attacked_enough(uint64_t forged)
{
	bool enough = atomic_load(&shared->forged) >= forged + FORGED_MIN;
	for (int i = 0; i < MEMBERS; i++)
		enough = enough && atomic_load(&shared->refused[i]) >= REFUSED_MIN &&
			 atomic_load(&shared->dropped[i]) >= DROPPED_MIN;
	return enough;
}

static void attacked(void)
{
	unsigned begun[WIRE_KINDS];
	pid_t pids[MEMBERS], forger = forger_start();
	OBSERVE_UNTIL(atomic_load(&shared->forged) > 0);
	group_start(pids, "udp");
	OBSERVE_UNTIL(atomic_load(&shared->ready) == MEMBERS);
	calls_go_on();
	ping_is_seen(pids[1]);
	calls_go_on();
	memcpy(begun, seen.of, sizeof begun);
	uint64_t forged = atomic_load(&shared->forged), drawn = seen.drawn;
	OBSERVE_UNTIL(attacked_enough(forged));
	calls_go_on();
	CHECK(seen.of[WIRE_CONNECT] == begun[WIRE_CONNECT] && seen.of[WIRE_ACCEPT] == begun[WIRE_ACCEPT]);
	CHECK(seen.of[WIRE_CLOSE] == begun[WIRE_CLOSE]);
	forged = atomic_load(&shared->forged) - forged;
	drawn = seen.drawn - drawn;
	printf("%llu packets forged drew %llu; refused %llu and %llu, dropped %llu and %llu\n",
	       (unsigned long long)forged, (unsigned long long)drawn, (unsigned long long)shared->refused[0],
	       (unsigned long long)shared->refused[1], (unsigned long long)shared->dropped[0],
	       (unsigned long long)shared->dropped[1]);
	CHECK(drawn <= forged);
	atomic_store(&shared->stop, 1);
	for (int i = 0; i < MEMBERS; i++)
		ended_well(pids[i]);
	atomic_store(&shared->quit, 1);
	ended_well(forger);
	CHECK(atomic_load(&shared->answers) == 0);
}

/* ---- shm ---- */

static bool shm_recv(int fd, struct shm_control_msg *note)
{
	int fds[SHM_CONTROL_FDS];
	struct pollfd readable = {fd, POLLIN, 0};
	CHECK(poll(&readable, 1, -1) == 1);
	int got = shm_control_recv(fd, note, fds);
	for (int i = 0; i < SHM_CONTROL_FDS; i++)
		CHECK(fds[i] < 0);
	return got > 0;
}

/* Never an ACCEPT; a challenge only for root's own user, and its proof is no answer. */
static void shm_forge(const struct sockaddr_un *at, bool own_user)
{
	uint8_t bytes[NIC_HANDSHAKE_BYTES_MAX];
	struct shm_control_msg got;
	unsigned len = below(sizeof bytes + 1);
	enum shm_control_kind kind = (enum shm_control_kind)(SHM_CONTROL_CONNECT + below(SHM_CONTROL_RESPONSE));
	if (below(2)) { /* a right AUTH */
		kind = SHM_CONTROL_AUTH;
		len = 16;
	}
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)at, sizeof *at) == 0);
	noise(bytes, sizeof bytes);
	struct shm_control_msg note = shm_control_make(kind, 0, bytes, len);
	note.queue = (uint16_t)below(3);
	note.version += below(8) == 0;
	shm_control_send(fd, &note, NULL, 0); /* it may have been refused before */
	bool more = shm_recv(fd, &got);
	if (more && got.kind == SHM_CONTROL_CHALLENGE) {
		CHECK(own_user && kind == SHM_CONTROL_AUTH);
		struct shm_control_msg answer = shm_control_make(SHM_CONTROL_RESPONSE, 0, got.bytes + 16, 16);
		if (below(2))
			noise(answer.bytes, 16);
		CHECK(shm_control_send(fd, &answer, NULL, 0) == 0);
		more = shm_recv(fd, &got);
	}
	CHECK(!more || (got.kind == SHM_CONTROL_REPLY && got.status < 0));
	close(fd);
}

static void shm_forger(bool own_user)
{
	char command[96], path[128];
	struct sockaddr_un at[MEMBERS] = {{.sun_family = AF_UNIX}, {.sun_family = AF_UNIX}};
	unsigned n = 0;
	snprintf(command, sizeof command, "find %s -name '*.sock' -type s", dir);
	FILE *files = popen(command, "r");
	while (files && fgets(path, sizeof path, files)) {
		path[strcspn(path, "\n")] = 0;
		if (n < MEMBERS)
			memcpy(at[n].sun_path, path, strnlen(path, sizeof at[n].sun_path - 1));
		n++;
	}
	CHECK(files && pclose(files) == 0 && n == MEMBERS);
	if (!own_user && !become_nobody())
		_exit(0);
	for (unsigned i = 0; i < NOTES; i++)
		shm_forge(&at[i % MEMBERS], own_user);
	_exit(0);
}

static void shm_attacked(void)
{
	char command[96];
	pid_t pids[MEMBERS];
	group_start(pids, "shm");
	OBSERVE_UNTIL(atomic_load(&shared->ready) == MEMBERS);
	snprintf(command, sizeof command, "chmod -R a+rwX %s", dir);
	CHECK(system(command) == 0);
	for (int own_user = 0; own_user < 2; own_user++) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0)
			shm_forger(own_user);
		ended_well(pid);
		calls_go_on();
	}
	atomic_store(&shared->stop, 1);
	for (int i = 0; i < MEMBERS; i++)
		ended_well(pids[i]);
}

int main(void)
{
	char command[96];
	if (!netns_enter_new()) {
		printf("SKIP: api_forger: missing right: no network namespace of our own\n");
		return 77;
	}
	if (system("command -v ip >/dev/null 2>&1")) {
		printf("SKIP: api_forger: missing right: iproute2 is not installed\n");
		return 77;
	}
	alarm(HANG_GUARD_S);
	CHECK(ip("link set lo up"));
	CHECK(mkdtemp(dir) && setenv("FAR_RUNTIME_DIR", dir, 1) == 0);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	tap_open();
	group_before();
	attacked();
	shm_attacked();
	snprintf(command, sizeof command, "rm -rf %s", dir);
	CHECK(system(command) == 0);
	return 0;
}
