import { useNavigate } from '@tanstack/react-router'
import { Sandbox } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { client } from '../../account/client.ts'
import { useCollection } from '../../sandboxes/use-sandboxes.ts'
import { readSandbox } from '../../sandboxes/sandbox.ts'
import { SelectField, TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/form-dialog.tsx'
import { createCommands, forkCommands } from './commands.ts'
import { DurationField } from './duration-field.tsx'
import {
  createOptionsOf,
  emptySandbox,
  forkOptionsOf,
  type NewSandbox,
  type NewSandboxField,
  refusalOf,
} from './new-sandbox.ts'
import { PairsField } from './pairs-field.tsx'
import { SecretStoreField, StartField } from './start-fields.tsx'

interface CreateSandboxProps {
  isOpen: boolean
  onClose: () => void
  checkpoint: string | undefined
  template: string | undefined
}

/** The dialog that starts a sandbox from an image or a checkpoint and opens its page. */
export function CreateSandbox({ isOpen, onClose, checkpoint, template }: CreateSandboxProps): ReactNode {
  const begun = {
    ...emptySandbox,
    ...(checkpoint === undefined ? {} : { begin: 'checkpoint' as const, checkpoint }),
    ...(template === undefined ? {} : { template }),
  }
  // A closed dialog forgets what was typed, above all variables.
  return isOpen && <CreateForm key={`${checkpoint} ${template}`} begun={begun} onClose={onClose} />
}

function CreateForm({ begun, onClose }: { begun: NewSandbox; onClose: () => void }): ReactNode {
  const [form, setForm] = useState(begun)
  const [refusal, setRefusal] = useState<{ field: NewSandboxField; reason: string }>()
  const navigate = useNavigate()
  const collection = useCollection()
  const isFork = form.begin === 'checkpoint'
  const set = (change: Partial<NewSandbox>) => {
    setForm({ ...form, ...change })
    setRefusal(undefined)
  }
  const bound = (field: Exclude<NewSandboxField, 'envs' | 'metadata' | 'onIdle'>) => ({
    value: form[field],
    error: refusal?.field === field ? refusal.reason : undefined,
    onChange: ({ target }: { target: { value: string } }) => set({ [field]: target.value }),
  })
  const duration = (field: 'ttlSeconds' | 'maxAgeSeconds') => ({
    value: form[field],
    error: refusal?.field === field ? refusal.reason : undefined,
    onChange: (seconds: string) => set({ [field]: seconds }),
  })
  const create = async () => {
    try {
      const { id } = isFork
        ? await Sandbox.fork(form.checkpoint.trim(), { client, ...forkOptionsOf(form) })
        : await Sandbox.create({ client, ...createOptionsOf(form) })
      void readSandbox(id).then(
        (info) => collection.put(info),
        () => collection.refresh(id),
      )
      await navigate({ to: '/sandboxes/$sandboxId', params: { sandboxId: id } })
    } catch (error) {
      const refused = refusalOf(error)
      if (refused === undefined) throw error
      setRefusal(refused)
    }
  }
  return (
    <FormDialog
      title="New sandbox"
      isOpen
      onOpenChange={(isOpen) => !isOpen && onClose()}
      action={isFork ? 'Start from the checkpoint' : 'Create the sandbox'}
      isReady={!isFork || form.checkpoint.trim() !== ''}
      onSubmit={create}
      commands={
        isFork
          ? forkCommands(form.checkpoint.trim() === '' ? 'CHECKPOINT' : form.checkpoint.trim(), forkOptionsOf(form))
          : createCommands(createOptionsOf(form))
      }
    >
      <TextField
        label="Name"
        placeholder="none"
        hint="Serves wherever its id does: a–z, 0–9 and -."
        autoFocus
        {...bound('name')}
      />
      <StartField form={form} onChange={set} refusal={refusal} />
      <div className="grid grid-cols-1 gap-4 sm:grid-cols-2">
        <TextField
          label="Memory in MiB"
          type="number"
          placeholder={isFork ? 'as the checkpoint' : '1024'}
          {...bound('memoryMB')}
        />
        {!isFork && <TextField label="CPUs" type="number" placeholder="1" {...bound('cpuCount')} />}
        <DurationField label="Idle timeout" placeholder="default" hint="0: never" {...duration('ttlSeconds')} />
        <SelectField
          label="When it is idle"
          value={form.onIdle}
          error={refusal?.field === 'onIdle' ? refusal.reason : undefined}
          onChange={({ target }) => set({ onIdle: target.value as NewSandbox['onIdle'] })}
        >
          <option value="">as the server has it</option>
          <option value="hibernate">hibernate, keep all</option>
          <option value="stop">delete it</option>
        </SelectField>
      </div>
      <PairsField
        label="Environment"
        noun="variable"
        pairs={form.envs}
        error={refusal?.field === 'envs' ? refusal.reason : undefined}
        onChange={(envs) => set({ envs })}
      />
      <details className="rounded-md border px-3 py-2">
        <summary className="cursor-pointer font-medium">More</summary>
        <div className="flex flex-col gap-4 py-3">
          <div className="grid grid-cols-1 gap-4 sm:grid-cols-2">
            {!isFork && <TextField label="Disk in MiB" type="number" placeholder="10240" {...bound('diskMB')} />}
            <TextField label="User" placeholder="root" hint="Runs its commands" {...bound('user')} />
            <DurationField
              label="Maximum age"
              placeholder="default"
              hint="Then it is deleted. 0: never"
              {...duration('maxAgeSeconds')}
            />
            <SecretStoreField {...bound('secretStore')} />
          </div>
          {!isFork && (
            <PairsField
              label="Metadata"
              noun="fact"
              hint="Your own keys and values, shown with it and found by the filter."
              pairs={form.metadata}
              error={refusal?.field === 'metadata' ? refusal.reason : undefined}
              onChange={(metadata) => set({ metadata })}
            />
          )}
        </div>
      </details>
    </FormDialog>
  )
}
