import type { EgressInfo, EgressRule } from 'atoll-sdk'

export type ShownRule = Omit<EgressInfo['layers'][number]['allow'][number], 'id'>

/** A rule as a person writes it: `*.example.com:443`, or JSON where it has more than a host and one range of ports. */
export function textOfRule({ host, cidr, ports, methods, paths, inspect }: ShownRule): string {
  const destination = host ?? cidr ?? ''
  const isPlain = methods === undefined && paths === undefined && inspect !== true
  const ranges = (ports ?? []).map(([from, to]) => (from === to ? String(from) : `${from}-${to}`))
  const [range] = ranges
  if (isPlain && ranges.length < 2) return range === undefined ? destination : `${destination}:${range}`
  const named = host === undefined ? { cidr } : { host }
  return JSON.stringify({ ...named, ...(ports === undefined ? {} : { ports: ranges }), methods, paths, inspect })
}

/** One rule a line, as `textOfRule` writes them. Throws an `Error` that names the line that is no JSON. */
export function rulesOf(text: string): EgressRule[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '')
    .map((line) => {
      if (!line.startsWith('{')) return line
      try {
        return JSON.parse(line) as EgressRule
      } catch (error) {
        throw new Error(`This line is no JSON: ${line}`, { cause: error })
      }
    })
}
