#!/usr/bin/env bash
#
# npm test: all suites, on a machine where `npm run setup` has run. `npm test -- unit api` runs some of them.
# The last line is the tally of all; the exit status is 0 only when every suite ran tests and all of them passed.
#
# Those with real sandboxes mostly wait for the kernel, so the others run beside them; their output comes afterwards.

set -uo pipefail
export LC_ALL=C.UTF-8

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
export PATH="$root/node_modules/.bin:$PATH"
if [ ! -x node_modules/.bin/node ]; then
  echo 'test: run npm run setup first' >&2
  exit 1
fi
if ! command -v cargo >/dev/null; then PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"; fi
for part in packages postgres; do
  # shellcheck source=/dev/null
  source "$root/scripts/test/$part.sh"
done

# The names of folders below test/, beside those that live elsewhere.
all_suites=(check guest hostd unit service agent conformance api fuzz e2e)
suites=("$@")
[ ${#suites[@]} != 0 ] || suites=("${all_suites[@]}")

# One suite that hangs must not hang the rest; one test has less.
suite_seconds_max=2400
test_ms_max=300000

test_dir=$(mktemp -d /tmp/atoll-test.XXXXXX)
trap 'stop_others; stop_postgres; rm -rf "$test_dir"' EXIT
trap 'exit 130' INT TERM

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

# Lint, format, types and unused code: each counts as one test.
run_check() {
  local script ok=0 bad=0 started=$SECONDS
  for script in lint format:check types knip; do
    echo "--- $script"
    if npm run --silent "$script"; then ok=$((ok + 1)); else bad=$((bad + 1)); fi
  done
  count check "$ok" "$bad" $((SECONDS - started))
}

# run_cargo CRATE: the tests of a Rust program.
run_cargo() {
  local started=$SECONDS log=$test_dir/$1.log status=0 ok bad
  (cd "$1" && timeout "$suite_seconds_max" cargo test --offline) 2>&1 | tee "$log" || status=$?
  read -r ok bad < <(sed -n 's/^test result:.* \([0-9]*\) passed; \([0-9]*\) failed;.*/\1 \2/p' "$log" |
    awk '{ ok += $1; bad += $2 } END { print ok + 0, bad + 0 }')
  if [ "$status" != 0 ] && [ "$bad" = 0 ]; then bad=1; fi
  count "$1" "$ok" "$bad" $((SECONDS - started))
}

# run_node SUITE CONCURRENCY PATTERN…: the files of node:test that match. What drives real sandboxes runs one file at a time.
run_node() {
  local started=$SECONDS tally=$test_dir/$1.tally status=0 ok=0 bad=0 skipped=0 note=
  rm -f "$tally"
  timeout --kill-after=30 "$suite_seconds_max" node --test --test-concurrency="$2" --test-timeout="$test_ms_max" \
    --test-reporter=spec --test-reporter-destination=stdout \
    --test-reporter="$root/scripts/test/tally.mjs" --test-reporter-destination="$tally" "${@:3}" </dev/null || status=$?
  if [ -s "$tally" ]; then
    read -r ok bad skipped <"$tally"
  else
    note="ended without a summary (exit $status)"
  fi
  # A skipped test is one that nobody saw passing.
  if [ "$skipped" != 0 ]; then note="$skipped skipped, counted as failed"; fi
  bad=$((bad + skipped))
  if [ "$status" != 0 ] && [ "$bad" = 0 ]; then bad=1; fi
  count "$1" "$ok" "$bad" $((SECONDS - started)) "$note"
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
      guest | hostd) run_cargo "$suite" ;;
      unit) run_node unit 2 'src/**/*.test.ts' 'scripts/**/*.test.mjs' ;;
      *) run_node "$suite" 1 "test/$suite/**/*.test.ts" ;;
    esac
  done
}

stop_others() {
  [ -n "${others_pid:-}" ] || return 0
  # It must start no other suite while the one under way is ended.
  kill -STOP "$others_pid" && pkill --parent "$others_pid"
  kill -KILL "$others_pid"
}

with_sandboxes=()
others=()
services=no
for suite in "${suites[@]}"; do
  case $suite in
    check | guest | hostd) others+=("$suite") ;;
    unit | service | agent | api | fuzz) others+=("$suite") services=yes ;;
    conformance | e2e) with_sandboxes+=("$suite") services=yes ;;
    *)
      echo "test: unknown suite $suite (known: ${all_suites[*]})" >&2
      count "$suite" 0 1 0 unknown
      ;;
  esac
done

[ "$services" = no ] || prepare_services
if [ ${#with_sandboxes[@]} = 0 ]; then
  run_suites "${others[@]}"
else
  run_suites "${others[@]}" >"$test_dir/others.log" 2>&1 &
  others_pid=$!
  run_suites "${with_sandboxes[@]}"
  wait "$others_pid"
  others_pid=
  cat "$test_dir/others.log"
fi

# A folder of tests that nobody runs would look like one that passes.
for file in test/*/*.test.ts; do
  folder=$(basename "$(dirname "$file")")
  [[ " ${all_suites[*]} " == *" $folder "* ]] || count "$folder" 0 1 0 'scripts/test.sh knows no such suite'
done

heading 'all suites'
cat "$counts"
echo
read -r passed failed < <(awk '{ ok += $2; bad += $4 } END { print ok + 0, bad + 0 }' "$counts")
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
