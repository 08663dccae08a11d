import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rm, rmdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { text } from 'node:stream/consumers'
import { imageDir } from '../../support/images.ts'

const projectDir = join(import.meta.dirname, '../../..')
const groupsRoot = '/sys/fs/cgroup'
const removalAttempts = 100

/** Moves the shell into control groups of its own, then into a namespace that shows nothing else of them. */
const enterGroups = `
awk '$3 ~ /^cgroup2?$/ && $2 ~ "^${groupsRoot}" { print $2, $3, $4 }' /proc/self/mounts >"$SCRATCH/groups"
while read -r mount type options; do
  mkdir "$mount/$GROUP"
  if [ "$type" = cgroup ]; then
    for file in cpuset.cpus cpuset.mems; do
      [ ! -e "$mount/$file" ] || cat "$mount/$file" >"$mount/$GROUP/$file"
    done
  fi
  echo 0 >"$mount/$GROUP/cgroup.procs"
done <"$SCRATCH/groups"
exec unshare --cgroup sh -ec "$MACHINE"`

/** A disk below /var/lib/atoll that is empty but for what setup has installed, a /run as distributions have it, a network. */
const makeMachine = `
umount --recursive --lazy /sys
mount -t sysfs sysfs /sys
grep -q '^${groupsRoot} ' "$SCRATCH/groups" || mount -t tmpfs tmpfs ${groupsRoot}
while read -r mount type options; do
  [ "$mount" = ${groupsRoot} ] || mkdir "$mount"
  case $type in
    # What divides its resources among groups may not have processes itself.
    cgroup2)
      mount -t cgroup2 cgroup2 "$mount"
      mkdir "$mount/server"
      echo 0 >"$mount/server/cgroup.procs"
      ;;
    cgroup)
      controllers=$(echo "$options" | tr , '\\n' | grep -vxE 'rw|relatime|nosuid|nodev|noexec|xattr' | paste -sd,)
      case $controllers in name=*) controllers=none,$controllers ;; esac
      mount -t cgroup -o "$controllers" cgroup "$mount"
      ;;
  esac
done <"$SCRATCH/groups"
# Those of servers beside it: hidden, they would confuse btrfs, and held, they would outlive their servers.
awk '$2 ~ "^/run/" { print $2 }' /proc/self/mounts | tac | xargs --no-run-if-empty umount --lazy
mount -t tmpfs -o nosuid,nodev,noexec,mode=755 tmpfs /run
mkdir -p "$SCRATCH/lib/images" /var/lib/atoll
mount --bind "$IMAGES" "$SCRATCH/lib/images"
mount --rbind "$SCRATCH/lib" /var/lib/atoll
ip link set lo up
echo ready
exec sleep infinity`

/** Run on the machine before anything else is. */
const joinGroups = `
while read -r mount rest; do
  [ ! -d "$mount/server" ] || mount=$mount/server
  echo 0 >"$mount/cgroup.procs"
done <"$0/groups"
cd "$1"
shift
exec "$@"`

/**
 * A machine on which setup has run and nothing else has: namespaces of mounts (`/run` and `/var/lib/atoll` with them), of the
 * network and of control groups, so that a server on the default paths touches nothing of this machine.
 */
export class ShippedMachine {
  readonly #scratch: string
  readonly #group: string
  readonly #holder: ChildProcess

  private constructor(scratch: string, group: string, holder: ChildProcess) {
    this.#scratch = scratch
    this.#group = group
    this.#holder = holder
  }

  static async make(): Promise<ShippedMachine> {
    const scratch = await mkdtemp('/var/tmp/atoll-shipped-')
    const group = `atoll-shipped-${randomBytes(4).toString('hex')}`
    const holder = spawn('unshare', ['--mount', '--propagation', 'private', '--net', 'sh', '-ec', enterGroups], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { PATH: process.env['PATH'], SCRATCH: scratch, GROUP: group, MACHINE: makeMachine, IMAGES: imageDir },
    })
    const machine = new ShippedMachine(scratch, group, holder)
    try {
      const [said] = (await Promise.race([once(holder.stdout, 'data'), once(holder, 'exit')])) as unknown[]
      assert.equal(String(said), 'ready\n')
      return machine
    } catch (error) {
      await machine[Symbol.asyncDispose]()
      throw error
    }
  }

  /** The words to put before a command so that it runs there, in a folder. */
  enter(folder: string): string[] {
    const namespaces = ['--mount', '--net', '--cgroup']
    return [
      'nsenter',
      '--target',
      String(this.#holder.pid),
      ...namespaces,
      'sh',
      '-ec',
      joinGroups,
      this.#scratch,
      folder,
    ]
  }

  /** Starts a command as a newcomer would, in the folder of the project and without a variable of ours. */
  spawn(...command: string[]): ChildProcess {
    const [program = '', ...argv] = [...this.enter(projectDir), ...command]
    const env = { PATH: process.env['PATH'], HOME: process.env['HOME'] }
    return spawn(program, argv, { stdio: ['ignore', 'pipe', 'pipe'], env, detached: true })
  }

  /** What a command prints on both outputs; it must succeed. */
  async run(...command: string[]): Promise<string> {
    const child = this.spawn(...command)
    assert.ok(child.stdout && child.stderr)
    const [[status], stdout, stderr] = await Promise.all([once(child, 'exit'), text(child.stdout), text(child.stderr)])
    assert.equal(status, 0, `${command.join(' ')}\n${stdout}${stderr}`)
    return stdout + stderr
  }

  /** Ends what still runs there and removes it all. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const group of await this.#groups()) {
      const members = (await readFile(`${group}/cgroup.procs`, 'utf8').catch(() => '')).split('\n')
      for (const pid of members.filter((line) => line !== '')) {
        try {
          process.kill(Number(pid), 'SIGKILL')
        } catch {
          // It has just ended.
        }
      }
    }
    for (let attempt = 0; attempt < removalAttempts; attempt += 1) {
      const groups = await this.#groups()
      if (groups.length === 0) break
      // The innermost first.
      for (const group of groups.toReversed()) await rmdir(group).catch(() => undefined)
      await sleep(50)
    }
    await rm(this.#scratch, { recursive: true })
  }

  /** The folders of its control groups, outer ones first. */
  async #groups(): Promise<string[]> {
    const mounts = (await readFile(`${this.#scratch}/groups`, 'utf8').catch(() => '')).split('\n')
    const found: string[] = []
    for (const mount of mounts.map((line) => line.split(' ')[0] ?? '').filter((path) => path !== '')) {
      const root = `${mount}/${this.#group}`
      const below = await readdir(root, { recursive: true, withFileTypes: true }).catch(() => undefined)
      if (below === undefined) continue
      found.push(
        root,
        ...below.filter((entry) => entry.isDirectory()).map((entry) => join(entry.parentPath, entry.name)),
      )
    }
    return found
  }
}
