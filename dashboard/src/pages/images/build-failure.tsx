import { useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { Image, type ImageInfo, type ImageManifest } from 'atoll-sdk'
import { CircleAlert } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { client } from '../../account/client.ts'
import { visible } from '../../lib/visible.ts'
import { Button } from '../../ui/button.tsx'
import { JsonText } from '../../ui/json-text.tsx'
import { reasonOf } from '../../ui/states.tsx'
import { useToast } from '../../ui/toasts.tsx'
import { manifestAgain } from './manifest-again.ts'

const errorCharsMax = 2000

/** Why a build has failed, what its step has said last, and the way to try again. */
export function BuildFailure({ info }: { info: ImageInfo }): ReactNode {
  const { name, error = 'no reason is known', stderr = '' } = info
  const manifest = manifestAgain(info.manifest)
  // A short one is in the error already.
  const isTold = error.includes(stderr.trim())
  return (
    <div role="alert" className="flex flex-col gap-2 rounded-md bg-bad-faint px-3 py-2 text-bad">
      <div className="flex items-start gap-2">
        <CircleAlert aria-hidden="true" className="mt-0.5 size-4 shrink-0" />
        <p className="min-w-0 flex-1 break-words">
          The build has failed: {visible(error.slice(0, errorCharsMax))}
          {error.length > errorCharsMax && '…'}
        </p>
        {name !== undefined && manifest !== undefined && <BuildAgain name={name} manifest={manifest} />}
      </div>
      {!isTold && (
        <JsonText
          label="What the step has written last"
          value={withoutControls(stderr)}
          className="max-h-40 text-ink"
        />
      )}
    </div>
  )
}

function withoutControls(text: string): string {
  return text.split('\n').map(visible).join('\n')
}

/** Goes on after the steps that were done. The new build takes the name from the failed one. */
function BuildAgain({ name, manifest }: { name: string; manifest: ImageManifest }): ReactNode {
  const queries = useQueryClient()
  const navigate = useNavigate()
  const toast = useToast()
  const [isBusy, setBusy] = useState(false)
  const run = async () => {
    setBusy(true)
    try {
      const { info } = await Image.begin(name, manifest, { client })
      await queries.invalidateQueries({ queryKey: ['images'] })
      await navigate({ to: '/images/$image', params: { image: info.id } })
    } catch (error) {
      toast({ tone: 'bad', text: `The build was not begun: ${reasonOf(error)}` })
    } finally {
      setBusy(false)
    }
  }
  return (
    <Button size="small" isBusy={isBusy} onClick={() => void run()}>
      Build again
    </Button>
  )
}
