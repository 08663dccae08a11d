import { CommandError, run } from '../../command.ts'
import type { BaseChain } from './nftables.ts'
import { commentPrefix, linkPrefix } from './passes.ts'

/** It exists wherever firewalld does, and accepts. */
const zone = 'trusted'
/** What a query ends with whose answer is no. */
const isNotThere = 1
const inZone = `--zone=${zone}`

export const firewalldZone = `zone ${zone} of firewalld`

export function isFirewalld({ family, table }: BaseChain): boolean {
  return family === 'inet' && table === 'firewalld'
}

/** How the links of a data directory stand in firewalld's table: in a zone, by rules of ours in its chains, or not at all. */
export async function standingInFirewalld(hash: string): Promise<'zone' | 'rules' | undefined> {
  const lines = (await run(['nft', 'list', 'table', 'inet', 'firewalld'])).split('\n')
  const about = lines.filter((line) => line.includes(`"${linkPrefix(hash)}*"`))
  if (about.some((line) => !line.includes(`comment "${commentPrefix(hash)}`))) return 'zone'
  return about.length > 0 ? 'rules' : undefined
}

/**
 * Has firewalld let the links through, until it is started again: since version 2.1 nobody else may change its table. A zone lets
 * all of a link through, of which Atoll's own rules leave what a pass would. Returns false where firewalld cannot be asked.
 */
export async function joinZone(hash: string): Promise<boolean> {
  return await ask(inZone, `--add-interface=${linkPrefix(hash)}+`)
}

/** Undoes it, but for what an operator has put into the zone for good, which is not Atoll's. */
export async function leaveZone(hash: string): Promise<void> {
  const links = `${linkPrefix(hash)}+`
  if (await mayBePermanent(links)) return
  await ask(inZone, `--remove-interface=${links}`)
}

async function mayBePermanent(links: string): Promise<boolean> {
  try {
    await run(['firewall-cmd', '--permanent', inZone, `--query-interface=${links}`])
    return true
  } catch (error) {
    return !(error instanceof CommandError && error.exitCode === isNotThere)
  }
}

async function ask(...words: string[]): Promise<boolean> {
  try {
    await run(['firewall-cmd', ...words])
    return true
  } catch {
    return false
  }
}
