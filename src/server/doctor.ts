/**
 * `npm run doctor`: what this machine offers Atoll, tried for real. Exit status 1 when the default runtime cannot work.
 * It reads the two folders from the environment by itself, since it must also help where the configuration is at fault.
 */
import { tmpdir } from 'node:os'
import { exists } from '../runtime/exists.ts'
import { checkHost, type CheckReport } from '../runtime/host-check/index.ts'

const imageDir = process.env['ATOLL_IMAGE_DIR'] || '/var/lib/atoll/images'
const dataDir = process.env['ATOLL_DATA_DIR'] || '/var/lib/atoll'

const nameWidth = 18
const stateWidth = 10

async function main(): Promise<number> {
  if (process.getuid?.() !== 0) {
    console.error('doctor: must run as root, as the server does: it starts a container and makes mounts')
    return 1
  }
  const places = { imageDir, dataDir: (await exists(dataDir)) ? dataDir : tmpdir() }
  console.log(`${'what'.padEnd(nameWidth)}${'state'.padEnd(stateWidth)}found`)
  const broken: CheckReport[] = []
  for await (const report of checkHost(places)) {
    console.log(row(report))
    if (report.required && report.state !== 'works') broken.push(report)
  }
  console.log('')
  if (broken.length === 0) {
    console.log('The default runtime (runc) works on this machine.')
    return 0
  }
  console.log(`The default runtime (runc) cannot work: ${broken.map((report) => report.name).join(', ')}.`)
  return 1
}

function row(report: CheckReport): string {
  const state = report.required || report.state === 'works' ? report.state : 'no'
  const line = `${report.name.padEnd(nameWidth)}${state.padEnd(stateWidth)}${report.found}`
  const advice =
    report.advice === undefined || report.state === 'works'
      ? ''
      : `\n${' '.repeat(nameWidth + stateWidth)}→ ${report.advice}`
  return line + advice
}

process.exitCode = await main()
