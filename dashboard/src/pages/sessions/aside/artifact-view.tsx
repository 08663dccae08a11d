import { useQuery } from '@tanstack/react-query'
import { Sandbox } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { formatBytes } from '../../../lib/format.ts'
import { Dialog } from '../../../ui/dialog.tsx'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import { CodeText } from '../conversation/code-text.tsx'
import { plainText } from '../conversation/plain-text.ts'

/** Bytes of a text that are read. */
const bytesMax = 512 * 1024
/** What an `img` element draws without running what is in it. */
const pictures = /\.(?:png|jpe?g|gif|webp|avif|svg|ico)$/i

/** Where a file of a sandbox is read with the cookie of this page. */
export function filePathOf(sandboxId: string, path: string): string {
  return `/api/sandboxes/${encodeURIComponent(sandboxId)}/files?path=${encodeURIComponent(path)}`
}

/** A file that the agent has made: a picture, or the beginning of its text. */
export function ArtifactView({
  sandboxId,
  path,
  onClose,
}: {
  sandboxId: string
  path: string
  onClose: () => void
}): ReactNode {
  return (
    <Dialog title={path} size="wide" isOpen onOpenChange={onClose}>
      {pictures.test(path) ? (
        <img
          src={filePathOf(sandboxId, path)}
          alt={path}
          className="mx-auto max-h-[70dvh] max-w-full bg-panel object-contain"
        />
      ) : (
        <FileText sandboxId={sandboxId} path={path} />
      )}
    </Dialog>
  )
}

function FileText({ sandboxId, path }: { sandboxId: string; path: string }): ReactNode {
  const { data, error, refetch } = useQuery({
    queryKey: ['sandbox', sandboxId, 'file-text', path],
    gcTime: 0,
    queryFn: async ({ signal }) => {
      const { files } = await Sandbox.connect(sandboxId, { client, signal })
      return await beginningOf(await files.readStream(path, { signal }))
    },
  })
  if (error !== null) return <ErrorNote error={error} onRetry={() => void refetch()} />
  if (data === undefined) return <Loading label="Reading the file" />
  return (
    <>
      {data.isBinary ? (
        <p className="text-soft">This is no text. Download it to open it.</p>
      ) : (
        <CodeText text={data.text} label={path} />
      )}
      {data.isCut && (
        <p className="mt-2 text-[13px] text-soft">Only its first {formatBytes(bytesMax)} are read here.</p>
      )}
    </>
  )
}

async function beginningOf(
  stream: ReadableStream<Uint8Array>,
): Promise<{ text: string; isBinary: boolean; isCut: boolean }> {
  const decoder = new TextDecoder()
  let text = ''
  let size = 0
  let isCut = false
  for await (const bytes of stream) {
    const part = bytes.subarray(0, bytesMax - size)
    size += part.length
    text += decoder.decode(part, { stream: true })
    // Leaving the loop lets the rest of the body go.
    if (part.length < bytes.length) {
      isCut = true
      break
    }
  }
  return { text: plainText(text), isBinary: text.includes('\0'), isCut }
}
