import { run } from '../../command.ts'
import type { BaseChain } from './nftables.ts'
import { commentPrefix, linkPrefix } from './passes.ts'

/** It exists wherever firewalld does, and accepts. */
const zone = 'trusted'

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
  return await ask(`--add-interface=${linkPrefix(hash)}+`)
}

export async function leaveZone(hash: string): Promise<boolean> {
  return await ask(`--remove-interface=${linkPrefix(hash)}+`)
}

async function ask(change: string): Promise<boolean> {
  try {
    await run(['firewall-cmd', `--zone=${zone}`, change])
    return true
  } catch {
    return false
  }
}
