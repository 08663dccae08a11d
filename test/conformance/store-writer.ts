/**
 * Writes sessions' events until it is killed, and prints each sequence number after the store has acknowledged it.
 * Run by the durability test: `node store-writer.ts <data folder> <session id>`.
 */
import { writeSync } from 'node:fs'
import { openStore } from '../../src/store/index.ts'
import { messageOf } from './store-records.ts'

const [dataDir, sessionId] = process.argv.slice(2)
if (dataDir === undefined || sessionId === undefined)
  throw new Error('usage: store-writer.ts <data folder> <session id>')

const store = await openStore({ dataDir })
for (;;) {
  const message = messageOf('kept')
  const committed = await store.sessions.commit(sessionId, {
    addStream: [{ type: 'assistant', filler: 'x'.repeat(2000) }],
    addMessages: [message],
  })
  writeSync(1, `${committed?.lastSequence} ${message.id}\n`)
}
