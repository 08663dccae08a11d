/** What a group may do with a disk each second, as far as the kernel charges the group. */
export interface DiskRates {
  readBytes: number
  writeBytes: number
  reads: number
  writes: number
}

/** Rates with their disk, a `major:minor`. */
export interface DiskBounds {
  device: string
  rates: DiskRates
}

/** Files of version 1, each a line `major:minor rate` for each disk with a rate (cgroup-v1/blkio-controller.rst). */
export const rateFilesInV1 = {
  readBytes: 'blkio.throttle.read_bps_device',
  writeBytes: 'blkio.throttle.write_bps_device',
  reads: 'blkio.throttle.read_iops_device',
  writes: 'blkio.throttle.write_iops_device',
} as const satisfies Record<keyof DiskRates, string>

/** Keys of a line of `io.max` in version 2 (cgroup-v2.rst). */
const keysInV2 = {
  readBytes: 'rbps',
  writeBytes: 'wbps',
  reads: 'riops',
  writes: 'wiops',
} as const satisfies Record<keyof DiskRates, string>

/** The line of a disk, without its number, in a file of either version. */
export function lineOf(text: string, device: string): string | undefined {
  const line = text.split('\n').find((other) => other.startsWith(`${device} `))
  return line?.slice(device.length + 1)
}

/** Parses such a line; `Infinity` for what has no bound. */
export function ratesOfLine(line: string | undefined): DiskRates {
  const rate = (key: string) => {
    const digits = new RegExp(String.raw`\b${key}=(\d+)`).exec(line ?? '')?.[1]
    return digits === undefined ? Infinity : Number(digits)
  }
  const { readBytes, writeBytes, reads, writes } = keysInV2
  return { readBytes: rate(readBytes), writeBytes: rate(writeBytes), reads: rate(reads), writes: rate(writes) }
}

/** What is written to `io.max`. */
export function lineInV2({ device, rates }: DiskBounds): string {
  return [device, ...rateNames.map((name) => `${keysInV2[name]}=${rates[name]}`)].join(' ')
}

export const rateNames = ['readBytes', 'writeBytes', 'reads', 'writes'] as const satisfies (keyof DiskRates)[]
