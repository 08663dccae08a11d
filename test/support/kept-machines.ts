import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { ServiceError } from '../../src/errors.ts'
import type {
  CheckpointKind,
  KnownResources,
  Quarantined,
  ReconcileReport,
  SandboxSpec,
} from '../../src/sandbox/index.ts'
import { FakeMachines } from './fake-machines.ts'

/** What a sandbox or checkpoint holds. The memory, where there is some, is named after the start that its processes stem from. */
export interface Content {
  disk: string
  memory?: string | undefined
}

interface Item {
  kind: Quarantined['kind']
  /** A start takes back what is, and is known. */
  isWhole: boolean
  putBack: () => void
}

/** Machines that outlive servers, as those of a host do: a start finds what earlier ones have left, and removes what is abandoned. */
export class KeptMachines extends FakeMachines {
  readonly contents = new Map<string, Content>()
  /** Memory that does not come back. */
  readonly refused = new Set<string>()
  /** A step in the middle of a call. What it throws, the call throws, and goes no further. */
  halfway: (step: string) => Promise<void> = async () => undefined
  readonly #quarantined = new Map<string, Item>()

  override async open(known: KnownResources): Promise<ReconcileReport> {
    const { sandboxIds, checkpointIds, volumeIds = [], abandoned } = known
    for (const id of [...abandoned.sandboxIds, ...[...this.warm].filter((warm) => !sandboxIds.includes(warm))]) {
      await this.delete(id)
    }
    for (const id of abandoned.checkpointIds) this.checkpoints.delete(id)
    for (const id of abandoned.volumeIds ?? []) this.volumes.delete(id)
    const takenBack: string[] = []
    for (const id of [...sandboxIds, ...checkpointIds]) {
      if (this.#quarantined.get(id)?.isWhole !== true || !this.takeBack(id)) continue
      takenBack.push(id)
      await this.halfway('takeBack')
    }
    const found = (state: 'running' | 'hibernated') => sandboxIds.filter((id) => this.state(id) === state)
    this.report = {
      running: found('running'),
      dormant: found('hibernated'),
      lost: sandboxIds.filter((id) => !this.machines.has(id)),
      lostCheckpoints: checkpointIds.filter((id) => !this.checkpoints.has(id)),
      lostVolumes: volumeIds.filter((id) => !this.volumes.has(id)),
      unknownVolumes: [...this.volumes.keys()].filter((id) => !volumeIds.includes(id)),
      takenBack,
    }
    for (const id of this.machines.keys()) assert.ok(sandboxIds.includes(id), `no record knows machine ${id}`)
    for (const id of this.checkpoints) assert.ok(checkpointIds.includes(id), `no record knows checkpoint ${id}`)
    return await super.open(known)
  }

  /** Moves a sandbox or a checkpoint out of force, to stay there until `mendQuarantined`. */
  moveToQuarantine({ kind, id }: Pick<Quarantined, 'kind' | 'id'>): void {
    const machine = this.machines.get(id)
    const putBack = () => (machine === undefined ? this.checkpoints.add(id) : this.machines.set(id, machine))
    assert.ok(kind === 'sandbox' ? this.machines.delete(id) : this.checkpoints.delete(id))
    this.#quarantined.set(id, { kind, isWhole: false, putBack })
  }

  mendQuarantined(): void {
    for (const item of this.#quarantined.values()) item.isWhole = true
  }

  inQuarantine(kind: Quarantined['kind']): string[] {
    return [...this.#quarantined].filter(([, item]) => item.kind === kind).map(([id]) => id)
  }

  /** Puts an item in force again, all at once. False: it is not in quarantine. */
  takeBack(id: string): boolean {
    this.#quarantined.get(id)?.putBack()
    return this.#quarantined.delete(id)
  }

  override async create(spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    await super.create(spec, signal)
    const { disk, memory } = this.contents.get(spec.from?.checkpointId ?? spec.id) ?? { disk: randomUUID() }
    this.contents.set(spec.id, { disk, memory: memory ?? randomUUID() })
  }

  override async hibernate(sandboxId: string): Promise<{ sizeBytes: number }> {
    return this.state(sandboxId) === 'hibernated' ? { sizeBytes: 7 } : await super.hibernate(sandboxId)
  }

  override async wake(spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    const content = this.#content(spec.id)
    const hasMemory = this.hasMemory(spec.id)
    if (hasMemory && this.refused.has(content.memory ?? '')) {
      throw new ServiceError('memory_not_restorable', 'the memory cannot be restored: a lease is held')
    }
    const isUp = this.state(spec.id) === 'running'
    await super.wake(spec, signal)
    if (!hasMemory && !isUp) this.contents.set(spec.id, { ...content, memory: randomUUID() })
  }

  override async restart(spec: SandboxSpec): Promise<void> {
    const { disk } = this.#content(spec.id)
    this.#lie(spec.id, { disk })
    await this.halfway('restart')
    await super.restart(spec)
    this.contents.set(spec.id, { disk, memory: randomUUID() })
  }

  override async restore(spec: SandboxSpec, checkpointId: string): Promise<void> {
    await this.hibernate(spec.id)
    await this.halfway('restore')
    const from = this.#content(checkpointId)
    this.#lie(spec.id, from)
    await this.halfway('restore')
    await super.restore(spec, checkpointId)
    this.withMemory.delete(spec.id)
    this.contents.set(spec.id, { ...from, memory: from.memory ?? randomUUID() })
  }

  override async checkpoint(sandboxId: string, checkpointId: string, kind: CheckpointKind = 'disk_only') {
    const content = this.#content(sandboxId)
    const saved = await super.checkpoint(sandboxId, checkpointId)
    this.contents.set(checkpointId, kind === 'full' ? content : { disk: content.disk })
    return saved
  }

  override async delete(sandboxId: string): Promise<void> {
    await super.delete(sandboxId)
    this.contents.delete(sandboxId)
    this.withMemory.delete(sandboxId)
  }

  assertImportable(): void {}

  async importImage(checkpointId: string) {
    this.checkpoints.add(checkpointId)
    this.contents.set(checkpointId, { disk: randomUUID() })
    return { digest: 'sha256:a', sizeBytes: 5, config: { env: {}, entrypoint: [], cmd: [] } }
  }

  /** Leaves a sandbox without processes. */
  #lie(sandboxId: string, content: Content): void {
    const machine = this.machines.get(sandboxId)
    assert.ok(machine)
    machine.state = 'hibernated'
    this.contents.set(sandboxId, content)
    if (content.memory === undefined) this.withMemory.delete(sandboxId)
    else this.withMemory.add(sandboxId)
  }

  #content(id: string): Content {
    return this.contents.get(id) ?? assert.fail(`nothing is in ${id}`)
  }
}
