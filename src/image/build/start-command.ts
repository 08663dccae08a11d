import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../errors.ts'
import { defined } from '../../lib/defined.ts'
import type { ManifestOutline } from '../manifest.ts'
import { asRoot, type BuildSandbox, detailsOf, failed, logOf, type ProgramEnd } from './sandbox.ts'
import type { StepPlace } from './stage.ts'

const readyPollMs = 100
const readyTimeoutSeconds = 10

interface StartCommand {
  startCommand: string
  readyCommand?: string | undefined
  defaults?: ManifestOutline['defaults']
}

/** Runs the start command of an image, which goes on, and waits until it is ready. Throws `build_failed`. */
export async function runStartCommand(
  inside: BuildSandbox,
  { startCommand, readyCommand, defaults }: StartCommand,
  number: number,
): Promise<void> {
  const { context, orgId, emit, signal } = inside.scope
  const { limits, sandboxes } = context
  const place: StepPlace = { number, type: 'start' }
  const listening = new Set(await sandboxes.exec.ports(orgId, inside.id))
  await emit(logOf(number, 'start', startCommand))
  const cwd = defaults?.cwd ?? inside.sandbox.commandDefaults?.cwd
  const inFolder = { envs: defaults?.envs ?? {}, ...defined({ cwd }) }
  const id = await inside.start({ cmd: 'sh', args: ['-c', startCommand], ...inFolder, ofImage: true })
  // Close it before memory is saved, which an open connection would delay.
  const attached = new AbortController()
  let ended: ProgramEnd | undefined
  const following = inside.follow(id, 'image', number, AbortSignal.any([signal, attached.signal])).then(
    (end) => (ended = end),
    () => undefined,
  )
  const isReady = async (): Promise<boolean> => {
    if (readyCommand === undefined)
      return (await sandboxes.exec.ports(orgId, inside.id)).some((port) => !listening.has(port))
    const ready = { cmd: 'sh', args: ['-c', readyCommand], ...inFolder, ...asRoot, timeoutSeconds: readyTimeoutSeconds }
    return (await sandboxes.exec.run(orgId, inside.id, ready, { signal })).exitCode === 0
  }
  try {
    for (const until = Date.now() + limits.stepMs; !(await isReady());) {
      if (ended !== undefined) throw failed(place, ended)
      if (Date.now() > until) {
        const what = readyCommand === undefined ? 'listens on no new port' : 'is not ready'
        const message = `the start command ${what} after ${limits.stepMs / 1000} seconds`
        throw new ServiceError('build_failed', message, { details: detailsOf(place) })
      }
      await sleep(readyPollMs, undefined, { signal })
    }
  } finally {
    attached.abort()
    await following
  }
  await emit(logOf(number, 'start', 'ready'))
}
