import { availableParallelism, cpus, release, totalmem } from 'node:os'
import type { Comparison, OutputFigures, Peaks, Summary } from './measure.ts'

const mib = 1024 * 1024

/** What a run prints with `--json`. Values are in milliseconds where a row has no unit; a ratio is that of the medians, below one where Atoll takes less. */
interface Report {
  machine: { kernel: string; processor: string; cores: number; memoryMb: number; node: string; date: string }
  rows: (Comparison & { ratio: number })[]
  /** Rows that this machine cannot have, and why. */
  missing: string[]
}

const missing: string[] = []

/** Records that a row is left out, and says so at once in one line. */
export function missingRow(what: string, why: string): void {
  missing.push(`${what}: ${why}`)
  console.error(`bench: no row "${what}": ${why}`)
}

/** Why a row is missing whose program is. */
export const notInstalled = (program: string) =>
  `${program} is missing; npm run bench -- --install downloads it, without installing it`

export function jsonReport(rows: readonly Comparison[]): string {
  const report: Report = {
    machine: {
      kernel: release(),
      processor: cpus()[0]?.model ?? 'unknown',
      cores: availableParallelism(),
      memoryMb: Math.round(totalmem() / mib),
      node: process.version,
      date: new Date().toISOString(),
    },
    rows: rows.map((row) => ({
      ...row,
      atoll: rounded(row.atoll),
      other: rounded(row.other),
      ratio: Number(ratioOf(row).toFixed(3)),
    })),
    missing,
  }
  return JSON.stringify(report, undefined, 2)
}

export function table(rows: readonly Comparison[]): string {
  const cells = rows.map((row) => [
    row.what,
    ...cellsOf(row.atoll, row.unit),
    row.against,
    ...cellsOf(row.other, row.unit),
    ratioOf(row).toFixed(2),
    String(row.rounds),
  ])
  const all = [['what', 'Atoll, median', 'p95', 'against', 'median', 'p95', 'ratio', 'rounds'], ...cells]
  const widths = all[0]?.map((_, column) => Math.max(...all.map((row) => row[column]?.length ?? 0))) ?? []
  const lines = all.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  )
  const notes = rows.flatMap(({ what, output }) => (output === undefined ? [] : `${what}: ${noteOf(output)}`))
  return [...lines, ...notes].join('\n')
}

function noteOf({ megabytesPerSecond, peakMib, peakMibOfEighth }: OutputFigures): string {
  const peaks = ({ server, guest, client }: Peaks) =>
    [server, guest, client].map((value) => value.toFixed(0)).join(', ')
  return (
    `${megabytesPerSecond.toFixed(0)} MB/s; peak MiB of server, guest and client: ${peaks(peakMib)}; ` +
    `for an eighth of it: ${peaks(peakMibOfEighth)}`
  )
}

function ratioOf({ atoll, other }: Comparison): number {
  return atoll.median / other.median
}

function cellsOf({ median, p95 }: Summary, unit = 'ms'): string[] {
  return [median, p95].map((value) => `${value.toFixed(2)} ${unit}`)
}

function rounded({ median, p95 }: Summary): Summary {
  return { median: Number(median.toFixed(3)), p95: Number(p95.toFixed(3)) }
}
