import { defined } from '../lib/defined.ts'
import { CommandError, messageOf, run } from './command.ts'

/** Checks one thing that Atoll needs, or can use, of this machine. */
export interface HostCheck {
  name: string
  /** Without it the default runtime cannot work. */
  required: boolean
  /** Makes a real attempt and leaves nothing behind. A throw counts as `fails`, with its message. */
  run(options: DoctorOptions): Promise<CheckResult>
}

export interface CheckResult {
  state: 'works' | 'missing' | 'fails'
  /** A version, a path, a reason. */
  found: string
  /** What to do when it does not work. */
  advice?: string
}

/** A row of the table. */
export interface CheckReport extends CheckResult {
  name: string
  required: boolean
}

export interface DoctorOptions {
  /** `ATOLL_IMAGE_DIR` */
  imageDir: string
  /** `ATOLL_DATA_DIR`; need not exist. */
  dataDir: string
  /** `ATOLL_HOST_FIREWALL` is `leave`. */
  leaveHostFirewall?: boolean
  /** `ATOLL_WARM_POOL`; absent for its default. */
  warmSandboxes?: number | undefined
}

export const runSetup = 'npm run setup'

export function works(found: string): CheckResult {
  return { state: 'works', found }
}

export function fails(found: string, advice?: string): CheckResult {
  return { state: 'fails', found, ...defined({ advice }) }
}

export function missing(found: string, advice?: string): CheckResult {
  return { ...fails(found, advice), state: 'missing' }
}

/** Never throws: the error of a check is its result. */
export async function resultOf(check: HostCheck, options: DoctorOptions): Promise<CheckResult> {
  try {
    return await check.run(options)
  } catch (error) {
    return fails(oneLine(error))
  }
}

/** Output of a program that prints its version, undefined when it does not run. */
export function versionText(...argv: [string, ...string[]]): Promise<string | undefined> {
  return run(argv).catch(() => undefined)
}

/** The last line of a program's stderr, else the message, as one line of a table. */
export function oneLine(error: unknown): string {
  if (error instanceof CommandError && error.stderr.trim() !== '') {
    return `${error.argv[0]}: ${error.stderr.trim().split('\n').at(-1)}`
  }
  return messageOf(error).replaceAll(/\s+/g, ' ')
}
