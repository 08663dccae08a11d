#!/usr/bin/env bash
#
# Format and lints of the Rust programs, as far as the toolchain has rustfmt and clippy. Setup installs neither: Debian 12's clippy is
# of Rust 1.63 and knows other lints.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=/dev/null
source scripts/setup/cargo.sh
find_cargo "$rust_minimum" || true

# has TOOL: whether cargo has it; says so when not.
has() {
  cargo "$1" --version >/dev/null 2>&1 && return
  echo "rust: not checked by cargo $1, which this toolchain lacks"
  return 1
}

if has fmt; then
  cargo fmt --check
  cargo fmt --check --manifest-path egress/Cargo.toml
fi
if has clippy; then
  cargo clippy --quiet --offline --workspace --all-targets -- -D warnings
  bash scripts/cargo-egress.sh clippy --quiet --all-targets -- -D warnings
fi
