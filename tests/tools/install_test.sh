#!/bin/bash
# install_test.sh MM LIBMM.SO LIBMM.A: tools/install puts there what users need, and programs find it. A stand-in for
# bazel has the library and the command built already.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

tree=$work/tree
mkdir -p "$tree/bin/mm" "$tree/bin/tools" "$tree/path"
cp --parents -L LICENSE mm/*.h mm/*.hpp tools/install tools/version tools/examples/*/*.c "$tree"
cp -L "$2" "$3" "$tree/bin/mm"
cp -L "$mm" "$tree/bin/tools/mm"
# shellcheck disable=SC2016 # the stand-in's own
printf '#!/bin/bash\n[[ $1 != info ]] || echo "%s"\n' "$tree/bin" >"$tree/path/bazel"
printf '#!/bin/bash\n' >"$tree/tools/deps"
chmod +x "$tree/path/bazel" "$tree/tools/"*

install_to() { # PREFIX
    PATH=$tree/path:$PATH "$tree/tools/install" "$1" >out 2>err || fail "tools/install $1: status $?"
    [[ ! -s err ]] || fail "something on stderr"
}

what_is_installed_is_complete_and_told_() {
    local page
    install_to "$PWD/prefix"
    diff <(sort out) <(find "$PWD/prefix" ! -type d | sort) || fail "other files than it says"
    for file in bin/mm include/mm/mm.h include/mm/mm_loop.h include/mm/mm_loop.hpp lib/libmm.so.1 lib/libmm.a \
        lib/pkgconfig/mm.pc lib/cmake/mm/mmConfig.cmake lib/cmake/mm/mmConfigVersion.cmake share/man/man1/mm.1 \
        share/bash-completion/completions/mm share/zsh/site-functions/_mm share/doc/mm/LICENSE; do
        [[ -s prefix/$file ]] || fail "$file is missing or empty"
    done
    "$mm" completion bash >expected
    equal prefix/share/bash-completion/completions/mm expected
    "$mm" man plan >expected
    equal prefix/share/man/man1/mm-plan.1 expected
    sed -n 's/^  \([a-z]*\)  .*/\1/p' <("$mm" --help) >commands # a page for each command
    while read -r page; do [[ -s prefix/share/man/man1/mm-$page.1 ]] || fail "no page of $page"; done <commands
    (($(wc -l <commands) >= 9)) || fail "$(<commands)"
    DESTDIR=$PWD/root install_to /opt/mm
    diff <(cd prefix && find . | sort) <(cd root/opt/mm && find . | sort) || fail "DESTDIR has other files"
    says root/opt/mm/lib/pkgconfig/mm.pc "prefix=/opt/mm"
}

examples_compile_with_what_is_installed_() {
    local example
    command -v cc >/dev/null || skip "no cc"
    install_to "$PWD/prefix"
    for example in "$tree"/tools/examples/*/*.c; do
        cc -std=c11 -Wall -Wextra -Wpedantic -Werror -Iprefix/include -fsyntax-only "$example" 2>err ||
            fail "$example does not compile"
    done
}

cmake_finds_the_library_also_where_it_was_moved_() {
    local version linked
    command -v cmake >/dev/null || skip "no cmake"
    install_to "$PWD/first"
    mv first prefix
    version=$("$tree/tools/version") version=${version#mm }
    mkdir project
    cat >project/CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.13)
project(example C)
find_package(mm $version EXACT CONFIG REQUIRED)
find_package(mm ${version%.*} CONFIG REQUIRED)
find_package(mm 99.0 CONFIG QUIET)
if(mm_FOUND)
  message(FATAL_ERROR "a version is found that is not there")
endif()
find_package(mm CONFIG REQUIRED)
foreach(linked mm mm_static)
  add_executable(with_\${linked} $tree/tools/examples/01-loop/example_embed.c)
  target_link_libraries(with_\${linked} mm::\${linked} m)
endforeach()
END
    cmake -S project -B built -DCMAKE_PREFIX_PATH="$PWD/prefix" >out 2>err || fail "cmake refuses it"
    cmake --build built >out 2>err || fail "it cannot be built"
    for linked in mm mm_static; do
        "built/with_$linked" >out 2>err || fail "with_$linked: status $?"
        says out "predicted peak"
    done
}

run_cases
