# shellcheck shell=bash
# Several commands at a time, each with a log of its own. Sourced, never run.

# run_jobs COUNT LOGS   reads jobs from standard input, one a line: a name, and the words of a command or of an exported
# function. It runs so many of them at a time, in that order, and shows of each one its steps when it ends, or all that it
# printed when it failed. The whole output of each is in LOGS/<name>.log. Exits with 1, and names them, when some failed.
run_jobs() {
  local count=$1
  export JOB_LOGS=$2
  mkdir -p "$JOB_LOGS"
  rm -f "$JOB_LOGS"/*.log "$JOB_LOGS/failed"
  export -f run_job show_lines
  # shellcheck disable=SC2016 # the inner shell expands its own arguments
  xargs -d '\n' -P "$count" -n 1 bash -c 'run_job "$1"' run_job ||
    { printf 'failed: %s\n' "$(tr '\n' ' ' <"$JOB_LOGS/failed")" >&2 && return 1; }
}

# run_job LINE   runs one job.
run_job() {
  local words log began=$SECONDS
  read -ra words <<<"$1"
  log=$JOB_LOGS/${words[0]}.log
  show_lines "=== ${words[0]} begins"
  if ("${words[@]:1}") >"$log" 2>&1 </dev/null; then
    show_lines "$(grep -E '^ *--- |^ok ' "$log")" "=== ${words[0]} passed in $((SECONDS - began)) s"
  else
    echo "${words[0]}" >>"$JOB_LOGS/failed"
    show_lines "$(cat "$log")" "=== ${words[0]} FAILED after $((SECONDS - began)) s; the lines above are in $log"
    return 1
  fi
}

# show_lines LINES...   prints what belongs together at once: several jobs do.
show_lines() { (flock 9 && printf '%s\n' "$@") 9>>"$JOB_LOGS/lock"; }
