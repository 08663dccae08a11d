import { setTimeout as sleep } from 'node:timers/promises'
import type { Command } from 'commander'
import { CliError, exitCodes } from '../exit-codes.ts'
import type { ProcessInfo, Sandbox } from '../../../sdk/src/index.ts'
import { writeList } from '../list.ts'
import { examples } from '../options.ts'
import { when, writeJson } from '../output.ts'
import { sandboxOf, type Flags } from '../settings.ts'

/** After this silence of an open connection a process has no more output for now. */
const silenceMs = 500

interface Options extends Flags {
  follow?: boolean
}

export function addLogs(program: Command): void {
  program
    .command('logs')
    .description('list the processes that exec has started, or print the output that is kept of one')
    .addHelpText('after', examples('atoll logs sb-0123456789abcdef es-0123456789abcdef --follow'))
    .argument('<sandbox>')
    .argument('[process]')
    .option('-f, --follow', 'until it ends')
    .action(async (id: string, processId: string | undefined, _options: Options, command: Command) => {
      const flags = command.optsWithGlobals<Options>()
      const sandbox = await sandboxOf(id, flags)
      const spawned = await sandbox.spawned()
      if (processId === undefined) return await writeList(spawned, flags, listColumns)
      const known = spawned.find(({ sessionID }) => sessionID === processId)
      if (known === undefined) {
        const message = `there is no process ${JSON.stringify(processId)} in ${id}`
        throw new CliError(message, { exitCode: exitCodes.notFound, hint: `atoll logs ${id} lists them` })
      }
      await writeOutput(sandbox, known, flags)
    })
}

const listColumns = {
  ID: (info: ProcessInfo) => info.sessionID,
  STATUS: (info: ProcessInfo) => (info.running ? 'running' : `ended with ${info.exitCode ?? '?'}`),
  STARTED: (info: ProcessInfo) => when(info.startedAt),
  COMMAND: (info: ProcessInfo) => [info.command, ...info.args].join(' '),
}

async function writeOutput(sandbox: Sandbox, { sessionID, running }: ProcessInfo, flags: Options): Promise<void> {
  const opened = Promise.withResolvers<void>()
  const attached = sandbox.attach(sessionID, { onOpen: opened.resolve })
  const isBounded = running && !flags.follow
  const silence = async () => {
    await opened.promise
    return await sleep(silenceMs, undefined)
  }
  const output = attached[Symbol.asyncIterator]()
  for (;;) {
    const next = await (isBounded ? Promise.race([output.next(), silence()]) : output.next())
    if (next === undefined || next.done) return
    if (flags.json) await writeJson({ stream: next.value.stream, data: Buffer.from(next.value.data).toString() })
    else process[next.value.stream].write(next.value.data)
  }
}
