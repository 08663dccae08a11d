import { readFile } from 'node:fs/promises'
import { run } from '../../command.ts'
import type { Pass } from './passes.ts'
import { type Place, placementIn, type Rule, targetsOf, type Verdict } from './placement.ts'

/** The tables of this network namespace that are not nftables'; there is none unless somebody has used them. */
const tablesFile = '/proc/self/net/ip_tables_names'
const chains = { forward: 'FORWARD', input: 'INPUT' } as const
const places: Record<Pass['hook'], Place> = { forward: 'last', input: 'head' }

/** The same as `fillChain`, for the two chains of the older iptables. Returns those that it has put passes into. */
export async function fillLegacyChains(hash: string, passes: readonly Pass[]): Promise<string[]> {
  const tables = await readFile(tablesFile, 'utf8').catch(() => '')
  if (!tables.split('\n').includes('filter')) return []
  const { changes, filled } = legacyChanges(await run(['iptables-legacy-save', '-t', 'filter']), hash, passes)
  if (changes.length === 0) return []
  const input = ['*filter', ...changes, 'COMMIT', ''].join('\n')
  await run(['iptables-legacy-restore', '--noflush', '--wait', '5'], { input })
  return filled
}

/** For the output of `iptables-save`: what to change, and in which chains there are passes afterwards that were not there before. */
export function legacyChanges(
  saved: string,
  hash: string,
  passes: readonly Pass[],
): { changes: string[]; filled: string[] } {
  const lines = saved.split('\n')
  const changes: string[] = []
  const filled: string[] = []
  for (const hook of ['forward', 'input'] as const) {
    const chain = chains[hook]
    const rules = rulesOf(lines, chain)
    const policy = lines.some((line) => line.startsWith(`:${chain} DROP `)) ? 'drop' : 'accept'
    const targets = new Map(targetsOf(rules).map((target) => [target, rulesOf(lines, target)]))
    const wanted = { hash, passes: passes.filter((pass) => pass.hook === hook), place: places[hook] }
    const placement = placementIn({ rules, policy, targets }, wanted)
    if (placement === undefined) continue
    const { removed, added, before } = placement
    const others = rules.filter((rule) => !removed.includes(rule))
    const number = 1 + (before === undefined ? others.length : others.indexOf(before))
    changes.push(...removed.map(({ line }) => line.replace('-A', '-D')))
    changes.push(
      ...added.map((pass) => `-I ${chain} ${number} ${pass.iptables} -m comment --comment "${pass.comment}" -j ACCEPT`),
    )
    if (added.length > 0) filled.push(`${chain} of iptables-legacy`)
  }
  return { changes, filled }
}

function rulesOf(lines: readonly string[], chain: string): (Rule & { line: string })[] {
  const start = `-A ${chain} `
  return lines
    .filter((line) => line.startsWith(start))
    .map((line) => ({
      line,
      comment: / --comment "([^"]*)"/.exec(line)?.[1] ?? '',
      verdict: verdictOf(line.slice(start.length)),
    }))
}

const comment = /^-m comment --comment ("(\\.|[^"\\])*"|\S+) /

function verdictOf(rule: string): Verdict {
  const [, target = ''] = /^-[jg] (\S+)( --reject-with \S+)?$/.exec(rule.replace(comment, '')) ?? []
  if (target === 'DROP' || target === 'REJECT') return 'deny'
  if (target === 'ACCEPT' || target === 'RETURN') return 'end'
  return target === '' ? undefined : { chain: target }
}
