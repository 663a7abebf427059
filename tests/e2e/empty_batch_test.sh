#!/usr/bin/env bash
# No sequences, or sequences without tokens: every mode of a step runs, on the processor and on the driver of the tests,
# or one line says what of the model needs a token.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
data=$MOEC_SOURCE/tests/data

# steps EXE BATCH SEQ: 0 and sound JSON
steps() {
  for mode in forward train step; do
    rm -f "$dir/json"
    LD_LIBRARY_PATH=$MOEC_BUILD/fake "$1" bench --weights "$data/$family" --dim batch="$2" --dim seq="$3" --mode $mode \
      --steps 2 --warmup 0 --json "$dir/json" >"$dir/out" 2>&1 || fail "$1 $2 $3 $mode: $(tail -n 1 "$dir/out")"
    grep -q '"tokens": 0,' "$dir/json" || fail "$1 $2 $3 $mode: $(grep tokens "$dir/json")"
  done
}

# refused EXE BATCH SEQ
refused() {
  local code=0
  LD_LIBRARY_PATH=$MOEC_BUILD/fake "$1" bench --weights "$data/$family" --dim batch="$2" --dim seq="$3" \
    >/dev/null 2>"$dir/err" || code=$?
  [ $code -eq 2 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && grep -q "needs seq >= 1, .* seq = 0" "$dir/err" ||
    fail "$1 $2 $3: status $code: $(cat "$dir/err")"
}

skipped=0
for target in cpu cuda; do
  for family in qwen3_moe gpt_oss; do
    if ! "$MOEC" compile "$data/$family/model.onnx" --target $target --train -o "$dir/exe" 2>"$dir/err"; then
      grep -q "expected NVIDIA's run-time compiler" "$dir/err" || fail "$(cat "$dir/err")"
      skipped=1
      continue
    fi
    steps "$dir/exe" 0 4
    if [ $family = gpt_oss ]; then steps "$dir/exe" 2 0; else refused "$dir/exe" 2 0; fi
  done
done
[ $skipped -eq 0 ] || { echo "skipped: no NVRTC"; exit 77; }
