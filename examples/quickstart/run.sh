#!/usr/bin/env bash
# The quick start: trains the model of run.toml on this checkout, prints a sample, and leaves a Hugging
# Face folder in out/quickstart/model. `./dev quickstart` builds first and then runs this.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
lathe=build/bin/lathe

rm -rf out/quickstart
printf '\n== the plan, before anything runs: lathe plan examples/quickstart/run.toml\n'
"$lathe" plan examples/quickstart/run.toml | head -n 8
printf '\n== training: lathe train examples/quickstart/run.toml\n'
"$lathe" train examples/quickstart/run.toml "$@"
latest=out/quickstart/$(cat out/quickstart/latest)
ln -sfn "$(basename "$latest")" out/quickstart/model
printf '\n== a sample: lathe generate out/quickstart --prompt "static lathe_status "\n'
"$lathe" generate out/quickstart --prompt 'static lathe_status ' --max-new-tokens 96 --temperature 0.7 --top-k 50 --seed 7
printf '\n== done. A Hugging Face folder: out/quickstart/model\n'
ls -1 out/quickstart/model/
printf '\nAnother optimizer is another word:\n'
printf '  build/bin/lathe train examples/quickstart/run.toml --optimizer.name muon --optimizer.lr 0.02 --checkpoint.dir out/muon\n'
