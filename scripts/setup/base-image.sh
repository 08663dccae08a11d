# The base image: a small Debian in which bash, git, python3, pip, Node 24 and npm work, and which ssh, sftp and rsync reach.

base_suite=bookworm
base_packages=bash,ca-certificates,curl,git,jq,less,nano,openssh-client,openssh-server,procps,python3,python3-pip,ripgrep,rsync
base_npm=11.21.2
# Counts changes of this file that change the image.
base_recipe_version=5

install_base_image() {
  local recipe id new
  recipe=$(base_recipe)
  if [ "$ATOLL_FRESH_BASE" = no ]; then
    id=$(image_made_by base "$recipe")
    if [ -n "$id" ]; then
      select_image base "$id"
      say "base-$id is current"
      return
    fi
  fi
  new=$(new_image_folder)
  say "Debian $base_suite with ${base_packages//,/, } (about 20 s)"
  bootstrap_debian "$new/rootfs"
  say "Node $(node_modules/.bin/node --version) and npm $base_npm"
  add_node "$new/rootfs"
  add_mount_points "$new/rootfs"
  check_base "$new/rootfs"
  echo "$recipe" >"$new/recipe"
  publish_image "$new" base
  id=$(current_image base)
  say "installed base-$id, $(du -sm "$ATOLL_IMAGE_DIR/base-$id" | cut -f1) MB"
}

# base_recipe: our inputs that decide the content of the image. The Debian packages are those of the day.
base_recipe() {
  echo "recipe $base_recipe_version"
  echo "suite $base_suite $(dpkg --print-architecture)"
  echo "packages $base_packages"
  echo "node $(sha256sum <"$(base_node)" | cut -d' ' -f1)"
  echo "npm $base_npm"
}

# The binary itself: node_modules/.bin/node is a link to it.
base_node() { readlink -f node_modules/.bin/node; }

bootstrap_debian() {
  local root=$1 sources apt_options
  sources=$(mktemp)
  apt_options=$(mktemp)
  base_sources >"$sources"
  # The machine's own proxy and clock settings for apt; they are taken out of the image again.
  apt-config dump --no-empty Acquire | grep -E '^Acquire::(http|https|Check-|Retries|Max-FutureTime|ForceIPv)' >"$apt_options" || true
  if [ -s "$sources" ]; then
    mmdebstrap --mode=root --variant=minbase --include="$base_packages" --aptopt="$apt_options" \
      --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
      --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
      "$base_suite" "$root" "$sources"
  else
    mmdebstrap --mode=root --variant=minbase --include="$base_packages" --aptopt="$apt_options" \
      --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
      --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
      "$base_suite" "$root"
  fi
  # Inside, the Debian mirrors of this machine. Without any, the public one that mmdebstrap has written stays.
  if [ -s "$sources" ]; then
    install --mode=0644 "$sources" "$root/etc/apt/sources.list"
    rm -f "$root"/etc/apt/sources.list.d/*.list
  fi
  rm -f "$sources" "$apt_options" "$root/etc/apt/apt.conf.d/99mmdebstrap"
  rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin "$root"/var/log/*.log "$root"/var/log/apt "$root"/tmp/*
  : >"$root/etc/machine-id"
  # The sandbox is the environment: pip may install for all of it, although Debian has Python too (PEP 668).
  printf '[install]\nbreak-system-packages = true\nroot-user-action = ignore\n' >"$root/etc/pip.conf"
  # The package makes host keys. Each sandbox makes its own, since those of an image would be known to all that have it.
  rm -f "$root"/etc/ssh/ssh_host_*
}

# base_sources: apt lines for the suite on the Debian mirrors that this machine uses; nothing on other distributions,
# where mmdebstrap knows the public mirror by itself.
base_sources() {
  local archive security
  archive=$(debian_mirror Debian)
  security=$(debian_mirror Debian-Security)
  [ -n "$archive" ] || return 0
  echo "deb $archive $base_suite main"
  echo "deb $archive $base_suite-updates main"
  if [ -n "$security" ]; then echo "deb $security $base_suite-security main"; fi
}

add_node() {
  local root=$1 npm_home=$1/usr/local/lib/node_modules/npm packed
  install --mode=0755 "$(base_node)" "$root/usr/local/bin/node"
  packed=$(mktemp -d)
  # npm checks the package against the registry's integrity hash.
  npm pack --silent --pack-destination "$packed" "npm@$base_npm"
  mkdir -p "$npm_home"
  tar --extract --gzip --file "$packed/npm-$base_npm.tgz" --directory "$npm_home" --strip-components=1 --no-same-owner
  rm -rf "$packed" "$npm_home/docs" "$npm_home/man"
  ln -s ../lib/node_modules/npm/bin/npm-cli.js "$root/usr/local/bin/npm"
  ln -s ../lib/node_modules/npm/bin/npx-cli.js "$root/usr/local/bin/npx"
  chmod 755 "$npm_home/bin/npm-cli.js" "$npm_home/bin/npx-cli.js"
}

# The mount points of the driver. The image is never written to, so they must exist in it.
add_mount_points() {
  local root=$1
  mkdir -p "$root/workspace" "$root/.atoll/run" "$root/.atoll/agent"
  : >"$root/.atoll/guest"
  # The names of the machine that built the image have no business in it.
  echo sandbox >"$root/etc/hostname"
  printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
  rm -f "$root/etc/resolv.conf"
  : >"$root/etc/resolv.conf"
  chroot "$root" usermod --shell /bin/bash root
  # For those who do not want root. Nothing raises its rights again: programs in a sandbox gain none.
  # No password fits "*". sshd takes "!", the default, for a locked account.
  chroot "$root" useradd --uid 1000 --create-home --shell /bin/bash --password '*' sandbox
  chmod 1777 "$root/workspace"
}

# check_base: every program that the image promises starts in it.
check_base() {
  local root=$1 program
  for program in bash git curl jq less nano python3 pip rg node npm npx rsync; do in_base "$root" "$program" --version; done
  test -x "$root/usr/bin/ps" # does not start without /proc
  in_base "$root" ssh -V
  test -x "$root/usr/sbin/sshd" # does not start without host keys
  test -s "$root/etc/ssl/certs/ca-certificates.crt"
  # npm leaves a cache in the home of root.
  rm -rf "$root/root/.npm" "$root"/tmp/*
}

# in_base ROOT PROGRAM [ARGUMENTS…]: with the search path of sandboxes, since root's own may lack /usr/local, and with the devices of this
# machine, since an image on a file system without devices has none.
in_base() {
  # shellcheck disable=SC2016 # the dollars belong to the inner shell
  unshare --mount --propagation private /bin/sh -ec 'mount --bind /dev "$1/dev"; exec chroot "$@"' sh "$1" /usr/bin/env -i \
    HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${@:2}"
}
