// SPDX-License-Identifier: BSD-3-Clause
/**
 * pipeline.c in C++: a model in two stages, objects on two workers, with micro-batches passing through both. The master
 * holds references only: stage 2 fetches the output of stage 1 directly from it. Main thread of each worker.
 *
 *	farcall run -n 3 -- ./pipeline_cpp
 */
#include "args.h"

#include <farcall/farcall.hpp>

#include <algorithm>
#include <cstdio>

namespace
{

using matrix = farcall::tensor<float>;

constexpr std::size_t in = 8, hidden = 2048, out = 2, rows = 4, micro = 8; // `rows` of each of `micro` micro-batches

// y = max(0, x w). The weights depend on a seed only, so the master can check the result.
struct stage {
	std::size_t inputs, outputs, seed;

	float weight(std::size_t i) const
	{
		return static_cast<float>((i + seed) * 37 % 64) / 32 - 1;
	}
	matrix forward(const matrix &x) const
	{
		if (x.shape.size() != 2 || x.shape[1] != inputs)
			throw farcall::error(FAR_BAD_ARGS,
					     "the stage takes rows of " + std::to_string(inputs) + " floats");
		matrix y{{x.shape[0], outputs}, {}};
		for (std::size_t r = 0; r < x.shape[0]; r++)
			for (std::size_t o = 0; o < outputs; o++) {
				float sum = 0;
				for (std::size_t i = 0; i < inputs; i++)
					sum += x.data[r * inputs + i] * weight(i * outputs + o);
				y.data.push_back(std::max(sum, 0.0f));
			}
		return y;
	}
};

void run(const farcall::agent &agent)
{
	const stage local[2] = {{in, hidden, 1}, {hidden, out, 2}};
	std::vector<farcall::rref<stage>> stages;
	std::vector<matrix> inputs;
	std::vector<farcall::future<matrix>> results;
	for (int k = 0; k < 2; k++)
		stages.push_back(agent.remote<stage>(k ? "worker2" : "worker1", "demo::Stage", local[k].inputs,
						     local[k].outputs, local[k].seed));
	// Does not wait: the next micro-batch may follow before stage 1 has begun this one.
	for (std::size_t k = 0; k < micro; k++) {
		matrix x{{rows, in}, {}};
		for (std::size_t i = 0; i < rows * in; i++)
			x.data.push_back(static_cast<float>((k + 3 * i) % 17) / 8 - 1);
		inputs.push_back(x);
		// A reference to a value here, then one to the output of stage 1, which stays there.
		auto here = agent.remote<matrix>("worker0", "far::identity", x);
		auto between = stages[0].remote<matrix>("forward", here);
		results.push_back(stages[1].async<matrix>("forward", between));
	}
	std::size_t same = 0;
	for (std::size_t k = 0; k < micro; k++)
		same += results[k].get().data == local[1].forward(local[0].forward(inputs[k])).data;
	far_counters counters;
	far_counters_read(agent.native(), &counters);
	std::printf("%zu of %zu micro-batches as one worker computes them; activations seen by the master: %s\n", same,
		    micro, counters.bytes_received < rows * hidden * sizeof(float) ? "none" : "some");
}

} // namespace

int main(int argc, char **argv)
{
	args_read(argc, argv, "farcall run -n 3 -- ", "Micro-batches through a model in two stages.", nullptr, 0);
	try {
		farcall::registry classes;
		// A fiber, because it waits for its input: the stage serves other micro-batches meanwhile.
		classes.add_class<stage>("demo::Stage")
			.constructor(
				[](std::size_t inputs, std::size_t outputs, std::size_t seed) {
					return std::make_unique<stage>(stage{inputs, outputs, seed});
				},
				"(inputs, outputs, seed)")
			.method(
				"forward(x)",
				[](stage &s, const farcall::rref<matrix> &x) { return s.forward(x.to_here()); },
				farcall::kind::fiber);
		farcall::agent agent("worker%d", classes);
		if (agent.rank() == 0)
			run(agent);
		else
			agent.serve();
		agent.shutdown();
	} catch (const std::exception &e) {
		std::fprintf(stderr, "pipeline: %s\n", e.what());
		return 1;
	}
	return 0;
}
