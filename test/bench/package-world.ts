import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { promisify } from 'node:util'
import { packagesDir } from './debian-packages.ts'

const run = promisify(execFile)

/** What the installation of the packages would do, and folders of state that are empty but for the images of Atoll. */
const makeWorld = `
for name in usr etc; do
  mkdir "$SCRATCH/$name" "$SCRATCH/$name.work"
  layers=lowerdir=$PACKAGES/$name:/$name,upperdir=$SCRATCH/$name,workdir=$SCRATCH/$name.work
  [ ! -e "$PACKAGES/$name" ] || mount -t overlay overlay -o "$layers" "/$name"
done
for file in /etc/subuid /etc/subgid; do
  grep -qs '^root:' "$file" || echo root:1000000:1000000000 >>"$file"
done
mkdir "$SCRATCH/atoll"
mount --rbind /var/lib/atoll "$SCRATCH/atoll"
mount -t tmpfs tmpfs /var/lib
mkdir /var/lib/atoll
mount --move "$SCRATCH/atoll" /var/lib/atoll
mount -t tmpfs -o mode=755 tmpfs /run
echo ready
# The shell stays: it is the parent of all orphans here.
while :; do sleep 3600; done`

/**
 * Namespaces of mounts and processes in which the unpacked packages lie over the machine's /usr and /etc, so that their programs
 * find what they name by absolute paths. Programs, daemons and containers that run there, and what they mount, end with it.
 * `scratch` is a folder for their data.
 */
export class PackageWorld {
  readonly scratch: string
  readonly #holder: ChildProcess

  private constructor(scratch: string, holder: ChildProcess) {
    this.scratch = scratch
    this.#holder = holder
  }

  static async open(): Promise<PackageWorld> {
    const scratch = await mkdtemp('/var/tmp/atoll-bench-world-')
    // Users of containers without privileges pass through it.
    await chmod(scratch, 0o711)
    const namespaces = ['--mount', '--propagation', 'private', '--pid', '--fork', '--kill-child', '--mount-proc']
    const holder = spawn('unshare', [...namespaces, 'sh', '-ec', makeWorld], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { PATH: process.env['PATH'], SCRATCH: scratch, PACKAGES: packagesDir },
    })
    const world = new PackageWorld(scratch, holder)
    const [said] = (await Promise.race([once(holder.stdout, 'data'), once(holder, 'exit')])) as unknown[]
    if (String(said) === 'ready\n') return world
    await world[Symbol.asyncDispose]()
    throw new Error('the unpacked packages cannot be laid over /usr and /etc')
  }

  /** Starts a program that runs until the world ends. Its output goes to that of the bench's errors, or nowhere. */
  start(
    command: readonly string[],
    env: Record<string, string> = {},
    output: 'inherit' | 'ignore' = 'inherit',
  ): ChildProcess {
    const [program = '', ...argv] = this.#enter(command)
    const errors = output === 'inherit' ? 2 : 'ignore'
    return spawn(program, argv, { stdio: ['ignore', errors, errors], env: { ...process.env, ...env } })
  }

  /** Runs a program to its end and returns what it prints. */
  async run(command: readonly string[], env: Record<string, string> = {}): Promise<string> {
    const [program = '', ...argv] = this.#enter(command)
    const running = run(program, argv, { maxBuffer: Infinity, env: { ...process.env, ...env } })
    running.child.stdin?.end()
    return (await running).stdout
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#holder.exitCode === null && this.#holder.signalCode === null) {
      this.#holder.kill('SIGKILL')
      await once(this.#holder, 'exit')
    }
    // The kernel ends the processes a moment after their first one.
    await rm(this.scratch, { recursive: true, maxRetries: 20, retryDelay: 100 })
  }

  #enter(command: readonly string[]): string[] {
    const { pid } = this.#holder
    return ['nsenter', `--mount=/proc/${pid}/ns/mnt`, `--pid=/proc/${pid}/ns/pid_for_children`, '--', ...command]
  }
}
