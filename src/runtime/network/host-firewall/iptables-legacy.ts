import { readFile } from 'node:fs/promises'
import type { Run } from '../../command.ts'
import { type AcceptRule, type RulePosition, placementIn, type Rule, targetsOf, type Verdict } from './accept-rules.ts'

/** Lists the legacy tables of this network namespace; a table exists after its first use. */
const tablesFile = '/proc/self/net/ip_tables_names'
const chains = { forward: 'FORWARD', input: 'INPUT' } as const
const positions: Record<AcceptRule['hook'], RulePosition> = { forward: 'last', input: 'head' }

/** Like `fillChain`, for the two chains of the older iptables. Returns the chains to which it added rules. */
export async function fillLegacyChains(run: Run, hash: string, acceptRules: readonly AcceptRule[]): Promise<string[]> {
  const tables = await readFile(tablesFile, 'utf8').catch(() => '')
  if (!tables.split('\n').includes('filter')) return []
  const { changes, filled } = legacyChanges(await run(['iptables-legacy-save', '-t', 'filter']), hash, acceptRules)
  if (changes.length === 0) return []
  const input = ['*filter', ...changes, 'COMMIT', ''].join('\n')
  await run(['iptables-legacy-restore', '--noflush', '--wait', '5'], { input })
  return filled
}

/** The changes for the output of `iptables-save`, and the chains that get new rules by them. */
export function legacyChanges(
  saved: string,
  hash: string,
  acceptRules: readonly AcceptRule[],
): { changes: string[]; filled: string[] } {
  const lines = saved.split('\n')
  const changes: string[] = []
  const filled: string[] = []
  for (const hook of ['forward', 'input'] as const) {
    const chain = chains[hook]
    const rules = rulesOf(lines, chain)
    const policy = lines.some((line) => line.startsWith(`:${chain} DROP `)) ? 'drop' : 'accept'
    const targets = new Map(targetsOf(rules).map((target) => [target, rulesOf(lines, target)]))
    const wanted = {
      hash,
      acceptRules: acceptRules.filter((acceptRule) => acceptRule.hook === hook),
      position: positions[hook],
    }
    const placement = placementIn({ rules, policy, targets }, wanted)
    if (placement === undefined) continue
    const { removed, added, before } = placement
    const others = rules.filter((rule) => !removed.includes(rule))
    const number = 1 + (before === undefined ? others.length : others.indexOf(before))
    changes.push(...removed.map(({ line }) => line.replace('-A', '-D')))
    changes.push(
      ...added.map(
        (acceptRule) =>
          `-I ${chain} ${number} ${acceptRule.iptables} -m comment --comment "${acceptRule.comment}" -j ACCEPT`,
      ),
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
