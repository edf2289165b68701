/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Sockets of the control core, injected: the operating system's in production (net_os.c), simulated ones elsewhere.
 * Byte streams only, never blocking but in wait().
 */
#ifndef FAR_CONTROL_NET_H
#define FAR_CONTROL_NET_H

#include <stddef.h>
#include <stdint.h>

struct ctl_net;

struct ctl_net_ops {
	/** Listens on host:port (port 0 is not allowed); `adopt_fd` ≥ 0 takes an inherited listening socket instead.
	 * Returns a handle ≥ 0 or -errno. */
	int (*listen)(struct ctl_net *net, const char *host, uint16_t port, int adopt_fd);
	/** Does the host (or, when ≥ 0, the inherited listener) have loopback addresses only: 1, 0, or -errno. */
	int (*loopback)(struct ctl_net *net, const char *host, int adopt_fd);
	/** Next connection of a listener: a handle, -EAGAIN, or -errno. */
	int (*accept)(struct ctl_net *net, int listener);
	/** Starts connecting; send and recv say -EAGAIN until it is done, -errno when it failed. */
	int (*connect)(struct ctl_net *net, const char *host, uint16_t port);
	/** Bytes taken, -EAGAIN, or -errno. */
	long (*send)(struct ctl_net *net, int handle, const void *data, size_t len);
	/** Bytes read, 0 at the end of the stream, -EAGAIN, or -errno. */
	long (*recv)(struct ctl_net *net, int handle, void *data, size_t len);
	void (*close)(struct ctl_net *net, int handle);
	/** Waits until a handle may make progress (as want() says), `watch_fd`s are readable, wake()
	 * was called, or the absolute time `until` has come. */
	void (*wait)(struct ctl_net *net, uint64_t until);
	/** Sets what wait() watches a stream for: bytes to read (on at first), room to send (off at first). */
	void (*want)(struct ctl_net *net, int handle, int read, int write);
	/** Adds a foreign descriptor (a NIC port's) to what wait() watches. */
	int (*watch)(struct ctl_net *net, int fd);
	/** Any thread: ends a wait(). */
	void (*wake)(struct ctl_net *net);
	void (*destroy)(struct ctl_net *net);
};

struct ctl_net {
	const struct ctl_net_ops *ops;
};

/** The operating system's sockets. NULL with errno on failure. */
struct ctl_net *ctl_net_os_create(void);

#endif
