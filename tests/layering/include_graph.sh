#!/bin/bash
# include_graph.sh ROOT LAYERS: checks the includes of the sources below ROOT. Reports and fails on a file whose folder
# the table LAYERS does not name; an include that the table does not allow; a circle of files, or of folders; an include
# that is not a path from ROOT; and two files with one name. All folders of tests are one layer, "tests".
# SPDX-License-Identifier: MIT
set -euo pipefail
export LC_ALL=C
layers=$(realpath "$2")
cd "$1"
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/include_graph.XXXXXX")
trap 'rm -rf "$work"' EXIT

# Prints the project's files. Files that git ignores are not among them.
files() {
    git ls-files --cached --others --exclude-standard 2>/dev/null || find . -name '.?*' -prune -o -type f -printf '%P\n'
}
while read -r file; do [[ ! -e $file ]] || echo "$file"; done < <(files) | sort -u >"$work/files"
grep -E '\.(c|h|hpp|cc|cu|cuh)$' "$work/files" >"$work/sources" || { echo "no sources in $1" && exit 1; }
xargs grep -HnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' <"$work/sources" >"$work/includes"

failed=0
awk -v files_out="$work/file_edges" -v folders_out="$work/folder_edges" '
    function fault(text) { print text; faults++ }
    function folder_of(file) { return match(file, "/[^/]*$") ? substr(file, 1, RSTART - 1) : "." }
    function layer_of(file) { return file ~ "^tests/" ? "tests" : folder_of(file) }
    FILENAME == ARGV[1] {
        if (/^#/ || !NF) next
        split($0, field, ":")
        folder = field[1]
        gsub(/ /, "", folder)
        below[folder] = field[2]
        words = split(field[2], word, " ")
        for (i = 1; i <= words; i++) {
            found = word[i] == "*"
            for (other in known)
                if (other == word[i] || word[i] ~ "/$" && index(other "/", word[i]) == 1) {
                    may[folder, other] = 1
                    found = 1
                }
            if (found) may[folder, word[i]] = 1
            else fault(ARGV[1] ": " folder " names " word[i] ", which is not below it")
        }
        known[folder] = 1
        next
    }
    FILENAME == ARGV[2] {
        layer[$0] = layer_of($0)
        if (!(layer[$0] in known)) fault($0 ": the table does not name its folder")
        next
    }
    {
        split($0, at, ":")
        from = at[1]
        split($0, quoted, "\"")
        to = quoted[2]
        if (!(to in layer)) { fault(from ":" at[2] " includes " to ", which is no path of a source from the root"); next }
        a = layer[from]
        b = layer[to]
        if (a != b && !((a, b) in may) && !((a, "*") in may))
            fault(from ":" at[2] " includes " to ": " a " may include only:" below[a])
        print from, to >files_out
        if (folder_of(from) != folder_of(to)) print folder_of(from), folder_of(to) >folders_out
    }
    END { exit faults > 0 }' "$layers" "$work/sources" "$work/includes" || failed=1

for what in file folder; do
    if ! tsort "$work/${what}_edges" >/dev/null 2>"$work/circle"; then
        echo "a circle of ${what}s:" "$(sed -n 's/^tsort: \([^ ]*\)$/\1/p' "$work/circle" | paste -sd' ')"
        failed=1
    fi
done

# No two files may have one name: it identifies the file in messages, searches and stack traces.
twice=$(grep -vE '(^|/)(BUILD|README\.md)$' "$work/files" | sed 's#.*/##' | sort | uniq -d)
for name in $twice; do
    echo "one name, several files: $(grep -E "(^|/)$name\$" "$work/files" | paste -sd' ')"
    failed=1
done
exit "$failed"
