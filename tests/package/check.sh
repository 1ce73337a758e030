#!/usr/bin/env bash
# check.sh BUILD: installs a build, moves it elsewhere, and uses it from outside the source tree:
# the command, pkg-config, find_package(lathe), and a plugin made by `lathe plugin new`.
set -euo pipefail
build=$(cd "$1" && pwd)
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset LATHE_PLUGIN_PATH || true

cmake --install "$build" --prefix "$dir/first" >"$dir/install.log"
mv "$dir/first" "$dir/moved"
root=$dir/moved
cd "$dir"

"$root/bin/lathe" --version
"$root/bin/lathe" ls
for file in share/bash-completion/completions/lathe share/zsh/site-functions/_lathe \
    share/fish/vendor_completions.d/lathe.fish share/man/man1/lathe-train.1 share/man/man5/lathe.toml.5; do
    [ -s "$root/$file" ] || { echo "not installed: $file" >&2; exit 1; }
done

# C programs against the library, by pkg-config.
cat >version.c <<'C'
#include <stdio.h>
#include <lathe/plugin.h>
const char *lathe_version(void);
int main(void) { return puts(lathe_version()) < 0 || LATHE_ABI_MAJOR != 1; }
C
export PKG_CONFIG_PATH="$root/lib/pkgconfig"
# shellcheck disable=SC2046
cc version.c $(pkg-config --cflags --libs lathe) -Wl,-rpath,"$root/lib" -o version
./version | grep -qxF "$(pkg-config --modversion lathe)"

# A plugin of every kind that has a template.
for template in "$root"/share/lathe/plugin_template/*/; do
    kind=$(basename "$template")
    "$root/bin/lathe" plugin new "$kind" "mine_$kind"
    cmake -S "mine_$kind" -B "mine_$kind/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$root" \
        -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" >"$dir/$kind.log"
    cmake --build "mine_$kind/build" >>"$dir/$kind.log" || { cat "$dir/$kind.log"; exit 1; }
    so=$(find "mine_$kind/build" -name "mine_$kind.so")
    "$root/bin/lathe" plugin check "$so"
    ctest --test-dir "mine_$kind/build" --output-on-failure >"$dir/$kind.log" || { cat "$dir/$kind.log"; exit 1; }
    LATHE_PLUGIN_PATH="$dir/$(dirname "$(dirname "$so")")" "$root/bin/lathe" show "$kind/mine_$kind" >/dev/null
done
# The plugin of a third party trains.
mkdir corpus
for i in $(seq 200); do echo "line $i of a text that a small model can learn by heart"; done >corpus/text.txt
cat >run.toml <<'TOML'
[model]
model_type = "llama"
hidden_size = 32
intermediate_size = 64
num_hidden_layers = 1
num_attention_heads = 2
[data]
datasets = [{ path = "corpus/text.txt", type = "text" }]
seq_len = 32
[optimizer]
name = "mine_optimizer"
lr = 0.1
[train]
max_steps = 5
micro_batch_size = 2
[checkpoint]
dir = "out"
TOML
LATHE_PLUGIN_PATH=$dir/mine_optimizer/build/plugins "$root/bin/lathe" train run.toml

# An adapter, a stage, a reward and a renderer of examples/; adapter and stage, composed of graph ops, train a few steps, and
# so does a model on what the renderer writes.
for i in $(seq 20); do
    echo "{\"prompt\": \"line $i\", \"chosen\": \" of a text by heart\", \"rejected\": \" of a model that\"}"
done >corpus/pairs.jsonl
for example in ia3:adapter orpo:stage ranking:stage repetition:reward human_assistant:renderer; do
    name=${example%:*} kind=${example#*:}
    cmake -S "$source/examples/$name" -B "$name" -DCMAKE_PREFIX_PATH="$root" \
        -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" >"$dir/$name.log"
    cmake --build "$name" >>"$dir/$name.log" || { cat "$dir/$name.log"; exit 1; }
    "$root/bin/lathe" plugin check "$name/plugins/$kind/$name.so"
done
LATHE_PLUGIN_PATH=$dir/ia3/plugins "$root/bin/lathe" train run.toml --optimizer.name adamw --optimizer.lr 0.01 \
    --adapter.name ia3 --checkpoint.dir out_ia3
LATHE_PLUGIN_PATH=$dir/orpo/plugins "$root/bin/lathe" train run.toml --optimizer.name adamw --optimizer.lr 0.01 \
    --stage.name orpo --data.datasets '[{ path = "corpus/pairs.jsonl" }]' --train.micro_batch_size 4 \
    --checkpoint.dir out_orpo
for i in $(seq 20); do
    echo "{\"prompt\": \"line $i\", \"completions\": [\" of a text by heart\", \" of a text\", \" of a model that\"]}"
done >corpus/groups.jsonl
LATHE_PLUGIN_PATH=$dir/ranking/plugins "$root/bin/lathe" train run.toml --optimizer.name adamw --optimizer.lr 0.01 \
    --stage.name ranking --data.datasets '[{ path = "corpus/groups.jsonl" }]' --train.micro_batch_size 2 \
    --checkpoint.dir out_ranking
for i in $(seq 20); do
    echo "{\"messages\": [{\"role\": \"user\", \"content\": \"line $i\"}, {\"role\": \"assistant\", \"content\": \"of a text\"}]}"
done >corpus/talk.jsonl
{ printf '[model]\npath = "out/step-00000005"\n' && sed -n '/^\[data\]/,$p' run.toml; } >talk.toml
LATHE_PLUGIN_PATH=$dir/human_assistant/plugins "$root/bin/lathe" train talk.toml --optimizer.name adamw --optimizer.lr 0.01 \
    --stage.name sft --data.datasets '[{ path = "corpus/talk.jsonl" }]' --data.seq_len 256 --renderer.name human_assistant \
    --checkpoint.dir out_human
echo '[{"role": "user", "content": "line 1"}]' >talk.json
LATHE_PLUGIN_PATH=$dir/human_assistant/plugins "$root/bin/lathe" generate out_human --messages talk.json --renderer.name human_assistant \
    --max-new-tokens 4
echo '{"messages": [{"role": "user", "content": "line 1"}], "tools": [{"type": "function", "function": {"name": "f"}}]}' >tools.json
if LATHE_PLUGIN_PATH=$dir/human_assistant/plugins "$root/bin/lathe" chat-template out/step-00000005 --show tools.json \
    --renderer human_assistant >refused 2>&1; then exit 1; fi
grep -qF 'message 1 (role "user"): this form has no text for tools' refused

# A program outside the tree: rollouts and steps with the C API, on the loss of a stage with inputs.
cmake -S "$source/examples/policy" -B policy -DCMAKE_PREFIX_PATH="$root" -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" >"$dir/policy.log"
cmake --build policy >>"$dir/policy.log" || { cat "$dir/policy.log"; exit 1; }
"$root/bin/lathe" plugin check policy/plugins/stage/policy.so
LATHE_PLUGIN_PATH=$dir/policy/plugins policy/rollout "$source/examples/policy/run.toml" 30 1 >rewards
tail -n 1 rewards
awk 'NR == 1 { first = $4 } END { exit !($4 > first + 0.3) }' rewards

# Programs that link liblathe alone: one fine-tunes with the primitives, one answers with what it saved, one merges and quantizes that.
cmake -S "$source/examples/embed" -B embed -DCMAKE_PREFIX_PATH="$root" -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" >"$dir/embed.log"
cmake --build embed >>"$dir/embed.log" || { cat "$dir/embed.log"; exit 1; }
cp -r "$(readlink -f out/step-00000005)" base
echo "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}\n{% endif %}{% endfor %}" >base/chat_template.jinja
sed 's#MODEL#base#' "$source/examples/embed/run.toml" >embed.toml
embed/finetune embed.toml corpus/talk.jsonl 8 out_embed >steps
awk '{ print } NR == 1 { first = $4 } { last = $4 } END { exit !(NR == 8 && last < first) }' steps
# Neither a wrong number nor a folder that is there costs a training, and a full disk is no success.
for arguments in "abc out_never" "8 out_embed"; do
    # shellcheck disable=SC2086 # two words
    if embed/finetune embed.toml corpus/talk.jsonl $arguments >steps 2>>embed.err; then exit 1; fi
    [ ! -s steps ] || { echo "finetune $arguments trained"; exit 1; }
done
grep -q 'STEPS is "abc"; expected a whole number' embed.err
grep -q 'out_embed is there already' embed.err
if embed/chat out_embed "line 1" >/dev/full 2>embed.err; then exit 1; fi
grep -q 'standard output cannot be written' embed.err
embed/chat out_embed "line 1" | head -c 200
embed/ship out_embed corpus/text.txt shipped >made
grep -q '^shipped/int8: [0-9.]* bits, perplexity [0-9.]*, before [0-9.]*$' made
"$root/bin/lathe" merge out_embed -o merged >/dev/null
cmp merged/model.safetensors shipped/merged/model.safetensors

# An architecture that Lathe does not know, with a figure and an auxiliary loss of its own.
cp -r "$source/examples/models/braid" braid
cmake -S braid -B braid/build -DCMAKE_PREFIX_PATH="$root" -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" >"$dir/braid.log"
cmake --build braid/build >>"$dir/braid.log" || { cat "$dir/braid.log"; exit 1; }
"$root/bin/lathe" plugin check braid/build/plugins/model/braid.so
sed -e 's/"llama"/"braid"/' -e 's/mine_optimizer/adamw/; s/"out"/"out_braid"/' -e 's/^lr = .*/lr = 1e-3/' run.toml >braid.toml
LATHE_PLUGIN_PATH=$dir/braid/build/plugins "$root/bin/lathe" train braid.toml
grep -q '"hidden_square"' out_braid/metrics.jsonl
LATHE_PLUGIN_PATH=$dir/braid/build/plugins "$root/bin/lathe" generate out_braid --prompt line --max-new-tokens 4

# An op that Lathe does not have, and an adapter that uses it.
cmake -S "$source/examples/ops" -B ops -DCMAKE_PREFIX_PATH="$root" -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" >"$dir/ops.log"
cmake --build ops >>"$dir/ops.log" || { cat "$dir/ops.log"; exit 1; }
export LATHE_PLUGIN_PATH=$dir/ops/plugins
"$root/bin/lathe" plugin check op/squared_relu
"$root/bin/lathe" plugin check adapter/parallel
"$root/bin/lathe" ls op | grep -q '^op/squared_relu '
"$root/bin/lathe" show op/squared_relu | grep -qF 'api->op(graph, "squared_relu", attributes, ..)'
for precision in fp32 bf16; do
    "$root/bin/lathe" train run.toml --optimizer.name adamw --optimizer.lr 0.01 --adapter.name parallel \
        --train.precision $precision --train.recompute layer --checkpoint.dir "out_ops_$precision"
    grep -q '"squared_relu"' "out_ops_$precision/step-00000005/manifest.json"
done
"$root/bin/lathe" plan run.toml --optimizer.name adamw --adapter.name parallel --graph graph.txt >/dev/null
grep -q ' = squared_relu_*[a-z]*(' graph.txt
unset LATHE_PLUGIN_PATH

# A model with an op that keeps a state while text is generated.
cp -r "$source/examples/models/ripple" ripple
cmake -S ripple -B ripple/build -DCMAKE_PREFIX_PATH="$root" -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" >"$dir/ripple.log"
cmake --build ripple/build >>"$dir/ripple.log" || { cat "$dir/ripple.log"; exit 1; }
"$root/bin/lathe" plugin check ripple/build/plugins/model/ripple.so
sed -e 's/"llama"/"ripple"/' -e 's/mine_optimizer/adamw/; s/"out"/"out_ripple"/' -e 's/^lr = .*/lr = 1e-3/' run.toml >ripple.toml
LATHE_PLUGIN_PATH=$dir/ripple/build/plugins "$root/bin/lathe" train ripple.toml
LATHE_PLUGIN_PATH=$dir/ripple/build/plugins "$root/bin/lathe" generate out_ripple --prompt line --max-new-tokens 4

# cmake --install: into the home folder without a prefix, beside the built-in plugins with Lathe's own. (A home of the
# test's own, before the plugin is configured.)
export HOME=$dir/home
mkdir "$HOME"
cmake -S mine_scheduler -B installed -DCMAKE_PREFIX_PATH="$root" >"$dir/install.log"
cmake --build installed >>"$dir/install.log"
cmake --install installed >>"$dir/install.log"
[ -f "$HOME/.local/lib/lathe/plugins/scheduler/mine_scheduler.so" ]
"$root/bin/lathe" ls scheduler | grep -q '^scheduler/mine_scheduler '
rm -r "$HOME/.local"
cmake --install installed --prefix "$root" >>"$dir/install.log"
"$root/bin/lathe" ls scheduler | grep -q '^scheduler/mine_scheduler '
echo "package: installed, moved, and built against"
