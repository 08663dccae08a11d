#!/usr/bin/env bash
#
# npm run sdk:pack: makes the package of the SDK that the server gives out at /sdk.tgz, unless it is that of these sources already. It lies
# beside the sources and has their version, so that a server never gives out the package of another.

set -euo pipefail
umask 022
export LC_ALL=C.UTF-8

cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p sdk/packed
exec 9>sdk/packed/.lock
flock 9
version=$(node_modules/.bin/node -p 'require("./sdk/package.json").version')
package=sdk/packed/atoll-sdk-$version.tgz
recipe=$(find sdk/src sdk/package.json sdk/README.md sdk/tsconfig.json tsconfig.json openapi.json src/protocol -type f -not -path sdk/src/api.ts -print0 |
  sort --zero-terminated | xargs --null sha256sum)
if [ -f "$package" ] && [ "$recipe" = "$(cat sdk/packed/recipe 2>/dev/null)" ]; then
  echo "$package is current"
  exit
fi
rm -rf sdk/packed/new sdk/packed/*.tgz
mkdir sdk/packed/new
(cd sdk && npm pack --silent --pack-destination packed/new >/dev/null)
mv sdk/packed/new/*.tgz "$package"
rmdir sdk/packed/new
echo "$recipe" >sdk/packed/recipe
echo "made $package"
