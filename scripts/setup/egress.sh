# The egress proxy. Its crates are packages of Debian, from the signed archive that the rest comes from, with Debian's fixes. Where it
# cannot be built everything but egress rules and secrets works, so nothing here fails setup.

crates_suite=trixie
crates_list=$ATOLL_ROOT/egress/debian-crates

install_egress() {
  local built=yes
  # As a job, since errors do not end a function that runs in a condition.
  (install_crates; build_egress) &
  wait $! || built=no
  [ "$built" = no ] || return 0
  say 'the egress proxy could not be built. The end of the output:'
  tail -n 8 "$step_log" | sed 's/^/      | /' >&3
  if egress_works "$ATOLL_IMAGE_DIR/egress/atoll-egress"; then
    say "egress-$(current_image egress) stays"
  else
    say 'egress rules and secrets will be unavailable'
  fi
}

egress_works() { "$1" authority >/dev/null; }

# install_crates: the crates are an image, fetched anew when the list changes, and with --fresh-base. A point release of Debian
# brings fixes under newer versions.
install_crates() {
  local recipe id new
  recipe=$(crates_recipe)
  if [ "$ATOLL_FRESH_BASE" = no ]; then
    id=$(image_made_by crates "$recipe")
    if [ -n "$id" ]; then
      select_image crates "$id"
      return
    fi
  fi
  say "fetching $(crates_wanted | wc -l) crates of Debian $crates_suite"
  new=$(new_image_folder)
  fetch_crates "$new"
  echo "$recipe" >"$new/recipe"
  publish_image "$new" crates
}

crates_recipe() {
  echo "suite $crates_suite $(dpkg --print-architecture)"
  crates_wanted
}

# crates_wanted: the lines of the list: name and version.
crates_wanted() { sed '/^#/d' "$crates_list"; }

# fetch_crates FOLDER: unpacks them in FOLDER/registry. Not by `apt-get install`: each depends on all that its features may need,
# compilers among it.
fetch_crates() {
  local build package packages=()
  build=$(new_image_folder)
  open_suite "$build" "$crates_suite" deb
  # shellcheck disable=SC2046 # one word for each
  mapfile -t packages < <(apt-cache "${suite[@]}" showpkg $(crates_wanted | crate_packages) | real_packages)
  if [ ${#packages[@]} != "$(crates_wanted | wc -l)" ]; then
    echo "Debian $crates_suite has not all of $crates_list"
    return 1
  fi
  mkdir "$build/packages"
  (cd "$build/packages" && apt-get "${suite[@]}" download "${packages[@]}")
  for package in "$build"/packages/*.deb; do dpkg-deb --extract "$package" "$build/root"; done
  mv -T "$build/root/usr/share/cargo/registry" "$1/registry"
  rm -rf "$build"
}

# crate_packages: from names and versions, the names that packages of crates provide for each compatible version.
crate_packages() { tr _ - | sed 's/\(.*\) \(.*\)/librust-\1-\2-dev/'; }

# real_packages: from the output of `apt-cache showpkg`, the package behind each name: itself, or the first that provides it.
real_packages() {
  awk '
    /^Package: / { name = $2; found = 0 }
    /^[A-Z].*:/ { part = $0; next }
    found || NF == 0 { next }
    part ~ /^Versions:/ { print name; found = 1 }
    part ~ /^Reverse Provides:/ { print $1; found = 1 }
  ' | sort --unique
}

build_egress() {
  local target
  target=$(uname -m)-unknown-linux-gnu
  # The crates have the versions of Debian's archive, so a lock of ours would be false after its next point release.
  rm -f egress/Cargo.lock
  find_cargo "$egress_rust_minimum" || { echo "no cargo of at least $egress_rust_minimum"; return 1; }
  say "building egress/ with cargo $(cargo --version | cut -d' ' -f2) (the first time minutes)"
  RUSTFLAGS="-C target-feature=+crt-static --remap-path-prefix=$PWD=atoll --remap-path-prefix=$(readlink -f "$ATOLL_IMAGE_DIR/crates")=crates" \
    bash scripts/cargo-egress.sh build --release --target "$target"
  egress_works "egress/target/$target/release/atoll-egress"
  install_program egress "egress/target/$target/release/atoll-egress"
}
