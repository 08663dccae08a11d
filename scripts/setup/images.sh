# The image folder, shared by all servers of this machine: immutable folders `<name>-<hash>`, and for each name a symbolic
# link to the current one. Old ones stay: hibernated sandboxes and checkpoints stand on them.

open_image_dir() {
  # The folder above is usually the data directory of the first server: others may pass through it, not look around.
  [ -d "$(dirname "$ATOLL_IMAGE_DIR")" ] || mkdir --parents --mode=711 "$(dirname "$ATOLL_IMAGE_DIR")"
  mkdir --parents "$ATOLL_IMAGE_DIR"
  exec 9>"$ATOLL_IMAGE_DIR/.setup.lock"
  if ! flock --nonblock 9; then
    echo '  another setup is running; waiting for it'
    flock 9
  fi
  # What an interrupted setup left.
  rm -rf --one-file-system "$ATOLL_IMAGE_DIR"/.new-*
}

# new_image_folder: prints an empty folder beside the final ones, so that the rename into place is atomic.
new_image_folder() {
  local folder
  folder=$(mktemp -d "$ATOLL_IMAGE_DIR/.new-XXXXXX")
  chmod 755 "$folder"
  echo "$folder"
}

# publish_image FOLDER NAME ID: makes FOLDER the current image NAME under NAME-ID.
publish_image() {
  local folder=$1 name=$2 id=$3
  if [ -e "$ATOLL_IMAGE_DIR/$name-$id" ]; then
    rm -rf --one-file-system "$folder"
  else
    sync -f "$folder"
    mv -T "$folder" "$ATOLL_IMAGE_DIR/$name-$id"
  fi
  select_image "$name" "$id"
}

# select_image NAME ID: points the link NAME at NAME-ID. A rename replaces it: at no moment is there no link.
select_image() {
  ln -s "$1-$2" "$ATOLL_IMAGE_DIR/.new-link-$$"
  mv -T "$ATOLL_IMAGE_DIR/.new-link-$$" "$ATOLL_IMAGE_DIR/$1"
}

# current_image NAME: prints the id behind the link, or nothing.
current_image() {
  local target
  target=$(readlink "$ATOLL_IMAGE_DIR/$1" || true)
  if [ -n "$target" ] && [ -d "$ATOLL_IMAGE_DIR/$target" ]; then echo "${target#"$1"-}"; fi
}

# short_hash: the first 16 hex digits of the SHA-256 of standard input.
short_hash() { sha256sum | cut -c1-16; }
