# CRIU, for checkpoints with memory, judged by a real dump and restore: distributions' own often fails on newer kernels. The
# newest release is built from the source package of Debian sid, with the changes in criu-changes/. Where that cannot be done the
# system's own serves, if it works. Without a working CRIU everything but full checkpoints works, so nothing here fails setup.

# Each change has a folder, named after what it mends. Its files are sed scripts, each for the source file at the same path. The first
# line of a script has the number of lines that it removes and adds in a source that it was made for.
criu_changes=$ATOLL_ROOT/scripts/setup/criu-changes

criu_build_packages=(
  make gcc libc6-dev pkg-config python3 xz-utils
  libbsd-dev libcap-dev libnet1-dev libnftables-dev libnl-3-dev uuid-dev
  libprotobuf-c-dev libprotobuf-dev protobuf-c-compiler protobuf-compiler
)

install_criu() {
  local built=yes
  if criu_works "$ATOLL_IMAGE_DIR/criu/criu" && diff --recursive --brief "$criu_changes" "$ATOLL_IMAGE_DIR/criu/changes" &>/dev/null; then
    say "criu-$(current_image criu) passes a real dump and restore"
    return
  fi
  say 'building CRIU (about a minute)'
  # As a job, since errors do not end a function that runs in a condition.
  (build_criu) &
  wait $! || built=no
  if [ "$built" = yes ]; then
    say "criu-$(current_image criu) is installed and passes a real dump and restore"
    return
  fi
  say 'no CRIU could be built that works. The end of the output:'
  tail -n 8 "$step_log" | sed 's/^/      | /' >&3
  if criu_works "$ATOLL_IMAGE_DIR/criu/criu"; then
    say "criu-$(current_image criu) stays: it passes a real dump and restore"
  elif criu_works "$(command -v criu || true)"; then
    use_system_criu
  else
    say 'full checkpoints will be unavailable'
  fi
}

# criu_works PATH: real dumps and restores, of a small process tree and, through runc, of a container on the base image. In a
# chroot for another machine there are no control groups, without which no container starts.
criu_works() {
  [ -n "$1" ] && [ -x "$1" ] || return 1
  local images=("$ATOLL_IMAGE_DIR")
  [ "$other_machine" = no ] || images=()
  node_modules/.bin/node --input-type=module --eval '
    const { criuSelfTest } = await import(process.argv[1])
    const result = await criuSelfTest(process.argv[2], process.argv[3])
    console.log(JSON.stringify(result))
    process.exit(result.ok ? 0 : 1)
  ' "$ATOLL_ROOT/src/runtime/criu/self-test.ts" "$1" "${images[@]}"
}

use_system_criu() {
  local version new
  version=$(criu_version criu)
  new=$(new_image_folder)
  # A link, not a copy: its libraries are upgraded together with it.
  ln -s "$(command -v criu)" "$new/criu"
  publish_image "$new" criu
  say "the system's CRIU $version passes a real dump and restore"
}

criu_version() { "$1" --version | sed -n 's/^Version: //p'; }

build_criu() {
  local build new
  apt_install "${criu_build_packages[@]}"
  # Among the images, from where programs can be started: many a machine mounts /tmp noexec.
  build=$(new_image_folder)
  # shellcheck disable=SC2064 # the folder of this moment is meant
  trap "rm -rf '$build'" EXIT
  fetch_criu_source "$build"
  mkdir "$build/source"
  unpack_criu "$build"
  new=$(new_image_folder)
  # What was tried here, for the next setup; and a mark for each change that succeeded, for the server.
  cp --recursive "$criu_changes" "$new/changes"
  local change
  for change in "$criu_changes"/*; do
    change=$(basename "$change")
    if change_criu "$change" "$build/source"; then
      touch "$new/$change"
    else
      say "this release of CRIU does not take the change $change"
    fi
  done
  # The library for TLS between page servers is not used here.
  make --directory "$build/source" --jobs "$(nproc)" NO_GNUTLS=1 criu
  criu_works "$build/source/criu/criu"
  install --mode=0755 --strip "$build/source/criu/criu" "$new/criu"
  publish_image "$new" criu
}

unpack_criu() {
  tar --extract --file "$1"/criu_*.orig.tar.* --directory "$1/source" --strip-components=1
}

# change_criu CHANGE SOURCE: changes all files or none; fails when one of them is not what the change was made for.
change_criu() {
  local script name changed lines file draft
  draft=$(mktemp -d "$2/.change-XXXXXX")
  while read -r script; do
    name=${script%.sed}
    file=$2/$name
    changed=$draft/$name
    [ -f "$file" ] || return 1
    mkdir -p "$(dirname "$changed")"
    sed --file "$criu_changes/$1/$script" "$file" >"$changed"
    lines=$(diff "$file" "$changed" | grep -c '^[<>]' || true)
    [ "$lines" = "$(sed -n '1s/^# lines: //p' "$criu_changes/$1/$script")" ] || return 1
  done < <(cd "$criu_changes/$1" && find . -name '*.sed' -printf '%P\n')
  cp --recursive "$draft/." "$2/"
  rm -rf "$draft"
}

# fetch_criu_source FOLDER: puts the upstream tarball there, checked against apt's signed index.
fetch_criu_source() {
  local folder=$1 tarball wanted
  open_suite "$folder" sid deb-src
  # Debian's own changes are not needed, and mirrors may have dropped them for a newer revision.
  (cd "$folder" && apt-get "${suite[@]}" source --download-only criu) || true
  tarball=$(basename "$folder"/criu_*.orig.tar.*)
  wanted=$(apt-cache "${suite[@]}" showsrc criu | awk -v name="$tarball" '
    /^Checksums-Sha256:/ { inside = 1; next } /^[^ ]/ { inside = 0 } inside && $3 == name { print $1; exit }')
  echo "$wanted  $folder/$tarball" | sha256sum --check --strict
}
