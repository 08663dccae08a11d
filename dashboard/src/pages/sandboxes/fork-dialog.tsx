import type { AtollError, CheckpointKind, Sandbox, SandboxInfo } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { nameOf, sandboxOf } from '../../sandboxes/sandbox.ts'
import { SelectField } from '../../ui/field.tsx'
import { StartDialog, type StartOptions } from '../checkpoints/start-dialog.tsx'
import { forkPresentCommands } from './commands.ts'

/** A fork goes on from a checkpoint, which is made for it and kept this long after, or longer while something needs it. */
const keptSeconds = 86_400
const countMax = 20

/** Starts sandboxes that go on from this moment of one. */
export function ForkDialog({ info, onClose }: { info: SandboxInfo; onClose: () => void }): ReactNode {
  const [kind, setKind] = useState<CheckpointKind>('full')
  const start = async (options: StartOptions, count: number): Promise<(Sandbox | AtollError)[]> => {
    const name = `fork at ${new Date().toISOString()}`
    const checkpoint = await sandboxOf(info).checkpoint({ name, kind, expiresInSeconds: keptSeconds })
    return count === 1 ? [await checkpoint.fork(options)] : await checkpoint.forkMany(count, options)
  }
  return (
    <StartDialog
      title={`Fork ${nameOf(info)}`}
      description="Another sandbox goes on from this moment. A checkpoint is made for it, and deleted after a day unless something needs it."
      action="Fork"
      countMax={countMax}
      start={start}
      commandsOf={(options, count) =>
        forkPresentCommands(nameOf(info), { kind, expiresInSeconds: keptSeconds }, options, count)
      }
      onClose={onClose}
    >
      <SelectField
        label="It begins with"
        value={kind}
        onChange={({ target }) => setKind(target.value as CheckpointKind)}
      >
        <option value="full">disk, memory and processes</option>
        <option value="disk_only">the disk alone</option>
      </SelectField>
    </StartDialog>
  )
}
