import { type ChildProcess, type SpawnOptions, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { promisify } from 'node:util'
import { exists } from '../../src/runtime/exists.ts'
import { packagesDir } from './debian-packages.ts'

const run = promisify(execFile)

const makeWorld = `
for name in usr etc; do
  mkdir "$SCRATCH/$name" "$SCRATCH/$name.work"
  layers=lowerdir=$PACKAGES/$name:/$name,upperdir=$SCRATCH/$name,workdir=$SCRATCH/$name.work
  [ ! -e "$PACKAGES/$name" ] || mount -t overlay overlay -o "$layers" "/$name"
done
# Their state outside of the folders that they are given.
for name in cni containers; do
  mkdir "$SCRATCH/$name"
  [ ! -e "/var/lib/$name" ] || mount --bind "$SCRATCH/$name" "/var/lib/$name"
done
echo ready
exec sleep infinity`

/**
 * A mount namespace in which the unpacked packages lie over the machine's /usr and /etc, so that their programs find what they name
 * by absolute paths. What its programs mount is gone with it. `scratch` is a folder for their data.
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
    const holder = spawn('unshare', ['--mount', '--propagation', 'private', 'sh', '-ec', makeWorld], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { PATH: process.env['PATH'], SCRATCH: scratch, PACKAGES: packagesDir },
    })
    const world = new PackageWorld(scratch, holder)
    const [said] = (await Promise.race([once(holder.stdout, 'data'), once(holder, 'exit')])) as unknown[]
    if (String(said) === 'ready\n') return world
    await world[Symbol.asyncDispose]()
    throw new Error('the unpacked packages cannot be laid over /usr and /etc')
  }

  /** Starts a program of the packages; the process is the program itself. */
  spawn(command: readonly string[], options: SpawnOptions = {}): ChildProcess {
    const [program = '', ...argv] = this.#enter(command)
    return spawn(program, argv, options)
  }

  /** Runs a program to its end and returns what it prints. */
  async run(...command: string[]): Promise<string> {
    const [program = '', ...argv] = this.#enter(command)
    return (await run(program, argv, { maxBuffer: Infinity })).stdout
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#holder.exitCode === null && this.#holder.signalCode === null) {
      this.#holder.kill('SIGKILL')
      await once(this.#holder, 'exit')
    }
    if (await exists(this.scratch)) await rm(this.scratch, { recursive: true })
  }

  #enter(command: readonly string[]): string[] {
    return ['nsenter', `--mount=/proc/${this.#holder.pid}/ns/mnt`, '--', ...command]
  }
}
