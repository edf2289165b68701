// SPDX-License-Identifier: BSD-3-Clause
/* <farcall/farcall.hpp> between two workers: values of every type, errors both ways, futures, coroutines (in C++20),
 * references and objects, registration. Compiled as C++17 and as C++20. Main thread of each process. */
#include <farcall/farcall.hpp>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>

namespace
{

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);             \
			std::_Exit(1);                                                                                 \
		}                                                                                                      \
	} while (0)

/** Runs `body`, which must throw an error of this class, and returns the error. */
template <typename Body> farcall::error thrown(far_status status, Body body)
{
	try {
		body();
	} catch (const farcall::error &e) {
		if (e.status() != status)
			std::fprintf(stderr, "%s: %s\n", far_status_name(e.status()), e.what());
		CHECK(e.status() == status);
		return e;
	}
	CHECK(!"an error was thrown");
	std::abort();
}

bool contains(const std::string &text, const char *part)
{
	return text.find(part) != std::string::npos;
}

/** Counts its instances: every object is destroyed once. */
struct counter {
	static inline int alive = 0;
	int n;
	explicit counter(int start) : n(start)
	{
		alive++;
	}
	~counter()
	{
		alive--;
	}
	counter(const counter &) = delete;
	counter &operator=(const counter &) = delete;
};

int triple(int x)
{
	return 3 * x;
}

void register_all(farcall::registry &r)
{
#ifdef FARCALL_SPAN
	r.add("t::sum", [](std::span<const float> x) { return std::accumulate(x.begin(), x.end(), 0.0); });
#endif
	r.add("t::columns", [](farcall::ranked_view<const float, 2> x) { return static_cast<int>(x.shape(1)); });
	r.add("t::triple", triple)
		.add("t::not", [](bool b) { return !b; })
		.add("t::small", [](std::int8_t x) { return x; })
		.add("t::half", [](double x) { return x / 2; })
		.add("t::join(head, tail)", [](std::string_view a, const std::string &b) { return std::string(a) + b; })
		.add("t::size", [](farcall::bytes b) { return b.size; })
		.add("t::echo_bytes", [](farcall::bytes b) { return b; })
		.add("t::scale",
		     [](const std::vector<float> &x, double factor) {
			     std::vector<float> y;
			     for (float one : x)
				     y.push_back(one * static_cast<float>(factor));
			     return y;
		     })
		.add("t::trace",
		     [](farcall::tensor_view<const double> m) {
			     double sum = 0;
			     CHECK(m.rank() == 2);
			     for (std::size_t i = 0; i < m.shape(0); i++)
				     sum += m[i * m.shape(1) + i];
			     return sum;
		     })
		.add("t::words",
		     [](const std::vector<std::string> &words) {
			     std::map<std::string, int> lengths;
			     for (const auto &w : words)
				     lengths[w] = static_cast<int>(w.size());
			     return lengths;
		     })
		.add("t::any",
		     [](const far_val &v) { return std::string(far_type_name(static_cast<far_type>(v.type))); })
		.add("t::nothing", [] {})
		.add("t::find(key)",
		     [](std::string_view key) -> std::optional<std::string> {
			     if (key == "absent")
				     return std::nullopt;
			     return std::string(key) + '\0' + "found";
		     })
		.add("t::length(of)",
		     [](std::optional<std::vector<double>> x) { return x ? static_cast<int>(x->size()) : -1; })
		.add("t::fail", [](int code) { throw farcall::error(FAR_DENIED, "not for you", code); })
		.add("t::throw", [] { throw std::out_of_range("past the end"); })
		.add("t::throw_int", [] { throw 5; })
		.add("t::from", [](farcall::request q) { return q.from().worker; })
		.add(
			"t::nested",
			[](farcall::request q, int x) {
				far_val out;
				far_err err;
				far_val arg = far_int(x);
				if (far_rpc_sync_to(q.agent(), q.from(), "t::triple", &arg, 1, nullptr, &out, &err))
					throw farcall::error(err);
				return farcall::value(out).as<int>() + 1;
			},
			farcall::kind::fiber)
		.add(
			"t::slow",
			[](farcall::request q) {
				while (!q.cancelled()) {
				}
			},
			farcall::kind::blocking)
		.add("t::pair",
		     [](farcall::request q, int x) -> farcall::later<int> {
			     static std::vector<std::pair<farcall::deferred<int>, int>> waiting;
			     waiting.emplace_back(q.defer<int>(), x);
			     if (waiting.size() == 2) {
				     waiting[0].first.answer(waiting[1].second);
				     waiting[1].first.fail(FAR_DENIED, "second", waiting[0].second);
				     waiting.clear();
			     }
			     return {};
		     })
		.add("t::dropped",
		     [](farcall::request q) -> farcall::later<void> {
			     auto none = q.defer<void>();
			     return {};
		     })
		.add("t::dropped_by_throw",
		     [](farcall::request q) -> farcall::later<void> {
			     auto none = q.defer<void>();
			     throw std::runtime_error("after defer()");
		     })
		.add("t::total",
		     [](farcall::tensor_view<const float> x) { return std::accumulate(x.begin(), x.end(), 0.0); })
		.add("t::in_place",
		     [](farcall::request q) {
			     far_counters c;
			     far_counters_read(q.agent(), &c);
			     return c.bytes_by_reference;
		     })
		.add("t::alive", [] { return counter::alive; })
		.add(
			"t::read", [](farcall::rref<int> x) { return x.to_here() + 1; }, farcall::kind::fiber);
	r.add_class<counter>("t::Counter")
		.constructor([](int start) {
			if (start < 0)
				throw std::invalid_argument("starts below 0");
			return std::make_unique<counter>(start);
		})
		.method("add(by)", [](counter &c, int by) { return c.n += by; })
		.method("reset", [](counter &c) { c.n = 0; });
}

void values(const farcall::agent &a)
{
	CHECK(a.call<int>("worker1", "t::triple", 14) == 42);
	CHECK(a.call_unchecked<int>("worker1", "t::triple", 14) == 42);
	CHECK(a.async_unchecked<int>("worker1", "t::triple", 5).get() == 15);
	CHECK(a.remote_unchecked<int>("worker1", "t::triple", 6).to_here() == 18);
	CHECK(a.rref_of(std::vector<double>{1, 2}).to_here()[1] == 2);
	farcall::rref<int> three = a.remote<int>("worker1", "t::triple", 1);
	CHECK(three.apply<int>("t::triple") == 9);
	CHECK(three.apply_async<int>("t::triple").get() == 9);
	CHECK(three.apply_remote<int>("t::triple").to_here() == 9);
	farcall::call_options late, nowhere;
	late.timeout = std::chrono::seconds(60);
	nowhere.via = 15;
	CHECK(three.apply_with<int>(late, "t::triple") == 9);
	CHECK(three.apply_async_with<int>(late, "t::triple").get() == 9);
	CHECK(three.apply_remote_with<int>(late, "t::triple").to_here() == 9);
	thrown(FAR_INVALID, [&] { three.apply_with<int>(nowhere, "t::triple"); });
	thrown(FAR_INVALID, [&] { three.apply_async_with<int>(nowhere, "t::triple").get(); });
	thrown(FAR_INVALID, [&] { three.apply_remote_with<int>(nowhere, "t::triple").to_here(); });
	farcall::rref<counter> object = a.remote<counter>("worker1", "t::Counter", 1);
	CHECK(object.call_with<int>(late, "add", 2) == 3);
	CHECK(object.async_with<int>(late, "add", 2).get() == 5);
	CHECK(object.remote_with<int>(late, "add", 2).to_here() == 7);
	thrown(FAR_INVALID, [&] { object.call_with<int>(nowhere, "add", 2); });
	thrown(FAR_INVALID, [&] { object.async_with<int>(nowhere, "add", 2).get(); });
	thrown(FAR_INVALID, [&] { object.remote_with<int>(nowhere, "add", 2).to_here(); });
	far_call_opts opts;
	farcall::call_options plain, retried, by_shard;
	retried.retry = true;
	by_shard.via = 0;
	plain.shard = 0; /* names the target, which is no option of the call */
	CHECK(plain.get(opts) == nullptr);
	CHECK(late.get(opts) == &opts && opts.timeout_ns == 60 * FAR_SEC && !opts.retry && opts.via == 0);
	CHECK(retried.get(opts) == &opts && opts.retry && opts.timeout_ns == 0);
	CHECK(by_shard.get(opts) == &opts && opts.via == FAR_VIA(0));
	CHECK(a.deserialize<int>(three.serialize()).to_here() == 3);
	CHECK(a.fd() == -1 && a.poll() == 0);
	CHECK(a.async<int>("worker1", "t::triple", 2)
		      .then_fiber(a, [&a](auto f) { return a.call<int>("worker1", "t::triple", f.get()); })
		      .get() == 18);
	const float six[6] = {};
	CHECK(a.call<int>("worker1", "t::columns", farcall::ranked_view<const float, 2>(six, {2, 3})) == 3);
	CHECK(contains(thrown(FAR_BAD_ARGS, [&] { a.call("worker1", "t::columns", std::vector<float>{1}); }).what(),
		       "Tensor<f32,2>"));
	CHECK(!a.call<bool>("worker1", "t::not", true));
	CHECK(a.call<double>("worker1", "t::half", 5) == 2.5);
	CHECK(a.call<std::string>("worker1", "t::join", "a", std::string("bc")) == "abc");
	CHECK(a.call<std::string>("worker1", "t::join", farcall::kw("tail", "x"),
				  farcall::kw("head", std::string("y"))) == "yx");
	CHECK(a.call<std::string>("worker1", "t::join", std::string_view("long", 2), "") == "lo");
#ifdef FARCALL_SPAN
	std::array<float, 3> floats = {1, 2, 4};
	CHECK(a.call<double>("worker1", "t::sum", std::span(floats)) == 7);
	CHECK(a.call<double>("worker1", "t::sum", std::span<const float>(floats.data(), 2)) == 3);
	CHECK(contains(thrown(FAR_BAD_ARGS,
			      [&] {
				      a.call("worker1", "t::sum", farcall::tensor_view(six, {2, 3}));
			      })
			       .what(),
		       "2 dimensions"));
#endif
	CHECK(a.call<int>("worker1", "t::size",
			  farcall::bytes{"12\0"
					 "4",
					 4}) == 4);
	farcall::value kept = a.call("worker1", "t::echo_bytes", farcall::bytes{"\0x", 2});
	CHECK(kept.as<farcall::bytes>().size == 2 &&
	      static_cast<const char *>(kept.as<farcall::bytes>().data)[1] == 'x');
	CHECK((a.call<std::vector<float>>("worker1", "t::scale", std::vector<float>{1, 2, 3}, 2.0) ==
	       std::vector<float>{2, 4, 6}));
	const double m[6] = {1, 0, 0, 0, 5, 0};
	CHECK(a.call<double>("worker1", "t::trace", farcall::tensor_view<const double>(m, {2, 3})) == 6);
	auto lengths =
		a.call<std::map<std::string, int>>("worker1", "t::words", std::vector<std::string>{"one", "three"});
	CHECK(lengths.size() == 2 && lengths["one"] == 3 && lengths["three"] == 5);
	CHECK(a.call<std::string>("worker1", "t::any", std::vector<int>{1}) == "tensor");
	CHECK(a.call<std::string>("worker1", "t::any", std::vector<std::vector<int>>{{1}, {}}) == "list");
	a.call<void>("worker1", "t::nothing");
	CHECK(a.call<std::optional<std::string>>("worker1", "t::find", "a") == std::string("a\0found", 7));
	CHECK(!a.call<std::optional<std::string>>("worker1", "t::find", "absent"));
	CHECK(a.call<int>("worker1", "t::length", std::vector<double>{1, 2}) == 2);
	CHECK(a.call<int>("worker1", "t::length", std::optional<std::vector<double>>{{1, 2, 3}}) == 3);
	CHECK(a.call<int>("worker1", "t::length", std::nullopt) == -1);
	CHECK(contains(thrown(FAR_BAD_ARGS, [&] { a.call("worker1", "t::length", 1); }).what(), "wanted Tensor|none"));
	CHECK(a.call("worker1", "t::nothing").type() == FAR_TYPE_NONE);
	CHECK(a.call<int>("worker1", "t::from") == 0);
	CHECK(a.call<int>("worker1", "t::nested", 3) == 10);
}

void errors(const farcall::agent &a)
{
	farcall::error e = thrown(FAR_DENIED, [&] { a.call("worker1", "t::fail", 7); });
	CHECK(e.code() == 7 && contains(e.what(), "not for you") && e.executed() == FAR_EXECUTED_YES);
	CHECK(std::string(e.origin()) == "worker1");
	CHECK(contains(thrown(FAR_REMOTE, [&] { a.call("worker1", "t::throw"); }).what(), "past the end"));
	thrown(FAR_REMOTE, [&] { a.call("worker1", "t::throw_int"); });
	thrown(FAR_BAD_ARGS, [&] { a.call("worker1", "t::triple", "three"); });
	thrown(FAR_BAD_ARGS, [&] { a.call("worker1", "t::triple", std::uint64_t(1) << 63); });
	CHECK(contains(thrown(FAR_BAD_ARGS, [&] { a.call("worker1", "t::small", 128); }).what(), "out of the range"));
	CHECK(a.call<int>("worker1", "t::small", -128) == -128);
	thrown(FAR_BAD_ARGS, [&] { a.call("worker1", "t::scale", std::vector<double>{1}, 1.0); });
	e = thrown(FAR_BAD_ARGS, [&] { a.call<std::string>("worker1", "t::triple", 1); });
	CHECK(contains(e.what(), "the value is of type int, not str") && e.executed() == FAR_EXECUTED_YES);
	e = thrown(FAR_BAD_ARGS, [&] { a.async<std::int8_t>("worker1", "t::triple", 100).get(); });
	CHECK(contains(e.what(), "out of the range") && e.executed() == FAR_EXECUTED_YES);
	thrown(FAR_UNKNOWN_WORKER, [&] { a.call("nobody", "t::triple", 1); });
	farcall::call_options soon;
	soon.timeout = std::chrono::milliseconds(20);
	thrown(FAR_TIMEOUT, [&] { a.call_with<void>(soon, "worker1", "t::slow"); });
	farcall::call_options there;
	there.shard = 0;
	CHECK(a.call_with<int>(there, "worker1", "t::triple", 2) == 6);
	there.shard = 99;
	thrown(FAR_INVALID, [&] { a.call_with<int>(there, "worker1", "t::triple", 2); });
	farcall::registry r;
	thrown(FAR_INVALID, [&] { r.add("t::f(a, b)", triple); });
}

void callees(const farcall::agent &a)
{
	farcall::callee found = a.find("worker1", "t::triple");
	CHECK(found.call<int>(14) == 42);
	CHECK(found.async<int>(5).get() == 15);
	farcall::callee moved = std::move(found);
	farcall::call_options late, nowhere;
	late.timeout = std::chrono::seconds(60);
	nowhere.via = 15;
	CHECK(moved.call_with<int>(late, 1) == 3);
	CHECK(moved.async_with<int>(late, 2).get() == 6);
	thrown(FAR_INVALID, [&] { moved.call_with<int>(nowhere, 1); });
	thrown(FAR_INVALID, [&] { moved.async_with<int>(nowhere, 1).get(); });
	thrown(FAR_INVALID, [&] { found.call<int>(1); });
	thrown(FAR_BAD_ARGS, [&] { moved.call("three"); });
	CHECK(a.find("worker1", "t::triple", 0).call<int>(3) == 9);
	thrown(FAR_INVALID, [&] { a.find("worker1", "t::triple", 99); });
	thrown(FAR_UNKNOWN_WORKER, [&] { a.find("nobody", "t::triple"); });
	thrown(FAR_NO_FUNCTION, [&] { a.find("worker1", "t::not_there"); });
}

void futures(const farcall::agent &a)
{
	std::vector<farcall::future<int>> all;
	for (int i = 0; i < 20; i++)
		all.push_back(a.async<int>("worker1", "t::triple", i));
	farcall::wait_all(all);
	for (int i = 0; i < 20; i++)
		CHECK(all[static_cast<std::size_t>(i)].done() && all[static_cast<std::size_t>(i)].get() == 3 * i);
	auto text = a.async<int>("worker1", "t::triple", 5).then([](farcall::future<int> f) {
		return "it is " + std::to_string(f.get());
	});
	CHECK(text.get() == "it is 15");
	auto failed = a.async<void>("worker1", "t::fail", 3).then([](farcall::future<void> f) { f.get(); });
	CHECK(thrown(FAR_DENIED, [&] { failed.get(); }).code() == 3);
	auto wrong = text.then([](farcall::future<std::string>) -> int { throw std::runtime_error("on purpose"); });
	CHECK(contains(thrown(FAR_REMOTE, [&] { wrong.get(); }).what(), "on purpose"));
	auto first = a.async<int>("worker1", "t::pair", 1), second = a.async<int>("worker1", "t::pair", 2);
	CHECK(first.get() == 2);
	CHECK(thrown(FAR_DENIED, [&] { second.get(); }).code() == 1);
	CHECK(contains(thrown(FAR_REMOTE, [&] { a.call<void>("worker1", "t::dropped"); }).what(), "without an answer"));
	CHECK(contains(thrown(FAR_REMOTE, [&] { a.call<void>("worker1", "t::dropped_by_throw"); }).what(),
		       "an exception of the callee"));
	auto slow = a.async<void>("worker1", "t::slow");
	slow.cancel();
	thrown(FAR_CANCELLED, [&] { slow.get(); });
}

#ifdef FARCALL_COROUTINES
farcall::future<int> sum_of_triples(const farcall::agent &a, int n)
{
	int sum = 0;
	for (int i = 1; i <= n; i++)
		sum += co_await a.async<int>("worker1", "t::triple", i);
	co_return sum;
}

farcall::future<std::string> recovers(const farcall::agent &a)
{
	try {
		co_await a.async<void>("worker1", "t::fail", 9);
	} catch (const farcall::error &e) {
		co_return std::to_string(e.code());
	}
	co_return "nothing was thrown";
}

farcall::future<void> fails(const farcall::agent &a)
{
	co_await a.async<void>("worker1", "t::throw");
}

void coroutines(const farcall::agent &a)
{
	CHECK(sum_of_triples(a, 100).get() == 3 * 5050);
	CHECK(recovers(a).get() == "9");
	farcall::error e = thrown(FAR_REMOTE, [&] { fails(a).get(); });
	CHECK(contains(e.what(), "past the end") && e.executed() == FAR_EXECUTED_YES &&
	      std::string(e.origin()) == "worker1");
}
#endif

void zero_copy(const farcall::agent &a)
{
	constexpr std::size_t n = 65536;
	farcall::shared_array<float> x(n);
	std::atomic<int> released{0};
	int calls = 0;
	auto release = [&released, owned = std::make_unique<int>(1)] { released += *owned; };
	auto in_place = [&] { return a.call<std::uint64_t>("worker1", "t::in_place"); };
	auto ended = [&] {
		for (calls++; released < calls;)
			std::this_thread::yield();
		CHECK(released == calls);
	};
	do { /* until the worker has mapped the memory */
		std::fill(x.begin(), x.end(), static_cast<float>(calls));
		double sum = a.async_zero_copy<double>(
				      "worker1", "t::total", [&] { released++; }, x.view())
				     .get();
		CHECK(sum == static_cast<double>(n) * calls);
		ended();
	} while (in_place() == 0);
	std::uint64_t before = in_place();
	farcall::call_options there;
	there.shard = 0;
	farcall::shared_array<float> same = std::move(x);
	CHECK(same.size() == n && same[1] == static_cast<float>(calls - 1));
	same[0] += 1;
	CHECK(a.async_zero_copy_with<double>(there, "worker1", "t::total", std::move(release), same.view()).get() ==
	      static_cast<double>(n) * (calls - 1) + 1);
	ended();
	CHECK(in_place() - before >= n * sizeof(float));
	auto counted = [&] { released++; };
	thrown(FAR_UNKNOWN_WORKER, [&] { a.async_zero_copy("nobody", "t::total", counted, same.view()); });
	ended();
	thrown(FAR_NO_FUNCTION, [&] { a.async_zero_copy("worker1", "t::none", counted, same.view()); });
	ended();
	thrown(FAR_INVALID, [&] {
		a.async_zero_copy("worker1", "t::total", counted, farcall::tensor<float>{{2}, {1}});
	});
	ended();
	thrown(FAR_RESOURCE, [] { farcall::shared_array<float>(~std::size_t{0} / 2); });
}

void objects(const farcall::agent &a)
{
	{
		farcall::rref<counter> c = a.remote<counter>("worker1", "t::Counter", 5);
		CHECK(c.call<int>("add", 2) == 7 && c.async<int>("add", 3).get() == 10);
		farcall::rref<int> sum = c.remote<int>("add", 1);
		CHECK(sum.to_here() == 11 && sum.to_here_async().get() == 11);
		CHECK(a.call<int>("worker1", "t::read", sum) == 12);
		CHECK(!c.is_owner() && c.owner_name() == "worker1");
		c.call<void>("reset");
		farcall::rref<counter> other = c;
		CHECK(other.call<int>("add", 1) == 1);
		c.wait();
		CHECK(a.call<int>("worker1", "t::alive") == 1);
		auto refused = a.remote<counter>("worker1", "t::Counter", -1);
		CHECK(contains(thrown(FAR_REMOTE, [&] { refused.call("reset"); }).what(), "below 0"));
	}
	farcall::rref<int> three = a.remote<int>("worker1", "t::triple", 1);
	CHECK(three.to_here() == 3);
	while (a.call<int>("worker1", "t::alive") != 0) {
	}
}

} // namespace

int main()
{
	try {
		farcall::registry functions;
		register_all(functions);
		farcall::agent agent("worker%d", functions);
		CHECK(agent.world_size() == 2 && agent.workers().size() == 2);
		CHECK(agent.workers()[1].name == std::string("worker1"));
		if (agent.rank() == 0) {
			values(agent);
			errors(agent);
			callees(agent);
			futures(agent);
			zero_copy(agent);
#ifdef FARCALL_COROUTINES
			coroutines(agent);
#endif
			objects(agent);
		} else {
			agent.serve();
		}
		agent.shutdown();
	} catch (const std::exception &e) {
		std::fprintf(stderr, "api_cpp: %s\n", e.what());
		return 1;
	}
	return 0;
}
