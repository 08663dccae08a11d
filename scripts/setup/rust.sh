# The static Rust programs.

# install_crate NAME: builds the crate of that folder with the profile of that name and installs its binary as the image NAME.
install_crate() {
  local name=$1 binary=atoll-$1 target
  find_cargo "$rust_minimum" || { echo 'no cargo'; return 1; }
  target=$(uname -m)-unknown-linux-gnu
  say "building $name/ with cargo $(cargo --version | cut -d' ' -f2)"
  # Remapped paths: two checkouts of one commit give the same binary, hence the same image.
  RUSTFLAGS="-C target-feature=+crt-static --remap-path-prefix=$PWD=atoll" \
    cargo build --profile "$name" --package "$binary" --offline --target "$target"
  install_program "$name" "target/$target/$name/$binary"
}

# install_program NAME BINARY: installs a static program as the image NAME.
install_program() {
  local name=$1 built=$2 binary=atoll-$1 new before
  if ldd "$built" 2>&1 | grep -v -q -E 'statically linked|not a dynamic executable'; then
    echo "$built is not static"
    return 1
  fi
  before=$(current_image "$name")
  new=$(new_image_folder)
  install --mode=0755 "$built" "$new/$binary"
  # The layout calls the guest's file `guest`; the others keep their own name.
  if [ "$name" = guest ]; then mv "$new/$binary" "$new/guest"; fi
  publish_image "$new" "$name"
  if [ "$(current_image "$name")" = "$before" ]; then
    say "$name-$before is current"
  else
    say "installed $name-$(current_image "$name")"
  fi
}
