import type { ImageInfo, ImageManifest } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { formatBytes, formatCount } from '../../lib/format.ts'
import { saveText } from '../../lib/save.ts'
import { Button } from '../../ui/button.tsx'
import { JsonText } from '../../ui/json-text.tsx'
import { Panel } from '../../ui/page.tsx'

/** Contents of files stand in the answer as their sizes and hashes. */
type ShownStep = { type: string; args?: Record<string, unknown> }

const stepsMax = 100

/** What the image was asked to be: its Dockerfile, or its steps. */
export function ManifestView({ info }: { info: ImageInfo }): ReactNode {
  const { dockerfile, steps = [] } = info.manifest as Omit<ImageManifest, 'steps'> & { steps?: ShownStep[] }
  const save = () =>
    dockerfile === undefined
      ? saveText(`${info.name ?? info.id}.json`, JSON.stringify(info.manifest, undefined, 2), 'application/json')
      : saveText(`${info.name ?? info.id}.Dockerfile`, dockerfile, 'text/plain')
  return (
    <Panel
      title={dockerfile === undefined ? 'Manifest' : 'Dockerfile'}
      actions={
        <Button size="small" onClick={save}>
          Download
        </Button>
      }
    >
      {dockerfile !== undefined && <JsonText label="Dockerfile" value={dockerfile} />}
      {dockerfile === undefined && steps.length === 0 && <p className="text-soft">It has no steps of its own.</p>}
      {dockerfile === undefined && steps.length > 0 && (
        <ol className="flex flex-col gap-3">
          {steps.slice(0, stepsMax).map((step, index) => (
            <li key={index} className="flex flex-col gap-1">
              <span className="font-medium">
                {index + 1}. {step.type}
              </span>
              <JsonText label={`Step ${index + 1}`} value={textOf(step)} className="max-h-40" />
            </li>
          ))}
          {steps.length > stepsMax && <li className="text-soft">and {formatCount(steps.length - stepsMax)} more</li>}
        </ol>
      )}
    </Panel>
  )
}

function textOf({ type, args = {} }: ShownStep): string {
  const { commands, packages, path, vars, bytes, files } = args
  if (type === 'run' && Array.isArray(commands)) return commands.join('\n')
  if (Array.isArray(packages)) return packages.join(' ')
  if (type === 'env' && typeof vars === 'object' && vars !== null)
    return Object.entries(vars)
      .map(([name, value]) => `${name}=${String(value)}`)
      .join('\n')
  if (typeof path !== 'string') return JSON.stringify(args, undefined, 2)
  if (Array.isArray(files)) return `${path}, ${formatCount(files.length)} files`
  return typeof bytes === 'number' ? `${path}, ${formatBytes(bytes)}` : path
}
