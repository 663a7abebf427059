#!/usr/bin/env bash
# EXE train as a user meets it: a small model learns a text; training that was stopped, or killed, goes on as if it had
# not been; what is wrong is one line. Then examples/train.c.
set -uo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bad=0
fail() { echo "FAILED: $*"; bad=1; }

# done_ COMMAND...: succeeds, its output in $dir/log.
done_() { "$@" >"$dir/log" 2>&1 || { fail "status $? of: $*"; cat "$dir/log"; }; }

# refused WORD COMMAND...: exit status 2, one line on stderr with WORD in it.
refused() {
  local word=$1 status=0
  shift
  timeout 60 "$@" >"$dir/out" 2>"$dir/err" || status=$?
  [ $status -eq 2 ] || fail "status $status of: $* ($(head -c 300 "$dir/err"))"
  [ "$(wc -l <"$dir/err")" -eq 1 ] && grep -q '^moec: error: ' "$dir/err" || fail "expected one line: $(cat "$dir/err")"
  grep -qF -- "$word" "$dir/err" || fail "'$word' is not in: $(cat "$dir/err")"
}

# waits_for COMMAND...: until it succeeds, for a minute at most.
waits_for() { for _ in $(seq 1200); do "$@" 2>"$dir/err" && break; sleep 0.05; done; }

# below A B: numbers.
below() { awk -v a="$1" -v b="$2" 'BEGIN {exit !(a < b)}'; }

text=$dir/text.txt model=$dir/model
cat "$MOEC_SOURCE/README.md" "$MOEC_SOURCE/docs/ir.md" >"$text"
mkdir "$dir/config" "$dir/hub"
cp "$MOEC_SOURCE/tests/data/qwen3_moe/config.json" "$dir/config/"
sed 's/"vocab_size": 199/"vocab_size": 256/; s/"num_hidden_layers": 3/"num_hidden_layers": 2/' \
  "$dir/config/config.json" >"$dir/hub/config.json"
"$MOEC" import "$dir/hub" -o "$dir/hub/model.onnx" --init 7 || fail "import"
"$MOEC" compile "$dir/hub/model.onnx" -o "$model" --weights "$dir/hub" --target cpu --train --recompute block ||
  fail "compile"
export MOEC_WEIGHTS=$dir/hub MOEC_THREADS=2

echo "== learning"
done_ "$model" train --data "$text" --steps 60 --batch 4 --seq 64 --lr 1e-2 --warmup 5 --save "$dir/learned" \
  --log-every 30
cat "$dir/log"
[ "$(grep -c '^step ' "$dir/log")" -eq 3 ] || fail "expected lines of steps 1, 30 and 60"
read -r loss entropy < <(sed -nE 's/^loss ([0-9.]+), .* entropy of the text ([0-9.]+)$/\1 \2/p' "$dir/log")
below "${loss:-9}" "${entropy:-0}" || fail "the loss, ${loss:-none}, is not below the unigram entropy, ${entropy:-none}"
[ "$(wc -l <"$dir/learned/loss.csv")" -eq 61 ] || fail "expected a row a step in loss.csv"
grep -q '</svg>' "$dir/learned/loss.svg" || fail "no curve"

echo "== the saved weights"
printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<i8', 'fortran_order': False, 'shape': (1, 4), }" >"$dir/ids.npy"
for c in 84 104 101 32; do printf '%b' "\\x$(printf %02x $c)\\0\\0\\0\\0\\0\\0\\0" >>"$dir/ids.npy"; done
done_ "$MOEC" import "$dir/learned/weights" -o "$dir/again.onnx"
done_ "$MOEC" compile "$dir/again.onnx" -o "$dir/again" --weights "$dir/learned/weights" --target cpu --train
done_ env MOEC_WEIGHTS="$dir/learned/weights" "$dir/again" train --data "$text" --steps 1 --batch 4 --seq 64 \
  --save "$dir/first"
below "$(awk -F, 'NR == 2 {print $2}' "$dir/first/loss.csv")" "$entropy" ||
  fail "the saved weights have forgotten the text"

echo "== going on"
options=(--data "$text" --batch 2 --seq 32 --accumulate 2 --warmup 15 --seed 3 --lr 0.005 --beta2 0.98 --clip 0.7)
same() { # FOLDER: as $dir/once
  cmp "$dir/once/loss.csv" "$1/loss.csv" && cmp "$dir/once/state.safetensors" "$1/state.safetensors" &&
    cmp "$dir/once/weights/model.safetensors" "$1/weights/model.safetensors" ||
      fail "$1 is not as a training without a break"
}
done_ "$model" train "${options[@]}" --steps 20 --save "$dir/once"
done_ "$model" train "${options[@]}" --steps 10 --save "$dir/twice"
[ "$(wc -l <"$dir/twice/loss.csv")" -eq 11 ] || fail "expected ten steps"
done_ "$model" train --save "$dir/twice" --resume --steps 20 --threads 1
same "$dir/twice"

echo "== Ctrl-C"
# interrupted SIGNAL FOLDER: after the first step at the earliest.
interrupted() {
  : >"$dir/log"
  # a shell without a terminal makes its background jobs ignore Ctrl-C
  env --default-signal=INT "$model" train "${options[@]}" --steps 1000000 --save "$2" --log-every 1 >"$dir/log" 2>&1 &
  local pid=$!
  waits_for grep -q '^step' "$dir/log"
  kill "-$1" $pid
  wait $pid || fail "SIG$1: status $?"
  grep -q '^stopped after step [0-9]* of 1000000; saved in .*--resume goes on$' "$dir/log" ||
    fail "$(tail -n 3 "$dir/log")"
  made=$(sed -nE 's/^stopped after step ([0-9]+) .*/\1/p' "$dir/log")
  [ "$(wc -l <"$2/loss.csv")" -eq $((made + 1)) ] || fail "expected a row for each of $made steps"
}
interrupted TERM "$dir/term"
interrupted INT "$dir/stopped"
done_ "$model" train --save "$dir/stopped" --resume --steps $((made + 2))
[ "$(wc -l <"$dir/stopped/loss.csv")" -eq $((made + 3)) ] || fail "expected two steps more"

echo "== a kill in the middle"
"$model" train "${options[@]}" --steps 1000000 --save "$dir/killed" --save-every 3 >"$dir/log" 2>&1 &
pid=$!
waits_for test -e "$dir/killed/state.safetensors"
kill -KILL $pid
wait $pid 2>"$dir/err"
rows=$(wc -l <"$dir/killed/loss.csv")
[ -e "$dir/killed/state.safetensors" ] || fail "no state after three steps"
if [ "$rows" -le 19 ]; then # it was killed soon enough to be compared
  done_ "$model" train --save "$dir/killed" --resume --steps 20
  cmp "$dir/once/loss.csv" "$dir/killed/loss.csv" || fail "the killed training went on otherwise"
else
  done_ "$model" train --save "$dir/killed" --resume --steps $((rows + 20))
fi

echo "== a terminal"
script -qec "'$model' train --data '$text' --steps 3 --batch 2 --seq 32 --optimizer sgd --lr 0.1" \
  /dev/null >"$dir/log" 2>&1
grep -q $'\r.*\[=*\]  3/3  loss [0-9.]*  [0-9]* tokens/s  0:00 left' "$dir/log" || fail "no bar: $(cat -v "$dir/log")"

echo "== what is wrong"
printf 'smile \xf0\x9f\x98\x80 %080d' 0 >"$dir/accents.txt"
"$MOEC" compile "$MOEC_SOURCE/tests/data/qwen3_moe/model_train.onnx" -o "$dir/small" --target cpu --train ||
  fail "compile"
refused "expected --data FILE" "$model" train --steps 3
refused "expected --steps N" "$model" train --data "$text"
refused "--steps: expected an integer of at least 1" "$model" train --data "$text" --steps 0
refused "--lr: expected a number" "$model" train --data "$text" --steps 3 --lr fast
refused "beta1" "$model" train --data "$text" --steps 3 --beta1 1
refused "adamw or sgd" "$model" train --data "$text" --steps 3 --optimizer lion
refused "--beta2 means nothing" "$model" train --data "$text" --steps 3 --optimizer sgd --beta2 0.9
refused "expected --save DIR" "$model" train --data "$text" --steps 3 --resume
refused "none.txt" "$model" train --data "$dir/none.txt" --steps 3
refused "at least --seq 128 bytes" "$model" train --data "$dir/accents.txt" --steps 3
refused "byte 6 is 240: expected bytes below 199" "$dir/small" train --data "$dir/accents.txt" --steps 3 --seq 16
refused "expected --resume" "$model" train --data "$text" --steps 30 --save "$dir/once"
refused "more than the 20 steps" "$model" train --save "$dir/once" --resume
refused "train.json" "$model" train --save "$dir/empty" --resume
refused "expected the text" "$model" train --data "$MOEC_SOURCE/README.md" --save "$dir/once" --resume --steps 30
refused "optimizer" "$model" train --save "$dir/once" --resume --steps 30 --optimizer sgd
refused "not finite" "$model" train --data "$text" --steps 30 --batch 2 --seq 32 --optimizer sgd --lr 1e30 --clip 0
sed -i 5d "$dir/twice/loss.csv"
refused "none for step 4" "$model" train --save "$dir/twice" --resume --steps 30

echo "== examples/train.c"
done_ "$MOEC_BUILD/example-train" "$model" "$text" 60 "$dir/example"
tail -n 2 "$dir/log"
read -r loss entropy < <(sed -nE 's/^60 steps, loss ([0-9.]+), .* ([0-9.]+)$/\1 \2/p' "$dir/log")
below "${loss:-9}" "${entropy:-0}" || fail "the example's loss, ${loss:-none}, is not below ${entropy:-none}"
[ -e "$dir/example/model.safetensors" ] && [ -e "$dir/example/config.json" ] &&
  [ -e "$dir/example.state.safetensors" ] ||
  fail "the example did not save"

[ $bad -eq 0 ] && echo "train: all as expected"
exit $bad
