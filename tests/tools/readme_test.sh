#!/bin/bash
# readme_test.sh MM README...: the quick commands that READMEs show run as printed. If the next block shows the output
# of the last of them, the output has the same lines. Numbers, and the lines of what lies in memory at the peak, are not
# compared, since workspaces depend on the machine.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

top=$PWD
readmes=("${@:2}")

# Workspaces depend on the number of threads; READMEs show output for one thread.
mm() {
    if [[ $1 == plan ]]; then "$mm" "$@" --threads 1; else "$mm" "$@"; fi
}

# commands FILE: lines of its sh blocks that run mm. A block that follows them goes to shown.N, N the number of the last
# such line.
commands() {
    awk '/^```sh$/ { shell = 1; next }
         /^```$/ && shell { shell = 0; near = 2; next }
         /^```$/ && near > 0 { near = 0; shows = 1; next }
         /^```$/ { shows = 0 }
         shell && sub(/^(bazel-bin\/tools\/)?mm /, "mm ") { n++; print }
         shows { print >("shown." n) }
         { near-- }' "$1"
}

# Prints the labels of a plan's lines, except those of the kinds of memory.
labels() { sed -nE '/^    /d; s/\(needs [^;]*/(needs/; s/([^ ])  .*/\1/; p' "$1"; }

run() { # README
    local i ran=0 lines
    mapfile -t lines < <(commands "$top/$1")
    for ((i = 0; i < ${#lines[@]}; i++)); do
        [[ ${lines[i]} =~ ^mm\ (plan|nets|policies|codecs)( |$) && ${lines[i]} != *--max-batch* ]] || continue
        eval "${lines[i]}" >out 2>err || fail "$1: ${lines[i]}"
        [[ ! -e shown.$((i + 1)) ]] || diff <(labels "shown.$((i + 1))") <(labels out) ||
            fail "$1 shows something else for ${lines[i]}"
        ran=$((ran + 1))
    done
    rm -f shown.*
    ((ran > 0)) || fail "$1 shows no command"
}

readmes_show_what_one_sees_() {
    ln -s "$top/tools" tools
    ln -s "$top/tests/nets_io/references/images_training.onnx" resnet18.onnx
    local readme
    for readme in "${readmes[@]}"; do run "$readme"; done
}

run_cases
