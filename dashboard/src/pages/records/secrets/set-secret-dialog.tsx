import { useQueryClient } from '@tanstack/react-query'
import type { SecretInfo, SecretSetInfo, SecretStoreInfo, SetSecretOptions } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { Button } from '../../../ui/button.tsx'
import { type Commands, quoted } from '../../../ui/commands.tsx'
import { Dialog } from '../../../ui/dialog.tsx'
import { TextField } from '../../../ui/field.tsx'
import { FormDialog } from '../../../ui/form-dialog.tsx'
import { HostsField, hostsOf } from './hosts.tsx'
import { SecretOutcome } from './secret-outcome.tsx'
import { SecretRules, type Rules, rulesOf } from './secret-rules.tsx'
import { ValueField } from './value-field.tsx'

/**
 * Sets a secret, or another value of one, whose rules it begins with: a set replaces them too. The value is in this form alone, from its typing
 * until the call is made.
 */
export function SetSecretDialog({
  store,
  secret,
  onClose,
}: {
  store: SecretStoreInfo
  secret?: SecretInfo
  onClose: () => void
}): ReactNode {
  const queries = useQueryClient()
  const [name, setName] = useState(secret?.name ?? '')
  const [value, setValue] = useState('')
  const [hosts, setHosts] = useState(secret?.allowedHosts.join('\n') ?? '')
  const [rules, setRules] = useState<Rules>(() => rulesOf(secret))
  const [outcome, setOutcome] = useState<SecretSetInfo>()
  const options: SetSecretOptions = {
    allowedHosts: hostsOf(hosts),
    in: rules.places,
    placeholder: rules.placeholder.trim() || 'sealed',
    ...(rules.isSigning
      ? { sign: { type: 'aws-sigv4', ...(rules.accessKeyId === '' ? {} : { accessKeyId: rules.accessKeyId }) } }
      : {}),
  }
  const submit = async () => {
    const done = await client.secrets.set(store.id, name.trim(), value, options)
    setValue('')
    await queries.invalidateQueries({ queryKey: ['secrets', store.id] })
    setOutcome(done)
  }
  if (outcome !== undefined)
    return (
      <Dialog title={`${outcome.name} is set`} isOpen onOpenChange={onClose}>
        <SecretOutcome outcome={outcome} />
        <div className="mt-4 flex justify-end">
          <Button onClick={onClose}>Close</Button>
        </div>
      </Dialog>
    )
  return (
    <FormDialog
      title={secret === undefined ? `Set a secret of ${store.name}` : `Set another value for ${secret.name}`}
      description="What runs with the store sends the new value from its next request on."
      isOpen
      onOpenChange={onClose}
      action="Set the secret"
      isReady={/^[A-Za-z_]\w{0,63}$/.test(name.trim()) && value !== '' && rules.places.length > 0}
      onSubmit={submit}
      commands={commandsOf(store, name.trim() || 'NAME', options)}
    >
      {secret === undefined && (
        <TextField
          label="Name"
          required
          autoFocus
          maxLength={64}
          value={name}
          onChange={({ target }) => setName(target.value)}
          placeholder="GITHUB_TOKEN"
          hint="The variable in which a sandbox finds the placeholder: letters, digits and _. One of the same name is replaced."
        />
      )}
      <ValueField value={value} onChange={setValue} autoFocus={secret !== undefined} />
      <HostsField
        label="Hosts to which it is sent"
        hint="One on each line: a name, *.name, or *. Empty: the hosts that the sandbox’s egress lists, and without a list none."
        value={hosts}
        onChange={setHosts}
      />
      <SecretRules rules={rules} onChange={setRules} isOpen={secret !== undefined} />
    </FormDialog>
  )
}

/** The value stands in no command: the reader’s own environment has it. */
function commandsOf(store: SecretStoreInfo, name: string, options: SetSecretOptions): Commands {
  const { allowedHosts = [], in: places = [], placeholder = 'sealed', sign } = options
  const flags = [
    ...allowedHosts.map((host) => `--host ${quoted(host)}`),
    ...(places.join() === 'header,basic,body' ? [] : places.map((place) => `--in ${place}`)),
    ...(placeholder === 'sealed' ? [] : [`--placeholder ${quoted(placeholder)}`]),
    ...(sign === undefined ? [] : [`--sign ${sign.type}`]),
    ...(sign?.accessKeyId === undefined ? [] : [`--access-key-id ${quoted(sign.accessKeyId)}`]),
  ]
  return {
    cli: `printf %s "$VALUE" | atoll secret set ${[quoted(store.name), quoted(name), ...flags].join(' ')}`,
    sdk: `await client.secrets.set('${store.id}', ${JSON.stringify(name)}, process.env.VALUE, ${JSON.stringify(options)})`,
  }
}
