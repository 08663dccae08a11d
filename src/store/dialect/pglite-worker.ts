/** The worker thread of the embedded database. It answers the requests of {@link PgliteThread} one after another. */
import { parentPort, workerData } from 'node:worker_threads'
import { PGlite, types, type Results, type Transaction } from '@electric-sql/pglite'
import { maintain } from './pglite-maintenance.ts'
import { fieldsOf, type PgliteAnswer, type PgliteRequest, type PgliteWorkerData } from './pglite-thread.ts'

/** PGlite's exit status for the normal end of a statement (`POSTGRES_MAIN_LONGJMP` in its sources). */
const longjmpStatus = 100

const port = parentPort
if (port === null) throw new Error('this is the entry of a worker thread')
const { folder, maintenance } = workerData as PgliteWorkerData

const pglite = await PGlite.create(folder, { parsers: { [types.INT8]: Number } })
exitOnPanic()
const stopMaintenance = maintain(pglite, maintenance)
/** The open transaction. Maintenance waits for its end. */
let open: { transaction: Transaction; ending: PromiseWithResolvers<void>; ended: Promise<void> } | undefined
/** Thrown inside a transaction to make PGlite roll back. */
const rolledBack = new Error('rolled back')

port.on('message', (request: PgliteRequest) => void serve(request))
send({ kind: 'ready' })

async function serve(request: PgliteRequest): Promise<void> {
  const { id } = request
  try {
    const { rows = [], affectedRows = 0 } = (await run(request)) ?? {}
    send({ kind: 'rows', id, rows, affectedRows })
  } catch (error) {
    send({ kind: 'failed', id, error: fieldsOf(error) })
  }
}

async function run(request: PgliteRequest): Promise<Results | undefined> {
  switch (request.kind) {
    case 'query':
      return await (open?.transaction ?? pglite).query(request.sql, [...request.parameters])
    case 'begin':
      return await begin()
    case 'commit':
    case 'rollback':
      return await end(request.kind)
    case 'close':
      await stopMaintenance()
      await pglite.close()
      return undefined
  }
}

async function begin(): Promise<undefined> {
  const begun = Promise.withResolvers<Transaction>()
  const ending = Promise.withResolvers<void>()
  const ended = pglite.transaction(async (transaction) => {
    begun.resolve(transaction)
    await ending.promise
  })
  ended.catch(begun.reject)
  open = { transaction: await begun.promise, ending, ended }
}

async function end(how: 'commit' | 'rollback'): Promise<undefined> {
  if (open === undefined) throw new Error('no transaction is open')
  const { ending, ended } = open
  open = undefined
  if (how === 'commit') ending.resolve()
  else ending.reject(rolledBack)
  await ended.catch((error: unknown) => {
    if (error !== rolledBack) throw error
  })
}

/**
 * Ends this thread after a panic or trap of PostgreSQL: PGlite would continue with the remains, which hang or loop for ever. PGlite
 * calls both wrapped functions for each message of PostgreSQL's protocol.
 */
function exitOnPanic(): void {
  const postgres = pglite.Module
  const { _PostgresMainLoopOnce: runMessage } = postgres
  let fault: unknown
  // oxlint-disable-next-line no-underscore-dangle -- PGlite's own name
  postgres._PostgresMainLoopOnce = () => {
    if (fault !== undefined) exitWith(fault)
    try {
      runMessage()
    } catch (error) {
      if ((error as { status?: unknown }).status !== longjmpStatus) fault = error
      throw error
    }
  }
  const execute = pglite.execProtocolStream.bind(pglite)
  pglite.execProtocolStream = async (...message) => {
    try {
      const results = await execute(...message)
      if (fault === undefined) return results
    } catch (error) {
      if (fault === undefined) throw error
      // PostgreSQL's own message before the panic.
      fault = error
    }
    return exitWith(fault)
  }
}

function exitWith(fault: unknown): never {
  send({ kind: 'broken', why: fault instanceof Error ? fault.message : String(fault) })
  process.exit(1)
}

function send(answer: PgliteAnswer): void {
  port?.postMessage(answer)
}
