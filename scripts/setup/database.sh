# An empty database as PGlite makes it: a server that starts for the first time copies it, which saves it seconds.

install_database() {
  local version new
  version=$(node_modules/.bin/node -p "require('./node_modules/@electric-sql/pglite/package.json').version")
  if [ -d "$ATOLL_IMAGE_DIR/database-$version" ]; then
    select_image database "$version"
    say "database-$version is current"
    return
  fi
  new=$(new_image_folder)
  node_modules/.bin/node --input-type=module - "$new" <<'EOF'
import { PGlite } from '@electric-sql/pglite'
const pglite = await PGlite.create(process.argv[2])
await pglite.close()
EOF
  publish_image "$new" database "$version"
  say "made database-$version"
}
