/**
 * `npm run doctor`: tests what this machine offers. Exits with status 1 if the default runtime cannot work. `--requirements` checks only
 * what setup must know before it installs anything. It reads the environment itself, because it must work with a faulty configuration.
 */
import { checkHost, unmetRequirements, type CheckReport } from '../runtime/doctor/index.ts'
import { databaseCheck } from './database-check.ts'

/** An invalid value counts as unset. */
const [warmSandboxes = ''] = /^\d{1,4}$/.exec(process.env['ATOLL_WARM_POOL'] ?? '') ?? []
const options = {
  imageDir: process.env['ATOLL_IMAGE_DIR'] || '/var/lib/atoll/images',
  dataDir: process.env['ATOLL_DATA_DIR'] || '/var/lib/atoll',
  leaveHostFirewall: process.env['ATOLL_HOST_FIREWALL'] === 'leave',
  warmSandboxes: warmSandboxes === '' ? undefined : Number(warmSandboxes),
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
  // Remove the remains of a trial before the exit, also when the output is closed; a second signal ends at once.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, stop)
  process.stdout.on('error', stop)
  for await (const report of checkHost(options, [databaseCheck(process.env['DATABASE_URL'] || undefined)])) {
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
  // A missing optional part that cannot be fixed on this machine is shown as `no`.
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

// Exit at once: a killed program may have left a process that holds its output.
process.exit(await (process.argv.includes('--requirements') ? requirements() : table()))
