# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Sourced by tools/bench/gpu: makes the archive $pack for another machine, of the programs in $prebuilt, or of those
# that it builds if $prebuilt is empty.
# shellcheck disable=SC2154 # variables of the script

PACK_MIB=48 # machines may accept at most 64 MiB, with the tree

# Lists the programs' shared libraries, except the C library's, the driver's and CUDA's large ones.
list_libraries() {
    ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
        grep -Ev '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*|libcuda|libcudnn[^/]*|libcublas[^/]*|libnv[^/]*)\.so'
}

SCRIPTS=(tools/bench/{gpu,gpu_tests.sh,gpu_report.py,gpu_summary.py,gpu_smoke.py,gpu_torch.py,peer_pytorch.py,torch_nets.py,torch_rig.py,orders.sh} tools/version mm/mm.h
    tools/python/mm_torch/*.py)

# Builds the programs, and writes the list of CUDA tests to $folder. Suites are left out: no call has time for them, and
# each is as large as the command.
build_programs() {
    local programs tests labels
    mapfile -t tests < <(list_cuda_tests)
    ((${#tests[@]} > 0)) || { echo "tools/bench/gpu: bazel names no test that needs CUDA" >&2 && return 1; }
    programs=(mm/libmm.so tools/mm tools/example_{embed_cuda,own_stream} tools/bench/codec_bench tools/bench/op_bench "${tests[@]}")
    mapfile -t labels < <(printf '//%s\n' "${programs[@]}" | sed 's#\(.*\)/#\1:#')
    "${bazel[@]}" build "${options[@]}" "${labels[@]}" || return 1
    bin=$(bin_of_build)
    printf '%s\n' "${programs[@]}" | grep -Fx -f <(printf '%s\n' "${tests[@]}") >"$folder/cuda_tests.txt"
}

pack() {
    local folder bin=$prebuilt programs libraries into
    folder=$(mktemp -d) || return 1
    # shellcheck disable=SC2064 # expand $folder now
    trap "rm -rf '$folder'" EXIT
    if [[ $prebuilt ]]; then
        cp "$prebuilt/cuda_tests.txt" "$folder/" || return 1
    else
        build_programs || return 1
    fi
    : >"$folder/suites.txt"
    mapfile -t programs < <(cat "$folder/cuda_tests.txt" &&
        printf 'tools/%s\n' mm bench/codec_bench bench/op_bench &&
        (cd "$bin" && find mm tools -maxdepth 1 \( -name libmm.so -o -name example_embed_cuda -o -name example_own_stream \) 2>/dev/null))
    # The compiler's libraries go to compiler/: if the machine has its own, those are used, since they may be newer.
    mkdir -p "$folder/lib" "$folder/compiler" || return 1
    for program in "${programs[@]}"; do
        install -D "$bin/$program" "$folder/$program" || return 1
        [[ $(head -c 2 "$folder/$program") == "#!" ]] || strip "$folder/$program" || return 1
    done
    for script in "${SCRIPTS[@]}"; do install -D "$script" "$folder/$script" || return 1; done
    cat >"$folder/run" <<'END' && chmod +x "$folder/run" || return 1
#!/bin/bash
# run first|second [--tiny] [RESULTS.tar.gz]: tools/bench/gpu --call with the programs beside it; run --help says more.
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
[[ ${1:-} == -* ]] || set -- --call "$@"
exec "$here/tools/bench/gpu" --prebuilt "$here" "$@"
END
    mapfile -t libraries < <(cd "$bin" && list_libraries "${programs[@]}")
    for library in "${libraries[@]}"; do
        into=$folder/lib/
        [[ ! ${library##*/} =~ ^(libstdc\+\+|libgcc_s|libgomp)\.so ]] || into=$folder/compiler/
        install "$library" "$into" && strip --strip-unneeded "$into${library##*/}" || return 1
    done
    # All programs contain the same kernels, so the dictionary must reach from one program, of some 70 MiB, to the next.
    XZ_OPT=${XZ_OPT:---lzma2=preset=3,dict=160MiB} tar --sort=name -cJf "$pack" -C "$folder" . || return 1
    if (($(stat -c %s "$pack") <= PACK_MIB << 20)); then
        echo "$pack: $(stat -c %s "$pack" | numfmt --to=iec). There, with any folder for gpu:"
        echo "python3 -m tarfile -e ${pack##*/} gpu && gpu/run first && gpu/run second"
        return
    fi
    echo "tools/bench/gpu: $pack is above $PACK_MIB MiB; before compression:" >&2
    (cd "$folder" && find . -type f -printf '%s %P\n' | sort -rn | numfmt --to=iec) >&2
    rm -f "$pack"
    return 1
}
