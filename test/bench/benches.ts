import { AtollServer } from '../e2e/server.ts'
import { alternativesBench } from './alternatives.ts'
import { buildsBench } from './builds.ts'
import { burstBench } from './burst.ts'
import { checkpointBench } from './checkpoint.ts'
import { cliStartBench } from './cli-start.ts'
import { egressBench } from './egress.ts'
import { growthBench } from './growth.ts'
import { crowdBench } from './crowd.ts'
import { httpBench } from './http.ts'
import { imagesBench } from './images.ts'
import { loadBench } from './load.ts'
import type { Comparison } from './measure.ts'
import { memoryBench } from './memory.ts'
import { type BenchName, optionsOf } from './options.ts'
import { outputBench } from './output.ts'
import { jsonReport, table } from './report.ts'
import { sizesBench } from './sizes.ts'
import { startBench } from './start.ts'
import { streamBench } from './stream.ts'
import { tenantsBench } from './tenants.ts'
import { timeTravelBench } from './time-travel.ts'
import { webhooksBench } from './webhooks.ts'

/** Started by `main.ts`. Only ratios of one run mean something. */
const benches: Record<BenchName, (server: ServerStart) => Promise<Comparison[]>> = {
  start: shared(startBench),
  burst: shared(burstBench),
  http: shared(httpBench),
  checkpoint: shared(checkpointBench),
  images: imagesBench,
  builds: buildsBench,
  memory: shared(memoryBench),
  stream: shared(streamBench),
  output: shared(outputBench),
  load: shared(loadBench),
  cli: cliStartBench,
  alternatives: shared(alternativesBench),
  growth: growthBench,
  sizes: sizesBench,
  tenants: tenantsBench,
  webhooks: webhooksBench,
  crowd: crowdBench,
  egress: egressBench,
  'time-travel': shared(timeTravelBench),
}

/** Starts the server on the default paths, once for all benches. */
type ServerStart = () => Promise<AtollServer>

function shared(bench: (server: AtollServer) => Promise<Comparison[]>) {
  return async (start: ServerStart) => await bench(await start())
}

const options = optionsOf(process.argv.slice(2))
await using stack = new AsyncDisposableStack()
let server: Promise<AtollServer> | undefined
// Without a limit of requests: the bench is one client that asks as fast as it can.
const start: ServerStart = async () => {
  server ??= AtollServer.start({
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
  }).then((started) => stack.use(started))
  return await server
}
const rows: Comparison[] = []
for (const name of options.benches) rows.push(...(await benches[name](start)))
console.log(options.json ? jsonReport(rows) : `\n${table(rows)}\n`)
