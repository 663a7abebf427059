#!/usr/bin/env bash
# The planned memory of training: with --recompute block a layer costs the activations at its two span boundaries and
# its routes, no more; without, everything its backward reads.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() {
  echo "FAIL: $*" >&2
  exit 1
}

batch=4 seq=128 hidden=64 experts=8 slots=2 # hidden, experts, slots: tests/data/qwen3_moe/config.json
tokens=$((batch * seq))

# peak LAYERS MODE: bytes of the train program's arena
peak() {
  "$MOEC" import tests/data/qwen3_moe -o "$dir/model.onnx" --init 1 --set num_hidden_layers="$1"
  "$MOEC" compile "$dir/model.onnx" -o "$dir/exe" --target cpu --train --recompute "$2"
  "$dir/exe" info --dim batch=$batch --dim seq=$seq > "$dir/info"
  sed -n 's/^train peak *\([0-9]*\) .*/\1/p' "$dir/info"
}

few=$(peak 8 block)
many=$(peak 48 block)
saved=$(peak 8 none)
[ -n "$few" ] && [ -n "$many" ] && [ -n "$saved" ] || fail "info gives no train peak"
slope=$(((many - few) / 40))

# two boundaries of f32; experts chosen (i64), weights (f32), both orders (i32), offsets; buffers at multiples of 64
boundaries=$((2 * tokens * hidden * 4))
routes=$((tokens * slots * (8 + 4 + 4 + 4) + 4 * (experts + 1)))
allowed=$((boundaries + routes + 6 * 64))
echo "train peak: 8 layers $few bytes ($saved without recompute), 48 layers $many, $slope a layer; allowed $allowed"
[ "$slope" -le "$allowed" ] || fail "a layer costs $slope bytes, expected at most $allowed"
[ "$slope" -ge "$boundaries" ] || fail "a layer costs $slope bytes: its boundaries alone are $boundaries"
[ $((few * 2)) -le "$saved" ] || fail "8 layers: expected at most half of $saved bytes with recompute, got $few"
