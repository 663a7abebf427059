#!/usr/bin/env bash
# The same model and options give the same bytes: compiled twice, from different folders, under
# different names of the folder, user environment and address layout.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for family in qwen3_moe gpt_oss; do
  mkdir -p "$dir/a" "$dir/some/other place"
  cp "$MOEC_SOURCE/tests/data/$family/model.onnx" "$dir/a/model.onnx"
  cp "$MOEC_SOURCE/tests/data/$family/model.onnx" "$dir/some/other place/model.onnx"
  (cd "$dir/a" && "$MOEC" compile model.onnx -o first --target cpu --dump-dir dump)
  (cd "$dir/some" && LC_ALL=C TZ=Asia/Tokyo TMPDIR=$dir/some \
    "$MOEC" compile "other place/model.onnx" -o ../second --target cpu)
  cmp "$dir/a/first" "$dir/second"
  [ -s "$dir/a/dump/kernels.c" ] && [ -s "$dir/a/dump/00-import.ir" ]
  "$MOEC" inspect "$dir/a/model.onnx" --format json >"$dir/one.json"
  "$MOEC" inspect "$dir/second" --format json >"$dir/two.json"
  cmp "$dir/one.json" "$dir/two.json"
  rm -rf "$dir/a" "$dir/some"
done
echo "determinism: equal bytes"
