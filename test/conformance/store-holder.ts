/** Opens a database and keeps it until it is killed. Run by the tests of a server: `node store-holder.ts <database URL>`. */
import { writeSync } from 'node:fs'
import { openStore } from '../../src/store/index.ts'

const [databaseUrl] = process.argv.slice(2)
if (databaseUrl === undefined) throw new Error('usage: store-holder.ts <database URL>')

await openStore({ databaseUrl })
writeSync(1, 'held\n')
