# SPDX-License-Identifier: BSD-3-Clause
"""Installs the packages, builds the programs, and finds their versions."""
import json
import os
import shutil
import subprocess

import process

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
APT = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "-q"]
APT_S, COMPILE_S, ENGINE_S, VERSION_S = 1200, 300, 1200, 60


class Failed(Exception):
    pass


def run(args, seconds, cwd=None, env=None):
    """The output of a command; Failed with the last line of its errors."""
    code, out, err = process.run(args, seconds, cwd=cwd, env=env)
    if code:
        lines = [line for line in (err or out).splitlines() if line.strip()] or ["no output"]
        errors = [line for line in lines if "error:" in line or line.startswith("E: ")]
        raise Failed("%s: %s" % (os.path.basename(args[0]), (errors or lines[-1:])[0].strip()))
    return out


def missing(packages):
    """Those that are not installed. Without dpkg: none; the build finds out."""
    if not packages or not shutil.which("dpkg-query"):
        return []
    code, out, _ = process.run(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n"] + packages, VERSION_S)
    installed = {line.split()[0] for line in out.splitlines() if line.endswith(" installed")}
    return [p for p in packages if p not in installed]


def install(packages, say):
    """Installs what is missing. Returns why that failed, or None."""
    wanted = missing(packages)
    if not wanted:
        return None
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if not shutil.which("apt-get") or (root and not shutil.which("sudo")):
        return "apt-get needs root"
    say("installing " + " ".join(wanted))
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    command = root + APT + ["install", "-y", "--no-install-recommends"] + wanted
    try:
        try:
            run(command, APT_S, env=env)
        except Failed: # the index may be old
            run(root + APT + ["update"], APT_S, env=env)
            run(command, APT_S, env=env)
    except Failed as e:
        return str(e)
    return None


def package_version(package):
    code, out, _ = process.run(["dpkg-query", "-W", "-f", "${Version}", package], VERSION_S)
    return out.strip() if code == 0 else ""


def flags(*modules):
    return run(["pkg-config", "--cflags", "--libs"] + list(modules), VERSION_S).split()


def prefix_problem(prefix):
    """Why a directory is no installed UCX, or None."""
    for name in ("include/ucp/api/ucp.h", "lib/libucp.so", "bin/ucx_perftest", "bin/ucx_info"):
        if not os.path.exists(os.path.join(prefix, name)):
            return "%s has no %s; give the prefix of an installed UCX" % (prefix, name)
    return None


class Builder:
    def __init__(self, work, farcall, prefix, say):
        self.work, self.farcall, self.prefix, self.say = work, farcall, prefix, say
        self.bin = os.path.join(work, "bin")
        os.makedirs(self.bin, exist_ok=True)

    def path(self, program):
        return os.path.join(self.bin, program)

    def cc(self, out, sources, libraries=(), extra=(), plus=False):
        compiler = os.environ.get("CXX" if plus else "CC", "c++" if plus else "cc").split()
        sources = [s if os.path.isabs(s) else os.path.join(HERE, s) for s in sources]
        stamp = self.path(out) + ".command"
        args = (compiler + ["-O3", "-D_GNU_SOURCE", "-I", HERE] + list(extra) + ["-o", self.path(out)] + sources +
                list(libraries))
        newest = max(os.path.getmtime(f) for f in sources + [os.path.join(HERE, h) for h in ("bench.h", "clock.h")])
        try:
            with open(stamp) as f:
                if f.read() == " ".join(args) and os.path.getmtime(self.path(out)) >= newest:
                    return
        except OSError:
            pass
        self.say("building " + out)
        run(args, COMPILE_S)
        with open(stamp, "w") as f:
            f.write(" ".join(args))

    def build_farcall(self):
        if not self.farcall:
            built = os.path.join(TOP, "build")
            if not os.path.exists(os.path.join(built, "engine", "libfarcall.so")):
                built = os.path.join(self.work, "farcall")
                self.say("building Farcall in %s" % built)
                if not os.path.exists(os.path.join(built, "build.ninja")):
                    run(["meson", "setup", built, TOP, "--buildtype=release", "-Dtests=false"], ENGINE_S)
                run(["meson", "compile", "-C", built, "farcall:shared_library"], ENGINE_S)
            self.farcall = built
        engine = os.path.join(os.path.abspath(self.farcall), "engine")
        self.cc("farcall", ["farcall.c", "bench.c"], ["-L" + engine, "-lfarcall", "-Wl,-rpath," + engine],
                ["-I", os.path.join(TOP, "include")])

    def generated(self, name, args, *outputs):
        """Files that a schema compiler makes of `name`, in a folder of their own."""
        out = os.path.join(self.work, "generated")
        os.makedirs(out, exist_ok=True)
        shutil.copy2(os.path.join(HERE, name), out)
        run(args + [name], COMPILE_S, cwd=out)
        source = os.path.getmtime(os.path.join(HERE, name))
        for output in outputs: # their age is the schema's, so that nothing is compiled again
            os.utime(os.path.join(out, output), (source, source))
        return out, [os.path.join(out, o) for o in outputs if not o.endswith(".h")]

    def build_cplusplus(self, program, schema, compiler, outputs, modules):
        out, sources = self.generated(schema, compiler, *outputs)
        self.cc("bench.o", ["bench.c"], extra=["-c"])
        self.cc(program, [program + ".cc", self.path("bench.o")] + sources, flags(*modules), ["-I", out], plus=True)

    def build(self, program):
        """Failed: it cannot be built."""
        if program == "farcall":
            self.build_farcall()
        elif program == "raw":
            self.cc("raw", ["raw.c", "bench.c"])
        elif program == "ucx":
            self.cc("ucx", ["ucx.c", "bench.c"], ["-lucp", "-lucs"])
        elif program == "ucx+":
            lib = os.path.join(self.prefix, "lib")
            self.cc("ucx+", ["ucx.c", "bench.c"], ["-L" + lib, "-lucp", "-lucs", "-Wl,-rpath," + lib],
                    ["-I", os.path.join(self.prefix, "include")])
        elif program == "grpc":
            plugin = shutil.which("grpc_cpp_plugin") or "grpc_cpp_plugin"
            self.build_cplusplus("grpc", "call.proto", ["protoc", "--cpp_out=.", "--grpc_out=.",
                                                        "--plugin=protoc-gen-grpc=" + plugin],
                                 ["call.pb.cc", "call.grpc.pb.cc", "call.pb.h", "call.grpc.pb.h"],
                                 ["grpc++", "protobuf"])
        elif program == "capnp":
            self.build_cplusplus("capnp", "call.capnp", ["capnp", "compile", "-oc++"],
                                 ["call.capnp.c++", "call.capnp.h"], ["capnp-rpc"])
        elif program == "pytorch":
            self.cc("libclock.so", ["bench.c"], extra=["-shared", "-fPIC"])
        else:
            module = {"zeromq": "libzmq", "nng": None, "libfabric": "libfabric"}[program]
            self.cc(program, [program + ".c", "bench.c"], flags(module) if module else ["-lnng"])

    def command(self, program):
        if program == "pytorch":
            return ["/usr/bin/python3", "-B", os.path.join(HERE, "pytorch.py"), "--clock", self.path("libclock.so")]
        return [self.path(program)]

    def tool(self, row):
        return os.path.join(self.prefix, "bin", row.tool) if row.program == "ucx+" else row.tool

    def version(self, row):
        text = run(self.command(row.program) + ["--version"], VERSION_S).strip()
        if row.program == "farcall":
            return text + self.farcall_details()
        if row.program in ("ucx", "ucx+"):
            info = os.path.join(self.prefix, "bin", "ucx_info") if row.program == "ucx+" else "ucx_info"
            found = [line for line in run([info, "-v"], VERSION_S).splitlines() if "revision" in line]
            revision = found[0].split("revision")[1].strip() if found else "unknown"
            text += ", commit unknown" if not revision.strip("0") else ", commit " + revision
            if row.program == "ucx+":
                return text + ", " + self.prefix
        if row.packages:
            text += ", %s %s" % (row.packages[0], package_version(row.packages[0]))
        return text

    def farcall_details(self):
        code, commit, _ = process.run(["git", "-C", TOP, "rev-parse", "--short=12", "HEAD"], VERSION_S)
        text = ", commit " + commit.strip() if code == 0 else ", commit unknown"
        if code == 0 and process.run(["git", "-C", TOP, "status", "--porcelain", "-uno"], VERSION_S)[1].strip():
            text += " with changes"
        code, options, _ = process.run(["meson", "introspect", "--buildoptions", self.farcall], VERSION_S)
        kind = [o["value"] for o in json.loads(options) if o["name"] == "buildtype"] if code == 0 else []
        return text + (", buildtype " + kind[0] if kind else "")
