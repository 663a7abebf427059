#!/usr/bin/env bash
# What inspect says of training is what the executable does: peaks and steps are those of EXE info, for both modes of
# recompute and from either file.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() {
  echo "FAIL: $*" >&2
  exit 1
}

# refuses TEXT COMMAND...: the command fails with status 2 and says TEXT.
refuses() {
  local text=$1 status=0
  shift
  "$@" >"$dir/out" 2>"$dir/err" || status=$?
  [ $status -eq 2 ] || fail "$*: expected status 2, got $status"
  grep -qF -- "$text" "$dir/err" || fail "$*: expected '$text', got $(cat "$dir/err")"
}

# values KEY FILE: every value of KEY below "training", in order
values() { sed -n '/^ "training"/,/^ }/s/^ *"'"$1"'": \(-*[0-9]*\),*$/\1/p' "$2"; }
# fact NAME FILE: a number of EXE info
fact() { sed -n "s/^$1 *\([0-9]*\).*/\1/p" "$2"; }

"$MOEC" import tests/data/qwen3_moe -o "$dir/model.onnx" --init 1
"$MOEC" inspect "$dir/model.onnx" --format json -o "$dir/forward.json"
if grep -q '"training"' "$dir/forward.json"; then fail "training in a report of forward"; fi

"$MOEC" inspect "$dir/model.onnx" --train >"$dir/text"
grep -qE '^ +logits of min\(batch\*seq, [0-9]+\) tokens are in memory at a time$' "$dir/text" ||
  fail "inspect does not say how many logits the loss keeps"

for mode in none block; do
  for combine in fused_weighted_sum legacy_bmm; do
    if [ $mode-$combine = none-legacy_bmm ]; then continue; fi
    "$MOEC" compile "$dir/model.onnx" -o "$dir/exe" --target cpu --train --recompute $mode --combine-impl $combine
    "$MOEC" inspect "$dir/exe" --format json -o "$dir/$mode-$combine.json"
    "$dir/exe" info --dim batch=1 --dim seq=128 >"$dir/info"
    for program in forward train vjp; do fact "$program peak" "$dir/info"; done >"$dir/want"
    values peak "$dir/$mode-$combine.json" | head -3 >"$dir/got"
    [ "$(wc -l <"$dir/want")" -eq 3 ] || fail "EXE info gives no peaks"
    cmp "$dir/got" "$dir/want" || fail "$mode $combine: peaks $(xargs <"$dir/got"), of EXE info $(xargs <"$dir/want")"
    for program in forward train vjp; do fact "steps at $program" "$dir/info"; done >"$dir/want"
    values steps "$dir/$mode-$combine.json" >"$dir/got"
    cmp "$dir/got" "$dir/want" || fail "$mode $combine: steps $(xargs <"$dir/got"), of EXE info $(xargs <"$dir/want")"
  done
  "$MOEC" inspect "$dir/model.onnx" --train --recompute $mode --format json -o "$dir/$mode.json"
  cmp "$dir/$mode.json" "$dir/$mode-fused_weighted_sum.json" || fail "the model and the executable differ"
done

# both modes in one report: the same numbers from either
values peak "$dir/none.json" | tail -2 >"$dir/modes"
values peak "$dir/block.json" | tail -2 | cmp - "$dir/modes" || fail "the reports of both modes compare other numbers"
trains="$(values peak "$dir/none.json" | sed -n 2p) $(values peak "$dir/block.json" | sed -n 2p)"
[ "$(xargs <"$dir/modes")" = "$trains" ] ||
  fail "modes $(xargs <"$dir/modes")"

"$MOEC" inspect "$dir/model.onnx" --train --recompute block >"$dir/text"
grep -q '^    leaves out   fc2, moe.weight, moe.combine, add$' "$dir/text" ||
  fail "$(cat "$dir/text")"
for format in dot html; do
  "$MOEC" inspect "$dir/model.onnx" --train --format $format >"$dir/out"
  grep -q moe0_bwd "$dir/out" || fail "no moe0_bwd in $format"
done

# without --train its parts are forward's report
sed '/^ "training"/,/^ }/d; s/^ "remarks": \[\],$/ "remarks": []/' "$dir/block.json" >"$dir/rest.json"
cmp "$dir/rest.json" "$dir/forward.json" || fail "--train changes the report of forward"

refuses "--recompute needs --train" "$MOEC" inspect "$dir/model.onnx" --recompute block
refuses "--train: expected a model, got an executable" "$MOEC" inspect "$dir/exe" --train
echo "inspect: peaks $(xargs <"$dir/modes") without and with recompute"
