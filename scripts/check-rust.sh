#!/usr/bin/env bash
#
# Format and lints of the Rust programs, as far as the toolchain has rustfmt and clippy. Setup installs neither: Debian 12's clippy is
# of Rust 1.63 and knows other lints.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! command -v cargo >/dev/null; then PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"; fi

# has TOOL: whether cargo has it; says so when not.
has() {
  cargo "$1" --version >/dev/null 2>&1 && return
  echo "rust: not checked by cargo $1, which this toolchain lacks"
  return 1
}

if has fmt; then cargo fmt --check; fi
if has clippy; then cargo clippy --quiet --offline --workspace --all-targets -- -D warnings; fi
