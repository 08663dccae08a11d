# The PostgreSQL server of the tests: its own folder, a free port on loopback, a password made for this run. Nothing of the
# machine's own PostgreSQL is touched.

start_postgres() {
  local bin port password
  bin=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort --version-sort | tail -n 1)
  if [ -z "$bin" ] || ! id postgres >/dev/null 2>&1; then
    echo 'test: no PostgreSQL; npm run setup installs it, or set TEST_DATABASE_URL' >&2
    return 1
  fi
  postgres_dir=$(mktemp -d /tmp/atoll-postgres.XXXXXX)
  postgres_bin=$bin
  port=$(node -e 'const s = require("node:net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close() })')
  password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  printf '%s' "$password" >"$postgres_dir/password"
  chown -R postgres "$postgres_dir"
  as_postgres "$bin/initdb" --pgdata "$postgres_dir/data" --username postgres --pwfile "$postgres_dir/password" \
    --auth scram-sha-256 --encoding UTF8 --no-sync >"$postgres_dir/initdb.log" 2>&1 || { cat "$postgres_dir/initdb.log" >&2; return 1; }
  # Durability is not under test here: a crash of the machine loses the whole run anyway.
  as_postgres "$bin/pg_ctl" start --silent --wait --pgdata "$postgres_dir/data" --log "$postgres_dir/log" \
    --options "-c listen_addresses=127.0.0.1 -c port=$port -c unix_socket_directories=$postgres_dir -c fsync=off" \
    >/dev/null || { cat "$postgres_dir/log" >&2; return 1; }
  export TEST_DATABASE_URL="postgres://postgres:$password@127.0.0.1:$port/postgres"
}

stop_postgres() {
  [ -n "${postgres_dir:-}" ] || return 0
  as_postgres "$postgres_bin/pg_ctl" stop --silent --mode immediate --pgdata "$postgres_dir/data" >/dev/null 2>&1 || true
  rm -rf "$postgres_dir"
}

as_postgres() { (cd / && runuser --user postgres -- "$@"); }
