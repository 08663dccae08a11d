import { Option, type Command } from 'commander'
import { Sandbox, UnexpectedAnswerError, type SandboxInfo, type SandboxStatus } from '../../../sdk/src/index.ts'
import { columns, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

interface Options extends Flags {
  status?: SandboxStatus
  quiet?: boolean
}

export function addLs(program: Command): void {
  program
    .command('ls')
    .description('list sandboxes, newest first')
    .addOption(
      new Option('--status <status>', 'only these').choices(['creating', 'running', 'hibernated', 'stopped', 'error']),
    )
    .option('-q, --quiet', 'print ids alone')
    .action(async (_options: Options, command: Command) => {
      const flags = command.optsWithGlobals<Options>()
      const sandboxes: SandboxInfo[] = []
      for await (const sandbox of Sandbox.list({ client: await clientOf(flags), status: flags.status })) {
        sandboxes.push(sandbox)
      }
      if (sandboxes.some((sandbox) => typeof sandbox?.sandboxID !== 'string')) {
        throw new UnexpectedAnswerError('the server answered with something else than a list of sandboxes')
      }
      if (flags.json) return await writeJson(sandboxes)
      if (flags.quiet) {
        for (const { sandboxID } of sandboxes) await writeLine(sandboxID)
        return
      }
      const rows = sandboxes.map((info) => [
        ...[info.sandboxID, info.status, info.templateID, info.cpuCount, `${info.memoryMB} MB`],
        ...[info.timeout === 0 ? 'never' : `${info.timeout} s`, info.startedAt],
      ])
      await writeLine(columns(['ID', 'STATUS', 'IMAGE', 'CPU', 'MEMORY', 'TIMEOUT', 'STARTED'], rows))
    })
}
