#!/usr/bin/env bash
#
# Runs cargo for the egress proxy, offline, with the crates that setup fetched from Debian: scripts/cargo-egress.sh test

set -euo pipefail

ATOLL_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Not the link: cargo takes the crates of one folder for unchangeable.
crates=$(readlink --canonicalize-missing "${ATOLL_IMAGE_DIR:-/var/lib/atoll/images}/crates")/registry
# shellcheck source=/dev/null
source "$ATOLL_ROOT/scripts/setup/cargo.sh"

if [ ! -d "$crates" ]; then
  echo "cargo-egress: there is no $crates: npm run setup fetches it" >&2
  exit 1
fi
if ! find_cargo "$egress_rust_minimum"; then
  echo "cargo-egress: no cargo of at least $egress_rust_minimum" >&2
  exit 1
fi
cd "$ATOLL_ROOT/egress"
command=$1
shift
exec cargo "$command" --offline --config 'source.crates-io.replace-with="debian"' --config "source.debian.directory='$crates'" "$@"
