#!/usr/bin/env bash
# docs/ir.md describes every op of ir/ops.def, and passes.def has a file for every pass.
set -euo pipefail
cd "$MOEC_SOURCE"
ops=0 bad=0
for op in $(sed -nE 's/^OP\([A-Z_0-9]+, "([a-z_0-9.]+)".*/\1/p' ir/ops.def); do
  ops=$((ops + 1))
  grep -qE "(\`|^|[ \`])${op//./\\.}([(\` ]|$)" docs/ir.md || { echo "docs/ir.md does not describe the op $op"; bad=1; }
done
[ "$ops" -gt 50 ] || { echo "expected more than 50 ops, found $ops"; bad=1; }
passes=0
for pass in $(sed -nE 's/^PASS\(([a-z_]+),.*/\1/p' passes/passes.def); do
  passes=$((passes + 1))
  [ -f "passes/$pass.c" ] || { echo "the pass $pass has no file passes/$pass.c"; bad=1; }
done
[ "$passes" -gt 5 ] || { echo "expected more than 5 passes, found $passes"; bad=1; }
[ $bad -eq 0 ] && echo "docs: $ops ops, $passes passes"
exit $bad
