# SPDX-License-Identifier: MIT
"""jemalloc_arena: the system's static jemalloc with its functions renamed (je_), to manage memory ranges of ours.

Linked unchanged, jemalloc would replace malloc. A copy of the library is changed in two ways: names, and the size of
its thread-local state.

Thread-local state has offsets fixed when the program is loaded (initial-exec). A library opened at run time has room
for about 1.6 kB of it, but jemalloc 5.3 needs 2632 bytes, so dlopen of our library would fail. All but the first 856
bytes (0x358) are the thread's cache, which is never touched if caches are switched off before the first allocation, as
buffers/heap_jemalloc.h does. So only 856 bytes are kept. A jemalloc whose state has another size is not cut.
tests/buffers/heap_thread_state_test.c checks that nothing beyond is touched.
"""

_CMD = """
set -e
dir=$$(mktemp -d)
trap 'rm -rf "$$dir"' EXIT
cp "$$($(CC) -print-file-name=libjemalloc_pic.a)" "$$dir/whole.a"
chmod u+w "$$dir/whole.a"
$(AR) t "$$dir/whole.a" | grep cpp | xargs -r $(AR) d "$$dir/whole.a"
$(NM) --defined-only -g "$$dir/whole.a" |
    awk 'NF == 3 && $$3 !~ /^je_/ {print $$3 " je_" $$3}' | sort -u > "$$dir/names"
objcopy --redefine-syms="$$dir/names" "$$dir/whole.a" "$(execpath %s)"
cp "$(execpath %s)" "$$dir/cut.a"
out="$$PWD/$(execpath %s)"
ar="$$(command -v $(AR))"
cd "$$dir"
member=$$("$$ar" t cut.a | grep '^tsd\\.')
"$$ar" x cut.a "$$member"
if objdump -h "$$member" | grep '\\.tdata *00000a48 ' >/dev/null; then
    objcopy -O binary -j .tdata --set-section-flags .tdata=alloc,contents "$$member" state
    head -c 856 state > kept
    objcopy --update-section .tdata=kept "$$member"
    "$$ar" rD cut.a "$$member"
fi
cp cut.a "$$out"
"""

def jemalloc_arena(name, visibility_whole):
    """Makes cc_library NAME (private), whose users must define je_malloc_conf_2_conf_harder with tcache:false
    (otherwise it writes past its state), and NAME_whole with all of the state, for tests."""
    cut, whole = "lib%s.a" % name, "lib%s_whole.a" % name
    native.genrule(
        name = name + "_archives",
        outs = [whole, cut],
        cmd = _CMD % (whole, whole, cut),
        toolchains = ["@bazel_tools//tools/cpp:current_cc_toolchain"],
    )
    for library, archive, visibility in [
        (name, cut, ["//visibility:private"]),
        (name + "_whole", whole, visibility_whole),
    ]:
        native.cc_library(
            name = library,
            srcs = [archive],
            defines = ["JEMALLOC_NO_RENAME"],
            # nodelete: a thread that used jemalloc runs its code when it ends, so the library must not be unloaded.
            linkopts = ["-lm", "-lpthread", "-Wl,-z,nodelete"],
            linkstatic = True,
            visibility = visibility,
        )
