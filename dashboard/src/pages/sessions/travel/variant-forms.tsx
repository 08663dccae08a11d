import { useMutation } from '@tanstack/react-query'
import type { AtollError, ForkVariant, SessionInfo } from 'atoll-sdk'
import { Plus } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { Button } from '../../../ui/button.tsx'
import { CommandHint, quoted } from '../../../ui/commands.tsx'
import { ErrorNote } from '../../../ui/states.tsx'
import { sessionOf } from '../use-session.ts'
import { ForkEstimate } from './fork-estimate.tsx'
import { newVariant, variantOf, VariantForm, type VariantFields } from './variant-form.tsx'

const variantsMax = 6

interface VariantFormsProps {
  session: SessionInfo
  /** The message at the end of whose turn they begin; undefined: now. */
  at: string | undefined
  /** Of those that are there already count the numbers before. */
  firstNumber: number
  onStarted: () => void
}

/** Describes variants, says what they would take, and starts them at once. Those that did not start are told with their reasons. */
export function VariantForms({ session, at, firstNumber, onStarted }: VariantFormsProps): ReactNode {
  const [fields, setFields] = useState<readonly VariantFields[]>([newVariant(), newVariant()])
  const [failed, setFailed] = useState<readonly { number: number; error: AtollError }[]>([])
  const place = at === undefined ? undefined : { messageId: at }
  const start = useMutation({
    mutationFn: () => sessionOf(session).fork({ at: place, variants: fields.map(variantOf) }),
    onSuccess: (made) => {
      const isFailed = made.map((one) => 'error' in one)
      setFailed(
        made.flatMap((one, index) => ('error' in one ? [{ number: firstNumber + index, error: one.error }] : [])),
      )
      // What did not start stays in the form.
      const left = fields.filter((_one, index) => isFailed[index] === true)
      setFields(left.length === 0 ? [newVariant(), newVariant()] : left)
      onStarted()
    },
  })
  const change = (id: string, changed: Partial<VariantFields>) =>
    setFields(fields.map((one) => (one.id === id ? { ...one, ...changed } : one)))
  return (
    <form
      className="flex flex-col gap-4"
      onSubmit={(event) => {
        event.preventDefault()
        setFailed([])
        start.mutate()
      }}
    >
      <div className="grid gap-4 md:grid-cols-2 xl:grid-cols-3">
        {fields.map((one, index) => (
          <VariantForm
            key={one.id}
            number={firstNumber + index}
            fields={one}
            onChange={(changed) => change(one.id, changed)}
            onRemove={fields.length > 1 ? () => setFields(fields.filter(({ id }) => id !== one.id)) : undefined}
          />
        ))}
      </div>
      <ForkEstimate session={session} count={fields.length} />
      {failed.map(({ number, error }) => (
        <ErrorNote key={number} error={new Error(`Variant ${number} has not started: ${error.message}`)} />
      ))}
      {start.isError && <ErrorNote error={start.error} />}
      <div className="flex flex-wrap items-center gap-2">
        <Button type="submit" look="primary" isBusy={start.isPending}>
          Start {fields.length} {fields.length === 1 ? 'variant' : 'variants'}
        </Button>
        <Button disabled={fields.length >= variantsMax} onClick={() => setFields([...fields, newVariant()])}>
          <Plus aria-hidden="true" className="size-4" /> Another variant
        </Button>
        <CommandHint commands={commandsOf(session, at, fields.map(variantOf))} />
      </div>
    </form>
  )
}

function commandsOf(session: SessionInfo, at: string | undefined, variants: readonly ForkVariant[]) {
  const messages = variants
    .map(({ message }) => (message === undefined ? '' : ` --message ${quoted(message)}`))
    .join('')
  const from = at === undefined ? '' : ` --at ${at}`
  const count = messages === '' ? ` --count ${variants.length}` : messages
  const place = at === undefined ? '' : `at: { messageId: '${at}' }, `
  return {
    cli: `atoll session fork ${quoted(session.name ?? session.id)}${from}${count}`,
    curl: {
      method: 'POST',
      path: `/v1/sessions/${session.id}/fork`,
      json: {
        user_id: session.userId,
        ...(at === undefined ? {} : { at: { message_id: at } }),
        variants: variants.map(({ message, model, systemPrompt, agent }) => ({
          message,
          model,
          system_prompt: systemPrompt,
          ...(agent === undefined ? {} : { agent_config: { max_cost_usd: agent.maxCostUsd } }),
        })),
      },
    },
    sdk: `const forks = await session.fork({ ${place}variants: ${JSON.stringify(variants)} })`,
  }
}
