import type { Alignment, Difference, SandboxSpec, SandboxVolume } from '../../sandbox/ports/runtime-driver.ts'
import { defined } from '../../lib/defined.ts'
import { messageOf } from '../command.ts'
import type { HeldEgress } from '../egress/index.ts'
import type { ProcessIdentity } from '../process.ts'
import { readNow } from '../read-now.ts'
import type { Limits } from './limits.ts'
import type { Machine } from './machine.ts'
import type { RunningSandboxes } from './running.ts'
import type { SandboxRecord } from './records.ts'
import { mountedVolumes } from './volumes.ts'

interface AlignHost extends Pick<Machine, 'inventory' | 'network' | 'egress'> {
  running: RunningSandboxes
  limits: Limits
}

/**
 * See `RuntimeDriver.align`. Reads what a sandbox has from the kernel: its control groups, the quota of its disk, its tables of mounts and
 * addresses. Does not check what cannot change in a running sandbox, such as its host name, which nothing inside may set.
 */
export async function alignSandbox(
  { inventory, running, limits, network, egress }: AlignHost,
  spec: SandboxSpec,
): Promise<Alignment> {
  const record = inventory.sandbox(spec.id)
  const process = running.runs.get(spec.id)
  if (process === undefined || !running.isUp(spec.id)) return { differences: [] }
  const { differences, memoryMb } = await limits.align(record, spec)
  differences.push(...(await alignNetwork({ network, egress }, record, process)))
  differences.push(...(await alignEgress(egress, record)), ...wrongVolumes(process, spec.volumes ?? []))
  return { differences, ...defined({ keptMemoryMb: memoryMb === spec.memoryMb ? undefined : memoryMb }) }
}

/** Aligns the link and the address; `attach` makes what is missing. */
async function alignNetwork(
  { network, egress }: Pick<AlignHost, 'network' | 'egress'>,
  record: SandboxRecord,
  process: ProcessIdentity,
): Promise<Difference[]> {
  const { slot } = record
  const wanted = network.address(slot)
  const had = network.traffic(slot) === undefined ? 'no link' : addressesOf(process)
  if (had === undefined || had === wanted) return []
  await egress.attach(record, process)
  return [{ what: 'network', had: had || 'no address', wanted, isMended: addressesOf(process) === wanted }]
}

/** Puts in force what the sandbox may reach now. What cannot be is told: what held before goes on, or the stricter of the two. */
async function alignEgress(egress: HeldEgress, { id }: SandboxRecord): Promise<Difference[]> {
  const had = egress.stateOf(id)
  const failure = await egress.refresh(id).then(() => undefined, messageOf)
  const wanted = egress.stateOf(id)
  if (failure !== undefined) return [{ what: 'network', had, wanted: `its egress: ${failure}`, isMended: false }]
  return had === wanted ? [] : [{ what: 'network', had, wanted, isMended: true }]
}

/** The addresses in the network namespace of a process, without those of the loopback. Undefined where the kernel does not tell. */
function addressesOf({ pid }: ProcessIdentity): string | undefined {
  const table = readNow(`/proc/${pid}/net/fib_trie`)
  if (table === undefined) return undefined
  const found = [...table.matchAll(/\|-- (\S+)\n\s+\/32 host LOCAL/g)].map(([, address = '']) => address)
  return [...new Set(found)].filter((address) => !address.startsWith('127.')).join(', ')
}

/** A mount of a running sandbox is not changed from outside: the difference is told. */
function wrongVolumes(process: ProcessIdentity, volumes: readonly SandboxVolume[]): Difference[] {
  const words = (all: readonly SandboxVolume[]) =>
    all
      .map(({ id, path, readOnly }) => `${id} at ${path}${readOnly ? ' (read-only)' : ''}`)
      .toSorted()
      .join(', ')
  const [had, wanted] = [words(mountedVolumes(process)), words(volumes)]
  return had === wanted ? [] : [{ what: 'volumes', had: had || 'none', wanted: wanted || 'none', isMended: false }]
}
