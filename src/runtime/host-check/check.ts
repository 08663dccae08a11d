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

export interface HostPlaces {
  /** `ATOLL_IMAGE_DIR` */
  imageDir: string
  /** A folder for the disk pool of the test, on the file system where the real one will lie. */
  dataDir: string
}

export const runSetup = 'npm run setup'
