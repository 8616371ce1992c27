# SPDX-License-Identifier: MIT
"""The examples that //tools:BUILD builds as //tools:example_NAME, and //tests/mm:examples_test runs: name → source,
without its suffix, in tools/examples. READMEs beside the sources show what they print."""

C_EXAMPLES = {
    "embed": "01-loop/example_embed",
    "switch_policies": "03-switch-policies/switch_policies",
    "budget_changes": "04-budget-changes/budget_changes",
    "recompute_declared": "05-recompute/recompute_declared",
    "recompute_learned": "05-recompute/recompute_learned",
    "evaluation_graph": "06-evaluation-graph/evaluation_graph",
    "stash_tape": "07-stash/stash_tape",
    "ranks_in_threads": "08-ranks/ranks_in_threads",
}
CPP_EXAMPLES = {"lambdas": "02-loop-learned/lambdas"}
HOST_EXAMPLES = dict(C_EXAMPLES, **CPP_EXAMPLES)
CUDA_EXAMPLES = {"own_stream": "10-own-stream/own_stream"}

def _readme_of(source):
    return "examples/%s/README.md" % source.split("/")[0]

# As files of package //tools: the sources of examples in C, and the READMEs of all, each once.
C_SOURCES = ["examples/%s.c" % source for source in C_EXAMPLES.values()]
READMES = {_readme_of(source): None for source in HOST_EXAMPLES.values() + CUDA_EXAMPLES.values()}.keys()

def examples_env(examples):
    """What examples_test gets: pairs NAME=README."""
    return {"MM_EXAMPLES": " ".join(["%s=tools/%s" % (name, _readme_of(source)) for name, source in examples.items()])}

def examples_data(examples):
    """The programs and READMEs that examples_test needs."""
    readmes = {_readme_of(source): None for source in examples.values()}
    return ["//tools:example_" + name for name in examples] + ["//tools:" + readme for readme in readmes]
