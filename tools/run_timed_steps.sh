#!/usr/bin/env bash
# Runs `label command` pairs in order, stops at the first that fails, and says how long each took.
set -u
summary="" status=0 whole=$SECONDS
while [ $# -gt 0 ]; do
  label=$1 command=$2; shift 2
  printf '\n== %s\n' "$label"
  start=$SECONDS
  bash -c "$command" || status=$?
  word=ok; [ "$status" -eq 0 ] || word=FAILED
  summary+=$(printf '\n  %-8s %-6s %5d s' "$label" "$word" $((SECONDS - start)))
  [ "$status" -eq 0 ] || break
done
printf '\n== how long each part took%s\n  %-15s %5d s\n' "$summary" whole $((SECONDS - whole))
exit "$status"
