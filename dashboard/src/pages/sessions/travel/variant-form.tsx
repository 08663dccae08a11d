import type { ForkVariant } from 'atoll-sdk'
import { X } from 'lucide-react'
import type { ReactNode } from 'react'
import { IconButton } from '../../../ui/button.tsx'
import { cx } from '../../../ui/cx.ts'
import { Field, inputLook, TextField } from '../../../ui/field.tsx'

/** What a person has written of one variant; empty: as in the session. */
export interface VariantFields {
  id: string
  message: string
  model: string
  systemPrompt: string
  budgetUsd: string
}

export function newVariant(): VariantFields {
  return { id: crypto.randomUUID(), message: '', model: '', systemPrompt: '', budgetUsd: '' }
}

export function variantOf({ message, model, systemPrompt, budgetUsd }: VariantFields): ForkVariant {
  const given = (text: string) => (text.trim() === '' ? undefined : text)
  const budget = given(budgetUsd)
  return {
    message: given(message),
    model: given(model)?.trim(),
    systemPrompt: given(systemPrompt),
    ...(budget === undefined ? {} : { agent: { maxCostUsd: Number(budget) } }),
  }
}

interface VariantFormProps {
  number: number
  fields: VariantFields
  onChange: (changed: Partial<VariantFields>) => void
  /** Absent: it is the only one. */
  onRemove: (() => void) | undefined
}

/** How one variant differs from the session. */
export function VariantForm({ number, fields, onChange, onRemove }: VariantFormProps): ReactNode {
  const { message, model, systemPrompt, budgetUsd } = fields
  return (
    <fieldset className="relative flex min-w-0 flex-col gap-3 rounded-lg border bg-paper p-3">
      <legend className="px-1 font-medium">Variant {number}</legend>
      {onRemove !== undefined && (
        <IconButton
          size="small"
          label={`Remove variant ${number}`}
          icon={<X className="size-4" />}
          className="absolute top-0 right-1"
          onClick={onRemove}
        />
      )}
      <Field label="Message" hint="Sent to it at its begin. Without one it waits.">
        {(ids) => (
          <textarea
            {...ids}
            rows={3}
            className={cx(inputLook, 'h-auto py-1.5')}
            value={message}
            onChange={({ target }) => onChange({ message: target.value })}
          />
        )}
      </Field>
      <details className="group">
        <summary className="w-fit cursor-pointer text-[13px] text-accent">Model, system prompt, budget</summary>
        <div className="mt-3 flex flex-col gap-3">
          <TextField
            label="Model"
            placeholder="as in the session"
            value={model}
            onChange={({ target }) => onChange({ model: target.value })}
          />
          <Field label="System prompt" hint="In place of that of the session.">
            {(ids) => (
              <textarea
                {...ids}
                rows={2}
                className={cx(inputLook, 'h-auto py-1.5')}
                value={systemPrompt}
                onChange={({ target }) => onChange({ systemPrompt: target.value })}
              />
            )}
          </Field>
          <TextField
            label="Budget in US dollars"
            type="number"
            min="0.0001"
            step="any"
            placeholder="as in the session"
            value={budgetUsd}
            onChange={({ target }) => onChange({ budgetUsd: target.value })}
          />
        </div>
      </details>
    </fieldset>
  )
}
