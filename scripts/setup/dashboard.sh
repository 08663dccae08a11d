# The dashboard and the pages of the documentation, which the server answers with at / and /docs.

install_dashboard() {
  say "$(bash scripts/build-dashboard.sh)"
}
