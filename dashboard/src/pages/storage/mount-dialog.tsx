import { Sandbox } from 'atoll-sdk'
import { Play } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { client } from '../../account/client.ts'
import { quoted } from '../../lib/quoted.ts'
import { Button } from '../../ui/button.tsx'
import { CheckField, TextField } from '../../ui/field.tsx'
import { StartDialog } from '../checkpoints/start-dialog.tsx'
import { createCommands } from '../sandboxes/commands.ts'

/** The button and the dialog that start a sandbox with the volume. */
export function MountDialog({ name, hasWriter }: { name: string; hasWriter: boolean }): ReactNode {
  const [isOpen, setOpen] = useState(false)
  const [path, setPath] = useState('/data')
  const [isReadOnly, setReadOnly] = useState(hasWriter)
  const volumes = [{ name, path: path.trim(), readOnly: isReadOnly }]
  return (
    <>
      <Button look="primary" onClick={() => setOpen(true)}>
        <Play aria-hidden="true" className="size-4" /> Start a sandbox
      </Button>
      {isOpen && (
        <StartDialog
          title={`Start a sandbox with ${name}`}
          action="Start"
          isReady={path.trim().startsWith('/')}
          start={async (options) => [await Sandbox.create({ client, ...options, volumes })]}
          commandsOf={(options) => {
            const { cli = '', curl, sdk } = createCommands({ ...options, volumes })
            const json = { ...(curl?.json as object), volumes }
            return {
              cli: `${cli} --volume ${quoted(`${name}:${path.trim()}${isReadOnly ? ':ro' : ''}`)}`,
              curl: { method: 'POST', path: '/api/sandboxes', json },
              ...(sdk === undefined ? {} : { sdk }),
            }
          }}
          onClose={() => setOpen(false)}
        >
          <TextField
            label="Path"
            required
            value={path}
            error={path.trim().startsWith('/') ? undefined : 'The path begins with /.'}
            hint="Where the sandbox has it."
            onChange={({ target }) => setPath(target.value)}
          />
          <CheckField
            label="Read only"
            hint={
              hasWriter ? 'Another sandbox writes it, and one alone may.' : 'Without it no other sandbox may write it.'
            }
            checked={isReadOnly}
            onChange={({ target }) => setReadOnly(target.checked)}
          />
        </StartDialog>
      )}
    </>
  )
}
