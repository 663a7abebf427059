#!/usr/bin/env bash
# Forward, loss and backward of Qwen3-30B-A3B with 4 and 8 layers in bf16 on one GPU, against torch in the same run:
#   bench/gpu_train.sh --compile MOEC OUT    makes OUT/q4, q4r, q8, q8r, 6 MB; needs NVRTC, no GPU. r: --recompute block
#   bench/gpu_train.sh OUT                   measures, compares, says which bars are met; OUT/gpu_train/ has all figures
# STEPS, TORCH_STEPS: timed steps of each, 100 and 20. CELL_LIMIT, TORCH_LIMIT: seconds that a run of moec's and torch
# may take, 300. LAYERS, SEQS, ARMS: 4,8; 1024,4096; layer-compile (arms of torch_train.py, or none).
# Exit status: 0, 1 where a bar is not met or something failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ "${1:-}" = --compile ]; then
  [ $# -eq 3 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
  mkdir -p "$3"
  for layers in 4 8; do
    "$2" import "$here/../models/configs/qwen3-30b-a3b" --init 1 --seeded --set num_hidden_layers=$layers \
      -o "$3/model.onnx"
    for suffix in "" r; do
      recompute=none
      [ -z "$suffix" ] || recompute=block
      "$2" compile "$3/model.onnx" --target cuda --precision bf16 --train --recompute $recompute -o "$3/q$layers$suffix"
    done
  done
  rm "$3/model.onnx"
  exit
fi
[ $# -eq 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
exec python3 "$here/gpu_train.py" "$1"
