#!/usr/bin/env bash
# Weights made from a seed when the executable is opened are those that the same seed writes to a file, whatever their
# layout: results and what training makes of them are the same bytes.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
export MOEC_THREADS=2
printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<i8', 'fortran_order': False, 'shape': (1, 4), }" >"$dir/ids.npy"
for c in 84 104 101 32; do printf '%b' "\\x$(printf %02x $c)\\0\\0\\0\\0\\0\\0\\0" >>"$dir/ids.npy"; done

# result HOW FAMILY [OPTION...]: of FAMILY imported with OPTIONs, to HOW.npy
result() {
  "$MOEC" import "$MOEC_SOURCE/tests/data/$2" -o "$dir/$1.onnx" "${@:3}"
  "$MOEC" compile "$dir/$1.onnx" -o "$dir/$1" --target cpu
  "$dir/$1" run --input input_ids="$dir/ids.npy" --output logits="$dir/$1.npy" >/dev/null
}

for family in deepseek_v3 gpt_oss; do
  result file $family --init 11
  result made $family --init 11 --seeded
  [ ! -e "$dir/made.safetensors" ] || fail "$family: a file was written"
  cmp "$dir/file.npy" "$dir/made.npy" || fail "$family: other weights than in the file"
done
result other gpt_oss --init 12 --seeded
if cmp -s "$dir/other.npy" "$dir/made.npy"; then fail "the seed does not count"; fi

# training goes the same way, and the weights can be saved
for how in file made; do
  mkdir "$dir/$how.d"
  seeded=()
  [ $how = file ] || seeded=(--seeded)
  "$MOEC" import "$MOEC_SOURCE/tests/data/qwen3_moe" -o "$dir/$how.d/model.onnx" --init 3 --set vocab_size=256 \
    "${seeded[@]}"
  "$MOEC" compile "$dir/$how.d/model.onnx" -o "$dir/$how.d/model" --target cpu --train
  "$dir/$how.d/model" train --data "$MOEC_SOURCE/README.md" --steps 3 --batch 2 --seq 16 --save "$dir/$how.saved" \
    >"$dir/log" || fail "train: $(cat "$dir/log")"
  sed 's/"vocab_size": 199/"vocab_size": 256/' "$MOEC_SOURCE/tests/data/qwen3_moe/config.json" \
    >"$dir/$how.saved/weights/config.json"
  "$MOEC" import "$dir/$how.saved/weights" -o "$dir/$how.saved/weights/again.onnx"
  "$MOEC" compile "$dir/$how.saved/weights/again.onnx" -o "$dir/$how.saved/again" --target cpu
  "$dir/$how.saved/again" run --weights "$dir/$how.saved/weights" --input input_ids="$dir/ids.npy" \
    --output logits="$dir/$how.npy" >/dev/null
done
cmp "$dir/file.npy" "$dir/made.npy" || fail "training: other weights were saved"

# nothing to embed is no error; a seed is needed
"$MOEC" inspect "$dir/made" >"$dir/report" || fail "inspect"
"$MOEC" compile "$dir/made.onnx" -o "$dir/embedded" --target cpu --embed-weights
"$dir/embedded" bench --dim batch=1 --dim seq=8 --steps 1 >/dev/null || fail "--embed-weights"
if "$MOEC" import "$MOEC_SOURCE/tests/data/mixtral" -o "$dir/x.onnx" --seeded 2>"$dir/log"; then fail "no seed"; fi
grep -q "^moec: error: --seeded needs --init SEED$" "$dir/log" || fail "$(cat "$dir/log")"
echo "seeded: as from a file"
