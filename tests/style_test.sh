#!/usr/bin/env bash
# Fails where a line of source text has more than 120 columns or a function outside of tests more than 60 lines.
# Without arguments it also checks itself, on files that break a rule.
set -euo pipefail
export LC_ALL=C

# check ROOT: prints every line and function that is too long.
check() {
  cd "$1"
  local files=() code=() f bad
  mapfile -t files < <(find base include ir frontend models passes codegen runtime tools bench examples tests cmake \
    -path tests/emit -prune -o -type f \( -name '*.c' -o -name '*.h' -o -name '*.def' -o -name '*.sh' \
    -o -name '*.cu' -o -name '*.cmake' -o -path 'tools/*' \) -print 2>/dev/null |
    sort) # tests/emit: what the emitter wrote
  [ ${#files[@]} -gt 0 ] || { echo "no source files in $1"; return 1; }
  for f in "${files[@]}"; do
    case $f in tests/*) ;; *.c) code+=("$f") ;; esac
  done
  # columns are characters: the bytes of UTF-8 that continue one do not count
  bad=$(for f in "${files[@]}"; do
    sed 's/[\x80-\xbf]//g' "$f" | awk -v f="$f" 'length($0) > 120 {print f ":" NR ": " length($0) " columns"}'
  done)
  if [ ${#code[@]} -gt 0 ]; then
    bad+=$(awk 'FNR == 1 {start = 0} /^[a-zA-Z_].*\(.*[,{]$/ && !start {start = FNR}
                /^}/ && start {n = FNR - start + 1; if (n > 60) print FILENAME ":" start ": a function of " n " lines"}
                /^}|;$/ && !/^ / {start = 0}' "${code[@]}")
  fi
  [ -z "$bad" ] || { echo "$bad"; return 1; }
  echo "${#files[@]} files"
}

# refuses TEXT: check() must fail on a tree with this file.
refuses() {
  mkdir -p "$temp/base"
  printf '%s' "$1" >"$temp/base/x.c"
  if (check "$temp") >"$temp/log"; then echo "self-test: not refused: ${1:0:40}"; exit 1; fi
  grep -q '^base/x.c:1: ' "$temp/log" || { cat "$temp/log"; exit 1; }
}

(check "${1:-$(dirname "$0")/..}")
[ $# -eq 0 ] || exit 0
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
if (check "$temp") >/dev/null; then echo "self-test: an empty tree passed"; exit 1; fi
refuses "/* $(printf '%118s' '') */"
refuses "static void f(void) {
$(printf '  g();\n%.0s' {1..59})
}
"
printf '/* %114s */\nvoid f(void) {\n%s\n}\n' 'é' "$(printf '  g();\n%.0s' {1..58})" >"$temp/base/x.c"
(check "$temp") >/dev/null || { echo "self-test: what is just short enough was refused"; exit 1; }
echo "self-test: what is too long was refused"
