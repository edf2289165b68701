/* SPDX-License-Identifier: BSD-3-Clause */
/** Cases of ports, their addresses and places; udp_socket.c includes it. Main thread of each process. */
#ifndef UDP_PORTS_H
#define UDP_PORTS_H

#include "own_address.h"
#include "udp_fixture.h"

static void case_queues(void)
{
	struct nic_addr addr;
	struct nic_pkt pkts[BURST];
	struct nic_err err = {""};
	end_open_at(0, NULL, NULL, 3);
	end_open_at(1, NULL, NULL, UDP_QUEUES_MAX);
	REQUIRE(driver->queue(ends[1].port, UDP_QUEUES_MAX) == NULL);
	driver->address(ends[1].port, &addr);
	REQUIRE(addr.len <= UDP_BLOB_MAX);
	for (unsigned i = 0; i < 3; i++)
		for (unsigned k = 0; k < UDP_QUEUES_MAX; k++) {
			uint32_t peer = dest_up(0, &addr, i, k);
			ends[0].q = driver->queue(ends[0].port, (i + 1) % 3);
			REQUIRE(ends[0].ops->attach(ends[0].q, peer) == -EINVAL);
			ends[0].q = driver->queue(ends[0].port, i);
			REQUIRE(ends[0].ops->attach(ends[0].q, peer) == 0);
			REQUIRE(send_one(0, peer, i * 100 + k, 64) == 0);
			flush(0);
			ends[1].q = driver->queue(ends[1].port, (k + 1) % UDP_QUEUES_MAX);
			REQUIRE(take(1, pkts, BURST) == 0);
			ends[1].q = driver->queue(ends[1].port, k);
			expect_one(1, i * 100 + k, 64);
		}
	REQUIRE(driver->connect(ends[0].port, &(struct nic_connect){3, &addr, 0, NULL, 0, 0, NULL}, &err) == -EINVAL &&
		err.text[0]);
	REQUIRE(driver->connect(ends[0].port, &(struct nic_connect){0, &addr, UDP_QUEUES_MAX, NULL, 0, 0, NULL},
				&err) == -EINVAL);
	driver->address(ends[0].port, &addr);
	REQUIRE(driver->connect(ends[1].port, &(struct nic_connect){0, &addr, 3, NULL, 0, 0, &ends[1]}, &err) == 0);
	driver->step(ends[1].port, 0, on_event, &ends[1]);
	REQUIRE(ends[1].fails == 1 && ends[1].failed_text[0] && ends[1].last_user == &ends[1]);
}

/* A port of our choice, for each queue the next one. Others may take it meanwhile: tried again. */
static void case_port_args(void)
{
	struct nic_err err = {""};
	int error = -EADDRINUSE;
	for (unsigned tries = 0; error == -EADDRINUSE && tries < 50; tries++) {
		char args[32];
		end_open_at(0, "127.0.0.1", NULL, 1);
		unsigned port = udp_queue_of(ends[0].q)->port_number;
		end_close(0);
		snprintf(args, sizeof args, "port=%u", port < 65000 ? port : 65000);
		struct nic_config config = {.queues = 4, .listen = "127.0.0.1", .args = args};
		error = end_open_config(0, &config, &err);
		for (unsigned i = 0; !error && i < 4; i++)
			REQUIRE(udp_queue_of(driver->queue(ends[0].port, i))->port_number ==
				(port < 65000 ? port : 65000) + i);
		if (error)
			continue;
		struct nic_port *second;
		REQUIRE(driver->open(&config, &second, &err) == -EADDRINUSE);
		REQUIRE(strstr(err.text, "127.0.0.1") && strstr(err.text, "nic=udp:port=N"));
	}
	REQUIRE(error == 0);
}

static unsigned descriptors(void)
{
	int fd = dup(0);
	close(fd);
	return (unsigned)fd;
}

static void open_wrong(struct nic_config config, int want, const char *text)
{
	struct nic_err err = {""};
	struct nic_port *port;
	unsigned before = descriptors();
	int error = driver->open(&config, &port, &err);
	if (error != want || !strstr(err.text, text))
		fprintf(stderr, "got %d \"%s\"\n", error, err.text);
	REQUIRE(error == want && strstr(err.text, text));
	REQUIRE(descriptors() == before);
}

static void case_wrong(void)
{
	open_wrong((struct nic_config){.queues = 0}, -EINVAL, "queues");
	open_wrong((struct nic_config){.queues = 17}, -EINVAL, "queues");
	open_wrong((struct nic_config){.queues = 1, .head_bytes = 4}, -EINVAL, "head");
	open_wrong((struct nic_config){.queues = 1, .args = "speed=9"}, -EINVAL, "port, mtu, gso, rcvbuf, sndbuf");
	open_wrong((struct nic_config){.queues = 1, .listen = "nosuch0"}, -EADDRNOTAVAIL, "lo 127.0.0.1");
	open_wrong((struct nic_config){.queues = 1, .listen = "0.0.0.0"}, -EACCES, "security=none");
	open_wrong((struct nic_config){.queues = 1, .advertise = "localhost"}, -EINVAL, "advertise=localhost");
	open_wrong((struct nic_config){.queues = 2, .advertise = "192.0.2.1:7000"}, -EINVAL, "each queue");
}

static void case_addresses(void)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	char text[256];
	end_open_at(0, "127.0.0.2", NULL, 1);
	end_open_at(1, NULL, NULL, 1);
	driver->address(ends[0].port, &addr);
	driver->address_text(&addr, text, sizeof text);
	REQUIRE(strncmp(text, "udp 127.0.0.2:", 14) == 0);
	at_0 = connect_attach(1, 0);
	REQUIRE(send_one(1, at_0, 4, 40) == 0);
	flush(1);
	expect_one(0, 4, 40);
	/* Any byte of it may come from somebody else: refused, or a place that nobody is at. */
	for (uint16_t len = 0; len < addr.len; len++) {
		struct nic_addr cut = addr;
		cut.len = len;
		REQUIRE(driver->reach(ends[1].port, &cut, &err) == -EINVAL && strstr(err.text, "malformed"));
		REQUIRE(driver->connect(ends[1].port, &(struct nic_connect){0, &cut, 0, NULL, 0, 0, NULL}, &err) ==
			-EINVAL);
		driver->address_text(&cut, text, sizeof text);
		REQUIRE(strcmp(text, "udp (malformed)") == 0);
	}
	struct nic_addr host = addr;
	host.blob[4] ^= 1;
	REQUIRE(driver->reach(ends[1].port, &host, &err) < 0 && strstr(err.text, "loopback of another host"));
	host = addr;
	host.blob[12] ^= 1;
	REQUIRE(driver->reach(ends[1].port, &host, &err) < 0 && strstr(err.text, "another network namespace"));
	driver->address_text(&addr, text, 8);
	REQUIRE(strlen(text) == 7);
}

/* All addresses through one socket of both families; a port that leads to itself; advertised, what is published. */
static void case_beyond(void)
{
	struct nic_err err = {""};
	struct nic_config config = {.queues = 1, .beyond_host = true};
	struct nic_addr addr;
	char text[256];
	REQUIRE(end_open_config(0, &config, &err) == 0);
	REQUIRE(end_open_config(1, &config, &err) == 0);
	at_1 = connect_attach(0, 1);
	uint32_t self = connect_attach(0, 0);
	for (unsigned i = 0; i < 100; i++) {
		for (unsigned k = 0; k < 20; k++)
			REQUIRE(send_one(0, at_1, i + k, 300) == 0);
		REQUIRE(send_one(0, self, i, 200) == 0);
		flush(0);
		expect_row(1, i, 20, 300);
		expect_one(0, i, 200);
	}
	end_close(1);
	config.advertise = "192.0.2.77:7000-7003";
	REQUIRE(end_open_config(1, &config, &err) == 0);
	driver->address(ends[1].port, &addr);
	driver->address_text(&addr, text, sizeof text);
	REQUIRE(strcmp(text, "udp 192.0.2.77:7000") == 0);
}

static void case_dests(void)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	enum { MANY = 3000 };
	static uint32_t peers[MANY];
	two(own_address(), NULL);
	driver->address(ends[1].port, &addr);
	for (unsigned i = 0; i < MANY; i++)
		peers[i] = dest_up(0, &addr, 0, 0);
	for (unsigned i = 0; i < MANY; i += 2)
		driver->drop(ends[0].port, peers[i]);
	for (unsigned i = 1; i < MANY; i += 2)
		REQUIRE(ends[0].ops->attach(ends[0].q, peers[i]) == 0);
	REQUIRE(ends[0].ops->attach(ends[0].q, peers[0]) == -EINVAL);
	for (unsigned i = 1; i < MANY; i += 2) {
		REQUIRE(send_one(0, peers[i], i, 33) == 0);
		flush(0);
		expect_one(1, i, 33);
		ends[0].ops->detach(ends[0].q, peers[i]);
	}
	/* Dropped before it was reported: it never is. */
	unsigned ups = ends[0].ups;
	REQUIRE(driver->connect(ends[0].port, &(struct nic_connect){0, &addr, 0, NULL, 0, 0, NULL}, &err) == 0);
	for (uint32_t i = 0; i < MANY + 8; i++)
		if (i != at_1)
			driver->drop(ends[0].port, i);
	driver->step(ends[0].port, 0, on_event, &ends[0]);
	REQUIRE(ends[0].ups == ups);
	(void)dest_up(0, &addr, 0, 0);
}

#endif
