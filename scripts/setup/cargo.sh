# The toolchain of the Rust programs.

# The guest and hostd are written for this Rust, which is Debian 12's own.
rust_minimum=1.63
# The egress proxy is written for that of Debian 13, whose crates it has.
egress_rust_minimum=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$(dirname "${BASH_SOURCE[0]}")/../../egress/Cargo.toml")

# find_cargo MINIMUM: puts a cargo of at least that version first in PATH: the one that PATH has, rustup's, the system's, or the
# newer one that Ubuntu has beside its own.
find_cargo() {
  local program version
  for program in "$(command -v cargo)" "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" /usr/bin/cargo \
    "/usr/lib/rust-$egress_rust_minimum/bin/cargo"; do
    [ -x "$program" ] || continue
    version=$("$program" --version 2>/dev/null | cut -d' ' -f2)
    if [ -n "$version" ] && printf '%s\n%s\n' "$1" "$version" | sort --version-sort --check=quiet; then
      PATH=$(dirname "$program"):$PATH
      return
    fi
  done
  return 1
}
