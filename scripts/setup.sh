#!/usr/bin/env bash
#
# Prepares this machine for Atoll: Debian packages, npm packages, the guest, the base image, CRIU, the egress proxy. Asks nothing, may be
# repeated at any time, and does only what is missing. Started by `npm run setup`, on any Node from 18, as root.
#
#   ATOLL_IMAGE_DIR   where images, guest and CRIU go, for all servers of this machine (/var/lib/atoll/images)
#   --fresh-base      build the base image anew although its recipe did not change (newer Debian packages),
#                     and fetch the crates of the egress proxy anew
#   --other-machine   for the image of another machine, in a chroot: of this one only CRIU is tried, which is built here
#
# Each step is a function in scripts/setup/. What a step prints goes to a log that is shown when the step fails.

set -euo pipefail
umask 022
export LC_ALL=C.UTF-8
# Whoever became root by `su` or in a service may have neither of the folders of administration nor /usr/local.
export PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

ATOLL_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ATOLL_IMAGE_DIR=${ATOLL_IMAGE_DIR:-/var/lib/atoll/images}
ATOLL_FRESH_BASE=no
other_machine=no
for argument in "$@"; do
  case $argument in
    --fresh-base) ATOLL_FRESH_BASE=yes ;;
    --other-machine) other_machine=yes ;;
    *)
      echo "setup: unknown option $argument (known: --fresh-base, --other-machine)" >&2
      exit 2
      ;;
  esac
done

cd "$ATOLL_ROOT"
for part in steps images cargo packages debian-suite node-modules rust base-image scratch-image agent sdk dashboard criu egress; do
  # shellcheck source=/dev/null
  source "$ATOLL_ROOT/scripts/setup/$part.sh"
done

check_machine
check_space
open_image_dir

step 'Debian packages' install_packages
step 'System users' install_system_users
step 'npm packages' install_node_modules
[ "$other_machine" = yes ] || check_requirements

step 'Guest (PID 1 of each sandbox)' install_crate guest
step 'Host helper' install_crate hostd
# Once more, with what the helper can try.
[ "$other_machine" = yes ] || check_requirements
step 'Base image' install_base_image
step 'Empty image' install_scratch_image
step 'Agent' install_agent
step 'SDK' install_sdk
step 'Dashboard' install_dashboard
step 'CRIU' install_criu
step 'Egress proxy' install_egress
finish_steps

[ "$other_machine" = no ] || exit 0

echo
exec 9>&-
# Node from node_modules, not the machine's: type stripping needs it.
"$ATOLL_ROOT/node_modules/.bin/node" "$ATOLL_ROOT/src/server/doctor.ts"
