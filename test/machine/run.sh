#!/usr/bin/env bash
#
# npm run test:machine: this commit on a machine as users have it (machine.sh): the README and the service as shipped, a restart of
# the machine, losses of its power, and the conformance files of the driver. For Debian 13, or `SUITE=bookworm`. Ends with what docs/operate/reliability.md
# records and the tally. Under emulation that takes half an hour for the service and more than an hour for the driver.
#
#   run.sh            all of it
#   run.sh service    of the conformance files only those of the hostile guest and of disk rates

set -uo pipefail
export LC_ALL=C.UTF-8
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

export SUITE=${SUITE:-trixie}
machine=test/machine/machine.sh
# Under emulation what takes a second elsewhere takes a minute.
test_ms_max=3600000
# Kernels before 6.16 let a guest send descriptors.
# Version 2 of control groups has disk rates of its own.
conformance=(runc-hostile-guest runc-disk-rates)
[ "${1:-}" = service ] || conformance+=(driver-runc runc runc-lazy)
passed=0 failed=0
figures=()

if [ -n "$(git status --porcelain)" ]; then
  echo 'test:machine: the machine gets the last commit; what is not committed is not tested' >&2
fi

# run_file FILE [ENVIRONMENT…]: one file of tests in the machine.
run_file() {
  local file=$1
  shift
  counted "$file" "$machine" ssh "cd /opt/atoll && env PATH=/opt/atoll/node_modules/.bin:/usr/sbin:/usr/bin:/sbin:/bin $* \
    node --test --test-concurrency=1 --test-timeout=$test_ms_max --test-reporter=spec $file"
}

# counted FILE COMMAND…: runs a command that runs a file of tests, and adds up what it says.
counted() {
  local file=$1 log started=$SECONDS ok bad
  log=$(mktemp)
  shift
  "$@" </dev/null | tee "$log"
  read -r ok bad < <(awk '/^ℹ pass /{ p = $3 } /^ℹ fail /{ f = $3 } /^ℹ cancelled /{ c = $3 } END { print p + 0, f + c }' "$log")
  rm -f "$log"
  # A file that ran nothing has failed.
  [ $((ok + bad)) != 0 ] || bad=1
  passed=$((passed + ok)) failed=$((failed + bad))
  figures+=("$(basename "$file"): $ok passed, $bad failed, $((SECONDS - started)) s")
}

# served: waits until the service of the machine answers.
served() { "$machine" ssh 'timeout 600 sh -c "until curl -fs http://127.0.0.1:4100/readyz >/dev/null; do sleep 1; done"'; }

trap '"$machine" stop' EXIT
"$machine" build || exit 1
"$machine" start || exit 1
# shellcheck disable=SC2016 # the machine expands it
about=$("$machine" ssh '. /etc/os-release; echo "$PRETTY_NAME, kernel $(uname -r), $(runc --version | head -n 1), cgroup v2: $(stat -fc %T /sys/fs/cgroup), /run: $(findmnt -no OPTIONS /run)"')
echo "$about"
"$machine" ssh 'systemctl enable --now --quiet atoll'
served || exit 1
key=$("$machine" ssh "journalctl --no-pager -u atoll | sed -n 's/.*API key, shown this once: //p' | tail -n 1")

run_file test/machine/service.ts "ATOLL_MACHINE_KEY=$key"
run_file test/machine/confinement.ts ATOLL_TEST_SLOWNESS=8
boot=$("$machine" ssh cat /proc/sys/kernel/random/boot_id)
"$machine" ssh reboot || true
# It may answer for a while yet.
for _ in $(seq 300); do
  now=$("$machine" ssh cat /proc/sys/kernel/random/boot_id) && [ "$now" != "$boot" ] && break
  sleep 1
done
served || exit 1
run_file test/machine/service.ts "ATOLL_MACHINE_KEY=$key ATOLL_MACHINE_BEFORE=restart"
run_file test/machine/firewalls.ts "ATOLL_MACHINE_KEY=$key"
# This one runs beside the machine, whose power it cuts.
counted test/machine/power-loss.ts env ATOLL_MACHINE_KEY="$key" \
  node --test --test-timeout=$test_ms_max --test-reporter=spec test/machine/power-loss.ts
"$machine" ssh 'systemctl disable --now --quiet atoll'
for file in "${conformance[@]}"; do run_file "test/conformance/$file.test.ts" ATOLL_TEST_SLOWNESS=8; done

echo
echo "$(date --utc +%F), commit $(git rev-parse --short HEAD), $about"
printf '%s\n' "${figures[@]}"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
