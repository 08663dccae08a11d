import type { ReactNode } from 'react'
import { CheckField, TextField } from '../../../ui/field.tsx'
import type { Draft } from './draft.ts'

export interface DraftProps {
  draft: Draft
  onChange: (change: Partial<Draft>) => void
}

/** What most builds do not need. */
export function BuildOptions({ draft, onChange }: DraftProps): ReactNode {
  return (
    <details className="rounded-md border px-3 py-2">
      <summary className="cursor-pointer font-medium">Memory and running processes</summary>
      <div className="flex flex-col gap-4 py-3">
        <div className="grid grid-cols-1 gap-4 sm:grid-cols-2">
          <TextField
            label="Memory of the build in MiB"
            type="number"
            min={64}
            max={65_536}
            placeholder="4096"
            value={draft.builderMemoryMB}
            onChange={({ target }) => onChange({ builderMemoryMB: target.value })}
          />
          <TextField
            label="Least memory of its sandboxes in MiB"
            type="number"
            min={64}
            max={65_536}
            placeholder="1024"
            value={draft.runtimeMemoryMB}
            onChange={({ target }) => onChange({ runtimeMemoryMB: target.value })}
          />
        </div>
        <CheckField
          label="Keep memory too"
          hint="Its sandboxes go on with the processes that run at the end of the build."
          checked={draft.memory}
          onChange={({ target }) => onChange({ memory: target.checked })}
        />
        {draft.memory && (
          <>
            <TextField
              label="Start command"
              placeholder="python3 -m http.server 8000"
              hint="Runs at the end of the build, and on in each sandbox."
              value={draft.startCommand}
              onChange={({ target }) => onChange({ startCommand: target.value })}
            />
            <TextField
              label="Ready command"
              placeholder="the start command listens on a port"
              hint="Is repeated until it succeeds; then the image is saved."
              value={draft.readyCommand}
              onChange={({ target }) => onChange({ readyCommand: target.value })}
            />
          </>
        )}
      </div>
    </details>
  )
}
