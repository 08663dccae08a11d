/** A world of its own for sandboxes: names, a certificate authority and servers in a network namespace behind this host. */
import { randomInt } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Outside, run, type Talk } from '../../conformance/network-world.ts'
import { eventually } from '../../../src/lib/testing/eventually.ts'
import { addressesOfHost } from '../../support/addresses.ts'
import { claim } from '../../support/listen.ts'
import { TestAuthority } from './certificates.ts'
import type { Seen, SeenRequest } from './journal.ts'
import type { NameRecord } from './names.ts'
import { authorityName, evilNames, mainNames, type WorldFile } from './places.ts'

const program = join(import.meta.dirname, 'outside.ts')

export class EgressWorld implements AsyncDisposable {
  /** The end of the link on this host, a public-looking address of the host itself. */
  readonly host: string
  /** Where the good names are. */
  readonly main: string
  /** Where `two.test` is too. */
  readonly second: string
  /** Where the names of the attacker are. */
  readonly evil: string
  /** A private address, behind the same servers. */
  readonly private: string
  readonly rootFile: string
  readonly rootPem: string
  readonly #outside: Outside
  readonly #folder: string
  readonly #talk: Talk

  private constructor(
    outside: Outside,
    places: Places,
    folder: string,
    root: { file: string; pem: string },
    talk: Talk,
  ) {
    this.#outside = outside
    this.host = outside.host
    this.main = outside.address
    this.second = places.second
    this.evil = places.evil
    this.private = places.private
    this.#folder = folder
    this.rootFile = root.file
    this.rootPem = root.pem
    this.#talk = talk
  }

  static async make(): Promise<EgressWorld> {
    await using made = new AsyncDisposableStack()
    const folder = await mkdtemp(join(tmpdir(), 'atoll-egress-'))
    made.defer(() => rm(folder, { recursive: true, force: true }))
    const outside = made.use(new Outside())
    await outside.make()
    const places = placesBeside(outside)
    await outside.ip([
      ...[places.second, places.evil].map((address) => `address add ${address}/24 dev eth0`),
      `address add ${places.private}/32 dev eth0`,
      `route add default via ${outside.host}`,
    ])
    await run('ip', ['route', 'add', `${places.private}/32`, 'via', outside.address])
    const authority = await TestAuthority.make(folder, authorityName)
    const file: WorldFile = {
      names: recordsOf(outside, places),
      certificates: [
        { names: mainNames, ...(await authority.issue('main', mainNames)) },
        { names: ['*.wild.test'], ...(await authority.issue('wild', ['*.wild.test'])) },
        { names: evilNames, ...(await authority.issue('evil', evilNames)) },
        { names: ['selfsigned.test'], ...(await authority.selfSigned('selfsigned', ['selfsigned.test'])) },
        { names: ['misnamed.test'], ...(await authority.issue('misnamed', ['another.test'])) },
      ],
    }
    await writeFile(`${folder}/world.json`, JSON.stringify(file))
    const talk = await outside.startProgram(process.execPath, program, folder)
    const pem = (await run('cat', [authority.file])).stdout
    made.move()
    return new EgressWorld(outside, places, folder, { file: authority.file, pem }, talk)
  }

  /** What a server needs to know of this world. */
  get env(): Record<string, string> {
    return { ATOLL_EGRESS_RESOLVERS: `${this.main}:53`, ATOLL_EGRESS_ROOTS: this.rootFile }
  }

  /** How much has been seen so far. */
  async mark(): Promise<number> {
    return (await this.#since(Number.MAX_SAFE_INTEGER)).next
  }

  async since(mark: number): Promise<Seen[]> {
    return (await this.#since(mark)).seen
  }

  async requestsSince(mark: number): Promise<SeenRequest[]> {
    return (await this.since(mark)).filter((seen) => seen.kind === 'http')
  }

  /** Waits until something of the kind has been seen, for a bounded time. */
  async sees(mark: number, isWanted: (seen: Seen) => boolean): Promise<Seen> {
    return await eventually(async () => {
      const found = (await this.since(mark)).find(isWanted)
      if (found === undefined) throw new Error('the world outside has not seen it')
      return found
    })
  }

  /** What a name is from now on. */
  async setName(name: string, record: NameRecord): Promise<void> {
    await this.#talk.ask(JSON.stringify(['name', name, record]))
  }

  /** Runs a command outside. */
  async run(...argv: string[]): Promise<string> {
    return await this.#outside.run(...argv)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#outside[Symbol.asyncDispose]()
    await rm(this.#folder, { recursive: true, force: true })
  }

  async #since(mark: number): Promise<{ next: number; seen: Seen[] }> {
    return JSON.parse(await this.#talk.ask(JSON.stringify(['since', mark]))) as { next: number; seen: Seen[] }
  }
}

interface Places {
  second: string
  evil: string
  private: string
}

/** More addresses in the network of the outside, and a private one that this machine has no use for. */
function placesBeside({ host }: Outside): Places {
  const taken = addressesOfHost()
  const network = host.slice(0, host.lastIndexOf('.'))
  for (;;) {
    const second = `172.${randomInt(16, 32)}`
    if (taken.some((address) => address.startsWith(`${second}.`))) continue
    const address = `${second}.${randomInt(0, 256)}.2`
    // Another world has its address in a network namespace of its own, and only a route here.
    if (!claim(address)) continue
    return { second: `${network}.3`, evil: `${network}.4`, private: address }
  }
}

function recordsOf({ host, address }: Outside, places: Places): Record<string, NameRecord> {
  const records: Record<string, NameRecord> = {}
  for (const name of [...mainNames, '*.wild.test', 'selfsigned.test', 'misnamed.test'])
    records[name] = { answers: [[address]] }
  for (const name of evilNames) records[name] = { answers: [[places.evil]], texts: ['an order'] }
  return {
    ...records,
    'two.test': { answers: [[address, places.second]] },
    'half-private.test': { answers: [[places.private, address]] },
    'private.test': { answers: [[places.private]] },
    'alias.test': { alias: 'private.test' },
    'alias-out.test': { alias: 'evil.test' },
    'loopback.test': { answers: [['127.0.0.1']] },
    'metadata.test': { answers: [['169.254.169.254']] },
    'host.test': { answers: [[host]] },
    'v6.test': { answers: [[address]], ipv6: ['2001:db8:0:0:0:0:0:1'], texts: ['a text'] },
    'api.test': { answers: [[address]], texts: ['a text of api.test'] },
  }
}
