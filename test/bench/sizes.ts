import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { AtollServer } from '../e2e/server.ts'
import { forkOf, startSandbox } from '../e2e/sandbox-calls.ts'
import { checkpoint } from './checkpoint.ts'
import { type Comparison, compare } from './measure.ts'

const rounds = 20

/** What the files cost in which programs see the sizes of their sandbox: two servers beside each other, one of which finds no working lxcfs. */
export async function sizesBench(): Promise<Comparison[]> {
  await using stack = new AsyncDisposableStack()
  // The server looks in /usr/bin after its PATH, so one that is there can only be hidden.
  const programs = await mkdtemp('/var/tmp/atoll-programs-')
  stack.defer(() => rm(programs, { recursive: true }))
  await writeFile(`${programs}/lxcfs`, '#!/bin/sh\nexit 1\n', { mode: 0o755 })

  const env = { ATOLL_REQUESTS_PER_SECOND: '1000000' }
  const own = stack.use(await AtollServer.start({ env }))
  const none = stack.use(await AtollServer.start({ env: { ...env, PATH: `${programs}:${process.env['PATH']}` } }))
  if (own.output.includes('lxcfs')) throw new Error(`lxcfs does not work here:\n${own.output}`)
  if (!none.output.includes('lxcfs')) throw new Error('the other server has found an lxcfs')

  const [ours, others] = [new Side(own), new Side(none)]
  const against = 'a server without lxcfs'
  const both = (work: (side: Side) => Promise<void>) => ({ atoll: () => work(ours), other: () => work(others) })
  return [
    await compare(
      'create a sandbox and run its first command, cold',
      against,
      rounds,
      both((side) => side.start()),
    ),
    await compare('full checkpoint of an idle sandbox', against, rounds, {
      ...both((side) => side.checkpoint()),
      prepare: async () => {
        for (const side of [ours, others]) await side.forget()
      },
    }),
    await compare(
      'fork it and run a command',
      against,
      rounds,
      both((side) => side.fork()),
    ),
  ]
}

class Side {
  readonly #server: AtollServer
  #sandbox = ''
  #checkpoint: string | undefined

  constructor(server: AtollServer) {
    this.#server = server
  }

  async start(): Promise<void> {
    this.#sandbox = await startSandbox(this.#server)
    await this.#run(this.#sandbox)
  }

  async checkpoint(): Promise<void> {
    this.#checkpoint = await checkpoint(this.#server, this.#sandbox, 'of the bench')
  }

  /** A sandbox has few checkpoints at once. */
  async forget(): Promise<void> {
    if (this.#checkpoint === undefined) return
    await this.#server.json('DELETE', `/api/sandboxes/${this.#sandbox}/checkpoints/${this.#checkpoint}`)
  }

  async fork(): Promise<void> {
    await this.#run(await forkOf(this.#server, this.#checkpoint ?? ''))
  }

  async #run(id: string): Promise<void> {
    await this.#server.json('POST', `/api/sandboxes/${id}/exec/run`, { cmd: 'true', args: [] })
  }
}
