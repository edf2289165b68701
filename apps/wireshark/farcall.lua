-- SPDX-License-Identifier: BSD-3-Clause
-- A Wireshark dissector of the packets that workers exchange over datagram drivers (udp, dpdk). Use it with
--
--	tshark -X lua_script:farcall.lua -r FILE -Y 'farcall.slot == 3'
--
-- or copy it into Wireshark's folder of personal plugins (Help, About, Folders). Packets are recognised by what they
-- look like; "Decode As" and -d udp.port==N,farcall show every datagram of a port. Fields are farcall.NAME for the head
-- of a packet and for type, flags, slot and generation of a message, and farcall.LAYOUT.NAME for the rest, by the names of engine/PROTOCOL.md; farcall.line is the whole packet as
-- `farcall decode` prints it, farcall.verdict "ok" or what is wrong with it.

-- The tables of engine/PROTOCOL.md, put here by tests/protocol/lua_tables.py.
local layouts = {
	head = { size = 24, little = true, fields = {
		{ name = "version", bytes = 1, as = "number", low = "3", high = "3" },
		{ name = "kind", bytes = 1, as = "code kind", low = "1", high = "10" },
		{ name = "flags", bytes = 1, as = "bits wire_flag" },
		{ name = "lane_phase", bytes = 1, as = "number" },
		{ name = "crc", bytes = 4, as = "id" },
		{ name = "incarnation", bytes = 8, as = "id" },
		{ name = "token", bytes = 8, as = "id" },
	} },
	message = { size = 72, little = true, fields = {
		{ name = "packet", bytes = 4, as = "number" },
		{ name = "ack", bytes = 4, as = "number" },
		{ name = "ack_bits", bytes = 8, as = "id" },
		{ name = "call", bytes = 28, as = "head" },
		{ name = "length", bytes = 4, as = "number" },
		{ name = "offset", bytes = 4, as = "number" },
		{ name = "first", bytes = 4, as = "number" },
		{ name = "zero", bytes = 16, as = "bytes" },
	} },
	ack = { size = 72, little = true, fields = {
		{ name = "packet", bytes = 4, as = "number" },
		{ name = "ack", bytes = 4, as = "number" },
		{ name = "ack_bits", bytes = 8, as = "id" },
		{ name = "path", bytes = 4, as = "number" },
		{ name = "duplicate", bytes = 4, as = "number" },
		{ name = "unscheduled_bytes", bytes = 4, as = "number" },
		{ name = "window", bytes = 4, as = "number" },
		{ name = "zero", bytes = 40, as = "bytes" },
	} },
	control = { size = 72, little = true, fields = {
		{ name = "first_packet", bytes = 4, as = "number" },
		{ name = "features", bytes = 4, as = "number" },
		{ name = "window", bytes = 4, as = "number" },
		{ name = "zero", bytes = 44, as = "bytes" },
		{ name = "tag", bytes = 16, as = "bytes" },
	} },
	sub = { size = 32, little = true, fields = {
		{ name = "call", bytes = 28, as = "head" },
		{ name = "length", bytes = 4, as = "number" },
	} },
	grant = { size = 12, little = true, fields = {
		{ name = "first", bytes = 4, as = "number" },
		{ name = "offset", bytes = 4, as = "number" },
		{ name = "priority", bytes = 4, as = "number" },
	} },
	exposed = { size = 16, little = true, fields = {
		{ name = "key", bytes = 8, as = "id" },
		{ name = "addr", bytes = 8, as = "id" },
	} },
	handshake = { size = 124, little = true, fields = {
		{ name = "incarnation", bytes = 8, as = "id", low = "1" },
		{ name = "token", bytes = 8, as = "id", low = "1" },
		{ name = "queue", bytes = 2, as = "number", high = "15" },
		{ name = "wanted_queue", bytes = 2, as = "number" },
		{ name = "flow", bytes = 4, as = "number", high = "65535" },
		{ name = "path", bytes = 4, as = "number", high = "8" },
		{ name = "packet_max", bytes = 4, as = "number", low = "576" },
		{ name = "payload_bytes", bytes = 2, as = "number", high = "128" },
		{ name = "address_bytes", bytes = 2, as = "number", high = "224" },
		{ name = "nonce", bytes = 16, as = "bytes" },
		{ name = "cookie", bytes = 16, as = "bytes" },
		{ name = "proof", bytes = 16, as = "bytes" },
		{ name = "issued", bytes = 8, as = "number" },
		{ name = "public_key", bytes = 32, as = "bytes" },
		{ name = "session", bytes = "payload_bytes", as = "session" },
		{ name = "address", bytes = "address_bytes", as = "bytes" },
		{ name = "padding", bytes = "rest", as = "bytes" },
	} },
	reject = { size = 28, little = true, fields = {
		{ name = "error", bytes = 4, as = "number" },
		{ name = "flow", bytes = 4, as = "number" },
		{ name = "path", bytes = 4, as = "number" },
		{ name = "nonce", bytes = 16, as = "bytes" },
	} },
	session = { size = 48, little = true, fields = {
		{ name = "magic", bytes = 4, as = "id", low = "1178814540", high = "1178814540" },
		{ name = "version", bytes = 2, as = "number", low = "3", high = "3" },
		{ name = "from_shard", bytes = 1, as = "number" },
		{ name = "to_shard", bytes = 1, as = "number" },
		{ name = "group", bytes = 8, as = "id" },
		{ name = "world", bytes = 4, as = "number" },
		{ name = "rank", bytes = 4, as = "number" },
		{ name = "from", bytes = 8, as = "id" },
		{ name = "to", bytes = 8, as = "id" },
		{ name = "name", bytes = 8, as = "id" },
	} },
	request = { size = 28, little = true, fields = {
		{ name = "type", bytes = 1, as = "code type" },
		{ name = "flags", bytes = 1, as = "bits flag" },
		{ name = "handler", bytes = 2, as = "number" },
		{ name = "slot", bytes = 4, as = "number" },
		{ name = "generation", bytes = 4, as = "number" },
		{ name = "tlv_bytes", bytes = 4, as = "number" },
		{ name = "time_left", bytes = 8, as = "number" },
		{ name = "reserved", bytes = 4, as = "number" },
	} },
	reply = { size = 28, little = true, fields = {
		{ name = "type", bytes = 1, as = "code type" },
		{ name = "flags", bytes = 1, as = "bits flag" },
		{ name = "function", bytes = 2, as = "number" },
		{ name = "slot", bytes = 4, as = "number" },
		{ name = "generation", bytes = 4, as = "number" },
		{ name = "tlv_bytes", bytes = 4, as = "number" },
		{ name = "zeros", bytes = 8, as = "number" },
		{ name = "reserved", bytes = 4, as = "number" },
	} },
	error = { size = 28, little = true, fields = {
		{ name = "type", bytes = 1, as = "code type" },
		{ name = "flags", bytes = 1, as = "bits flag" },
		{ name = "status", bytes = 2, as = "code status" },
		{ name = "slot", bytes = 4, as = "number" },
		{ name = "generation", bytes = 4, as = "number" },
		{ name = "tlv_bytes", bytes = 4, as = "number" },
		{ name = "code", bytes = 4, as = "signed" },
		{ name = "executed", bytes = 4, as = "code executed" },
		{ name = "reserved", bytes = 4, as = "number" },
	} },
	cancel = { size = 28, little = true, fields = {
		{ name = "type", bytes = 1, as = "code type" },
		{ name = "flags", bytes = 1, as = "bits flag" },
		{ name = "zero", bytes = 2, as = "number" },
		{ name = "slot", bytes = 4, as = "number" },
		{ name = "generation", bytes = 4, as = "number" },
		{ name = "tlv_bytes", bytes = 4, as = "number" },
		{ name = "zeros", bytes = 8, as = "number" },
		{ name = "reserved", bytes = 4, as = "number" },
	} },
	cancelled = { size = 28, little = true, fields = {
		{ name = "type", bytes = 1, as = "code type" },
		{ name = "flags", bytes = 1, as = "bits flag" },
		{ name = "zero", bytes = 2, as = "number" },
		{ name = "slot", bytes = 4, as = "number" },
		{ name = "generation", bytes = 4, as = "number" },
		{ name = "tlv_bytes", bytes = 4, as = "number" },
		{ name = "zeros", bytes = 4, as = "number" },
		{ name = "executed", bytes = 4, as = "code executed" },
		{ name = "reserved", bytes = 4, as = "number" },
	} },
	oneway = { size = 28, little = true, fields = {
		{ name = "type", bytes = 1, as = "code type" },
		{ name = "flags", bytes = 1, as = "bits flag" },
		{ name = "handler", bytes = 2, as = "number" },
		{ name = "zeros", bytes = 8, as = "number" },
		{ name = "tlv_bytes", bytes = 4, as = "number" },
		{ name = "time_left", bytes = 8, as = "number" },
		{ name = "reserved", bytes = 4, as = "number" },
	} },
	credit = { size = 28, little = true, fields = {
		{ name = "type", bytes = 1, as = "code type" },
		{ name = "flags", bytes = 1, as = "bits flag" },
		{ name = "zero", bytes = 2, as = "number" },
		{ name = "zeros", bytes = 8, as = "number" },
		{ name = "tlv_bytes", bytes = 4, as = "number" },
		{ name = "oneways", bytes = 8, as = "number" },
		{ name = "reserved", bytes = 4, as = "number" },
	} },
	rendezvous = { size = 28, little = true, fields = {
		{ name = "type", bytes = 1, as = "code type" },
		{ name = "flags", bytes = 1, as = "bits flag" },
		{ name = "zero", bytes = 2, as = "number" },
		{ name = "lane", bytes = 4, as = "number", high = "3" },
		{ name = "epoch", bytes = 4, as = "number" },
		{ name = "tlv_bytes", bytes = 4, as = "number" },
		{ name = "total", bytes = 8, as = "number", low = "1" },
		{ name = "reserved", bytes = 4, as = "number" },
	} },
	data = { size = 28, little = true, fields = {
		{ name = "type", bytes = 1, as = "code type" },
		{ name = "flags", bytes = 1, as = "bits flag" },
		{ name = "zero", bytes = 2, as = "number" },
		{ name = "lane", bytes = 4, as = "number" },
		{ name = "epoch", bytes = 4, as = "number" },
		{ name = "tlv_bytes", bytes = 4, as = "number" },
		{ name = "offset", bytes = 8, as = "number" },
		{ name = "reserved", bytes = 4, as = "number" },
	} },
	lane_grant = { size = 28, little = true, fields = {
		{ name = "type", bytes = 1, as = "code type" },
		{ name = "flags", bytes = 1, as = "bits flag" },
		{ name = "zero", bytes = 2, as = "number" },
		{ name = "lane", bytes = 4, as = "number" },
		{ name = "epoch", bytes = 4, as = "number" },
		{ name = "tlv_bytes", bytes = 4, as = "number" },
		{ name = "granted", bytes = 8, as = "number" },
		{ name = "reserved", bytes = 4, as = "number" },
	} },
	lane = { size = 28, little = true, fields = {
		{ name = "type", bytes = 1, as = "code type" },
		{ name = "flags", bytes = 1, as = "bits flag" },
		{ name = "zero", bytes = 2, as = "number" },
		{ name = "lane", bytes = 4, as = "number" },
		{ name = "epoch", bytes = 4, as = "number" },
		{ name = "tlv_bytes", bytes = 4, as = "number" },
		{ name = "zeros", bytes = 8, as = "number" },
		{ name = "reserved", bytes = 4, as = "number" },
	} },
	acked = { size = 8, little = true, fields = {
		{ name = "packets", bytes = 8, as = "number" },
	} },
	hash = { size = 16, little = true, fields = {
		{ name = "name", bytes = 8, as = "id" },
		{ name = "signature", bytes = 8, as = "id" },
	} },
	named = { size = 4, little = true, fields = {
		{ name = "count", bytes = 4, as = "number", low = "1" },
	} },
	object = { size = 16, little = true, fields = {
		{ name = "incarnation", bytes = 8, as = "id" },
		{ name = "number", bytes = 8, as = "id" },
	} },
	retry = { size = 16, little = true, fields = {
		{ name = "seq", bytes = 8, as = "number", low = "1" },
		{ name = "floor", bytes = 8, as = "number", low = "1" },
	} },
	rref_remote = { size = 56, little = true, fields = {
		{ name = "owner", bytes = 8, as = "id" },
		{ name = "id.incarnation", bytes = 8, as = "id" },
		{ name = "id.number", bytes = 8, as = "id" },
		{ name = "fork.incarnation", bytes = 8, as = "id" },
		{ name = "fork.number", bytes = 8, as = "id" },
		{ name = "function.name", bytes = 8, as = "id" },
		{ name = "function.signature", bytes = 8, as = "id" },
	} },
	rref_fetch = { size = 24, little = true, fields = {
		{ name = "owner", bytes = 8, as = "id" },
		{ name = "id.incarnation", bytes = 8, as = "id" },
		{ name = "id.number", bytes = 8, as = "id" },
	} },
	rref_method = { size = 40, little = true, fields = {
		{ name = "owner", bytes = 8, as = "id" },
		{ name = "object.incarnation", bytes = 8, as = "id" },
		{ name = "object.number", bytes = 8, as = "id" },
		{ name = "function.name", bytes = 8, as = "id" },
		{ name = "function.signature", bytes = 8, as = "id" },
	} },
	rref_method_remote = { size = 72, little = true, fields = {
		{ name = "object.incarnation", bytes = 8, as = "id" },
		{ name = "object.number", bytes = 8, as = "id" },
		{ name = "remote.owner", bytes = 8, as = "id" },
		{ name = "remote.id.incarnation", bytes = 8, as = "id" },
		{ name = "remote.id.number", bytes = 8, as = "id" },
		{ name = "remote.fork.incarnation", bytes = 8, as = "id" },
		{ name = "remote.fork.number", bytes = 8, as = "id" },
		{ name = "remote.function.name", bytes = 8, as = "id" },
		{ name = "remote.function.signature", bytes = 8, as = "id" },
	} },
	rref_op = { size = 48, little = true, fields = {
		{ name = "kind", bytes = 4, as = "code rref_kind", low = "1", high = "5" },
		{ name = "status", bytes = 4, as = "code status" },
		{ name = "owner", bytes = 8, as = "id" },
		{ name = "id.incarnation", bytes = 8, as = "id" },
		{ name = "id.number", bytes = 8, as = "id" },
		{ name = "fork.incarnation", bytes = 8, as = "id" },
		{ name = "fork.number", bytes = 8, as = "id" },
	} },
}
local codes = {
	kind = {
		{ value = 1, name = "MESSAGE", head = "message", body = "message" },
		{ value = 2, name = "ACK", head = "ack", body = "grants" },
		{ value = 3, name = "PING", head = "control", body = "handshake" },
		{ value = 4, name = "CONNECT", head = "control", body = "handshake" },
		{ value = 5, name = "ACCEPT", head = "control", body = "handshake" },
		{ value = 6, name = "REJECT", head = "control", body = "reject" },
		{ value = 7, name = "WRONG_QUEUE", head = "control", body = "reject" },
		{ value = 8, name = "RESET", head = "control", body = "reject" },
		{ value = 9, name = "CLOSE", head = "control", body = "reject" },
		{ value = 10, name = "CHALLENGE", head = "control", body = "handshake" },
	},
	wire_flag = {
		{ value = 1, name = "ASLEEP" },
		{ value = 2, name = "FRAGMENT" },
		{ value = 4, name = "MORE" },
		{ value = 8, name = "BATCH" },
		{ value = 16, name = "RETRANSMIT" },
		{ value = 32, name = "DUPLICATE" },
		{ value = 64, name = "UNACKED" },
		{ value = 128, name = "UNORDERED" },
	},
	type = {
		{ value = 1, name = "REQUEST", head = "request", body = "payload" },
		{ value = 2, name = "REPLY", head = "reply", body = "payload" },
		{ value = 3, name = "ERROR", head = "error", body = "text" },
		{ value = 4, name = "CANCEL", head = "cancel", body = "payload" },
		{ value = 5, name = "CANCELLED", head = "cancelled", body = "payload" },
		{ value = 6, name = "ONEWAY", head = "oneway", body = "payload" },
		{ value = 7, name = "CREDIT", head = "credit", body = "acked" },
		{ value = 8, name = "CREDIT_REQUEST", head = "credit", body = "payload" },
		{ value = 9, name = "RENDEZVOUS", head = "rendezvous", body = "announced" },
		{ value = 10, name = "DATA", head = "data", body = "payload" },
		{ value = 11, name = "GRANT", head = "lane_grant", body = "acked" },
		{ value = 12, name = "REFUSE", head = "lane", body = "acked" },
		{ value = 13, name = "ABORT", head = "lane", body = "payload" },
	},
	flag = {
		{ value = 1, name = "TYPED", types = { REQUEST = true } },
		{ value = 2, name = "HASHED", types = { REQUEST = true, REPLY = true } },
		{ value = 4, name = "TLV", types = { REQUEST = true, REPLY = true, ERROR = true, CANCEL = true, CANCELLED = true, ONEWAY = true, CREDIT = true, CREDIT_REQUEST = true, RENDEZVOUS = true, DATA = true, GRANT = true, REFUSE = true, ABORT = true } },
		{ value = 8, name = "RETRY", types = { REQUEST = true, REPLY = true, ERROR = true, CANCEL = true, CANCELLED = true } },
		{ value = 16, name = "RREFS", types = { REPLY = true } },
		{ value = 32, name = "METHOD", types = { REQUEST = true } },
		{ value = 64, name = "NAMED", types = { REQUEST = true } },
		{ value = 64, name = "REFERRED", types = { RENDEZVOUS = true } },
		{ value = 64, name = "KEPT", types = { GRANT = true } },
		{ value = 128, name = "REQUESTED", types = { CREDIT = true } },
		{ value = 128, name = "PULLED", types = { GRANT = true } },
	},
	status = {
		{ value = 0, name = "OK" },
		{ value = 1, name = "INVALID" },
		{ value = 2, name = "UNKNOWN_WORKER" },
		{ value = 3, name = "NO_FUNCTION" },
		{ value = 4, name = "SIGNATURE" },
		{ value = 5, name = "BAD_ARGS" },
		{ value = 6, name = "TIMEOUT" },
		{ value = 7, name = "PENDING" },
		{ value = 8, name = "PEER_LOST" },
		{ value = 9, name = "REMOTE" },
		{ value = 10, name = "RESOURCE" },
		{ value = 11, name = "BUSY" },
		{ value = 12, name = "TOO_LARGE" },
		{ value = 13, name = "UNSUPPORTED" },
		{ value = 14, name = "WOULD_DEADLOCK" },
		{ value = 15, name = "CANCELLED" },
		{ value = 16, name = "SHUTDOWN" },
		{ value = 17, name = "ALREADY_INITIALIZED" },
		{ value = 18, name = "NOT_UNIQUE" },
		{ value = 19, name = "PROTOCOL" },
		{ value = 20, name = "DENIED" },
		{ value = 21, name = "UNREACHABLE" },
		{ value = 22, name = "SYSTEM" },
		{ value = 23, name = "GONE" },
		{ value = 24, name = "INJECTED" },
		{ value = 25, name = "LEAKED" },
	},
	executed = {
		{ value = 0, name = "NO" },
		{ value = 1, name = "MAYBE" },
		{ value = 2, name = "YES" },
	},
	value_type = {
		{ value = 0, name = "none" },
		{ value = 1, name = "bool" },
		{ value = 2, name = "int" },
		{ value = 3, name = "float" },
		{ value = 4, name = "string" },
		{ value = 5, name = "bytes" },
		{ value = 6, name = "tensor" },
		{ value = 7, name = "list" },
		{ value = 8, name = "dict" },
		{ value = 9, name = "custom" },
		{ value = 10, name = "rref" },
	},
	dtype = {
		{ value = 1, name = "f32", bytes = 4 },
		{ value = 2, name = "f64", bytes = 8 },
		{ value = 3, name = "i8", bytes = 1 },
		{ value = 4, name = "i16", bytes = 2 },
		{ value = 5, name = "i32", bytes = 4 },
		{ value = 6, name = "i64", bytes = 8 },
		{ value = 7, name = "u8", bytes = 1 },
		{ value = 8, name = "u64", bytes = 8 },
		{ value = 9, name = "bool", bytes = 1 },
		{ value = 10, name = "bf16", bytes = 2 },
		{ value = 11, name = "f16", bytes = 2 },
	},
	engine_fn = {
		{ value = 65280, name = "CALL", layout = "hash", before = "values", reply = "value" },
		{ value = 65281, name = "REMOTE", layout = "rref_remote", before = "values", reply = "nothing" },
		{ value = 65282, name = "FETCH", layout = "rref_fetch", before = "-", reply = "value" },
		{ value = 65283, name = "CONTROL", layout = "rref_op", before = "more", reply = "statuses" },
		{ value = 65284, name = "METHOD", layout = "rref_method", before = "values", reply = "value" },
		{ value = 65285, name = "METHOD_REMOTE", layout = "rref_method_remote", before = "values", reply = "nothing" },
		{ value = 65286, name = "TYPE", layout = "rref_fetch", before = "-", reply = "value" },
	},
	rref_kind = {
		{ value = 1, name = "FORK" },
		{ value = 2, name = "DELETE" },
		{ value = 3, name = "ACCEPT" },
		{ value = 4, name = "FAILED" },
		{ value = 5, name = "RECALL" },
	},
}
-- The end of the tables.

local SHOWN = 32
local RREF_OPS_MAX = 64
local LINE, LENGTH_MAX, BATCH_MAX, GRANTS_MAX, WINDOW = 32, 16 * 1024 * 1024 + 64, 4000, 4, 256
local EXPOSED, ROOM = 64, 128
local RREFS_MAX, CUSTOMS_MAX, DEPTH_MAX, ITEMS_MAX, DICT_MAX, VALUES_MAX, DIMS_MAX = 256, 256, 32, 65536, 1024, 16, 8

local farcall = Proto("farcall", "Farcall")
local fields = {}

-- ---- names ----

local function code_row(set, value)
	for _, row in ipairs(codes[set]) do
		if row.value == value then
			return row
		end
	end
end

local function code_name(set, value)
	local row = code_row(set, value)
	return row and row.name or string.format("%d", value)
end

local function code_value(set, name)
	for _, row in ipairs(codes[set]) do
		if row.name == name then
			return row.value
		end
	end
	return 0
end

local function has(value, set, name)
	return bit32.band(value, code_value(set, name)) ~= 0
end

local function bits_text(set, value, message_type)
	local names = {}
	for _, row in ipairs(codes[set]) do
		if bit32.band(value, row.value) ~= 0 and (not row.types or row.types[message_type]) then
			names[#names + 1] = row.name
			value = bit32.band(value, bit32.bnot(row.value))
		end
	end
	if value ~= 0 then
		names[#names + 1] = string.format("0x%x", value)
	end
	return #names > 0 and table.concat(names, "+") or "-"
end

-- ---- the fields that can be filtered by ----

local of_every_message = { type = true, flags = true, slot = true, generation = true }

local function declare(layout, f)
	local shared = layout == "head" or layout == "message" or of_every_message[f.name] and layouts[layout].fields[1].name == "type"
	local abbrev = shared and "farcall." .. f.name or "farcall." .. layout .. "." .. f.name
	if f.as == "bytes" or f.as == "session" or f.as == "head" then
		return ProtoField.bytes(abbrev, f.name)
	end
	local base = f.as == "id" and base.HEX or base.DEC
	local names
	local set = f.as:match("^code (.+)")
	if set then
		names = {}
		for _, row in ipairs(codes[set]) do
			names[row.value] = row.name
		end
	end
	local make = { [1] = ProtoField.uint8, [2] = ProtoField.uint16, [4] = ProtoField.uint32, [8] = ProtoField.uint64 }
	return make[f.bytes](abbrev, f.name, base, names)
end

for layout, l in pairs(layouts) do
	for _, f in ipairs(l.fields) do
		f.proto = declare(layout, f)
		fields[#fields + 1] = f.proto
	end
end
local data_field = ProtoField.bytes("farcall.data", "data")
local text_field = ProtoField.string("farcall.text", "text")
local values_field = ProtoField.string("farcall.values", "values")
local engine_field = ProtoField.string("farcall.engine", "engine")
local statuses_field = ProtoField.string("farcall.statuses", "statuses")
local verdict_field = ProtoField.string("farcall.verdict", "verdict")
local line_field = ProtoField.string("farcall.line", "line")
for _, f in ipairs({ data_field, text_field, values_field, engine_field, statuses_field, verdict_field, line_field }) do
	fields[#fields + 1] = f
end
farcall.fields = fields

-- ---- bytes ----

local crc_table = {}
for n = 0, 255 do
	local x = n
	for _ = 1, 8 do
		local odd = bit32.band(x, 1) == 1
		x = bit32.rshift(x, 1)
		if odd then
			x = bit32.bxor(x, 0x82f63b78)
		end
	end
	crc_table[n] = x
end

-- CRC32C of all bytes, those of the sum itself as 0.
local function crc32c(raw, at)
	local crc = 0xffffffff
	for i = 1, #raw do
		local byte = i > at and i <= at + 4 and 0 or raw:byte(i)
		crc = bit32.bxor(crc_table[bit32.band(bit32.bxor(crc, byte), 0xff)], bit32.rshift(crc, 8))
	end
	return bit32.bnot(crc)
end

local function hex(raw)
	return (raw:gsub(".", function(c)
		return string.format("%02x", c:byte())
	end))
end

local function data_text(raw)
	return string.format("%d:%s%s", #raw, hex(raw:sub(1, SHOWN)), #raw > SHOWN and ".." or "")
end

local function string_text(raw)
	local text = raw:gsub(".", function(c)
		local b = c:byte()
		return (b < 32 or b > 126 or c == '"' or c == "\\") and string.format("\\x%02x", b) or c
	end)
	return '"' .. text .. '"'
end

local function align(at, to)
	return math.ceil(at / to) * to
end

local function bad(why)
	error({ bad = why }, 0)
end

-- ---- typed values ----

-- Positions are offsets in the payload. A length beyond it is as good as any other that is: it is never read.
local Values = {}
Values.__index = Values

function Values:take(n)
	if n > #self.raw - self.at then
		bad("values")
	end
	self.at = self.at + n
	return self.raw:sub(self.at - n + 1, self.at)
end

function Values:byte()
	return self:take(1):byte()
end

-- As 64 bits.
function Values:varint()
	local x = UInt64(0)
	for i = 0, 9 do
		local b = self:byte()
		x = x:bor(UInt64(b % 128):lshift(7 * i))
		if b < 128 then
			if i > 0 and b == 0 or i == 9 and b > 1 then
				break
			end
			return x
		end
	end
	bad("values")
end

-- As a number: all that are larger than a payload can be are the same.
function Values:size()
	local x = self:varint()
	return x:higher() > 0 and 2 ^ 53 or x:lower()
end

function Values:children(per, depth)
	local n = self:size()
	if depth == DEPTH_MAX or n * per > self.items then
		bad("values")
	end
	self.items = self.items - n * per
	local items = {}
	for i = 1, n * per do
		items[i] = self:value(depth + 1)
	end
	return items
end

local function check_keys(items)
	local seen = {}
	if #items > 2 * DICT_MAX then
		bad("values")
	end
	for i = 1, #items, 2 do
		local k = items[i]
		if not k.key or seen[k.key] then
			bad("values")
		end
		seen[k.key] = true
	end
end

local read = {}

function read.none(_, v)
	v.text = "none"
end

function read.bool(self, v)
	local b = self:byte()
	if b > 1 then
		bad("values")
	end
	v.text = b == 1 and "true" or "false"
	v.key = "b" .. v.text
end

function read.int(self, v)
	local x = self:varint()
	local half = x:rshift(1)
	v.text = x:band(1) == UInt64(0) and tostring(half) or tostring(Int64.new(half:bnot():lower(), half:bnot():higher()))
	v.key = "i" .. v.text
end

function read.float(self, v)
	local range = ByteArray.new(self:take(8), true):tvb("float")
	local x = range:range(0, 8):le_float()
	v.text = x ~= x and "nan" or string.format("%.17g", x)
	v.key = x == x and "f" .. (x == 0 and "0" or v.text) or nil
end

function read.string(self, v)
	local s = self:take(self:size())
	if self:byte() ~= 0 then
		bad("values")
	end
	v.text = string_text(s)
	v.key = "s" .. s
end

function read.bytes(self, v)
	v.size, v.align, v.form = self:size(), 1, "%s"
end

function read.tensor(self, v)
	local form, domain = self:byte(), self:byte()
	local dtype = code_row("dtype", math.floor(form / 16))
	if not dtype or form % 16 > DIMS_MAX or domain ~= 0 then
		bad("values")
	end
	local shape, empty = {}, false
	v.size, v.align = dtype.bytes, dtype.bytes
	for i = 1, form % 16 do
		local n = self:varint()
		shape[i] = tostring(n)
		n = n:higher() > 0 and 2 ^ 53 or n:lower()
		empty = empty or n == 0
		v.size = v.size * n
	end
	v.size = empty and 0 or v.size
	v.form = dtype.name .. "[" .. table.concat(shape, ",") .. "](%s)"
end

function read.list(self, v, depth)
	v.items = self:children(1, depth)
end

function read.dict(self, v, depth)
	v.items, v.dict = self:children(2, depth), true
	check_keys(v.items)
end

function read.custom(self, v)
	self.customs = self.customs + 1
	if self.customs > CUSTOMS_MAX then
		bad("values")
	end
	local hash = hex(self:take(8):reverse())
	v.size, v.align, v.form = self:size(), 8, "custom(" .. hash .. ",%s)"
end

function read.rref(self, v)
	self.rrefs = self.rrefs + 1
	if self.rrefs > RREFS_MAX then
		bad("values")
	end
	local words = {}
	for i = 1, 7 do
		words[i] = hex(self:take(i ~= 6 and 8 or 2):reverse())
	end
	v.text = "rref(" .. table.concat(words, ",") .. ")"
end

function Values:value(depth)
	local row = code_row("value_type", self:byte())
	if not row or not read[row.name] then
		bad("values")
	end
	local v = {}
	read[row.name](self, v, depth)
	return v
end

function Values:place(v)
	if v.size then
		local raw = ""
		if v.size > 0 then
			self.at = align(self.at, self.wide and 64 or v.align)
			raw = self:take(v.size)
		end
		return (v.form:gsub("%%s", function()
			return data_text(raw)
		end))
	end
	if not v.items then
		return v.text
	end
	local texts = {}
	for i, item in ipairs(v.items) do
		local between = i == 1 and "" or v.dict and i % 2 == 0 and ":" or ","
		texts[i] = between .. self:place(item)
	end
	local all = table.concat(texts)
	return v.dict and "{" .. all .. "}" or "[" .. all .. "]"
end

local function values_text(raw)
	local self = setmetatable({ raw = raw, at = 0, customs = 0, rrefs = 0, items = 0 }, Values)
	local head = self:byte()
	local n, wide = head % 32, head >= 128
	self.wide = wide
	if bit32.band(head, 0x40) ~= 0 or n > VALUES_MAX or wide ~= (#raw > LINE) then
		bad("values")
	end
	if bit32.band(head, 0x20) ~= 0 then
		self.items = self:size()
		if self.items == 0 or self.items > ITEMS_MAX or self.items > #raw - self.at then
			bad("values")
		end
	end
	local values, texts = {}, {}
	for i = 1, n do
		values[i] = self:value(0)
	end
	if self.items ~= 0 then
		bad("values")
	end
	for i = 1, n do
		texts[i] = self:place(values[i])
	end
	if self.at ~= #raw then
		bad("values")
	end
	return "(" .. table.concat(texts, ",") .. ")", n
end

-- ---- packets ----

-- What is being dissected: the texts of the line, and the tree.
local Packet = {}
Packet.__index = Packet

function Packet:say(text)
	self.line[#self.line + 1] = text
end

local function field_text(f, little, range, value, message_type)
	local as = f.as
	if as == "id" then
		return hex(little and range:raw():reverse() or range:raw())
	end
	if as == "signed" then
		return string.format("%d", value >= 2 ^ 31 and value - 2 ^ 32 or value)
	end
	local code, bits = as:match("^code (.+)"), as:match("^bits (.+)")
	if code then
		return code_name(code, value)
	end
	if bits then
		return bits_text(bits, value, message_type)
	end
	return tostring(value)
end

local function whole(layout, range, f)
	if f.bytes == 8 then
		return layout.little and range:le_uint64() or range:uint64()
	end
	return layout.little and range:le_uint() or range:uint()
end

local function out_of_range(f, value)
	if f.low and UInt64(f.low) > (f.bytes == 8 and value or UInt64(value)) then
		return true
	end
	return f.high and UInt64(f.high) < (f.bytes == 8 and value or UInt64(value))
end

-- Numbers of 8 bytes that a layout holds are UInt64, others plain.
function Packet:layout(name, tvb, exact)
	local layout = layouts[name]
	local values, at, wrong = {}, 0, nil
	if tvb:len() < layout.size then
		bad(name .. ".size")
	end
	local tree = self.tree:add(farcall, tvb(0, layout.size), name)
	self:say("[" .. name .. "]")
	for _, f in ipairs(layout.fields) do
		local size = type(f.bytes) == "number" and f.bytes or f.bytes == "rest" and tvb:len() - at or values[f.bytes]
		if size > tvb:len() - at then
			bad(wrong or name .. ".size")
		end
		if f.as == "head" then
			values[f.name] = tvb:range(at, size):tvb()
		elseif f.as == "bytes" or f.as == "session" then
			local raw = size > 0 and tvb(at, size):raw() or ""
			if size > 0 then
				tree:add(f.proto, tvb(at, size))
			end
			values[f.name] = { at = at, raw = raw }
			self:say(f.name .. "=" .. data_text(raw))
		else
			local range = tvb(at, size)
			local value = whole(layout, range, f)
			values[f.name] = value
			local message_type = values.type and code_name("type", values.type)
			local text = field_text(f, layout.little, range, value, message_type)
			local item = layout.little and tree:add_le(f.proto, range) or tree:add(f.proto, range)
			if f.as ~= "number" then
				item:append_text(" [" .. text .. "]")
			end
			self:say(f.name .. "=" .. text)
			if not wrong and out_of_range(f, value) then
				wrong = name .. "." .. f.name
			end
		end
		at = at + size
	end
	if wrong then
		bad(wrong)
	end
	if exact and at ~= tvb:len() then
		bad(name .. ".size")
	end
	return values
end

-- The rest of a tvb from `at` on; nil when nothing is left.
local function part(tvb, at, len)
	len = len or (tvb and tvb:len() or 0) - at
	return len > 0 and tvb:range(at, len):tvb() or nil
end

local function size_of(tvb)
	return tvb and tvb:len() or 0
end

function Packet:data(name, tvb)
	if not tvb and name == "payload" then
		return
	end
	self:say("[" .. name .. "]")
	self:say("data=" .. data_text(tvb and tvb():raw() or ""))
	if tvb then
		self.tree:add(data_field, tvb())
	end
end

-- A layout that may have no bytes at all.
function Packet:body(name, tvb)
	if not tvb then
		bad(name .. ".size")
	end
	return self:layout(name, tvb, true)
end

-- By call slot, the last request to the engine. A packet that is dissected again later gets the result of the first
-- time.
local requests, replies = {}, {}

function farcall.init()
	requests, replies = {}, {}
end

local function engine_row(head)
	return not has(head.flags, "flag", "TYPED") and code_row("engine_fn", head.handler) or nil
end

-- If it is a request to the engine, its reply will be known.
function Packet:note(head)
	if not self.again and code_name("type", head.type) == "REQUEST" and engine_row(head) then
		requests[self.from .. ">" .. self.to .. "/" .. head.slot] = { generation = head.generation, row = engine_row(head) }
	end
end

-- The head of a message; of an unknown type, that alone.
function Packet:message_head(tvb)
	local row = code_row("type", tvb(0, 1):uint())
	return row and self:layout(row.head, tvb, true) or { type = tvb(0, 1):uint() }
end

function Packet:announced(tvb)
	if size_of(tvb) ~= layouts.request.size then
		bad("announced.size")
	end
	local name = code_name("type", tvb(0, 1):uint())
	if name ~= "REQUEST" and name ~= "ONEWAY" and name ~= "REPLY" then
		bad("announced.type")
	end
	self:note(self:message_head(tvb))
end

function Packet:values(tvb, one)
	local text, n = values_text(tvb and tvb():raw() or "")
	if one and n ~= 1 then
		bad("values")
	end
	self:say("[values]")
	self:say(text)
	self.tree:add(values_field, tvb(), text)
end

function Packet:engine_request(row, tvb)
	local size, n = layouts[row.layout].size, size_of(tvb)
	self:say("[engine]")
	self:say("request=" .. row.name)
	self.tree:add(engine_field, row.name)
	if row.before == "-" then
		self:body(row.layout, tvb)
	elseif row.before == "more" then
		if n % size ~= 0 or n == 0 or n > RREF_OPS_MAX * size then
			bad(row.layout .. ".size")
		end
		for at = 0, n - size, size do
			self:layout(row.layout, part(tvb, at, size), true)
		end
	else
		if n < size then
			bad(row.layout .. ".size")
		end
		self:layout(row.layout, part(tvb, n - size), true)
		self:values(part(tvb, 0, n - size))
	end
end

function Packet:reply(head, tvb)
	local key = self.number .. "/" .. head.slot .. "/" .. head.generation
	if not self.again then
		local a = requests[self.to .. ">" .. self.from .. "/" .. head.slot]
		replies[key] = a and a.generation == head.generation and a.row or nil
	end
	local row = replies[key]
	if not row then
		self:data("payload", tvb)
		return
	end
	self:say("[engine]")
	self:say("reply=" .. row.name)
	self.tree:add(engine_field, row.name)
	if row.reply == "value" then
		self:values(tvb, true)
	elseif row.reply == "statuses" then
		local names, n = {}, size_of(tvb)
		if n == 0 or n > RREF_OPS_MAX then
			bad("statuses")
		end
		for i = 1, n do
			names[i] = code_name("status", tvb(i - 1, 1):uint())
		end
		self:say("[statuses]")
		self:say(table.concat(names, ","))
		self.tree:add(statuses_field, tvb(), table.concat(names, ","))
	elseif tvb then
		bad("engine.size")
	end
end

-- Takes the fields of interceptors off the end of a message; returns the rest.
function Packet:fields(head, tvb)
	local n = has(head.flags, "flag", "TLV") and tonumber(tostring(head.tlv_bytes)) or 0
	if n == 0 then
		return tvb
	end
	local rest = size_of(tvb) - n
	if rest < 0 or n > 1024 then
		bad("fields")
	end
	local at = 0
	while at < n do
		if n - at < 4 or tvb(rest + at, 2):le_uint() % 32768 == 0 then
			bad("fields")
		end
		at = at + 4 + tvb(rest + at + 2, 2):le_uint()
	end
	if at > n then
		bad("fields")
	end
	self:data("fields", part(tvb, rest))
	return part(tvb, 0, rest)
end

function Packet:request(head, tvb)
	local flags = head.flags
	local fields_due = true
	for _, trailer in ipairs({ { "retry", "RETRY" }, { "hash", "HASHED" }, { "named", "NAMED" }, { "object", "METHOD" } }) do
		local name, flag = trailer[1], trailer[2]
		if name ~= "retry" and fields_due then
			tvb = self:fields(head, tvb)
			fields_due = false
		end
		if has(flags, "flag", flag) and not (name == "object" and has(flags, "flag", "NAMED")) then
			local rest = size_of(tvb) - layouts[name].size
			if rest < 0 then
				bad(name .. ".size")
			end
			local values = self:layout(name, part(tvb, rest), true)
			tvb = part(tvb, 0, rest)
			if name == "retry" and (values.floor > values.seq or values.seq - values.floor >= UInt64(1024)) then
				bad("retry.window")
			end
		end
	end
	local row = engine_row(head)
	if row then
		self:engine_request(row, tvb)
	elseif has(flags, "flag", "TYPED") then
		self:values(tvb)
	else
		self:data("payload", tvb)
	end
end

function Packet:message(layout, head, tvb)
	self:note(head)
	local row = code_row("type", head.type)
	if not row then
		bad(layout .. ".type")
	end
	self.names[#self.names + 1] = row.name
	if row.name == "REPLY" or row.name == "ERROR" or row.name == "ONEWAY" then
		tvb = self:fields(head, tvb)
	end
	if row.body == "text" then
		local text = string_text(tvb and tvb():raw() or "")
		self:say("[text]")
		self:say(text)
		if tvb then
			self.tree:add(text_field, tvb(), text)
		end
	elseif row.body == "announced" then
		self:announced(tvb)
	elseif row.body ~= "payload" then
		self:body(row.body, tvb)
	elseif row.name == "REQUEST" then
		self:request(head, tvb)
	elseif row.name == "REPLY" then
		self:reply(head, tvb)
	else
		self:data("payload", tvb)
	end
end

function Packet:batch(head, first, offset, tvb)
	local last, at = size_of(tvb), head.length
	if head.packet ~= head.first or offset ~= 0 or at >= last or last > BATCH_MAX then
		bad("batch")
	end
	self:message("message", first, part(tvb, 0, at))
	while at < last do
		local sub, size = align(at, 32), layouts.sub.size
		if sub + size > last then
			bad("sub.size")
		end
		local values = self:layout("sub", part(tvb, sub, size), true)
		local further = self:message_head(values.call)
		local length = values.length
		at = length <= LINE and sub + size or align(sub + size, 64)
		if length > last or at > last - length then
			bad("sub.length")
		end
		self:message("sub", further, part(tvb, at, length))
		at = at + length
	end
end

function Packet:bytes_of_message(head, tvb)
	local message = self:message_head(head.call)
	local piece, batch = has(head.flags, "wire_flag", "FRAGMENT"), has(head.flags, "wire_flag", "BATCH")
	local n, before, offset = size_of(tvb), (head.packet - head.first) % 2 ^ 32, head.offset
	if has(head.flags, "wire_flag", "UNORDERED") then
		local small = before == 0 and offset ~= 0
		if piece or small and (offset > WINDOW or not batch and n ~= head.length) or not small and batch then
			bad("unordered")
		end
		offset = small and 0 or offset
	end
	local key
	if math.floor(head.lane_phase / EXPOSED) % 2 == 1 and n ~= head.length then
		local size = layouts.exposed.size
		if piece or batch or before ~= 0 or offset ~= 0 or n <= size or head.length <= ROOM or n - size >= head.length then
			bad("exposed")
		end
		n = n - size
		tvb, key = part(tvb, 0, n), part(tvb, n, size)
	end
	if batch then
		if piece then
			bad("batch")
		end
		self:batch(head, message, offset, tvb)
		return
	end
	if head.length > LENGTH_MAX or offset + n > head.length or n == 0 and head.length ~= 0 or before >= 2 ^ 31 then
		bad("fragment")
	end
	if not piece and (offset == 0) ~= (before == 0) then
		bad("fragment")
	end
	if n == head.length and not piece then
		self:message("message", message, tvb)
	else
		self:note(message) -- each fragment has it
		self:data("fragment", tvb)
		if key then
			self:layout("exposed", key, true)
		end
	end
end

function Packet:grants(tvb)
	local n, size = size_of(tvb), layouts.grant.size
	if n % size ~= 0 or n > GRANTS_MAX * size then
		bad("grants")
	end
	for at = 0, n - size, size do
		self:layout("grant", part(tvb, at, size), true)
	end
end

function Packet:handshake(tvb)
	local words = self:body("handshake", tvb).session
	if #words.raw == 0 then
		return
	end
	local layout = layouts.session
	if #words.raw < layout.size then
		bad("session")
	end
	local at, session = 0, part(tvb, words.at, #words.raw)
	for _, f in ipairs(layout.fields) do
		if out_of_range(f, whole(layout, session(at, f.bytes), f)) then
			bad("session")
		end
		at = at + f.bytes
	end
	self:layout("session", session, false)
end

function Packet:dissect(tvb)
	local head = self:layout("head", tvb, false)
	local kind = code_row("kind", head.kind)
	self.names[#self.names + 1] = code_name("kind", head.kind)
	local at = 0
	for _, f in ipairs(layouts.head.fields) do
		if f.name == "crc" then
			break
		end
		at = at + f.bytes
	end
	if head.crc ~= 0 and crc32c(tvb():raw(), at) ~= head.crc then
		bad("crc")
	end
	if not kind then
		return
	end
	local rest = part(tvb, layouts.head.size)
	for name, value in pairs(self:layout(kind.head, rest, false)) do
		head[name] = value
	end
	rest = part(rest, layouts[kind.head].size)
	if kind.body == "message" then
		self:bytes_of_message(head, rest)
	elseif kind.body == "handshake" then
		self:handshake(rest)
	elseif kind.body == "grants" then
		self:grants(rest)
	else
		self:body(kind.body, rest)
	end
end

local function host(address)
	local text = tostring(address)
	return text:find(":") and "[" .. text .. "]" or text
end

function farcall.dissector(tvb, pinfo, root)
	local packet = setmetatable({ line = {}, names = {} }, Packet)
	packet.tree, packet.number, packet.again = root:add(farcall, tvb()), pinfo.number, pinfo.visited
	packet.from = host(pinfo.src) .. ":" .. pinfo.src_port
	packet.to = host(pinfo.dst) .. ":" .. pinfo.dst_port
	local fine, why = pcall(packet.dissect, packet, tvb)
	if not fine and not (type(why) == "table" and why.bad) then
		error(why, 0)
	end
	local verdict = fine and "ok" or "bad=" .. why.bad
	packet.tree:add(verdict_field, verdict)
	packet:say(verdict)
	local line = string.format("%d %.6f %s > %s %d %s", pinfo.number, pinfo.rel_ts, packet.from, packet.to, tvb:len(),
		table.concat(packet.line, " "))
	packet.tree:add(line_field, line):set_hidden()
	pinfo.cols.protocol = "FARCALL"
	pinfo.cols.info = table.concat(packet.names, " ") .. (fine and "" or " " .. verdict)
	return tvb:len()
end

local function likely(tvb, pinfo, root)
	if tvb:len() < layouts.head.size + layouts.message.size or tvb(0, 1):uint() ~= layouts.head.fields[1].low + 0 or not code_row("kind", tvb(1, 1):uint()) then
		return false
	end
	-- Control packets have a proof there.
	if tvb(1, 1):uint() <= 2 and tvb(80, 16):raw() ~= string.rep("\0", 16) then
		return false
	end
	farcall.dissector(tvb, pinfo, root)
	return true
end

farcall:register_heuristic("udp", likely)
-- RDMA devices, RoCE and InfiniBand: payloads are padded to words.
local padding = Field.new("infiniband.bth.padcnt")

local function likely_rdma(tvb, pinfo, root)
	local count = padding()
	local len = tvb:len() - (count and count.value or 0)
	return len > 0 and likely(tvb(0, len):tvb(), pinfo, root)
end

farcall:register_heuristic("infiniband.payload", likely_rdma)
DissectorTable.get("udp.port"):add_for_decode_as(farcall)
