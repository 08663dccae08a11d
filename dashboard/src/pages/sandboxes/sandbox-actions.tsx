import { useMutation } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { MemoryNotRestorableError, type SandboxInfo } from 'atoll-sdk'
import { Ellipsis, GitFork, Layers, Moon, Power, Scaling, Settings, Sun, Trash2 } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { useMay } from '../../account/account.tsx'
import { nameOf, sandboxOf } from '../../sandboxes/sandbox.ts'
import { useRefresh } from '../../sandboxes/use-sandboxes.ts'
import { Button, IconButton } from '../../ui/button.tsx'
import { CommandHint, CommandLines } from '../../ui/commands.tsx'
import { Confirm } from '../../ui/dialog.tsx'
import { Menu } from '../../ui/menu.tsx'
import { ErrorNote } from '../../ui/states.tsx'
import { useToast } from '../../ui/toasts.tsx'
import { hibernateKey, useWake } from './awake.tsx'
import { CheckpointDialog } from './checkpoint-dialog.tsx'
import { deleteCommands, hibernateCommands, rebootCommands, wakeCommands } from './commands.ts'
import { ForkDialog } from './fork-dialog.tsx'
import { ScaleDialog } from './scale-dialog.tsx'
import { SettingsDialog } from './settings-dialog.tsx'

type Opened = 'checkpoint' | 'fork' | 'settings' | 'scale' | 'restart' | 'delete'

/** What can be done with a sandbox in its state. Acts that need more words open a dialog. */
export function SandboxActions({ info }: { info: SandboxInfo }): ReactNode {
  const { status, sandboxID: id, reason } = info
  const [opened, setOpened] = useState<Opened>()
  const mayWrite = useMay()('sandbox:write')
  const refresh = useRefresh()
  const wake = useWake(info)
  const hibernate = useMutation({
    mutationKey: hibernateKey(id),
    mutationFn: () => sandboxOf(info).hibernate(),
    onSettled: () => refresh(id),
  })
  if (!mayWrite || status === 'stopped') return null
  const close = () => setOpened(undefined)
  const isAsleep = status === 'hibernated'
  const isUp = status === 'running'
  const lostMemory = reason === 'memory_not_restorable' || wake.error instanceof MemoryNotRestorableError
  const item = (label: string, which: Opened, icon: ReactNode) => ({ label, icon, onSelect: () => setOpened(which) })
  const error = wake.error ?? hibernate.error
  return (
    <>
      {isAsleep && (
        <Button look="primary" isBusy={wake.isPending} onClick={() => wake.mutate({})}>
          <Sun aria-hidden="true" className="size-4" /> Wake
        </Button>
      )}
      {isAsleep && lostMemory && (
        <Button isBusy={wake.isPending} onClick={() => wake.mutate({ memory: false })}>
          Wake without memory
        </Button>
      )}
      {isUp && (
        <Button isBusy={hibernate.isPending} onClick={() => hibernate.mutate()}>
          <Moon aria-hidden="true" className="size-4" /> Hibernate
        </Button>
      )}
      {(isUp || isAsleep) && (
        <CommandHint
          label={`${isUp ? 'Hibernate' : 'Wake'} as a command`}
          commands={isUp ? hibernateCommands(nameOf(info)) : wakeCommands(nameOf(info))}
        />
      )}
      {(isUp || isAsleep) && (
        <Button onClick={() => setOpened('checkpoint')}>
          <Layers aria-hidden="true" className="size-4" /> Checkpoint
        </Button>
      )}
      <Menu
        label="More acts"
        trigger={<IconButton look="plain" label="More acts" icon={<Ellipsis className="size-4" />} />}
        items={[
          isUp || isAsleep ? item('Fork', 'fork', <GitFork className="size-4" />) : undefined,
          item('Name and ends', 'settings', <Settings className="size-4" />),
          isUp ? item('Scale', 'scale', <Scaling className="size-4" />) : undefined,
          isUp ? item('Restart', 'restart', <Power className="size-4" />) : undefined,
          { ...item('Delete', 'delete', <Trash2 className="size-4" />), isDanger: true },
        ]}
      />
      {error !== null && (
        <div className="basis-full">
          <ErrorNote error={error} />
        </div>
      )}
      {opened === 'checkpoint' && <CheckpointDialog info={info} onClose={close} />}
      {opened === 'fork' && <ForkDialog info={info} onClose={close} />}
      {opened === 'settings' && <SettingsDialog info={info} onClose={close} />}
      {opened === 'scale' && <ScaleDialog info={info} onClose={close} />}
      <RestartConfirm info={info} isOpen={opened === 'restart'} onClose={close} />
      <DeleteConfirm info={info} isOpen={opened === 'delete'} onClose={close} />
    </>
  )
}

interface ConfirmActProps {
  info: SandboxInfo
  isOpen: boolean
  onClose: () => void
}

function RestartConfirm({ info, isOpen, onClose }: ConfirmActProps): ReactNode {
  const refresh = useRefresh()
  return (
    <Confirm
      isOpen={isOpen}
      onOpenChange={onClose}
      title={`Restart ${nameOf(info)}?`}
      action="Restart"
      onConfirm={async () => {
        await sandboxOf(info).reboot()
        refresh(info.sandboxID)
      }}
    >
      <p className="mb-3">Its processes end, terminals too, and it starts anew on its disk, which stays.</p>
      <CommandLines commands={rebootCommands(nameOf(info))} />
    </Confirm>
  )
}

function DeleteConfirm({ info, isOpen, onClose }: ConfirmActProps): ReactNode {
  const refresh = useRefresh()
  const navigate = useNavigate()
  const toast = useToast()
  return (
    <Confirm
      isOpen={isOpen}
      onOpenChange={onClose}
      title={`Delete ${nameOf(info)}?`}
      action="Delete the sandbox"
      onConfirm={async () => {
        await sandboxOf(info).delete()
        refresh(info.sandboxID)
        toast({ text: `${nameOf(info)} is deleted.` })
        await navigate({ to: '/sandboxes' })
      }}
    >
      <p className="mb-3">Its disk, memory and processes are lost. Its checkpoints and volumes stay.</p>
      <CommandLines commands={deleteCommands(nameOf(info))} />
    </Confirm>
  )
}
