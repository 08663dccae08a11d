import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { realpath } from 'node:fs/promises'
import { basename, dirname } from 'node:path'
import { withTimeout } from '../../lib/async/timeout.ts'
import { findSystemUser, type SystemUser } from '../../lib/system-user.ts'
import { commandEnvironment, run } from '../command.ts'
import { egressToolIn } from '../host-names.ts'
import { missing, runSetup, works, type HostCheck } from '../self-test.ts'
import { makeAuthority } from './authority.ts'
import { Channel } from './channel.ts'
import { readRoots } from './host-facts.ts'
import { unprivileged } from './unprivileged.ts'

const answerMs = 5_000
const textCharsMax = 500

/** Has the program make an authority and start, as the server has it, at ports of loopback that the kernel chooses. */
export const egressCheck: HostCheck = {
  name: 'egress',
  required: false,
  async run({ imageDir }) {
    const program = await realpath(egressToolIn(imageDir)).catch(() => undefined)
    if (program === undefined) return missing('no atoll-egress: no sandbox can have egress rules or secrets', runSetup)
    const user = await findSystemUser('egress')
    await makeAuthority(run, user, [program])
    await tryStart(user, program)
    return works(`${basename(dirname(program))}; as ${user.name} it made an authority and listened`)
  },
}

/** Throws what the program says when it does not start. */
async function tryStart(user: SystemUser, program: string): Promise<void> {
  const [command, ...args] = unprivileged(user, [program])
  const child = spawn(command, args, { stdio: 'pipe', env: commandEnvironment(), cwd: '/' })
  let said = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said = (said + text).slice(-textCharsMax)))
  const ready = Promise.withResolvers<true>()
  ready.promise.catch(() => undefined)
  const channel = new Channel({
    ...{ input: child.stdin, output: child.stdout, answerMs },
    onReport: ({ op }) => op === 'ready' && ready.resolve(true),
    onStrange: () => ready.reject(new Error('it says what is no frame')),
    onBroken: (why) => channel.end(why),
  })
  const ended = endOf(child).then(() => channel.end(`it ended: ${said.trim()}`))
  try {
    await channel.ask({
      ...{
        op: 'start',
        listen: '127.0.0.1:0',
        dns: '127.0.0.1:0',
        explicit: '127.0.0.1:1',
        resolvers: ['127.0.0.1:53'],
      },
      ...{ roots: await readRoots([], () => undefined), denied: [], private: [], own_names: {} },
    })
    const isReady = await withTimeout(answerMs, ready.promise)
    if (isReady === undefined) throw new Error('it does not say that it is ready')
  } finally {
    child.kill('SIGKILL')
    await ended
  }
}

async function endOf(child: ChildProcess): Promise<void> {
  await once(child, 'close').catch(() => undefined)
}
