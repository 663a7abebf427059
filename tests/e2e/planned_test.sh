#!/usr/bin/env bash
# What is planned for a device is what is allocated there, to the byte: parameters, arenas, inputs, tables, what
# libraries work in, gradients, masters and moments. On the driver of the tests, which runs no kernels.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
number() { sed -nE "s/.*\"$1\": ([0-9]+).*/\1/p" "$dir/json" | head -n 1; }

while read -r family recompute; do
  if ! "$MOEC" compile "$MOEC_SOURCE/tests/data/$family/model.onnx" --target cuda --train --recompute "$recompute" \
    -o "$dir/exe" 2>"$dir/err"; then
    grep -q "expected NVIDIA's run-time compiler" "$dir/err" || fail "$(cat "$dir/err")"
    echo "skipped: no NVRTC"
    exit 77
  fi
  for mode in forward train step; do
    LD_LIBRARY_PATH=$MOEC_BUILD/fake "$dir/exe" bench --weights "$MOEC_SOURCE/tests/data/$family" --dim batch=3 \
      --dim seq=40 --mode $mode --steps 2 --json "$dir/json" >"$dir/out" || fail "$family: $(tail -n 1 "$dir/out")"
    planned=$(number planned_bytes) peak=$(number device_peak_bytes)
    [ "$peak" -gt 0 ] && [ "$planned" -eq "$peak" ] ||
      fail "$family, recompute $recompute, $mode: planned $planned bytes, allocated $peak"
  done
done <<'END'
qwen3_moe none
gpt_oss block
END
