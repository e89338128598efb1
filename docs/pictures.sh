#!/usr/bin/env bash
# Draws the pictures of the book anew, by the commands on its pages, and the first picture of the README.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet
docs=$PWD/docs
PATH=$PWD/target/debug:$PATH
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
cd "$work"
# A command may go on in the next line, after a backslash: read joins the two.
for page in "$docs"/*.md; do
    # Only the blocks of `console`: sessions run in the real world, and draw nothing.
    sed -n '/^```console/,/^```$/p' "$page" | while read line; do
        case $line in
        '$ trapline'*--record*|'$ trapline'*.svg*)
            # Some runs end in a failure, a deadlock or at a limit, and are recorded for that.
            eval "${line#"$ "}" >/dev/null 2>&1 || case $? in 1|3|4) ;; *) exit 1 ;; esac
        esac
    done
done
"$docs/failing.sh" >failing.svg
cp ./*.svg "$docs/pictures"
