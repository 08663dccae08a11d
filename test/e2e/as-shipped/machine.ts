import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rm, rmdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { text } from 'node:stream/consumers'
import { HostNames } from '../../../src/runtime/host-names.ts'
import { processesOfServer } from '../../support/host-processes.ts'
import { imageDir } from '../../support/images.ts'
import { ownRun } from '../own-machine.ts'

const projectDir = join(import.meta.dirname, '../../..')
const groupsRoot = '/sys/fs/cgroup'
const removalAttempts = 200
const removalPauseMs = 50

/** Moves a shell into control groups of its own, then into a namespace that shows nothing else of them. */
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
${ownRun()}
mkdir -p "$SCRATCH/lib/images" /var/lib/atoll
mount --bind "$IMAGES" "$SCRATCH/lib/images"
mount --rbind "$SCRATCH/lib" /var/lib/atoll
ip link set lo up
echo ready
exec sleep infinity`

/** Joins the groups by their names outside: from inside, nobody may bring a process in. */
const joinMachine = `
while read -r mount type rest; do
  group=$mount/$GROUP
  [ "$type" = cgroup ] || group=$group/server
  echo 0 >"$group/cgroup.procs"
done <"$SCRATCH/groups"
exec nsenter --target "$HOLDER" --mount --net --cgroup sh -ec 'cd "$0"; exec "$@"' "$@"`

/**
 * A machine on which setup has run and nothing else has: namespaces of mounts (`/run` and `/var/lib/atoll` with them), of the
 * network and of control groups. A server on the default paths there touches nothing of this machine but
 * `vm.unprivileged_userfaultfd`, which it switches on.
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

  /**
   * Throws where a server on the default paths runs here, or sandboxes of one: each would take the other's programs for its own.
   * What ended ones have left does not matter, as nobody sees it from inside.
   */
  static async make(): Promise<ShippedMachine> {
    const pids = await processesOfServer(new HostNames('/var/lib/atoll'))
    if (pids.length > 0) throw new Error(`end the Atoll of this machine and its sandboxes first: ${pids.join(', ')}`)
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
  wrap(folder: string): string[] {
    const names = { SCRATCH: this.#scratch, GROUP: this.#group, HOLDER: String(this.#holder.pid) }
    const settings = Object.entries(names).map(([name, value]) => `${name}='${value}'`)
    return ['sh', '-ec', `${settings.join('; ')}; ${joinMachine}`, 'sh', folder]
  }

  /** Starts a command as a newcomer would, in the folder of the project and without a variable of ours. */
  spawn({ stdio }: { stdio: 'pipe' | 'inherit' }, ...command: string[]): ChildProcess {
    const [program = '', ...argv] = [...this.wrap(projectDir), ...command]
    const env = { PATH: process.env['PATH'], HOME: process.env['HOME'] }
    return spawn(program, argv, { stdio: ['ignore', stdio, stdio], env, detached: true })
  }

  /** What a command prints on both outputs; it must succeed. */
  async run(...command: string[]): Promise<string> {
    const child = this.spawn({ stdio: 'pipe' }, ...command)
    assert.ok(child.stdout && child.stderr)
    const [[status], stdout, stderr] = await Promise.all([once(child, 'exit'), text(child.stdout), text(child.stderr)])
    assert.equal(status, 0, `${command.join(' ')}\n${stdout}${stderr}`)
    return stdout + stderr
  }

  /** Ends what still runs there and removes it all. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#holder.kill('SIGKILL')
    let groups = await this.#groups()
    for (let attempt = 0; groups.length > 0 && attempt < removalAttempts; attempt += 1) {
      for (const group of groups) await killMembers(group)
      // The innermost first.
      for (const group of groups.toReversed()) await rmdir(group).catch(() => undefined)
      await sleep(removalPauseMs)
      groups = await this.#groups()
    }
    await rm(this.#scratch, { recursive: true })
    assert.deepEqual(groups, [], 'processes of the machine do not end')
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

async function killMembers(group: string): Promise<void> {
  const members = (await readFile(`${group}/cgroup.procs`, 'utf8').catch(() => '')).split('\n')
  for (const pid of members.filter((line) => line !== '')) {
    try {
      process.kill(Number(pid), 'SIGKILL')
    } catch {
      // It has just ended.
    }
  }
}
