/* SPDX-License-Identifier: BSD-3-Clause */
/* The admin socket: requests and answers, malformed requests, names that are taken, the end. The test's thread, and the
 * admin thread. */
#include "control/admin.h"
#include "open_files.h"
#include "own_dir.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LATE "error no request came in time\n"

enum { LARGE = 4 << 20 };

static struct admin *admin;
static char why[320];
static _Atomic unsigned asked;

/* "large": more than a socket takes at once; "no": a refusal; else the request itself. */
static bool answer(void *ctx, const char *request, char **text, size_t *len, const char **reason)
{
	atomic_fetch_add((_Atomic unsigned *)ctx, 1);
	*reason = "it is not known";
	if (strcmp(request, "no") == 0)
		return false;
	*len = strcmp(request, "large") == 0 ? LARGE : strlen(request);
	*text = malloc(*len + 1);
	memset(*text, 'L', *len);
	if (*len < LARGE)
		memcpy(*text, request, *len);
	return true;
}

static void setup(void)
{
	own_dir_make();
	setenv("FAR_RUNTIME_DIR", top, 1);
	admin = admin_start(answer, &asked, why, sizeof why);
	cr_assert_not_null(admin, "%s", why);
}

static void teardown(void)
{
	admin_stop(admin);
	own_dir_remove();
}

TestSuite(admin, .init = setup, .fini = teardown);

static void path_of(unsigned i, struct sockaddr_un *at)
{
	*at = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(at->sun_path, sizeof at->sun_path, "%s/" ADMIN_PREFIX "%ld-%u", top, (long)getpid(), i);
}

static int dial(void)
{
	struct sockaddr_un at;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	path_of(0, &at);
	cr_assert_eq(connect(fd, (struct sockaddr *)&at, sizeof at), 0, "%s", strerror(errno));
	return fd;
}

/* Sends bytes, each by itself with `pieces`, as the last ones with `last`, and reads all until the connection is
 * closed. Again if this process was so slow that the request or the answer came too late, some times. */
static size_t exchange_as(const char *bytes, size_t n, bool pieces, bool last, char *out, size_t cap, size_t least)
{
	size_t got = 0;
	for (int i = 0; i < 10 && (i == 0 || got < least || strcmp(out, LATE) == 0); i++) {
		int fd = dial();
		ssize_t now = 0;
		for (size_t at = 0, step = pieces ? 1 : n; at < n; at += step)
			send(fd, bytes + at, step, MSG_NOSIGNAL);
		if (last)
			shutdown(fd, SHUT_WR);
		for (got = 0; got < cap - 1 && (now = recv(fd, out + got, cap - 1 - got, 0)) > 0; got += (size_t)now)
			;
		out[got] = 0;
		close(fd);
	}
	return got;
}

static void exchange(const char *bytes, size_t n, bool last, char *out, size_t cap)
{
	exchange_as(bytes, n, false, last, out, cap, 0);
}

static void says(const char *request, const char *want)
{
	char out[256];
	exchange(request, strlen(request), false, out, sizeof out);
	cr_assert_str_eq(out, want);
}

Test(admin, answers_and_refuses)
{
	says("workers\n", "ok 7\nworkers");
	says("\n", "ok 0\n");
	says("no\n", "error it is not known\n");
	says("first\nsecond\n", "ok 5\nfirst");
	cr_assert_eq(atomic_load(&asked), 4u);
}

Test(admin, a_request_in_pieces)
{
	char out[64];
	exchange_as("top\n", 4, true, false, out, sizeof out, 0);
	cr_assert_str_eq(out, "ok 3\ntop");
}

Test(admin, a_large_answer)
{
	enum { HEAD = 11 };
	char *out = malloc(LARGE + 64);
	size_t n = exchange_as("large\n", 6, false, false, out, LARGE + 64, LARGE + HEAD);
	cr_assert_eq(n, (size_t)LARGE + HEAD);
	cr_assert_eq(memcmp(out, "ok 4194304\n", HEAD), 0);
	cr_assert_eq(out[n - 1], 'L');
	free(out);
}

Test(admin, malformed_requests)
{
	char out[256], longest[ADMIN_REQUEST_MAX + 1];
	exchange("no newline", 10, true, out, sizeof out);
	cr_assert_str_eq(out, "error the request has no newline\n");
	exchange("a\0b\n", 4, false, out, sizeof out);
	cr_assert_str_eq(out, "error the request has a NUL\n");
	memset(longest, 'x', sizeof longest);
	exchange(longest, ADMIN_REQUEST_MAX, false, out, sizeof out);
	cr_assert_str_eq(out, "error the request is too long\n");
	cr_assert_eq(atomic_load(&asked), 0u);
	longest[ADMIN_REQUEST_MAX - 1] = '\n';
	exchange(longest, ADMIN_REQUEST_MAX, false, out, sizeof out);
	cr_assert_eq(strncmp(out, "ok 63\nxxx", 9), 0);
}

/* A client that sends nothing is dropped after its time, and the next one is served. */
Test(admin, one_that_sends_nothing_is_dropped)
{
	char out[64];
	int fd = dial();
	says("next\n", "ok 4\nnext");
	ssize_t n = recv(fd, out, sizeof out - 1, MSG_WAITALL);
	out[n > 0 ? n : 0] = 0;
	cr_assert_str_eq(out, LATE);
	close(fd);
}

/* One process has several, each with a name of its own; one that nobody listens to any more is replaced. */
Test(admin, names)
{
	struct sockaddr_un at, stale;
	path_of(1, &stale);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(fd, (struct sockaddr *)&stale, sizeof stale), 0);
	close(fd);
	struct admin *second = admin_start(answer, &asked, why, sizeof why);
	struct admin *third = admin_start(answer, &asked, why, sizeof why);
	cr_assert(second && third);
	path_of(2, &at);
	cr_assert_eq(access(at.sun_path, F_OK), 0);
	struct stat st;
	cr_assert_eq(stat(stale.sun_path, &st), 0);
	cr_assert_eq(st.st_mode & 0777, 0600);
	admin_stop(second);
	cr_assert_eq(access(stale.sun_path, F_OK), -1);
	admin_stop(third);
	cr_assert_eq(access(at.sun_path, F_OK), -1);
	says("still\n", "ok 5\nstill");
}

Test(admin, without_a_directory)
{
	unsigned before = open_files();
	setenv("FAR_RUNTIME_DIR", "/proc/no-such-directory", 1);
	cr_assert_null(admin_start(answer, &asked, why, sizeof why));
	cr_assert(strstr(why, "/proc/no-such-directory"), "%s", why);
	/* Others may write it: they could take the socket's place. */
	setenv("FAR_RUNTIME_DIR", top, 1);
	chmod(top, 0777);
	cr_assert_null(admin_start(answer, &asked, why, sizeof why));
	cr_assert(strstr(why, top), "%s", why);
	chmod(top, 0755); /* with security=none others may enter it */
	struct admin *open = admin_start(answer, &asked, why, sizeof why);
	cr_assert_not_null(open, "%s", why);
	admin_stop(open);
	chmod(top, 0700);
	cr_assert_eq(open_files(), before);
}

/* Nobody is served any more, this client neither. */
Test(admin, the_end_during_a_request)
{
	struct sockaddr_un at;
	char out[64];
	int fd = dial();
	path_of(0, &at);
	admin_stop(admin);
	admin = NULL;
	cr_assert_eq(access(at.sun_path, F_OK), -1);
	while (recv(fd, out, sizeof out, 0) > 0)
		;
	cr_assert_eq(send(fd, "late\n", 5, MSG_NOSIGNAL), -1);
	cr_assert_eq(atomic_load(&asked), 0u);
	close(fd);
}
