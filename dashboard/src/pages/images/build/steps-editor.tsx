import { useQuery } from '@tanstack/react-query'
import { ArrowDown, ArrowUp, Plus, Trash2 } from 'lucide-react'
import { useId, type ReactNode } from 'react'
import { Button, IconButton } from '../../../ui/button.tsx'
import { inputLook, TextField } from '../../../ui/field.tsx'
import { imagesQuery } from '../listed-image.ts'
import type { DraftProps } from './build-options.tsx'
import { type DraftStep, faultOf, stepKinds } from './draft.ts'
import { areaLook } from './area-look.ts'

/** Bounded, as each is drawn. A build of more is better written as a file. */
const stepsMax = 100
/** Names that the field of the base proposes. */
const proposedMax = 200

export function StepsEditor({ draft, onChange }: DraftProps): ReactNode {
  const { steps } = draft
  const listId = useId()
  const { data: images = [] } = useQuery(imagesQuery)
  const names = [...new Set(images.flatMap(({ name, status }) => (status === 'failed' ? [] : (name ?? []))))]
  const change = (key: number, to: Partial<DraftStep>) =>
    onChange({ steps: steps.map((step) => (step.key === key ? { ...step, ...to } : step)) })
  const move = (from: number, by: number) => {
    const moved = steps.toSpliced(from, 1)
    const step = steps[from]
    if (step !== undefined) onChange({ steps: moved.toSpliced(from + by, 0, step) })
  }
  const add = () => {
    const key = 1 + Math.max(0, ...steps.map((step) => step.key))
    onChange({ steps: [...steps, { key, kind: 'run', text: '', path: '' }] })
  }
  return (
    <div className="flex flex-col gap-4">
      <TextField
        label="On top of"
        list={listId}
        placeholder="base"
        hint="The name of an image. base is Debian 12 with Python 3 and Node 24."
        value={draft.base}
        onChange={({ target }) => onChange({ base: target.value })}
      />
      <datalist id={listId}>
        {names.slice(0, proposedMax).map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <ol className="flex flex-col gap-3">
        {steps.map((step, index) => (
          <li key={step.key} className="flex flex-col gap-2 rounded-md border p-3">
            <div className="flex items-center gap-1">
              <span className="w-6 text-soft tabular-nums">{index + 1}</span>
              <select
                aria-label={`What step ${index + 1} does`}
                className={`${inputLook} max-w-48`}
                value={step.kind}
                onChange={({ target }) => change(step.key, { kind: target.value as DraftStep['kind'] })}
              >
                {Object.entries(stepKinds).map(([kind, label]) => (
                  <option key={kind} value={kind}>
                    {label}
                  </option>
                ))}
              </select>
              <div className="ml-auto flex">
                <IconButton
                  label={`Move step ${index + 1} up`}
                  icon={<ArrowUp className="size-4" />}
                  disabled={index === 0}
                  onClick={() => move(index, -1)}
                />
                <IconButton
                  label={`Move step ${index + 1} down`}
                  icon={<ArrowDown className="size-4" />}
                  disabled={index === steps.length - 1}
                  onClick={() => move(index, 1)}
                />
                <IconButton
                  label={`Remove step ${index + 1}`}
                  icon={<Trash2 className="size-4" />}
                  onClick={() => onChange({ steps: steps.filter(({ key }) => key !== step.key) })}
                />
              </div>
            </div>
            <StepFields step={step} number={index + 1} onChange={(to) => change(step.key, to)} />
          </li>
        ))}
      </ol>
      <Button className="self-start" disabled={steps.length >= stepsMax} onClick={add}>
        <Plus aria-hidden="true" className="size-4" /> Add a step
      </Button>
    </div>
  )
}

const fields: Record<DraftStep['kind'], { placeholder: string; hint?: string; rows: number }> = {
  run: {
    placeholder: 'echo prepared > /opt/state',
    hint: 'A command on each line, in one shell. The first that fails ends the build.',
    rows: 3,
  },
  apt: { placeholder: 'jq ripgrep', rows: 1 },
  pip: { placeholder: 'requests pytest==8.3', rows: 1 },
  npm: { placeholder: 'tsx typescript@5', hint: 'Installed for the whole system.', rows: 1 },
  env: { placeholder: 'MODE=test', hint: 'NAME=value on each line, in force in sandboxes too.', rows: 2 },
  workdir: { placeholder: '/srv/app', hint: 'Is made. Later commands begin in it.', rows: 1 },
  file: { placeholder: 'What the file holds', rows: 4 },
}

function StepFields({
  step,
  number,
  onChange,
}: {
  step: DraftStep
  number: number
  onChange: (to: Partial<DraftStep>) => void
}): ReactNode {
  const id = useId()
  const { placeholder, hint, rows } = fields[step.kind]
  const fault = faultOf(step)
  const note = fault ?? hint
  const common = {
    'aria-label': `${stepKinds[step.kind]} of step ${number}`,
    'aria-describedby': note === undefined ? undefined : id,
    'aria-invalid': fault !== undefined || undefined,
    spellCheck: false,
    placeholder,
    value: step.text,
  }
  return (
    <>
      {step.kind === 'file' && (
        <input
          aria-label={`Path of the file of step ${number}`}
          className={inputLook}
          spellCheck={false}
          autoComplete="off"
          placeholder="/etc/motd"
          value={step.path}
          onChange={({ target }) => onChange({ path: target.value })}
        />
      )}
      {rows === 1 ? (
        <input
          {...common}
          autoComplete="off"
          className={inputLook}
          onChange={({ target }) => onChange({ text: target.value })}
        />
      ) : (
        <textarea
          {...common}
          rows={rows}
          className={areaLook}
          onChange={({ target }) => onChange({ text: target.value })}
        />
      )}
      {note !== undefined && (
        <p id={id} className={`text-[13px] ${fault === undefined ? 'text-soft' : 'text-bad'}`}>
          {note}
        </p>
      )}
    </>
  )
}
