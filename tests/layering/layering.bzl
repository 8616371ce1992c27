# SPDX-License-Identifier: MIT
"""layer_test: a library may depend, directly and through others, on those listed and on nothing else."""

def layer_test(name, target, allowed):
    native.genquery(
        name = name + "_deps",
        expression = "kind(cc_library, deps(%s))" % target,
        scope = [target],
    )
    native.sh_test(
        name = name,
        size = "small",
        tags = ["scripts"],
        srcs = ["layering_test.sh"],
        args = ["$(location :%s_deps)" % name, target] + allowed,
        data = [":%s_deps" % name],
    )
