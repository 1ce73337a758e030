#!/usr/bin/env bash
# Makes the pictures of docs/observing.md from a real run: docs/images/make.sh TEXTFILE
# Needs a build, python3 and chromium; takes about three minutes. The run is stopped once and resumed, and is
# looked at while it trains. The pictures are committed, so that only who changes them needs this.
set -euo pipefail
text=$(realpath "${1:?usage: docs/images/make.sh TEXTFILE}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
lathe=build/bin/lathe
images=docs/images
data="[{ path = \"$text\", type = \"text\" }]"

if [ -z "${KEEP_RUN:-}" ]; then
    rm -rf out/pictures
    "$lathe" train $images/run.toml --data.datasets "$data" --train.stop_after 140
    "$lathe" train $images/run.toml --data.datasets "$data" --optimizer.weight_decay 0.1 &
    trainer=$!
    while [ "$(wc -l <out/pictures/metrics.jsonl)" -lt 230 ]; do sleep 0.2; done
    python3 $images/frame.py 112 34 "$lathe" watch out/pictures --once >$images/watch.svg
    wait $trainer
fi

"$lathe" report out/pictures -o out/pictures/report.html
shot() { # name, height, section, theme (1 light, 0 dark)
    printf '<body style="margin:0"><iframe src="report.html#%s" style="border:0;width:1240px;height:%spx"></iframe>' \
        "$3" "$2" >out/pictures/shot.html
    chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --blink-settings=preferredColorScheme="$4" \
        --window-size="1240,$2" --screenshot="$images/$1.png" "file://$PWD/out/pictures/shot.html" 2>/dev/null
}
shot report-light 1180 '' 1
shot report-dark 1180 '' 0
shot report-plan 1130 time 1
shot report-lineage 1130 checkpoints 0
ls -l $images
