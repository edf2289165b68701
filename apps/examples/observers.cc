// SPDX-License-Identifier: BSD-3-Clause
/**
 * observers.c in C++: reinforcement learning. Each observer has a world of its own, a corridor. At every step it sends
 * the reward of the step before to an agent, which answers with the next action. Both are objects.
 * Main thread of each worker.
 *
 *	farcall run -n 4 -- ./observers_cpp
 */
#include "args.h"

#include <farcall/farcall.hpp>

#include <algorithm>
#include <array>
#include <cstdio>

namespace
{

constexpr int cells = 10, episodes = 40, steps_max = 1000, observers_max = 32;

// Q-learning, from the steps of all observers. Its methods run on its home shard, one at a time, so it needs no lock.
class brain
{
	std::array<std::array<float, 2>, cells> q{}; // expected reward of a step left or right
	struct {
		std::size_t cell = 0, action = 0;
	} last[observers_max]; // current step of each observer

      public:
	// Learns from the reward of the observer's last step (0: the first one), and answers with the next action.
	int step(std::size_t who, std::size_t cell, double reward)
	{
		if (who >= observers_max || cell >= cells)
			throw farcall::error(FAR_BAD_ARGS, "no such observer or cell");
		auto &next = q[cell];
		float &before = q[last[who].cell][last[who].action];
		if (reward != 0)
			before += 0.5f * (static_cast<float>(reward) + std::max(next[0], next[1]) - before);
		last[who] = {cell, next[1] > next[0] ? std::size_t(1) : std::size_t(0)};
		return static_cast<int>(last[who].action);
	}
};

struct observer {
	int who;

	// Steps of the first and the last episode.
	std::vector<std::vector<int>> run(const farcall::rref<brain> &agent) const
	{
		std::vector<int> steps(episodes);
		for (int &n : steps) {
			double reward = 0;
			for (int cell = 0; n < steps_max; n++, reward = -1) {
				int action = agent.call<int>("step", who, cell, reward);
				if (cell == cells - 1)
					break;
				cell += action ? 1 : cell ? -1 : 0;
			}
		}
		return {{steps.front()}, {steps.back()}};
	}
};

void add_classes(farcall::registry &r)
{
	r.add_class<brain>("rl::Agent")
		.constructor([] { return std::make_unique<brain>(); })
		.method("step(who, cell, reward)", [](brain &b, std::size_t who, std::size_t cell, double reward) {
			return b.step(who, cell, reward);
		});
	// A fiber, because it waits for the agent at every step.
	r.add_class<observer>("rl::Observer")
		.constructor([](int who) { return std::make_unique<observer>(observer{who}); }, "(who)")
		.method(
			"run(agent)", [](observer &o, const farcall::rref<brain> &agent) { return o.run(agent); },
			farcall::kind::fiber);
}

void run(const farcall::agent &agent)
{
	auto learner = agent.remote<brain>("worker0", "rl::Agent");
	std::vector<farcall::rref<observer>> observers;
	std::vector<farcall::future<std::vector<std::vector<int>>>> results;
	for (int i = 0; i + 1 < agent.world_size(); i++) {
		observers.push_back(agent.remote<observer>("worker" + std::to_string(i + 1), "rl::Observer", i));
		// The call waits there until the observer was made.
		results.push_back(observers.back().async<std::vector<std::vector<int>>>("run", learner));
	}
	for (std::size_t i = 0; i < results.size(); i++) {
		auto steps = results[i].get();
		std::printf("observer %zu: %d steps in the first of %d episodes, %d in the last\n", i, steps[0][0],
			    episodes, steps[1][0]);
	}
}

} // namespace

int main(int argc, char **argv)
{
	args_read(argc, argv, "farcall run -n 4 -- ", "Observers call an agent that learns.", nullptr, 0);
	try {
		farcall::registry classes;
		add_classes(classes);
		farcall::agent agent("worker%d", classes);
		if (agent.world_size() < 2 || agent.world_size() > observers_max + 1)
			throw std::runtime_error("farcall run -n 2..33 -- observers_cpp");
		if (agent.rank() == 0)
			run(agent);
		else
			agent.serve();
		agent.shutdown();
	} catch (const std::exception &e) {
		std::fprintf(stderr, "observers: %s\n", e.what());
		return 1;
	}
	return 0;
}
