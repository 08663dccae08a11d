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
  link_node
  node_modules/.bin/node --version
  echo "$wanted" >"$stamp"
  say "Node $(node_modules/.bin/node --version) is installed in node_modules"
}

# Both packages of Node, one for each architecture, have a program `node`. An npm before 11 (Debian's, those of Node 20 and
# 22) drops the package of the other architecture after it has linked ours, and the link with it.
link_node() {
  local architecture=x64
  if [ "$(uname -m)" = aarch64 ]; then architecture=arm64; fi
  ln -sfn "../node-linux-$architecture/bin/node" node_modules/.bin/node
}
