import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { randomBytes, randomInt } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { Network, Subnet } from '../../src/runtime/network/index.ts'
import type { EgressState } from '../../src/sandbox/ports/egress.ts'
import { hostTool } from '../../src/runtime/host/testing/host-tool.ts'
import { addressesOfHost } from '../support/addresses.ts'
import { claim } from '../support/listen.ts'

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
    this.#folder = folder
    this.subnet = freeSubnet()
    this.outside = new Outside()
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

/** One that has room for more links than a bridge has ports. */
function freeSubnet(): Subnet {
  const taken = addressesOfHost()
  for (;;) {
    const subnet = new Subnet(`10.${randomInt(240, 252)}.${16 * randomInt(0, 16)}.0/20`)
    if (!taken.some((address) => subnet.meets(address))) return subnet
  }
}

/** The beginning of public addresses that this machine has no use for, and that no other test gets before this process ends. */
function freePrefix(): string {
  const taken = addressesOfHost()
  for (;;) {
    const prefix = `11.${randomInt(1, 250)}.${randomInt(0, 256)}.`
    if (!taken.some((address) => address.startsWith(prefix)) && claim(`outside-${prefix}0`)) return prefix
  }
}

/** Runs until it is ended, at the latest when this process ends, in whatever way: what it keeps would be in the way of later tests. */
function spawnOwned(...argv: string[]) {
  return spawn('setpriv', ['--pdeathsig=KILL', '--', ...argv], { stdio: ['pipe', 'pipe', 'inherit'] })
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
    const child = spawnOwned('unshare', '--net', 'sh', '-c', 'echo made; exec sleep infinity')
    await once(child.stdout, 'data')
    const stat = await readFile(`/proc/${child.pid}/stat`, 'latin1')
    return new Namespace(child, Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]))
  }

  async run(...argv: string[]): Promise<string> {
    const { stdout } = await run('nsenter', [this.#entry, ...argv])
    return stdout.trim()
  }

  /** Runs lines of `ip`, and stops at the first that fails. */
  async ip(lines: readonly string[]): Promise<void> {
    await batch('nsenter', [this.#entry, 'ip', '-batch', '-'], lines)
  }

  python(program: string): Promise<string> {
    return this.run('python3', '-c', program)
  }

  /** Runs on; its first line has been printed. */
  async start(program: string): Promise<Talk> {
    return this.startProgram('python3', '-uc', program)
  }

  async startProgram(...argv: string[]): Promise<Talk> {
    return Talk.start('nsenter', this.#entry, ...argv)
  }

  async end(): Promise<void> {
    await end(this.#child)
  }

  get #entry(): string {
    return `--net=/proc/${this.process.pid}/ns/net`
  }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = once(child, 'exit')
  child.kill('SIGKILL')
  await ended
}

/** A program that answers lines with lines. */
export class Talk {
  readonly #child: ChildProcess
  readonly #lines: AsyncIterator<string>

  private constructor(child: ChildProcess, lines: AsyncIterable<string>) {
    this.#child = child
    this.#lines = lines[Symbol.asyncIterator]()
  }

  static async start(...argv: string[]): Promise<Talk> {
    const child = spawnOwned(...argv)
    const talk = new Talk(child, createInterface({ input: child.stdout }))
    await talk.#answer()
    return talk
  }

  async ask(line: string): Promise<string> {
    this.#child.stdin?.write(`${line}\n`)
    return this.#answer()
  }

  async end(): Promise<void> {
    await end(this.#child)
  }

  async #answer(): Promise<string> {
    const line = await this.#lines.next()
    if (line.done === true) throw new Error('it ended')
    return line.value
  }
}

/** A namespace behind this host, under public addresses, for as long as it lasts. The link goes with it. */
export class Outside implements AsyncDisposable {
  readonly host: string
  readonly address: string
  readonly #link = `ato${randomBytes(4).toString('hex')}`
  readonly #talks: Talk[] = []
  #namespace: Namespace | undefined

  constructor() {
    const prefix = freePrefix()
    this.host = `${prefix}1`
    this.address = `${prefix}2`
  }

  /** `mtu` is that of the host's end alone, as of a tunnel. */
  async make(mtu = 1500): Promise<void> {
    this.#namespace = await Namespace.make()
    const { pid } = this.#namespace.process
    await ipBatch([
      `link add ${this.#link} mtu ${mtu} type veth peer name eth0 netns ${pid}`,
      `address add ${this.host}/24 dev ${this.#link}`,
      `link set ${this.#link} up`,
    ])
    await this.#namespace.ip([`address add ${this.address}/24 dev eth0`, 'link set eth0 up', 'link set lo up'])
  }

  async run(...argv: string[]): Promise<string> {
    return await this.#made.run(...argv)
  }

  async ip(lines: readonly string[]): Promise<void> {
    await this.#made.ip(lines)
  }

  async start(program: string): Promise<Talk> {
    return this.startProgram('python3', '-uc', program)
  }

  async startProgram(...argv: string[]): Promise<Talk> {
    const talk = await this.#made.startProgram(...argv)
    this.#talks.push(talk)
    return talk
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const talk of this.#talks) await talk.end()
    if (this.#namespace === undefined) return
    // The kernel would take the link some time after the namespace.
    await run('ip', ['link', 'delete', this.#link]).catch(() => undefined)
    await this.#namespace.end()
  }

  get #made(): Namespace {
    if (this.#namespace === undefined) throw new Error('it has not been made')
    return this.#namespace
  }
}

/** Runs lines of `ip`, and stops at the first that fails. */
export async function ipBatch(lines: readonly string[]): Promise<void> {
  await batch('ip', ['-batch', '-'], lines)
}

async function batch(command: string, argv: readonly string[], lines: readonly string[]): Promise<void> {
  const running = run(command, argv)
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
