# The static Rust programs: the guest and hostd.

# install_crate FOLDER BINARY NAME: builds the crate and installs its binary as the image NAME.
install_crate() {
  local folder=$1 binary=$2 name=$3 target built new before
  find_cargo || { echo 'no cargo'; return 1; }
  target=$(uname -m)-unknown-linux-gnu
  say "building $folder/ with cargo $(cargo --version | cut -d' ' -f2)"
  # Remapped paths: two checkouts of one commit give the same binary, hence the same image.
  (
    cd "$folder" || exit
    RUSTFLAGS="-C target-feature=+crt-static --remap-path-prefix=$PWD=$folder" \
      cargo build --release --offline --target "$target"
  )
  built=$folder/target/$target/release/$binary
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
