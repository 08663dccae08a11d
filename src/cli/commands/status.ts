import type { Command } from 'commander'
import { AtollError, Sandbox, type Atoll, type SandboxStatus } from '../../../sdk/src/index.ts'
import { ownVersion } from '../../lib/version.ts'
import { exitCodes } from '../exit-codes.ts'
import { examples } from '../options.ts'
import { bold, printable, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

const labelColumns = 11

export function addStatus(program: Command): void {
  program
    .command('status')
    .description('print whether the server answers and takes your key, its version, and what you have there')
    .addHelpText('after', examples('atoll status'))
    .action(async (_options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const client = await clientOf(flags)
      const found = await look(client)
      if (flags.json) await writeJson({ url: client.url, ...found })
      else await print(client.url, found)
      if (found.key === 'refused') process.exitCode = exitCodes.unauthorized
    })
}

interface Found {
  /** Of the server; absent where the key is refused. */
  version?: string
  key: 'accepted' | 'refused'
  organisation?: string | null
  /** How many sandboxes are in each state. */
  sandboxes?: Partial<Record<SandboxStatus, number>>
  /** Checks of the machine that do not work. */
  failing?: string[]
}

/** Throws when the server cannot be reached. */
async function look(client: Atoll): Promise<Found> {
  try {
    const [host, who, sandboxes] = await Promise.all([client.host(), client.whoami(), countsOf(client)])
    const failing = host.checks.filter(({ status }) => status === 'fails').map(({ name }) => name)
    return { version: host.version, key: 'accepted', organisation: who.org_name ?? who.org_id, sandboxes, failing }
  } catch (error) {
    if (!(error instanceof AtollError) || error.status !== 401) throw error
    return { key: 'refused' }
  }
}

async function countsOf(client: Atoll): Promise<Partial<Record<SandboxStatus, number>>> {
  const counts: Partial<Record<SandboxStatus, number>> = {}
  for await (const { status } of Sandbox.list({ client })) counts[status] = (counts[status] ?? 0) + 1
  return counts
}

async function print(url: string, { version, key, organisation, sandboxes = {}, failing = [] }: Found): Promise<void> {
  const counts = Object.entries(sandboxes).map(([status, count]) => `${count} ${status}`)
  const isOther = version !== undefined && version !== ownVersion()
  const rows: [string, string | undefined][] = [
    ['server', `${url} answers`],
    ['version', isOther ? `${version}; this program is ${ownVersion()}` : version],
    ['key', key === 'accepted' ? `accepted, of ${organisation}` : 'refused: atoll login saves another one'],
    ['sandboxes', key === 'accepted' ? counts.join(', ') || 'none' : undefined],
    ['failing', failing.length === 0 ? undefined : `${failing.join(', ')}; atoll doctor has the reasons`],
  ]
  for (const [label, text] of rows) {
    if (text !== undefined) await writeLine(`${bold(label.padEnd(labelColumns))}${printable(text)}`)
  }
}
