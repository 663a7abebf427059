#!/usr/bin/env bash
# Fails when a file includes something that the table of folders in docs/design.md does not
# allow it to. Without arguments it also checks itself, on copies with a wrong include.
set -euo pipefail

# allowed FILE: the folders FILE may include from, besides its own.
allowed() {
  case $1 in
    base/*) echo "" ;;
    include/*) echo "" ;;
    ir/*) echo "base" ;;
    frontend/* | passes/*) echo "base ir" ;;
    models/*) echo "base ir frontend" ;;
    codegen/*) echo "base ir include/plan.h" ;;
    runtime/*) echo "base include" ;;
    tools/stub.c) echo "base runtime include" ;;
    tools/moec.c) echo "base ir frontend models passes codegen runtime include" ;;
    tools/arguments.*) echo "base ir frontend passes" ;;
    tools/* | bench/* | examples/*) echo "base runtime include" ;;
  esac
}

# check ROOT: prints every wrong include below ROOT; the last line is a count of includes.
check() {
  local root=$1 wrong=0 count=0 file line target folder ok
  cd "$root"
  local files=()
  mapfile -t files < <(find base include ir frontend models passes codegen runtime tools bench \
    examples -path codegen/kernels -prune -o -type f \( -name '*.c' -o -name '*.h' -o -name '*.def' \) \
    -print 2>/dev/null | sort)
  [ ${#files[@]} -gt 0 ] || { echo "no source files in $root"; return 1; }
  while IFS=: read -r file line; do
    target=$(sed -E 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]([^">]*)[">].*/\1/' <<<"$line")
    folder=${target%%/*}
    case $line in
      *'<'*'>'*) # the system's, unless it names one of our folders
        case $folder in base | include | ir | frontend | models | passes | codegen | runtime) ;; *) continue ;; esac ;;
    esac
    count=$((count + 1))
    ok=no
    if [ "$target" = onnx.pb-c.h ]; then
      case ${file%%/*} in frontend | models) ok=yes ;; esac
    elif [ "$target" = "$folder" ] || [[ $target == *..* ]]; then
      ok=no # includes name their folder, from the root
    elif [ "$folder" = "${file%%/*}" ]; then
      ok=yes
    else
      for a in $(allowed "$file"); do
        if [ "$a" = "$folder" ] || [ "$a" = "$target" ]; then ok=yes; fi
      done
    fi
    if [ $ok = no ]; then
      echo "$file must not include $target"
      wrong=$((wrong + 1))
    fi
  done < <(grep -HE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' "${files[@]}")
  [ "$count" -gt 0 ] || { echo "no includes of ours in $root"; return 1; }
  echo "$count includes, $wrong wrong"
  [ $wrong -eq 0 ]
}

# refuses FILE INCLUDE: check() must fail on a tree whose FILE has this include.
refuses() {
  mkdir -p "$temp/tree/base" "$temp/tree/$(dirname "$1")"
  echo '#include "base/status.h"' >"$temp/tree/base/status.c"
  echo "$2" >"$temp/tree/$1"
  if (check "$temp/tree") >"$temp/log"; then
    echo "self-test: '$2' in $1 was not refused"
    exit 1
  fi
  grep -q "^$1 must not include" "$temp/log" || { cat "$temp/log"; exit 1; }
  rm -r "$temp/tree"
}

(check "${1:-$(dirname "$0")/..}")
[ $# -eq 0 ] || exit 0
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
refuses base/x.c '#include "ir/ir.h"'
refuses ir/x.h '  #  include "frontend/onnx.h"'
refuses ir/x.def '#include "passes/x.h"'
refuses passes/x.c '#include "frontend/onnx.h"'
refuses passes/x.c '#include "include/plan.h"'
refuses codegen/x.c '#include "include/moec.h"'
refuses runtime/x.c '#include "ir/ir.h"'
refuses runtime/moe/x.c '#include <codegen/embedded.h>'
refuses runtime/x.c '#include "base/../ir/ir.h"'
refuses runtime/x.c '#include "x.h"'
refuses ir/x.c '#include "onnx.pb-c.h"'
refuses tools/stub.c '#include "passes/pass.h"'
refuses include/moec.h '#include "base/status.h"'
mkdir -p "$temp/empty"
if (check "$temp/empty") >/dev/null; then echo "self-test: an empty tree passed"; exit 1; fi
echo "self-test: every wrong include was refused"
