import { ServiceError } from '../../errors.ts'
import type { UsageStore } from './store.ts'
import {
  type GroupBy,
  type MeasuredMinute,
  type ModelTotals,
  noUsage,
  type SandboxUsageItem,
  type SessionUsageItem,
  type Span,
  type UsageTotals,
  type Window,
} from './usage.ts'

export interface UsageQuery {
  groupBy: GroupBy
  window: Window
  /** By key: values of which a sandbox must have one; an empty list stands for the absence of the key. */
  tags: ReadonlyMap<string, readonly string[]>
  sort: 'memoryGbSeconds' | 'diskOverageGbSeconds'
  limit: number
  cursor?: string
}

export interface TagItem extends UsageTotals {
  tagValue: string
  sandboxCount: number
}

export interface KeyItem extends UsageTotals {
  keyId: string | null
  sandboxCount: number
}

export interface UsageReport {
  /** All that match the filters, whatever the page. */
  total: UsageTotals
  items: { sandboxes?: SandboxUsageItem[]; tags?: TagItem[]; keys?: KeyItem[]; sessions?: SessionUsageItem[] }
  /** Of sandboxes without the tag. */
  untagged?: UsageTotals & { sandboxCount: number }
  nextCursor?: string
}

export interface UsagePoint {
  ts: Date
  memoryAllocatedGbSeconds: number
  memoryUsedGbSeconds: number
  uptimeSeconds: number
  allocatedMemoryMb: number
  usedMemoryMbAvg: number
  usedMemoryMbPeak: number
}

export interface SandboxReport {
  name?: string
  points: UsagePoint[]
  totals: {
    memoryAllocatedGbSeconds: number
    memoryUsedGbSeconds: number
    uptimeSeconds: number
    memoryAllocatedPeakMb: number
    memoryUsedPeakMb: number
  }
}

const minuteMs = 60_000

/** What was used, by sandbox, tag, key or session (contract-platform § 4). */
export class UsageReports {
  readonly #store: UsageStore

  constructor(store: UsageStore) {
    this.#store = store
  }

  async report(orgId: string, query: UsageQuery): Promise<UsageReport> {
    const { groupBy, window, tags } = query
    const sandboxes = await this.#store.sandboxUsage(orgId, window, tags)
    const total = sum(sandboxes)
    if (groupBy.of === 'tag') return tagReport(sandboxes, groupBy.key, query)
    if (groupBy.of === 'session') {
      const sessions = await this.#store.sessionUsage(orgId, window)
      const { items, ...page } = pageOf(
        sessions,
        query,
        ({ sessionId }) => sessionId,
        ({ modelUsd }) => modelUsd,
      )
      return { total, items: { sessions: items }, ...page }
    }
    if (groupBy.of === 'key') {
      const groups = Map.groupBy(sandboxes, ({ keyId }) => keyId ?? null)
      const keys = [...groups].map(([keyId, of]) => ({ keyId, sandboxCount: of.length, ...sum(of) }))
      const { items, ...page } = pageOf(keys, query, ({ keyId }) => keyId ?? '', valueOf(query))
      return { total, items: { keys: items }, ...page }
    }
    const { items, ...page } = pageOf(sandboxes, query, ({ sandboxId }) => sandboxId, valueOf(query))
    return { total, items: { sandboxes: items }, ...page }
  }

  /** What each organisation has used in the calendar month (UTC) of a moment. */
  async month(now = new Date()): Promise<(UsageTotals & ModelTotals & { orgId: string })[]> {
    const from = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), 1))
    return await this.#store.organisationUsage({ from, to: now })
  }

  /** One sandbox, minute by minute. Throws `not_found`. */
  async sandbox(orgId: string, sandboxId: string, window: Window): Promise<SandboxReport> {
    const known = await this.#store.sandbox(orgId, sandboxId)
    if (known === undefined) throw new ServiceError('not_found', `no sandbox ${sandboxId}`)
    const [spans, minutes] = await Promise.all([
      this.#store.spans(sandboxId, window),
      this.#store.minutes(sandboxId, window),
    ])
    const points = pointsOf(window, spans, minutes)
    const total = (of: (point: UsagePoint) => number) => points.reduce((done, point) => done + of(point), 0)
    const peak = (of: (point: UsagePoint) => number) => points.reduce((most, point) => Math.max(most, of(point)), 0)
    return {
      ...known,
      points,
      totals: {
        memoryAllocatedGbSeconds: total((point) => point.memoryAllocatedGbSeconds),
        memoryUsedGbSeconds: total((point) => point.memoryUsedGbSeconds),
        uptimeSeconds: total((point) => point.uptimeSeconds),
        memoryAllocatedPeakMb: Math.max(0, ...spans.map(({ memoryMb }) => memoryMb)),
        memoryUsedPeakMb: peak((point) => point.usedMemoryMbPeak),
      },
    }
  }
}

function tagReport(sandboxes: readonly SandboxUsageItem[], key: string, query: UsageQuery): UsageReport {
  const groups = Map.groupBy(sandboxes, ({ tags }) => (Object.hasOwn(tags, key) ? tags[key] : undefined))
  const without = groups.get(undefined) ?? []
  groups.delete(undefined)
  const values = [...groups].map(([tagValue = '', of]) => ({ tagValue, sandboxCount: of.length, ...sum(of) }))
  const { items, ...page } = pageOf(values, query, ({ tagValue }) => tagValue, valueOf(query))
  const untagged = { ...sum(without), sandboxCount: without.length }
  return { total: sum(sandboxes), items: { tags: items }, untagged, ...page }
}

/** A point for each UTC minute, clipped to the window. */
function pointsOf({ from, to }: Window, spans: readonly Span[], minutes: readonly MeasuredMinute[]): UsagePoint[] {
  const measured = new Map(minutes.map((minute) => [minute.minute.getTime(), minute]))
  const now = Date.now()
  const points: UsagePoint[] = []
  let first = 0
  for (let start = Math.floor(from.getTime() / minuteMs) * minuteMs; start < to.getTime(); start += minuteMs) {
    const [begin, end] = [Math.max(start, from.getTime()), Math.min(start + minuteMs, to.getTime())]
    while (first < spans.length && endOf(spans[first], now) <= begin) first++
    let [upMs, mbMs] = [0, 0]
    for (let index = first; index < spans.length; index++) {
      const span = spans[index]
      if (span === undefined || span.startedAt.getTime() >= end) break
      const ms = Math.max(0, Math.min(endOf(span, now), end) - Math.max(span.startedAt.getTime(), begin))
      upMs += ms
      mbMs += ms * span.memoryMb
    }
    const { memoryMbSeconds = 0, measuredSeconds = 0, memoryPeakMb = 0 } = measured.get(start) ?? {}
    const usedMb = measuredSeconds === 0 ? 0 : memoryMbSeconds / measuredSeconds
    points.push({
      ts: new Date(start),
      memoryAllocatedGbSeconds: mbMs / 1000 / 1024,
      memoryUsedGbSeconds: ((usedMb / 1024) * upMs) / 1000,
      uptimeSeconds: Math.round(upMs / 1000),
      allocatedMemoryMb: upMs === 0 ? 0 : Math.round(mbMs / upMs),
      usedMemoryMbAvg: Math.round(usedMb),
      usedMemoryMbPeak: memoryPeakMb,
    })
  }
  return points
}

function endOf(span: Span | undefined, now: number): number {
  return span?.endedAt?.getTime() ?? now
}

function valueOf({ sort }: UsageQuery): (item: UsageTotals) => number {
  return (item) => item[sort]
}

/** The greatest first, equal ones by id. */
function pageOf<Item>(
  all: readonly Item[],
  { limit, cursor }: UsageQuery,
  idOf: (item: Item) => string,
  value: (item: Item) => number,
): { items: Item[]; nextCursor?: string } {
  const order = (one: Item, other: Item) => value(other) - value(one) || (idOf(one) < idOf(other) ? -1 : 1)
  const sorted = all.toSorted(order)
  const after = cursor === undefined ? -1 : sorted.findIndex((item) => encode(idOf(item)) === cursor)
  if (cursor !== undefined && after === -1) {
    throw new ServiceError('invalid_request', 'cursor: is of no such list', { details: { field: 'cursor' } })
  }
  const items = sorted.slice(after + 1, after + 1 + limit)
  const last = items.at(-1)
  const hasMore = last !== undefined && after + 1 + limit < sorted.length
  return { items, ...(hasMore ? { nextCursor: encode(idOf(last)) } : {}) }
}

function encode(id: string): string {
  return Buffer.from(id).toString('base64url')
}

function sum(items: readonly UsageTotals[]): UsageTotals {
  const total = { ...noUsage }
  for (const item of items) for (const key of Object.keys(total) as (keyof UsageTotals)[]) total[key] += item[key]
  return total
}
