/* SPDX-License-Identifier: BSD-3-Clause */
/** Attaches and detaches the XDP filter, by netlink and bpf(). Control thread. */
#include "nic/dpdk/host_error.h"
#include "nic/dpdk/xdp/xdp.h"

#include <dirent.h>
#include <errno.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RIGHTS "CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF (root of the machine has them, root of a user namespace has not)"
/* The kernel replies to these requests at once. */
#define ANSWER_MS 1000

/** The XDP program that is attached to the interface. */
struct attached {
	uint32_t id;   /* 0: none */
	uint32_t mode; /* XDP_FLAGS_… of its attach mode */
};

static int bpf(int command, union bpf_attr *attr, size_t bytes)
{
	int rc = (int)syscall(__NR_bpf, command, attr, (unsigned)bytes);
	return rc < 0 ? -errno : rc;
}

/* ---- netlink ---- */

/** A request about one interface, with room for attributes. */
struct request {
	struct nlmsghdr head;
	struct ifinfomsg link;
	uint8_t attrs[64];
};

static void put_attr(struct request *r, unsigned type, const void *bytes, size_t len)
{
	struct rtattr *a = (void *)((uint8_t *)r + NLMSG_ALIGN(r->head.nlmsg_len));
	a->rta_type = (unsigned short)type;
	a->rta_len = (unsigned short)RTA_LENGTH(len);
	memcpy(RTA_DATA(a), bytes, len);
	r->head.nlmsg_len = NLMSG_ALIGN(r->head.nlmsg_len) + RTA_LENGTH(len);
}

static struct request about(int index, unsigned type, unsigned flags)
{
	struct request r = {.head = {.nlmsg_len = NLMSG_LENGTH(sizeof r.link),
				     .nlmsg_type = (unsigned short)type,
				     .nlmsg_flags = (unsigned short)(NLM_F_REQUEST | flags),
				     .nlmsg_seq = 1},
			    .link = {.ifi_family = AF_UNSPEC, .ifi_index = index}};
	return r;
}

/* Sends a request and receives the kernel's reply: its length, or -errno, which the reply may carry. */
static ssize_t netlink_request(const struct request *r, void *answer, size_t cap)
{
	int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (s < 0)
		return -errno;
	struct pollfd ready = {.fd = s, .events = POLLIN};
	errno = 0;
	ssize_t got = send(s, r, r->head.nlmsg_len, 0);
	if (got >= 0)
		got = poll(&ready, 1, ANSWER_MS) == 1 ? recv(s, answer, cap, MSG_DONTWAIT) : -1;
	if (got < 0)
		got = errno ? -errno : -ETIMEDOUT;
	close(s);
	const struct nlmsghdr *head = answer;
	if (got < 0)
		return got;
	if (!NLMSG_OK(head, (size_t)got))
		return -EBADMSG;
	if (head->nlmsg_type != NLMSG_ERROR)
		return got;
	const struct nlmsgerr *e = NLMSG_DATA(head);
	return head->nlmsg_len < NLMSG_LENGTH(sizeof *e) ? -EBADMSG : e->error;
}

static const struct rtattr *find_attr(const struct rtattr *a, size_t len, unsigned type)
{
	for (; RTA_OK(a, len); a = RTA_NEXT(a, len))
		if ((a->rta_type & NLA_TYPE_MASK) == type)
			return a;
	return NULL;
}

static uint32_t u32_attr(const struct rtattr *nest, unsigned type)
{
	const struct rtattr *a = find_attr(RTA_DATA(nest), RTA_PAYLOAD(nest), type);
	uint32_t x = 0;
	if (a && RTA_PAYLOAD(a) >= sizeof x)
		memcpy(&x, RTA_DATA(a), sizeof x);
	return x;
}

static void read_attached(const struct rtattr *xdp, struct attached *out)
{
	static const struct {
		unsigned id;
		uint32_t flag;
	} modes[] = {{IFLA_XDP_DRV_PROG_ID, XDP_FLAGS_DRV_MODE},
		     {IFLA_XDP_SKB_PROG_ID, XDP_FLAGS_SKB_MODE},
		     {IFLA_XDP_HW_PROG_ID, XDP_FLAGS_HW_MODE}};
	for (unsigned i = 0; i < sizeof modes / sizeof modes[0] && !out->id; i++)
		*out = (struct attached){u32_attr(xdp, modes[i].id), modes[i].flag};
}

static int query(int index, struct attached *out)
{
	static _Alignas(8) uint8_t answer[16384]; /* control thread only */
	struct request r = about(index, RTM_GETLINK, 0);
	*out = (struct attached){0};
	ssize_t got = netlink_request(&r, answer, sizeof answer);
	if (got < 0)
		return (int)got;
	const struct nlmsghdr *head = (const void *)answer;
	if (head->nlmsg_type != RTM_NEWLINK || head->nlmsg_len < NLMSG_LENGTH(sizeof r.link))
		return -EBADMSG;
	const struct rtattr *xdp = find_attr(IFLA_RTA(NLMSG_DATA(head)), IFLA_PAYLOAD(head), IFLA_XDP);
	if (xdp)
		read_attached(xdp, out);
	return 0;
}

/* Detaches program `fd`, if it is the one attached in this mode. */
static int detach(int index, uint32_t mode, int fd)
{
	struct {
		struct rtattr fd_head;
		int32_t fd;
		struct rtattr flags_head;
		uint32_t flags;
		struct rtattr expected_head;
		int32_t expected;
	} nest = {
		{RTA_LENGTH(4), IFLA_XDP_FD},          -1, {RTA_LENGTH(4), IFLA_XDP_FLAGS}, mode | XDP_FLAGS_REPLACE,
		{RTA_LENGTH(4), IFLA_XDP_EXPECTED_FD}, fd,
	};
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		uint8_t more[1024];
	} answer;
	struct request r = about(index, RTM_SETLINK, NLM_F_ACK);
	put_attr(&r, NLA_F_NESTED | IFLA_XDP, &nest, sizeof nest);
	ssize_t got = netlink_request(&r, &answer, sizeof answer);
	return got < 0 ? (int)got : 0;
}

/* ---- programs ---- */

static int program_name(int fd, char out[BPF_OBJ_NAME_LEN])
{
	struct bpf_prog_info info = {0};
	union bpf_attr attr = {
		.info = {.bpf_fd = (uint32_t)fd, .info_len = sizeof info, .info = (uint64_t)(uintptr_t)&info}};
	int rc = bpf(BPF_OBJ_GET_INFO_BY_FD, &attr, sizeof attr.info);
	snprintf(out, BPF_OBJ_NAME_LEN, "%.15s", rc < 0 ? "?" : info.name);
	return rc;
}

int xdp_remove_stale(int index, const char *iface, struct nic_err *err)
{
	struct attached at;
	char name[BPF_OBJ_NAME_LEN] = "?";
	int rc = query(index, &at);
	if (rc < 0)
		return host_error(err, rc, "dpdk: cannot read the XDP program of interface %s: %s", iface,
				  strerror(-rc));
	if (at.id == 0)
		return 0;
	union bpf_attr attr = {.prog_id = at.id};
	int fd = bpf(BPF_PROG_GET_FD_BY_ID, &attr, sizeof attr);
	if (fd >= 0) {
		rc = program_name(fd, name);
		bool ours = rc >= 0 && strcmp(name, XDP_NAME) == 0;
		/* The program of a live process is attached by a link, which only that process can detach: -EBUSY. */
		rc = ours ? detach(index, at.mode, fd) : -EBUSY;
		close(fd);
		if (rc == 0)
			return 0;
		if (ours)
			return host_error(err, -EBUSY,
					  "dpdk: interface %s is used by net_af_xdp of another process; use another "
					  "interface, or net_af_packet",
					  iface);
	}
	return host_error(err, -EBUSY,
			  "dpdk: interface %s has an XDP program already (\"%s\", id %u); detach it by `ip link set "
			  "dev %s xdp off`, or use net_af_packet",
			  iface, name, at.id, iface);
}

/* True if the descriptor refers to the program or map with this id, according to its fdinfo. */
static bool is_object(const char *fd, const char *kind, uint32_t id)
{
	char path[64], line[128], format[32];
	unsigned got = 0;
	snprintf(path, sizeof path, "/proc/self/fdinfo/%.16s", fd);
	snprintf(format, sizeof format, "%s: %%u", kind);
	FILE *f = fopen(path, "re");
	while (f && got == 0 && fgets(line, sizeof line, f))
		if (sscanf(line, format, &got) != 1)
			got = 0;
	if (f)
		fclose(f);
	return got == id;
}

/* A descriptor of the program that DPDK loaded in this process, duplicated from DPDK's own: opening one by id takes
 * CAP_SYS_ADMIN, which nothing else here needs. Or -errno. */
static int own_program(uint32_t id)
{
	DIR *d = opendir("/proc/self/fd");
	int found = -ENOENT;
	if (!d)
		return -errno;
	for (struct dirent *e = readdir(d); e && found == -ENOENT; e = readdir(d)) {
		if (e->d_name[0] < '0' || e->d_name[0] > '9' || !is_object(e->d_name, "prog_id", id))
			continue;
		found = dup(atoi(e->d_name));
		if (found < 0)
			found = -errno;
	}
	closedir(d);
	return found;
}

static int link_create(int index, uint32_t mode, int program)
{
	union bpf_attr attr = {.link_create = {.prog_fd = (uint32_t)program,
					       .target_ifindex = (uint32_t)index,
					       .attach_type = BPF_XDP,
					       .flags = mode}};
	return bpf(BPF_LINK_CREATE, &attr, sizeof attr.link_create);
}

int xdp_attach_link(int index, const char *iface, uint32_t *program_id, struct nic_err *err)
{
	struct attached at;
	*program_id = 0;
	int rc = query(index, &at);
	int program = rc < 0 ? rc : at.id ? own_program(at.id) : -ENOENT;
	if (program < 0)
		return host_error(err, program,
				  "dpdk: the XDP filter of interface %s cannot be found (%s): it was detached or "
				  "replaced by another program",
				  iface, strerror(-program));
	*program_id = at.id;
	/* A kernel without links returns -EINVAL whatever the flags, before it checks what is attached. */
	int link = link_create(index, at.mode, program);
	if (link == -EBUSY) {
		rc = detach(index, at.mode, program);
		link = rc < 0 ? rc : link_create(index, at.mode, program);
	} else if (link == -EINVAL) {
		link = -EOPNOTSUPP;
	}
	close(program);
	if (link < 0 && link != -EOPNOTSUPP)
		return host_error(err, link, "dpdk: the XDP filter of interface %s cannot be attached by a link: %s",
				  iface, strerror(-link));
	return link;
}

void xdp_detach_link(int link)
{
	if (link >= 0)
		close(link);
}

static void close_all(const char *kind, uint32_t id)
{
	DIR *d = opendir("/proc/self/fd");
	for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
		if (e->d_name[0] != '.' && atoi(e->d_name) != dirfd(d) && is_object(e->d_name, kind, id))
			close(atoi(e->d_name));
	if (d)
		closedir(d);
}

/* Closes descriptors of our BTF types. No id leads to them from a socket map; equal types belong to a port of ours, and
 * need no descriptor once loaded. */
static void close_types(void)
{
	DIR *d = opendir("/proc/self/fd");
	for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
		uint8_t bytes[1024];
		char path[64], name[32] = "";
		struct bpf_btf_info info = {.btf = (uint64_t)(uintptr_t)bytes, .btf_size = sizeof bytes};
		snprintf(path, sizeof path, "/proc/self/fd/%.16s", e->d_name);
		if (readlink(path, name, sizeof name - 1) < 0 || strcmp(name, "anon_inode:btf") != 0)
			continue;
		int fd = atoi(e->d_name);
		union bpf_attr attr = {
			.info = {.bpf_fd = (uint32_t)fd, .info_len = sizeof info, .info = (uint64_t)(uintptr_t)&info}};
		if (bpf(BPF_OBJ_GET_INFO_BY_FD, &attr, sizeof attr.info) >= 0 && info.btf_size <= sizeof bytes &&
		    xdp_is_btf(bytes, info.btf_size))
			close(fd);
	}
	if (d)
		closedir(d);
}

void xdp_close_objects(uint32_t program)
{
	uint32_t map = 0;
	struct bpf_prog_info info = {.nr_map_ids = 1, .map_ids = (uint64_t)(uintptr_t)&map};
	int fd = program ? own_program(program) : -1;
	if (fd < 0)
		return;
	union bpf_attr attr = {
		.info = {.bpf_fd = (uint32_t)fd, .info_len = sizeof info, .info = (uint64_t)(uintptr_t)&info}};
	int rc = bpf(BPF_OBJ_GET_INFO_BY_FD, &attr, sizeof attr.info);
	close(fd);
	close_all("prog_id", program);
	if (rc >= 0 && map)
		close_all("map_id", map);
	close_types();
}

int xdp_probe(struct nic_err *err)
{
	int s = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (s < 0) {
		int error = errno;
		if (error == EPERM)
			return host_error(err, -EPERM, "dpdk: net_af_xdp needs " RIGHTS ", and CAP_NET_RAW is missing");
		return host_error(err, -error, "dpdk: the kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS): %s",
				  strerror(error));
	}
	close(s);
	union bpf_attr attr = {.map_type = BPF_MAP_TYPE_XSKMAP, .key_size = 4, .value_size = 4, .max_entries = 1};
	int map = bpf(BPF_MAP_CREATE, &attr, sizeof attr);
	if (map < 0)
		return host_error(err, map,
				  map == -EPERM ? "dpdk: net_af_xdp needs " RIGHTS
						  ", and may not create a map for XDP: %s"
						: "dpdk: the kernel cannot create an XDP map: %s",
				  strerror(-map));
	close(map);
	return 0;
}
