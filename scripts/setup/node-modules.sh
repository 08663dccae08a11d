# npm packages of this checkout, Node 24 among them.

# npm writes what it installed to node_modules/.package-lock.json; beside it we keep the hash of the lock file that it
# came from, since npm's copy is not byte for byte the same.
install_node_modules() {
  local wanted stamp=node_modules/.atoll-lock-hash
  wanted=$(short_hash <package-lock.json)
  if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && [ -f node_modules/.package-lock.json ] && node_modules/.bin/node --version; then
    say "node_modules matches package-lock.json; Node $(node_modules/.bin/node --version)"
    return
  fi
  say 'npm ci (a minute on a slow line)'
  npm ci --no-audit --no-fund
  node_modules/.bin/node --version
  echo "$wanted" >"$stamp"
  say "Node $(node_modules/.bin/node --version) is installed in node_modules"
}
