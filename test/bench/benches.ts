import { AtollServer } from '../e2e/server.ts'
import { burstBench } from './burst.ts'
import { checkpointBench } from './checkpoint.ts'
import { httpBench } from './http.ts'
import { loadBench } from './load.ts'
import type { Comparison } from './measure.ts'
import { type BenchName, optionsOf } from './options.ts'
import { jsonReport, table } from './report.ts'
import { startBench } from './start.ts'
import { streamBench } from './stream.ts'

/** Started by `main.ts`. Only ratios of one run mean something. */
const benches: Record<BenchName, (server: AtollServer) => Promise<Comparison[]>> = {
  start: startBench,
  burst: burstBench,
  http: httpBench,
  checkpoint: checkpointBench,
  stream: streamBench,
  load: loadBench,
}

const options = optionsOf(process.argv.slice(2))
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
for (const name of options.benches) rows.push(...(await benches[name](server)))
console.log(options.json ? jsonReport(rows) : `\n${table(rows)}\n`)
