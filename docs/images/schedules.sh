#!/usr/bin/env bash
# Makes docs/images/schedules.svg, the picture of docs/schedules.md: docs/images/schedules.sh [LATHE]
# Eleven times `lathe plot schedule -o -`, put side by side. Needs a build and sed.
set -euo pipefail
lathe=$(realpath "${1:-build/bin/lathe}")
cd "$(dirname "${BASH_SOURCE[0]}")"
width=300 height=176 gap=14 columns=3 n=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
printf '[optimizer]\nlr = 1.0\n[train]\nmax_steps = 400\n' >"$scratch/run.toml"

panel() { # the scheduler, what is said of it, its keys
    local name=$1 note=$2
    shift 2
    local x=$((gap + (width + gap) * (n % columns))) y=$((gap + (height + gap) * (n / columns)))
    n=$((n + 1))
    "$lathe" plot schedule "$scratch/run.toml" --scheduler.name "$name" "$@" \
        --size "${width}x$height" -o - >"$scratch/panel.svg"
    [ -f "$scratch/style" ] || sed -n '/^<style>/,/^<\/style>/p' "$scratch/panel.svg" >"$scratch/style"
    printf '<g transform="translate(%d,%d)">' "$x" "$y"
    # the plot without its frame; the scheduler as the title, the note in place of the legend
    sed -e '1,/^<rect /d' -e '/^<\/svg>/d' -e 's/learning rate, //' \
        -e "s|\(<text [^>]*y=\"17\" class=\)\"v\"\( text-anchor=\"end\">\).*peak [^<]*</text>|\1\"l\"\2$note</text>|" \
        "$scratch/panel.svg"
    printf '</g>\n'
}

warm=(--scheduler.warmup_steps 40)
{
    panel constant ''
    panel constant_with_warmup '' "${warm[@]}"
    panel linear '' "${warm[@]}"
    panel cosine '' "${warm[@]}"
    panel cosine_with_min_lr 'min_lr_ratio = 0.1' "${warm[@]}"
    panel cosine_with_restarts 'num_cycles = 3' "${warm[@]}" --scheduler.num_cycles 3
    panel polynomial 'power = 2' "${warm[@]}" --scheduler.power 2
    panel inverse_sqrt '' "${warm[@]}"
    panel wsd 'decay_ratio = 0.2' "${warm[@]}" --scheduler.decay_ratio 0.2
    panel one_cycle 'pct_start = 0.3'
    panel reduce_on_plateau 'no reduction yet' "${warm[@]}"
} >"$scratch/panels"

total_width=$((gap + (width + gap) * columns))
total_height=$((gap + (height + gap) * ((n + columns - 1) / columns)))
note_x=$((gap + (width + gap) * (n % columns) + 34)) note_y=$((gap + (height + gap) * (n / columns) + 62))
{
    printf '<svg xmlns="http://www.w3.org/2000/svg" class="plot" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="the eleven schedules">\n' \
        "$total_width" "$total_height" "$total_width" "$total_height"
    cat "$scratch/style"
    printf '<rect width="100%%" height="100%%" fill="var(--card)"/>\n'
    cat "$scratch/panels"
    line=0
    while IFS= read -r text; do
        printf '<text class="l" x="%d" y="%d">%s</text>\n' "$note_x" $((note_y + 19 * line)) "$text"
        line=$((line + 1))
    done <<'NOTE'
across: optimizer steps, of 400
up: rate, with a base rate of 1
warm-up: 40 steps, where there is one
NOTE
    printf '</svg>\n'
} >schedules.svg
