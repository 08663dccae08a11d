#!/usr/bin/env bash
#
# Prints a folder that holds the newest runc of Debian (sid's) and nothing else, to be put first in PATH: distributions ship
# runc 1.1, and from 1.2 on it finds CRIU in another way. What it needs of a newer libc lies beside it. It starts itself anew
# through /proc/self/exe, so the loader and the libraries are written into the program. Fetched at most once a week.
# As root, with patchelf, after setup.

set -euo pipefail
umask 022
export LC_ALL=C.UTF-8

ATOLL_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
ATOLL_IMAGE_DIR=${ATOLL_IMAGE_DIR:-/var/lib/atoll/images}
cache=/var/cache/atoll-test
# shellcheck source=/dev/null
source "$ATOLL_ROOT/scripts/setup/debian-suite.sh"

fetch_runc() {
  local new=$1 package version libraries loader
  open_suite "$new" sid deb
  apt-get "${suite[@]}" install --download-only --yes --no-install-recommends runc
  mkdir "$new/root" "$new/bin"
  for package in "$new"/apt/cache/archives/*.deb; do dpkg-deb --extract "$package" "$new/root"; done
  version=$(dpkg-deb --field "$new"/apt/cache/archives/runc_*.deb Version)
  loader=$(basename "$(patchelf --print-interpreter "$new/root/usr/sbin/runc")")
  loader=$(find "$new/root" -name "$loader" -type f -printf '%P\n' -quit)
  libraries=$cache/runc-$version/root/$(dirname "$loader")
  install --mode=0755 "$new/root/usr/sbin/runc" "$new/bin/runc"
  patchelf --set-interpreter "$libraries/$(basename "$loader")" --set-rpath "$libraries" "$new/bin/runc"
  rm -rf "$new/apt"
  # A folder of this version may be in use.
  [ -e "$cache/runc-$version" ] || mv -T "$new" "$cache/runc-$version"
  "$cache/runc-$version/bin/runc" --version
  find "$cache" -mindepth 1 -maxdepth 1 ! -name .lock ! -name "runc-$version" -exec rm -rf --one-file-system {} +
  ln -sfn "runc-$version" "$cache/runc"
}

mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9
rm -rf --one-file-system "$cache"/.new-*
if [ -z "$(find "$cache/runc" -maxdepth 0 -type l -mtime -7 2>/dev/null)" ]; then
  new=$(mktemp -d "$cache/.new-XXXXXX")
  chmod 755 "$new"
  fetch_runc "$new" >&2 </dev/null
fi
readlink -f "$cache/runc/bin"
