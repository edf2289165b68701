// SPDX-License-Identifier: BSD-3-Clause
/**
 * hello.c in C++: a group, a synchronous call, asynchronous calls, and errors. Main thread of each worker.
 *
 *	farcall run -n 3 -- ./hello_cpp
 */
#include "args.h"

#include <farcall/farcall.hpp>

#include <cstdio>

namespace
{

// The types of a lambda are its signature: "demo::greet(str who) -> str". An exception is the error of the call.
void add_functions(farcall::registry &functions)
{
	functions.add("demo::greet(who)", [](farcall::request request, const std::string &who) {
		far_worker_info self;
		far_worker_self(request.agent(), &self);
		return "hello " + who + ", this is " + self.name;
	});
	functions.add("demo::root(x)", [](std::int64_t x) {
		if (x < 0)
			throw farcall::error(FAR_REMOTE, std::to_string(x) + " has no root", 33);
		std::int64_t root = 0;
		while ((root + 1) * (root + 1) <= x)
			root++;
		return root;
	});
}

void calls(const farcall::agent &agent)
{
	std::printf("sync: %s\n", agent.call<std::string>("worker1", "demo::greet", "worker0").c_str());
	std::vector<farcall::future<int>> roots;
	for (int i = 0; i < 3; i++)
		roots.push_back(agent.async<int>(i % 2 ? "worker2" : "worker1", "demo::root", 100 * (i + 1)));
	for (int i = 0; i < 3; i++)
		std::printf("async: the root of %d is %d\n", 100 * (i + 1), roots[static_cast<std::size_t>(i)].get());
}

// An error has a class, a code, a text, the worker where it arose, and whether the function ran.
template <typename Argument> void wrong(const farcall::agent &agent, const char *to, Argument x)
{
	try {
		agent.call(to, "demo::root", x);
	} catch (const farcall::error &e) {
		if (e.origin()[0])
			std::printf("error: %s from %s, code %d, executed %s: %s\n", far_status_name(e.status()),
				    e.origin(), e.code(), far_executed_name(e.executed()), e.what());
		else
			std::printf("error: %s, executed %s\n", far_status_name(e.status()),
				    far_executed_name(e.executed()));
	}
}

} // namespace

int main(int argc, char **argv)
{
	args_read(argc, argv, "farcall run -n 3 -- ", "A group, calls, and errors.", nullptr, 0);
	try {
		farcall::registry functions;
		add_functions(functions);
		farcall::agent agent("worker%d", functions);
		if (agent.world_size() < 3)
			throw std::runtime_error("give it three workers: farcall run -n 3 -- ./hello_cpp");
		if (agent.rank() == 0) {
			std::printf("a group of %d\n", agent.world_size());
			calls(agent);
			wrong(agent, "worker2", -4);
			wrong(agent, "worker2", "four"); // fails here, before anything is sent
			wrong(agent, "worker9", 4);
		} else {
			agent.serve(); // until worker0 leaves
		}
		agent.shutdown();
	} catch (const std::exception &e) {
		std::fprintf(stderr, "hello: %s\n", e.what());
		return 1;
	}
	return 0;
}
