/**
 * `npm run quarantine -- list | restore <id> | remove <id> | remove --all`: handles items that a start has quarantined because no database
 * row or readable record belongs to them. `list` works at any time; the other commands need a stopped server and its environment.
 */
import { ServiceError } from '../errors.ts'
import {
  ociRuntimes,
  openOfflineQuarantine,
  quarantinedIn,
  type OfflineQuarantine,
  type QuarantineItem,
} from '../runtime/index.ts'
import { readmitCheckpoint, readmitSandbox } from '../sandbox/index.ts'
import type { Store } from '../store/index.ts'
import { readConfig, type Config } from './config.ts'
import { lockStopped, openOwnStore } from './installation.ts'
import { runProgramOfOperator } from './operator-program.ts'
import { reported } from './quarantine-report.ts'

const usage = 'usage: npm run quarantine -- list | restore <id> | remove <id> | remove --all'
const all = '--all'
const columns = ['id', 'kind', 'since', 'removed on', 'checkpoint MB', 'why']
const mebibyte = 1024 * 1024

async function main([command = 'list', id, ...rest]: readonly string[]): Promise<number> {
  const isComplete =
    (command === 'list' && id === undefined) ||
    (command === 'restore' && id !== undefined && id !== all) ||
    (command === 'remove' && id !== undefined)
  if (!isComplete || rest.length > 0) {
    console.error(usage)
    return 1
  }
  const config = readConfig(process.env)
  if (id === undefined) list(await quarantinedIn(config.dataDir), config)
  else await change(config, command, id)
  return 0
}

function list(items: readonly QuarantineItem[], { dataDir, quarantineKeptMs }: Config): void {
  if (items.length === 0) {
    console.log(`Nothing of ${dataDir} is in quarantine.`)
    return
  }
  const rows = items.map((item) => {
    const { id, kind, since, why, sizeBytes, removedAt } = reported(item, quarantineKeptMs)
    const removed = removedAt === null ? 'never' : day(removedAt)
    const size = sizeBytes === null ? '-' : String(Math.ceil(sizeBytes / mebibyte))
    return [id, kind, day(since), removed, size, why]
  })
  const widths = columns.map((name, index) =>
    Math.max(...[columns, ...rows].map((row) => row[index]?.length ?? 0), name.length),
  )
  for (const row of [columns, ...rows]) {
    console.log(
      row
        .map((cell, index) => cell.padEnd(widths[index] ?? 0))
        .join('  ')
        .trimEnd(),
    )
  }
}

async function change(config: Config, command: string, id: string): Promise<void> {
  const { dataDir, imageDir, subnet } = config
  const runtime = ociRuntimes[config.runtime]
  await using held = new AsyncDisposableStack()
  held.use(await lockStopped(dataDir))
  const quarantine = held.use(await openOfflineQuarantine({ runtime, dataDir, imageDir, subnet }))
  const chosen = quarantine.items.filter((item) => id === all || item.id === id)
  if (chosen.length === 0) throw new ServiceError('not_found', `nothing with the id ${id} is in quarantine`)
  if (command === 'remove') {
    await quarantine.remove(chosen)
    for (const item of chosen) console.log(`removed ${item.kind} ${item.id}`)
    return
  }
  // Several items can have one id: restore the newest.
  for (const item of chosen.slice(-1)) await restore(config, quarantine, item)
}

/** Insert the row first: the next start restores every quarantined item that has a row. */
async function restore(config: Config, quarantine: OfflineQuarantine, item: QuarantineItem): Promise<void> {
  const { kind, id, file, record, fault } = item
  if (record === undefined) {
    const what = `the record of ${kind} ${id} cannot be read (${fault}), so nobody knows what its disk stands on`
    throw new ServiceError('conflict', `${what}: mend it in ${file} first`)
  }
  await quarantine.assertRestorable(item)
  {
    await using store = await openOwnStore(config)
    console.log(await readmit(store, record))
  }
  await quarantine.restore(item)
}

async function readmit(store: Store, record: NonNullable<QuarantineItem['record']>): Promise<string> {
  const { id } = record
  const org = await store.organisations.defaultOrganisation()
  if ('slot' in record) {
    const status = await readmitSandbox(store.sandboxes, org.id, id)
    return `restored sandbox ${id}, which is ${status}`
  }
  const { sandboxId } = await readmitCheckpoint(store.sandboxes, org.id, record)
  return `restored checkpoint ${id}, one of sandbox ${sandboxId}`
}

function day(date: Date): string {
  return date.toISOString().slice(0, 10)
}

await runProgramOfOperator('quarantine', main)
