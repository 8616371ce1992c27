# SPDX-License-Identifier: MIT
"""cc_archive: one static library of a cc_library and all its dependencies."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _cc_archive_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    out = ctx.actions.declare_file(ctx.label.name)
    parts = []
    for dep in ctx.attr.deps:
        for linker_input in dep[CcInfo].linking_context.linker_inputs.to_list():
            for library in linker_input.libraries:
                part = library.pic_static_library or library.static_library
                if part and part not in parts:
                    parts.append(part)
    script = "create %s\n" % out.path
    script += "".join(["addlib %s\n" % part.path for part in parts])
    script += "save\nend\n"
    mri = ctx.actions.declare_file(ctx.label.name + ".mri")
    ctx.actions.write(mri, script)
    ctx.actions.run_shell(
        command = "%s -M < %s" % (toolchain.ar_executable, mri.path),
        inputs = depset(parts + [mri], transitive = [toolchain.all_files]),
        outputs = [out],
        mnemonic = "CcArchive",
    )
    return [DefaultInfo(files = depset([out]), runfiles = ctx.runfiles(files = [out]))]

cc_archive = rule(
    implementation = _cc_archive_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
