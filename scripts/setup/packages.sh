# Debian packages.

export DEBIAN_FRONTEND=noninteractive

# Packages of the programs that the server and the steps of setup call.
needed_packages=(
  runc             # containers
  btrfs-progs      # the disk pool
  nftables         # packet rules
  iproute2         # links and routes of sandboxes
  dnsmasq-base     # the forwarder that sandboxes ask
  postgresql       # the private database
  lxcfs            # the memory, processors and uptime that sandboxes see
  util-linux mount # losetup, mount, flock
  procps           # sysctl, ps
  e2fsprogs        # chattr
  kmod             # modprobe
  mmdebstrap       # the base image
  debian-archive-keyring
  ca-certificates
  skopeo           # images from registries
  gzip zstd        # their layers
  gcc libc6-dev    # the linker and the static libc of the guest; the C of the egress proxy's crates
)

install_packages() {
  local wanted=("${needed_packages[@]}")
  choose_rust
  # Debian's package would make and start a cluster of its own; Atoll has one in its data directory.
  local no_cluster=/etc/postgresql-common/createcluster.d/atoll-setup.conf status=0
  mkdir -p "$(dirname "$no_cluster")"
  echo 'create_main_cluster = false' >"$no_cluster"
  apt_install "${wanted[@]}" || status=$?
  rm -f "$no_cluster"
  [ "$status" = 0 ] || return "$status"
  keep_postgresql
}

# choose_rust: adds to `wanted` the packages of a Rust that builds all programs, else of one that builds those without which nothing runs.
choose_rust() {
  local version
  if ! find_cargo "$egress_rust_minimum"; then
    apt-get update
    # A newer one beside the distribution's own: Debian 12 has it for browsers, and it takes the place of its own; Ubuntu has several.
    for version in web "$egress_rust_minimum"; do
      if [[ $(apt-cache policy "cargo-$version") == *'Candidate: '[0-9]* ]]; then
        wanted+=("cargo-$version" "rustc-$version")
        return
      fi
    done
    if ! find_cargo "$rust_minimum"; then
      wanted+=(cargo rustc)
      return
    fi
  fi
  say "cargo $(cargo --version | cut -d' ' -f2) is present"
}

# A database stays with the version that made it. An upgrade of the distribution calls the package of that version superfluous, and must not remove it.
keep_postgresql() {
  local folder
  for folder in /usr/lib/postgresql/*/bin; do
    folder=${folder%/bin}
    if package_installed "postgresql-${folder##*/}"; then apt-mark manual "postgresql-${folder##*/}" >/dev/null; fi
  done
}

# The users of the private database (PostgreSQL refuses root, and the user of Debian's own clusters is not touched), of the process that
# sends webhooks, and of the egress proxy.
install_system_users() {
  local user
  for user in atoll-db atoll-webhooks atoll-egress; do
    if id "$user" >/dev/null 2>&1; then
      say "$user is present"
      continue
    fi
    useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$user"
    say "made the user $user"
  done
}

# apt_install PACKAGE…: installs those that are missing; asks the mirrors only then.
apt_install() {
  local package missing=()
  for package in "$@"; do
    package_installed "$package" || missing+=("$package")
  done
  if [ ${#missing[@]} = 0 ]; then
    say 'all present'
    return
  fi
  say "installing ${missing[*]}"
  apt-get update
  apt-get install --yes --no-install-recommends "${missing[@]}"
}

package_installed() {
  # shellcheck disable=SC2016 # the dollar belongs to dpkg
  [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}
