/* SPDX-License-Identifier: BSD-3-Clause */
/** Cases of opening and connecting: arguments, reach, what the machine must have, and unexpected peers at the socket.
 * Main thread of each process. */
#ifndef DPDK_MEMIF_SETUP_H
#define DPDK_MEMIF_SETUP_H

#include "dpdk_memif.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>

/* What is wrong is named, and the next one works. */
static void case_args(void)
{
	static const struct {
		const char *args, *says;
		unsigned queues;
	} wrong[] = {
		{NULL, "no device given", 1},
		{"", "no device given", 1},
		{",role=server", "is not a device", 1},
		{"role=server", "is not a device", 1},
		{"memif0", "neither net_", 1},
		{"net_memif0", "role=server on one side", 1},
		{"net_memif0,role=master", "server or client", 1},
		{"net_memif0,role=server,nonsense", "is not key=value", 1},
		{"net_memif0,role=server,=1", "is not key=value", 1},
		{"net_memif0,role=server,id=-1", "id=-1", 1},
		{"net_memif0,role=server,id=99999999999", "id=99999999999", 1},
		{"net_memif0,role=server,bsize=1", "bsize=1", 1},
		{"net_memif0,role=server,bsize=70000", "bsize=70000", 1},
		{"net_memif0,role=server,zero-copy=yes", "zero-copy=yes", 1},
		{"net_memif0,role=server,huge=2", "huge=2", 1},
		{"net_memif0,role=server,mtu=1", "mtu=1", 1},
		{"net_memif0,role=server,port=65536", "port=65536", 1},
		{"net_memif0,role=server,ip=10.0.0.300", "ip=10.0.0.300", 1},
		{"net_memif0,role=server,ip=10.0.0.3/33", "ip=10.0.0.3/33", 1},
		{"net_memif0,role=server,socket-abstract=no,socket=/nonexistent/dir/m",
		 "cannot listen at /nonexistent/dir/m", 1},
		{"net_memif0,role=server,rsize=99", "Invalid ring size", 1},
		{"net_memif0,role=server,unknown=1", "unknown=1: not a memif argument", 1},
		{"net_memif0,role=server,rxd=31", "rxd=31: packets per device ring", 1},
		{"net_memif0,role=server,txd=5000", "txd=5000: packets per device ring", 1},
		{"net_memif0,role=server,vlan=5", "vlan=5: only for a device that the kernel does not use", 1},
		{"net_memif0,role=server,router=02:00:00:00:00:01", "router=02:00:00:00:00:01: only for a device", 1},
		{"0000:ff:1f.7,vlan=0", "vlan=0: the number of a VLAN", 1},
		{"0000:ff:1f.7,vlan=4095", "vlan=4095: the number of a VLAN", 1},
		{"0000:ff:1f.7,router=01:00:00:00:00:01", "the MAC address of a router", 1},
		{"0000:ff:1f.7,router=02:00:00:00:00", "the MAC address of a router", 1},
		{"net_memif0,role=server,gw=10.0.0.9", "gw=10.0.0.9: only for a device", 1},
		{"0000:ff:1f.7,gw=10.0.0", "gw=10.0.0: the IP address of a router", 1},
		{"0000:ff:1f.7,gw=10.0.0.9", "gw=10.0.0.9 is not in the subnet of ip=", 1},
		{"0000:ff:1f.7,ip=10.0.0.1/24,gw=10.0.1.9", "gw=10.0.1.9 is not in the subnet of ip=", 1},
		{"0000:ff:1f.7,ip=10.0.0.1/24,gw=fd00::9", "gw=fd00::9 is not in the subnet of ip=", 1},
		{"0000:ff:1f.7,ip=10.0.0.1/24,gw=10.0.0.9,router=02:00:00:00:00:01", "both name a router", 1},
		{"net_memif0,role=server,neighbour=10.0.0.9/02:00:00:00:00:01", "10.0.0.9/02:00:00:00:00:01: only for",
		 1},
		{"0000:ff:1f.7,neighbour=10.0.0.9", "neighbour=10.0.0.9: an IP and a MAC address", 1},
		{"0000:ff:1f.7,neighbour=10.0.0.9/02:00:00:00:00", "an IP and a MAC address", 1},
		{"ff:1f.7", "0000:ff:1f.7 leads to other hosts", 1},
		{"net_null0,copy=0,unknown=1", "net_null0 cannot be opened", 1},
		{"net_nothing0,iface=lo", "net_nothing0 leads to other hosts", 1},
		{"net_tap0,iface=farcall9", "net_tap0 leads to other hosts", 1},
		{"net_pcap0,iface=lo", "net_pcap0 leads to other hosts", 1},
		{"net_pcap0,rx_iface_in=lo,tx_pcap=/dev/null", "net_pcap0 leads to other hosts", 1},
		{"net_virtio_user0,path=/dev/vhost-net", "net_virtio_user0 leads to other hosts", 1},
		{"net_memif0,role=server,socket-abstract=no,socket=/dev/null", "/dev/null exists already", 1},
		{"net_memif0,role=server", "1 to 16 queues", 0},
		{"net_memif0,role=server", "1 to 16 queues", 17},
		{"net_memif0,role=server", "at most 15 shards", 16},
		{"0000:ff:1f.7", "0000:ff:1f.7", 1},
		{"net_af_packet0", "iface=", 1},
		{"net_af_packet0,iface=lo", "security=none", 1},
	};
	struct end e;
	struct nic_err err;
	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		int error = end_try(&e, wrong[i].args, wrong[i].queues, &err);
		if (error >= 0 || !strstr(err.text, wrong[i].says)) {
			fprintf(stderr, "%s: %d, \"%s\" lacks \"%s\"\n", wrong[i].args, error, err.text, wrong[i].says);
			exit(1);
		}
	}
	name_args("");
	end_open(&e, server_args, 1);
	struct end twice;
	REQUIRE(end_try(&twice, server_args, 1, &err) == -EBUSY && strstr(err.text, "in use in this process"));
	struct nic_config config = {.id = 1, .queues = 1, .head_bytes = 28, .args = server_args};
	REQUIRE(e.ops->open(&config, &twice.port, &err) == -EINVAL && strstr(err.text, "28 bytes"));
	int status;
	pid_t child = fork(); /* which has none of EAL's threads */
	if (child == 0)
		_exit(end_try(&twice, "net_null7,copy=0", 1, &err) != -EOPNOTSUPP || !strstr(err.text, "fork()"));
	REQUIRE(waitpid(child, &status, 0) == child && status == 0);
	struct other o;
	struct nic_addr ours;
	e.ops->address(e.port, &ours);
	other_start(&o, client_args, 1, &ours);
	uint32_t peer = end_connect(&e, 0, &o.addr, 0);
	exchange(&e, 0, peer, &e, 0, 1, 16);
	other_end(&o, 0);
	e.ops->close(e.port);
}

/* Addresses of others: who can be reached, and why not. */
static void case_reach(void)
{
	struct end s, c, other, two;
	struct nic_addr to_s, to_c, to;
	struct nic_err err = {""};
	char at[256];
	name_args("");
	end_open(&s, server_args, 1);
	end_open(&c, client_args, 1);
	s.ops->address(s.port, &to_s);
	c.ops->address(c.port, &to_c);
	REQUIRE(to_s.len <= 208 && strcmp(to_s.driver, "dpdk") == 0);
	REQUIRE(s.ops->reach(s.port, &to_c, &err) == 0);
	REQUIRE(s.ops->reach(s.port, &to_s, &err) == 0); /* itself */
	s.ops->address_text(&to_s, at, sizeof at);
	REQUIRE(strstr(at, "memif id 3") && strstr(at, "server"));
	const struct {
		const char *args, *says;
	} unreachable[] = {
		{"net_memif2,role=server,id=4,socket=%s/m.sock,socket-abstract=no", "id 4 here, 3 there"},
		{"net_memif2,role=client,id=3,socket=%s/other,socket-abstract=no", "another socket"},
		{"net_memif2,role=client,id=3,socket=%s/a.sock,socket-abstract=yes", "another socket"},
		{"net_null0,copy=0%s", "is memif"},
	};
	for (unsigned i = 0; i < sizeof unreachable / sizeof *unreachable; i++) {
		snprintf(at, sizeof at, unreachable[i].args, i < 3 ? dir : "");
		end_open(&other, at, 1);
		REQUIRE(other.ops->reach(other.port, &to_s, &err) == -EHOSTUNREACH);
		if (!strstr(err.text, unreachable[i].says)) {
			fprintf(stderr, "%s: %s\n", at, err.text);
			exit(1);
		}
		other.ops->close(other.port);
	}
	snprintf(at, sizeof at, "net_memif3,role=server,id=5,socket=%s/m.sock,socket-abstract=no", dir);
	end_open(&other, at, 1);
	snprintf(at, sizeof at, "net_memif4,role=client,id=5,socket=%s/m.sock,socket-abstract=no", dir);
	end_open(&two, at, 2);
	other.ops->address(other.port, &to);
	REQUIRE(two.ops->reach(two.port, &to, &err) == -EHOSTUNREACH && strstr(err.text, "2 here, 1 there"));
	other.ops->close(other.port);
	two.ops->close(two.port);
	/* Nonsense of every length and with every byte changed: an error or a place, never more. */
	for (unsigned i = 0; i < to_s.len; i++) {
		to = to_s;
		to.len = (uint16_t)i;
		REQUIRE(c.ops->reach(c.port, &to, &err) == -EINVAL);
		to = to_s;
		to.blob[i] = (uint8_t)~to.blob[i];
		c.ops->address_text(&to, at, sizeof at);
		if (c.ops->connect(c.port, &(struct nic_connect){0, &to, 0, NULL, 0, now_ns(), NULL}, &err) == 0)
			continue;
		REQUIRE(err.text[0]);
	}
	REQUIRE(c.ops->connect(c.port, &(struct nic_connect){1, &to_s, 0, NULL, 0, now_ns(), NULL}, &err) == -EINVAL);
	REQUIRE(c.ops->connect(c.port, &(struct nic_connect){0, &to_s, 1, NULL, 0, now_ns(), NULL}, &err) == -EINVAL);
	c.ops->close(c.port); /* with address handles that no event has reported */
	s.ops->close(s.port);
}

/* What EAL does to a process that has other plans. */
static void case_affinity(void)
{
	struct end e;
	cpu_set_t before, after;
	char path[64], line[256];
	name_args("");
	REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
	end_open(&e, server_args, 1);
	REQUIRE(sched_getaffinity(0, sizeof after, &after) == 0);
	REQUIRE(CPU_EQUAL(&before, &after));
	DIR *d = opendir("/proc/self/task");
	struct dirent *task;
	unsigned threads = 0;
	while ((task = readdir(d))) {
		pid_t tid = atoi(task->d_name);
		if (tid <= 0 || tid == getpid())
			continue;
		REQUIRE(sched_getaffinity(tid, sizeof after, &after) == 0);
		REQUIRE(CPU_EQUAL(&before, &after));
		snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
		FILE *f = fopen(path, "r");
		bool blocked = false;
		while (f && fgets(line, sizeof line, f)) {
			unsigned long long mask;
			if (sscanf(line, "SigBlk: %llx", &mask) == 1)
				blocked = mask >> (SIGTERM - 1) & mask >> (SIGPIPE - 1) & mask >> (SIGUSR1 - 1) & 1;
		}
		REQUIRE(f && fclose(f) == 0 && blocked);
		threads++;
	}
	closedir(d);
	REQUIRE(threads >= 1);
	e.ops->close(e.port);
}

/* With FAR_TEST_HUGE=0 or 1 huge= is set. */
static void case_huge(void)
{
	const char *pages = getenv("FAR_TEST_HUGE");
	struct end s, c;
	struct nic_addr to;
	struct nic_err err;
	char more[32] = "", line[512];
	if (pages)
		snprintf(more, sizeof more, ",huge=%s", pages);
	name_args(more);
	int error = end_try(&s, server_args, 1, &err);
	if (error) {
		fprintf(stderr, "%s\n", err.text);
		rmdir(dir);
		exit(1);
	}
	end_open(&c, client_args, 1);
	s.ops->address(s.port, &to);
	uint32_t peer = end_connect(&c, 0, &to, 0);
	for (unsigned i = 0; i < 1000; i++)
		exchange(&c, 0, peer, &s, 0, 1 + i, 16 + i);
	FILE *f = fopen("/proc/self/smaps", "r");
	unsigned long kb, huge = 0;
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "Private_Hugetlb: %lu kB", &kb) == 1 ||
		    sscanf(line, "Shared_Hugetlb: %lu kB", &kb) == 1)
			huge += kb;
	REQUIRE(f && fclose(f) == 0);
	printf("%s in use\n", huge ? "huge pages" : "no huge pages");
	struct end other;
	error = end_try(&other, huge ? "net_null0,huge=0" : "net_null0,huge=1", 1, &err);
	REQUIRE(error && strstr(err.text, huge ? "runs already, with huge pages" : "huge"));
	s.ops->close(s.port);
	c.ops->close(c.port);
}

static int knock(void)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	snprintf(at.sun_path, sizeof at.sun_path, "%s/m.sock", dir);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	REQUIRE(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
	return fd;
}

static void steps(struct end *s, struct end *c, unsigned ms)
{
	for (uint64_t until = now_ns() + ms * UINT64_C(1000000); now_ns() < until;) {
		end_step(s);
		if (c)
			end_step(c);
	}
}

/* Who connects to a server and leaves, or stays and says nonsense, disturbs neither it nor its client. */
static void case_knock(void)
{
	struct end s, c;
	struct nic_addr to;
	uint8_t nonsense[300];
	int fds[80];
	name_args("");
	end_open(&s, server_args, 1);
	s.ops->address(s.port, &to);
	for (unsigned i = 0; i < 50; i++) {
		close(knock());
		steps(&s, NULL, i % 3);
	}
	end_open(&c, client_args, 1);
	uint32_t peer = end_connect(&c, 0, &to, 0);
	exchange(&c, 0, peer, &s, 0, 1, 100);
	unsigned before = open_fds();
	for (unsigned i = 0; i < 200; i++) {
		memset(nonsense, (int)(i * 37), sizeof nonsense);
		nonsense[0] = (uint8_t)(i % 10); /* all types of message, and some that there are not */
		nonsense[1] = 0;
		int fd = knock();
		steps(&s, &c, i % 2);
		/* 128 bytes are the length of a message. */
		ssize_t n = send(fd, nonsense, i % 3 ? 128 : 1 + i, MSG_NOSIGNAL);
		REQUIRE(n > 0 || errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN);
		steps(&s, &c, i % 2);
		close(fd);
		exchange(&c, 0, peer, &s, 0, 2 + i, 100);
	}
	for (unsigned i = 0; i < 80; i++) { /* more than are served */
		fds[i] = knock();
		steps(&s, &c, 1);
	}
	steps(&s, &c, 20);
	exchange(&c, 0, peer, &s, 0, 1000, 100);
	struct pollfd p = {.fd = s.ops->fd(s.port), .events = POLLIN};
	for (uint64_t limit = now_ns() + HANG_NS; poll(&p, 1, 0) > 0;) { /* nor is the control thread kept busy */
		REQUIRE(now_ns() < limit);
		steps(&s, &c, 20);
	}
	for (unsigned i = 0; i < 80; i++)
		close(fds[i]);
	steps(&s, &c, 100);
	exchange(&c, 0, peer, &s, 0, 1001, 100);
	REQUIRE(open_fds() == before);
	/* Its client can still come back. */
	c.ops->close(c.port);
	end_open(&c, client_args, 1);
	peer = end_connect(&c, 0, &to, 0);
	exchange(&c, 0, peer, &s, 0, 1002, 100);
	c.ops->close(c.port);
	s.ops->close(s.port);
}

#endif
