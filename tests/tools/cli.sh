# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Sourced by the tests of the mm command, whose path is $1. A test is a function named *_. Each runs in a folder of its
# own and must leave no temporary files there. run_cases prints cmocka's closing lines, which tools/test counts.
set -uo pipefail
export LC_ALL=C

mm=$(realpath "$1")
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/cli.XXXXXX")
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache # not the user's, whose rates would change plans

# Prints the message and what mm printed, and ends the case as failed.
fail() {
    echo "  $*"
    for file in out err; do [[ ! -s $file ]] || sed "s/^/  $file| /" "$file"; done
    exit 1
}

skip() {
    echo "  $*"
    exit 77
}

# The helpers below start hardly any process but mm: there are hundreds of runs, and a fork can take longer than a run.

# expect STATUS ARGUMENT...: runs mm; its output goes to the files out and err.
expect() {
    local status=0 expected=$1
    shift
    "$mm" "$@" >out 2>err </dev/null || status=$?
    ((status == expected)) || fail "mm $*: status $status, expected $expected"
}

says() { # FILE TEXT
    local text
    IFS= read -rd '' text <"$1"
    [[ $text == *"$2"* ]] || fail "$1 does not say: $2"
}

# refused STATUS TEXT ARGUMENT...: mm prints nothing on stdout. On stderr it prints one or two lines; one names the
# command and contains TEXT.
refused() {
    local status=$1 text=$2
    shift 2
    expect "$status" "$@"
    says err "$text"
    [[ ! -s out ]] || fail "mm $*: something on stdout"
    local lines
    mapfile -t lines <err
    ((${#lines[@]} <= 2)) || fail "mm $*: more than two lines"
    [[ ${lines[0]} == mm* ]] || fail "mm $*: does not begin with its name"
}

equal() { # FILE FILE
    cmp "$1" "$2" || fail "$1 and $2 differ"
}

# Compares the tensors of two states, but not their metadata.
equal_tensors() { # STATE STATE
    local a b
    a=$(od -An -tu8 -N8 "$1") b=$(od -An -tu8 -N8 "$2")
    cmp -i $((8 + a)):$((8 + b)) "$1" "$2" || fail "$1 and $2 have other tensors"
}

differ() { # FILE FILE
    ! cmp -s "$1" "$2" || fail "$1 and $2 are equal"
}

is_less() { # A B: numbers
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'
}

# at_most A B WHAT: checks that A is at most B, but for rounding.
at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a <= b * 1.000001 + 1e-12) }' || fail "$3: $1 > $2"; }

# Prints the values of a key in a JSON file, one a line.
values() { # FILE KEY
    local line lines
    mapfile -t lines <"$1"
    for line in "${lines[@]}"; do # up to 60000 lines: a cheap comparison comes before the slow expression
        [[ $line == *"\"$2\": "* && $line =~ ^\ *\"$2\":\ \"?(.*)$ ]] || continue
        line=${BASH_REMATCH[1]%,}
        echo "${line%\"}"
    done
}

# Prints the value of a key that the file has once.
value() { # FILE KEY
    local all
    mapfile -t all < <(values "$1" "$2")
    ((${#all[@]} == 1)) || fail "$1 has ${#all[@]} of $2"
    echo "${all[0]}"
}

# Prints the commands, one a line, as `mm help` lists them.
mm_commands() {
    "$mm" help | sed -n '/^usage:/,/--help/s/^  \([a-z][a-z-]*\)  .*/\1/p'
}

# Prints the commands whose --help has an option: "--net", or with the name of its value, "--json FILE". If none has it,
# prints a name that no command has, so that a loop over them fails.
commands_with() { # OPTION
    local command line found=
    for command in $(mm_commands); do
        while IFS= read -r line; do [[ $line != "  $1 "* ]] || found+="$command "; done < <("$mm" "$command" --help)
    done
    # shellcheck disable=SC2086 # words
    printf '%s\n' ${found:-no-command-has-"$1"}
}

# The arguments without which a command refuses whatever else it is given, or does not read it.
# shellcheck disable=SC2034 # read by the tests
declare -A needs=(
    [train]="" [bench]="--net tiny" [plan]="--net tiny" [report]="rows --html page" [verify]="plan"
    [device]="--facts facts --net tiny" [gpus]="" [nets]="" [policies]="" [codecs]="" [completion]="bash" [man]=""
)

# Checks that a list of commands that a test has by hand is that of `mm help`: a new command must be added to it.
lists_every_command() { # LIST COMMAND...
    local command commands listed=" ${*:2} "
    mapfile -t commands < <(mm_commands)
    for command in "${commands[@]}"; do
        [[ $listed == *" $command "* ]] || fail "mm $command, which 'mm help' lists, is missing in $1"
    done
    for command in "${@:2}"; do
        [[ " ${commands[*]} " == *" $command "* ]] || fail "$1 has $command, which 'mm help' does not list"
    done
}

# Checks that in an XML file every tag is closed, in order.
balanced() { # FILE
    local text tag open=()
    IFS= read -rd '' text <"$1"
    while [[ $text == *"<"* ]]; do
        tag=${text#*<} text=${tag#*>} tag=${tag%%>*}
        case $tag in
        */) ;;
        /*)
            ((${#open[@]} > 0)) || fail "$1: </${tag#/}> closes nothing"
            [[ ${open[-1]} == "${tag#/}" ]] || fail "$1: </${tag#/}> closes <${open[-1]}>"
            unset 'open[-1]'
            ;;
        *) open+=("${tag%% *}") ;;
        esac
    done
    ((${#open[@]} == 0)) || fail "$1: <${open[-1]}> is not closed"
    command -v xmllint >/dev/null || return 0
    xmllint --noout "$1" || fail "$1: xmllint refuses it"
}

count() { # FILE TEXT
    local text without
    IFS= read -rd '' text <"$1"
    without=${text//"$2"/} # one pass; cutting off one occurrence at a time would take quadratic time
    echo $(((${#text} - ${#without}) / ${#2}))
}

# Prints the least bytes in which the policy has a plan.
minimum() { # NET BATCH POLICY ARGUMENT...
    "$mm" plan --net "$1" --batch "$2" --policy "$3" "${@:4}" --json minimum.json >/dev/null ||
        fail "mm plan of $* failed"
    values minimum.json minimum_bytes
}

# wait_for FILE TEXT: waits until a running process has written TEXT.
wait_for() {
    for ((i = 0; i < 1200; i++)); do
        [[ ! -e $1 ]] || ! (says "$1" "$2") >/dev/null || return 0
        sleep 0.05
    done
    fail "$1 never says: $2"
}

# start ARGUMENT...: starts mm in the background, with output in out and err; `interrupt` ends it. A shell's background
# child ignores SIGINT only once it has become mm, so this waits for that.
start() {
    "$mm" "$@" >out 2>err </dev/null &
    trap 'kill -KILL $! 2>/dev/null' EXIT
    until [[ /proc/$!/exe -ef $mm ]]; do kill -0 $! || fail "mm $*: did not start"; done
}

interrupt() {
    kill -INT $!
    ended_by_signal
}

ended_by_signal() {
    local status=0
    wait $! || status=$?
    trap - EXIT
    ((status == 130)) || fail "status $status, expected 130"
}

# Prints a network file whose maps double from layer to layer until they are infinite.
doubling_net() {
    local i last=conv
    echo '{"format": "mm net", "version": 1, "name": "doubling",'
    echo '"input": {"height": 4, "width": 4, "channels": 3, "classes": 10}, "layers": ['
    echo '{"name": "conv", "op": "conv", "inputs": ["data"], "out_channels": 4, "kernel": 1},'
    for ((i = 0; i < 140; i++)); do
        echo "{\"name\": \"twice$i\", \"op\": \"add\", \"inputs\": [\"$last\", \"$last\"]},"
        last=twice$i
    done
    echo "{\"name\": \"fc\", \"op\": \"linear\", \"inputs\": [\"$last\"], \"out_channels\": 10},"
    echo '{"name": "loss", "op": "loss", "inputs": ["fc"]}]}'
}

# CIFAR-10's files as sparse files: all images are black and have label 0.
black_cifar10() { # FOLDER
    mkdir "$1"
    for file in data_batch_{1..5} test_batch; do truncate -s 30730000 "$1/$file.bin"; done
}

# in_group BYTES ARGUMENT...: runs mm in a control group with this limit, which `group` is. Sets `status`.
in_group() {
    status=0
    (
        echo "$1" >"$group/$limit_file" && echo "$BASHPID" >"$group/cgroup.procs" || exit 99
        exec "$mm" "${@:2}"
    ) >out 2>err </dev/null || status=$?
}

# remove_group FOLDER: it has no processes any more, but the kernel may need a moment.
remove_group() {
    local i
    for ((i = 0; i < 100; i++)); do
        rmdir "$1" 2>/dev/null && return
        sleep 0.05
    done
}

# make_group: makes a control group, `group`, which goes when the case ends; `limit_file` sets its limit. Skips the case
# where none can be made.
make_group() {
    local at
    for at in /sys/fs/cgroup:memory.max /sys/fs/cgroup/memory:memory.limit_in_bytes; do
        group=${at%:*}/mm-test-$$ limit_file=${at#*:}
        mkdir "$group" 2>/dev/null || continue
        [[ ! -w $group/$limit_file ]] || break
        rmdir "$group"
    done
    [[ -d $group ]] || skip "no control group can be made"
    # shellcheck disable=SC2064 # the variable is gone when the shell ends
    trap "remove_group '$group'" EXIT
}

# Runs the functions whose names end in "_". PART="2/3": every third of them, from the second on.
run_cases() {
    local name status passed=0 failed=() skipped=() i=0 part=${PART:-1/1}
    for name in $(declare -F | sed -n 's/^declare -f \(.*\)_$/\1/p'); do
        ((i++ % ${part#*/} == ${part%/*} - 1)) || continue
        echo "[ RUN      ] $name"
        (
            mkdir "$work/$name" && cd "$work/$name" || exit 1
            "${name}_" || fail "failed"
            [[ -z $(find . -name '*.tmp') ]] || fail "left behind: $(find . -name '*.tmp')"
        )
        status=$?
        case $status in
        0) passed=$((passed + 1)) && echo "[       OK ] $name" ;;
        77) skipped+=("$name") && echo "[  SKIPPED ] $name" ;;
        *) failed+=("$name") && echo "[  FAILED  ] $name" ;;
        esac
        rm -rf "${work:?}/$name"
    done
    echo "[  PASSED  ] $passed test(s)."
    if ((${#skipped[@]} > 0)); then
        echo "[  SKIPPED ] cli: ${#skipped[@]} test(s), listed below:"
        printf '[  SKIPPED ] %s\n' "${skipped[@]}"
    fi
    ((${#failed[@]} > 0)) || return 0
    echo "[  FAILED  ] cli: ${#failed[@]} test(s), listed below:"
    printf '[  FAILED  ] %s\n' "${failed[@]}"
    return 1
}
