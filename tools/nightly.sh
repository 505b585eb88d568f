#!/usr/bin/env bash
# One night: measure the campaigns again, build the pages, say on one screen what came of it. For cron or CI:
#   tools/nightly.sh [CAMPAIGN ...]      (default: quickstart); `make nightly CAMPAIGN=...` is the same for one
# Exit code: 3 when a run got worse than when it was last good, else that of the first command that was not 0.
# SET="repeats=5 workload.num_prompts=20" changes the campaign files. The report is built whatever the runs did.
set -uo pipefail
cd "$(dirname "$0")/.."
workbench=${WORKBENCH:-.venv/bin/workbench}
settings=()
for setting in ${SET:-}; do settings+=(--set "$setting"); done
worst=0
for campaign in "${@:-quickstart}"; do
  "$workbench" run "$campaign" --force --quiet ${settings[@]+"${settings[@]}"}
  code=$?
  [ "$code" -eq 130 ] && exit 130
  [ "$worst" -ne 0 ] || worst=$code
done
"$workbench" report --all --fail-on-regression
code=$?
[ "$code" -eq 3 ] && exit 3
[ "$worst" -ne 0 ] && exit "$worst"
exit "$code"
