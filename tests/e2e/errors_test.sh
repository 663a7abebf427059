#!/usr/bin/env bash
# Wrong input, as a user meets it: exit status 2, one line that starts "moec: error:" and names what
# is wrong, no partial output file left behind.
set -uo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
model=$MOEC_SOURCE/tests/data/qwen3_moe/model.onnx
bad=0

fail() { echo "FAILED: $*"; bad=1; }

# refused WORD COMMAND...: exit status 2, one line on stderr with WORD in it.
refused() {
  local word=$1 status=0
  shift
  timeout 60 "$@" >"$dir/out" 2>"$dir/err" || status=$?
  [ $status -eq 2 ] || fail "status $status of: $* ($(head -c 300 "$dir/err"))"
  [ "$(wc -l <"$dir/err")" -eq 1 ] || fail "expected one line: $*: $(head -c 600 "$dir/err")"
  grep -q '^moec: error: ' "$dir/err" || fail "no 'moec: error:': $*"
  grep -qF -- "$word" "$dir/err" || fail "'$word' is not in: $(cat "$dir/err")"
}

# npy FILE DTYPE SHAPE BYTES: BYTES in printf notation.
npy() {
  printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '$2', 'fortran_order': False, 'shape': $3, }" >"$1"
  printf '%b' "$4" >>"$1"
}
long() { for i in "$@"; do printf '\\x%02x\\0\\0\\0\\0\\0\\0\\0' "$i"; done; }

echo "== command line"
refused "expected a command" "$MOEC"
refused "frobnicate" "$MOEC" frobnicate
refused "-o" "$MOEC" compile "$model"
refused "--bogus" "$MOEC" compile "$model" -o "$dir/exe" --bogus
refused "missing after" "$MOEC" compile "$model" -o
refused "NAME=N" "$MOEC" compile "$model" -o "$dir/exe" --dim batch
refused "NAME=N" "$MOEC" compile "$model" -o "$dir/exe" --dim batch=-1
refused "sideways" "$MOEC" inspect "$model" --format sideways
refused "-o was given twice" "$MOEC" compile "$model" -o "$dir/exe" -o "$dir/other"
refused "--dim batch was given twice" "$MOEC" compile "$model" -o "$dir/exe" --dim batch=1 --dim batch=2
refused "expected a folder" "$MOEC" compile "$model" -o "$dir/exe" --weights "$dir/none"
refused "$dir/none/dump" "$MOEC" compile "$model" -o "$dir/exe" --dump-dir "$dir/none/dump"

refused '--freeze: expected the name of one of ' "$MOEC" compile "$model" -o "$dir/exe" --train --freeze 'modell.*'
refused '37 parameters (m.model.embed' "$MOEC" compile "$model" -o "$dir/exe" --train --freeze 'modell.*'
refused 'got "modell.*"' "$MOEC" inspect "$model" --train --freeze 'm.model.*' --train-params 'modell.*'

echo "== outputs that would replace inputs"
cp "$model" "$dir/model.onnx"
refused "expected another file" "$MOEC" compile "$dir/model.onnx" -o "$dir/model.onnx"
refused "expected another file" "$MOEC" inspect "$dir/model.onnx" -o "$dir/model.onnx"
cmp -s "$model" "$dir/model.onnx" || fail "the model was replaced"
mkdir "$dir/checkpoint"
cp "$MOEC_SOURCE"/tests/data/qwen3_moe/{config.json,model.safetensors} "$dir/checkpoint"
for name in config.json model.safetensors; do
  refused "expected another file" "$MOEC" import "$dir/checkpoint" -o "$dir/checkpoint/$name"
done
refused "expected another file" "$MOEC" import "$dir/checkpoint" -o "$dir/checkpoint/model.onnx" --init 1
cmp -s "$MOEC_SOURCE/tests/data/qwen3_moe/model.safetensors" "$dir/checkpoint/model.safetensors" ||
  fail "the weights were replaced"

echo "== model files"
refused "none.onnx" "$MOEC" compile "$dir/none.onnx" -o "$dir/exe"
: >"$dir/empty.onnx"
refused "empty.onnx" "$MOEC" compile "$dir/empty.onnx" -o "$dir/exe"
refused "$dir" "$MOEC" compile "$dir" -o "$dir/exe"
for n in 1 100 1000 100000 500000; do
  head -c $n "$model" >"$dir/cut.onnx"
  refused "cut.onnx" "$MOEC" compile "$dir/cut.onnx" -o "$dir/exe"
done
head -c 3000 /dev/urandom >"$dir/noise.onnx"
refused "noise.onnx" "$MOEC" compile "$dir/noise.onnx" -o "$dir/exe"
[ ! -e "$dir/exe" ] || fail "a refused model left an output file"

echo "== inputs of run"
"$MOEC" compile "$model" -o "$dir/exe" --target cpu || fail "the model does not compile"
npy "$dir/ids.npy" '<i8' '(1, 4)' "$(long 1 2 3 4)"
npy "$dir/float.npy" '<f4' '(1, 4)' "$(long 1 2)"
npy "$dir/flat.npy" '<i8' '(4,)' "$(long 1 2 3 4)"
npy "$dir/far.npy" '<i8' '(1, 4)' "$(long 1 2 3 250)"
npy "$dir/short.npy" '<i8' '(1, 4)' "$(long 1 2 3)"
"$dir/exe" run --input input_ids="$dir/ids.npy" --output logits="$dir/logits.npy" || fail "a good run failed"
rm -f "$dir/logits.npy"
refused "input_ids" "$dir/exe" run
refused "input_ids" "$dir/exe" run --input input_ids="$dir/float.npy"
refused "input_ids" "$dir/exe" run --input input_ids="$dir/flat.npy"
refused "surplus" "$dir/exe" run --input input_ids="$dir/ids.npy" --input surplus="$dir/ids.npy"
refused "twice" "$dir/exe" run --input input_ids="$dir/ids.npy" --input input_ids="$dir/ids.npy"
refused "nothing" "$dir/exe" run --input input_ids="$dir/ids.npy" --output nothing="$dir/logits.npy"
refused "short.npy" "$dir/exe" run --input input_ids="$dir/short.npy" --output logits="$dir/logits.npy"
refused "none.npy" "$dir/exe" run --input input_ids="$dir/none.npy"
refused "--bogus" "$dir/exe" run --bogus
refused "range" "$dir/exe" run --input input_ids="$dir/far.npy" --output logits="$dir/logits.npy"
[ ! -e "$dir/logits.npy" ] || fail "a refused run left an output file"

echo "== damaged executables"
size=$(stat -c %s "$dir/exe")
for n in 1 100 5000; do
  head -c $((size - n)) "$dir/exe" >"$dir/cut"
  chmod +x "$dir/cut"
  refused "cut" "$dir/cut" info
done
for at in $((size - 20)) $((size - 50)) $((size - 2000)) $((size - 300000)) $((size - 900000)); do
  cp "$dir/exe" "$dir/edited"
  printf '\xff\x00\xff' | dd of="$dir/edited" bs=1 seek=$at conv=notrunc status=none
  refused "edited" "$dir/edited" info
  refused "edited" "$MOEC" inspect "$dir/edited"
done

echo "== what an executable does not take"
refused "--dim" "$MOEC" inspect "$dir/exe" --dim batch=1
refused "--weights" "$MOEC" inspect "$dir/exe" --weights "$dir"
refused "expected another file" "$MOEC" inspect "$dir/exe" -o "$dir/exe"
refused "--threads was given twice" "$dir/exe" run --input input_ids="$dir/ids.npy" --threads 1 --threads 2
refused "--dim seq was given twice" "$dir/exe" bench --dim batch=1 --dim seq=4 --dim seq=5
npy "$dir/unsigned.npy" '<u8' '(1, 1)' '\xff\xff\xff\xff\xff\xff\xff\xff'
refused "18446744073709551615" "$dir/exe" run --input input_ids="$dir/unsigned.npy"

echo "== results that cannot be written"
for command in "$MOEC --help" "$MOEC inspect $dir/exe --format dot" "$dir/exe info"; do
  $command >/dev/full 2>"$dir/err" && fail "$command >/dev/full: done"
done

[ $bad -eq 0 ] && echo "errors: all as expected"
exit $bad
