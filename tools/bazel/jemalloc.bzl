# SPDX-License-Identifier: MIT
"""jemalloc_arena: jemalloc under names of its own (je_), from the system's static library, to manage ranges of ours.

Linked plainly jemalloc would replace malloc. Two things are changed in a copy of the library: names, and size.

Its thread-local state is addressed by offsets fixed when the program is loaded (initial-exec). A library that is
opened at run time finds room for about 1.6 kB of that, and jemalloc 5.3 has 2632 bytes: dlopen of ours would fail.
All but 856 of them (0x358) are the thread's cache, last in the struct, which is never touched when caches are switched
off before the first allocation, as buffers/heap_jemalloc.h does. So only 856 are kept. Another jemalloc, whose state
has another size, is left as it is. tests/buffers/heap_thread_state_test.c checks that nothing beyond is touched.
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
if objdump -h "$$member" | grep -q '\\.tdata *00000a48 '; then
    objcopy -O binary -j .tdata --set-section-flags .tdata=alloc,contents "$$member" state
    head -c 856 state > kept
    objcopy --update-section .tdata=kept "$$member"
    "$$ar" rD cut.a "$$member"
fi
cp cut.a "$$out"
"""

def jemalloc_arena(name, visibility_whole):
    """cc_library NAME, private, for who defines je_malloc_conf_2_conf_harder with tcache:false (without that it writes
    past its state), and NAME_whole with all of the state, for tests."""
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
            # A thread that used it runs its code when it ends: a library that holds it must not be unloaded.
            linkopts = ["-lm", "-lpthread", "-Wl,-z,nodelete"],
            linkstatic = True,
            visibility = visibility,
        )
