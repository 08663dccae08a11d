import { setTimeout as sleep } from 'node:timers/promises'
import { imageDir } from '../support/images.ts'
import type { Alternative } from './alternatives.ts'
import { hasProgram } from './debian-packages.ts'
import { PackageWorld } from './package-world.ts'

const incusd = '/usr/libexec/incus/incusd'
const startTimeoutMs = 30_000
const metadata = 'architecture: $(uname -m)\ncreation_date: 1\nproperties: { description: base }\n'

/** Packs the root file system, with the metadata that an image needs. Links inside keep their targets. */
const packImage = `
cd "$1"
printf '${metadata.replaceAll('\n', '\\n').replace('$(uname -m)', '%s')}' "$(uname -m)" >metadata.yaml
tar --create --file image.tar --transform 's,^\\./,rootfs/,S' --directory "$0" .
tar --append --file image.tar metadata.yaml`

/** Incus with a daemon of its own: unprivileged containers, a btrfs pool in a file, a bridge; the only process is `sleep`. */
export class Incus implements Alternative {
  readonly words = { start: 'incus launch', exec: 'incus exec', remove: 'incus delete --force' }
  readonly #world: PackageWorld
  #count = 0

  private constructor(world: PackageWorld) {
    this.#world = world
  }

  static async isThere(): Promise<boolean> {
    return await hasProgram(incusd.slice(1))
  }

  static async open(): Promise<Incus> {
    await using stack = new AsyncDisposableStack()
    const incus = new Incus(stack.use(await PackageWorld.open()))
    stack.defer(() => incus.#clear())
    await incus.#startDaemon()
    await incus.#configure()
    stack.move()
    return incus
  }

  async start(): Promise<string> {
    this.#count += 1
    const id = `c${this.#count}`
    await this.#incus('launch', 'base', id)
    return id
  }

  async exec(id: string): Promise<void> {
    await this.#incus('exec', id, 'true')
  }

  async remove(id: string): Promise<void> {
    await this.#incus('delete', '--force', id)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#clear()
    await this.#world[Symbol.asyncDispose]()
  }

  async #startDaemon(): Promise<void> {
    const daemon = this.#world.start([incusd, '--group', 'root'], this.#env, 'ignore')
    const until = Date.now() + startTimeoutMs
    for (;;) {
      const failure = await this.#incus('info').then(
        () => undefined,
        (error: unknown) => error,
      )
      if (failure === undefined) return
      const hasEnded = daemon.exitCode !== null || daemon.signalCode !== null
      if (hasEnded || Date.now() > until) throw new Error('incusd does not serve', { cause: failure })
      await sleep(100)
    }
  }

  async #configure(): Promise<void> {
    const { scratch } = this.#world
    await this.#incus('storage', 'create', 'pool', 'btrfs', 'size=20GiB')
    await this.#incus('network', 'create', 'incusbr0', 'ipv4.address=10.77.0.1/24', 'ipv6.address=none')
    await this.#incus('profile', 'device', 'add', 'default', 'root', 'disk', 'path=/', 'pool=pool')
    await this.#incus('profile', 'device', 'add', 'default', 'eth0', 'nic', 'network=incusbr0', 'name=eth0')
    // The base image has no init.
    await this.#incus('profile', 'set', 'default', 'raw.lxc=lxc.init.cmd = /bin/sleep infinity')
    await this.#world.run(['sh', '-ec', packImage, `${imageDir}/base/rootfs`, scratch])
    await this.#incus('image', 'import', `${scratch}/image.tar`, '--alias', 'base')
  }

  /** Removes what the kernel would keep after the daemon, such as profiles of AppArmor. Never throws. */
  async #clear(): Promise<void> {
    const names = await this.#incus('list', '--format', 'csv', '--columns', 'n').catch(() => '')
    for (const name of names.split('\n').filter(Boolean)) await this.remove(name).catch(() => undefined)
    await this.#incus('profile', 'device', 'remove', 'default', 'eth0').catch(() => undefined)
    await this.#incus('network', 'delete', 'incusbr0').catch(() => undefined)
  }

  get #env(): Record<string, string> {
    return { INCUS_DIR: `${this.#world.scratch}/incus`, HOME: this.#world.scratch }
  }

  async #incus(...argv: string[]): Promise<string> {
    return await this.#world.run(['incus', ...argv], this.#env)
  }
}
