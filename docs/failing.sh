#!/usr/bin/env bash
# Prints the README's picture: the report of a failing schedule, and the timeline of its recording.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
cd "$work"
command="trapline explore --record found deadlock"
$command >report || test $? -eq 1
trapline trace timeline found/deadlock-fails.trap --width 580 -o timeline.svg

# The verdict, the cycle and the turns, without their places in the source.
lines() {
    echo "\$ $command"
    sed -n -e '/^deadlock: /p' -e '/^  cycle: /p' report
    sed -n '/^ \{4,\}/s/^    //p' report | sed -e '/waits\|lock at\|wait at/d' -e 's/ *programs.*$//'
}
y=24
cat <<'SVG'
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1016 250" width="1016" height="250" role="img">
<title>A schedule that fails, turn by turn, and its timeline</title>
<rect class="paper" width="1016" height="250"/>
SVG
lines | sed -e 's/&/\&amp;/g' -e 's/</\&lt;/g' -e 's/>/\&gt;/g' | while IFS= read -r line; do
    style='font: 11px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre'
    echo "<text x=\"8\" y=\"$y\" style='$style' xml:space=\"preserve\">$line</text>"
    y=$((y + 15))
done
echo '<svg x="436" y="12" width="580" height="214">'
cat timeline.svg
echo '</svg>'
echo '</svg>'
