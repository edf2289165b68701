// SPDX-License-Identifier: BSD-3-Clause
/**
 * tables.c in C++: a client of a parameter server. Its interface is that of C; agents and futures are those of C++.
 * Main thread of each worker.
 *
 *	farcall run -n 3 -- ./tables_cpp
 */
#include "args.h"

#include <farcall/farcall.hpp>
#include <farcall/ps.h>

#include <cstdio>
#include <memory>

namespace
{

void check(far_status status, const far_err &err)
{
	if (status)
		throw farcall::error(err);
}

template <typename T> using owned = std::unique_ptr<T, void (*)(T *)>;

void client(const farcall::agent &agent)
{
	const std::vector<std::uint64_t> users{7, 42, 7};
	const std::vector<float> gradients{1, 1, 2, 2, 4, 4}; // of the three positions: user 7 gets the sum
	std::vector<float> rows(6);
	std::vector<std::uint8_t> status(3);
	far_err err{};
	far_ps *opened = nullptr;
	check(far_ps_open(agent.native(), "demo", nullptr, &opened, &err), err);
	owned<far_ps> ps(opened, far_ps_close);
	far_ps_schema schema{};
	schema.dim = 2;
	far_ps_rule_defaults(&schema.rule, FAR_PS_SGD);
	far_ps_table *made = nullptr;
	check(far_ps_table_create(ps.get(), "users", &schema, 0, &made, &err), err);
	owned<far_ps_table> table(made, far_ps_table_free);
	far_future *f = nullptr;
	check(far_ps_push(table.get(), users.data(), users.size(), gradients.data(), nullptr, nullptr, &f, &err), err);
	farcall::future<>(f).get();
	far_ps_pull_opts opts{};
	opts.timeout_ns = 100 * FAR_MS;
	opts.partial = true;
	check(far_ps_pull(table.get(), users.data(), users.size(), &opts, rows.data(), status.data(), &f, &err), err);
	farcall::future<>(f).get();
	for (std::size_t i = 0; i < users.size(); i++)
		std::printf("user %d: %.2f %.2f %s\n", static_cast<int>(users[i]), rows[2 * i], rows[2 * i + 1],
			    far_ps_status_name(static_cast<far_ps_status>(status[i])));
}

// Serves until the client leaves. The server is freed behind the agent's shutdown.
far_ps_server *server(farcall::agent &agent)
{
	std::vector<std::string> texts;
	std::vector<const char *> names;
	for (int i = 1; i < agent.world_size(); i++)
		texts.push_back("worker" + std::to_string(i));
	for (const auto &text : texts)
		names.push_back(text.c_str());
	far_ps_serve_opts opts{};
	opts.servers = names.data();
	opts.servers_n = names.size();
	far_ps_server *served = nullptr;
	far_err err{};
	check(far_ps_serve(agent.native(), "demo", &opts, &served, &err), err);
	agent.serve();
	check(far_ps_server_stop(served, &err), err);
	return served;
}

} // namespace

int main(int argc, char **argv)
{
	args_read(argc, argv, "farcall run -n 3 -- ", "A client of a parameter server.", nullptr, 0);
	try {
		farcall::registry none;
		owned<far_ps_server> served(nullptr, far_ps_server_free);
		farcall::agent agent("worker%d", none);
		if (agent.world_size() < 2 || agent.world_size() > FAR_SHARDS_MAX + 1)
			throw std::runtime_error("it needs 2 to 17 workers: farcall run -n 3 -- ./tables_cpp");
		if (agent.rank() == 0)
			client(agent);
		else
			served.reset(server(agent));
		agent.shutdown();
		return 0;
	} catch (const std::exception &e) {
		std::fprintf(stderr, "tables: %s\n", e.what());
		return 1;
	}
}
