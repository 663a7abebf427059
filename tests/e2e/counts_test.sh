#!/usr/bin/env bash
# Counts that are promises: kernels a decoder block, functions and their reuse, eager MoE calls, nothing
# compiled and nothing allocated after the first step, no kernel that only moves elements.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
model=$MOEC_SOURCE/tests/data/qwen3_moe/model.onnx
fail() { echo "FAILED: $*"; exit 1; }
number() { sed -nE "s/.*\"$1\": ([0-9]+).*/\1/p" "$dir/bench.json" | head -n 1; }

"$MOEC" compile "$model" -o "$dir/exe" --target cpu --dump-dir "$dir/dump"
"$dir/exe" bench --dim batch=2 --dim seq=32 --steps 5 --json "$dir/bench.json" >"$dir/text"
kernels=$(number kernels_per_step)
[ "$kernels" -le 30 ] || fail "expected at most 10 kernels for each of 3 blocks, got $kernels a step"
[ "$(number moe_calls_per_step)" -eq 3 ] || fail "expected 3 MoE calls a step, got $(number moe_calls_per_step)"
[ "$(number compilations)" -eq 0 ] || fail "something was compiled"
[ "$(number allocations_after_first_step)" -eq 0 ] || fail "something was allocated after the first step"

# a size fixed at compile time is asked for no more
"$MOEC" compile "$model" -o "$dir/fixed" --target cpu --dim batch=2
"$dir/fixed" bench --dim seq=8 --steps 2 >/dev/null || fail "bench of a model with a fixed batch"

# each half-block function holds at most 10 kernels between them, and is called three times
inner=$(awk '/^fn @"(attention|moe)0"/{f=1} /^}/{f=0} f && / = fused\(/' "$dir/dump"/*-fuse.ir | wc -l)
[ "$inner" -ge 4 ] && [ "$inner" -le 10 ] || fail "expected 4 to 10 kernels in a block, got $inner"
for f in attention0 moe0; do
  calls=$(grep -c "call(.*fn = @\"$f\"" "$dir/dump"/*-fuse.ir)
  [ "$calls" -eq 3 ] || fail "expected 3 calls of $f, got $calls"
done

# what the steps of a run read and write is little more than what the regions of the report must move
"$dir/exe" bench --dim batch=1 --dim seq=128 --steps 1 --json "$dir/bench.json" >/dev/null
moved=$(awk '/"bytes": /{gsub(/[^0-9]/, ""); sum += $0} END{print sum}' "$dir/bench.json")
"$MOEC" inspect "$dir/exe" --format json >"$dir/report.json"
own=$(tr -d '\n ' <"$dir/report.json" |
  sed -E 's/.*"totals":\{[^}]*\}?[^}]*"bytes":\{"text":"[^"]*","value":([0-9]+)\}.*/\1/')
[ "$own" -gt 0 ] || fail "the report names no bytes"
awk -v moved="$moved" -v own="$own" 'BEGIN{exit !(moved > 0 && moved <= 1.3 * own)}' ||
  fail "a step moves $moved bytes, its regions $own"

# decoder blocks start with the half that mixes tokens, be it attention or not
"$MOEC" inspect "$MOEC_SOURCE/tests/data/qwen3_5_moe/model_static.onnx" >"$dir/inspect"
grep -qE "^  order +A, B, A$" "$dir/inspect" || fail "expected blocks A, B, A: $(grep -m 1 order "$dir/inspect")"
grep -qE "^  block A +x2 +mixer0 \+ moe0$" "$dir/inspect" || fail "expected two blocks of a mixer and experts"

# a kernel that computes nothing is a materialised transpose or broadcast; embedding is a gather
awk '/^fn @"k[0-9]+"/ {kernel = $2; work = 0}
     / = [a-z_.]+\(/ && !/ = (transpose|broadcast|reshape|slice|concat|pad|reverse|const|iota|size)\(/ {work = 1}
     /^}/ {if (kernel != "") n++; if (kernel != "" && !work) print kernel; kernel = ""}
     END {if (!n) print "no kernel was looked at"}' "$dir/dump"/*-fuse.ir >"$dir/moves"
[ ! -s "$dir/moves" ] || fail "kernels that only move elements: $(cat "$dir/moves")"

# the seq x seq mask is never a buffer, nor is any gathered expert weight
grep -E "^  %.* = (fused|dot|call|moe)" "$dir/dump"/*-fuse.ir >"$dir/stored"
grep -qE ": (bool|f32)\[[^]]*seq, seq\]" "$dir/stored" && fail "a seq x seq value is materialised"
grep -qE "f32\[2\*batch\*seq, (80, 64|64, 40)\]" "$dir/stored" && fail "expert weights are gathered"
# imported models: attention_mask and its causal rule are looked at inside attention, which skips what causal hides.
# Only the scores by which MiniMax-M3 chooses blocks of keys are seq x seq.
for family in mixtral qwen3_moe deepseek_v2 deepseek_v3 gpt_oss minimax_m3 qwen3_5_moe; do
  source=$MOEC_SOURCE/tests/data/$family
  "$MOEC" import "$source" -o "$dir/$family.onnx" 2>"$dir/remarks"
  "$MOEC" compile "$dir/$family.onnx" -o "$dir/$family" --target cpu --weights "$source" --dump-dir "$dir/$family.dump"
  ir=$(echo "$dir/$family.dump"/*-fuse.ir)
  grep -q " = attention(" "$ir" || fail "$family: expected attention"
  if grep " = attention(" "$ir" | grep -qv "causal = true"; then
    fail "$family: an attention looks at keys that causal hides"
  fi
  squares=$(awk '/^fn @"k[0-9]+"/ {kernel=1} !kernel; /^}/ {kernel=0}' "$ir" |
    grep -cE "^  %.*\[[^]]*seq, seq\]" || true)
  allowed=0
  [ $family = minimax_m3 ] && allowed=1
  [ "$squares" -eq $allowed ] || fail "$family: expected $allowed seq x seq values, got $squares"
done
# Also where a forward and a backward attention read the same mask, each looks at attention_mask itself: what the mask
# is can then be told to a library.
"$MOEC" compile "$dir/qwen3_moe.onnx" -o "$dir/block" --target cpu --weights "$MOEC_SOURCE/tests/data/qwen3_moe" \
  --train --recompute block --dump-dir "$dir/block.dump"
awk '/^fn /{head=$0} / = attention(_grad)?\(/ {n++; if (head !~ /: i64\[batch, seq\]/) print head}
     END {if (n < 4) print "expected four attentions, got " n}' "$dir/block.dump"/*-fuse.ir >"$dir/masks"
[ ! -s "$dir/masks" ] || fail "attentions read a stored mask: $(cat "$dir/masks")"
"$dir/qwen3_moe" bench --weights "$MOEC_SOURCE/tests/data/qwen3_moe" --dim batch=2 --dim seq=32 --steps 5 \
  --json "$dir/bench.json" >"$dir/text"
imported=$(number kernels_per_step)
[ "$imported" -le 30 ] || fail "import: expected at most 10 kernels for each of 3 blocks, got $imported a step"
[ "$(number allocations_after_first_step)" -eq 0 ] || fail "import: something was allocated after the first step"
echo "counts: $kernels kernels a step, $inner in a block; $moved bytes moved, $own of regions"
