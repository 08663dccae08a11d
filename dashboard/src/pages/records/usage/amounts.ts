import type { UsageInfo } from 'atoll-sdk'
import { client } from '../../../account/client.ts'
import type { Day } from './days.ts'
import { tagsOf } from './search.ts'

/** What was used in a time, of sandboxes and of models. */
export interface Amounts {
  memoryGbHours: number
  diskGbHours: number
  cpuHours: number
  egressBytes: number
  ingressBytes: number
  computeUsd: number
  modelUsd: number
  inputTokens: number
  outputTokens: number
  /** False: models without a price were used, or there were more sessions than are read. */
  isCostKnown: boolean
}

export interface DayAmounts extends Amounts {
  day: Day
}

export const noAmounts: Amounts = {
  ...{ memoryGbHours: 0, diskGbHours: 0, cpuHours: 0, egressBytes: 0, ingressBytes: 0 },
  ...{ computeUsd: 0, modelUsd: 0, inputTokens: 0, outputTokens: 0, isCostKnown: true },
}

const secondsOfHour = 3600
const pageMax = 500
/** Sessions of one window that are summed: tokens and money have no total of their own in the API. */
const pagesMax = 20
const callsAtOnce = 4
/** Days that are over do not change: their amounts are kept while the page is open. */
const keptDaysMax = 500
const keptDays = new Map<string, Amounts>()

/** The amounts of each day, a few calls at a time. */
export async function amountsByDay(
  days: readonly Day[],
  tag: string | undefined,
  signal: AbortSignal,
): Promise<DayAmounts[]> {
  const found = new Map<Day, Amounts>()
  const waiting = days.values()
  const work = async () => {
    for (const day of waiting) {
      const name = `${day.from.toISOString()} ${tag ?? ''}`
      const amounts = (day.isOver ? keptDays.get(name) : undefined) ?? (await amountsOf(day, tag, signal))
      found.set(day, amounts)
      if (!day.isOver) continue
      if (keptDays.size >= keptDaysMax) keptDays.clear()
      keptDays.set(name, amounts)
    }
  }
  await Promise.all(Array.from({ length: callsAtOnce }, work))
  return days.map((day) => ({ day, ...(found.get(day) ?? noAmounts) }))
}

/** The amounts of a window. Models are of sessions, which have no tags: a filter by tag leaves them out. */
export async function amountsOf(
  { from, to }: Pick<Day, 'from' | 'to'>,
  tag: string | undefined,
  signal: AbortSignal,
): Promise<Amounts> {
  if (from >= to) return noAmounts
  const window = { from: from.toISOString(), to: to.toISOString(), signal }
  const tags = tagsOf(tag)
  if (tags !== undefined) {
    const { total } = await client.usage.get({ ...window, groupBy: 'sandbox', tags, limit: 1 })
    return { ...noAmounts, ...computeOf(total) }
  }
  let amounts = noAmounts
  let cursor: string | undefined
  for (let page = 0; page < pagesMax; page += 1) {
    const { total, items, nextCursor } = await client.usage.get({
      ...{ ...window, groupBy: 'session', limit: pageMax },
      ...(cursor === undefined ? {} : { cursor }),
    })
    amounts = { ...items.reduce(plusModels, amounts), ...computeOf(total) }
    if (nextCursor === null) return amounts
    cursor = nextCursor
  }
  return { ...amounts, isCostKnown: false }
}

export function sumOf(all: readonly Amounts[]): Amounts {
  const sum = { ...noAmounts }
  for (const amounts of all) {
    for (const name of numbers) sum[name] += amounts[name]
    sum.isCostKnown &&= amounts.isCostKnown
  }
  return sum
}

const numbers = [
  ...(['memoryGbHours', 'diskGbHours', 'cpuHours', 'egressBytes', 'ingressBytes'] as const),
  ...(['computeUsd', 'modelUsd', 'inputTokens', 'outputTokens'] as const),
]

type Item = UsageInfo['items'][number]

function plusModels(sum: Amounts, item: Item): Amounts {
  if (!('sessionId' in item)) return sum
  const { modelUsd, inputTokens, outputTokens, isCostKnown } = item
  return {
    ...sum,
    modelUsd: sum.modelUsd + modelUsd,
    inputTokens: sum.inputTokens + inputTokens,
    outputTokens: sum.outputTokens + outputTokens,
    isCostKnown: sum.isCostKnown && isCostKnown,
  }
}

/** Of sandboxes. */
export function computeOf(totals: UsageInfo['total']) {
  const { memoryGbSeconds, diskGbSeconds, cpuUsedSeconds, egressBytes, ingressBytes, computeUsd } = totals
  return {
    ...{ memoryGbHours: memoryGbSeconds / secondsOfHour, diskGbHours: diskGbSeconds / secondsOfHour },
    ...{ cpuHours: cpuUsedSeconds / secondsOfHour, egressBytes, ingressBytes, computeUsd },
  }
}
