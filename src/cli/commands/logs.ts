import { setTimeout as sleep } from 'node:timers/promises'
import type { Command } from 'commander'
import { CliError, exitCodes } from '../exit-codes.ts'
import { Sandbox, type ProcessInfo } from '../../../sdk/src/index.ts'
import { checkedId, examples } from '../options.ts'
import { columns, when, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

/** After this silence a process has no more output for now. */
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
      const sandbox = await Sandbox.connect(checkedId(id, 'sb-', 'sandbox'), { client: await clientOf(flags) })
      const spawned = await sandbox.spawned()
      if (processId === undefined) return await writeList(spawned, flags.json ?? false)
      const known = spawned.find(({ sessionID }) => sessionID === processId)
      if (known === undefined) {
        const message = `there is no process ${JSON.stringify(processId)} in ${id}`
        throw new CliError(message, { exitCode: exitCodes.notFound, hint: `atoll logs ${id} lists them` })
      }
      await writeOutput(sandbox, known, flags)
    })
}

async function writeList(spawned: ProcessInfo[], isJson: boolean): Promise<void> {
  if (isJson) return await writeJson(spawned)
  const rows = spawned.map((info) => [
    ...[info.sessionID, info.running ? 'running' : `ended with ${info.exitCode ?? '?'}`, when(info.startedAt)],
    [info.command, ...info.args].join(' '),
  ])
  await writeLine(columns(['ID', 'STATUS', 'STARTED', 'COMMAND'], rows))
}

async function writeOutput(sandbox: Sandbox, { sessionID, running }: ProcessInfo, flags: Options): Promise<void> {
  const attached = sandbox.attach(sessionID)
  const isBounded = running && !flags.follow
  const output = attached[Symbol.asyncIterator]()
  for (;;) {
    const next = await (isBounded ? Promise.race([output.next(), sleep(silenceMs, undefined)]) : output.next())
    if (next === undefined || next.done) return
    if (flags.json) await writeJson({ stream: next.value.stream, data: Buffer.from(next.value.data).toString() })
    else process[next.value.stream].write(next.value.data)
  }
}
