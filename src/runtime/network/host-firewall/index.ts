/**
 * Lets sandboxes through the firewalls of the host. A packet that one chain accepts may still be dropped by another (nft(8)), so the
 * accept rules go into each chain that drops: one file for each kind of firewall.
 */
import { messageOf, type Run } from '../../command.ts'
import { firewalldZone, isFirewalld, joinZone, leaveZone, standingInFirewalld } from './firewalld.ts'
import { fillLegacyChains } from './iptables-legacy.ts'
import { type BaseChain, baseChains, fillChain, isIptables } from './nftables.ts'
import {
  linkPrefix,
  type AcceptRule,
  acceptRulesFor,
  type AcceptRuleOptions,
  type RulePosition,
} from './accept-rules.ts'

/** Interval of the looks for a firewall that was loaded again. */
const lookIntervalMs = 15_000

export interface HostFirewallOptions extends AcceptRuleOptions {
  run: Run
  /** The operator configures the firewall: add nothing. */
  isLeft: boolean
  log: (message: string) => void
}

/** The accept rules of one data directory. A server adopts those that a killed one has left. */
export class HostFirewall {
  readonly #options: HostFirewallOptions
  readonly #acceptRules: readonly AcceptRule[]
  readonly #said = new Set<string>()
  /** The nftables chains that may hold our rules; before the first look all may. */
  readonly #filled = new Set<string>()
  #hasLooked = false
  #lookedAt = 0

  constructor(options: HostFirewallOptions) {
    this.#options = options
    this.#acceptRules = acceptRulesFor(options)
  }

  /** Adds missing rules and removes stale ones. A failure is logged: sandboxes work without the network. */
  async open(): Promise<void> {
    this.#lookedAt = Date.now()
    await this.#fill(this.#options.isLeft ? [] : this.#acceptRules)
  }

  /** Repeats `open` from time to time: a firewall that was loaded again has lost the rules. */
  async tend(): Promise<void> {
    if (this.#options.isLeft || Date.now() - this.#lookedAt < lookIntervalMs) return
    await this.open()
  }

  async close(): Promise<void> {
    await this.#fill([])
  }

  async #fill(acceptRules: readonly AcceptRule[]): Promise<void> {
    const { hash, run } = this.#options
    const chains = await this.#attempt('nftables', [], () => baseChains(run))
    const { isIn, isNew } = await this.#attempt('firewalld', notInZone, () => zoneFor(run, chains, hash, acceptRules))
    const changed = isNew ? [firewalldZone] : []
    for (const chain of chains) {
      const wanted = wantedIn(chain, acceptRules, isIn)
      const name = `${chain.family} ${chain.table} ${chain.name}`
      // Do not list a chain without our rules again at each look, however long it is.
      const mayHoldOurs = acceptRules.length === 0 || !this.#hasLooked || this.#filled.has(name)
      if (wanted.length === 0 && !mayHoldOurs) continue
      this.#filled.add(name)
      const hasFilled = await this.#attempt(name, false, async () => {
        const put = await fillChain(run, chain, { hash, acceptRules: wanted, position: positionIn(chain) })
        if (wanted.length === 0) this.#filled.delete(name)
        return put
      })
      if (hasFilled) changed.push(name)
    }
    this.#hasLooked ||= chains.length > 0
    changed.push(...(await this.#attempt('iptables-legacy', [], () => fillLegacyChains(run, hash, acceptRules))))
    if (changed.length === 0) return
    this.#say(
      `the firewall of this machine lets sandboxes through now, by rules for ${linkPrefix(hash)}* in ${changed.join(', ')} ` +
        '(ATOLL_HOST_FIREWALL=leave keeps it as it is)',
    )
  }

  /** Logs a failure and returns `otherwise`. */
  async #attempt<T>(what: string, otherwise: T, work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      this.#say(`the firewall of this machine cannot be adapted to sandboxes (${what}): ${messageOf(error)}`)
      return otherwise
    }
  }

  /** Logs each message once: repeated loads would fill the log. */
  #say(message: string): void {
    if (this.#said.has(message)) return
    this.#said.add(message)
    this.#options.log(message)
  }
}

/** The rules for a chain: only chains of known firewalls, and those with a drop policy, get any. */
function wantedIn(chain: BaseChain, acceptRules: readonly AcceptRule[], isInZone: boolean): AcceptRule[] {
  if (isFirewalld(chain) && isInZone) return []
  if (!isFirewalld(chain) && !isIptables(chain) && chain.policy === 'accept') return []
  return acceptRules.filter(({ hook }) => hook === chain.hook)
}

/** `head` in input chains, as the rules open very little of the host, and in firewalld, whose rules decide in inner chains. */
function positionIn(chain: BaseChain): RulePosition {
  return chain.hook === 'input' || isFirewalld(chain) ? 'head' : 'last'
}

const notInZone = { isIn: false, isNew: false }

/** Moves the links into firewalld's zone, or out of it when no rules are wanted. */
async function zoneFor(
  run: Run,
  chains: readonly BaseChain[],
  hash: string,
  acceptRules: readonly AcceptRule[],
): Promise<typeof notInZone> {
  if (!chains.some(isFirewalld)) return notInZone
  const standing = await standingInFirewalld(run, hash)
  if (acceptRules.length === 0 && standing === 'zone') await leaveZone(run, hash)
  if (acceptRules.length === 0 || standing === 'rules') return notInZone
  if (standing === 'zone') return { isIn: true, isNew: false }
  const isIn = await joinZone(run, hash)
  return { isIn, isNew: isIn }
}
