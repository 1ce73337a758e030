#!/usr/bin/env bash
# Failures of a training on two ranks, at random moments: a rank is killed, stopped, or slowed down, or the disk is full. Each
# time all ranks must end within parallel.deadline_seconds (a slow rank must not end them), and no checkpoint may be
# damaged; then the run goes on from the last one. In the end its weights and state must be those of a run that was
# never interrupted, byte for byte. Prints a table; exit 1 when something of this is not so.
#
#   tests/ranks/kills.sh LATHE [N] [SEED]        N failures (100)
#
# Needs Open MPI and, to fill a disk, the right to mount a small one; without it that failure is left out.
set -euo pipefail
lathe=$(realpath "$1") n=${2:-100} seed=${3:-1}
for program in mpirun pgrep; do
    command -v $program >/dev/null || { echo "kills.sh: there is no $program"; exit 77; }
done
RANDOM=$seed
deadline=3
grace=${KILLS_GRACE:-5} # seconds: the end of processes, on a busy machine
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_WAIT_POLICY=passive
work=$(mktemp -d)
small=$work/small launch=''
finish() {
    [ -z "$launch" ] || kill -KILL -- "-$launch" 2>/dev/null || true
    pkill -KILL -f "train $work/run.toml" 2>/dev/null || true
    umount -l "$small" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
mkdir "$small"
kinds=(kill stop slow disk)
mount -t tmpfs -o size=512m lathe-kills "$small" 2>/dev/null || { kinds=(kill stop slow) && echo "no disk is filled: mount is not allowed"; }

for ((i = 0; i < 400; i++)); do echo "the lathe turns a round piece of wood, number $((i * 7919 % 997))."; done >"$work/text.txt"
cat >"$work/run.toml" <<TOML
[model]
model_type = "llama"
hidden_size = 32
num_hidden_layers = 2
num_attention_heads = 4
intermediate_size = 64
vocab_size = 257
max_position_embeddings = 64
[data]
datasets = [{ path = "text.txt", type = "text" }]
seq_len = 32
[optimizer]
name = "adamw"
lr = 1e-4
[scheduler]
name = "constant"
[train]
precision = "fp32"
micro_batch_size = 2
seed = 7
threads = 1
max_steps = 1000000
[checkpoint]
every = 20
keep_last = 2
[parallel]
shard = "optimizer"
deadline_seconds = $deadline
[log]
progress = "off"
TOML

fail() { echo "kills.sh: failure $i ($kind): $1" >&2; tail -n 20 "$work/log" >&2; [ ! -e "$work/stacks" ] || grep -E '^(process|Thread|#)' "$work/stacks" >&2; exit 1; }

begin() { # SETTINGS...: of a training in the background, in a process group of its own
    set -m
    "$lathe" launch -n 2 "$work/run.toml" --checkpoint.dir "$small/out" "$@" >"$work/log" 2>&1 &
    launch=$!
    set +m
}

# Waits for the end of the launch; its exit code is in `code`.
await() {
    code=0
    wait "$launch" || code=$?
    launch=
}

ranks() { # the processes of the ranks, without those that a rank starts; mpirun and launch name the same file
    local pid parent
    for pid in $(pgrep -f "train $work/run.toml"); do
        parent=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null)
        [ "$(cat "/proc/$pid/comm" "/proc/${parent:-0}/comm" 2>/dev/null | paste -sd' ')" != "lathe mpirun" ] || echo "$pid"
    done
}

# Where ranks that do not end are.
stacks() {
    local pid
    for pid in $(ranks); do
        echo "process $pid"
        gdb -p "$pid" -batch -ex "thread apply all bt 16"
    done >"$work/stacks" 2>&1
}

now() { date +%s%3N; }
declare -A count=() worst=()
for ((i = 1; i <= n; i++)); do
    kind=${kinds[RANDOM % ${#kinds[@]}]}
    begin
    sleep "$((RANDOM % 3)).$(printf '%03d' $((RANDOM % 1000)))"
    mapfile -t pids < <(ranks)
    victim=${pids[${#pids[@]} > 0 ? RANDOM % ${#pids[@]} : 0]:-}
    begun=$(now)
    case $kind in
        kill) [ -z "$victim" ] || kill -KILL "$victim" 2>/dev/null || true ;;
        stop) [ -z "$victim" ] || kill -STOP "$victim" 2>/dev/null || true ;;
        slow) for ((k = 0; k < 4; k++)); do
            [ -z "$victim" ] || kill -STOP "$victim" 2>/dev/null || true
            sleep 0.3
            [ -z "$victim" ] || kill -CONT "$victim" 2>/dev/null || true
            sleep 0.1
        done ;;
        disk) head -c 1G /dev/zero >"$small/full" 2>/dev/null || true ;;
    esac
    [ -n "$victim" ] || kind=early # there is no rank yet: a signal comes while they start
    if [ "$kind" = slow ] || [ "$kind" = early ]; then # the run goes on, until it is asked to end
        kill -0 "$launch" 2>/dev/null || fail "the run ended"
        begun=$(now)
        kill -TERM "$launch"
    fi
    ( sleep $((deadline + grace + 20)); stacks; kill -KILL -- "-$launch" ) >/dev/null 2>&1 &
    guard=$!
    await
    took=$(($(now) - begun))
    kill "$guard" 2>/dev/null || true
    [ "$took" -le $(((deadline + grace) * 1000)) ] || fail "all ended $took ms later"
    [ "$code" != 0 ] || [ "$kind" = slow ] || [ "$kind" = early ] || fail "exit code 0"
    rm -f "$small/full" # `early` may have filled it
    [ ! -e "$small/out" ] || [ -z "$(ls "$small/out" 2>/dev/null | grep '^step-')" ] || "$lathe" checkpoint verify "$small/out" >"$work/verify" 2>&1 ||
        { cat "$work/verify"; fail "a damaged checkpoint"; }
    count[$kind]=$((${count[$kind]:-0} + 1))
    [ "$took" -le "${worst[$kind]:-0}" ] || worst[$kind]=$took
done

kind=end
begin
sleep 2
kill -TERM "$launch"
await
last=$(ls "$small/out" | grep '^step-' | sort | tail -n 1)
step=$((10#${last#step-}))
"$lathe" launch -n 2 "$work/run.toml" --checkpoint.dir "$work/whole" --train.stop_after "$step" >"$work/log" 2>&1 || fail "the uninterrupted run"
for file in model.safetensors state/optimizer.safetensors; do
    cmp "$small/out/$last/$file" "$work/whole/$last/$file" || fail "other bytes than those of an uninterrupted run"
done
printf '| failure | times | longest until all ended, ms |\n|---|---|---|\n'
for kind in "${!count[@]}"; do printf '| %s | %d | %d |\n' "$kind" "${count[$kind]}" "${worst[$kind]:-0}"; done
echo "$n failures on 2 ranks; after $step steps the bytes of an uninterrupted run"
