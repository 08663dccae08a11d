#!/usr/bin/env bash
#
# npm test: all suites, on a machine where `npm run setup` has run. `npm test -- unit api` runs some of them.
# The last line is the tally of all; the exit status is 0 only when every suite ran tests and all of them passed.
# Before it come the failed tests with their errors, and the slowest tests and files.
#
# The suites of different lanes run side by side, as many of their tests wait for timers and for the kernel. The output of the last lane
# is shown as it comes, the output of the others afterwards.

set -uo pipefail
export LC_ALL=C.UTF-8

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
export PATH="$root/node_modules/.bin:$PATH"
if [ ! -x node_modules/.bin/node ]; then
  echo 'test: run npm run setup first' >&2
  exit 1
fi
for part in setup/cargo test/packages test/postgres; do
  # shellcheck source=/dev/null
  source "$root/scripts/$part.sh"
done
find_cargo "$rust_minimum" || true

# Suites are named after folders below test/; the tests of check, rust and unit live elsewhere, and runc is the larger part of
# test/conformance. A lane runs its suites in order, and all lanes take about as long.
lanes=('rust unit service check' 'store fuzz agent api hostile conformance' 'runc browser' 'e2e')
read -ra all_suites <<<"${lanes[*]}"
suites=("$@")
[ ${#suites[@]} != 0 ] || suites=("${all_suites[@]}")

slowest_count=10

# A suite that hangs must not hang the rest; a single test has a shorter limit.
suite_seconds_max=4500
test_ms_max=900000

test_dir=$(mktemp -d /tmp/atoll-test.XXXXXX)
trap 'stop_lanes; stop_postgres; rm -rf "$test_dir"' EXIT
trap 'exit 130' INT TERM

# Hundreds of processes load the same modules: each compiles only what none has compiled before.
export NODE_COMPILE_CACHE=$test_dir/compiled

counts=$test_dir/counts
: >"$counts"

heading() { printf '\n=== %s ===\n\n' "$1"; }

# count SUITE PASSED FAILED SECONDS NOTE: a suite that ran nothing has failed.
count() {
  local note=${5:-}
  local ok=$2 bad=$3
  if [ $((ok + bad)) = 0 ]; then
    bad=1
    note='ran no test'
  fi
  printf '%-12s %5d passed %5d failed %6d s  %s\n' "$1" "$ok" "$bad" "$4" "$note" >>"$counts"
}

# Lint, format, types, unused code and shell scripts: each counts as one test.
run_check() {
  local script ok=0 bad=0 started=$SECONDS
  for script in lint format:check types knip shellcheck rust:check; do
    echo "--- $script"
    if npm run --silent "$script"; then ok=$((ok + 1)); else bad=$((bad + 1)); fi
  done
  count check "$ok" "$bad" $((SECONDS - started))
}

# The tests of the Rust programs.
run_rust() {
  local started=$SECONDS log=$test_dir/rust.log status=0 ok bad
  timeout "$suite_seconds_max" cargo test --offline --workspace 2>&1 | tee "$log" || status=$?
  timeout "$suite_seconds_max" bash scripts/cargo-egress.sh test 2>&1 | tee --append "$log" || status=$?
  read -r ok bad < <(sed -n 's/^test result:.* \([0-9]*\) passed; \([0-9]*\) failed;.*/\1 \2/p' "$log" |
    awk '{ ok += $1; bad += $2 } END { print ok + 0, bad + 0 }')
  # One that was not built has no result.
  if [ "$status" != 0 ] && [ "$bad" = 0 ]; then bad=1; fi
  count rust "$ok" "$bad" $((SECONDS - started))
}

# run_node SUITE CONCURRENCY PATTERN…: the files of node:test that match, CONCURRENCY of them at a time.
run_node() {
  local started=$SECONDS tally=$test_dir/$1.tally status=0 ok=0 bad=0 skipped=0 note=
  rm -f "$tally"
  timeout --kill-after=30 "$suite_seconds_max" node --test --test-concurrency="$2" --test-timeout="$test_ms_max" \
    --test-reporter=spec --test-reporter-destination=stdout \
    --test-reporter="$root/scripts/test/tally.mjs" --test-reporter-destination="$tally" "${@:3}" </dev/null || status=$?
  if [ -s "$tally" ]; then
    read -r ok bad skipped < <(sed -n 's/^counts //p' "$tally")
  else
    note="ended without a summary (exit $status)"
  fi
  # A skipped test was not seen passing.
  if [ "$skipped" != 0 ]; then note="$skipped skipped, counted as failed"; fi
  bad=$((bad + skipped))
  if [ "$status" != 0 ] && [ "$bad" = 0 ]; then bad=1; fi
  count "$1" "$ok" "$bad" $((SECONDS - started)) "$note"
}

# slowest KIND: the slowest tests or files of all suites that ran.
slowest() {
  cat "$test_dir"/*.tally 2>/dev/null | sed -n "s/^$1 //p" | sort --numeric-sort --reverse | head -n "$slowest_count" |
    awk '{ ms = $1; $1 = ""; printf "%8.1f s %s\n", ms / 1000, $0 }'
}

# The packages and the database are made once, for all suites that may ask for them.
prepare_services() {
  install_test_packages || count packages 0 1 0 'could not install what the tests need'
  if [ -z "${TEST_DATABASE_URL:-}" ]; then
    start_postgres || count postgres 0 1 0 'did not start'
  fi
}

run_suites() {
  local suite
  for suite in "$@"; do
    heading "$suite"
    case $suite in
      check) run_check ;;
      rust) run_rust ;;
      unit) run_node unit 1 'src/**/*.test.ts' 'dashboard/{docs,src}/**/*.test.ts' 'sdk/src/**/*.test.ts' 'scripts/**/*.test.mjs' 'scripts/**/*.test.ts' ;;
      # Each server has a data directory, a subnet and ports of its own.
      e2e) run_node e2e 2 'test/e2e/**/*.test.ts' ;;
      runc) run_node runc 1 'test/conformance/runc-*.test.ts' ;;
      conformance) run_node conformance 1 'test/conformance/!(runc-*).test.ts' ;;
      *) run_node "$suite" 1 "test/$suite/**/*.test.ts" ;;
    esac
  done
}

lane_pids=()

stop_lanes() {
  local pid
  for pid in ${lane_pids[@]+"${lane_pids[@]}"}; do
    # A lane must start no other suite while its present one is ended.
    kill -STOP "$pid" 2>/dev/null && pkill --parent "$pid"
    kill -KILL "$pid" 2>/dev/null
  done
}

# The suites of a lane that were asked for.
wanted_of() {
  local suite wanted=()
  for suite in $1; do
    if [[ " ${suites[*]} " == *" $suite "* ]]; then wanted+=("$suite"); fi
  done
  echo "${wanted[*]}"
}

services=no
for suite in "${suites[@]}"; do
  case " ${all_suites[*]} " in
    *" $suite "*) [[ $suite =~ ^(check|rust)$ ]] || services=yes ;;
    *)
      echo "test: unknown suite $suite (known: ${all_suites[*]})" >&2
      count "$suite" 0 1 0 unknown
      ;;
  esac
done

[ "$services" = no ] || prepare_services
last_lane=
logs=()
for lane in "${lanes[@]}"; do
  read -ra wanted <<<"$(wanted_of "$lane")"
  [ ${#wanted[@]} != 0 ] || continue
  if [ -n "$last_lane" ]; then
    # shellcheck disable=SC2086
    run_suites $last_lane >"$test_dir/lane-${#logs[@]}.log" 2>&1 &
    lane_pids+=($!)
    logs+=("$test_dir/lane-${#logs[@]}.log")
  fi
  last_lane=${wanted[*]}
done
# shellcheck disable=SC2086
run_suites $last_lane
[ ${#lane_pids[@]} = 0 ] || wait "${lane_pids[@]}"
lane_pids=()
[ ${#logs[@]} = 0 ] || cat "${logs[@]}"

# A folder of tests that nobody runs would look like one that passes.
for file in test/*/*.test.ts; do
  folder=$(basename "$(dirname "$file")")
  [[ " ${all_suites[*]} " == *" $folder "* ]] || count "$folder" 0 1 0 'scripts/test.sh knows no such suite'
done

if grep --quiet --no-messages '^failure ' "$test_dir"/*.tally; then
  heading 'failed tests'
  cat "$test_dir"/*.tally | sed -n 's/^failure //p'
fi
heading 'slowest tests'
slowest test
heading 'slowest files'
slowest file

heading 'all suites'
cat "$counts"
echo
read -r passed failed < <(awk '{ ok += $2; bad += $4 } END { print ok + 0, bad + 0 }' "$counts")
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
