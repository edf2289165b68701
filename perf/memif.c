/* SPDX-License-Identifier: BSD-3-Clause */
/** Expands `--nic memif` to a DPDK memif device with a socket of its own per measurement. Main thread. */
#include "memif.h"
#include "nic/shm/shm.h"
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define SPEC "dpdk:net_memif0,role=%s,id=0,socket=%s,socket-abstract=no"

#define NAME_BYTES 24 /* of the socket in its directory */

static char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* of the socket; "": there is none */

int memif_expand(struct perf_opts *o)
{
	static char client[sizeof SPEC + 2 * sizeof path], server[sizeof client];
	char dir[sizeof path - NAME_BYTES];
	struct nic_err err = {""};
	if (strcmp(o->nic, "memif") != 0)
		return 0;
	const char *other = o->server_nic               ? "--server-nic"
			    : o->connect                ? "--connect"
			    : o->servers > 1            ? "--servers"
			    : o->peers > 1              ? "--peers"
			    : o->target                 ? "--to self"
			    : o->via == PERF_VIA_THREAD ? "--via thread"
							: NULL;
	if (other)
		return options_wrong(o->what, "--nic memif is one device between two agents; leave %s out", other);
	if (shm_dir_open(NULL, false, dir, sizeof dir, &err) < 0) {
		fprintf(stderr, "%s: %s\n", o->what, err.text);
		return 1;
	}
	if (strpbrk(dir, ",;")) {
		fprintf(stderr,
			"%s: the runtime directory %s cannot be passed to DPDK; set FAR_RUNTIME_DIR to a path "
			"without "
			"commas and semicolons\n",
			o->what, dir);
		return 1;
	}
	snprintf(path, sizeof path, "%s/perf-%u.memif", dir, (unsigned)getpid() % 10000000);
	snprintf(client, sizeof client, SPEC, "client", path);
	snprintf(server, sizeof server, SPEC, "server", path);
	o->nic = client;
	o->server_nic = server;
	return 0;
}

void memif_clear(void)
{
	if (path[0])
		unlink(path); /* the server's end may have done so */
	path[0] = 0;
}
