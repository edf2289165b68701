/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * gRPC C++ over a Unix socket. Settings by "Performance Best Practices" (grpc.io/docs/guides/performance, C++): the
 * asynchronous API with a completion queue and as many threads as cores, which is one; one channel. The limit of a
 * message is lifted (GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, grpc_types.h). CompletionQueue::Next() blocks.
 */
#include "bench.h"
#include "call.grpc.pb.h"
#include <grpcpp/grpcpp.h>
#include <memory>
#include <stdio.h>
#include <string>

namespace
{

std::string address()
{
	return std::string("unix:") + bench.dir + "/grpc";
}

/* A request at the server: requested, answered, and requested again. */
struct Exchange {
	peers::Server::AsyncService *service;
	grpc::ServerCompletionQueue *queue;
	std::unique_ptr<grpc::ServerContext> context;
	peers::Bytes request, reply;
	std::unique_ptr<grpc::ServerAsyncResponseWriter<peers::Bytes>> writer;
	bool answered = false;

	void listen()
	{
		answered = false;
		context = std::make_unique<grpc::ServerContext>();
		writer = std::make_unique<grpc::ServerAsyncResponseWriter<peers::Bytes>>(context.get());
		service->RequestCall(context.get(), &request, writer.get(), queue, queue, this);
	}

	void answer()
	{
		size_t len;
		const void *data = bench_answer(request.data().data(), request.data().size(), &len);
		reply.set_data(data, len);
		answered = true;
		writer->Finish(reply, grpc::Status::OK, this);
	}
};

void serve(int fd)
{
	char ready = 1;
	peers::Server::AsyncService service;
	grpc::ServerBuilder builder;
	builder.AddListeningPort(address(), grpc::InsecureServerCredentials());
	builder.SetMaxReceiveMessageSize(-1);
	builder.SetMaxSendMessageSize(-1);
	builder.RegisterService(&service);
	auto queue = builder.AddCompletionQueue();
	auto server = builder.BuildAndStart();
	if (!server)
		bench_die("cannot listen on %s", address().c_str());
	Exchange exchanges[BENCH_DEPTH_MAX];
	for (auto &e : exchanges) {
		e.service = &service;
		e.queue = queue.get();
		e.listen();
	}
	bench_swap(fd, &ready, &ready, 1);
	void *tag;
	bool ok, ending = false;
	while (!ending && queue->Next(&tag, &ok) && ok) {
		auto *e = static_cast<Exchange *>(tag);
		if (e->answered) {
			ending = bench_stopped();
			e->listen();
		} else {
			e->answer();
		}
	}
	server->Shutdown();
	queue->Shutdown();
	while (queue->Next(&tag, &ok))
		;
}

struct Call {
	std::unique_ptr<grpc::ClientContext> context;
	std::unique_ptr<grpc::ClientAsyncResponseReader<peers::Bytes>> reader;
	peers::Bytes request, reply;
	grpc::Status status;
};

std::unique_ptr<peers::Server::Stub> stub;
grpc::CompletionQueue *calls_queue;
Call calls[BENCH_DEPTH_MAX];

void open_client(int fd)
{
	char ready = 1;
	grpc::ChannelArguments args;
	args.SetMaxReceiveMessageSize(-1);
	args.SetMaxSendMessageSize(-1);
	bench_swap(fd, &ready, &ready, 1);
	stub = peers::Server::NewStub(grpc::CreateCustomChannel(address(), grpc::InsecureChannelCredentials(), args));
	calls_queue = new grpc::CompletionQueue;
}

void send_request(unsigned slot, const void *data, size_t len)
{
	Call &c = calls[slot];
	c.context = std::make_unique<grpc::ClientContext>();
	c.request.set_data(data, len);
	c.reader = stub->AsyncCall(c.context.get(), c.request, calls_queue);
	c.reader->Finish(&c.reply, &c.status, &c);
}

void progress()
{
	void *tag;
	bool ok;
	if (!calls_queue->Next(&tag, &ok))
		bench_die("the completion queue ended");
	auto *c = static_cast<Call *>(tag);
	if (!ok || !c->status.ok())
		bench_die("a call failed: %s", c->status.error_message().c_str());
	bench_reply(c->reply.data().data(), c->reply.data().size());
}

void close_client()
{
	calls_queue->Shutdown();
	void *tag;
	bool ok;
	while (calls_queue->Next(&tag, &ok))
		;
	for (auto &c : calls)
		c.reader.reset();
	stub.reset();
	delete calls_queue;
}

void version(char *text, size_t cap)
{
	snprintf(text, cap, "%s", grpc::Version().c_str());
}

} // namespace

int main(int argc, char **argv)
{
	static const struct bench_peer peer = {"grpc",      "",           version,  serve,
					       open_client, send_request, progress, close_client};
	return bench_main(argc, argv, &peer);
}
