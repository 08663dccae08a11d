import { createReadStream } from 'node:fs'
import { createInterface } from 'node:readline'
import { Readable } from 'node:stream'
import type { Command } from 'commander'
import type { Audit } from '../../../sdk/src/index.ts'
import { AuditVerifier, type ChainedEntry } from '../../protocol/audit.ts'
import { exitCodes, UsageError } from '../exit-codes.ts'
import { type ListFlags, writeList } from '../list.ts'
import { examples } from '../options.ts'
import { organisationAudit } from '../organisation.ts'
import { note, when, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

interface AuditFlags extends Flags {
  org?: string
}

interface QueryFlags extends AuditFlags, ListFlags {
  actor?: string
  operation?: string
  subject?: string
  since?: string
  status?: string
  limit: string
}

const shownFaultsMax = 20
const orgOption = ['--org <organisation>', "of this organisation, by id or name, with the operator's key"] as const

export function addAudit(program: Command): void {
  const audit = program
    .command('audit')
    .description('who has done what')
    .addHelpText(
      'after',
      examples(
        'atoll audit ls --operation runCommand',
        'atoll audit export > audit.jsonl',
        'atoll audit verify audit.jsonl',
      ),
    )
  audit
    .command('ls')
    .description('list entries, newest first')
    .addHelpText('after', examples('atoll audit ls --subject demo --limit 20'))
    .option('--actor <id>', 'of this key, session or sandbox')
    .option('--operation <name>', 'of this operation of the reference, such as runCommand')
    .option('--subject <text>', 'about this id, name or path')
    .option('--since <time>', 'not before this time (ISO 8601)')
    .option('--status <status>', 'ok, or the status of refused and failed calls')
    .option('--limit <number>', 'how many', '100')
    .option(...orgOption)
    .option('-q, --quiet', 'print numbers alone')
    .action(async (_options: QueryFlags, command: Command) => {
      const flags = command.optsWithGlobals<QueryFlags>()
      const { actor, operation, subject, since, status, limit } = flags
      if (!/^[1-9]\d{0,5}$/.test(limit)) throw new UsageError('--limit must be a whole number from 1 on')
      const found = []
      const query = { actor, operation, subject, status, from: since && new Date(since).toISOString() }
      for await (const entry of (await auditOf(flags)).list(query)) if (found.push(entry) >= Number(limit)) break
      await writeList(found, flags, {
        NUMBER: (one) => one.number,
        TIME: (one) => when(one.ts),
        WHO: (one) => one.actorId ?? one.actorType,
        FROM: (one) => one.address,
        OPERATION: (one) => one.operation,
        ABOUT: (one) => JSON.stringify(one.subject),
        STATUS: (one) => one.status ?? 'ok',
      })
    })
  audit
    .command('export')
    .description('print all entries as JSON lines, oldest first')
    .addHelpText('after', examples('atoll audit export > audit.jsonl'))
    .option(...orgOption)
    .action(async (_options: AuditFlags, command: Command) => {
      for await (const line of linesOf(undefined, command.optsWithGlobals<AuditFlags>())) await writeLine(line)
    })
  audit
    .command('head')
    .description('print where the audit ends, to be kept elsewhere')
    .addHelpText('after', examples('atoll audit head'))
    .option(...orgOption)
    .action(async (_options: AuditFlags, command: Command) => {
      const flags = command.optsWithGlobals<AuditFlags>()
      const head = await (await auditOf(flags)).head()
      if (flags.json) await writeJson(head)
      else await writeLine(`${head.number}:${head.hash}`)
    })
  audit
    .command('verify')
    .description('check the chain of the audit here, without trust in the server')
    .addHelpText('after', examples('atoll audit verify', 'atoll audit verify audit.jsonl --head 812:3f9a…'))
    .argument('[file]', 'an export; default: one that is read now')
    .option('--head <number:hash>', 'a head that was kept elsewhere: the chain must contain it')
    .option(...orgOption)
    .action(async (file: string | undefined, _options: AuditFlags, command: Command) => {
      const { head, ...flags } = command.optsWithGlobals<AuditFlags & { head?: string }>()
      const kept = head === undefined ? undefined : headOf(head)
      const verifier = new AuditVerifier()
      let isKeptFound = false
      for await (const line of linesOf(file, flags)) {
        if (line === '') continue
        const entry = entryOf(line, verifier.count + 1)
        verifier.take(entry)
        if (kept?.number === entry.number) isKeptFound = kept.hash === entry.hash
      }
      const faults = [...verifier.faults]
      if (kept !== undefined && !isKeptFound) faults.push(`entry ${kept.number} with the kept hash is not in the chain`)
      const { number = 0, hash = '' } = verifier.head ?? {}
      if (flags.json) await writeJson({ entries: verifier.count, head: { number, hash }, faults })
      else {
        for (const fault of faults.slice(0, shownFaultsMax)) await writeLine(fault)
        if (faults.length > shownFaultsMax) await writeLine(`… and ${faults.length - shownFaultsMax} more`)
        if (faults.length === 0) await writeLine(`${verifier.count} entries are whole; the head is ${number}:${hash}`)
        if (kept === undefined) note('only a head that was kept elsewhere (--head) shows that the end was not cut off')
      }
      if (faults.length > 0) process.exitCode = exitCodes.failed
    })
}

async function auditOf(flags: AuditFlags): Promise<Audit> {
  return flags.org === undefined ? (await clientOf(flags)).audit : await organisationAudit(flags.org, flags)
}

async function* linesOf(file: string | undefined, flags: AuditFlags): AsyncGenerator<string> {
  const input =
    file === undefined
      ? Readable.fromWeb((await (await auditOf(flags)).export()) as Parameters<typeof Readable.fromWeb>[0])
      : createReadStream(file)
  yield* createInterface({ input, crlfDelay: Infinity })
}

function entryOf(line: string, place: number): ChainedEntry {
  try {
    return JSON.parse(line) as ChainedEntry
  } catch (error) {
    throw new UsageError(`line ${place} is no entry of an audit`, { cause: error })
  }
}

function headOf(text: string): { number: number; hash: string } {
  const [, number, hash = ''] = /^(\d{1,15}):([0-9a-f]{64})$/.exec(text) ?? []
  if (number === undefined) throw new UsageError('--head must be NUMBER:HASH, as atoll audit head prints it')
  return { number: Number(number), hash }
}
