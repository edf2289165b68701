/* SPDX-License-Identifier: BSD-3-Clause */
/** Workers of `farcall run` on other hosts: their ssh commands and the scripts that these receive. Main thread. */
#include "run_hosts.h"
#include "base/random.h"
#include "control/key.h"
#include <ctype.h>
#include <errno.h>
#include <farcall/agent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIPE_DEFAULT_BYTES 65536

/* Runs in whatever login shell the user has there: no more than one quoted word. */
#define REMOTE_COMMAND "exec sh -c 'read -r l; eval \"$l\"'"

/* The first line of the input reads as many lines as follow, and no byte of the signals' names behind them. */
#define FIRST_LINE                                                                                                     \
	"i=0; s=; n=$(printf '\\n.'); n=${n%%.}; while [ $i -lt %u ]; do IFS= read -r l || exit 255; s=$s$l$n; "       \
	"i=$((i + 1)); done; eval \"$s\"\n"

/* Behind the program: receives signals for its process group, and passes its status on. Processes that left the group
 * have the mark of the run in their environment. */
#define WATCH                                                                                                          \
	" 3<&- & p=$!\n"                                                                                               \
	"(while read -r s <&3; do kill -s \"$s\" -- \"-$p\"; done\n"                                                   \
	"kill -s KILL -- \"-$p\" || kill -s KILL \"$p\") 2>/dev/null & w=$!\n"                                         \
	"wait \"$p\"; r=$?\n"                                                                                          \
	"kill \"$w\" 2>/dev/null; kill -s KILL -- \"-$p\" 2>/dev/null\n"                                               \
	"for f in $(grep -lzx \"FARCALL_RUN=$m\" /proc/[0-9]*/environ 2>/dev/null); do\n"                              \
	"f=${f#/proc/}; kill -s KILL \"${f%/environ}\" 2>/dev/null; done\n"                                            \
	"exit \"$r\"\n"

extern char **environ;

static const char *split(char *text, const char *separators, char **out, int *n, int max, const char *too_many)
{
	char *save;
	for (char *s = strtok_r(text, separators, &save); s; s = strtok_r(NULL, separators, &save)) {
		if (*n == max)
			return too_many;
		out[(*n)++] = s;
	}
	return NULL;
}

/* The group's key: the one that the environment names, else a new one. */
static const char *key_export(void)
{
	static struct far_err err;
	struct key_choice key;
	char text[KEY_TEXT_BYTES + 1];
	const char *security = getenv("FAR_SECURITY");
	if (key_choose(NULL, security && *security ? security : NULL, true, &key, &err))
		return err.text;
	unsetenv("FAR_KEY_FILE"); /* a path of this host */
	if (key.kind == KEY_NONE)
		return NULL;
	if (key.kind == KEY_AUTO)
		auth_random(key.key.bytes, sizeof key.key.bytes, &random_kernel);
	key_print(&key.key, text);
	text[strcspn(text, "\n")] = 0;
	setenv("FAR_KEY", text, 1);
	auth_erase(&key, sizeof key);
	auth_erase(text, sizeof text);
	return NULL;
}

const char *hosts_open(struct hosts *h, char *list, char *ssh)
{
	static char port[16];
	const char *wrong =
		split(list, ",", h->name, &h->n, SPAWN_WORLD_MAX, "--hosts has more than 256 names; give fewer");
	if (!wrong)
		wrong = split(ssh, " ", h->ssh, &h->ssh_n, HOSTS_WORDS_MAX - 2,
			      "--ssh has more than 30 words; put the options into a file of ssh's (-F FILE)");
	if (wrong)
		return wrong;
	if (h->n == 0)
		return "--hosts names no host; give names with commas between, as in --hosts a,b";
	if (h->ssh_n == 0)
		return "--ssh is empty; give a command that takes a host and a command for it, such as ssh";
	for (int i = 0; i < h->n; i++)
		if (h->name[i][0] == '-')
			return "--hosts has a name that begins with a dash; ssh would take it for an option";
	const char *at = strrchr(h->name[0], '@');
	snprintf(port, sizeof port, "%d", HOSTS_PORT);
	setenv("MASTER_ADDR", at ? at + 1 : h->name[0], 0);
	setenv("MASTER_PORT", port, 0);
	return key_export();
}

const char *hosts_of(const struct hosts *h, int rank)
{
	return h->name[rank * h->n / h->world];
}

void hosts_command(const struct hosts *h, int rank, char **argv)
{
	static char remote[] = REMOTE_COMMAND;
	memcpy(argv, h->ssh, (size_t)h->ssh_n * sizeof *argv);
	argv[h->ssh_n] = h->name[rank * h->n / h->world];
	argv[h->ssh_n + 1] = remote;
	argv[h->ssh_n + 2] = NULL;
}

/* One word of a shell. */
static void put_word(FILE *f, const char *s)
{
	putc('\'', f);
	for (; *s; s++)
		if (*s == '\'')
			fputs("'\\''", f);
		else
			putc(*s, f);
	putc('\'', f);
}

/* Variables of this login, and those that each worker gets for itself. */
static bool stays_here(const char *name, size_t len)
{
	static const char *const words[] = {"_",
					    "DISPLAY",
					    "FARCALL_RUN",
					    "FAR_RUNTIME_DIR",
					    "FAR_STORE_FD",
					    "HOME",
					    "HOSTNAME",
					    "LOGNAME",
					    "MAIL",
					    "OLDPWD",
					    "PWD",
					    "RANK",
					    "SHELL",
					    "SHLVL",
					    "TERM",
					    "USER",
					    "WORLD_SIZE",
					    "TMPDIR"};
	static const char *const beginnings[] = {"DBUS_", "SSH_", "XDG_"};
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strlen(words[i]) == len && memcmp(words[i], name, len) == 0)
			return true;
	for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
		if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0)
			return true;
	return false;
}

static void put_environment(FILE *f)
{
	for (char **e = environ; *e; e++) {
		size_t len = strspn(*e, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");
		if (len == 0 || (*e)[len] != '=' || isdigit((unsigned char)**e) || stays_here(*e, len))
			continue;
		fprintf(f, "export %.*s=", (int)len, *e);
		put_word(f, *e + len + 1);
		putc('\n', f);
	}
}

static void put_script(FILE *f, const struct hosts *h, int rank, char *const *program)
{
	uint64_t mark;
	auth_random((uint8_t *)&mark, sizeof mark, &random_kernel);
	put_environment(f);
	fprintf(f, "export RANK=%d WORLD_SIZE=%d; m=%016" PRIx64 "; exec 3<&0 </dev/null; cd -- ", rank, h->world,
		mark);
	char *directory = getcwd(NULL, 0);
	put_word(f, directory ? directory : "/");
	free(directory);
	/* A shell without job control starts what is in the background with SIGINT ignored. */
	fputs(" || exit 126\nsetsid env --default-signal=INT,QUIT FARCALL_RUN=$m", f);
	for (; *program; program++) {
		putc(' ', f);
		put_word(f, *program);
	}
	fputs(WATCH, f);
}

int hosts_send(const struct hosts *h, int fd, int rank, char *const *program)
{
	char *script = NULL, *all = NULL;
	size_t len = 0, all_len = 0;
	unsigned lines = 0;
	FILE *f = open_memstream(&script, &len);
	if (!f)
		return -ENOMEM;
	put_script(f, h, rank, program);
	int rc = fclose(f) ? -ENOMEM : 0;
	for (size_t i = 0; i < len; i++)
		lines += script[i] == '\n';
	f = rc ? NULL : open_memstream(&all, &all_len);
	if (f) {
		fprintf(f, FIRST_LINE, lines);
		fwrite(script, 1, len, f);
		rc = fclose(f) ? -ENOMEM : 0;
	} else {
		rc = -ENOMEM;
	}
	if (!rc && all_len > PIPE_DEFAULT_BYTES && fcntl(fd, F_SETPIPE_SZ, (int)all_len) < 0)
		rc = -E2BIG;
	/* Every byte fits; ssh may not have been started yet. */
	if (!rc && write(fd, all, all_len) != (ssize_t)all_len)
		rc = -E2BIG;
	if (script)
		auth_erase(script, len);
	if (all)
		auth_erase(all, all_len);
	free(script);
	free(all);
	return rc;
}

int hosts_status(int ssh_status)
{
	int code = WIFEXITED(ssh_status) ? WEXITSTATUS(ssh_status) : 0;
	return code > 128 && code <= 128 + 64 ? code - 128 : ssh_status;
}
