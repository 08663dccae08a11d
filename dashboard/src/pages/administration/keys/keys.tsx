import { useNavigate, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { useAccount } from '../../../account/account.tsx'
import { client } from '../../../account/client.ts'
import { Page } from '../../../ui/page.tsx'
import { KeyList } from './key-list.tsx'
import { useNewKey } from './new-key.tsx'

export function KeysPage(): ReactNode {
  const { key } = useSearch({ from: '/shell/keys' })
  const navigate = useNavigate({ from: '/keys' })
  const account = useAccount()
  const place = { keys: client.keys, path: '/api/keys', queryKey: ['keys'], ownId: account?.key.id }
  const make = useNewKey(place)
  return (
    <Page
      title="Keys"
      isFilling
      actions={make.button}
      lead="A key gives no more than it has itself, and ends with the one that made it."
    >
      <KeyList
        place={place}
        onMake={make.open}
        openId={key}
        onOpen={(id) => void navigate({ search: id === undefined ? {} : { key: id }, replace: true })}
      />
      {make.dialog}
    </Page>
  )
}
