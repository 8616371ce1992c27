# SPDX-License-Identifier: MIT
"""PEP 517's hooks: build libmm.so with bazel, and a wheel of it, without network and other packages; a source
distribution, which needs bazel and the libraries that 'tools/deps build' installs.

pip install tools/python; --config-settings bazel=--config=cuda passes bazel an option. MM_LIBRARY=PATH: takes that
libmm.so, and does not run bazel."""

import base64
import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
NAME = "mm_torch"
# What libmm.so and the package are built of.
SOURCES = (".bazelrc", "BUILD", "LICENSE", "WORKSPACE", "buffers", "mm", "pipeline", "policies", "tests/cuda_emulation", "tools/bazel",
           "tools/facts/assumptions.csv", "tools/facts/gpus.csv", "tools/python")
# Libraries that every system for such a wheel has (PEP 600), or that come with a driver or a CUDA toolkit.
SYSTEMS_OWN = re.compile(r"(libc|libm|libz|libgcc_s|libpthread|libdl|librt|libstdc\+\+|ld-linux.*|libcuda.*|libcu.*|libnv.*)\.so")


def get_requires_for_build_wheel(config_settings=None):
    return []


def _run(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout.decode()


def _library(settings):
    named = os.environ.get("MM_LIBRARY")
    if named:
        return os.path.abspath(named)
    options = (settings or {}).get("bazel", "").split()
    # From a source distribution, which pip unpacks for this alone, no server of bazel stays.
    bazel = ["bazel", "--batch"] if os.path.exists(os.path.join(ROOT, "PKG-INFO")) else ["bazel"]
    try:
        _run(*bazel, "build", *options, "//mm:libmm.so")
        return os.path.join(_run(*bazel, "info", *options, "bazel-bin").strip(), "mm", "libmm.so")
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"mm_torch: bazel cannot build libmm.so ({error}): 'tools/deps build' in a checkout of mm installs what building "
                 "needs; MM_LIBRARY=PATH takes a libmm.so that is built already")


def _others(library):
    """Yields name and path of each library that it needs and that a system may lack."""
    for line in _run("ldd", library).splitlines():
        found = re.match(r"\s*(\S+) => (/\S+)", line)
        if found and not SYSTEMS_OWN.match(found.group(1)):
            yield found.groups()


def _glibc(files):
    """N of the oldest glibc, 2.N, with which all files load."""
    return max(int(n) for path in files for n in re.findall(r"GLIBC_2\.(\d+)", _run("objdump", "-T", path)))


def _metadata(version):
    readme = open(os.path.join(HERE, "README.md"), encoding="utf-8").read()
    return (f"Metadata-Version: 2.1\nName: mm-torch\nVersion: {version}\nSummary: A PyTorch loop inside a byte budget\n"
            f"License: MIT\nRequires-Python: >=3.9\nRequires-Dist: torch>=2.6\nDescription-Content-Type: text/markdown\n\n{readme}")


def _licence():
    with open(os.path.join(ROOT, "LICENSE"), encoding="utf-8") as file:
        return file.read()


def _version():
    with open(os.path.join(ROOT, "mm", "mm.h"), encoding="utf-8") as file:
        return re.search(r'#define MM_VERSION "(.*)"', file.read()).group(1)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    library, version = _library(config_settings), _version()
    others = dict(_others(library))
    tag = f"py3-none-manylinux_2_{_glibc([library, *others.values()])}_{os.uname().machine}"
    package = os.path.join(HERE, NAME)
    files = {f"{NAME}/{name}": os.path.join(package, name) for name in sorted(os.listdir(package)) if name.endswith((".py", "py.typed"))}
    files[f"{NAME}/libmm.so.1"] = library
    files.update({f"{NAME}/{name}": os.path.join(ROOT, "tools", "facts", name) for name in ("gpus.csv", "assumptions.csv")})
    files.update({f"{NAME}/{name}": path for name, path in sorted(others.items())})
    info = f"{NAME}-{version}.dist-info"
    texts = {f"{NAME}/VERSION": f"{version}\n", f"{info}/METADATA": _metadata(version),
             f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: mm\nRoot-Is-Purelib: false\nTag: {tag}\n",
             f"{info}/LICENSE": _licence()}
    contents = {name: open(path, "rb").read() for name, path in files.items()}
    contents.update({name: text.encode() for name, text in texts.items()})
    record = [f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
              for name, data in contents.items()]
    contents[f"{info}/RECORD"] = "\n".join(record + [f"{info}/RECORD,,"]).encode() + b"\n"
    wheel = f"{NAME}-{version}-{tag}.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            entry = zipfile.ZipInfo(name)  # dated 1980, so that the same contents give the same wheel
            entry.external_attr = (0o755 if ".so" in name else 0o644) << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)
    return wheel


def _sources():
    """Yields the paths of what building needs, below ROOT, in order: what git tracks, or of a copy without git all."""
    if os.path.exists(os.path.join(ROOT, ".git")):
        yield from sorted(_run("git", "ls-files", "-z", "--", *SOURCES).split("\0")[:-1])
        return
    for source in SOURCES:
        if os.path.isfile(os.path.join(ROOT, source)):
            yield source
        for folder, folders, files in os.walk(os.path.join(ROOT, source)):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            yield from (os.path.relpath(os.path.join(folder, name), ROOT) for name in sorted(files))


def build_sdist(sdist_directory, config_settings=None):
    version = _version()
    top = f"{NAME}-{version}"
    with open(os.path.join(HERE, "pyproject.toml"), encoding="utf-8") as file:
        project = file.read().replace('backend-path = ["."]', 'backend-path = ["tools/python"]')
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        def add(name, data, mode):
            entry = tarfile.TarInfo(f"{top}/{name}")  # dated 1970, so that the same contents give the same archive
            entry.size, entry.mode = len(data), mode
            archive.addfile(entry, io.BytesIO(data))

        add("PKG-INFO", _metadata(version).encode(), 0o644)
        add("pyproject.toml", project.encode(), 0o644)
        for name in _sources():
            path = os.path.join(ROOT, name)
            with open(path, "rb") as file:
                add(name, file.read(), 0o755 if os.access(path, os.X_OK) else 0o644)
    with open(os.path.join(sdist_directory, f"{top}.tar.gz"), "wb") as file:
        file.write(gzip.compress(packed.getvalue(), 9, mtime=0))
    return f"{top}.tar.gz"


def main(folder, *options):
    """FOLDER --sdist, or FOLDER and options for bazel: builds into FOLDER, and prints the path."""
    built = build_sdist(folder) if options == ("--sdist",) else build_wheel(folder, {"bazel": " ".join(options)})
    print(os.path.join(folder, built))


if __name__ == "__main__":
    main(*sys.argv[1:])
