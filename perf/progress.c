/* SPDX-License-Identifier: BSD-3-Clause */
/** Prints the seconds of a measurement on the terminal. A process of its own: measuring threads never wait for it. */
#include "progress.h"
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORTH_NS UINT64_C(2000000000)

_Noreturn static void progress_main(const char *what, uint64_t ns, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	char of[32] = "";
	if (ns)
		snprintf(of, sizeof of, " of %.0f s", (double)ns / 1e9);
	for (unsigned s = 1;; s++) {
		nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
		if (ns || s >= 2)
			dprintf(STDERR_FILENO, "\r\033[K%s: %u s%s\r", what, s, of);
	}
}

pid_t progress_start(const char *what, uint64_t ns)
{
	if ((ns && ns <= WORTH_NS) || !isatty(STDERR_FILENO))
		return 0;
	fflush(NULL);
	pid_t parent = getpid(), pid = fork();
	if (pid == 0)
		progress_main(what, ns, parent);
	return pid < 0 ? 0 : pid;
}

void progress_end(pid_t pid)
{
	if (!pid)
		return;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	dprintf(STDERR_FILENO, "\r\033[K");
}
