import { useQueryClient } from '@tanstack/react-query'
import { AtollError, type EgressInfo, type EgressPolicy, type SandboxInfo } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { nameOf, sandboxOf } from '../../sandboxes/sandbox.ts'
import { CheckField, Field, inputLook, SelectField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/form-dialog.tsx'
import { cx } from '../../ui/cx.ts'
import { egressCommands } from './commands.ts'
import { rulesOf, textOfRule } from './egress-rules.ts'
import { egressQuery } from './queries.ts'

type Mode = NonNullable<EgressInfo['policy']>['mode']

const modes: Record<Mode, string> = {
  all: 'everything but what is denied',
  list: 'only what is allowed',
  none: 'nothing',
}

/** Replaces what the sandbox itself may reach; the other layers hold besides. */
export function EgressDialog({
  info,
  policy,
  onClose,
}: {
  info: SandboxInfo
  policy: EgressInfo['policy']
  onClose: () => void
}): ReactNode {
  const [mode, setMode] = useState<Mode>(policy?.mode ?? 'all')
  const [allow, setAllow] = useState(() => (policy?.allow ?? []).map(textOfRule).join('\n'))
  const [deny, setDeny] = useState(() => (policy?.deny ?? []).map(textOfRule).join('\n'))
  const [logOnly, setLogOnly] = useState(policy?.logOnly ?? false)
  const [refusal, setRefusal] = useState<{ field: 'allow' | 'deny'; reason: string }>()
  const queries = useQueryClient()
  const built = (): EgressPolicy => ({
    mode,
    ...(mode === 'list' ? { allow: rulesOf(allow) } : {}),
    ...(mode === 'none' ? {} : { deny: rulesOf(deny) }),
    logOnly,
  })
  const submit = async () => {
    setRefusal(undefined)
    try {
      queries.setQueryData(egressQuery(info).queryKey, await sandboxOf(info).egress.set(built()))
      onClose()
    } catch (error) {
      const field = error instanceof AtollError ? String(error.details['field']) : ''
      if (!/\b(allow|deny)\b/.test(field)) throw error
      setRefusal({
        field: field.includes('deny') ? 'deny' : 'allow',
        reason: error instanceof Error ? error.message : '',
      })
    }
  }
  return (
    <FormDialog
      title={`What ${nameOf(info)} may reach`}
      description="In force at once, for open connections too. It is not woken."
      isOpen
      onOpenChange={onClose}
      action="Save"
      onSubmit={submit}
      {...commandsOf(nameOf(info), built)}
    >
      <SelectField label="It may reach" value={mode} onChange={({ target }) => setMode(target.value as Mode)}>
        {Object.entries(modes).map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </SelectField>
      {mode === 'list' && (
        <RulesField
          label="Allowed"
          value={allow}
          onChange={setAllow}
          error={refusal?.field === 'allow' ? refusal.reason : undefined}
        />
      )}
      {mode !== 'none' && (
        <RulesField
          label="Denied"
          value={deny}
          onChange={setDeny}
          error={refusal?.field === 'deny' ? refusal.reason : undefined}
        />
      )}
      <CheckField
        label="Only record"
        hint="What would be refused passes, and the log has it."
        checked={logOnly}
        onChange={({ target }) => setLogOnly(target.checked)}
      />
    </FormDialog>
  )
}

function RulesField({
  label,
  value,
  onChange,
  error,
}: {
  label: string
  value: string
  onChange: (text: string) => void
  error: string | undefined
}): ReactNode {
  return (
    <Field
      label={label}
      error={error}
      hint="A line each: a host, *.name, an address or block, with :port if wanted; or a rule as JSON, with methods and paths."
    >
      {(ids) => (
        <textarea
          {...ids}
          rows={4}
          spellCheck={false}
          placeholder={'api.example.com\n*.example.org:443'}
          className={cx(inputLook, 'h-auto py-1.5 font-mono text-[13px]')}
          value={value}
          onChange={({ target }) => onChange(target.value)}
        />
      )}
    </Field>
  )
}

/** Half-written rules have no command yet. */
function commandsOf(sandbox: string, built: () => EgressPolicy) {
  try {
    return { commands: egressCommands(sandbox, built()) }
  } catch {
    return {}
  }
}
