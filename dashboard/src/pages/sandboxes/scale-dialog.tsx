import { useQuery, useQueryClient } from '@tanstack/react-query'
import type { Autoscale, SandboxInfo } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { nameOf, sandboxKey, sandboxOf } from '../../sandboxes/sandbox.ts'
import { useRefresh } from '../../sandboxes/use-sandboxes.ts'
import type { Commands } from '../../ui/commands.tsx'
import { Dialog } from '../../ui/dialog.tsx'
import { SelectField, TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/form-dialog.tsx'
import { ErrorNote, Loading } from '../../ui/states.tsx'
import { scaleCommands } from './commands.ts'
import { autoscaleQuery } from './queries.ts'
import { literalOf } from '../../sandboxes/literal.ts'

/** Changes memory and CPU of a running sandbox, or lets its memory follow its use. */
export function ScaleDialog({ info, onClose }: { info: SandboxInfo; onClose: () => void }): ReactNode {
  const { data, error } = useQuery(autoscaleQuery(info))
  if (data !== undefined) return <Form info={info} autoscale={data} onClose={onClose} />
  return (
    <Dialog title={`Scale ${nameOf(info)}`} isOpen onOpenChange={onClose}>
      {error === null ? <Loading /> : <ErrorNote error={error} />}
    </Dialog>
  )
}

function Form({
  info,
  autoscale,
  onClose,
}: {
  info: SandboxInfo
  autoscale: Autoscale
  onClose: () => void
}): ReactNode {
  const [isFollowing, setFollowing] = useState(autoscale.enabled)
  const [memory, setMemory] = useState(String(info.memoryMB))
  const [cpu, setCpu] = useState(String(info.cpuCount * 100))
  const [least, setLeast] = useState(String(autoscale.minMemoryMB || info.memoryMB))
  const [most, setMost] = useState(String(autoscale.maxMemoryMB || info.memoryMB * 2))
  const queries = useQueryClient()
  const refresh = useRefresh()
  const bounds = { enabled: true, minMemoryMB: Number(least), maxMemoryMB: Number(most) } as const
  const submit = async () => {
    const sandbox = sandboxOf(info)
    if (isFollowing) await sandbox.setAutoscale(bounds)
    else {
      if (autoscale.enabled) await sandbox.setAutoscale({ enabled: false })
      await sandbox.setLimits({ memoryMB: Number(memory), cpuPercent: Number(cpu) })
    }
    refresh(info.sandboxID)
    await queries.invalidateQueries({ queryKey: sandboxKey(info.sandboxID) })
    onClose()
  }
  const commands: Commands = isFollowing
    ? {
        curl: { method: 'PUT', path: `/api/sandboxes/${info.sandboxID}/autoscale`, json: bounds },
        sdk: `await sandbox.setAutoscale(${literalOf(bounds)})`,
      }
    : scaleCommands(nameOf(info), Number(memory), Number(cpu))
  return (
    <FormDialog
      title={`Scale ${nameOf(info)}`}
      description="In force at once, while it runs."
      isOpen
      onOpenChange={onClose}
      action="Scale"
      onSubmit={submit}
      commands={commands}
    >
      <SelectField
        label="Memory"
        value={isFollowing ? 'autoscale' : 'fixed'}
        onChange={({ target }) => setFollowing(target.value === 'autoscale')}
      >
        <option value="fixed">stays as it is set</option>
        <option value="autoscale">follows its use between two bounds</option>
      </SelectField>
      <div className="grid grid-cols-2 gap-4">
        {isFollowing ? (
          <>
            <TextField
              label="Least, in MiB"
              type="number"
              required
              value={least}
              onChange={({ target }) => setLeast(target.value)}
            />
            <TextField
              label="Most, in MiB"
              type="number"
              required
              value={most}
              onChange={({ target }) => setMost(target.value)}
            />
          </>
        ) : (
          <>
            <TextField
              label="Memory in MiB"
              type="number"
              required
              value={memory}
              onChange={({ target }) => setMemory(target.value)}
            />
            <TextField
              label="CPU in percent"
              type="number"
              required
              hint="100 is one CPU"
              value={cpu}
              onChange={({ target }) => setCpu(target.value)}
            />
          </>
        )}
      </div>
    </FormDialog>
  )
}
