/** The egress proxy between two network namespaces: what stands for a sandbox, and servers beyond this host. */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { TestAuthority } from '../e2e/egress/certificates.ts'
import type { Order, Path } from './egress-client.ts'
import type { OriginOptions } from './egress-origin.ts'

const run = promisify(execFile)

/** Names of one server: the first is only let through, TLS of the others ends at the proxy, where it has a secret for the last. */
export const spliced = 'spliced.test'
export const read = 'read.test'
export const secret = 'secret.test'
const names = [spliced, read, secret]

const gateway = '10.200.0.1'
/** The packet rules redirect what comes from the first. */
const proxied = '10.200.0.2'
const direct = '10.200.0.3'
const host = '203.0.113.1'
const origin = '203.0.113.2'

/** As the server lays them for a sandbox whose egress is a list. */
const rules = `
table ip egress {
  set proxied { type ipv4_addr; elements = { ${proxied} } }
  chain destination {
    type nat hook prerouting priority dstnat;
    ip saddr @proxied ip daddr ${gateway} udp dport 53 dnat to ${gateway}:4183
    ip saddr @proxied meta l4proto tcp dnat to ${gateway}:4182
  }
  chain forward {
    type filter hook forward priority filter;
    ip saddr @proxied meta l4proto tcp reject with tcp reset
    ip saddr @proxied reject with icmp admin-prohibited
  }
  chain source {
    type nat hook postrouting priority srcnat;
    ip saddr 10.200.0.0/16 oifname "outside" masquerade
  }
}
`

interface Authority {
  certificate: string
  key: string
}

export class EgressPlace implements AsyncDisposable {
  readonly #stack: AsyncDisposableStack
  readonly #client: ChildProcess
  readonly #program: string
  /** What the servers' certificates are checked against. */
  readonly #roots: string
  readonly #authority: Authority
  #proxy: ChildProcess | undefined

  private constructor(
    stack: AsyncDisposableStack,
    client: ChildProcess,
    program: string,
    certificates: { roots: string; authority: Authority },
  ) {
    this.#stack = stack
    this.#client = client
    this.#program = program
    this.#roots = certificates.roots
    this.#authority = certificates.authority
    stack.defer(async () => this.#proxy && (await end(this.#proxy)))
  }

  /** In a network namespace that has nothing else. */
  static async make(program: string): Promise<EgressPlace> {
    await using stack = new AsyncDisposableStack()
    const folder = await mkdtemp(join(tmpdir(), 'atoll-bench-egress-'))
    stack.defer(() => rm(folder, { recursive: true }))
    const authority = await TestAuthority.make(folder, 'bench')
    const pair = await authority.issue('origin', names)
    const [outside, client] = ['egress-origin.ts', 'egress-client.ts'].map((file) => isolated(stack, file))
    if (outside === undefined || client === undefined) throw new Error('no process')
    await layLinks(outside, client)
    outside.send({ address: origin, names, ...pair } satisfies OriginOptions)
    await once(outside, 'message')
    const roots = await readFile(authority.file, 'utf8')
    const made = JSON.parse((await run(program, ['authority'])).stdout) as Authority
    const place = new EgressPlace(stack.move(), client, program, { roots, authority: made })
    await place.restart()
    return place
  }

  /** With a new process of the proxy. */
  async restart(): Promise<void> {
    if (this.#proxy !== undefined) await end(this.#proxy)
    this.#proxy = spawn(this.#program, [], { stdio: ['pipe', 'pipe', 'inherit'] })
    await tell(this.#proxy, [startFrame(this.#roots), planFrame(this.#authority)])
  }

  /** Past the proxy. */
  direct(name = spliced): Path {
    return { from: direct, name, to: origin, authority: this.#roots }
  }

  through(name: string): Path {
    return { from: proxied, name, to: origin, authority: name === spliced ? this.#roots : this.#authority.certificate }
  }

  /** Milliseconds. */
  async order(order: Order): Promise<number[]> {
    this.#client.send(order)
    const [said] = (await once(this.#client, 'message')) as [{ answer: number[] } | { error: string }]
    if ('error' in said) throw new Error(`${JSON.stringify(order)}: ${said.error}`)
    return said.answer
  }

  /** MiB that the proxy holds of memory. */
  async memory(): Promise<number> {
    const status = await readFile(`/proc/${this.#proxy?.pid}/status`, 'utf8')
    return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) / 1024
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack[Symbol.asyncDispose]()
  }
}

/** A program of the bench in a network namespace that ends with it. */
function isolated(stack: AsyncDisposableStack, file: string): ChildProcess {
  const argv = ['--net', process.execPath, join(import.meta.dirname, file)]
  const child = spawn('unshare', argv, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  stack.defer(() => end(child))
  return child
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = once(child, 'exit')
  child.kill('SIGKILL')
  await ended
}

/** Sends frames and waits until each has been answered; what the proxy reports later is read and dropped. */
async function tell(proxy: ChildProcess, frames: readonly object[]): Promise<void> {
  if (proxy.stdin === null || proxy.stdout === null) throw new Error('the proxy has no channel')
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  createInterface({ input: proxy.stdout }).on('line', (line) => {
    const said = JSON.parse(line) as { op: string; seq?: number }
    if (said.op === 'error') reject(new Error(line))
    if (said.op === 'ok' && said.seq === frames.length) resolve()
  })
  frames.forEach((frame, at) => proxy.stdin?.write(`${JSON.stringify({ ...frame, seq: at + 1 })}\n`))
  await promise
}

function startFrame(roots: string): object {
  return {
    op: 'start',
    listen: `${gateway}:4182`,
    dns: `${gateway}:4183`,
    explicit: '169.254.169.253:3128',
    resolvers: [`${origin}:53`],
    roots,
    denied: ['10.0.0.0/8', '127.0.0.0/8'],
    private: [],
  }
}

function planFrame(authority: Authority): object {
  const allow = names.map((name, at) => ({ id: `creation.allow[${at}]`, host: name, inspect: name !== spliced }))
  const placeholders = ['osb_sealed_0123456789abcdef0123456789abcdef']
  return {
    op: 'put',
    sandbox: 'sb-bench',
    address: proxied,
    plan: {
      layers: [{ source: 'creation', mode: 'list', log_only: false, allow, deny: [] }],
      secrets: [{ name: 'TOKEN', placeholders, value: 'value', hosts: [secret], in: ['header', 'body'] }],
      authority,
    },
  }
}

async function layLinks(outside: ChildProcess, client: ChildProcess): Promise<void> {
  await batch('ip', [
    `link add outside type veth peer name eth0 netns ${outside.pid}`,
    `link add inside type veth peer name eth0 netns ${client.pid}`,
    `address add ${host}/24 dev outside`,
    `address add ${gateway}/16 dev inside`,
    'link set outside up',
    'link set inside up',
    'link set lo up',
  ])
  const within = (child: ChildProcess, lines: readonly string[]) =>
    batch('nsenter', ['link set lo up', ...lines, 'link set eth0 up'], `--net=/proc/${child.pid}/ns/net`, 'ip')
  await within(outside, [`address add ${origin}/24 dev eth0`])
  await within(client, [`address add ${proxied}/16 dev eth0`, `address add ${direct}/16 dev eth0`])
  await run('nsenter', [`--net=/proc/${client.pid}/ns/net`, 'ip', 'route', 'add', 'default', 'via', gateway])
  await writeFile('/proc/sys/net/ipv4/ip_forward', '1')
  await promisedInput('nft', ['-f', '-'], rules)
}

async function batch(program: string, lines: readonly string[], ...words: string[]): Promise<void> {
  await promisedInput(program, [...words, '-batch', '-'], `${lines.join('\n')}\n`)
}

async function promisedInput(program: string, argv: readonly string[], input: string): Promise<void> {
  const running = run(program, argv)
  running.child.stdin?.end(input)
  await running
}
