#!/bin/bash
# tools/bench/peer_host.py: the tables that it writes. PyTorch is stood in for by given figures; mm runs, and then its
# figures are replaced by given ones. $1: mm. $2: peer_host.py.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

bench=$(realpath "${2%/*}")
export PYTHONDONTWRITEBYTECODE=1

# peer_host ARGUMENT...: its output goes to out and err. In each of three rounds PyTorch takes the next rate of its
# mode's list, and twice as many MiB as in the round before; mm takes the next rate of its policy's list.
peer_host() {
    cat >paced <<END
#!/bin/bash
"$mm" "\$@" || exit
while ((\$#)); do
    case \$1 in
    --json) rows=\$2 ;;
    --policies) policy=\$2 ;;
    esac
    shift
done
echo "\$policy" >>rounds
case \$policy in
liveness) rates=(300 100 200) mib=300 ;;
recompute) rates=(150 150 150) mib=100 ;;
*) rates=(250 250 250) mib=150 ;;
esac
rate=\${rates[(\$(grep -cxF "\$policy" rounds) - 1) % 3]}
sed -i -E "s/(\"images_per_second\": )[0-9.]+/\1\$rate/; s/(\"host_peak_bytes\": )[0-9]+/\1\$((mib << 20))/" "\$rows"
END
    chmod +x paced
    rm -f rounds
    python3 -S - "$bench" --mm ./paced --threads 1 --iterations 1 --json rows.json "$@" >out 2>err <<'END'
import os
import sys

sys.path.insert(0, sys.argv.pop(1))
import peer_pytorch

RATES = {"channels_last": [90.0, 110.0, 100.0], "compile:1.0": [40.0, 60.0, 50.0], "checkpoint": [80.0, 80.0, 70.0]}
closed = []


class Apart:
    def __init__(self, module, function, what, limit, **environment):
        self.rates, self.mib = iter(RATES[what[2]]), int(os.environ.get("MIB", "64"))

    def row(self):
        if "BROKEN" in os.environ:
            return {"status": os.environ["BROKEN"]}
        self.mib *= 2
        rate = next(self.rates)
        return {"status": "ok", "images_per_second": rate, "host_peak_bytes": self.mib << 20, "torch": "9.9"}

    def close(self):
        closed.append(self)


peer_pytorch.Apart, peer_pytorch.why_none = Apart, lambda device, net: None
import peer_host

peer_host.CASES = [("Tiny, batch 4", "tiny", 4), ("ResNet-8, batch 2", "resnet8", 2)]
try:
    peer_host.main()
finally:
    assert len(closed) % 2 == 0, "a process is left"
END
}

# table ROW...: checks the lines of the table that was printed, below its head.
table() {
    local lines
    mapfile -t lines < <(sed 1,4d out)
    [[ ${lines[*]} == "$*" ]] || fail "not these lines: $(printf '\n%s' "$@")"
}

speeds_of_both_sides_are_in_the_table_() {
    printf '%s\n' before "<!-- peer_host.py writes this -->" old "<!-- to here -->" after >page
    peer_host --write page || fail "status"
    [[ $(sed -n 1p out) == "On 1 threads of: "*"; PyTorch 9.9." ]] || fail "not where and with what"
    table "| Tiny, batch 4, fp32 | 100 | 50.0 | 200 | 2.00 | 100 % | 512, 512, 300 |" \
        "| Tiny, batch 4, bf16 | 100 | 50.0 | 200 | 2.00 | 100 % | 512, 512, 300 |" \
        "| ResNet-8, batch 2, fp32 | 100 | 50.0 | 200 | 2.00 | 100 % | 512, 512, 300 |" \
        "| ResNet-8, batch 2, bf16 | 100 | 50.0 | 200 | 2.00 | 100 % | 512, 512, 300 |"
    cmp page <(echo before && echo "<!-- peer_host.py writes this -->" && cat out && echo "<!-- to here -->" && echo after) ||
        fail "the page has not the table in place of the old one: $(<page)"
    [[ $(values rows.json precision | uniq | tr '\n' ' ') == "fp32 bf16 fp32 bf16 " ]] || fail "rows"
    [[ $(values rows.json policy | head -3) == $'pytorch channels_last\npytorch compile:1.0\nliveness' ]] || fail "rows"
}

saved_rows_give_the_same_tables_without_a_run_() {
    peer_host --nets tiny || fail "status"
    cp out first
    cp rows.json saved.json
    again() { PYTHONPATH="$bench" python3 -S -c "import peer_host
peer_host.CASES = [('Tiny, batch 4', 'tiny', 4)]
peer_host.main()" "$@" >out 2>err; }
    again --rows saved.json || fail "status"
    cmp out first || fail "another table: $(<out)"
    again --rows saved.json --table short || fail "status of the short table"
    [[ $(tail -1 out) == "| Tiny, batch 4 | 200 (2.00) | 200 (2.00) | 0.59 | 0.59 |" ]] || fail "$(<out)"
    ! again --rows saved.json --table memory || fail "rows of another table"
    [[ $(<err) == "peer_host: saved.json has no rows of tiny in fp32 for --table memory" ]] || fail "$(<err)"
    ! again --rows nothing || fail "a file that is not there"
    ! again || fail "neither --mm nor --rows"
    says err "one of --mm and --rows is needed"
}

memory_is_compared_with_checkpoints_() {
    peer_host --table memory --nets tiny || fail "status"
    table "| Tiny, batch 4, fp32 | 100 in 512 | 80.0 in 512 | 200 in 300 | 150 in 100 | 250 in 150 | 3.12: \`freelunch:rate=4\` |"
    MIB=16 peer_host --table memory --nets tiny || fail "status"
    table "| Tiny, batch 4, fp32 | 100 in 128 | 80.0 in 128 | 200 in 300 | 150 in 100 | 250 in 150 | 1.88: \`recompute\` |"
    MIB=8 peer_host --table memory --nets tiny || fail "status"
    table "| Tiny, batch 4, fp32 | 100 in 64 | 80.0 in 64 | 200 in 300 | 150 in 100 | 250 in 150 | none takes so little |"
}

what_fails_is_in_the_table_and_in_the_status_() {
    ! BROKEN="it broke" peer_host --nets tiny --precision fp32 || fail "status"
    table "| Tiny, batch 4, fp32 | it broke | it broke | 200 | - | 100 % | -, -, 300 |"
    [[ $(tail -1 err) == "peer_host: tiny, pytorch channels_last: it broke" ]] || fail "not told"
    echo page >page
    ! peer_host --nets tiny --precision fp32 --write page || fail "a page without the comments"
    [[ $(tail -1 err) == "peer_host: page has no lines"* && $(<page) == page ]] || fail "not told, or written"
    ! peer_host --nets "tiny;nope" || fail "a network that is not there"
    says err "--nets: there is no nope"
}

run_cases
