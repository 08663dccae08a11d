#!/usr/bin/env bash
#
# npm run dashboard:build: builds the dashboard and the pages of the documentation, unless they are those of these sources already. A server that
# runs goes on with what it has read.

set -euo pipefail
umask 022
export LC_ALL=C.UTF-8

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/node_modules/.bin:$PATH"
mkdir -p dashboard/built
exec 9>dashboard/built/.lock
flock 9
recipe=$(find dashboard/src dashboard/docs dashboard/*.json dashboard/*.ts dashboard/index.html docs README.md sdk/src src/protocol/heartbeat.ts src/lib/html.ts package-lock.json \
  -type f -not -path sdk/src/api.ts -print0 | sort --zero-terminated | xargs --null sha256sum)
if [ -f dashboard/dist/index.html ] && [ -f dashboard/dist-docs/404.html ] && [ "$recipe" = "$(cat dashboard/built/recipe 2>/dev/null)" ]; then
  echo 'the dashboard is current'
  exit
fi
rm -f dashboard/built/recipe
npm run --silent sdk:types
npm run --silent --workspace dashboard build >&2
node dashboard/docs/build.ts >&2
echo "$recipe" >dashboard/built/recipe
echo "built the dashboard, $(du -sk dashboard/dist | cut -f1) kB, and the pages of the documentation, $(du -sk dashboard/dist-docs | cut -f1) kB"
