#!/bin/bash
# tools/bench/gpu and what it prints, with CUDA emulated, so that no step of it runs for the first time on a GPU.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
# shellcheck disable=SC2016 # lines of programs that are written here
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"
root=$PWD
gpu=$root/tools/bench/gpu
export PYTHON=python3
if ! command -v python3 >/dev/null; then
    printf '%s\n' "[  PASSED  ] 0 test(s)." "[  SKIPPED ] cli: 1 test(s), for there is no python3"
    exit 0
fi

# Prints the python3 that has torch. Fails if there is none.
torch_python() { "$root/tests/python/with_torch" -c 'import sys; print(sys.executable)' 2>/dev/null; }

# script STATUS ARGUMENT...: runs tools/bench/gpu; its output goes to the files out and err.
script() {
    local status=0 expected=$1
    shift
    "$gpu" "$@" >out 2>err </dev/null || status=$?
    ((status == expected)) || fail "gpu $*: status $status, expected $expected"
}

# refused_script TEXT ARGUMENT...: checks that the script refuses the arguments in one line that contains TEXT.
refused_script() {
    local text=$1 lines
    shift
    script 2 "$@"
    says err "$text"
    mapfile -t lines <err
    ((${#lines[@]} == 1)) || fail "gpu $*: ${#lines[@]} lines"
}

# program PATH LINE...: writes a shell script.
program() {
    local path=$1
    shift
    mkdir -p "$(dirname "$path")"
    printf '%s\n' '#!/bin/bash' "$@" >"$path"
    chmod +x "$path"
}

# The device is measured only once, since that takes seconds when emulated.
mkdir "$work/seen" && (cd "$work/seen" && expect 0 device --device cuda --json seen) || exit 1

# seen PATH MM: writes a script that runs MM, but answers `device` with what was measured.
seen() {
    program "$1" "[[ \"\$1 \$4\" != 'device --json' ]] || { cp '$work/seen/seen' \"\$5\"; exec cat '$work/seen/out'; }" \
        "exec $2 \"\$@\""
}

# prebuilt TEST...: makes the folder `pre` as --pack would, from the programs of this build. TEST: tests that need CUDA.
prebuilt() {
    mkdir -p pre/tools/bench pre/lib pre/mm
    ln -sf "$root/mm/libmm.so" pre/mm/
    seen pre/tools/mm-seen "$mm"
    ln -sf mm-seen pre/tools/mm
    ln -sf "$root/tools/bench/codec_bench" pre/tools/bench/
    # A stand-in: op_bench's sizes suit a GPU; emulated, and under a sanitizer, it takes minutes.
    program pre/tools/bench/op_bench \
        'echo "  relu, backward                                   15     1.5      2.5      3.5 us   0.75 x"' \
        '[[ $* != *"--workspace 1200MiB" ]] || us=2.25' \
        'echo "  conv 3x3, forward                                15     1.5      ${us:-4.5}      5.5 us"'
    printf '%s\n' "$@" >pre/cuda_tests.txt
    : >pre/suites.txt
}

help_names_options_and_parts_() {
    script 0 --help
    local word
    for word in --quick --only --limit --total --archive --prebuilt --pack --call --emulated --dry --tiny "report ARCHIVE" "smoke tests device algorithms rounds bf16 gpt" \
        first second; do says out "$word"; done
    [[ $(<out) != *"set -uo"* ]] || fail "help goes on into the script"
}

what_is_wrong_is_said_before_anything_runs_() {
    refused_script "no option --nope" --nope
    refused_script "--only nope: parts are build smoke" --only tests,nope
    refused_script "--only: needs a value" --only
    refused_script "--limit: needs a value" --limit --quick
    refused_script "seconds must be a whole number" --limit 1.5
    refused_script "seconds must be a whole number" --total 0
    refused_script "must be LABEL=POLICY,..." --policies overlap
    refused_script "--policies resnet152=...: there are overlap resnet50" --policies resnet152=liveness
    refused_script "--prebuilt nowhere: no such folder" --prebuilt nowhere
    refused_script "--call third: must be first or second" --call third
    refused_script "one folder" a b
    [[ ! -e gpu-results && ! -e a ]] || fail "a folder was made"
}

a_machine_without_a_gpu_is_told_in_a_line_() {
    prebuilt
    program pre/tools/mm-without 'while [[ $1 != --json ]]; do shift; done' 'echo "[{\"usable\": false}]" >"$2"' \
        'echo "cuda: no GPU answers: no driver"'
    ln -sf mm-without pre/tools/mm
    script 1 --quick --archive "$PWD/all.tar.gz" --prebuilt "$PWD/pre" "$PWD/results"
    says err "no GPU that can be used: cuda: no GPU answers: no driver"
    script 1 report all.tar.gz
    [[ $(<err) == *"gpu_report: no rows: cuda: no GPU answers: no driver" ]] || fail "$(<err)"
    says gpu-report.html "no GPU named"
    tar -xzf all.tar.gz device.log steps.txt && says device.log "no driver" && says steps.txt "no GPU that can be used"
}

a_library_that_is_missing_is_named_() {
    prebuilt
    cp "$mm" pre/tools/mm.bin
    chmod +w pre/tools/mm.bin
    sed -i 's/libjansson\.so\.4/libnowhere.so.4/' pre/tools/mm.bin
    [[ $(ldd pre/tools/mm.bin 2>&1) == *libnowhere* ]] || skip "jansson is not a shared library here"
    ln -sf mm.bin pre/tools/mm
    script 1 --quick --prebuilt "$PWD/pre" --archive all.tar.gz "$PWD/results"
    says err "libnowhere.so.4"
    tar -xzf all.tar.gz missing.txt && says missing.txt "tools/mm: "
    script 1 --call first --dry --prebuilt "$PWD/pre" results.tar.gz
    says err "libnowhere.so.4"
}

# packed first|second ARGUMENT...: runs the pack's first or second call (gpu/run) with only the commands in bin; its
# output goes to out and err.
packed() {
    env -i PATH="$PWD/bin" gpu/run "$@" >out 2>err </dev/null || fail "run $*: status $?"
    [[ $(tail -1 out) == "nothing failed" ]] || fail "$(tail -1 out)"
}

# call_fits first|second SECONDS: checks that the parts of the call may take nearly SECONDS together, and no more.
call_fits() {
    local line seconds=0 word
    line=$(head -1 out)
    [[ $line =~ ^"$1 call: "(.*)": "([0-9]+)" s; at most $2 s" ]] || fail "call: $line"
    for word in ${BASH_REMATCH[1]}; do [[ $word == *[!0-9]* ]] || seconds=$((seconds + word)); done
    ((seconds == BASH_REMATCH[2] && seconds > $2 - 20 && seconds <= $2)) || fail "$seconds s: $line"
}

# ok_steps STEP...: checks that each step ran and ended well.
ok_steps() {
    local step
    for step in "$@"; do
        grep -qP "^$step\t\d+\tok\$" results/steps.txt || fail "$step: $(grep -P "^$step\t" results/steps.txt)"
    done
}

# dry first|second STEP...: checks that the dry call names each step with its command, and neither runs nor writes any.
dry() {
    local step call=$1
    shift
    env -i PATH="$PWD/bin" gpu/run "$call" --dry dry.tar.gz >out 2>err </dev/null || fail "dry: status $?"
    [[ $(tail -1 out) == "nothing failed" && ! -e dry.tar.gz ]] || fail "dry: $(tail -1 out)"
    for step in "$@"; do grep -q -x -e "== $step" out || fail "dry: no step $step"; done
    grep -q -e "^   .*/tools/mm .*--device cuda" out || fail "no command"
}

# Emulated, on a machine that others use, too, steps may take longer than on a GPU.
patient=(--limit 900 --total 5000)
thin=(--policies "overlap=liveness,freelunch:codec=zfp:rate=4:sms=16,when=always"
    --policies "resnet50-6.5GB=auto,freelunch:rate=4" --policies resnet50-bf16-3.5GB=auto)
thin_second=(--policies gpt2-half=auto --policies resnet152-20GB=recompute:mode=sqrt --policies resnet50-swap=swap-async
    --policies "resnet152-12GiB=freelunch:rate=4,eligible=all" --policies resnet152-44=liveness)

# rounds_without_torch LABEL...: checks that mm's rows are ok, and that PyTorch's say "no torch".
rounds_without_torch() {
    local label
    for label in "$@"; do
        [[ $(values "results/rounds-$label.json" status | sort -u) == $'no torch\nok' ]] || fail "$label: rounds"
    done
}

a_pack_needs_neither_this_repository_nor_xz_() {
    local name text
    prebuilt tests/device_cuda_test
    program pre/tests/device_cuda_test 'exec tools/mm codecs'
    ln -sf "$mm" pre/tools/mm
    XZ_OPT=-0 script 0 --pack gpu.tar.xz --prebuilt pre
    says out "python3 -m tarfile -e gpu.tar.xz gpu && gpu/run first && gpu/run second"
    (($(stat -c %s gpu.tar.xz) < 48 << 20)) || fail "too large"
    # The commands that every machine is expected to have.
    mkdir bin
    for name in basename bash cat chmod cp cut date dirname env grep head ls mkdir mktemp mv realpath rm sed sleep sort tail \
        timeout tr; do ln -s "$(type -P $name)" bin/; done
    # A Python without torch, and an ldd that prints a warning, which must not count as an error.
    program bin/python3 "exec $(python3 -c 'import sys; print(sys.executable)') -S \"\$@\""
    program bin/ldd 'echo "$1: /lib/libtinfo.so.6: no version information available (required by $1)"' "exec $(type -P ldd) \"\$@\""
    PATH=$PWD/bin python3 -m tarfile -e gpu.tar.xz gpu
    dry first smoke tests codec ops codec-zeros algorithms-resnet50 kernels-resnet50 rounds-resnet50
    call_fits first 300
    says out "     tests/device_cuda_test"
    [[ $(<out) != *1200MiB* ]] || fail "more than one network's algorithms"
    dry second kernels-resnet50-bf16 rounds-resnet50-bf16 rounds-gpt2 mm-overlap mm-resnet152-20GB predict-resnet50
    call_fits second 270
    says out "--modes channels_last,compile:1.0,compile:0.2"
    mv gpu/tools/bench/op_bench .
    ! env -i PATH="$PWD/bin" gpu/run first --dry >out 2>err || fail "a program is missing"
    says out "there is no program "
    says out "not well: ops"
    mv op_bench gpu/tools/bench/
    packed first --tiny "${patient[@]}" "${thin[@]}"
    says out "== goals"
    mkdir results
    tar -xzf results.tar.gz -C results || fail "no archive"
    ok_steps smoke tests codec codec-zeros ops algorithms-resnet50 rounds-resnet50 kernels-resnet50
    rounds_without_torch resnet50
    mv gpu/tools/mm gpu/tools/mm-packed
    seen gpu/tools/mm "$PWD/gpu/tools/mm-packed"
    packed second --tiny "${patient[@]}" "${thin_second[@]}"
    tar -xzf results.tar.gz -C results
    ok_steps smoke kernels-resnet50-bf16 rounds-resnet50-bf16 kernels-gpt2 rounds-gpt2 mm-overlap mm-overlap-equal \
        mm-resnet152-20GB mm-resnet152-12GiB mm-resnet152-44 mm-resnet50-swap predict-tiny
    grep -q "^torch.*skipped: no torch" results/steps.txt || fail "torch: $(<results/steps.txt)"
    rounds_without_torch gpt2 resnet50-bf16
    for name in "ResNet-50 128, all kept" "zfp:rate=4 encode" "(equal streams)" "sms=16" \
        "== codecs" "relu, backward 2.5 us (0.75)" "conv 3x3, forward 4.5 us" "compile:1.0: no torch; 3513 on an H200" \
        "ResNet-50 128 bf16, all kept, img/s" "channels_last: no torch; 4200 on an H200" "GPT-2 16 bf16, all kept, tok/s" \
        "checkpoint: not run" ", inline: loss" "beside the host, an iteration: gradients' error" \
        "beside torch.compile, img/s"; do
        says results/summary.txt "$name"
    done
    text=$(sed '1,/^== goals$/d' results/summary.txt)
    (($(wc -l <<<"$text") == 29)) || fail "goals: $text"
    [[ $text != *"no row"* ]] || fail "a goal without a figure: $text"
    # The output ends with a short summary of everything.
    text=$(sed -n '/^== steps$/,/^results: /p' out | sed '$d')
    ((${#text} > 2000 && ${#text} <= 10000)) || fail "a summary of ${#text} characters"
    reported results.tar.gz
}

# reported ARCHIVE: checks what `gpu report` makes of both calls' results, which are unpacked in `results`.
reported() {
    env -i PATH="$PWD/bin" gpu/tools/bench/gpu report "$1" --page page.html >table 2>err || fail "report: $(<err)"
    python3 - <<'END' || fail "report: $(<table)"
import html.parser, json, re, sys
lines = open("table").read().splitlines()
assert re.fullmatch(r"Measured on one no GPU named, cuDNN 9\.\d+\.\d+, cuBLAS .*; \d{4}-\d\d-\d\d\.", lines[0]), lines[0]
assert lines[1] == "" and all(line.count("|") == 6 and line[0] == line[-1] == "|" for line in lines[2:]), lines
cells = {cell[1].strip(): [c.strip() for c in cell[2:6]] for cell in (line.split("|") for line in lines[4:])}
rows = [row for name in ("rounds-resnet50", "rounds-resnet50-bf16", "rounds-gpt2") for row in json.load(open("results/%s.json" % name))
        if row["status"] == "ok"]
assert len(cells) == 3, cells
for title, precision, key in (("`tiny`, batch 4, TF32: images/s", "tf32", "images_per_second"),
                              ("`tiny`, batch 4, bf16: images/s", "bf16", "images_per_second")):
    kept = max((r for r in rows if r["policy"] == "liveness" and r["net"] == "tiny" and r["precision"] == precision), key=lambda r: r[key])
    memory = kept["peak_bytes"] + kept["outside_bytes"]
    speed = "{:,.0f}".format(kept[key]) if kept[key] >= 100 else "%.3g" % kept[key]
    assert cells[title][0] == "%s in %.3g MB" % (speed, memory * 1e-6), (cells[title], kept)
    assert cells[title][3] == "-", cells[title]
lossy = [r for r in rows if r["lossy"] and r["precision"] == "tf32"]
assert lossy and cells["`tiny`, batch 4, TF32: images/s"][2].endswith("`") and "freelunch" in cells["`tiny`, batch 4, TF32: images/s"][2]

class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.text, self.classes = [], "", []
    def handle_starttag(self, tag, attributes):
        self.classes += [value for _, value in attributes]
        if tag not in ("meta",):
            self.open.append(tag)
    def handle_endtag(self, tag):
        assert self.open.pop() == tag
    def handle_data(self, data):
        self.text += data

page, text = Page(), open("page.html").read()
page.feed(text)
assert not page.open and "http" not in text and "src=" not in text
for word in ["goals", "rows", "for a README", "steps", "smoke", "device", "ops", "codecs", "kernels", "beside the computation", "machine",
             "ResNet-50 128, all kept, img/s", "the simulator's error", "gradients' error", *lines[4:]]:
    assert word in page.text, word
assert {"yes", "no"} & set(page.classes)
sys.path.insert(0, "gpu/tools/bench")
sys.dont_write_bytecode = True
from gpu_report import reached
for line, expected in ((("a, img/s", "1.05 x", "10", "9", "1.11"), True), (("a, img/s", "1.05 x", "9", "9", "1.00"), False),
                       (("a, img/s", "1.05 x", "9", "(9)", "1.00"), None), (("a, img/s", "1.05 x", "-", "9", "-"), None),
                       (("its memory, GB", "0.8 x", "7", "10", "0.70"), True), (("its memory, GB", "0.8 x", "9", "10", "0.90"), False),
                       (("zfp encode, GB/s", "5 x", "900", "(369)", "2.44"), False), (("host time", "<= 100", "50", "-", "-"), True),
                       (("hidden", ">= 0.9", "0.85", "-", "-"), False), (("hidden", ">= 0.9", "-", "-", "-"), None)):
    assert reached(line) is expected, (line, reached(line))
END
}

damaged_archives_are_told_in_a_line_() {
    mkdir results
    echo "[$(row resnet50 128 liveness 3688.65 11e9)]" >results/rounds-resnet50.json
    echo "[$(row resnet50 128 liveness 3000 12e9),$(row gpt2 16 auto 9000 9e9)]" >results/mm-other.json
    printf 'one\t1\tok\n' >results/steps.txt
    tar -czf first.tar.gz -C results .
    tar -czf second.tar.gz -C results rounds-resnet50.json mm-other.json steps.txt
    script 0 report second.tar.gz second.tar.gz --page page.html # the same twice: steps are added, rows are not
    [[ $(tail -2 out) == "| ResNet-50, batch 128, TF32: images/s | 3,689 in 11.00 GB | - | - | - |"$'\n'"| GPT-2, batch 16, TF32: images/s | - | 9,000 in 9.00 GB, \`auto\` | - | - |" ]] ||
        fail "$(<out)"
    head -c 100 second.tar.gz >cut.tar.gz
    for name in nowhere.tar.gz cut.tar.gz; do
        script 2 report second.tar.gz "$name"
        [[ $(<err) == "gpu_report: $name: not an archive of results, or damaged: "* && $(wc -l <err) == 1 ]] || fail "$(<err)"
    done
    ln -s /etc/passwd results/steps-linked
    tar -czf linked.tar.gz -C results steps-linked
    script 2 report linked.tar.gz
    says err "which tools/bench/gpu does not write"
}

a_script_that_is_killed_leaves_an_archive_() {
    prebuilt tests/b_hangs
    program pre/tests/b_hangs 'echo begun' 'exec sleep 20'
    local status=0
    "$gpu" --quick --only tests --prebuilt "$PWD/pre" --archive "$PWD/all.tar.gz" "$PWD/results" >out 2>err </dev/null &
    until [[ -s results/tests.log ]]; do kill -0 $! || fail "it ended"; done
    kill -TERM $!
    wait $! || status=$?
    ((status == 143)) || fail "status $status"
    tar -xzf all.tar.gz tests.log gpu.txt && says tests.log b_hangs
}

the_smoke_verifies_what_each_run_issues_() {
    prebuilt
    program pre/tools/mm-wrong '[[ $* != *--verify-issued* || $* != *swap* ]] || { echo "mm train: it is wrong" >&2; exit 1; }' \
        "exec $PWD/pre/tools/mm-seen \"\$@\""
    ln -sf mm-wrong pre/tools/mm
    script 1 --call first --tiny "${patient[@]}" --only smoke --prebuilt pre all.tar.gz
    says out "freelunch:codec=zvc,eligible=all,when=always, inline: loss"
    says out "mm train: it is wrong"
    [[ $(tail -1 out) == "not well: smoke" ]] || fail "$(tail -1 out)"
}

what_no_call_has_is_measured_by_name_() {
    prebuilt tests/device_cuda_test
    program pre/tests/device_cuda_test 'exec tools/mm codecs'
    program bin/compute-sanitizer 'while [[ $1 == --* ]]; do' \
        '    case $1 in --tool | --error-exitcode | --report-api-errors) shift 2 ;; *) exit 3 ;; esac' 'done' 'exec "$@"'
    PATH=$PWD/bin:$PATH script 0 --quick --tiny --only facts,sanitizer --prebuilt "$PWD/pre" "$PWD/results"
    ok_steps facts-tiny sanitizer
    says results/summary.txt "zfp:rate=4: encode"
    expect 0 plan --net tiny --batch 4 --policy freelunch --facts results/facts-tiny-4.json
}

a_smoke_that_fails_ends_the_run_and_a_sanitizer_may_be_refused_() {
    prebuilt
    program pre/tools/mm-wrong "exec $PWD/pre/tools/mm-seen \"\$@\" \$([[ \$* != *inline* ]] || echo --seed 2)"
    ln -sf mm-wrong pre/tools/mm
    script 1 --call first --tiny "${patient[@]}" --prebuilt pre all.tar.gz
    says out "the smoke failed, and nothing else was run: send back $PWD/all.tar.gz"
    says out "tensors differ from those step by step, the first "
    tar -xzf all.tar.gz steps.txt
    [[ $(cut -f1 steps.txt | tr '\n' ' ') == "smoke summary " ]] || fail "more was run"
    program mm-wrong "exec $mm \"\$@\" \$([[ \$* != *'device cuda'* ]] || echo --seed 2)"
    ! python3 "$root/tools/bench/gpu_smoke.py" ./mm-wrong --net tiny --batch 4 >out || fail "other weights than the host's"
    says out "beside the host, an iteration: gradients' error"
    says out "wrong: more than 0.03"
    program mm-stepwise "exec $mm \"\${@/#inline/thread}\""
    python3 "$root/tools/bench/gpu_smoke.py" ./mm-stepwise --net tiny --batch 4 >out || fail "what is only slower ends it"
    says out ", 0 replayed (NOT 2): ok"
    program bin/compute-sanitizer 'echo "========= Device not supported"' 'exit 1'
    PATH=$PWD/bin:$PATH script 0 --quick --only sanitizer --prebuilt pre results
    grep -q "^sanitizer.*skipped: refused (1): =* Device not supported" results/steps.txt || fail "$(<results/steps.txt)"
}

networks_that_no_goal_needs_run_too_() {
    prebuilt
    script 0 --quick --tiny --prebuilt "$PWD/pre" --only nets \
        --policies alexnet=liveness --policies vgg16=liveness --policies resnet152-44-all=recompute \
        --policies tables-alexnet=freelunch:ratio=5,when=always,buffers=naive,workspace=naive \
        --policies tables-vgg16=liveness --policies tables-resnet152=liveness "$PWD/results"
    ok_steps mm-alexnet mm-vgg16 mm-tables-alexnet mm-tables-resnet152
}

torch_inside_budgets_is_tried_without_a_gpu_() {
    local python
    python=$(torch_python) || skip "no torch"
    prebuilt
    # libmm.so with the emulation has more thread-local data than glibc sets aside for libraries that are loaded later.
    GLIBC_TUNABLES=glibc.rtld.optional_static_tls=65536 PYTHON=$python script 0 --quick --tiny --only torch --prebuilt "$PWD/pre" "$PWD/results"
    ok_steps torch
    [[ $(values results/torch.json status | sort -u) == ok ]] || fail "$(<results/torch.log)"
    says results/torch.log "pass  swap-async: the allocator's peak and the arena in the budget"
    says results/torch.log "of what eager saves, of save_on_cpu: 5 x"
}

what_fails_or_hangs_costs_nothing_else_() {
    prebuilt tests/a_fails tests/b_hangs tests/c_passes
    program pre/tests/a_fails 'echo "[  FAILED  ] it_is_wrong"' 'exit 1'
    program pre/tests/b_hangs 'echo begun' 'sleep 100'
    program pre/tests/c_passes 'echo "[  PASSED  ] 7 test(s)."'
    script 1 --quick --prebuilt "$PWD/pre" --only tests,device --limit 3 --archive "$PWD/all.tar.gz" "$PWD/results"
    says out "FAILED:  tests/a_fails (1)"
    says out "CUT:  tests/b_hangs"
    says out "it_is_wrong"
    says results/tests.log begun
    [[ $(tail -1 out) == "not well: tests"* ]] || fail "$(tail -1 out)"
    tar -xzf all.tar.gz tests.log && says tests.log begun
}

results_of_the_first_call_that_cannot_be_read_are_put_aside_() {
    prebuilt tests/c_passes
    program pre/tests/c_passes 'echo "[  PASSED  ] 7 test(s)."'
    mkdir first && echo kept >first/rows.json && head -c 100000 /dev/urandom >first/zeros
    tar -czf all.tar.gz -C first rows.json zeros && truncate -s 50000 all.tar.gz
    cp all.tar.gz damaged
    script 0 --call second --only tests --prebuilt "$PWD/pre" all.tar.gz
    says err "the first call's results cannot be read"
    cmp damaged all.tar.gz.unread
    [[ $(tar -tzf all.tar.gz) == *tests.log* && $(tar -tzf all.tar.gz) != *rows.json* ]] || fail "$(tar -tzf all.tar.gz)"
}

time_for_all_bounds_each_part_() {
    prebuilt tests/b_hangs tests/c_passes
    program pre/tests/b_hangs 'sleep 100'
    program pre/tests/c_passes 'echo never'
    local begin=$SECONDS
    script 1 --quick --prebuilt "$PWD/pre" --only tests,device --total 3 "$PWD/results"
    ((SECONDS - begin < 60)) || fail "$((SECONDS - begin)) s"
    says results/tests.log "its part's time is over"
    says results/ops.log "its part's time is over"
}

kernels_are_told_by_cupti_or_a_line_says_why_not_() {
    local bench=(bench --net tiny --batch 4 --device cuda --policies liveness --iterations 3 --quiet --kernels kernels.json)
    mkdir results
    LD_LIBRARY_PATH=$PWD expect 0 "${bench[@]}"
    [[ $(grep -c "^mm bench: --kernels kernels.json: nothing is written: .*CUPTI" err) == 1 && ! -e kernels.json ]] || fail "not told"
    LD_LIBRARY_PATH=$root/tests/tools FAKE_CUPTI_REFUSES=1 expect 0 "${bench[@]}"
    says err "nothing is written: CUPTI: recording kernels: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (15)"
    LD_LIBRARY_PATH=$root/tests/tools expect 0 "${bench[@]}"
    [[ ! -s err ]] || fail "more than the table"
    python3 - <<'END' || fail "kernels.json"
import json
run = json.load(open("kernels.json"))[0]
assert (run["net"], run["batch"], run["policy"]) == ("tiny", 4, "liveness")
of = run["kernels"]
computed, beside = ([k for k in of if k["stream"] == stream] for stream in (7, 9))
steps = [(k["layer"], k["phase"]) for k in computed]
assert steps[1] == ("conv1", "forward") and steps[-1][1] == "update" and len(set(steps)) == len(steps) == len(beside)
assert [(k["layer"], k["phase"]) for k in beside] == steps
assert of[0]["begin_ns"] == 0 and all(k["ns"] == 600 and k["gap_ns"] == (400 if i else 0) for i, k in enumerate(computed))
assert all(k["gap_ns"] == (500 if i else 0) and k["bytes"] is None for i, k in enumerate(beside))
conv = computed[1]  # a batch of 4 images, its weights and its output, 4 bytes each
assert conv["bytes"] > 4 * 4 * 3 * 16 and abs(conv["gb_per_s"] - conv["bytes"] / 600) < 0.01
assert run["replayed"] == {"kernels": 3, "kernels_ns": 1800, "busy_ns": 1800, "span_ns": 2600, "idle_ns": 800}
END
    cp kernels.json results/kernels-tiny.json
    summary results || fail "status"
    says out "tiny: tiny, batch 4, liveness: replayed 3 kernels, 0.002 ms in 0.003 ms, idle 30.8%"
    grep -qE "^ *0\.01[0-9]+ +100\.0% +[0-9]+ +[0-9.]+ +compute +" out || fail "no kernel: $(<out)"
    refused 2 "--kernels: is of runs" bench --net tiny --kernels kernels.json --predict
}

# ---------------------------------------------------------------- the summary

# row NET BATCH POLICY IMAGES/S PEAK [REPLAYS [POLICY_THAT_RAN [WORKSPACE]]]: a row as mm and peer_pytorch.py write it,
# with only what summaries read.
row() {
    printf '{"net": "%s", "batch": %d, "precision": "tf32", "policy": "%s", "budget_bytes": 6e9, "images_per_second": %s,' "$1" \
        "$2" "$3" "$4"
    printf '"peak_bytes": %s, "outside_bytes": 0, "codec_hidden_share": null, "device": "cuda", "iterations": 9, ' "$5"
    printf '"host_seconds": 5e-5, "host_seconds_per_layer": 1e-7, "iteration_seconds_median": 0.02, '
    printf '"replays": %d, "policy_effective": "%s", "workspace_limit_bytes": %d, "status": "ok"}' "${6:-8}" "${7:-$3}" \
        "${8:-0}"
}

summary() { python3 "$root/tools/bench/gpu_summary.py" "$@" >out 2>err; }

goals_stand_beside_what_was_reached_() {
    mkdir results
    echo "[$(row resnet50 128 liveness 3688.65 11e9),$(row resnet50 128 freelunch:rate=4 9999 1)]" >results/mm-resnet50.json
    echo "[$(row resnet50 128 "pytorch compile:1.0" 3000 17e9)]" >results/pytorch-resnet50.json
    echo "[$(row resnet152 384 swap-async 500 1),$(row resnet152 384 hybrid 736 12e9)]" >results/mm-resnet152-12GiB.json
    echo '[{"net": ' >results/mm-resnet152-20GB.json # a file whose writing was cut short
    local figures='"gb_per_s_median": 1760.0, "share_of_copy": 0.86'
    printf '[{"codec": "zfp:rate=4", "direction": "encode", %s}, {"codec": "zvc", "direction": "encode", %s, %s}, %s, %s}]' \
        "$figures" "$figures" '"share_of_bytes": 0.71' '{"codec": "zvc", "direction": "decode", "share_of_bytes": 0.52' \
        "$figures" >results/codec.json
    local line zeros=',"codec":"zvc","map_by_code"'
    printf '[{"direction":""%s:1,"zeros_percent":49,"share_of_bytes":1},%s,%s,%s]' "$zeros" \
        "{\"direction\":\"encode\"$zeros:1.85,\"zeros_percent\":49,\"share_of_bytes\":0.71}" \
        "{\"direction\":\"decode\"$zeros:1.85,\"zeros_percent\":49,\"share_of_bytes\":0.83}" \
        "{\"direction\":\"encode\"$zeros:7.6,\"zeros_percent\":90,\"share_of_bytes\":0.6}" >results/codec-zeros.json
    summary results || fail "status"
    [[ $(grep "^zvc  " out) =~ ^zvc\ +49\ %:\ 1\.85,\ 0\.71\ /\ 0\.83\ +90\ %:\ 7\.60,\ 0\.60$ ]] || fail "$(grep "^zvc  " out)"
    line=$(grep "128, all kept" out)
    [[ $line =~ 1\.05\ x\ +3688\.[67]\ +3000\.0\ +1\.23\ +liveness,\ 11\.00\ GB\ +compile:1\.0,\ batch\ 128 ]] || fail "$line"
    line=$(grep "its memory" out)
    [[ $line =~ 0\.8\ x\ +11\.00\ +17\.00\ +0\.65 ]] || fail "$line"
    line=$(grep "in 12 GiB" out)
    [[ $line =~ 1\ x\ +736\.0\ +\(736\)\ +1\.00\ +hybrid.*checkpoint:\ not\ run ]] || fail "$line"
    line=$(grep "zvc, of what" out)
    [[ $line =~ 0\.65\ +0\.52\ .*zvc ]] || fail "$line"
    [[ $(grep "in 20 GB" out) == *"no row"* ]] || fail "$(grep "in 20 GB" out)"
    [[ $(grep "zfp:rate=4 encode" out) =~ 5\ x\ +1760\ +\(369\)\ +4\.77.*0\.86\ of\ the\ copy ]] || fail "$(grep "zfp:rate=4 encode" out)"
}

host_time_stands_beside_the_step_() {
    mkdir results
    summary results || fail "status"
    [[ $(grep "host time" out) =~ 100\ +-\ +-\ +-\ +no\ row ]] || fail "$(grep "host time" out)"
    echo "[$(row resnet152 44 swap 300 1),$(row resnet152 44 liveness 570 1)]" >results/mm-resnet152-44.json
    echo "[$(row resnet152 44 "pytorch checkpoint" 285 1)]" >results/pytorch-resnet152-44.json
    summary results || fail "status"
    [[ $(grep "launch-bound" out) =~ 1\ x\ +570\.0\ +285\.0\ +2\.00\ +liveness ]] || fail "$(grep "launch-bound" out)"
    [[ $(grep "host time" out) =~ 100\ +50\ +-\ +-\ +liveness,\ 0\.002\ of\ the\ step,\ replayed ]] || fail "$(grep "host time" out)"
    [[ $(grep -E "^resnet152 .* liveness " out) =~ \ -\ +50\ +1\.00\  ]] || fail "$(grep -E "^resnet152" out)"
}

autocast_is_the_peer_of_bf16_and_of_gpt_() {
    local line rows
    mkdir results
    rows="$(row resnet50 128 liveness 6000 6e9),$(row resnet50 128 recompute 5000 3.4e9)"
    rows+=",$(row resnet50 128 "pytorch channels_last" 4000 5e9)"
    echo "[${rows//tf32/bf16}]" | sed 's/"recompute", "budget_bytes": 6e9/"recompute", "budget_bytes": 3.5e9/' \
        >results/rounds-resnet50-bf16.json
    summary results || fail "status"
    line=$(grep "bf16, all kept, img/s" out)
    [[ $line =~ 1\.3\ x\ +6000\.0\ +4000\.0\ +1\.50\ +liveness,\ 6\.00\ GB\ +channels_last,\ batch\ 128 ]] || fail "$line"
    line=$(grep -A1 "bf16, all kept, img/s" out | tail -1)
    [[ $line =~ 1\ x\ +6\.00\ +5\.00\ +1\.20 ]] || fail "$line"
    line=$(grep "in 3.5 GB" out)
    [[ $line =~ 1\ x\ +5000\.0\ +\(4365\)\ +1\.15\ +recompute,.*compile:0\.2:\ not\ run ]] || fail "$line"
    line=$(grep -A2 "GPT-2 16 bf16, all kept, tok/s" out)
    [[ $line =~ 0\.95\ x\ +-\ +-\ +-\ +no\ row\ +compile:1\.0:\ not\ run[[:space:]]+in\ half ]] || fail "$line"
    rows="$(row gpt2 16 liveness 20 8e9),$(row gpt2 16 auto 15 3.5e9),$(row gpt2 16 "pytorch compile:1.0" 25 14e9)"
    rows+=",$(row gpt2 16 "pytorch checkpoint" 10 5e9),$(row gpt2 16 "pytorch compile_checkpoint" 12 5e9)"
    echo "[${rows//tf32/bf16}]" | sed -E 's/"auto", "budget_bytes": 6e9/"auto", "budget_bytes": 3.6e9/
        s/"images_per_second": ([0-9]+),/&"tokens_per_second": \1024,/g' >results/rounds-gpt2.json
    summary results || fail "status"
    line=$(grep -A2 "GPT-2 16 bf16, all kept, tok/s" out)
    [[ $line =~ 0\.95\ x\ +20024\.0\ +25024\.0\ +0\.80\ +liveness,\ 8\.00\ GB\ +compile:1\.0 ]] || fail "$line"
    [[ $line =~ 1\ x\ +15024\.0\ +12024\.0\ +1\.25\ +auto,\ 3\.50\ GB\ +compile_checkpoint ]] || fail "$line"
    [[ $line =~ 0\.5\ x\ +3\.50\ +14\.00\ +0\.25\ +peak\ and\ outside\ +compile:1\.0 ]] || fail "$line"
    grep -qE "^gpt2 .*liveness .* 20024 tok/s " out || fail "no tokens in the table of rows"
}

a_larger_workspace_is_another_candidate_for_the_first_goals_() {
    local line
    mkdir results
    echo "[$(row resnet50 128 liveness 3000 11e9)]" >results/mm-resnet50.json
    echo "[$(row resnet50 128 liveness 3600 12e9 8 liveness 1200000000)]" >results/mm-resnet50-1200MiB.json
    summary results || fail "status"
    line=$(grep "128, all kept" out)
    [[ $line =~ 3600\.0\ +\(3513\)\ +1\.02\ +liveness\ \(workspace\ 1\.20\ GB\),\ 12\.00\ GB ]] || fail "$line"
    line=$(grep "its memory" out)
    [[ $line =~ 12\.00\ +\(16\.89\)\ +0\.71 ]] || fail "not of the same row: $line"
    line=$(grep -E "^resnet50 .*\(workspace 1\.20 GB\)" out)
    [[ $line =~ 3600\.0\ +-\ +50\ +1\.20\  ]] || fail "not beside the other: $line"
    echo "[$(row resnet50 128 liveness 3000 11e9 8 liveness 1200000000)]" >results/mm-resnet50-1200MiB.json
    echo "[$(row resnet50 128 liveness 3100 11e9)]" >results/mm-resnet50.json
    summary results || fail "status"
    line=$(grep "128, all kept" out)
    [[ $line =~ 3100\.0\ +\(3513\)\ +0\.88\ +liveness,\ 11 ]] || fail "$line"
}

a_summary_is_never_longer_than_asked_and_goals_stay_() {
    mkdir results
    local rows i
    rows=$(row resnet50 128 liveness 1 1)
    for i in {1..200}; do rows+=,$(row resnet50 128 "rules:conv=compress(zfp:rate=4);number=$i" 1 1); done
    echo "[$rows]" >results/mm-resnet50.json
    printf 'step%d\t1\tfailed (1)\n' {1..40} >results/steps.txt
    summary results --most 5000 || fail "status"
    (($(stat -c %s out) <= 5000)) || fail "$(stat -c %s out) characters"
    says out "ResNet-152 384 in 12 GiB"
    says results/summary.txt "number=200"
}

a_table_is_of_all_files_rows_() {
    echo "[$(row a 1 liveness 10 1e9)]" >one
    echo "[$(row a 1 "pytorch compile:1.0" 5 2e9)]" >two
    summary --table one two || fail "status"
    [[ $(grep liveness out | tail -1) =~ 1\.00\ GB.*10\.0.*1\.00\ +2\.00\ +ok ]] || fail "$(<out)"
    echo "[$(row a 1 hybrid 10 1 0 swap)]" >one
    summary --table one || fail "status"
    says out "hybrid -> swap"
    says out "ok, not replayed"
    ! summary --table nowhere || fail "a file that is not there"
    says err "nowhere: no rows, or no such file"
    echo '[{"device": "cuda"}]' >other
    ! summary --table other || fail "a file without rows"
    says err "other: not rows"
    ! summary nowhere || fail "a folder that is not there"
}

# ---------------------------------------------------------------- PyTorch's side

peer() { python3 -S "$root/tools/bench/peer_pytorch.py" "$@" >out 2>err; }

peers_options_are_checked_() {
    local option
    for option in "--net nope" "--net gpt,heads=3" "--net gpt2,dropout=1" "--net gpt,depth=2" "--modes keep,nope" "--modes compile:2" "--modes compile:x" "--precision fp16" "--batch 0" \
        "--batch 1,x" "--iterations 0" "--limit 0" "--cap 12XB"; do
        # shellcheck disable=SC2086 # words
        ! peer $option || fail "$option is taken"
        says err "error: "
    done
    ! peer --net resnet50 || fail "without torch"
    [[ $(<err) == "peer_pytorch: there is no PyTorch here (module torch)" ]] || fail "not told"
}

a_gpt_under_autocast_is_in_turns_with_ours_() {
    local python
    python=$(torch_python) || skip "no torch"
    "$python" -B "$root/tools/bench/peer_pytorch.py" --device cpu --net gpt,layers=1,width=8,heads=1,context=8,vocabulary=8:2 \
        --precision bf16 --modes keep,checkpoint --mm "$mm" --policies liveness --rounds 1 --iterations 2 --seconds 0.1 \
        --threads 1 --json rows >out 2>err || fail "status"
    [[ $(values rows policy) == $'pytorch keep\npytorch checkpoint\nliveness' ]] || fail "$(values rows policy)"
    [[ $(values rows status | sort -u) == ok && $(values rows precision | sort -u) == bf16 ]] || fail "$(<rows)"
    [[ $(values rows tokens_per_second) != *null* && $(grep -c "tok/s" out) == 3 ]] || fail "no tokens"
    [[ $(values rows loss_first) =~ ^(2\.[0-9]+.){2} ]] || fail "not the logarithm of 8 words: $(values rows loss_first)"
}

rounds_that_are_cut_keep_their_rows_() {
    program slow '[[ $* != *freelunch* ]] || { kill -INT $PPID; sleep 100; }' "exec $mm \"\$@\""
    ! peer --device cpu --net tiny:4 --mm ./slow --iterations 1 --json rows || fail "status"
    [[ $(values rows policy | tail -1) == liveness ]] || fail "the first run's rows are kept: $(values rows policy)"
    [[ $(values rows status) == ok ]] || fail "$(values rows status)"
}

a_run_that_fails_or_takes_too_long_ends_no_round_() {
    local begin=$SECONDS
    program fails '[[ $* != *vdnn* ]] || { echo "mm: it is wrong" >&2; exit 1; }' '[[ $* != *freelunch* ]] || exec sleep 100' "exec $mm \"\$@\""
    ! peer --device cpu --net tiny:4 --mm ./fails --iterations 1 --rounds 2 --limit 3 --policies "vdnn;freelunch;liveness" \
        --json rows || fail "status"
    ((SECONDS - begin < 60)) || fail "$((SECONDS - begin)) s"
    [[ $(values rows status) == $'no torch\nmm: it is wrong\ntook more than 3 s\nok' ]] || fail "$(values rows status)"
    [[ $(values rows policy | tail -1) == liveness ]] || fail "$(values rows policy)"
    says err "vdnn: mm: it is wrong"
}

peers_rows_have_keys_of_mms_rows_() {
    expect 0 bench --net tiny --batch 2 --policies liveness --iterations 1 --quiet --json rows
    (cd "$root/tools/bench" && python3 -S -B -c '
import json, sys, types
import peer_pytorch
ours = set(json.load(open(sys.argv[1]))[0])
theirs = set(peer_pytorch.empty_row(types.SimpleNamespace(device="cuda", cap=0), "resnet50", 1, "keep", "tf32"))
print(sorted(theirs - ours))
sys.exit(not theirs <= ours)' "$OLDPWD/rows") || fail "keys"
}

run_cases
