# A database without rows, in the newest schema: a server that starts for the first time copies it, which saves it seconds.

install_database() {
  local recipe id new
  recipe=$(node_modules/.bin/node src/store/write-empty-database.ts recipe)
  id=$(image_made_by database "$recipe")
  if [ -n "$id" ]; then
    select_image database "$id"
    say "database-$id is current"
    return
  fi
  new=$(new_image_folder)
  node_modules/.bin/node src/store/write-empty-database.ts create "$new"
  echo "$recipe" >"$new/recipe"
  publish_image "$new" database
  say "made database-$(current_image database), for $recipe"
}
