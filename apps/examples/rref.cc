// SPDX-License-Identifier: BSD-3-Clause
/**
 * rref.c in C++: a value stays on its owner, and messages carry references to it. Main thread of each worker.
 *
 *	farcall run -n 3 -- ./rref_cpp
 */
#include "args.h"

#include <farcall/farcall.hpp>

#include <cstdio>
#include <numeric>

namespace
{

using table = std::vector<double>;

double sum_of(const table &t)
{
	return std::accumulate(t.begin(), t.end(), 0.0);
}

void add_functions(farcall::registry &functions)
{
	// Runs on the owner: remote() keeps its result there.
	functions.add("demo::table(rows)", [](std::int64_t rows) {
		if (rows < 1)
			throw farcall::error(FAR_BAD_ARGS, "a table of " + std::to_string(rows) + " rows");
		table t(static_cast<std::size_t>(rows));
		std::iota(t.begin(), t.end(), 0.0);
		return t;
	});
	// Any holder of a reference may fetch the value, from the owner itself. A fiber, because the fetch waits.
	functions.add(
		"demo::sum_there(values)", [](const farcall::rref<table> &values) { return sum_of(values.to_here()); },
		farcall::kind::fiber);
	// On the owner: the value itself, without a copy.
	functions.add(
		"demo::sum_local(values)",
		[](const farcall::rref<table> &values) {
			farcall::value v = values.local_value();
			auto view = v.as<farcall::tensor_view<const double>>();
			return std::accumulate(view.begin(), view.end(), 0.0);
		},
		farcall::kind::fiber);
}

void work(const farcall::agent &agent)
{
	// Returns at once, possibly before the value was made. Later uses wait for it. The last holder's reference that
	// goes frees the value on its owner.
	auto r = agent.remote<table>("worker1", "demo::table", 1000);
	std::printf("a table on %s, ours: %s\n", r.owner_name().c_str(), r.is_owner() ? "yes" : "no");
	table mine = r.to_here();
	std::printf("fetched by worker0: %zu values, their sum is %.0f\n", mine.size(), sum_of(mine));
	std::printf("fetched by worker2: their sum is %.0f\n", agent.call<double>("worker2", "demo::sum_there", r));
	std::printf("by their owner, without a copy: %.0f\n", agent.call<double>("worker1", "demo::sum_local", r));
	// An error of the function is kept like a value: fetching throws it.
	auto failed = agent.remote<table>("worker2", "demo::table", -1);
	try {
		failed.to_here();
	} catch (const farcall::error &e) {
		std::printf("a failed one: %s from %s: %s\n", far_status_name(e.status()), e.origin(), e.what());
	}
}

} // namespace

int main(int argc, char **argv)
{
	args_read(argc, argv, "farcall run -n 3 -- ", "Values that stay on their owner, by reference.", nullptr, 0);
	try {
		farcall::registry functions;
		add_functions(functions);
		farcall::agent agent("worker%d", functions);
		if (agent.rank() == 0)
			work(agent);
		else
			agent.serve();
		agent.shutdown(); // prints references that are still held, with their holders, on stderr
	} catch (const std::exception &e) {
		std::fprintf(stderr, "rref: %s\n", e.what());
		return 1;
	}
	return 0;
}
