#!/usr/bin/env bash
#
# A machine as users have it, in QEMU without KVM: Debian with systemd, pure cgroup v2 and the distribution's own kernel and runc,
# this commit in /opt/atoll, and the service of docs/operate/operations.md. As root on Debian 12 or 13.
#
#   machine.sh build   makes it, about 5 min and 4 GB; what is slow under emulation (packages, npm ci, images) is made in a chroot
#   machine.sh start   boots it and returns when it answers, about 30 s
#   machine.sh ssh …   runs a command in it
#   machine.sh stop    switches it off
#   machine.sh clean   removes it
#
#   SUITE     trixie (default) or bookworm
#   MACHINE   the folder that it lies in (/var/tmp/atoll-machine-$SUITE)
#   PORT      of the loopback, at which the machine takes ssh (2213; bookworm 2212)

set -euo pipefail
umask 022
export LC_ALL=C.UTF-8

atoll=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
SUITE=${SUITE:-trixie}
MACHINE=${MACHINE:-/var/tmp/atoll-machine-$SUITE}
root=$MACHINE/root
boot_seconds_max=300

host_packages=(qemu-system-x86 mmdebstrap e2fsprogs openssh-client debian-archive-keyring)
# What an ordinary installation has, and setup counts on: it installs the rest itself.
packages=systemd,systemd-sysv,systemd-resolved,systemd-timesyncd,dbus,udev,linux-image-cloud-amd64,initramfs-tools,zstd,apparmor
packages+=,openssh-server,ca-certificates,curl,git,npm,nodejs,iproute2,kmod,procps

build() {
  local mirror package missing=()
  for package in "${host_packages[@]}"; do
    # shellcheck disable=SC2016 # the dollar belongs to dpkg
    [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  if [ ${#missing[@]} != 0 ]; then
    apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${missing[@]}"
  fi
  stop
  rm -rf --one-file-system "$root"
  mkdir -p "$MACHINE"
  cd "$MACHINE"
  # shellcheck disable=SC2016 # the dollars belong to apt
  mirror=$(apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(SITE)' 'Created-By: Packages' |
    awk -F'|' '$1 == "Debian" && $2 == "Debian" { print $3; exit }')
  apt-config dump --no-empty Acquire | grep -E '^Acquire::(http|https|Check-|Retries|Max-FutureTime|ForceIPv)' >apt-options || true
  printf 'deb %s %s main\ndeb %s %s-updates main\n' "$mirror" "$SUITE" "$mirror" "$SUITE" |
    mmdebstrap --mode=root --variant=minbase --aptopt=apt-options --include="$packages" "$SUITE" "$root" -
  cp apt-options "$root/etc/apt/apt.conf.d/99machine"
  copy_settings
  git clone --quiet "$atoll" "$root/opt/atoll"
  set_up
  configure
  cp "$root"/boot/vmlinuz-* vmlinuz
  cp "$root"/boot/initrd.img-* initrd.img
  rm -f disk.raw "$root"/var/cache/apt/archives/*.deb
  mke2fs -q -t ext4 -L root -d "$root" disk.raw 30G
  rm -rf --one-file-system "$root"
}

# What this machine needs to reach its registries, the other one needs too.
copy_settings() {
  local file
  cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
  for file in /root/.npmrc /etc/npmrc; do
    [ ! -f "$file" ] || sed '/nodedir/d' "$file" >"$root$file"
  done
  rm -f "$root/etc/resolv.conf"
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  echo NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt >"$root/etc/environment"
}

# The whole setup but its last table, which would try this machine; the other one asks for it when it runs.
set_up() {
  # shellcheck disable=SC2016 # the dollars belong to the inner shell
  unshare --mount --propagation private bash -ec '
    mount --bind "$1" "$1"
    mount -t proc proc "$1/proc"
    mount --rbind /dev "$1/dev"
    mount -t sysfs -o ro sysfs "$1/sys"
    mount -t tmpfs tmpfs "$1/tmp"
    exec chroot "$1" env -i HOME=/root LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin \
      NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt bash -ec "
        update-ca-certificates
        cd /opt/atoll
        bash scripts/setup.sh --other-machine"' - "$root"
}

configure() {
  local unit
  [ -f key ] || ssh-keygen -q -t ed25519 -N '' -f key
  install -D --mode=0600 key.pub "$root/root/.ssh/authorized_keys"
  echo atoll-machine >"$root/etc/hostname"
  printf '127.0.0.1 localhost atoll-machine\n::1 localhost\n' >"$root/etc/hosts"
  printf '[Match]\nName=en* eth*\n[Network]\nDHCP=yes\n' >"$root/etc/systemd/network/10-dhcp.network"
  echo '/dev/vda / ext4 defaults,noatime 0 1' >"$root/etc/fstab"
  for unit in systemd-networkd systemd-resolved; do
    ln -sf "/usr/lib/systemd/system/$unit.service" "$root/etc/systemd/system/multi-user.target.wants/"
  done
  # A test must not meet them at work.
  for unit in fstrim.timer apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer dpkg-db-backup.timer; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
  done
  # The first and the last control group with a quota of CPU make the kernel patch its scheduler, which now and then kills it
  # under emulation (int3 in enqueue_task_fair): a service that has one from the start to the end keeps it as it is.
  install -D --mode=0644 /dev/stdin "$root/etc/systemd/system/systemd-timesyncd.service.d/quota.conf" <<<$'[Service]\nCPUQuota=200%'
  # So do the first and the last counter of a task (int3 in __schedule): CRIU's breakpoints are some. This one is there all the time:
  # perf_event_open(2), number 298 here, with the clock of a task.
  cat >"$root/etc/systemd/system/task-counter.service" <<'UNIT'
[Unit]
DefaultDependencies=no
[Service]
ExecStart=/usr/bin/perl -e 'syscall(298, pack("LLQx48", 1, 64, shift), 0, -1, -1, 0) > 0 or exit 1; sleep 3600 while 1' 1
[Install]
WantedBy=sysinit.target
UNIT
  install -d "$root/etc/systemd/system/sysinit.target.wants"
  ln -sf ../task-counter.service "$root/etc/systemd/system/sysinit.target.wants/"
  # A name server on the loopback, as users have it.
  ln -sfn ../run/systemd/resolve/stub-resolv.conf "$root/etc/resolv.conf"
  sed -n '/^# \/etc\/systemd\/system\/atoll.service/,/^```/p' "$atoll/docs/operate/operations.md" | grep -v '^```' \
    >"$root/etc/systemd/system/atoll.service"
}

start() {
  cd "$MACHINE"
  setsid qemu-system-x86_64 -machine q35 -cpu max -accel tcg,thread=multi,tb-size=1024 -smp 2 -m 6G -nographic \
    -kernel vmlinuz -initrd initrd.img -append 'root=/dev/vda rw console=ttyS0 systemd.show_status=0 mitigations=off' \
    -drive file=disk.raw,if=virtio,format=raw,cache=unsafe,discard=unmap \
    -netdev "user,id=n,hostfwd=tcp:127.0.0.1:$(port)-:22" -device virtio-net-pci,netdev=n -device virtio-rng-pci \
    </dev/null >>console.log 2>&1 &
  echo $! >pid
  answers
}

# answers: waits until the machine takes commands.
answers() {
  local until=$((SECONDS + boot_seconds_max))
  while ! in_machine true; do
    if [ $SECONDS -gt $until ] || ! kill -0 "$(cat "$MACHINE/pid")" 2>/dev/null; then
      tail -n 20 "$MACHINE/console.log" >&2
      return 1
    fi
    sleep 1
  done
}

# One for each suite, so that two machines run side by side; PORT is another.
port() { if [ "$SUITE" = bookworm ]; then echo "${PORT:-2212}"; else echo "${PORT:-2213}"; fi; }

in_machine() {
  ssh -q -i "$MACHINE/key" -p "$(port)" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ConnectTimeout=10 \
    -o ServerAliveInterval=30 root@127.0.0.1 "$@"
}

stop() {
  local pid
  [ -f "$MACHINE/pid" ] || return 0
  pid=$(cat "$MACHINE/pid")
  rm -f "$MACHINE/pid"
  # The number may be somebody else's by now.
  grep -qa qemu-system "/proc/$pid/cmdline" 2>/dev/null || return 0
  in_machine poweroff || true
  for _ in $(seq 60); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 1
  done
  kill "$pid" 2>/dev/null || true
}

clean() {
  stop
  rm -rf --one-file-system "$MACHINE"
}

command=${1:-}
case $command in
  build | start | answers | stop | clean) "$command" ;;
  ssh)
    shift
    in_machine "$@"
    ;;
  *)
    echo 'usage: machine.sh build|start|answers|ssh|stop|clean' >&2
    exit 2
    ;;
esac
