/**
 * `npm run doctor`: what this machine offers Atoll, tried for real. Exit status 1 when the default runtime cannot work. With
 * `--requirements` only what setup must know before it makes anything. It reads what it needs of the environment by itself,
 * since it must also help where the configuration is at fault.
 */
import { checkHost, unmetRequirements, type CheckReport } from '../runtime/doctor/index.ts'

const options = {
  imageDir: process.env['ATOLL_IMAGE_DIR'] || '/var/lib/atoll/images',
  dataDir: process.env['ATOLL_DATA_DIR'] || '/var/lib/atoll',
  leaveHostFirewall: process.env['ATOLL_HOST_FIREWALL'] === 'leave',
}

const nameWidth = 18
const stateWidth = 10

async function table(): Promise<number> {
  if (process.getuid?.() !== 0) {
    console.error('doctor: must run as root, as the server does: it starts a container and makes mounts')
    return 1
  }
  process.umask(0o022)
  console.log(`${'what'.padEnd(nameWidth)}${'state'.padEnd(stateWidth)}found`)
  const broken: CheckReport[] = []
  let isStopped = false
  const stop = () => (isStopped = true)
  // What a trial has made is removed before the end, also when nobody wants to read on; a second signal does not wait.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, stop)
  process.stdout.on('error', stop)
  for await (const report of checkHost(options)) {
    if (isStopped) return 1
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
  // What is optional and cannot be mended here is just not there.
  const state = report.required || report.state === 'works' || report.advice !== undefined ? report.state : 'no'
  const line = `${report.name.padEnd(nameWidth)}${state.padEnd(stateWidth)}${report.found}`
  const advice =
    report.advice === undefined || report.state === 'works'
      ? ''
      : `\n${' '.repeat(nameWidth + stateWidth)}→ ${report.advice}`
  return line + advice
}

async function requirements(): Promise<number> {
  const unmet = await unmetRequirements(options)
  for (const sentence of unmet) console.log(sentence)
  return unmet.length === 0 ? 0 : 1
}

// At once: a killed program of the host may have left somebody who holds its output.
process.exit(await (process.argv.includes('--requirements') ? requirements() : table()))
