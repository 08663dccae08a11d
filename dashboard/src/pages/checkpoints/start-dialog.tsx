import { useNavigate } from '@tanstack/react-router'
import type { AtollError, Sandbox } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import type { Commands } from '../../ui/commands.tsx'
import { SelectField, TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/form-dialog.tsx'
import { useToast } from '../../ui/toasts.tsx'

/** What every start of a sandbox takes. */
export interface StartOptions {
  name?: string
  ttlSeconds?: number
  onIdle?: 'hibernate' | 'stop'
}

interface StartDialogProps {
  title: string
  description?: string
  /** Names the act: `Fork`. */
  action: string
  /** Several at once; 1: there is no field for a number. */
  countMax?: number
  /** One that did not start is an error in the list. */
  start: (options: StartOptions, count: number) => Promise<readonly (Sandbox | AtollError)[]>
  commandsOf: (options: StartOptions, count: number) => Commands
  isReady?: boolean
  onClose: () => void
  /** Default: opens the sandbox, or the list where there are several. */
  onStarted?: (sandboxes: readonly Sandbox[]) => void
  /** Fields of its own, above the others. */
  children?: ReactNode
}

const idleChoices: Record<string, { label: string; options: Pick<StartOptions, 'ttlSeconds' | 'onIdle'> }> = {
  default: { label: 'as the server has it', options: {} },
  hour: { label: 'hibernate after an hour', options: { ttlSeconds: 3600, onIdle: 'hibernate' } },
  never: { label: 'run on', options: { ttlSeconds: 0 } },
  stop: { label: 'delete it after five minutes', options: { ttlSeconds: 300, onIdle: 'stop' } },
}

/** Asks what a new sandbox is called and what ends it, and starts it. */
export function StartDialog(props: StartDialogProps): ReactNode {
  const { title, description, action, countMax = 1, start, commandsOf, isReady = true, onClose, children } = props
  const [name, setName] = useState('')
  const [countText, setCountText] = useState('1')
  const [idle, setIdle] = useState('default')
  const toast = useToast()
  const open = useOpenSandboxes()
  const count = Number(countText)
  const isCount = Number.isSafeInteger(count) && count >= 1 && count <= countMax
  const options: StartOptions = {
    ...(name.trim() === '' || count > 1 ? {} : { name: name.trim() }),
    ...idleChoices[idle]?.options,
  }
  const submit = async () => {
    const { sandboxes, errors } = startedOf(await start(options, count))
    const [first] = errors
    if (first !== undefined)
      toast({ tone: 'bad', text: `${errors.length} of ${count} did not start. The first one: ${first.message}` })
    onClose()
    const then = props.onStarted ?? open
    then(sandboxes)
  }
  return (
    <FormDialog
      title={title}
      {...(description === undefined ? {} : { description })}
      isOpen
      onOpenChange={onClose}
      action={action}
      isReady={isCount && isReady}
      onSubmit={submit}
      commands={commandsOf(options, isCount ? count : 1)}
    >
      {children}
      <TextField
        label="Name"
        value={name}
        maxLength={63}
        disabled={count > 1}
        placeholder="none"
        hint={count > 1 ? 'Several have no names.' : 'Serves wherever its id does: a–z, 0–9 and -.'}
        onChange={({ target }) => setName(target.value)}
      />
      <div className="grid grid-cols-1 gap-4 sm:grid-cols-2">
        <SelectField label="When it is idle" value={idle} onChange={({ target }) => setIdle(target.value)}>
          {Object.entries(idleChoices).map(([value, { label }]) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </SelectField>
        {countMax > 1 && (
          <TextField
            label="How many"
            type="number"
            min={1}
            max={countMax}
            required
            value={countText}
            error={isCount ? undefined : `A whole number from 1 to ${countMax}.`}
            onChange={({ target }) => setCountText(target.value)}
          />
        )}
      </div>
    </FormDialog>
  )
}

function useOpenSandboxes(): (sandboxes: readonly Sandbox[]) => void {
  const navigate = useNavigate()
  return ([first, ...others]) => {
    if (first === undefined || others.length > 0) void navigate({ to: '/sandboxes' })
    else void navigate({ to: '/sandboxes/$sandboxId', params: { sandboxId: first.id } })
  }
}

/** Throws the first reason where none has started. */
function startedOf(results: readonly (Sandbox | AtollError)[]): { sandboxes: Sandbox[]; errors: AtollError[] } {
  const errors = results.filter((result): result is AtollError => result instanceof Error)
  const sandboxes = results.filter((result): result is Sandbox => !(result instanceof Error))
  const [first] = errors
  if (sandboxes.length === 0 && first !== undefined) throw first
  return { sandboxes, errors }
}
