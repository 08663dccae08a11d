/** Machines that differ from this one, each as namespaces of its own for one command. */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { imageDir } from '../support/images.ts'

const projectDir = join(import.meta.dirname, '../..')
/** In a network namespace of its own: what the kernel shows of links there, and the control groups below it as they were. */
export const ownNetwork = `
mkdir "$SCRATCH/groups"
mount --rbind /sys/fs/cgroup "$SCRATCH/groups"
mount -t sysfs sysfs /sys
mount --rbind "$SCRATCH/groups" /sys/fs/cgroup
ip link set lo up`

/**
 * Shell lines that give a mount namespace a `/run` as distributions have it, with more mount options if there are any. Pools of
 * servers outside are let go: hidden, they would confuse btrfs, and held, they would outlive their servers.
 */
export function ownRun(options = ''): string {
  return `
awk '$2 ~ "^/run/" { print $2 }' /proc/self/mounts | tac | while read -r mount; do
  # It may end meanwhile: the tests beside this one make and remove mounts too.
  umount --lazy "$mount" 2>/dev/null || ! mountpoint --quiet "$mount"
done
names=$(readlink --canonicalize /etc/resolv.conf)
servers=$(cat "$names")
mount -t tmpfs -o nosuid,nodev,noexec,mode=755${options} tmpfs /run
# Where systemd-resolved is at work the file lies there.
case $names in /run/*) mkdir -p "$(dirname "$names")" && echo "$servers" >"$names" ;; esac`
}

/** Runs a command on a machine that a script has changed, for that command alone. */
export function machine(script: string, ...namespaces: string[]): string[] {
  return ['unshare', '--mount', '--propagation', 'private', ...namespaces, 'sh', '-ec', `${script}\nexec "$@"`, 'sh']
}

/** Runs to its end, however it ends. */
export async function run(
  [command = '', ...argv]: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Promise<{ status: number; output: string }> {
  return await new Promise((resolve) => {
    const { PATH, NODE_COMPILE_CACHE } = process.env
    const options = { cwd: projectDir, env: { PATH, NODE_COMPILE_CACHE, ATOLL_IMAGE_DIR: imageDir, ...env } }
    execFile(command, argv, options, (error, stdout, stderr) => {
      resolve({ status: error === null ? 0 : Number(error.code ?? -1), output: stdout + stderr })
    })
  })
}
