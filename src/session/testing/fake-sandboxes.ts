import { Readable } from 'node:stream'
import { ServiceError } from '../../errors.ts'
import type { EventBus } from '../../events/index.ts'
import { defined } from '../../lib/defined.ts'
import { newId } from '../../lib/id.ts'
import type {
  Checkpoint,
  CheckpointOwner,
  CommandDefaults,
  CreateCheckpoint,
  CreateSandbox,
  Sandbox,
  SandboxService,
  SandboxStatus,
  StartFromCheckpoint,
} from '../../sandbox/index.ts'
import { type AgentScript, answering, FakeAgent } from './fake-agent.ts'
import { FakeProcess } from './fake-process.ts'

interface KeptCheckpoint extends Pick<
  Checkpoint,
  'id' | 'orgId' | 'owner' | 'sandboxId' | 'name' | 'kind' | 'sizeBytes' | 'createdAt'
> {
  status: 'ready'
  machine: Machine
}

interface Machine {
  sandbox: Sandbox
  files: Map<string, string>
  processes: Map<string, FakeProcess>
  journal: Map<string, 'started' | 'finished'>
  ports: number[]
}

/** The part of the sandbox service that sessions use, with machines in memory and scripted agents in them. */
export class FakeSandboxes {
  readonly machines = new Map<string, Machine>()
  readonly agents: FakeAgent[] = []
  /** How often each sandbox is held awake. */
  readonly holds = new Map<string, number>()
  script: AgentScript = answering
  readonly checkpoints = new Map<string, KeptCheckpoint>()
  /** What the image of every checkpoint says. */
  commandDefaults: CommandDefaults = {}
  /** Asked before a checkpoint is taken. */
  beforeCheckpoint: (kind: string) => Promise<void> = async () => {}
  /** Processes that every checkpoint holds, alive: a start from it or a restore has them again. */
  inCheckpoint: FakeProcess[] = []
  /** Asked before one is looked at that was just taken. */
  beforeSettled: () => Promise<void> = async () => {}
  /** Asked before one is removed. */
  beforeCheckpointDelete: () => Promise<void> = async () => {}
  /** Asked before a sandbox is made: for failures and for boots that take long. */
  beforeCreate: () => Promise<void> = async () => {}
  /** Asked before a sandbox is woken. */
  beforeWake: () => Promise<void> = async () => {}
  /** Asked before an agent is attached to: for wakes that take long. */
  beforeAttach: () => Promise<void> = async () => {}
  beforeDelete: () => Promise<void> = async () => {}
  /** Asked before one is put back to a checkpoint by the session. */
  beforeRestore: () => Promise<void> = async () => {}
  /** Asked before the working directory is made: for sandboxes that are slow to take files. */
  beforeMkdir: () => Promise<void> = async () => {}
  /** Awaited before the files of a directory are listed. */
  beforeList: () => Promise<void> = async () => {}
  /** Asked before it is told which ports listen. */
  beforePorts: () => Promise<void> = async () => {}
  readonly created: (Wanted & { checkpointId?: string })[] = []
  /** Asked before a session with volumes is written down. */
  assertVolumes: () => Promise<void> = async () => {}
  readonly #bus: EventBus

  constructor(bus: EventBus) {
    this.#bus = bus
  }

  get agent(): FakeAgent {
    return this.agents.at(-1)!
  }

  machine(sandboxId: string): Machine {
    const machine = this.machines.get(sandboxId)
    if (!machine) throw new ServiceError('not_found', `no sandbox ${sandboxId}`)
    return machine
  }

  set(sandboxId: string, status: SandboxStatus, reason?: Sandbox['reason']): void {
    const machine = this.machine(sandboxId)
    machine.sandbox = { ...machine.sandbox, status, ...(reason ? { reason, reasonMessage: `it was ${reason}` } : {}) }
    if (status !== 'running') this.breakConnections(sandboxId)
    this.#bus.publish({ type: 'sandbox_changed', sandboxId, status, ...(reason ? { reason } : {}) })
  }

  breakConnections(sandboxId: string): void {
    for (const process of this.machine(sandboxId).processes.values()) process.breakAttachments()
  }

  /** Hibernates with the disk alone: the processes are gone when it wakes. */
  hibernateWithoutMemory(sandboxId: string): void {
    this.set(sandboxId, 'hibernated')
    this.machine(sandboxId).processes.clear()
  }

  /** Puts a sandbox back to a checkpoint in place, as a client may at any time. */
  restore(sandboxId: string, checkpointId: string): void {
    const machine = this.machine(sandboxId)
    machine.sandbox = { ...machine.sandbox, restores: machine.sandbox.restores + 1 }
    this.breakConnections(sandboxId)
    for (const one of machine.processes.values()) one.exit(137)
    const { files, journal } = this.checkpoints.get(checkpointId)!.machine
    const processes = new Map(this.inCheckpoint.map((one) => [one.id, one]))
    Object.assign(machine, { files: new Map(files), journal: new Map(journal), processes })
    this.set(sandboxId, 'running')
  }

  service(): SandboxService {
    const settled = async (_orgId: string, checkpointId: string) => {
      if (checkpointId === 'cp-unknown') throw new ServiceError('not_found', `no checkpoint ${checkpointId}`)
      if (this.checkpoints.has(checkpointId)) await this.beforeSettled()
      const { commandDefaults } = this
      const known = this.checkpoints.get(checkpointId) ?? { id: checkpointId, status: 'ready' }
      return { ...known, sandboxConfig: { commandDefaults } }
    }
    const running = async (sandboxId: string, wake = true): Promise<Machine> => {
      const machine = this.machine(sandboxId)
      if (machine.sandbox.status === 'hibernated' && wake) {
        await this.beforeWake()
        if (machine.sandbox.status === 'hibernated') this.set(sandboxId, 'running')
      }
      const { status } = machine.sandbox
      if (status === 'stopped') throw new ServiceError('sandbox_stopped', 'it is stopped')
      else if (status !== 'running') throw new ServiceError('conflict', 'it does not run')
      return machine
    }
    const process = (machine: Machine, id: string): FakeProcess => {
      const found = machine.processes.get(id)
      if (!found) throw new ServiceError('not_found', `no process ${id}`)
      return found
    }
    const part = {
      newId: async () => newId('sb-'),
      assertVolumes: () => this.assertVolumes(),
      create: async (orgId: string, input: CreateSandbox) => {
        await this.beforeCreate()
        this.created.push(wanted(input))
        return { sandbox: this.#make(orgId, input.id!) }
      },
      get: async (_orgId: string, sandboxId: string) => this.machine(sandboxId).sandbox,
      delete: async (_orgId: string, sandboxId: string) => {
        await this.beforeDelete()
        if (this.machine(sandboxId).sandbox.status === 'stopped') return
        for (const one of this.machine(sandboxId).processes.values()) one.exit(137)
        this.set(sandboxId, 'stopped')
      },
      checkpoints: {
        settled,
        usable: settled,
        create: async (orgId: string, sandboxId: string, input: CreateCheckpoint) => {
          const { id = newId('cp-'), owner = 'client', name, kind = 'full' } = input
          const { files, journal, ports, sandbox } = await running(sandboxId)
          await this.beforeCheckpoint(kind)
          const kept = { files: new Map(files), journal: new Map(journal), ports: kind === 'full' ? [...ports] : [] }
          const machine = { sandbox, ...kept, processes: new Map() }
          const about = { id, orgId, owner, sandboxId, name, kind, sizeBytes: 1000, createdAt: new Date() }
          const checkpoint = { ...about, status: 'ready', machine } as const
          this.checkpoints.set(id, checkpoint)
          return checkpoint
        },
        list: async (_orgId: string, sandboxId: string) =>
          [...this.checkpoints.values()].filter((checkpoint) => checkpoint.sandboxId === sandboxId),
        listOwnedBy: async (of: CheckpointOwner) => [...this.checkpoints.values()].filter(({ owner }) => owner === of),
        delete: async (_orgId: string, _sandboxId: string, checkpointId: string) => {
          await this.beforeCheckpointDelete()
          if (!this.checkpoints.delete(checkpointId)) throw new ServiceError('not_found', `no ${checkpointId}`)
        },
        deleteOwned: async (_orgId: string, checkpointId: string) => {
          await this.beforeCheckpointDelete()
          if (!this.checkpoints.delete(checkpointId)) throw new ServiceError('not_found', `no ${checkpointId}`)
        },
        restoreFrom: async (_orgId: string, sandboxId: string, checkpointId: string) => {
          await this.beforeRestore()
          if (!this.checkpoints.has(checkpointId)) throw new ServiceError('not_found', `no ${checkpointId}`)
          this.restore(sandboxId, checkpointId)
        },
        start: async (orgId: string, checkpointId: string, input: CreateSandbox) => {
          await this.beforeCreate()
          this.created.push({ ...wanted(input), checkpointId })
          const sandbox = this.#make(orgId, input.id!)
          const { files, journal, ports = [] } = this.checkpoints.get(checkpointId)?.machine ?? {}
          const kept = { files: new Map(files), journal: new Map(journal), ports: [...ports] }
          Object.assign(this.machine(sandbox.id), kept)
          for (const one of this.inCheckpoint) this.machine(sandbox.id).processes.set(one.id, one)
          return { sandbox }
        },
      },
      previews: {
        hostname: (sandboxId: string, port: number) => `${sandboxId}-p${port}.preview.test`,
        keepAlive: (sandboxId: string) => {
          const count = (step: number) => this.holds.set(sandboxId, (this.holds.get(sandboxId) ?? 0) + step)
          count(1)
          return () => void count(-1)
        },
      },
      hibernate: async (_orgId: string, sandboxId: string) => this.set(sandboxId, 'hibernated'),
      inspection: {
        processes: async (_orgId: string, sandboxId: string) =>
          [...(await running(sandboxId)).processes.values()].map(({ info }) => ({ command: info.argv.join(' ') })),
      },
      trees: {
        readFolder: async (_orgId: string, disk: { checkpointId: string }, folder: string) =>
          [...(this.checkpoints.get(disk.checkpointId)?.machine.files ?? [])]
            .filter(([name]) => name.startsWith(`${folder}/`) && !name.endsWith('/'))
            .map(([name, text]) => ({ path: name.slice(folder.length + 1), mode: 0o600, content: Buffer.from(text) })),
        compareDisks: async () => ({ files: [], addedLines: 0, removedLines: 0, isCut: false }),
      },
      files: {
        remove: async (_orgId: string, sandboxId: string, path: string) => {
          const { files } = await running(sandboxId)
          for (const name of files.keys()) if (name === path || name.startsWith(`${path}/`)) files.delete(name)
        },
        move: async (_orgId: string, sandboxId: string, from: string, to: string) => {
          const { files } = await running(sandboxId)
          for (const [name, text] of files) {
            if (!name.startsWith(`${from}/`)) continue
            files.delete(name)
            files.set(`${to}${name.slice(from.length)}`, text)
          }
        },
        mkdir: async (_orgId: string, sandboxId: string, path: string) => {
          await this.beforeMkdir()
          const { files } = await running(sandboxId)
          files.set(`${path}/`, '')
        },
        write: async (_orgId: string, sandboxId: string, path: string, body: Readable) => {
          const chunks = await body.toArray()
          const { files } = await running(sandboxId)
          files.set(path, Buffer.concat(chunks as Buffer[]).toString())
        },
        list: async (_orgId: string, sandboxId: string, path: string) => {
          await this.beforeList()
          return [...(await running(sandboxId)).files]
            .filter(([name]) => name.startsWith(`${path}/`) && !name.endsWith('/'))
            .map(([name, text]) => ({ name: name.slice(path.length + 1), isDir: false, size: text.length }))
        },
        read: async (_orgId: string, sandboxId: string, path: string) => ({
          body: Readable.from([Buffer.from((await running(sandboxId)).files.get(path) ?? '')]),
        }),
      },
      exec: {
        start: async (
          _orgId: string,
          sandboxId: string,
          input: { id?: string; cmd: string; args?: string[]; envs?: Record<string, string> },
        ) => {
          const machine = await running(sandboxId)
          const started = new FakeProcess(input.id!, [input.cmd, ...(input.args ?? [])], input.envs ?? {})
          machine.processes.set(started.id, started)
          this.agents.push(new FakeAgent(started, machine.journal, this.script))
          return started.info
        },
        attach: async (_orgId: string, sandboxId: string, id: string, options: { offset?: number; wake?: boolean }) => {
          await this.beforeAttach()
          return process(await running(sandboxId, options.wake), id).attach(options)
        },
        list: async (_orgId: string, sandboxId: string) =>
          [...(await running(sandboxId)).processes.values()].map(({ info }) => info),
        kill: async (_orgId: string, sandboxId: string, id: string, signal = 9) => {
          process(await running(sandboxId), id).signal(signal)
        },
        ports: async (_orgId: string, sandboxId: string) => {
          await this.beforePorts()
          return this.machine(sandboxId).ports
        },
      },
    }
    return part as unknown as SandboxService
  }

  #make(orgId: string, id: string): Sandbox {
    const existing = this.machines.get(id)
    if (existing && existing.sandbox.status !== 'error') throw new ServiceError('conflict', `${id} is taken`)
    const sandbox = { id, orgId, status: 'running', volumes: [], restores: 0 } as unknown as Sandbox
    this.machines.set(id, { sandbox, files: new Map(), processes: new Map(), journal: new Map(), ports: [] })
    this.#bus.publish({ type: 'sandbox_changed', sandboxId: id, status: 'running' })
    return sandbox
  }
}

type Wanted = Pick<StartFromCheckpoint, 'id' | 'envs' | 'volumes' | 'secretStore' | 'egress' | 'handover'>

function wanted({ id, envs, volumes, secretStore, egress, handover }: StartFromCheckpoint): Wanted {
  return defined({ id, envs, volumes, secretStore, egress, handover })
}
