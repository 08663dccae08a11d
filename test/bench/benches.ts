import { AtollServer } from '../e2e/server.ts'
import { burstBench } from './burst.ts'
import { checkpointBench } from './checkpoint.ts'
import { httpBench } from './http.ts'
import { loadBench } from './load.ts'
import { type Comparison, table } from './measure.ts'
import { startBench } from './start.ts'
import { streamBench } from './stream.ts'

/** Started by `main.ts`. `npm run bench` runs all, `npm run bench -- start` some. Only ratios of one run mean something. */
const benches: Record<string, (server: AtollServer) => Promise<Comparison[]>> = {
  start: startBench,
  burst: burstBench,
  http: httpBench,
  checkpoint: checkpointBench,
  stream: streamBench,
  load: loadBench,
}

const names = process.argv.slice(2)
const unknown = names.filter((name) => !(name in benches))
if (unknown.length > 0) {
  console.error(`bench: unknown ${unknown.join(', ')}; known are ${Object.keys(benches).join(', ')}`)
  process.exit(2)
}
// Without a limit of requests: the bench is one client that asks as fast as it can.
await using server = await AtollServer.start({
  dataDir: '/var/lib/atoll',
  keepsData: true,
  env: {
    ATOLL_DATA_DIR: '',
    ATOLL_IMAGE_DIR: '',
    ATOLL_DISK_POOL_MB: '',
    ATOLL_WARM_POOL: '',
    ATOLL_LOG_LEVEL: 'warn',
    ATOLL_REQUESTS_PER_SECOND: '1000000',
  },
})
const rows: Comparison[] = []
for (const [name, bench] of Object.entries(benches)) {
  if (names.length === 0 || names.includes(name)) rows.push(...(await bench(server)))
}
console.log(`\n${table(rows)}\n`)
