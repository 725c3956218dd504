#!/usr/bin/env bash
# Counts the instructions that a message costs the process that sends it, and compares them
# with sink-sqs/benches/instructions.toml. More than 5 % away from it fails, either way: a
# gain is recorded, or it is lost again unnoticed.
#
#   scripts/instructions.sh            compare
#   scripts/instructions.sh --record   write the file
#
# Needs valgrind on x86_64 with AVX2. Digests are counted apart: valgrind has no
# instructions for SHA-256, which makes them many times what they cost a machine that has.
set -euo pipefail
cd "$(dirname "$0")/.."
budget=sink-sqs/benches/instructions.toml
slack=5

fail() { echo "instructions: $*" >&2; exit 1; }
case "${1-}" in
    "" | --record) ;;
    *) fail "unknown argument: expected --record or none" ;;
esac
command -v valgrind >/dev/null || fail "valgrind is missing: install it (apt-get install valgrind)"
grep -qw avx2 /proc/cpuinfo 2>/dev/null || fail "this machine is not x86_64 with AVX2, for which the file holds"

# Without the sources of credentials: they are not on the way of a message.
program=$(cargo bench -p sink-sqs --no-default-features --bench instructions --locked --no-run \
    --message-format json-render-diagnostics |
    sed -n 's/.*"executable":"\([^"]*\/instructions-[^"]*\)".*/\1/p')
[ -x "$program" ] || fail "cargo built no program"

scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT

# count MODE MESSAGES: lines `MODE_PART = INSTRUCTIONS`, a message.
count() {
    valgrind --tool=callgrind --callgrind-out-file="$scratch/$1" --collect-atstart=no \
        --toggle-collect='instructions::counted*' "$program" "$1" "$2" 2>"$scratch/log" ||
        { cat "$scratch/log" >&2; fail "$1 failed"; }
    callgrind_annotate --threshold=100 "$scratch/$1" | awk -v mode="$1" -v messages="$2" '
        !/^ *[0-9,]+ \(/ { next }
        { n = $1; gsub(",", "", n) }
        /PROGRAM TOTALS/ { total = n; next }
        /sha2::/ { sha256 += n; next }
        /md5::compress/ { md5 += n }
        END {
            if (!total || !sha256 || !md5) exit 1
            printf "%s_md5 = %d\n", mode, md5 / messages
            printf "%s_sha256 = %d\n", mode, sha256 / messages
            printf "%s_other = %d\n", mode, (total - md5 - sha256) / messages
        }' || fail "$1: the profile names no digest, or nothing was counted"
}

count batched 10000 >"$scratch/measured"
count single 2000 >>"$scratch/measured"

if [ "${1-}" = --record ]; then
    {
        echo "# Instructions a message of a hook of 1 KiB, as scripts/instructions.sh --record counts"
        echo "# them: $(rustc --version | cut -d' ' -f1,2), $(valgrind --version), $(ldd --version | sed -n '1s/.* /glibc /p'), x86_64 with AVX2."
        cat "$scratch/measured"
    } >"$budget"
    cat "$budget"
    exit
fi

awk -v slack="$slack" '
    /^#/ { next }
    FNR == NR { budget[$1] = $3; next }
    {
        away = budget[$1] ? 100 * ($3 / budget[$1] - 1) : 100
        verdict = away > slack ? "over" : away < -slack ? "under: record the gain" : "ok"
        if (verdict != "ok") missed = 1
        printf "%-15s measured %7d  budget %7d  %+6.1f %%  %s\n", $1, $3, budget[$1], away, verdict
    }
    END { exit missed }
' "$budget" "$scratch/measured" ||
    fail "not within $slack % of $budget; where the change is meant: scripts/instructions.sh --record"
