/**
 * Sandboxes and the firewalls of the host. A packet that one chain accepts may still be dropped by another (nft(8)), so rules that
 * accept stand in the chains of those who drop: one file for each kind of firewall.
 */
import { firewalldZone, isFirewalld, joinZone, leaveZone, standingInFirewalld } from './firewalld.ts'
import { fillLegacyChains } from './iptables-legacy.ts'
import { type BaseChain, baseChains, fillChain, isIptables } from './nftables.ts'
import { linkPrefix, type Pass, passesOf, type PassOptions } from './passes.ts'
import type { Place } from './placement.ts'

/** How often it is looked whether a firewall was loaded meanwhile. */
const lookIntervalMs = 15_000

export interface HostFirewallOptions extends PassOptions {
  /** The operator sees to the firewall: nothing is added. */
  isLeft: boolean
  log: (message: string) => void
}

/** The accept rules of one data directory. Another server adopts those that a killed one has left. */
export class HostFirewall {
  readonly #options: HostFirewallOptions
  readonly #passes: readonly Pass[]
  readonly #said = new Set<string>()
  /** The nftables chains that may hold passes of ours, all of them before the first look. */
  readonly #filled = new Set<string>()
  #hasLooked = false
  #lookedAt = 0

  constructor(options: HostFirewallOptions) {
    this.#options = options
    this.#passes = passesOf(options)
  }

  /** Adds what is missing and removes what is stale. What cannot be added is logged: sandboxes work without the network. */
  async open(): Promise<void> {
    this.#lookedAt = Date.now()
    await this.#fill(this.#options.isLeft ? [] : this.#passes)
  }

  /** The same from time to time: a firewall that is loaded again has forgotten the rules. */
  async tend(): Promise<void> {
    if (this.#options.isLeft || Date.now() - this.#lookedAt < lookIntervalMs) return
    await this.open()
  }

  async close(): Promise<void> {
    await this.#fill([])
  }

  async #fill(passes: readonly Pass[]): Promise<void> {
    const { hash } = this.#options
    const chains = await this.#attempt('nftables', [], baseChains)
    const { isIn, isNew } = await this.#attempt('firewalld', notInZone, () => zoneFor(chains, hash, passes))
    const places = isNew ? [firewalldZone] : []
    for (const chain of chains) {
      const wanted = wantedIn(chain, passes, isIn)
      const place = `${chain.family} ${chain.table} ${chain.name}`
      // What accepts by itself and was given none is not listed again and again, however long it is.
      const mayHoldOurs = passes.length === 0 || !this.#hasLooked || this.#filled.has(place)
      if (wanted.length === 0 && !mayHoldOurs) continue
      this.#filled.add(place)
      const hasFilled = await this.#attempt(place, false, async () => {
        const put = await fillChain(chain, { hash, passes: wanted, place: placeIn(chain) })
        if (wanted.length === 0) this.#filled.delete(place)
        return put
      })
      if (hasFilled) places.push(place)
    }
    this.#hasLooked ||= chains.length > 0
    places.push(...(await this.#attempt('iptables-legacy', [], () => fillLegacyChains(hash, passes))))
    if (places.length === 0) return
    this.#say(
      `the firewall of this machine lets sandboxes through now, by rules for ${linkPrefix(hash)}* in ${places.join(', ')} ` +
        '(ATOLL_HOST_FIREWALL=leave keeps it as it is)',
    )
  }

  /** Where it fails this is logged, and `otherwise` holds. */
  async #attempt<T>(what: string, otherwise: T, work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      this.#say(`the firewall of this machine cannot be adapted to sandboxes (${what}): ${said(error)}`)
      return otherwise
    }
  }

  /** Once: what is loaded again and again would fill the log. */
  #say(message: string): void {
    if (this.#said.has(message)) return
    this.#said.add(message)
    this.#options.log(message)
  }
}

/** The passes that are to stand in a chain, if it drops: only in those that are known, or that drop by their policy. */
function wantedIn(chain: BaseChain, passes: readonly Pass[], isInZone: boolean): Pass[] {
  if (isFirewalld(chain) && isInZone) return []
  if (!isFirewalld(chain) && !isIptables(chain) && chain.policy === 'accept') return []
  return passes.filter(({ hook }) => hook === chain.hook)
}

/** Of the host itself passes open so little that nobody has a rule against it; in firewalld's chains its own decide deep inside. */
function placeIn(chain: BaseChain): Place {
  return chain.hook === 'input' || isFirewalld(chain) ? 'head' : 'last'
}

const notInZone = { isIn: false, isNew: false }

/** Brings the links into firewalld's zone, or out of it where no passes are wanted. */
async function zoneFor(chains: readonly BaseChain[], hash: string, passes: readonly Pass[]): Promise<typeof notInZone> {
  if (!chains.some(isFirewalld)) return notInZone
  const standing = await standingInFirewalld(hash)
  if (passes.length === 0 && standing === 'zone') await leaveZone(hash)
  if (passes.length === 0 || standing === 'rules') return notInZone
  return standing === 'zone' ? { isIn: true, isNew: false } : await joined(hash)
}

async function joined(hash: string): Promise<typeof notInZone> {
  const isIn = await joinZone(hash)
  return { isIn, isNew: isIn }
}

function said(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
