import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { randomBytes, randomInt } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { networkInterfaces, tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface, type Interface } from 'node:readline'
import { promisify } from 'node:util'
import { Network, Subnet } from '../../src/runtime/network/index.ts'
import type { EgressState } from '../../src/sandbox/ports/egress.ts'
import { hostTool } from '../../src/runtime/host/testing/host-tool.ts'

export const run = promisify(execFile)

/** A network of its own in this host's namespace, with processes that stand for sandboxes and a place beyond the host. */
export class NetworkWorld implements AsyncDisposable {
  readonly hash = randomBytes(4).toString('hex')
  readonly subnet: Subnet
  readonly network: Network
  readonly said: string[] = []
  readonly outside: Outside
  readonly #folder: string
  readonly #namespaces: Namespace[] = []

  private constructor(folder: string) {
    const { subnet, outside } = freeSubnet()
    this.#folder = folder
    this.subnet = subnet
    this.outside = new Outside(this.hash, outside)
    this.network = new Network({
      run: hostTool.run,
      hash: this.hash,
      subnet: this.subnet,
      runDir: folder,
      log: (message) => this.said.push(message),
      tableMaxFile: join(folder, 'table-max'),
    })
  }

  static async make(tableMax = 262_144): Promise<NetworkWorld> {
    const world = new NetworkWorld(await mkdtemp(join(tmpdir(), 'atoll-network-')))
    await world.setTableMax(tableMax)
    return world
  }

  get link(): string {
    return `atl${this.hash}`
  }

  async setTableMax(value: number): Promise<void> {
    await writeFile(join(this.#folder, 'table-max'), `${value}\n`)
  }

  /** One whose network is open, with a namespace behind this host. */
  static async openWithOutside(tableMax?: number): Promise<NetworkWorld> {
    const world = await NetworkWorld.make(tableMax)
    await world.outside.make()
    await world.open()
    return world
  }

  async open(slots: readonly number[] = [], egress?: ReadonlyMap<number, EgressState>): Promise<void> {
    await this.network.open(slots, hostTool, egress)
  }

  async namespace(): Promise<Namespace> {
    const made = await Namespace.make()
    this.#namespaces.push(made)
    return made
  }

  /** What stands for the sandbox of a slot, joined to the network. */
  async sandbox(slot: number, egress?: EgressState): Promise<Namespace> {
    const made = await this.namespace()
    await this.network.attach(slot, made.process, undefined, egress)
    return made
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.network.close()
    for (const namespace of this.#namespaces) await namespace.end()
    await this.outside[Symbol.asyncDispose]()
    await rm(this.#folder, { recursive: true, force: true })
  }
}

/** One that has room for more links than a bridge has ports, and the beginning of public addresses that belong to it. */
function freeSubnet(): { subnet: Subnet; outside: string } {
  const taken = Object.values(networkInterfaces()).flatMap((infos = []) => infos.flatMap(({ cidr }) => cidr ?? []))
  for (;;) {
    const [second, third] = [randomInt(240, 252), 16 * randomInt(0, 16)]
    const subnet = new Subnet(`10.${second}.${third}.0/20`)
    if (!taken.some((address) => subnet.meets(address))) return { subnet, outside: `11.${second}.${third}` }
  }
}

/** A network namespace that lives as long as a process of its own. */
export class Namespace {
  readonly process: { pid: number; startTicks: number }
  readonly #child: ChildProcess

  private constructor(child: ChildProcess, startTicks: number) {
    this.#child = child
    this.process = { pid: child.pid ?? 0, startTicks }
  }

  static async make(): Promise<Namespace> {
    const child = spawn('unshare', ['--net', 'sh', '-c', 'echo made; exec sleep infinity'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    await once(child.stdout, 'data')
    const stat = await readFile(`/proc/${child.pid}/stat`, 'latin1')
    return new Namespace(child, Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]))
  }

  async run(...argv: string[]): Promise<string> {
    const { stdout } = await run('nsenter', [`--net=/proc/${this.process.pid}/ns/net`, ...argv])
    return stdout.trim()
  }

  python(program: string): Promise<string> {
    return this.run('python3', '-c', program)
  }

  /** Runs on; its first line has been printed. */
  async start(program: string): Promise<Talk> {
    return Talk.start('nsenter', `--net=/proc/${this.process.pid}/ns/net`, 'python3', '-uc', program)
  }

  async end(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    const ended = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await ended
  }
}

/** A program that answers lines with lines. */
export class Talk {
  readonly #child: ChildProcess
  readonly #lines: Interface
  readonly #answers: string[] = []

  private constructor(child: ChildProcess, lines: Interface) {
    this.#child = child
    this.#lines = lines
    lines.on('line', (line) => this.#answers.push(line))
  }

  static async start(command: string, ...rest: string[]): Promise<Talk> {
    const child = spawn(command, rest, { stdio: ['pipe', 'pipe', 'inherit'] })
    const talk = new Talk(child, createInterface({ input: child.stdout }))
    await talk.#answer()
    return talk
  }

  async ask(line: string): Promise<string> {
    this.#child.stdin?.write(`${line}\n`)
    return this.#answer()
  }

  async end(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    const ended = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await ended
  }

  async #answer(): Promise<string> {
    while (this.#answers.length === 0) {
      await Promise.race([
        once(this.#lines, 'line'),
        once(this.#lines, 'close').then(() => Promise.reject(new Error('it ended'))),
      ])
    }
    return this.#answers.shift() ?? ''
  }
}

/** A namespace behind this host, under public addresses, for as long as it lasts. */
export class Outside implements AsyncDisposable {
  readonly host: string
  readonly address: string
  readonly #name: string
  readonly #talks: Talk[] = []

  constructor(hash: string, prefix: string) {
    this.#name = `ato${hash}`
    this.host = `${prefix}.1`
    this.address = `${prefix}.2`
  }

  /** `mtu` is that of the host's end alone, as of a tunnel. */
  async make(mtu = 1500): Promise<void> {
    const name = this.#name
    await run('ip', ['netns', 'add', name])
    await ipBatch([
      `link add ${name} mtu ${mtu} type veth peer name eth0 netns ${name}`,
      `address add ${this.host}/24 dev ${name}`,
      `link set ${name} up`,
    ])
    await ipBatch([`address add ${this.address}/24 dev eth0`, 'link set eth0 up', 'link set lo up'], ['-n', name])
  }

  async run(...argv: string[]): Promise<string> {
    return (await run('ip', ['netns', 'exec', this.#name, ...argv])).stdout.trim()
  }

  async start(program: string): Promise<Talk> {
    const talk = await Talk.start('ip', 'netns', 'exec', this.#name, 'python3', '-uc', program)
    this.#talks.push(talk)
    return talk
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const talk of this.#talks) await talk.end()
    await run('ip', ['link', 'delete', this.#name]).catch(() => undefined)
    await run('ip', ['netns', 'delete', this.#name]).catch(() => undefined)
  }
}

/** Runs lines of `ip`, and stops at the first that fails. */
export async function ipBatch(lines: readonly string[], options: readonly string[] = []): Promise<void> {
  const running = run('ip', [...options, '-batch', '-'])
  running.child.stdin?.end(`${lines.join('\n')}\n`)
  await running
}

/** Whether a connection is made within a second, which takes a hundredth of one where anything lets it through. */
export async function connects(
  from: { run(...argv: string[]): Promise<string> },
  address: string,
  port: number,
  source = '',
): Promise<boolean> {
  const program = `
import socket
try:
    socket.create_connection(("${address}", ${port}), 1, ${source === '' ? 'None' : `("${source}", 0)`}).close()
    print("connected")
except OSError as error: print(error)`
  return (await from.run('python3', '-c', program)) === 'connected'
}

/** Answers each connection's lines with the address that it came from. */
export function echoServer(address: string, port: number): string {
  return `
import socket, threading
server = socket.create_server(("${address}", ${port}), backlog=4096)
print("serves")
def serve(connection, peer):
    with connection:
        for _ in connection.makefile(): connection.sendall((peer[0] + "\\n").encode())
while True:
    threading.Thread(target=serve, args=server.accept(), daemon=True).start()`
}

/** One connection; each line that is asked goes over it. */
export function echoClient(address: string, port: number): string {
  return `
import socket, sys
connection = socket.create_connection(("${address}", ${port}), 10)
answers = connection.makefile()
print("connected")
for line in sys.stdin:
    connection.sendall(line.encode())
    print(answers.readline().strip())`
}
