/**
 * Shell lines that give a mount namespace a `/run` as distributions have it, with more mount options if there are any. Pools of
 * servers outside are let go: hidden, they would confuse btrfs, and held, they would outlive their servers.
 */
export function ownRun(options = ''): string {
  return `
awk '$2 ~ "^/run/" { print $2 }' /proc/self/mounts | tac | xargs --no-run-if-empty umount --lazy
names=$(readlink --canonicalize /etc/resolv.conf)
servers=$(cat "$names")
mount -t tmpfs -o nosuid,nodev,noexec,mode=755${options} tmpfs /run
# Where systemd-resolved is at work the file lies there.
case $names in /run/*) mkdir -p "$(dirname "$names")" && echo "$servers" >"$names" ;; esac`
}
