# SPDX-License-Identifier: MIT
"""cc_* rules with this project's language level and warnings, and lists of tests."""

MM_COPTS = [
    "-std=c11",
    "-D_GNU_SOURCE",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fvisibility=hidden",
]

# Of tests that link //tests/core:alloc_fault.
ALLOC_FAULT_LINKOPTS = ["-Wl,--wrap=" + name for name in [
    "aligned_alloc", "asprintf", "calloc", "fdopen", "fopen", "malloc", "open_memstream", "realloc", "realpath",
    "strdup", "strndup",
]]

def mm_library(name, copts = [], **kw):
    native.cc_library(name = name, copts = MM_COPTS + copts, **kw)

def mm_binary(name, copts = [], **kw):
    native.cc_binary(name = name, copts = MM_COPTS + copts, **kw)

def mm_test(name, srcs = None, copts = [], linkopts = [], deps = [], size = "small", **kw):
    """A cmocka program tests/.../NAME.c, of cases (tests/core/test_case.h) or with a main. Tags that .bazelrc and
    tools/test use:
    "devices": runs on all devices of the build. "one-thread": has one thread; not run under the thread sanitizer.
    "no-tsan": not run under the thread sanitizer either, since its threads do only what other tests' threads do.
    "scripts" (sh_test): runs no code of ours. "plain": not run under sanitizers, which see enough in other tests.
    "shipping": run with the users' build, without emulated CUDA. "deep": run with tools/test --deep only. "far": run
    with --changed only if its own folder's code changed."""
    native.cc_test(
        name = name,
        srcs = srcs or [name + ".c"],
        copts = MM_COPTS + copts,
        linkopts = ["-lcmocka", "-lm"] + linkopts,
        deps = deps + ["//tests/core:test_case"],
        size = size,
        **kw
    )

def mm_tests(tests, rule = mm_test, **common):
    """Tests of one rule, a line each. tests: a list of names, or a dictionary from names to further deps, or to a
    dict() of attributes. A list is added to the common attribute; any other value replaces it."""
    for name in tests:
        own = tests[name] if type(tests) == "dict" else {}
        attributes = dict(common)
        for key, value in (own if type(own) == "dict" else {"deps": own}).items():
            attributes[key] = attributes.get(key, []) + value if type(value) == "list" else value
        rule(name = name, **attributes)

def mm_test_library(name, srcs = None, hdrs = None, visibility = ["//tests:__subpackages__"], **kw):
    """Code that several tests share: NAME.c and NAME.h."""
    mm_library(
        name = name,
        testonly = True,
        srcs = [name + ".c"] if srcs == None else srcs,
        hdrs = [name + ".h"] if hdrs == None else hdrs,
        visibility = visibility,
        **kw
    )
