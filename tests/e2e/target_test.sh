#!/usr/bin/env bash
# Without --target: for the processor where no CUDA device is seen, else for that.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
model=$MOEC_SOURCE/tests/data/qwen3_moe/model.onnx

# No driver, or one that hides what it has.
CUDA_VISIBLE_DEVICES= "$MOEC" compile "$model" -o "$dir/exe"
grep -q -- "--target cpu" "$dir/exe" || fail "expected the cpu target"

# The driver of the tests has one device. Without NVRTC the choice shows as an error.
code=0
LD_LIBRARY_PATH=$MOEC_BUILD/fake MOEC_NVRTC=$dir/none.so "$MOEC" compile "$model" -o "$dir/none" 2>"$dir/err" || code=$?
[ $code -eq 2 ] && grep -q "cannot load NVRTC" "$dir/err" || fail "expected the cuda target: $(cat "$dir/err")"
LD_LIBRARY_PATH=$MOEC_BUILD/fake "$MOEC" compile "$model" --target cpu -o "$dir/exe"
grep -q -- "--target cpu" "$dir/exe" || fail "expected the target that was asked for"
