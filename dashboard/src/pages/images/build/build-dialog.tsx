import { useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { Image, type ImageManifest, InvalidRequestError } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { CheckField, TextField } from '../../../ui/field.tsx'
import { FormDialog } from '../../../ui/form-dialog.tsx'
import { Tabs } from '../../../ui/tabs.tsx'
import type { Source } from '../sources.ts'
import { commandsOf } from './build-commands.ts'
import { BuildOptions } from './build-options.tsx'
import { DockerfileField } from './dockerfile-field.tsx'
import {
  type Draft,
  emptyDraft,
  faultOf,
  isEmpty,
  manifestOfDockerfile,
  manifestOfReference,
  manifestOfSteps,
  nameOfReference,
} from './draft.ts'
import { ReferenceField } from './reference-field.tsx'
import { StepsEditor } from './steps-editor.tsx'

interface BuildDialogProps {
  source: Source
  onSource: (source: Source) => void
  onClose: () => void
}

const manifests: Record<Source, (draft: Draft) => ImageManifest> = {
  steps: manifestOfSteps,
  dockerfile: manifestOfDockerfile,
  registry: manifestOfReference,
}

/** Begins the build of an image in the background and opens its page, which shows the log. */
export function BuildDialog({ source, onSource, onClose }: BuildDialogProps): ReactNode {
  const [draft, setDraft] = useState(emptyDraft)
  const [typedName, setName] = useState('')
  const [isReplacing, setReplacing] = useState(false)
  const navigate = useNavigate()
  const queries = useQueryClient()
  const set = (change: Partial<Draft>) => setDraft({ ...draft, ...change })
  const given = source === 'registry' ? nameOfReference(draft.reference) : ''
  const name = typedName.trim() === '' ? given : typedName.trim()
  const manifest = manifests[source](draft)
  const submit = async () => {
    const options = { client, ...(isReplacing ? { replace: true } : {}) }
    const { info } = await Image.begin(name, manifest, options).catch(tellStep)
    await queries.invalidateQueries({ queryKey: ['images'] })
    // By its id: until it is ready the name may mean another.
    await navigate({ to: '/images/$image', params: { image: info.id } })
  }
  return (
    <FormDialog
      title="Build an image"
      description="It is built in the background, also when this page is closed."
      size="wide"
      isOpen
      onOpenChange={onClose}
      action="Build"
      isReady={name !== '' && isSaid(source, draft)}
      onSubmit={submit}
      commands={commandsOf(source, { name: name || 'tools', manifest, isReplacing })}
    >
      <div className="grid grid-cols-1 gap-4 sm:grid-cols-2">
        <TextField
          label="Name"
          autoFocus
          required={given === ''}
          maxLength={257}
          value={typedName}
          placeholder={given === '' ? 'tools, or tools:2' : given}
          hint="Letters, digits, dots, dashes; a tag behind a colon if wanted."
          onChange={({ target }) => setName(target.value)}
        />
        <div className="sm:pt-7">
          <CheckField
            label="Replace an image of this name"
            hint="Once the new one is ready. The old one goes on without a name."
            checked={isReplacing}
            onChange={({ target }) => setReplacing(target.checked)}
          />
        </div>
      </div>
      <Tabs
        label="What the image is made of"
        value={source}
        onChange={(value) => onSource(value as Source)}
        tabs={[
          { value: 'steps', label: 'Steps', content: <StepsEditor draft={draft} onChange={set} /> },
          { value: 'dockerfile', label: 'Dockerfile', content: <DockerfileField draft={draft} onChange={set} /> },
          { value: 'registry', label: 'From a registry', content: <ReferenceField draft={draft} onChange={set} /> },
        ]}
      />
      {source !== 'registry' && <BuildOptions draft={draft} onChange={set} />}
    </FormDialog>
  )
}

/** Steps count from 1 for a reader, and from 0 in `image.steps.0.args.packages`. */
function tellStep(error: unknown): never {
  const [, index, field, reason] =
    /^image\.steps\.(\d+)\.(?:args\.)?(\S+) (.*)$/s.exec(error instanceof InvalidRequestError ? error.message : '') ??
    []
  if (index === undefined) throw error
  throw new Error(`Step ${Number(index) + 1}: ${field} ${reason}`, { cause: error })
}

/** Whether there is something to build, and nothing of it is known to be wrong. */
function isSaid(source: Source, { steps, dockerfile, reference }: Draft): boolean {
  if (source === 'dockerfile') return dockerfile.trim() !== ''
  if (source === 'registry') return reference.trim() !== ''
  return steps.some((step) => !isEmpty(step)) && steps.every((step) => faultOf(step) === undefined)
}
