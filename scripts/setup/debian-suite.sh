# Packages of another Debian suite than this machine's, of sources or programs, with the signatures that apt checks.

# open_suite FOLDER SUITE TYPE: reads the index of a suite, of sources (deb-src) or programs (deb), and leaves in `suite` the options with
# which apt works on it. They are a configuration of their own in FOLDER: the machine's own sources are not touched, and nothing
# counts as installed.
open_suite() {
  local folder=$1/apt
  mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
  : >"$folder/status"
  cat >"$folder/suite.sources" <<SOURCES
Types: $3
URIs: $(suite_mirror)
Suites: $2
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCES
  suite=(-o "Dir::Etc::sourcelist=$folder/suite.sources" -o Dir::Etc::sourceparts=- -o "Dir::State=$folder"
    -o "Dir::State::lists=$folder/lists" -o "Dir::State::status=$folder/status" -o "Dir::Cache=$folder/cache"
    -o "Dir::Log=$folder" -o APT::Sandbox::User=root)
  apt-get "${suite[@]}" update
}

# suite_mirror: the Debian mirror that this machine uses, else the one of the base image, which was built before.
suite_mirror() {
  local mirror
  mirror=$(debian_mirror Debian)
  # Options in brackets may stand before the address.
  [ -n "$mirror" ] || mirror=$(awk '$1 == "deb" { for (i = 2; i <= NF; i++) if ($i ~ /^[a-z]+:\/\//) { print $i; exit } }' \
    "$ATOLL_IMAGE_DIR/base/rootfs/etc/apt/sources.list")
  echo "$mirror"
}

# debian_mirror LABEL: the first configured mirror whose index carries this label.
debian_mirror() {
  # shellcheck disable=SC2016 # the dollars belong to apt
  apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(SITE)' 'Created-By: Packages' |
    awk -F'|' -v label="$1" '$1 == "Debian" && $2 == label { print $3; exit }'
}
