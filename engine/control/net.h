/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Sockets of the control thread as an interface: the operating system's (net_os.c), or simulated ones. Byte streams
 * only; nothing blocks but wait() and name resolution. Control thread, unless stated otherwise.
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
	/** 1: all addresses of the host (`adopt_fd` ≥ 0: of the inherited listener) are loopback; 0: not; or -errno. */
	int (*loopback)(struct ctl_net *net, const char *host, int adopt_fd);
	/** Accepts the next connection: a handle, -EAGAIN, or -errno. */
	int (*accept)(struct ctl_net *net, int listener);
	/** Starts to connect: a handle or -errno; send and recv return -EAGAIN until it is done, -errno when it failed.
	 */
	int (*connect)(struct ctl_net *net, const char *host, uint16_t port);
	/** Sends: bytes accepted, -EAGAIN, or -errno. */
	long (*send)(struct ctl_net *net, int handle, const void *data, size_t len);
	/** Receives: bytes read, 0 at the end of the stream, -EAGAIN, or -errno. */
	long (*recv)(struct ctl_net *net, int handle, void *data, size_t len);
	/** Bytes sent that the other host has not acknowledged, or -errno. NULL: these sockets do not show it. */
	long (*unacknowledged)(struct ctl_net *net, int handle);
	void (*close)(struct ctl_net *net, int handle);
	/** Blocks until a handle is ready as set by want(), a watch() descriptor is readable, wake() was called, or the
	 * absolute time `until` in ns. */
	void (*wait)(struct ctl_net *net, uint64_t until);
	/** Sets the events of a stream that end a wait(): bytes to read (initially 1), room to send (initially 0). */
	void (*want)(struct ctl_net *net, int handle, int read, int write);
	/** Adds a descriptor of another owner (a NIC port, inotify) whose readability ends a wait(). 0 or -errno. */
	int (*watch)(struct ctl_net *net, int fd);
	/** Ends a wait(). Any thread. */
	void (*wake)(struct ctl_net *net);
	void (*destroy)(struct ctl_net *net);
};

/** Sockets of a control thread: begins the structure of an implementation. */
struct ctl_net {
	const struct ctl_net_ops *ops;
};

/** Creates the operating system's sockets; NULL with errno on failure. Application thread. */
struct ctl_net *ctl_net_os_create(void);

#endif
