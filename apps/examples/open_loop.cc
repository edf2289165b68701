// SPDX-License-Identifier: BSD-3-Clause
/**
 * open_loop.c in C++: requests arrive at random at a given rate, and latency is counted from the time due.
 * Main thread of each worker.
 *
 *	farcall run -n 2 -- ./open_loop_cpp [RATE] [SECONDS]
 */
#include "args.h"

#include <farcall/farcall.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <thread>

namespace
{

using clock_type = std::chrono::steady_clock;

// The server: some work for each request.
std::int64_t work(std::int64_t x)
{
	auto y = static_cast<std::uint64_t>(x);
	for (int i = 0; i < 200; i++)
		y = y * 6364136223846793005u + 1442695040888963407u;
	return static_cast<std::int64_t>(y >> 1);
}

// Exponential times between requests: a Poisson process.
std::vector<double> plan(double rate, double seconds)
{
	std::vector<double> due;
	srand48(1);
	for (double at = -std::log(1 - drand48()) / rate; at < seconds; at -= std::log(1 - drand48()) / rate)
		due.push_back(at);
	return due;
}

void client(const farcall::agent &agent, double rate, double seconds)
{
	auto begin = clock_type::now() + std::chrono::milliseconds(1);
	std::vector<double> due = plan(rate, seconds), latency(due.size());
	std::atomic<std::size_t> answered{0}, failed{0};
	std::size_t late = 0;
	auto since = [&](double at) {
		return std::chrono::duration<double, std::micro>(clock_type::now() - begin).count() - at * 1e6;
	};
	for (std::size_t i = 0; i < due.size(); i++) {
		std::this_thread::sleep_until(begin + std::chrono::duration_cast<clock_type::duration>(
							      std::chrono::duration<double>(due[i])));
		late += since(due[i]) > 1000;
		auto f = agent.async<std::int64_t>("worker1", "demo::work", static_cast<std::int64_t>(i));
		// Runs on the thread that polls the shard.
		f.then([&, i](farcall::future<std::int64_t> done) {
			try {
				done.get();
			} catch (const farcall::error &) {
				failed++;
			}
			latency[i] = since(due[i]);
			answered++;
		});
	}
	while (answered < due.size()) // each call ends, by its time-out at the latest
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	if (due.empty())
		return;
	std::sort(latency.begin(), latency.end());
	std::printf("%zu calls, %zu failed, %zu begun more than 1 ms late\n", due.size(), failed.load(), late);
	std::printf("latency from the time due, us: p50 %.1f, p99 %.1f, max %.1f\n", latency[due.size() / 2],
		    latency[due.size() * 99 / 100], latency.back());
}

} // namespace

int main(int argc, char **argv)
{
	unsigned rate = 5000, seconds = 1;
	const arg args[] = {{"RATE", "calls per second", &rate, 1, 100000},
			    {"SECONDS", "for so long", &seconds, 1, 10}};
	args_read(argc, argv, "farcall run -n 2 -- ", "Latency of requests that arrive at random.", args, 2);
	try {
		farcall::registry functions;
		functions.add("demo::work(x)", work);
		farcall::agent agent("worker%d", functions);
		if (agent.world_size() < 2)
			throw std::runtime_error("it needs two workers: farcall run -n 2 -- ./open_loop_cpp");
		if (agent.rank() == 0)
			client(agent, rate, seconds);
		else
			agent.serve();
		agent.shutdown();
		return 0;
	} catch (const std::exception &e) {
		std::fprintf(stderr, "open_loop: %s\n", e.what());
		return 1;
	}
}
