#!/usr/bin/env bash
# Golden models on a GPU: tools/test-gpu on tests/data. Exit status 77 without one.
set -euo pipefail
[ -e /dev/nvidiactl ] || { echo "skipped: no CUDA device"; exit 77; }
exec "$MOEC_SOURCE/tools/test-gpu" "$MOEC_BUILD"
