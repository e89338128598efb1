#!/usr/bin/env bash
# Draws the pictures of reading-traces.md and 17-scheduling.md anew, by the commands on these pages, and
# the first picture of the README.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet
docs=$PWD/docs
PATH=$PWD/target/debug:$PATH
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
cd "$work"
pages=("$docs/reading-traces.md" "$docs/17-scheduling.md")
sed -n 's/^\$ trapline/trapline/p' "${pages[@]}" | while read -r line; do
    # A deadlock is an error, and the point of two of them.
    eval "$line" >/dev/null 2>&1 || test $? -eq 3
done
mkdir -p "$docs/pictures"
"$docs/failing.sh" >failing.svg
cp ./*.svg "$docs/pictures"
