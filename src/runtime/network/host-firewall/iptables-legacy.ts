import { readFile } from 'node:fs/promises'
import { run } from '../../command.ts'
import { areExactly, commentMark, commentPrefix, type Pass } from './passes.ts'

/** The tables of this network namespace that are not nftables'; there is none unless somebody has used them. */
const tablesFile = '/proc/self/net/ip_tables_names'
const chains = { forward: 'FORWARD', input: 'INPUT' } as const

/** The same as `fillChain`, for the two chains of the older iptables. Returns those that it has put passes into. */
export async function fillLegacyChains(hash: string, passes: readonly Pass[]): Promise<string[]> {
  const tables = await readFile(tablesFile, 'utf8').catch(() => '')
  if (!tables.split('\n').includes('filter')) return []
  const saved = (await run(['iptables-legacy-save', '-t', 'filter'])).split('\n')
  const changes: string[] = []
  const filled: string[] = []
  for (const hook of ['forward', 'input'] as const) {
    const chain = chains[hook]
    const rules = saved.filter((line) => line.startsWith(`-A ${chain} `))
    const others = rules.some((line) => !commentOf(line).startsWith(commentMark))
    const own = rules.filter((line) => commentOf(line).startsWith(commentPrefix(hash)))
    const drops = saved.some((line) => line.startsWith(`:${chain} DROP `))
    const wanted = drops || others ? passes.filter((pass) => pass.hook === hook) : []
    if (areExactly(wanted, own.map(commentOf))) continue
    changes.push(...own.map((line) => line.replace('-A', '-D')))
    changes.push(
      ...wanted.map((pass) => `-I ${chain} ${pass.iptables} -m comment --comment "${pass.comment}" -j ACCEPT`),
    )
    if (wanted.length > 0) filled.push(`${chain} of iptables-legacy`)
  }
  if (changes.length === 0) return []
  const input = ['*filter', ...changes, 'COMMIT', ''].join('\n')
  await run(['iptables-legacy-restore', '--noflush', '--wait', '5'], { input })
  return filled
}

function commentOf(rule: string): string {
  return / --comment "([^"]*)"/.exec(rule)?.[1] ?? ''
}
