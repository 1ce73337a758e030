#!/usr/bin/env bash
# make_manual.sh LATHE OUT: writes the manual pages and completion scripts that the program LATHE prints.
#
#   OUT/man1/lathe.1, lathe-<command>.1   OUT/man5/lathe.toml.5   OUT/completion/{lathe,_lathe,lathe.fish}
set -euo pipefail
lathe=$1 out=$2
# Only the plugins of this build belong into its manual.
unset LATHE_PLUGIN_PATH
rm -rf "$out"
mkdir -p "$out/man1" "$out/man5" "$out/completion"
"$lathe" help --man >"$out/man1/lathe.1"
"$lathe" help --man run.toml >"$out/man5/lathe.toml.5"
while read -r first; do
    mapfile -t seconds < <("$lathe" --complete "$first" "" | grep -E '^[a-z]+$' || true)
    if "$lathe" help --man "$first" >"$out/man1/lathe-$first.1" 2>/dev/null; then
        continue
    fi
    rm -f "$out/man1/lathe-$first.1" # the first of two words
    for second in "${seconds[@]}"; do
        "$lathe" help --man "$first" "$second" >"$out/man1/lathe-$first-$second.1"
    done
done < <("$lathe" --complete "" | grep -v '^-')
"$lathe" completion bash >"$out/completion/lathe"
"$lathe" completion zsh >"$out/completion/_lathe"
"$lathe" completion fish >"$out/completion/lathe.fish"
