import { useQueryClient } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { NewWebhook, WebhookChange, WebhookInfo, WebhookWithSecret } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { Button } from '../../../ui/button.tsx'
import { type Commands, quoted } from '../../../ui/commands.tsx'
import { cx } from '../../../ui/cx.ts'
import { Dialog } from '../../../ui/dialog.tsx'
import { CheckField, Field, inputLook, TextField } from '../../../ui/field.tsx'
import { FormDialog } from '../../../ui/form-dialog.tsx'
import { SecretOnce } from '../../../ui/secret-once.tsx'

const headersMax = 20

/** Makes a destination and shows its secret, or changes one. */
export function WebhookDialog({ webhook, onClose }: { webhook?: WebhookInfo; onClose: () => void }): ReactNode {
  const queries = useQueryClient()
  const [url, setUrl] = useState(webhook?.url ?? '')
  const [name, setName] = useState(webhook?.name ?? '')
  const [types, setTypes] = useState(webhook?.eventTypes.join('\n') ?? '')
  const [sandboxId, setSandboxId] = useState('')
  const [headers, setHeaders] = useState('')
  const [isThin, setThin] = useState(webhook?.payload === 'thin')
  const [made, setMade] = useState<WebhookWithSecret>()
  const eventTypes = types.split(/[\s,]+/).filter((type) => type !== '')
  const payload = isThin ? 'thin' : 'full'
  const metadata = headersOf(headers)
  const created: NewWebhook = {
    ...{ url: url.trim(), payload },
    ...(name.trim() === '' ? {} : { name: name.trim() }),
    ...(eventTypes.length === 0 ? {} : { eventTypes }),
    ...(sandboxId.trim() === '' ? {} : { sandboxId: sandboxId.trim() }),
    ...(metadata === undefined || Object.keys(metadata).length === 0 ? {} : { metadata }),
  }
  const change: WebhookChange = {
    ...{ url: url.trim(), name: name.trim(), payload },
    eventTypes: eventTypes.length === 0 ? null : eventTypes,
  }
  const submit = async () => {
    if (webhook === undefined) setMade(await client.webhooks.create(created))
    else await client.webhooks.update(webhook.id, change)
    await queries.invalidateQueries({ queryKey: ['webhooks'] })
    if (webhook !== undefined) onClose()
  }
  if (made !== undefined)
    return (
      <Dialog title="The destination is made" isOpen isKept onOpenChange={onClose}>
        <WebhookSecret secret={made.secret ?? ''} />
        <div className="mt-4 flex items-center justify-end gap-2">
          <Button onClick={onClose}>Close</Button>
          <Link
            to="/webhooks/$id"
            params={{ id: made.id }}
            className="inline-flex h-8 items-center rounded-md bg-accent px-3 font-medium text-accent-ink"
          >
            Open the destination
          </Link>
        </div>
      </Dialog>
    )
  return (
    <FormDialog
      title={webhook === undefined ? 'New destination' : 'Change the destination'}
      isOpen
      onOpenChange={onClose}
      action={webhook === undefined ? 'Make the destination' : 'Change the destination'}
      isReady={URL.canParse(url.trim()) && metadata !== undefined}
      onSubmit={submit}
      commands={
        webhook === undefined
          ? createCommands(created, headers)
          : {
              curl: { method: 'PATCH', path: `/api/webhooks/${webhook.id}`, json: change },
              sdk: `await client.webhooks.update('${webhook.id}', ${JSON.stringify(change)})`,
            }
      }
    >
      <TextField
        label="URL"
        type="url"
        required
        autoFocus
        value={url}
        onChange={({ target }) => setUrl(target.value)}
        placeholder="https://example.com/hook"
        hint="https on port 443 or 8443, at a public address; the operator may allow more."
      />
      <TextField
        label="Name"
        maxLength={128}
        value={name}
        onChange={({ target }) => setName(target.value)}
        hint="For people."
      />
      <Lines
        label="Events"
        hint="One type or prefix.* on each line. Empty: all events."
        placeholder={'sandbox.*\nsession.failed'}
        value={types}
        onChange={setTypes}
      />
      {webhook === undefined && (
        <>
          <TextField
            label="Only of this sandbox"
            value={sandboxId}
            onChange={({ target }) => setSandboxId(target.value)}
            placeholder="sb-…"
            hint="Empty: of all. The destination goes with the record of its sandbox."
          />
          <Lines
            label="Headers of each delivery"
            hint="One on each line. They are stored encrypted and never shown again."
            placeholder="X-Gateway-Token: …"
            value={headers}
            onChange={setHeaders}
            error={metadata === undefined ? `Write “Name: value”, at most ${headersMax} of them.` : undefined}
          />
        </>
      )}
      <CheckField
        label="Ids alone"
        hint="For a receiver that reads the rest from the API."
        checked={isThin}
        onChange={({ target }) => setThin(target.checked)}
      />
    </FormDialog>
  )
}

export function WebhookSecret({ secret }: { secret: string }): ReactNode {
  return (
    <SecretOnce
      secret={secret}
      label="Copy the secret"
      note="The secret with which your receiver verifies each delivery. Keep it where the receiver runs."
    >
      <p>
        How to verify:{' '}
        <a href="/docs/use/webhooks" className="text-accent underline">
          the page about webhooks
        </a>{' '}
        in the docs.
      </p>
    </SecretOnce>
  )
}

function Lines({
  label,
  hint,
  error,
  placeholder,
  value,
  onChange,
}: {
  label: string
  hint: string
  error?: string | undefined
  placeholder: string
  value: string
  onChange: (value: string) => void
}): ReactNode {
  return (
    <Field label={label} hint={hint} error={error}>
      {(ids) => (
        <textarea
          {...ids}
          rows={2}
          autoComplete="off"
          spellCheck={false}
          placeholder={placeholder}
          value={value}
          onChange={({ target }) => onChange(target.value)}
          className={cx(inputLook, 'h-auto py-1.5 font-mono text-[13px]')}
        />
      )}
    </Field>
  )
}

/** Undefined: a line is no header, or there are too many. */
function headersOf(text: string): Record<string, string> | undefined {
  const headers: Record<string, string> = {}
  for (const line of text.split('\n')) {
    if (line.trim() === '') continue
    const [, name, value] = /^\s*([\w!#$%&'*+.^`|~-]+)\s*:\s*(.*?)\s*$/.exec(line) ?? []
    if (name === undefined || value === undefined) return undefined
    headers[name] = value
  }
  return Object.keys(headers).length > headersMax ? undefined : headers
}

function createCommands(created: NewWebhook, headers: string): Commands {
  const { url, name, eventTypes = [], sandboxId, payload } = created
  const flags = [
    ...(name === undefined ? [] : [`--name ${quoted(name)}`]),
    ...eventTypes.map((type) => `--type ${quoted(type)}`),
    ...(sandboxId === undefined ? [] : [`--sandbox ${quoted(sandboxId)}`]),
    ...(payload === 'thin' ? ['--thin'] : []),
    // Their values may be secrets.
    ...Object.keys(headersOf(headers) ?? {}).map((header) => `--header "${header}: $VALUE"`),
  ]
  const { metadata: _metadata, ...json } = created
  return {
    cli: `atoll webhook create ${[quoted(url || 'https://example.com/hook'), ...flags].join(' ')}`,
    curl: { path: '/api/webhooks', json },
    sdk: `await client.webhooks.create(${JSON.stringify(json)})`,
  }
}
