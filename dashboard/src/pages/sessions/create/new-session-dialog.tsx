import { useNavigate } from '@tanstack/react-router'
import { Session } from 'atoll-sdk'
import { useId, useState, type ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { Field, inputLook, SelectField, TextField } from '../../../ui/field.tsx'
import { FormDialog } from '../../../ui/form-dialog.tsx'
import { cx } from '../../../ui/cx.ts'
import { faultsOf } from '../field-faults.ts'
import { SandboxFields } from './sandbox-fields.tsx'
import { commandsOf, emptyForm, fieldNames, optionsOf, type NewSessionForm } from './new-session.ts'

interface NewSessionDialogProps {
  /** What the sandbox starts from. */
  checkpoint: string | undefined
  /** Models of sessions that are known. */
  models: readonly string[]
  onClose: () => void
}

/** Starts an agent on a prompt and goes to its page. */
export function NewSessionDialog({ checkpoint, models, onClose }: NewSessionDialogProps): ReactNode {
  const [form, setForm] = useState<NewSessionForm>({ ...emptyForm, checkpointId: checkpoint ?? '' })
  const [refusal, setRefusal] = useState<unknown>()
  const navigate = useNavigate()
  const modelList = useId()
  const set = (change: Partial<NewSessionForm>) => setForm({ ...form, ...change })
  const { fields } = faultsOf(refusal, fieldNames)
  const bound = <Name extends 'userId' | 'name' | 'model' | 'command' | 'maxCostUsd' | 'maxTokens'>(name: Name) => ({
    value: form[name],
    onChange: ({ target }: { target: { value: string } }) => set({ [name]: target.value }),
  })
  const create = async () => {
    setRefusal(undefined)
    try {
      const session = await Session.create({ client, ...optionsOf(form) })
      await navigate({ to: '/sessions/$sessionId', params: { sessionId: session.id } })
    } catch (error) {
      const faults = faultsOf(error, fieldNames)
      setRefusal(error)
      if (faults.rest !== undefined) throw faults.rest
    }
  }
  return (
    <FormDialog
      title="New session"
      description="An agent starts on the prompt in a sandbox of its own."
      isOpen
      onOpenChange={onClose}
      action="Start the session"
      isReady={form.prompt.trim() !== '' && form.userId.trim() !== ''}
      onSubmit={create}
      commands={commandsOf(form)}
    >
      <Field label="Prompt" error={fields['prompt']}>
        {(ids) => (
          <textarea
            {...ids}
            dir="auto"
            required
            autoFocus
            rows={3}
            placeholder="A page about coral reefs"
            value={form.prompt}
            onChange={({ target }) => set({ prompt: target.value })}
            className={cx(inputLook, 'field-sizing-content h-auto max-h-60 min-h-20 py-1.5')}
          />
        )}
      </Field>
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField
          label="Model"
          hint="Empty: that of the server."
          placeholder="provider/model"
          list={modelList}
          error={fields['agent_config.model']}
          {...bound('model')}
        />
        <datalist id={modelList}>
          {models.map((model) => (
            <option key={model} value={model} />
          ))}
        </datalist>
        <SelectField
          label="Agent"
          value={form.harness}
          error={form.harness === 'acp' ? undefined : fields['agent_config.harness']}
          onChange={({ target }) => set({ harness: target.value as NewSessionForm['harness'] })}
        >
          <option value="pi">pi</option>
          <option value="claude">claude (Claude Agent SDK)</option>
          <option value="acp">another one, by ACP</option>
        </SelectField>
        {form.harness === 'acp' && (
          <div className="sm:col-span-2">
            <TextField
              label="Command of the agent"
              hint="A program of the image or checkpoint that speaks the Agent Client Protocol."
              placeholder="qwen --acp"
              required
              error={fields['agent_config.harness']}
              {...bound('command')}
            />
          </div>
        )}
        <TextField
          label="Cost at most"
          hint="US dollars. Then it pauses."
          type="number"
          min="0"
          step="any"
          placeholder="no limit"
          error={fields['agent_config.max_cost_usd']}
          {...bound('maxCostUsd')}
        />
        <TextField
          label="Tokens at most"
          hint="Input and output together."
          type="number"
          min="1"
          step="1"
          placeholder="no limit"
          error={fields['agent_config.max_tokens']}
          {...bound('maxTokens')}
        />
      </div>
      <details
        className="rounded-md border px-3 py-2"
        open={checkpoint !== undefined || Object.keys(fields).some((name) => hidden.has(name)) || undefined}
      >
        <summary className="cursor-pointer font-medium">More</summary>
        <div className="mt-3 flex flex-col gap-4">
          <div className="grid gap-4 sm:grid-cols-2">
            <TextField
              label="User"
              hint="Whose session it is."
              error={fields['user_id']}
              required
              {...bound('userId')}
            />
            <TextField
              label="Name"
              hint="Serves like its id."
              placeholder="none"
              error={fields['name']}
              {...bound('name')}
            />
          </div>
          <Field label="System prompt" hint="Added to that of the agent." error={fields['agent_config.system_prompt']}>
            {(ids) => (
              <textarea
                {...ids}
                dir="auto"
                rows={2}
                value={form.systemPrompt}
                onChange={({ target }) => set({ systemPrompt: target.value })}
                className={cx(inputLook, 'field-sizing-content h-auto max-h-40 min-h-14 py-1.5')}
              />
            )}
          </Field>
          <SandboxFields form={form} fields={fields} onChange={set} />
        </div>
      </details>
    </FormDialog>
  )
}

/** Fields of the folded part: it opens when one of them is refused. */
const hidden = new Set(['user_id', 'name', 'agent_config.system_prompt', 'checkpoint_id', 'secret_store', 'volumes'])
