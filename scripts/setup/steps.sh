# Steps of setup: numbering, progress, and the log that is shown when one fails.

step_count=12
step_number=0
setup_started=$SECONDS
step_log=$(mktemp /tmp/atoll-setup.XXXXXX)
step_pid='' tick_pid=''
# Ends what a step left running and removes the log, also when setup is interrupted.
trap 'rm -f "$step_log"; stop_group "$step_pid"; stop_group "$tick_pid"' EXIT
trap 'exit 130' INT TERM

# check_machine: stops where Atoll cannot work, warns where it is untested.
check_machine() {
  if [ "$(id -u)" != 0 ]; then
    echo 'setup: must run as root (it installs packages and makes images); try: sudo npm run setup' >&2
    exit 1
  fi
  if [ "$(uname -s)" != Linux ]; then
    echo 'setup: Atoll runs on Linux only' >&2
    exit 1
  fi
  case $(uname -m) in
    x86_64 | aarch64) ;;
    *)
      echo "setup: no Node 24 and no guest for the architecture $(uname -m); x86_64 and aarch64 work" >&2
      exit 1
      ;;
  esac
  # The number of the first pid namespace of a kernel (PROC_PID_INIT_INO of linux/proc_ns.h).
  if [ "$other_machine" = no ] && [ "$(readlink /proc/self/ns/pid)" != 'pid:[4026531836]' ]; then
    echo 'setup: this is a container; Atoll runs on a machine of its own, physical or virtual' >&2
    exit 1
  fi
  if ! command -v apt-get >/dev/null; then
    echo 'setup: needs apt-get (Debian 12, Debian 13 or Ubuntu 24.04)' >&2
    exit 1
  fi
  # shellcheck source=/dev/null
  distribution=$(. /etc/os-release && echo "$ID $VERSION_ID")
  echo "Atoll setup on ${distribution}, $(uname -m), kernel $(uname -r)"
  case $distribution in
    'debian 12' | 'debian 13' | 'ubuntu 24.04') ;;
    *) echo "  warning: $distribution is untested; supported are Debian 12, Debian 13 and Ubuntu 24.04" ;;
  esac
}

# Megabytes that setup takes: of images, and of npm packages and what cargo builds in this checkout. The first start makes the disk pool.
images_mb=1500
checkout_mb=900
pool_mb=1024

# check_space: stops before a step would fill a disk. What is there already needs no room.
check_space() {
  local wanted=()
  [ -e "$ATOLL_IMAGE_DIR/base" ] || wanted+=("$images_mb $ATOLL_IMAGE_DIR")
  [ -e node_modules/.bin/node ] || wanted+=("$checkout_mb $ATOLL_ROOT")
  [ -e "${ATOLL_DATA_DIR:-/var/lib/atoll}/pool.img" ] || wanted+=("$pool_mb ${ATOLL_DATA_DIR:-/var/lib/atoll}")
  [ ${#wanted[@]} != 0 ] || return 0
  # Folders of one file system share what is free.
  printf '%s\n' "${wanted[@]}" | while read -r mb folder; do
    while [ ! -e "$folder" ]; do folder=$(dirname "$folder"); done
    df --output=avail,target --block-size=1M "$folder" | tail -n 1 | sed "s/^ */$mb /"
  done | awk '{ mb = $1; free = $2; $1 = $2 = ""; sub(/^ */, ""); wanted[$0] += mb; left[$0] = free }
    END { for (place in wanted) if (left[place] < wanted[place]) {
      printf "setup: %d MB are free on %s, and Atoll needs %d MB there\n", left[place], place, wanted[place]; short = 1 }
      exit short }' >&2 || exit 1
}

# check_requirements: what the server demands of a machine, before anything of Atoll is made on it.
check_requirements() {
  local unmet
  if ! unmet=$(node_modules/.bin/node src/server/doctor.ts --requirements); then
    echo 'setup: this machine cannot run sandboxes:' >&2
    printf '%s\n' "  ${unmet//$'\n'/$'\n'  }" >&2
    exit 1
  fi
}

# step TITLE FUNCTION [ARGUMENTS…]: runs one step and prints its outcome. The function reports what it does through `say`
# (the reader sees it at once); everything else that it prints goes to the log.
step() {
  local title=$1 started=$SECONDS status=0
  shift
  step_number=$((step_number + 1))
  echo "[$step_number/$step_count] $title"
  : >"$step_log"
  # Job control gives the step a process group of its own, so that an interrupt can end all of it.
  set -m
  ("$@") 3>&1 >>"$step_log" 2>&1 </dev/null &
  step_pid=$!
  tick "$started" &
  tick_pid=$!
  set +m
  wait "$step_pid" || status=$?
  stop_group "$tick_pid"
  step_pid='' tick_pid=''
  if [ "$status" != 0 ]; then
    echo "      failed (exit $status) after $((SECONDS - started)) s. The end of its output:"
    tail -n 40 "$step_log" | sed 's/^/      | /'
    echo "setup: step $step_number of $step_count failed: $title" >&2
    exit 1
  fi
  echo "      done ($((SECONDS - started)) s)"
}

# say TEXT: a line for the reader.
say() { echo "      $*" >&3; }

# stop_group PID: ends a process group that `step` started, if it has not ended.
stop_group() {
  [ -n "$1" ] || return 0
  kill -- "-$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
}

# tick STARTED: shows that a step still runs: seconds on a terminal, elsewhere a line each half minute.
tick() {
  local elapsed
  while sleep 1; do
    elapsed=$((SECONDS - $1))
    if [ -t 1 ]; then
      printf '      … %s s\r' "$elapsed"
    elif [ $((elapsed % 30)) = 0 ]; then
      echo "      … $elapsed s"
    fi
  done
}

finish_steps() { echo "Setup finished in $((SECONDS - setup_started)) s."; }
