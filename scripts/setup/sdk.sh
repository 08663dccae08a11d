# The package of the SDK, which the server gives out at /sdk.tgz.

install_sdk() {
  say "$(bash scripts/pack-sdk.sh)"
}
