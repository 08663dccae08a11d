import { useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { Image, type ImageInfo } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { client } from '../../account/client.ts'
import { literalOf } from '../../sandboxes/literal.ts'
import { quoted } from '../../ui/commands.tsx'
import { CheckField, TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/form-dialog.tsx'

/** Gives an image another name, and opens the image of that name. */
export function TagDialog({ info, onClose }: { info: ImageInfo; onClose: () => void }): ReactNode {
  const queries = useQueryClient()
  const navigate = useNavigate()
  const [typed, setName] = useState('')
  const [isReplacing, setReplacing] = useState(false)
  const name = typed.trim()
  const replace = isReplacing ? { replace: true } : {}
  const submit = async () => {
    const tagged = await new Image(client, info).tag(name, replace)
    await queries.invalidateQueries({ queryKey: ['images', 'list'] })
    onClose()
    await navigate({ to: '/images/$image', params: { image: tagged.info.name ?? tagged.info.id } })
  }
  const from = info.name ?? info.id
  return (
    <FormDialog
      title="Give the image another name"
      description="An image of its own with the same content: deleting one leaves the other."
      isOpen
      onOpenChange={onClose}
      action="Name it"
      isReady={name !== ''}
      onSubmit={submit}
      commands={{
        cli: `atoll image tag ${quoted(from)} ${quoted(name || 'tools:3')}${isReplacing ? ' --replace' : ''}`,
        curl: {
          method: 'POST',
          path: `/api/images/${encodeURIComponent(info.id)}/tag`,
          json: { name: name || 'tools:3', ...replace },
        },
        sdk: `await image.tag(${literalOf(name || 'tools:3')}${isReplacing ? ', { replace: true }' : ''})`,
      }}
    >
      <TextField
        label="Name"
        autoFocus
        required
        maxLength={257}
        value={typed}
        placeholder="tools, or tools:3"
        hint="Letters, digits, dots, dashes; a tag behind a colon if wanted."
        onChange={({ target }) => setName(target.value)}
      />
      <CheckField
        label="Take the name from another image"
        hint="That one goes on without a name."
        checked={isReplacing}
        onChange={({ target }) => setReplacing(target.checked)}
      />
    </FormDialog>
  )
}
