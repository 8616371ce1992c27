# SPDX-License-Identifier: MIT
"""layer_test: a library may depend, directly and through others, on those listed and on nothing else.

own_archives: the archives of all libraries of this tree that `deps` link.
"""

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

def _own_archives_impl(ctx):
    archives = []
    for dep in ctx.attr.deps:
        for part in dep[CcInfo].linking_context.linker_inputs.to_list():
            if part.owner.package.startswith("tests/") or part.owner.name in ctx.attr.without:
                continue
            for library in part.libraries:
                archive = library.pic_static_library or library.static_library
                if archive:
                    archives.append(archive)
    return [DefaultInfo(files = depset(archives), runfiles = ctx.runfiles(archives))]

own_archives = rule(
    implementation = _own_archives_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "without": attr.string_list(),
    },
)
