/** Opens a store, asks it something and ends without closing it. Run by a test: `node store-opener.ts <data folder> <image folder>`. */
import { writeSync } from 'node:fs'
import { openStore } from '../../src/store/index.ts'

const [dataDir, imageDir] = process.argv.slice(2)
if (dataDir === undefined || imageDir === undefined)
  throw new Error('usage: store-opener.ts <data folder> <image folder>')

const store = await openStore({ dataDir, imageDir })
writeSync(1, 'opened\n')
void store.ping().then(() => writeSync(1, 'answered\n'))
