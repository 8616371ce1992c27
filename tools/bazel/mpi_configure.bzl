# SPDX-License-Identifier: MIT
"""@local_mpi: the headers of this machine's MPI, which mpicc finds; without MPI an empty repository."""

def _impl(rctx):
    mpicc = rctx.which("mpicc")
    folders = []
    if mpicc:
        got = rctx.execute([mpicc, "-show"])
        if got.return_code == 0:
            folders = [word[2:] for word in got.stdout.split(" ") if word.startswith("-I")]
            folders.append("/usr/include")  # where packages may put headers without mpicc naming it
    found = False
    for folder in folders:
        header = rctx.path(folder.strip() + "/mpi.h")
        if not found and header.exists:
            rctx.symlink(folder.strip(), "include")
            found = True
    build = "package(default_visibility = [\"//visibility:public\"])\n"
    if found:
        build += "\ncc_library(\n    name = \"headers\",\n    hdrs = glob([\"include/mpi*.h\"]),\n    includes = [\"include\"],\n)\n"
    rctx.file("BUILD", build, executable = False)
    rctx.file("defs.bzl", "MPI_FOUND = %s\n" % found, executable = False)

mpi_configure = repository_rule(implementation = _impl, environ = ["PATH"], configure = True, local = True)
