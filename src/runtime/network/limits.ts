/** What some sandboxes may send and receive each second, each way. Those of one group have it together. */
export interface NetworkLimit {
  group: string
  bytesPerSecond: number
}

/** Limits by the address of a sandbox. */
export type NetworkLimits = ReadonlyMap<string, NetworkLimit>

/** The burst of a bucket in seconds of its rate: a TCP connection needs it to reach the rate although packets above it are dropped. */
const burstSeconds = 0.25
/** Several packets of 64 KiB, as a link hands them over before they are cut. */
const burstBytesMin = 512 * 1024

export const directions = ['out', 'in'] as const

/** The maps of a table that has the limits, for `rules.ts`. */
export const limitMaps = directions
  .map((direction) => `map limits_${direction} { type ipv4_addr : limit; }`)
  .join('\n  ')

/** Drops what is above the limit of its sandbox. A sandbox that the map does not have passes. */
export function limitRule(direction: (typeof directions)[number]): string {
  return `limit name ip ${direction === 'out' ? 'saddr' : 'daddr'} map @limits_${direction} drop`
}

/** Lines of `nft -f` that add limits to a table without any. `table` is the family and the name. */
export function addedLimits(table: string, limits: NetworkLimits): string[] {
  const names = namesOf(limits)
  return directions.flatMap((direction) => [
    ...[...names.values()].map(({ name, bytesPerSecond }) => {
      const burst = Math.max(burstBytesMin, Math.round(bytesPerSecond * burstSeconds))
      return `add limit ${table} ${name}_${direction} { rate over ${bytesPerSecond} bytes/second burst ${burst} bytes }`
    }),
    ...[...limits].map(([address, { group }]) => {
      return `add element ${table} limits_${direction} { ${address} : "${names.get(group)?.name}_${direction}" }`
    }),
  ])
}

/** Lines that remove the limits of `addedLimits`. */
export function removedLimits(table: string, limits: NetworkLimits): string[] {
  return directions.flatMap((direction) => [
    `flush map ${table} limits_${direction}`,
    ...[...namesOf(limits).values()].map(({ name }) => `delete limit ${table} ${name}_${direction}`),
  ])
}

/** Numbers, in the order of the groups: a group may have any name. */
function namesOf(limits: NetworkLimits): Map<string, { name: string; bytesPerSecond: number }> {
  const rates = new Map([...limits.values()].map(({ group, bytesPerSecond }) => [group, bytesPerSecond]))
  const sorted = [...rates].toSorted(([one], [other]) => (one < other ? -1 : 1))
  return new Map(sorted.map(([group, bytesPerSecond], index) => [group, { name: `group_${index}`, bytesPerSecond }]))
}
