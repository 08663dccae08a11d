#!/usr/bin/env bash
#
# npm run test:upgrade: `npm run db:upgrade` from PostgreSQL 15 to 17, in a folder with Debian 13 in which Debian 12's PostgreSQL lies beside its
# own, as an upgrade of the distribution leaves them. The folder is made once. As root, after setup; its last line is the tally.

set -euo pipefail
umask 022
export LC_ALL=C.UTF-8

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=/var/cache/atoll-upgrade
mirror=${ATOLL_TEST_MIRROR:-http://deb.debian.org/debian}
if [ "$(id -u)" != 0 ]; then
  echo 'test: must run as root: it mounts folders and starts a database' >&2
  exit 1
fi

make_debian() {
  local new
  new=$(mktemp -d "$cache/.new-XXXXXX")
  echo "making a Debian 13 with PostgreSQL 15 and 17 in $cache/debian"
  # Debian's packages would make clusters of their own.
  # shellcheck disable=SC2016 # the dollar belongs to mmdebstrap
  mmdebstrap --quiet --variant=minbase --include=postgresql-15,postgresql-17,e2fsprogs \
    --setup-hook='mkdir -p "$1/etc/postgresql-common/createcluster.d"' \
    --setup-hook='echo "create_main_cluster = false" >"$1/etc/postgresql-common/createcluster.d/none.conf"' \
    --customize-hook='chroot "$1" useradd --system --user-group --no-create-home atoll-db' \
    --customize-hook='chroot "$1" useradd --system --user-group --no-create-home atoll-webhooks' \
    trixie "$new" "deb $mirror trixie main" "deb $mirror bookworm main"
  mkdir "$new/atoll"
  mv -T "$new" "$cache/debian"
}

mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9
rm -rf --one-file-system "$cache"/.new-*
[ -d "$cache/debian" ] || make_debian
exec 9>&-

# shellcheck disable=SC2016 # the dollars belong to the inner shell
exec unshare --mount --propagation private -- sh -euc '
  root=$1 debian=$2; shift 2
  # Namespaces of mounts begin at a mount.
  mount --bind "$debian" "$debian"
  for folder in proc sys dev run; do mount --rbind "/$folder" "$debian/$folder"; done
  mount --bind "$root" "$debian/atoll"
  exec chroot "$debian" env --chdir=/atoll PATH=/atoll/node_modules/.bin:/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/var/tmp \
    node --test --test-timeout=1800000 "$@" test/upgrade/upgrade.ts
' sh "$root" "$cache/debian" "$@"
