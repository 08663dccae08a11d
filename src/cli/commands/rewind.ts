import type { Command } from 'commander'
import { AtollError, type Checkpoint, type ListedCheckpointInfo, Sandbox } from '../../../sdk/src/index.ts'
import { UsageError } from '../exit-codes.ts'
import { checkedCheckpoint, checkedId, checkpointPath, examples } from '../options.ts'
import { note, writeJson, writeLine } from '../output.ts'
import { waiting } from '../progress.ts'
import { clientOf, type Flags } from '../settings.ts'

interface RewindOptions extends Flags {
  undo: boolean
}

export function addRewind(program: Command): void {
  program
    .command('rewind')
    .description('put a sandbox back to one of its checkpoints, and keep its present as another')
    .addHelpText('after', examples('atoll rewind web v1', 'atoll rewind web cp-0123456789abcdef --no-undo'))
    .argument('<sandbox>')
    .argument('<checkpoint>', 'its id or name')
    .option('--no-undo', 'do not keep the present')
    .action(async (id: string, given: string, _options: RewindOptions, command: Command) => {
      const { undo: isKept, ...flags } = command.optsWithGlobals<RewindOptions>()
      const name = checkedId(id, 'sb-', 'sandbox')
      const wanted = checkedCheckpoint(given)
      const client = await clientOf(flags)
      const sandbox = await Sandbox.connect(name, { client })
      // First: the present is kept for a checkpoint that is there.
      const path = checkpointPath(/^cp-|\//.test(wanted) ? wanted : `${name}/${wanted}`)
      const { id: checkpointId, sandboxId } = await client.json<ListedCheckpointInfo>('GET', path)
      if (sandboxId !== sandbox.id)
        throw new UsageError(`${given} is of another sandbox; "atoll fork ${given}" starts one from it`)
      const kept = isKept ? await waiting('the present is kept', keepPresent(sandbox)) : undefined
      await waiting('the sandbox is put back', sandbox.restore(checkpointId)).catch(async (error: unknown) => {
        // Where the server has refused, the sandbox is as it was. Where no answer came, it may be put back.
        if (error instanceof AtollError && error.code !== undefined) await kept?.delete().catch(() => undefined)
        throw error
      })
      if (flags.json === true) return await writeJson({ sandboxId, checkpointId, undoCheckpointId: kept?.id ?? null })
      if (kept !== undefined) await writeLine(`To undo this: atoll rewind ${name} ${kept.info.name}`)
    })
}

/** With memory where the machine can keep it. The name is one that commands take. */
async function keepPresent(sandbox: Sandbox): Promise<Checkpoint> {
  const name = `before-rewind-${new Date().toISOString().replaceAll(/[:.]/g, '').replaceAll(/[TZ]/g, '-').slice(0, -1)}`
  try {
    return await sandbox.checkpoint({ name, kind: 'full' })
  } catch (error) {
    if (!(error instanceof AtollError) || error.code !== 'full_checkpoint_unavailable') throw error
    note('this machine keeps no memory: the present is kept without its processes')
    return await sandbox.checkpoint({ name, kind: 'disk_only' })
  }
}
