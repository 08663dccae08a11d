# The image folder, shared by all servers of this machine: immutable folders `<name>-<hash>`, the hash being that of their content
# (scripts/setup/tree-hash.ts), and for each name a symbolic link to the current one. An image that is made from more than
# its own bytes has a file `recipe` with its inputs. Old ones stay: hibernated sandboxes and checkpoints stand on them.

open_image_dir() {
  # The folder above is usually the data directory of the first server: others may pass through it, not look around.
  # shellcheck disable=SC2174 # those above that one get the mode of all folders
  [ -d "$(dirname "$ATOLL_IMAGE_DIR")" ] || mkdir --parents --mode=711 "$(dirname "$ATOLL_IMAGE_DIR")"
  mkdir --parents "$ATOLL_IMAGE_DIR"
  exec 9>"$ATOLL_IMAGE_DIR/.setup.lock"
  if ! flock --nonblock 9; then
    echo '  another setup is running; waiting for it'
    flock 9
  fi
  # Remains of an interrupted setup.
  rm -rf --one-file-system "$ATOLL_IMAGE_DIR"/.new-*
}

# new_image_folder: prints an empty folder beside the final ones, so that the rename into place is atomic.
new_image_folder() {
  local folder
  folder=$(mktemp -d "$ATOLL_IMAGE_DIR/.new-XXXXXX")
  chmod 755 "$folder"
  echo "$folder"
}

# publish_image FOLDER NAME: makes FOLDER the current image NAME, under the hash of what is in it.
publish_image() {
  local folder=$1 name=$2 id final
  id=$(tree_hash "$folder")
  final=$ATOLL_IMAGE_DIR/$name-$id
  # A damaged image no longer has the hash of its name.
  if [ -e "$final" ] && [ "$(tree_hash "$final")" = "$id" ]; then
    rm -rf --one-file-system "$folder"
  else
    sync -f "$folder"
    # Sandboxes may run on it: open files live on, and the image is absent only between the two renames.
    if [ -e "$final" ]; then mv -T "$final" "$ATOLL_IMAGE_DIR/.new-damaged-$name-$id"; fi
    mv -T "$folder" "$final"
    rm -rf --one-file-system "$ATOLL_IMAGE_DIR/.new-damaged-$name-$id"
  fi
  select_image "$name" "$id"
}

# tree_hash FOLDER: prints the name of its content.
tree_hash() {
  node_modules/.bin/node --input-type=module --eval '
    const { treeHash } = await import(process.argv[1])
    console.log(treeHash(process.argv[2]))
  ' "$ATOLL_ROOT/scripts/setup/tree-hash.ts" "$1"
}

# image_made_by NAME RECIPE: prints the id of an image that was made by this recipe, the current one before others, or nothing.
image_made_by() {
  local name=$1 recipe=$2 id folder
  for folder in "$ATOLL_IMAGE_DIR/$name-$(current_image "$name")" "$ATOLL_IMAGE_DIR/$name"-*; do
    id=${folder#"$ATOLL_IMAGE_DIR/$name-"}
    if is_tree_hash "$id" && [ "$recipe" = "$(cat "$folder/recipe" 2>/dev/null)" ]; then
      echo "$id"
      return
    fi
  done
}

is_tree_hash() { [[ $1 =~ ^[0-9a-f]{32}$ ]]; }

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
