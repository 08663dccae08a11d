/**
 * Sandboxes and the firewalls of the host. A packet that one chain accepts may still be dropped by another (nft(8)), so rules that
 * accept stand in the chains of those who drop: one file for each kind of firewall.
 */
import { firewalldZone, isFirewalld, joinZone, leaveZone, standingInFirewalld } from './firewalld.ts'
import { fillLegacyChains } from './iptables-legacy.ts'
import { type BaseChain, baseChains, fillChain, isIptables } from './nftables.ts'
import { linkPrefix, type Pass, passesOf, type PassOptions } from './passes.ts'

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
    const filled: string[] = []
    const attempt = async (what: string, work: () => Promise<string[]>) => {
      await work().then(
        (places) => filled.push(...places),
        (error: unknown) =>
          this.#say(`the firewall of this machine cannot be adapted to sandboxes (${what}): ${said(error)}`),
      )
    }
    let chains: BaseChain[] = []
    await attempt('nftables', async () => {
      chains = await baseChains()
      return []
    })
    let isInZone = false
    if (chains.some(isFirewalld)) {
      await attempt('firewalld', async () => {
        const standing = await standingInFirewalld(hash)
        if (passes.length === 0 && standing === 'zone') await leaveZone(hash)
        if (passes.length === 0 || standing === 'rules') return []
        isInZone = standing === 'zone' || (await joinZone(hash))
        return isInZone && standing === undefined ? [firewalldZone] : []
      })
    }
    for (const chain of chains) {
      const isKnown = isFirewalld(chain) ? !isInZone : isIptables(chain) || chain.policy === 'drop'
      const wanted = isKnown ? passes.filter(({ hook }) => hook === chain.hook) : []
      // What accepts by itself and was given none is not listed, however long it is.
      if (!isKnown && passes.length > 0) continue
      const place = `${chain.family} ${chain.table} ${chain.name}`
      await attempt(place, async () => ((await fillChain(chain, hash, wanted)) ? [place] : []))
    }
    await attempt('iptables-legacy', () => fillLegacyChains(hash, passes))
    if (filled.length === 0) return
    this.#say(
      `the firewall of this machine lets sandboxes through now, by rules for ${linkPrefix(hash)}* in ${filled.join(', ')} ` +
        '(ATOLL_HOST_FIREWALL=leave keeps it as it is)',
    )
  }

  /** Once: what is loaded again and again would fill the log. */
  #say(message: string): void {
    if (this.#said.has(message)) return
    this.#said.add(message)
    this.#options.log(message)
  }
}

function said(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
