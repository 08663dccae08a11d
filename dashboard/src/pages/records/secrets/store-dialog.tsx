import { useQueryClient } from '@tanstack/react-query'
import type { SecretStoreInfo } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { quoted } from '../../../ui/commands.tsx'
import { CheckField, TextField } from '../../../ui/field.tsx'
import { FormDialog } from '../../../ui/form-dialog.tsx'
import { HostsField, hostsOf } from './hosts.tsx'

/** Makes a store, or changes one. */
export function StoreDialog({
  store,
  onClose,
  onDone,
}: {
  store?: SecretStoreInfo
  onClose: () => void
  onDone?: (store: SecretStoreInfo) => void
}): ReactNode {
  const queries = useQueryClient()
  const [name, setName] = useState(store?.name ?? '')
  const [hosts, setHosts] = useState(store?.egressAllowlist.join('\n') ?? '')
  const [isDefault, setDefault] = useState(store?.isDefault ?? false)
  const egressAllowlist = hostsOf(hosts)
  const json = { name: name.trim(), egressAllowlist, isDefault }
  const submit = async () => {
    const done =
      store === undefined ? await client.secrets.createStore(json) : await client.secrets.updateStore(store.id, json)
    queries.setQueryData(['secret-store', done.id], done)
    await queries.invalidateQueries({ queryKey: ['secret-stores'] })
    onClose()
    onDone?.(done)
  }
  const isRenamed = store !== undefined && json.name !== store.name
  return (
    <FormDialog
      title={store === undefined ? 'New secret store' : `Change ${store.name}`}
      isOpen
      onOpenChange={onClose}
      action={store === undefined ? 'Make the store' : 'Change the store'}
      isReady={json.name !== ''}
      onSubmit={submit}
      commands={
        store === undefined
          ? {
              cli: `atoll secret store create ${quoted(json.name || 'production')}${egressAllowlist.map((host) => ` --allow ${quoted(host)}`).join('')}${isDefault ? ' --default' : ''}`,
              curl: { path: '/api/secret-stores', json },
              sdk: `await client.secrets.createStore(${JSON.stringify(json)})`,
            }
          : {
              curl: { method: 'PUT', path: `/api/secret-stores/${store.id}`, json },
              sdk: `await client.secrets.updateStore('${store.id}', ${JSON.stringify(json)})`,
            }
      }
    >
      <TextField
        label="Name"
        required
        maxLength={128}
        autoFocus
        value={name}
        onChange={({ target }) => setName(target.value)}
        placeholder="production"
        hint={
          isRenamed
            ? 'Sandboxes are given a store by its name: those with the present name lose it.'
            : 'Sandboxes are given the store by it. Unique in the organisation.'
        }
      />
      <HostsField
        label="Hosts that its sandboxes reach"
        hint="One on each line: a name, *.name, or *. A sandbox with the store reaches nothing else. Empty: no restriction."
        value={hosts}
        onChange={setHosts}
      />
      <CheckField
        label="For all sandboxes"
        hint="Every sandbox of the organisation has it, beneath the store that it names itself."
        checked={isDefault}
        onChange={({ target }) => setDefault(target.checked)}
      />
    </FormDialog>
  )
}
