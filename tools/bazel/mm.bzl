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

def mm_library(name, copts = [], **kw):
    native.cc_library(name = name, copts = MM_COPTS + copts, **kw)

def mm_binary(name, copts = [], **kw):
    native.cc_binary(name = name, copts = MM_COPTS + copts, **kw)

def mm_test(name, srcs = None, copts = [], linkopts = [], deps = [], size = "small", **kw):
    """A cmocka program tests/.../NAME.c, of cases (tests/core/test_case.h) or with a main of its own. Tags, which
    .bazelrc and tools/test go by: "devices", it goes over all devices of the build; "one-thread", it never has a second
    one, and is not run under the thread sanitizer; "no-tsan", nor is this one: its threads do only what they do in
    other tests; "scripts" (of a sh_test), it runs no code of ours; "plain", sanitizers see enough of it in other tests;
    "shipping", it is run with what users get, without emulated CUDA; "deep", tools/test runs it with --deep alone;
    "far", with --changed only where its own folder's code changed."""
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
    """Tests of one rule, a line each. tests: their names; or a dictionary of names, with the deps that a test has
    beside the common ones, or a dict() of attributes. An attribute that is a list is added to the common one; any
    other replaces it."""
    for name in tests:
        own = tests[name] if type(tests) == "dict" else {}
        attributes = dict(common)
        for key, value in (own if type(own) == "dict" else {"deps": own}).items():
            attributes[key] = attributes.get(key, []) + value if type(value) == "list" else value
        rule(name = name, **attributes)

def mm_test_library(name, srcs = None, hdrs = None, visibility = ["//tests:__subpackages__"], **kw):
    """What several tests share: NAME.c and NAME.h."""
    mm_library(
        name = name,
        testonly = True,
        srcs = [name + ".c"] if srcs == None else srcs,
        hdrs = [name + ".h"] if hdrs == None else hdrs,
        visibility = visibility,
        **kw
    )
