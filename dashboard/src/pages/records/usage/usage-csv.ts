import { client } from '../../../account/client.ts'
import type { DayAmounts } from './amounts.ts'
import { tagsOf } from './search.ts'

const pageMax = 500
/** Rows of one download: 10 000. */
const pagesMax = 20

export interface Csv {
  text: string
  /** Whether there were more rows than one download has. */
  isCut: boolean
}

/** All items of a window, page by page, under the first page's line of names. */
export async function itemsCsv(query: {
  groupBy: string
  from: string
  to: string
  tag: string | undefined
}): Promise<Csv> {
  const { tag, ...window } = query
  const filters = Object.entries(tagsOf(tag) ?? {}).map(([key, values]) => [`filter[tag:${key}]`, values.join(',')])
  const parts: string[] = []
  let cursor: string | undefined
  for (let page = 0; page < pagesMax; page += 1) {
    const answer = await client.open('GET', '/api/usage', {
      query: { ...window, ...Object.fromEntries(filters), limit: pageMax, format: 'csv', cursor },
    })
    const text = await answer.text()
    parts.push(page === 0 ? text : text.slice(text.indexOf('\n') + 1))
    cursor = answer.headers.get('x-next-cursor') ?? undefined
    if (cursor === undefined) return { text: parts.join(''), isCut: false }
  }
  return { text: parts.join(''), isCut: true }
}

const columns: readonly Exclude<keyof DayAmounts, 'day'>[] = [
  ...(['memoryGbHours', 'cpuHours', 'diskGbHours', 'egressBytes', 'ingressBytes'] as const),
  ...(['inputTokens', 'outputTokens', 'computeUsd', 'modelUsd'] as const),
]

/** The days that are drawn, the oldest first. */
export function daysCsv(days: readonly DayAmounts[]): string {
  const rows = days.map((amounts) => [amounts.day.date, ...columns.map((name) => amounts[name])].join(','))
  return [['day', ...columns].join(','), ...rows, ''].join('\n')
}
