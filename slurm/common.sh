# What every job does first, sourced after the job's file, which says what to run: room for the reason of a failure, the
# site's software, and `run`.
set -eo pipefail
note="$FAILED/$STAGE${SLURM_ARRAY_TASK_ID:+-$SLURM_ARRAY_TASK_ID}"
# The reason of a failure goes in here: there may be no other room on the disk then.
mkdir -p "$FAILED" && rm -f "$note" && printf '%1000s' > "$note.room" || {
  scontrol update "JobId=$SLURM_JOB_ID" "Comment=nothing can be written to $FAILED"
  exit 1
}

# Writes down why this part has failed, for --status, and ends the job.
fail() {
  trap - EXIT
  echo "$STAGE failed: $2" >&2
  printf '%.900s\n%900s' "$2 (log: $LOGS/$STAGE-${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}.log)" 1<> "$note.room"
  mv "$note.room" "$note"
  exit "$1"
}

# Runs a command that hears what Slurm sends before the end of its time. One that was asked to stop then goes back into
# the queue; one that was told to end (by scancel, or for a more urgent job, which Slurm puts back itself) just ends.
run() {
  local code asked= heard= stderr copying
  stderr=$(mktemp)
  exec 3> >(tee "$stderr" >&2)
  copying=$!
  "$@" 2>&3 &
  local child=$!
  exec 3>&-
  trap 'asked=USR1 heard=1; kill -USR1 $child 2> /dev/null || true' USR1
  trap 'asked=TERM heard=1; kill -TERM $child 2> /dev/null || true' TERM
  while heard=; code=0; wait $child || code=$?; [ -n "$heard" ]; do :; done
  for _ in {1..20}; do kill -0 $copying 2> /dev/null || break; sleep 0.05; done # its last lines
  local reason last
  reason=$(grep '^error: ' "$stderr" | tail -n 1 || true)
  last=$(grep -v '^ *$' "$stderr" | tail -n 1 || true)
  rm -f "$stderr"
  if [ $code -eq 0 ]; then
    rm -f "$note.room"
  elif [ "$asked" = USR1 ]; then
    go_back
  elif [ "$asked" = TERM ] || [ $code -eq 143 ]; then # Slurm tells the command as well
    rm -f "$note.room"
    exit $code
  elif [ $code -gt 128 ]; then
    fail $code "ended by signal $((code - 128)); if that was for memory, give the stage more${reason:+. ${reason#error: }}"
  else
    reason=${reason:-$last}
    fail $code "${reason#error: }"
  fi
}

go_back() {
  [ "${SLURM_RESTART_COUNT:-0}" -lt "$MOST_REQUEUES" ] || fail 1 "has been put back $MOST_REQUEUES times; submit again to go on"
  local refused
  refused=$(scontrol requeue "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}" 2>&1) ||
    fail 1 "its time was over, what was done is saved, but Slurm does not put it back (${refused//$'\n'/ }); submit again"
  rm -f "$note.room"
  trap 'exit 0' TERM
  sleep 120 & # Slurm ends this job
  wait
}

started=
trap 'code=$?; cat "$started" >&2; fail $code "could not begin: exit code $code in activate of the site. $(tail -n 1 "$started")"' EXIT
trap 'exit 138' USR1
trap 'trap - EXIT; rm -f "$note.room"; exit 143' TERM
started=$(mktemp)
cd "$PROJECT"
eval "$ACTIVATE" 2> "$started"
trap - EXIT
cat "$started" >&2
rm -f "$started"
cd "$PROJECT"
changed=$($WRAP python slurm/fingerprint.py "$CODE" 2>&1) || fail 2 "${changed#error: }"
