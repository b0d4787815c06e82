#!/usr/bin/env bash
# tools/run_on_busy_machine.sh N COMMAND...: runs the command while N processes keep the machine busy.
set -euo pipefail
busy=()
trap 'kill "${busy[@]}" 2>/dev/null || true' EXIT
for ((i = 0; i < $1; i++)); do
  while :; do :; done &
  busy+=($!)
done
shift
"$@"
