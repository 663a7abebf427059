#!/usr/bin/env bash
# --embed-weights: the executable needs no other file.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$MOEC" import tests/data/mixtral -o "$dir/model.onnx" --init 3
"$MOEC" compile "$dir/model.onnx" -o "$dir/linked" --target cpu
"$MOEC" compile "$dir/model.onnx" -o "$dir/whole" --target cpu --embed-weights
"$dir/linked" bench --dim batch=1 --dim seq=4 --steps 1 > /dev/null
mkdir "$dir/elsewhere"
mv "$dir/linked" "$dir/whole" "$dir/elsewhere"
cd "$dir/elsewhere"
./whole bench --dim batch=1 --dim seq=4 --steps 1 > /dev/null
if ./linked bench --dim batch=1 --dim seq=4 --steps 1 > log 2>&1; then
  echo "FAIL: the executable without its weights ran" && exit 1
fi
grep -q "model.safetensors" log || { echo "FAIL: the missing file is not named: $(cat log)" && exit 1; }
[ "$(./whole info | grep -c "model.safetensors")" -eq 0 ] || { echo "FAIL: info names a weights file" && exit 1; }
echo "embed: the executable runs alone"
