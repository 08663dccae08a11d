# What only the tests need of Debian: a browser and Caddy for the end-to-end tests, and the program of
# Redis, which `redis-tools` has without a service, to run in sandboxes. `patchelf` makes programs of a newer Debian start here.
# `docker-registry`, `umoci` and `musl-tools` are for images that tests build, fetch and push, `bzip2` and `xz-utils`
# for archives in their contexts, `openssh-client` and `rsync` enter sandboxes, `shellcheck` is for the
# suite `check`.

install_test_packages() {
  local missing=()
  command -v chromium >/dev/null || missing+=(chromium)
  command -v redis-check-rdb >/dev/null || missing+=(redis-tools)
  command -v caddy >/dev/null || missing+=(caddy)
  command -v patchelf >/dev/null || missing+=(patchelf)
  command -v docker-registry >/dev/null || missing+=(docker-registry)
  command -v umoci >/dev/null || missing+=(umoci)
  command -v musl-gcc >/dev/null || missing+=(musl-tools)
  command -v bzip2 >/dev/null || missing+=(bzip2)
  command -v xz >/dev/null || missing+=(xz-utils)
  command -v ssh >/dev/null || missing+=(openssh-client)
  command -v rsync >/dev/null || missing+=(rsync)
  command -v shellcheck >/dev/null || missing+=(shellcheck)
  [ ${#missing[@]} != 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    echo "test: these packages are needed: ${missing[*]}" >&2
    return 1
  fi
  echo "installing ${missing[*]}"
  # Caddy and the registry must not begin to serve on ports of this machine.
  local service hushed=() status=0
  for service in caddy docker-registry; do
    if [ -d /run/systemd/system ] && [[ " ${missing[*]} " == *" $service "* ]]; then hushed+=("$service"); fi
  done
  [ ${#hushed[@]} = 0 ] || systemctl mask --runtime --quiet "${hushed[@]}"
  (
    export DEBIAN_FRONTEND=noninteractive
    apt-get update && apt-get install --yes --no-install-recommends "${missing[@]}"
  ) >"$test_dir/apt.log" 2>&1 </dev/null || status=1
  if [ ${#hushed[@]} != 0 ]; then
    systemctl unmask --runtime --quiet "${hushed[@]}"
    systemctl disable --quiet "${hushed[@]}"
  fi
  [ "$status" = 0 ] || tail -n 30 "$test_dir/apt.log" >&2
  return "$status"
}
