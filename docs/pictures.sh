#!/usr/bin/env bash
# Draws the pictures of reading-traces.md anew, by the commands on that page.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet
docs=$PWD/docs
PATH=$PWD/target/debug:$PATH
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
cd "$work"
sed -n 's/^\$ trapline/trapline/p' "$docs/reading-traces.md" | while read -r line; do
    # A deadlock is an error, and the point of two of them.
    $line >/dev/null 2>&1 || test $? -eq 3
done
mkdir -p "$docs/pictures"
cp ./*.svg "$docs/pictures"
