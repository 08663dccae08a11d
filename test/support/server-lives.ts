import type { SandboxService } from '../../src/sandbox/index.ts'
import { defaultImageLimits, Images, RegistryCredentials } from '../../src/image/index.ts'
import { Sealer } from '../../src/lib/sealed.ts'
import { silentLog } from '../../src/lib/log.ts'
import { defaultSandboxLimits } from '../../src/sandbox/index.ts'
import { cachedSandboxStore, type Store } from '../../src/store/index.ts'
import type { FakeTxtRecords } from './fake-txt-records.ts'
import type { KeptMachines } from './kept-machines.ts'
import { makeSandboxService } from './sandbox-service.ts'

export type Moment = 'before' | 'after'

/** A call of a port, such as `driver.resize 1`, the first since the life was armed. */
export interface Step {
  call: string
  moment: Moment
}

/** What these calls answer, they answer at once, and they change nothing that outlives the server. */
const uncounted = new Set([
  'capabilitiesOf',
  'hasMemory',
  'isMemoryKept',
  'onExit',
  'gateway',
  'metadata',
  'sandboxAt',
  'assertImportable',
  'usage',
  'disk',
])

/**
 * The ports as a server has them that ends at a step. From then on none of its calls happens or returns. Without a step it notes the
 * calls that there are.
 */
export class Life {
  readonly calls: string[] = []
  readonly ended = Promise.withResolvers<void>()
  hasEnded = false
  readonly #step: Step | undefined
  readonly #counts = new Map<string, number>()
  readonly #underWay = new Set<Promise<unknown>>()
  #isArmed = false

  constructor(step?: Step) {
    this.#step = step
  }

  arm(): void {
    this.#isArmed = true
  }

  end(): void {
    this.hasEnded = true
    this.ended.resolve()
  }

  /** What the world still does for it. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#underWay)
  }

  wrap<Port extends object>(port: Port, portName: string): Port {
    return new Proxy(port, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name)
        if (typeof value !== 'function') return value
        const call = (parameters: unknown[]): unknown => Reflect.apply(value, target, parameters)
        if (typeof name === 'symbol' || uncounted.has(name)) return (...parameters: unknown[]) => call(parameters)
        return (...parameters: unknown[]) => this.#run(`${portName}.${name}`, () => call(parameters))
      },
    })
  }

  /** A step in the middle of a call, which the end of the server leaves there. */
  async halfway(name: string): Promise<void> {
    if (!this.#isLast(name)) return
    this.end()
    throw new Error('the server has ended')
  }

  async #run(name: string, work: () => unknown): Promise<unknown> {
    if (this.hasEnded) return await forever()
    const isLast = this.#isLast(name)
    if (isLast && this.#step?.moment === 'before') {
      this.end()
      return await forever()
    }
    const working = Promise.resolve(work())
    this.#underWay.add(working)
    try {
      return await working
    } finally {
      this.#underWay.delete(working)
      if (isLast) this.end()
      if (this.hasEnded) await forever()
    }
  }

  #isLast(name: string): boolean {
    if (!this.#isArmed) return false
    const count = (this.#counts.get(name) ?? 0) + 1
    this.#counts.set(name, count)
    const call = `${name} ${count}`
    this.calls.push(call)
    return call === this.#step?.call
  }
}

function forever(): Promise<never> {
  return new Promise(() => undefined)
}

/** Of the image that servers have defined. */
const defaults = { envs: { A: 'defined' } }

/** What servers find again: the host, DNS, the organisation, a folder, a secret. */
export interface Host {
  store: Store
  orgId: string
  machines: KeptMachines
  records: FakeTxtRecords
  dir: string
  secret: string
}

export interface Server {
  host: Host
  life: Life
  service: SandboxService
  images: Images
  close: () => Promise<void>
}

/** A server over a host, started. */
export async function serve(host: Host, life = new Life(), warmSandboxesMax = 0): Promise<Server> {
  const { store, orgId, machines, records, dir, secret } = host
  machines.halfway = (step) => life.halfway(`machine.${step}`)
  const { service } = makeSandboxService({
    store: cachedSandboxStore(life.wrap(store.sandboxes, 'sandboxes')),
    driver: life.wrap(machines, 'driver'),
    guest: (sandboxId) => life.wrap(machines.guest(sandboxId), 'guest'),
    records,
    signingSecret: secret,
    warmSandboxesMax,
  })
  const images = new Images({
    store: life.wrap(store.images, 'images'),
    sandboxes: service,
    registryCredentials: new RegistryCredentials({
      store: life.wrap(store.registryCredentials, 'registryCredentials'),
      sealer: new Sealer('secret'),
      hosts: [],
    }),
    dir,
    exportDir: `${dir}-exports`,
    logDir: `${dir}-logs`,
    contextDir: `${dir}-contexts`,
    assertDiskTakesData: () => undefined,
    limits: defaultImageLimits,
    definitions: new Map([
      ['defined', { steps: [{ type: 'add_file', args: { path: '/a', content: 'YQ==' } }], defaults }],
    ]),
    signingSecret: secret,
    sandboxLimits: defaultSandboxLimits,
    operatorOrgId: async () => orgId,
    log: silentLog,
  })
  await service.start()
  await images.start()
  const close = async () => {
    await images.close()
    await service.close()
  }
  return { host, life, service, images, close }
}
