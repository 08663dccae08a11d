import { imageDir } from '../support/images.ts'
import type { Alternative } from './alternatives.ts'
import { hasProgram } from './debian-packages.ts'
import { PackageWorld } from './package-world.ts'

/** podman as root, with runc (which Atoll runs too) and the network that Debian's package configures. */
export class Podman implements Alternative {
  readonly words = { start: 'podman run', exec: 'podman exec', remove: 'podman rm --force' }
  readonly #world: PackageWorld
  #limits: string[] = []

  private constructor(world: PackageWorld) {
    this.#world = world
  }

  static async isThere(): Promise<boolean> {
    return await hasProgram('usr/bin/podman')
  }

  static async open(): Promise<Podman> {
    await using stack = new AsyncDisposableStack()
    const podman = new Podman(stack.use(await PackageWorld.open()))
    await podman.#import()
    stack.move()
    return podman
  }

  async start(): Promise<string> {
    const started = await this.#podman('run', ...this.#limits, '--detach', 'base', 'sleep', 'infinity')
    return started.trim()
  }

  async exec(id: string): Promise<void> {
    await this.#podman('exec', id, 'true')
  }

  async remove(id: string): Promise<void> {
    await this.#podman('rm', '--force', '--time', '0', id)
  }

  /** A folder for files that it is to read. */
  get scratch(): string {
    return this.#world.scratch
  }

  async build(name: string, folder: string): Promise<void> {
    await this.#podman('build', '--layers', '--tag', name, folder)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#world[Symbol.asyncDispose]()
  }

  async #import(): Promise<void> {
    const world = this.#world
    const pipe = 'folder=$0; tar --create --directory "$folder" . | "$@" import - base'
    await world.run(['bash', '-o', 'pipefail', '-c', pipe, `${imageDir}/base/rootfs`, ...this.#command])
    // podman asks for more than a root without CAP_SYS_RESOURCE can give.
    const [files, processes] = (await world.run(['sh', '-c', 'ulimit -H -n; ulimit -H -p || ulimit -H -u'])).split('\n')
    const limits = Object.entries({ nofile: files, nproc: processes })
    this.#limits = limits.flatMap(([name, limit = '']) => {
      const value = limit === 'unlimited' ? '-1' : limit
      return ['--ulimit', `${name}=${value}:${value}`]
    })
  }

  get #command(): string[] {
    const { scratch } = this.#world
    const folders = ['--root', `${scratch}/storage`, '--runroot', '/run/storage', '--tmpdir', '/run/libpod']
    // Neither systemd nor its journal is at work in the namespaces.
    const settings = ['--cgroup-manager', 'cgroupfs', '--events-backend', 'file', '--runtime', 'runc']
    return ['podman', ...folders, ...settings]
  }

  async #podman(...argv: string[]): Promise<string> {
    return await this.#world.run([...this.#command, ...argv])
  }
}
