#!/usr/bin/env bash
# --target cuda without a GPU: what the compiler emits for every reference model with training, in f32 and in bf16, is
# taken by NVRTC, twice with the same result; in bf16 the experts' products compute their activation. Without NVRTC that
# is one clear line.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
data=$MOEC_SOURCE/tests/data

refused() { # TEXT ARGUMENT...: exit status 2, TEXT in one line, and no file
  local text=$1 code=0
  shift
  "$@" -o "$dir/none" 2>"$dir/err" || code=$?
  [ $code -eq 2 ] || fail "$*: expected exit status 2, got $code"
  [ "$(wc -l <"$dir/err")" -eq 1 ] && grep -q "^moec: error: .*$text" "$dir/err" || fail "$*: got $(cat "$dir/err")"
  [ ! -e "$dir/none" ] || fail "$*: left a file"
}
model=$data/qwen3_moe/model.onnx
MOEC_NVRTC=$dir/none.so refused "MOEC_NVRTC: cannot load NVRTC" "$MOEC" compile "$model" --target cuda
refused "expected cpu, cuda or cuda:sm_90a" "$MOEC" compile "$model" --target cuda:sm_10
refused "the cpu target computes in f32" "$MOEC" compile "$model" --target cpu --precision bf16
refused "expected f32 or bf16" "$MOEC" compile "$model" --target cuda --precision half

if ! "$MOEC" compile "$model" --target cuda -o "$dir/first" 2>"$dir/err"; then
  grep -q "expected NVIDIA's run-time compiler" "$dir/err" || fail "$(cat "$dir/err")"
  echo "skipped: no NVRTC"
  exit 77
fi
"$MOEC" compile "$model" --target cuda:sm_90a -o "$dir/second"
cmp "$dir/first" "$dir/second" || fail "two compilations differ"
grep -q "nvrtc [0-9.]* --gpu-architecture=sm_90a" "$dir/first" || fail "the options are not recorded"

# All of them; with sanitizers, which make this slow, those of one family.
files=("$data"/*/model*.onnx) least=24
if [ -n "${ASAN_OPTIONS:-}" ]; then files=("$data"/gpt_oss/model*.onnx) least=4; fi
units=0
for f in "${files[@]}"; do
  for precision in f32 bf16; do
    "$MOEC" compile "$f" --target cuda --train --precision $precision -o "$dir/exe" --dump-dir "$dir" ||
      fail "$f $precision"
    fused=$(grep -c '^MOEC_WG_ACTIVATION(moec_' "$dir/kernels.cu" || true)
    wanted=$([ $precision = bf16 ] && echo 1 || echo 0)
    [ "$fused" -eq "$wanted" ] || fail "$f $precision: expected $wanted activations in products, got $fused"
    units=$((units + 1))
  done
done
[ $units -ge $least ] || fail "expected at least $least units, got $units"
echo "$units units"
