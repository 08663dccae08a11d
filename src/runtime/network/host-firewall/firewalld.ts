import { CommandError, type Run } from '../../command.ts'
import type { BaseChain } from './nftables.ts'
import { commentPrefix, linkPrefix } from './accept-rules.ts'

/** A zone that exists wherever firewalld does, and accepts all packets. */
const zone = 'trusted'
/** Exit status of a query whose answer is no. */
const isNotThere = 1
const inZone = `--zone=${zone}`

export const firewalldZone = `zone ${zone} of firewalld`

export function isFirewalld({ family, table }: BaseChain): boolean {
  return family === 'inet' && table === 'firewalld'
}

/** Whether firewalld's table names the links of a data directory in a zone, in our rules, or not at all. */
export async function standingInFirewalld(run: Run, hash: string): Promise<'zone' | 'rules' | undefined> {
  const lines = (await run(['nft', 'list', 'table', 'inet', 'firewalld'])).split('\n')
  const about = lines.filter((line) => line.includes(`"${linkPrefix(hash)}*"`))
  if (about.some((line) => !line.includes(`comment "${commentPrefix(hash)}`))) return 'zone'
  return about.length > 0 ? 'rules' : undefined
}

/**
 * Adds the links to a zone of firewalld until firewalld restarts: since version 2.1 no other program can change its table. The zone accepts
 * all packets of a link, of which Atoll's own rules let the same pass as with an accept rule. Returns false when firewalld does not answer.
 */
export async function joinZone(run: Run, hash: string): Promise<boolean> {
  return await ask(run, inZone, `--add-interface=${linkPrefix(hash)}+`)
}

/** Removes the links from the zone unless an operator put them there permanently. */
export async function leaveZone(run: Run, hash: string): Promise<void> {
  const links = `${linkPrefix(hash)}+`
  if (await mayBePermanent(run, links)) return
  await ask(run, inZone, `--remove-interface=${links}`)
}

async function mayBePermanent(run: Run, links: string): Promise<boolean> {
  try {
    await run(['firewall-cmd', '--permanent', inZone, `--query-interface=${links}`])
    return true
  } catch (error) {
    return !(error instanceof CommandError && error.exitCode === isNotThere)
  }
}

async function ask(run: Run, ...words: string[]): Promise<boolean> {
  try {
    await run(['firewall-cmd', ...words])
    return true
  } catch {
    return false
  }
}
