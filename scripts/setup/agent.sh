# The agent package, mounted read-only into each sandbox: our sources and the agent's npm packages.

agent_sources=(src/agent src/protocol src/lib src/errors.ts)

install_agent() {
  local recipe id new before
  recipe=$(agent_recipe)
  id=$(image_made_by agent "$recipe")
  if [ -n "$id" ]; then
    select_image agent "$id"
    say "agent-$id is current"
    return
  fi
  new=$(new_image_folder)
  mkdir "$new/app"
  # Folders keep their places to each other: the sources import by relative path.
  agent_files | xargs --null cp --parents --target-directory="$new/app"
  cp src/agent/package.json src/agent/package-lock.json "$new/app/"
  before=$ATOLL_IMAGE_DIR/agent/app
  if cmp --quiet src/agent/package.json "$before/package.json" && cmp --quiet src/agent/package-lock.json "$before/package-lock.json"; then
    # Images never change, so that they may share their files: packages take a few hundred megabytes.
    say 'the packages are those of the image before'
    cp --archive --link "$before/node_modules" "$new/app/"
  else
    say "npm ci for the agent's own packages"
    # Without the scripts of packages: whatever they hold runs only inside sandboxes.
    (cd "$new/app" && npm ci --omit=dev --ignore-scripts --no-audit --no-fund)
  fi
  # The sources have the modes of the checkout, which others may not be able to read.
  chmod -R a+rX "$new/app"
  say 'compiling what agents load'
  compile_agent "$new/app"
  chmod -R a+rX "$new/app/compile-cache"
  echo "$recipe" >"$new/recipe"
  publish_image "$new" agent
  id=$(current_image agent)
  say "installed agent-$id, $(du -sm "$ATOLL_IMAGE_DIR/agent-$id" | cut -f1) MB"
}

# compile_agent APP: keeps V8's compiled code of the sources, which saves an agent a quarter of its start. An agent without work is
# started for it, as nobody and without a network: packages may do no more here than read what everybody may. Node keeps the cache
# apart for each user; in their sandbox agents are root.
compile_agent() {
  local cache=$1/compile-cache node=$ATOLL_IMAGE_DIR/base/rootfs/usr/local/bin/node nobody=65534 harness made
  mkdir "$cache"
  chown "$nobody" "$cache"
  for harness in pi acp:none; do
    unshare --net setpriv --reuid="$nobody" --regid="$nobody" --clear-groups --no-new-privs \
      env --ignore-environment ATOLL_GATEWAY_URL=http://127.0.0.1 ATOLL_GATEWAY_TOKEN=none \
      "$node" "$1/src/agent/start.mjs" "$harness" </dev/null
  done
  made=$(echo "$cache"/*-"$nobody")
  mv -T "$made" "${made%-"$nobody"}-0"
  chown -R 0:0 "$cache"
}

# agent_files: the sources without tests, NUL-separated, in a fixed order.
agent_files() {
  find "${agent_sources[@]}" -name node_modules -prune -o -type f -not -name '*.test.ts' -print0 | sort --zero-terminated
}

agent_recipe() {
  echo 'recipe 3'
  # The Node that compiles.
  echo "node $(sha256sum <"$ATOLL_IMAGE_DIR/base/rootfs/usr/local/bin/node" | cut -d' ' -f1)"
  agent_files | xargs --null sha256sum
}
