#!/usr/bin/env bash
# Kernels are compiled once and reused by every block: 3 and 48 layers of one architecture give the
# same kernels, byte for byte, and two functions called as often as there are layers.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/config"
cp "$MOEC_SOURCE/tests/data/qwen3_moe/config.json" "$dir/config/"
for layers in 3 48; do
  "$MOEC" import "$dir/config" -o "$dir/m$layers.onnx" --init 7 --set num_hidden_layers=$layers
  "$MOEC" compile "$dir/m$layers.onnx" -o "$dir/exe$layers" --target cpu --dump-dir "$dir/dump$layers"
  for f in attention0 moe0; do
    calls=$(grep -c "call(.*fn = @\"$f\"" "$dir/dump$layers"/*-fuse.ir)
    [ "$calls" -eq $layers ] || { echo "FAILED: expected $layers calls of $f, got $calls"; exit 1; }
  done
done
cmp "$dir/dump3/kernels.c" "$dir/dump48/kernels.c"
echo "layers: the same kernels for 3 and 48 layers"
