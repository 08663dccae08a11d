# The image below imported ones: mount points and a few folders, without a program. An imported image may lack them; those that it has hide these.

install_scratch_image() {
  local new before
  before=$(current_image scratch)
  new=$(new_image_folder)
  make_scratch "$new/rootfs"
  publish_image "$new" scratch
  if [ "$(current_image scratch)" = "$before" ]; then
    say "scratch-$before is current"
  else
    say "installed scratch-$(current_image scratch)"
  fi
}

# The root itself is that of each sandbox, so a change of what is in here is a new image, and the old one stays for what stands on it.
make_scratch() {
  local root=$1
  mkdir -p "$root"/{dev,proc,sys,etc,run,workspace,.atoll/run,.atoll/agent}
  install --directory --mode=0700 "$root/root"
  install --directory --mode=1777 "$root/tmp" "$root/var/tmp"
  : >"$root/.atoll/guest"
  : >"$root/etc/hosts"
  : >"$root/etc/hostname"
  : >"$root/etc/resolv.conf"
  : >"$root/etc/machine-id"
}
