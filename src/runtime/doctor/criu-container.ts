import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { CommandError, run } from '../command.ts'
import { exists } from '../exists.ts'
import { criuOptions } from '../criu/dump.ts'
import { isAlive } from '../host/process.ts'
import type { ProcessIdentity } from '../host/process.ts'
import { runcCommand, runcFault, runcState } from '../oci/runc.ts'
import { trialConfig } from './container.ts'
import { firstCause } from './criu-alone.ts'
import type { CriuPlace } from './criu-place.ts'

const timeoutMs = 30_000
const answerTimeoutMs = 10_000
const pollMs = 2
const id = 'criu'

/**
 * The process of the container. When it is asked (SIGUSR1) it says whether memory that the kernel may drop (MAP_DROPPABLE, Linux
 * 6.11) still holds what was written there. Kernels without it refuse the mapping.
 */
const program = `
import mmap, os, signal
MAP_DROPPABLE = 8
try:
    droppable = mmap.mmap(-1, 4096, flags=MAP_DROPPABLE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    droppable[:4] = b"seed"
except OSError:
    droppable = None
def say(name, text):
    with open("/dev/draft", "w") as file: file.write(text)
    os.rename("/dev/draft", "/dev/" + name)
def answer(*_):
    say("answer", "kept" if droppable is not None and any(droppable[:]) else "forgotten")
signal.signal(signal.SIGUSR1, answer)
say("ready", "")
while True: signal.pause()
`

/**
 * Has runc save and bring back a container on the base image at `base` with the CRIU at `criuPath`, as the driver does. The
 * caller ends what is left in the place. Throws with the reason when its process does not go on, or has kept what forks must
 * not share.
 */
export async function dumpAndRestoreContainer(criuPath: string, base: string, place: CriuPlace): Promise<void> {
  const folder = (name: string): string => join(place.path, name)
  const [root, images, config] = [folder('rootfs'), folder('images'), folder('criu.conf')]
  await mkdir(root)
  // What CRIU restores opens them as root of the container.
  await mkdir(images)
  await chmod(images, 0o711)
  await run(['mount', '-o', 'bind,ro', base, root])
  const bundle = trialConfig({
    ...{ root, hostname: 'criu', cgroup: place.cgroup, argv: ['/usr/bin/python3', '-c', program] },
    annotations: { 'org.criu.config': config },
  })
  await writeFile(folder('config.json'), JSON.stringify(bundle))
  await writeFile(config, `${criuOptions.join('\n')}\n`)

  await runc(place, undefined, ['run', '--detach', '--bundle', place.path, id])
  const started = await processOf(place)
  await says(started, 'ready')
  const files = ['--image-path', images, '--work-path', images]
  await runc(place, criuPath, ['checkpoint', ...files, id])
  await until(() => !isAlive(started), 'runc checkpoint failed: the process of the container runs on')
  await writeFile(config, `${[...criuOptions, `cgroup-root ${place.cgroup}`].join('\n')}\n`)
  await runc(place, criuPath, ['restore', '--detach', ...files, '--bundle', place.path, id])
  const restored = await processOf(place)
  process.kill(restored.pid, 'SIGUSR1')
  if ((await says(restored, 'answer')) === 'kept') {
    throw new Error('it saves memory that the kernel may drop, so forks would draw the same random numbers')
  }
}

async function runc(place: CriuPlace, criu: string | undefined, args: readonly [string, ...string[]]): Promise<void> {
  const [call] = args
  const log = join(place.path, `${call}.log`)
  try {
    // Only what ends with this call may have pipes: the container would hold them.
    await run(runcCommand(join(place.path, 'runc'), { log, ...(criu === undefined ? {} : { criu }) }, args), {
      ...{ detached: args.includes('--detach'), timeoutMs },
    })
  } catch (error) {
    const criuLog = join(place.path, 'images', call === 'checkpoint' ? 'dump.log' : 'restore.log')
    const cause = firstCause(await readFile(criuLog, 'utf8').catch(() => ''))
    const reason = cause ?? ((await runcFault(log, [place.path])) || outcomeOf(error))
    throw new Error(`runc ${call} failed: ${reason}`, { cause: error })
  }
}

async function processOf(place: CriuPlace): Promise<ProcessIdentity> {
  const found = await runcState(join(place.path, 'runc'), id)
  if (found === undefined) throw new Error('runc has no state of the container that it started')
  return found
}

/** Waits for a file of the process; returns what it holds. */
async function says(process: ProcessIdentity, name: string): Promise<string> {
  const file = `/proc/${process.pid}/root/dev/${name}`
  const isThere = async () => {
    if (!isAlive(process)) throw new Error('the process of the container has ended')
    return exists(file)
  }
  await until(isThere, 'the process of the container does not answer')
  return await readFile(file, 'utf8')
}

/** Of a runc that wrote nothing to its log. */
function outcomeOf(error: unknown): string {
  if (!(error instanceof CommandError)) return String(error)
  return error.stderr.trim().split('\n').at(-1) || error.outcome
}

async function until(isSo: () => boolean | Promise<boolean>, otherwise: string): Promise<void> {
  const end = Date.now() + answerTimeoutMs
  while (!(await isSo())) {
    if (Date.now() > end) throw new Error(otherwise)
    await sleep(pollMs)
  }
}
