import type { ReactNode } from 'react'
import { Field } from '../../../ui/field.tsx'
import type { DraftProps } from './build-options.tsx'
import { areaLook } from './area-look.ts'

const charsMax = 1024 * 1024

export function DockerfileField({ draft, onChange }: DraftProps): ReactNode {
  return (
    <Field
      label="Text of the Dockerfile"
      hint={
        <>
          COPY takes files of other stages and here-documents. Those of a folder are sent by{' '}
          <code className="font-mono">atoll image build NAME FOLDER</code>.
        </>
      }
    >
      {(ids) => (
        <textarea
          {...ids}
          rows={12}
          spellCheck={false}
          maxLength={charsMax}
          className={areaLook}
          placeholder={'FROM base\nRUN echo prepared > /opt/state\nENV MODE=test'}
          value={draft.dockerfile}
          onChange={({ target }) => onChange({ dockerfile: target.value })}
        />
      )}
    </Field>
  )
}
