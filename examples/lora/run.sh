#!/bin/sh
# Trains one adapter in two steps, merges it into the model, and writes a file for llama.cpp and Ollama.
# Arguments are settings for both steps: ./run.sh --train.max_steps 4
set -eu
cd "$(dirname "$0")"
lathe pipeline pipe.toml "$@"
lathe merge model out/dpo -o out/merged
lathe convert out/merged -o out/model.gguf --type q8_0
lathe lineage out/merged
