import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../errors.ts'
import type { Log } from '../../lib/log.ts'
import type { Organisations } from '../organisations.ts'
import type { UsageStore } from './store.ts'
import type { ModelTotals, UsageTotals } from './usage.ts'

/** USD of what sandboxes use; what has no price costs nothing. */
export interface ComputePrices {
  memoryGbHour: number
  cpuHour: number
  diskGbHour: number
  egressGb: number
}

export const noPrices: ComputePrices = { memoryGbHour: 0, cpuHour: 0, diskGbHour: 0, egressGb: 0 }

const checkMs = 60_000
const hour = 3600
const gib = 1024 ** 3
const warningShare = 0.8

/** USD of the compute of these amounts: of what is allowed for memory, CPU and disk, of what is sent for the network. */
export function computeUsd(usage: UsageTotals, prices: ComputePrices): number {
  return (
    (usage.memoryGbSeconds / hour) * prices.memoryGbHour +
    (usage.cpuAllocatedSeconds / hour) * prices.cpuHour +
    (usage.diskGbSeconds / hour) * prices.diskGbHour +
    (usage.egressBytes / gib) * prices.egressGb
  )
}

interface BudgetsDeps {
  store: Pick<UsageStore, 'organisationUsage' | 'tellBudget'>
  organisations: Pick<Organisations, 'list' | 'limitsOf' | 'subscribe'>
  prices: ComputePrices
  /** Hibernates what runs of an organisation, with its memory. */
  pause: (orgId: string) => Promise<unknown>
  /** Lets its sessions go on. */
  resume: (orgId: string) => unknown
  log: Log
}

/**
 * The budgets of organisations for a calendar month (UTC). At 80 % it is told once; at 100 % it is told, what runs hibernates and nothing starts
 * until the month ends or the operator raises the limit.
 *
 *     within ── 80 % ──► warned ── 100 % ──► exceeded ── next month, higher limit ──► within
 */
export class Budgets {
  readonly #deps: BudgetsDeps
  readonly #ended = new AbortController()
  readonly #exceeded = new Set<string>()
  #running: Promise<void> | undefined
  #unsubscribe: (() => void) | undefined

  constructor(deps: BudgetsDeps) {
    this.#deps = deps
  }

  open(): void {
    this.#unsubscribe = this.#deps.organisations.subscribe(({ type }) => {
      if (type === 'limits_changed') void this.check().catch((error: unknown) => this.#failed(error))
    })
    this.#running ??= this.#watch()
  }

  async close(): Promise<void> {
    this.#ended.abort()
    this.#unsubscribe?.()
    await this.#running
  }

  /** Throws `quota_exceeded` when the budget of the month is used up. */
  assertWithin(orgId: string): void {
    if (!this.#exceeded.has(orgId)) return
    const limit = this.#deps.organisations.limitsOf(orgId).budgetUsdPerMonth
    throw new ServiceError('quota_exceeded', 'the budget of the organisation for this month is used up', {
      details: { limit: 'budgetUsdPerMonth', budgetUsd: limit },
    })
  }

  /** Looks at all organisations with a budget. */
  async check(now = new Date()): Promise<void> {
    const { organisations, store, prices, pause, log } = this.#deps
    const budgets = new Map<string, number>()
    for (const { id } of organisations.list()) {
      const budget = organisations.limitsOf(id).budgetUsdPerMonth
      if (budget !== null) budgets.set(id, budget)
    }
    for (const orgId of this.#exceeded) if (!budgets.has(orgId)) this.#end(orgId)
    if (budgets.size === 0) return
    const month = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), 1))
    const used = await store.organisationUsage({ from: month, to: now }, [...budgets.keys()])
    for (const usage of used) {
      const { orgId } = usage
      const budgetUsd = budgets.get(orgId) ?? 0
      const usedUsd = usdOf(usage, prices)
      if (usedUsd < budgetUsd) this.#end(orgId)
      if (usedUsd >= budgetUsd * warningShare) await store.tellBudget(orgId, month, 80, { usedUsd, budgetUsd })
      if (usedUsd < budgetUsd) continue
      this.#exceeded.add(orgId)
      await store.tellBudget(orgId, month, 100, { usedUsd, budgetUsd })
      await pause(orgId).catch((error: unknown) =>
        log.warn({ err: error, orgId }, 'an organisation could not be paused'),
      )
    }
  }

  #end(orgId: string): void {
    if (this.#exceeded.delete(orgId)) this.#deps.resume(orgId)
  }

  async #watch(): Promise<void> {
    const { signal } = this.#ended
    while (!signal.aborted) {
      await this.check().catch((error: unknown) => this.#failed(error))
      await sleep(checkMs, undefined, { signal, ref: false }).catch(() => undefined)
    }
  }

  #failed(error: unknown): void {
    if (!this.#ended.signal.aborted) this.#deps.log.warn({ err: error }, 'budgets could not be checked')
  }
}

/** Of models and of compute. */
export function usdOf(usage: UsageTotals & Pick<ModelTotals, 'modelUsd'>, prices: ComputePrices): number {
  return usage.modelUsd + computeUsd(usage, prices)
}
