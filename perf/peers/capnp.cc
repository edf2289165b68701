/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Cap'n Proto RPC over a Unix socket, by capnp/rpc-twoparty.h and the event loop of KJ ("Using the RPC system",
 * capnproto.org/cxxrpc.html). The server answers with setReply(), a copy into the message; the client builds each
 * request in a message of the size it needs (sizeHint, capnp/capability.h). Promise::wait() blocks in poll(2).
 * Main thread of each process.
 */
#include "bench.h"
#include "call.capnp.h"
#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>
#include <kj/debug.h>
#include <stdio.h>

namespace
{

constexpr uint64_t EXTRA_WORDS = 64;

/* The 8 MiB of a message count against the words that a reader may visit. */
capnp::ReaderOptions limits()
{
	capnp::ReaderOptions o;
	o.traversalLimitInWords = 1ull << 40;
	return o;
}

class EchoServer final : public Echo::Server
{
      protected:
	kj::Promise<void> call(CallContext context) override
	{
		auto request = context.getParams().getRequest();
		size_t len;
		const void *reply = bench_answer(request.begin(), request.size(), &len);
		context.initResults(capnp::MessageSize{len / 8 + EXTRA_WORDS, 0})
			.setReply(kj::ArrayPtr<const capnp::byte>(static_cast<const capnp::byte *>(reply), len));
		return kj::READY_NOW;
	}
};

struct Client {
	kj::AsyncIoContext io;
	kj::Own<kj::AsyncIoStream> stream;
	capnp::TwoPartyVatNetwork network;
	capnp::RpcSystem<capnp::rpc::twoparty::VatId> rpc;
	::Echo::Client server;
	kj::Own<kj::PromiseFulfiller<void>> waiting;
	kj::Maybe<kj::Promise<void>> calls[BENCH_DEPTH_MAX];

	explicit Client(int fd)
	    : io(kj::setupAsyncIo()), stream(io.lowLevelProvider->wrapSocketFd(fd)),
	      network(*stream, capnp::rpc::twoparty::Side::CLIENT, limits()), rpc(capnp::makeRpcClient(network)),
	      server(bootstrap())
	{
	}

	::Echo::Client bootstrap()
	{
		capnp::MallocMessageBuilder message;
		auto id = message.initRoot<capnp::rpc::twoparty::VatId>();
		id.setSide(capnp::rpc::twoparty::Side::SERVER);
		return rpc.bootstrap(id).castAs<::Echo>();
	}
};

Client *client;

void serve(int fd)
{
	auto io = kj::setupAsyncIo();
	auto stream = io.lowLevelProvider->wrapSocketFd(fd);
	capnp::TwoPartyVatNetwork network(*stream, capnp::rpc::twoparty::Side::SERVER, limits());
	auto rpc = capnp::makeRpcServer(network, kj::heap<EchoServer>());
	network.onDisconnect().wait(io.waitScope);
}

void open_client(int fd)
{
	client = new Client(fd);
}

void wake()
{
	if (client->waiting)
		client->waiting->fulfill();
}

void send_request(unsigned slot, const void *data, size_t len)
{
	auto request = client->server.callRequest(capnp::MessageSize{len / 8 + EXTRA_WORDS, 0});
	request.setRequest(kj::ArrayPtr<const capnp::byte>(static_cast<const capnp::byte *>(data), len));
	client->calls[slot] = request.send()
				      .then(
					      [](capnp::Response<::Echo::CallResults> &&r) {
						      auto reply = r.getReply();
						      bench_reply(reply.begin(), reply.size());
						      wake();
					      },
					      [](kj::Exception &&e) { bench_die("%s", e.getDescription().cStr()); })
				      .eagerlyEvaluate(nullptr);
}

void progress()
{
	auto paf = kj::newPromiseAndFulfiller<void>();
	client->waiting = kj::mv(paf.fulfiller);
	paf.promise.wait(client->io.waitScope);
	client->waiting = nullptr;
}

void close_client()
{
	delete client;
}

void version(char *text, size_t cap)
{
	snprintf(text, cap, "%d.%d.%d", CAPNP_VERSION / 1000000, CAPNP_VERSION / 1000 % 1000, CAPNP_VERSION % 1000);
}

} // namespace

int main(int argc, char **argv)
{
	static const struct bench_peer peer = {"capnp",     "",           version,  serve,
					       open_client, send_request, progress, close_client};
	return bench_main(argc, argv, &peer);
}
