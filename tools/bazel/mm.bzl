# SPDX-License-Identifier: MIT
"""mm_library, mm_test, mm_binary: cc_* rules with this project's language level and warnings."""

MM_COPTS = [
    "-std=c11",
    "-D_GNU_SOURCE",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fvisibility=hidden",
]

def mm_library(name, copts = [], **kw):
    native.cc_library(name = name, copts = MM_COPTS + copts, **kw)

def mm_binary(name, copts = [], **kw):
    native.cc_binary(name = name, copts = MM_COPTS + copts, **kw)

def mm_test(name, srcs = None, copts = [], linkopts = [], size = "small", **kw):
    """A cmocka program tests/.../NAME.c. Tags, which .bazelrc and tools/test go by: "devices", it goes over all devices
    of the build; "one-thread", it never has a second one, and is not run under the thread sanitizer; "no-tsan", nor is
    this one: its threads do only what they do in other tests; "scripts" (of a sh_test), it runs no code of ours;
    "plain", sanitizers see enough of it in other tests; "shipping", it is run with what users get, without emulated
    CUDA; "deep", tools/test runs it with --deep alone; "far", with --changed only where its own folder's code
    changed."""
    native.cc_test(
        name = name,
        srcs = srcs or [name + ".c"],
        copts = MM_COPTS + copts,
        linkopts = ["-lcmocka"] + linkopts,
        size = size,
        **kw
    )
