/* SPDX-License-Identifier: BSD-3-Clause */
/* The headers as C++17: every kind of argument that FAR_ARGS takes, through the library.
 * Main thread of each process. */
#include <array>
#include <cstdio>
#include <cstring>
#include <farcall/farcall.h>
#include <string>
#include <string_view>
#include <vector>

static far_status call(far_agent *agent, far_val *out, far_err *err)
{
	std::vector<float> data(8, 1.0f);
	far_tensor t = far_tensor_1d(FAR_F32, data.data(), data.size());
	const far_tensor *same = &t;
	far_future *f = nullptr;
	far_status status =
		far_rpc_sync(agent, "worker0", "far::add", FAR_ARGS(&t, 1, FAR_KW("alpha", 2.5)), nullptr, out, err);
	if (status == FAR_OK)
		status = far_rpc_async(agent, "worker0", "any::function",
				       FAR_ARGS(same, "text", true, 1, 2u, 3L, 4ull, 5.0f, 'c', far_none()), nullptr,
				       &f, err);
	far_future_free(f);
	far_target targets[2] = {};
	far_fanout_opts opts = {};
	far_future *fan = nullptr;
	if (status == FAR_NO_FUNCTION &&
	    far_rpc_fanout(agent, "far::add", FAR_ARGS(&t, 1), targets, 2, &opts, nullptr, &fan, err) == FAR_OK) {
		if (far_future_wait(fan, 0, nullptr, err) != FAR_OK)
			status = err->status;
		far_future_free(fan);
	}
	return status;
}

static bool all_kinds()
{
	far_val v[4];
	const far_val *args = nullptr;
	size_t n = 0;
	auto take = [&](const far_val *a, size_t count) {
		n = count;
		for (size_t i = 0; i < count; i++)
			v[i] = a[i];
		args = v;
	};
	const float x[2] = {1, 2};
	const far_tensor t = far_tensor_1d(FAR_BF16, x, 2);
	bool nested = false;
	auto look = [&](const far_val *a, size_t count) {
		const far_val *dict = far_list_get(&a[0], 1);
		nested = count == 2 && far_len(&a[0]) == 3 && far_dict_get(dict, "rate")->u.f == 0.5 &&
			 far_len(far_dict_get_int(dict, 7)) == 2 && a[1].kw != nullptr && a[1].u.f == 2.0;
	};
	look(FAR_ARGS(FAR_LIST(1, FAR_DICT(FAR_ENTRY("rate", 0.5), FAR_ENTRY(7, FAR_LIST(&t, "x"))), &t),
		      FAR_KW("alpha", 2.0)));
	if (!nested)
		return false;
	const std::array<double, 2> pair = {1, 2};
	const std::vector<int> numbers = {1, 2, 3};
	bool ranges = false;
	auto contiguous = [&](const far_val *a, size_t count) {
		ranges = count == 4 && a[0].type == FAR_TYPE_STRING && a[0].u.s.len == 3 &&
			 std::memcmp(a[0].u.s.data, "a\0b", 3) == 0 && a[1].type == FAR_TYPE_STRING &&
			 a[1].u.s.len == 2 && a[2].u.t.dtype == FAR_I32 && a[2].u.t.shape[0] == 3 &&
			 a[3].u.t.dtype == FAR_F64 && a[3].u.t.ndim == 1 && a[3].u.t.data == pair.data();
	};
	contiguous(FAR_ARGS(std::string("a\0b", 3), std::string_view("xyz", 2), numbers, pair));
	if (!ranges)
		return false;
	take(FAR_ARGS(true, 7, "text", 0.5));
	return n == 4 && args[0].type == FAR_TYPE_BOOL && args[0].u.b && args[1].type == FAR_TYPE_INT &&
	       args[1].u.i == 7 && args[2].type == FAR_TYPE_STRING && args[2].u.s.len == 4 &&
	       args[3].type == FAR_TYPE_FLOAT;
}

int main()
{
	far_agent *agent = nullptr;
	far_err err;
	far_val out = far_none();
	far_opts opts = {};
	opts.security = "wrong";
	if (!all_kinds() || far_init_rpc("worker0", 0, 1, &opts, &agent, &err) != FAR_INVALID)
		return 1;
	opts.security = nullptr;
	if (far_init_rpc("worker0", FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err) != FAR_OK)
		return far_err_print(stderr, &err);
	/* The second call names no function: it must fail, and at once. */
	if (call(agent, &out, &err) != FAR_NO_FUNCTION || out.type != FAR_TYPE_TENSOR)
		return 2;
	std::printf("%g\n", static_cast<double>(static_cast<float *>(out.u.t.data)[7]));
	far_val_fini(&out);
	return far_shutdown(agent, 0, &err);
}
