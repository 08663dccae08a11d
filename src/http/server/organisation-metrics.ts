import { Gauge, Registry } from 'prom-client'
import type { ComputePrices, ModelTotals, UsageTotals } from '../../organisation/usage/index.ts'
import { usdOf } from '../../organisation/usage/index.ts'

export type OrganisationFigures = UsageTotals & ModelTotals & { orgId: string }

/** Of a series for each organisation: name, meaning, value. */
const series: readonly [
  name: string,
  help: string,
  value: (figures: OrganisationFigures, prices: ComputePrices) => number,
][] = [
  ['memory_gb_seconds', 'GiB of memory that were allowed, times seconds', ({ memoryGbSeconds }) => memoryGbSeconds],
  ['disk_gb_seconds', 'GiB of disk, times seconds in which sandboxes ran', ({ diskGbSeconds }) => diskGbSeconds],
  ['cpu_allocated_seconds', 'CPUs that were allowed, times seconds', ({ cpuAllocatedSeconds }) => cpuAllocatedSeconds],
  ['cpu_used_seconds', 'Seconds of processor time', ({ cpuUsedSeconds }) => cpuUsedSeconds],
  ['egress_bytes', 'Bytes that were sent', ({ egressBytes }) => egressBytes],
  ['ingress_bytes', 'Bytes that were received', ({ ingressBytes }) => ingressBytes],
  ['model_input_tokens', 'Tokens that models have read', ({ inputTokens }) => inputTokens],
  ['model_output_tokens', 'Tokens that models have written', ({ outputTokens }) => outputTokens],
  ['usd', 'US dollars of models and compute', usdOf],
]

/** The exposition format of Prometheus: what each organisation has used in this calendar month (UTC). */
export async function organisationMetrics(all: readonly OrganisationFigures[], prices: ComputePrices): Promise<string> {
  const registry = new Registry()
  for (const [name, help, value] of series) {
    const gauge = new Gauge({ name: `atoll_organisation_${name}`, help, labelNames: ['org'], registers: [registry] })
    for (const figures of all) gauge.set({ org: figures.orgId }, value(figures, prices))
  }
  return await registry.metrics()
}
