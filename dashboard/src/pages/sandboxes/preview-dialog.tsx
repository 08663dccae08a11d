import { useQueryClient } from '@tanstack/react-query'
import { AtollError, type PreviewInfo, type SandboxInfo } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { defined } from '../../lib/search.ts'
import { nameOf, sandboxOf } from '../../sandboxes/sandbox.ts'
import { CodeLine } from '../../ui/copy.tsx'
import { Dialog } from '../../ui/dialog.tsx'
import { SelectField, TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/form-dialog.tsx'
import { SecretOnce } from '../../ui/secret-once.tsx'
import { previewCommands } from './commands.ts'
import { previewsQuery } from './queries.ts'

type TokenChoice = 'keep' | 'none' | 'auto' | 'own'

interface PreviewDialogProps {
  info: SandboxInfo
  port: number
  preview: PreviewInfo | undefined
  onClose: () => void
}

/** Sets and takes away the token that visitors of a port need, and its domain. A new token is shown once. */
export function PreviewDialog({ info, port, preview, onClose }: PreviewDialogProps): ReactNode {
  const hasToken = preview?.authConfig.scheme !== undefined
  const [choice, setChoice] = useState<TokenChoice>(hasToken ? 'keep' : 'none')
  const [own, setOwn] = useState('')
  const [domain, setDomain] = useState(preview?.customHostname ?? '')
  const [refusal, setRefusal] = useState<{ field: unknown; reason: string }>()
  const [made, setMade] = useState<PreviewInfo>()
  const queries = useQueryClient()
  const known = preview?.customHostname ?? ''
  const change = defined({
    token: choice === 'auto' ? 'auto' : choice === 'own' ? own : choice === 'none' && hasToken ? null : undefined,
    domain: domain.trim() === known ? undefined : domain.trim() === '' ? null : domain.trim(),
  })
  const submit = async () => {
    try {
      const set = await sandboxOf(info).preview(port, change)
      await queries.invalidateQueries({ queryKey: previewsQuery(info).queryKey })
      if (set.previewAuthToken === undefined && set.verification === undefined) onClose()
      else setMade(set)
    } catch (error) {
      const field = error instanceof AtollError ? error.details['field'] : undefined
      if (typeof field !== 'string' || !/^(domain|authConfig)/.test(field)) throw error
      setRefusal({ field: field.split('.')[0], reason: error instanceof Error ? error.message : '' })
    }
  }
  if (made !== undefined) return <Made preview={made} onClose={onClose} />
  return (
    <FormDialog
      title={`Preview of port ${port}`}
      description={`Of ${nameOf(info)}.`}
      isOpen
      onOpenChange={onClose}
      action="Save"
      isReady={Object.keys(change).length > 0 && (choice !== 'own' || own !== '')}
      onSubmit={submit}
      commands={previewCommands(nameOf(info), port, { ...change, ...(choice === 'own' ? { token: 'TOKEN' } : {}) })}
    >
      <SelectField
        label="Visitors need"
        value={choice}
        onChange={({ target }) => setChoice(target.value as TokenChoice)}
      >
        {hasToken && <option value="keep">the token that they need now</option>}
        <option value="none">no token of this port</option>
        <option value="auto">a new token, made by the server</option>
        <option value="own">a new token of your own</option>
      </SelectField>
      {choice === 'own' && (
        <TextField
          label="Token"
          type="password"
          autoComplete="new-password"
          required
          minLength={16}
          hint="16 and more characters."
          value={own}
          error={refusal?.field === 'authConfig' ? refusal.reason : undefined}
          onChange={({ target }) => setOwn(target.value)}
        />
      )}
      <TextField
        label="Domain"
        placeholder="none"
        hint="A host name of your own, such as app.example.com. A record of its DNS proves it."
        value={domain}
        error={refusal?.field === 'domain' ? refusal.reason : undefined}
        onChange={({ target }) => setDomain(target.value)}
      />
    </FormDialog>
  )
}

function Made({ preview, onClose }: { preview: PreviewInfo; onClose: () => void }): ReactNode {
  const { previewAuthToken, verification, port, hostname } = preview
  return (
    <Dialog title={`Preview of port ${port}`} isOpen onOpenChange={onClose}>
      <div className="flex flex-col gap-4">
        {previewAuthToken !== undefined && <SecretOnce secret={previewAuthToken} label="The token" />}
        {verification !== undefined && (
          <div className="flex flex-col gap-2">
            <p>These records of its DNS lead the domain here and prove that it is yours:</p>
            <CodeLine text={`${verification.name} TXT "${verification.value}"`} label="Copy the TXT record" />
            <CodeLine text={`${preview.customHostname ?? ''} CNAME ${hostname}`} label="Copy the CNAME record" />
          </div>
        )}
      </div>
    </Dialog>
  )
}
