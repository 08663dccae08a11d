# An empty database as PGlite makes it: a server that starts for the first time copies it, which saves it seconds.

install_database() {
  local recipe id new
  recipe="pglite $(node_modules/.bin/node -p "require('./node_modules/@electric-sql/pglite/package.json').version")"
  id=$(image_made_by database "$recipe")
  if [ -n "$id" ]; then
    select_image database "$id"
    say "database-$id is current"
    return
  fi
  new=$(new_image_folder)
  node_modules/.bin/node --input-type=module - "$new/db" <<'EOF'
import { PGlite } from '@electric-sql/pglite'
const pglite = await PGlite.create(process.argv[2])
await pglite.close()
EOF
  echo "$recipe" >"$new/recipe"
  publish_image "$new" database
  say "made database-$(current_image database), for $recipe"
}
