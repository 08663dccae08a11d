import { run } from '../../command.ts'
import { areExactly, commentMark, commentPrefix, type Pass } from './passes.ts'

/** A chain of the kernel's that packets to the host, or through it, pass. */
export interface BaseChain {
  family: 'ip' | 'inet'
  table: string
  name: string
  hook: 'forward' | 'input'
  policy: 'accept' | 'drop'
}

interface Listing {
  nftables: {
    chain?: { family: string; table: string; name: string; type?: string; hook?: string; policy?: string }
    rule?: { handle: number; comment?: string }
  }[]
}

const families = ['ip', 'inet']
const hooks = ['forward', 'input']
/** What nft takes without quotes; whatever else a chain is called, it is none of the firewalls that are known. */
const plainName = /^[A-Za-z_][\w.-]*$/
/** Atoll's own, and what firewalld lets nothing pass by while it loads its table anew. */
const leftTables = /^(atoll|firewalld)_/
/** A look is bounded, whatever others have made. */
const chainsMax = 64

/** Those of all firewalls of the host. */
export async function baseChains(): Promise<BaseChain[]> {
  const { nftables } = await listing(['list', 'chains'])
  const chains = nftables.flatMap(({ chain }) => (chain === undefined ? [] : [chain as BaseChain & { type?: string }]))
  return chains
    .filter(({ type, hook, family }) => type === 'filter' && hooks.includes(hook) && families.includes(family))
    .filter(({ table, name }) => plainName.test(table) && plainName.test(name) && !leftTables.test(table))
    .slice(0, chainsMax)
}

/** The chains that iptables-nft fills, also for Docker and ufw. */
export function isIptables({ family, table, name }: BaseChain): boolean {
  return family === 'ip' && table === 'filter' && ['FORWARD', 'INPUT'].includes(name)
}

/**
 * Puts the passes at the head of a chain and removes all others of the hash from it, in one transaction; what is right stays. A
 * chain that lets everything through is left without. Returns whether it has put them there.
 */
export async function fillChain(chain: BaseChain, hash: string, passes: readonly Pass[]): Promise<boolean> {
  const { family, table, name, policy } = chain
  const { nftables } = await listing(['--handle', 'list', 'chain', family, table, name])
  const rules = nftables.flatMap(({ rule }) => rule ?? [])
  const others = rules.some(({ comment = '' }) => !comment.startsWith(commentMark))
  const own = rules.filter(({ comment }) => comment?.startsWith(commentPrefix(hash)))
  const wanted = policy === 'drop' || others ? passes : []
  const comments = own.map(({ comment = '' }) => comment)
  if (areExactly(wanted, comments)) return false
  const where = `${family} ${table} ${name}`
  const removed = own.map(({ handle }) => `delete rule ${where} handle ${handle}\n`)
  const added = wanted.map((pass) => `insert rule ${where} ${pass.nftables} counter accept comment "${pass.comment}"\n`)
  await run(['nft', '-f', '-'], { input: [...removed, ...added].join('') })
  return added.length > 0
}

async function listing(words: string[]): Promise<Listing> {
  return JSON.parse(await run(['nft', '--json', ...words])) as Listing
}
