// SPDX-License-Identifier: BSD-3-Clause
/**
 * cache.c in C++: a cache of strings on two servers. One of them dies and is started again. Main thread of each worker.
 *
 *	farcall run -n 3 --max-restarts 1 -- ./cache_cpp
 */
#include "args.h"

#include <farcall/farcall.hpp>

#include <cstdio>
#include <optional>
#include <thread>
#include <unordered_map>

#include <unistd.h>

namespace
{

constexpr int servers = 2, keys = 1000;

// A server's keys. Inline handlers run on the shard thread alone, so the table needs no lock.
std::unordered_map<std::string, std::string> table;

void add_functions(farcall::registry &functions)
{
	functions.add("cache::put(key, value)",
		      [](const std::string &key, const std::string &value) { table[key] = value; });
	functions.add("cache::get(key)", [](const std::string &key) {
		auto at = table.find(key);
		return at == table.end() ? std::nullopt : std::optional(at->second);
	});
	functions.add("cache::die()", [] { _exit(3); });
}

std::string server_of(int key)
{
	return key % servers ? "worker2" : "worker1";
}

// Reads all keys, and puts those that are missing. Returns the number of hits.
int read_all(const farcall::agent &agent)
{
	int hits = 0;
	for (int key = 0; key < keys; key++) {
		std::string name = "user:" + std::to_string(key);
		if (agent.call<std::optional<std::string>>(server_of(key), "cache::get", name))
			hits++;
		else
			agent.call(server_of(key), "cache::put", name, "value " + std::to_string(key));
	}
	return hits;
}

// Calls end with PEER_LOST until the next process of the worker has joined.
void await_restart(const farcall::agent &agent, const char *worker)
{
	for (;;) {
		try {
			agent.call(worker, "cache::get", "");
			return;
		} catch (const farcall::error &e) {
			if (e.status() != FAR_PEER_LOST)
				throw;
		}
		std::this_thread::sleep_for(std::chrono::milliseconds(10));
	}
}

void client(const farcall::agent &agent)
{
	for (int round = 0; round < 4; round++) {
		if (round == 2) {
			try {
				agent.call("worker1", "cache::die");
			} catch (const farcall::error &e) {
				std::printf("worker1 dies: %s, executed %s\n", far_status_name(e.status()),
					    far_executed_name(e.executed()));
			}
			await_restart(agent, "worker1");
		}
		std::printf("%d hits of %d%s\n", read_all(agent), keys, round == 2 ? ", after its restart" : "");
	}
}

} // namespace

int main(int argc, char **argv)
{
	args_read(argc, argv, "farcall run -n 3 --max-restarts 1 -- ", "A cache, and a server that dies.", nullptr, 0);
	try {
		farcall::registry functions;
		add_functions(functions);
		farcall::agent agent("worker%d", functions);
		if (agent.world_size() != 1 + servers)
			throw std::runtime_error(
				"it needs three workers: farcall run -n 3 --max-restarts 1 -- ./cache_cpp");
		if (agent.rank() == 0)
			client(agent);
		else
			agent.serve();
		agent.shutdown();
		return 0;
	} catch (const std::exception &e) {
		std::fprintf(stderr, "cache: %s\n", e.what());
		return 1;
	}
}
