// SPDX-License-Identifier: BSD-3-Clause
/**
 * batch_server.c in C++: a parameter server that updates in batches. The server keeps the requests of a batch open
 * until its k-th gradient has arrived; an open request takes no thread.
 *
 *	farcall run -n 4 -- ./batch_server_cpp 2      three trainers; a batch is any two gradients
 */
#include "args.h"

#include <farcall/farcall.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace
{

using weights = std::vector<float>;

constexpr int steps = 400, rows = 32;
constexpr float rate = 0.3f;
const weights wanted = {3, -2, 0.5f};

// Inline handlers of one shard run one at a time, so the server needs no lock.
struct server {
	std::size_t trainers, batch;
	weights w = weights(wanted.size()), gradient = weights(wanted.size()); // `gradient`: sum of this batch
	std::vector<farcall::deferred<weights>> waiting;
	int updates = 0;

	server(std::size_t all, std::size_t each) : trainers(all), batch(each)
	{
	}

	void update_when_due()
	{
		if (waiting.empty() || waiting.size() < std::min(batch, trainers))
			return;
		for (std::size_t i = 0; i < w.size(); i++)
			w[i] -= rate * gradient[i] / static_cast<float>(waiting.size());
		std::fill(gradient.begin(), gradient.end(), 0.0f);
		updates++;
		for (auto &trainer : waiting)
			trainer.answer(w); // false for one that died; the others have their answer
		waiting.clear();
	}

	// The request stays open after the handler, but its arguments do not: add the gradient now.
	farcall::later<weights> push(farcall::request request, const farcall::tensor_view<const float> &g)
	{
		if (g.size() != gradient.size())
			throw farcall::error(FAR_BAD_ARGS, "the gradient has another number of elements");
		waiting.push_back(request.defer<weights>());
		for (std::size_t i = 0; i < gradient.size(); i++)
			gradient[i] += g[i];
		update_when_due();
		return {};
	}

	// A trainer stops pushing: the others do not wait for it.
	void leave()
	{
		trainers--;
		update_when_due();
	}
};

float data_x(int rank, int row, int i)
{
	return static_cast<float>((row * 7 + i * 5 + rank * 3) % 11) / 5.5f - 1;
}

// Gradient of the mean squared error over this trainer's rows.
weights gradient_of(const weights &w, int rank)
{
	weights g(w.size());
	for (int row = 0; row < rows; row++) {
		float error = 0;
		for (std::size_t i = 0; i < w.size(); i++)
			error += (w[i] - wanted[i]) * data_x(rank, row, static_cast<int>(i));
		for (std::size_t i = 0; i < w.size(); i++)
			g[i] += 2 * error * data_x(rank, row, static_cast<int>(i)) / rows;
	}
	return g;
}

void train(const farcall::agent &agent)
{
	weights w(wanted.size());
	for (int step = 0; step < steps; step++)
		w = agent.call<weights>("worker0", "ps::push", gradient_of(w, agent.rank()));
	agent.call<void>("worker0", "ps::leave");
}

} // namespace

int main(int argc, char **argv)
{
	unsigned k = 64;
	const arg args = {"K", "gradients of a batch; at most one of each trainer", &k, 1, 64};
	args_read(argc, argv, "farcall run -n 4 -- ", "A parameter server that updates in batches.", &args, 1);
	const char *world = std::getenv("WORLD_SIZE"); // farcall run sets it
	std::size_t trainers = world && std::atoi(world) > 1 ? static_cast<std::size_t>(std::atoi(world) - 1) : 0;
	std::size_t batch = std::min<std::size_t>(k, trainers);
	if (trainers == 0) {
		std::fprintf(stderr,
			     "batch_server_cpp: it needs two workers: farcall run -n 4 -- ./batch_server_cpp\n");
		return 2;
	}
	try {
		server s(trainers, batch);
		farcall::registry functions;
		functions.add(
			"ps::push(gradient)",
			[&](farcall::request r, const farcall::tensor_view<const float> &g) { return s.push(r, g); });
		functions.add("ps::leave", [&] { s.leave(); });
		farcall::agent agent("worker%d", functions);
		bool serves = agent.rank() == 0;
		if (serves)
			agent.serve(); // until all trainers have left
		else
			train(agent);
		agent.shutdown();
		if (serves)
			std::printf("%zu trainers, batches of %zu: %d updates, weights %.3f %.3f %.3f\n", trainers,
				    batch, s.updates, static_cast<double>(s.w[0]), static_cast<double>(s.w[1]),
				    static_cast<double>(s.w[2]));
	} catch (const std::exception &e) {
		std::fprintf(stderr, "batch_server: %s\n", e.what());
		return 1;
	}
	return 0;
}
