import { type Duplex, Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../src/errors.ts'
import { defined } from '../../src/lib/defined.ts'
import type {
  Alignment,
  Difference,
  Guest,
  ProcessInfo,
  RuntimeDriver,
  SandboxExit,
  SandboxSpec,
} from '../../src/sandbox/index.ts'
import { TestDriver } from './test-driver.ts'

export type Step = 'create' | 'wake' | 'hibernate' | 'checkpoint' | 'restart' | 'restore' | 'processes'
type MachineState = 'running' | 'hibernated'

/** Longer than any test: what waits for it waits for something else. */
const hangMs = 24 * 3600 * 1000

/** A driver in memory. Tests read what the service asked for and choose what happens next. */
export class FakeMachines extends TestDriver implements RuntimeDriver {
  readonly name = 'fake'
  readonly machines = new Map<string, { state: MachineState; spec: SandboxSpec }>()
  /** Those of them that wait for an owner. */
  readonly warm = new Set<string>()
  /** Hibernated ones whose memory is saved. */
  readonly withMemory = new Set<string>()
  /** Scripts that patches ran, in order, as `<sandbox id>: <script>`. */
  readonly scripts: string[] = []
  /** Scripts like those that run right now. */
  readonly running = new Set<string>()
  /** What every process has written to its standard output. */
  stdout = ''
  /** How often an output of a process was sent. */
  outputsSent = 0
  /** How large each checkpoint is. */
  checkpointBytes = 11
  /** Processes that a client seems to run. */
  clientProcesses: ProcessInfo[] = []
  /** Runs in the middle of the named call; what it throws, the call throws. */
  before: Partial<Record<Step, (signal?: AbortSignal) => Promise<void>>> & {
    delete?: (sandboxId: string) => Promise<void>
    deleteCheckpoint?: () => Promise<void>
  } = {}
  readonly #spawned = new Set<string>()
  /** Each hibernation saves another memory. */
  readonly #savedMemory = new Map<string, symbol>()
  readonly #keptMemory = new Map<string, symbol | undefined>()

  async close(): Promise<void> {}

  isRunning(sandboxId: string): boolean {
    return this.state(sandboxId) === 'running'
  }

  async prepare(spec: SandboxSpec): Promise<void> {
    await this.create(spec)
    this.warm.add(spec.id)
  }

  async isPrepared(spec: SandboxSpec): Promise<boolean> {
    return this.warm.has(spec.id)
  }

  async create(spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    await this.before.create?.(signal)
    if (spec.image === 'nope') {
      throw new ServiceError('not_found', 'there is no image "nope"', { details: { field: 'templateID' } })
    }
    this.machines.set(spec.id, { state: 'running', spec })
    this.warm.delete(spec.id)
  }

  async hibernate(sandboxId: string): Promise<{ sizeBytes: number }> {
    await this.before.hibernate?.()
    this.stepMounts.assertNone(sandboxId)
    this.#machine(sandboxId).state = 'hibernated'
    this.withMemory.add(sandboxId)
    this.#savedMemory.set(sandboxId, Symbol(sandboxId))
    return { sizeBytes: 7 }
  }

  async wake(spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
    await this.before.wake?.(signal)
    Object.assign(this.#machine(spec.id), { state: 'running', spec })
    this.withMemory.delete(spec.id)
  }

  hasMemory(sandboxId: string): boolean {
    return this.withMemory.has(sandboxId)
  }

  isMemoryKept(sandboxId: string, checkpointId: string): boolean {
    const kept = this.#keptMemory.get(checkpointId)
    return kept !== undefined && this.hasMemory(sandboxId) && kept === this.#savedMemory.get(sandboxId)
  }

  async restart(spec: SandboxSpec): Promise<void> {
    this.withMemory.delete(spec.id)
    await this.before.restart?.()
    Object.assign(this.#machine(spec.id), { state: 'running', spec })
  }

  async resize(spec: SandboxSpec): Promise<void> {
    this.#machine(spec.id).spec = spec
  }

  async align(spec: SandboxSpec): Promise<Alignment> {
    const machine = this.machines.get(spec.id)
    if (machine?.state !== 'running') return { differences: [] }
    const { spec: had } = machine
    const usedBytes = this.usages.get(spec.id)?.memoryBytes ?? 0
    const keptMemoryMb = usedBytes > spec.memoryMb * 1024 * 1024 ? had.memoryMb : undefined
    machine.spec = { ...spec, memoryMb: keptMemoryMb ?? spec.memoryMb }
    const differences: Difference[] = []
    const compare = (what: Difference['what'], before: number, wanted: number, isMended = true) => {
      if (before !== wanted) differences.push({ what, had: String(before), wanted: String(wanted), isMended })
    }
    compare('memory', had.memoryMb, spec.memoryMb, keptMemoryMb === undefined)
    compare('processor time', had.cpuCount, spec.cpuCount)
    compare('disk', had.diskMb, spec.diskMb)
    return { differences, ...defined({ keptMemoryMb }) }
  }

  async restore(spec: SandboxSpec, checkpointId: string): Promise<void> {
    await this.before.restore?.()
    this.stepMounts.assertNone(spec.id)
    Object.assign(this.#machine(spec.id), { state: 'running', spec: { ...spec, from: { checkpointId } } })
  }

  async delete(sandboxId: string): Promise<void> {
    await this.before.delete?.(sandboxId)
    this.machines.delete(sandboxId)
    this.stepMounts.mounted.delete(sandboxId)
    this.warm.delete(sandboxId)
  }

  async checkpoint(sandboxId: string, checkpointId: string): Promise<{ sizeBytes: number }> {
    this.#machine(sandboxId)
    await this.before.checkpoint?.()
    this.stepMounts.assertNone(sandboxId)
    this.checkpoints.add(checkpointId)
    if (this.hasMemory(sandboxId)) this.#keptMemory.set(checkpointId, this.#savedMemory.get(sandboxId))
    return { sizeBytes: this.checkpointBytes }
  }

  async deleteCheckpoint(checkpointId: string): Promise<void> {
    await this.before.deleteCheckpoint?.()
    this.checkpoints.delete(checkpointId)
  }

  async dial(): Promise<Duplex> {
    throw new ServiceError('unavailable', 'a fake has no guest to dial')
  }

  /** A machine that ends leaves its disk, like one that hibernates. */
  override exit(exit: SandboxExit): void {
    const machine = this.machines.get(exit.sandboxId)
    if (machine) machine.state = 'hibernated'
    this.stepMounts.mounted.delete(exit.sandboxId)
    super.exit(exit)
  }

  state(sandboxId: string): MachineState | undefined {
    return this.machines.get(sandboxId)?.state
  }

  /** A guest whose `bash` knows two commands: `exit <n>` ends with that status, `hang` when it is killed, any other with 0. */
  guest(sandboxId: string): Guest {
    const files = new Map<string, string>()
    const statuses = new Map<string, number>()
    const hanging = new Map<string, string>()
    const nothing = async (): Promise<never> => {
      throw new ServiceError('not_implemented', 'the fake guest cannot do that')
    }
    const info = (id: string): ProcessInfo => ({
      id,
      pid: 2,
      argv: [],
      running: hanging.has(id),
      ...(hanging.has(id) ? {} : { exitCode: statuses.get(id) ?? 0 }),
      startedAt: new Date().toISOString(),
      attachedClients: 0,
      pty: false,
    })
    const guest: Guest = {
      hello: async () => {
        if (this.state(sandboxId) !== 'running') throw new ServiceError('unavailable', 'it does not run')
        return { version: 'fake' }
      },
      spawn: async (request) => {
        if (this.#spawned.has(request.id)) throw new ServiceError('conflict', `process ${request.id} exists`)
        this.#spawned.add(request.id)
        const script = files.get(request.argv[1] ?? '') ?? ''
        const told = `${sandboxId}: ${script}`
        this.scripts.push(told)
        if (script === 'hang') {
          hanging.set(request.id, told)
          this.running.add(told)
        }
        statuses.set(request.id, Number(/^exit (\d+)$/.exec(script)?.[1] ?? 0))
        return info(request.id)
      },
      run: async (request) => ({ process: await guest.spawn(request) }),
      processes: async () => {
        await this.before.processes?.()
        if (!this.machines.has(sandboxId)) throw new ServiceError('unavailable', 'the guest does not answer')
        return this.clientProcesses
      },
      process: async (id, _waitMs, signal) => {
        if (hanging.has(id)) await sleep(hangMs, undefined, { signal })
        return info(id)
      },
      output: async (_id, bytesMax = Infinity) => {
        const [stdout, stderr] = [Buffer.from(this.stdout), Buffer.from('told on stderr')]
        if (stdout.length + stderr.length > bytesMax) throw new ServiceError('too_large', 'it has more output')
        this.outputsSent += 1
        return { stdout, stderr, truncated: false }
      },
      attach: nothing,
      signal: nothing,
      resize: nothing,
      release: async (id) => {
        this.running.delete(hanging.get(id) ?? '')
        hanging.delete(id)
      },
      stat: async (path, user = 'root') => {
        if (user === 'nope') throw new ServiceError('invalid_request', `user: no user '${user}' in the sandbox`)
        return { path, isDir: true, size: 0, mode: 0o755, modifiedAt: new Date().toISOString() }
      },
      list: async () => [],
      inspect: nothing,
      move: nothing,
      watch: nothing,
      mkdir: nothing,
      remove: async (path) => void files.delete(path),
      readFile: async () => ({
        stat: { path: '/', isDir: false, size: 0, mode: 0o644, modifiedAt: new Date().toISOString() },
        body: Readable.from([
          Buffer.from('root:x:0:0::/root:/bin/sh\nno name:x:1:1::/:/bin/sh\nnode:x:1000:1000::/:/bin/sh\n'),
        ]),
      }),
      writeFile: async (path, body) => {
        files.set(path, (await body.toArray()).map(String).join(''))
        return 0
      },
      pack: nothing,
      unpack: nothing,
      ports: async () => [],
      listeners: async () => [],
      systemProcesses: async () => [],
      systemSignal: nothing,
      dial: nothing,
    }
    return guest
  }

  #machine(sandboxId: string): { state: MachineState; spec: SandboxSpec } {
    const machine = this.machines.get(sandboxId)
    if (!machine) throw new Error(`no machine ${sandboxId}`)
    return machine
  }
}
