import { CommandError } from '../command.ts'

/** One thing that Atoll needs, or can use, of this machine. */
export interface HostCheck {
  name: string
  /** Without it the default runtime cannot work. */
  required: boolean
  /** Tries it for real and leaves nothing behind. A throw counts as `fails`, with its message. */
  run(places: HostPlaces): Promise<CheckResult>
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

export interface HostPlaces {
  /** `ATOLL_IMAGE_DIR` */
  imageDir: string
  /** `ATOLL_DATA_DIR`; need not exist. */
  dataDir: string
  /** `ATOLL_HOST_FIREWALL` is `leave`. */
  leaveHostFirewall?: boolean
}

export const runSetup = 'npm run setup'

/** What a program said last, else the message, as one line of a table. */
export function oneLine(error: unknown): string {
  if (error instanceof CommandError && error.stderr.trim() !== '') {
    return `${error.argv[0]}: ${error.stderr.trim().split('\n').at(-1)}`
  }
  return String(error instanceof Error ? error.message : error).replaceAll(/\s+/g, ' ')
}
