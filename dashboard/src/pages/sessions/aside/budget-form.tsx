import { useMutation, useQueryClient } from '@tanstack/react-query'
import type { SessionChange, SessionInfo } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { Button } from '../../../ui/button.tsx'
import { CommandHint } from '../../../ui/commands.tsx'
import { SelectField, TextField } from '../../../ui/field.tsx'
import { Panel } from '../../../ui/page.tsx'
import { ErrorNote } from '../../../ui/states.tsx'
import { useToast } from '../../../ui/toasts.tsx'
import { faultsOf } from '../field-faults.ts'
import { sessionKey, sessionOf } from '../use-session.ts'

/** Changes the limits of a session and what is kept after its turns. */
export function BudgetForm({ session }: { session: SessionInfo }): ReactNode {
  const { id, userId, agent } = session
  const queries = useQueryClient()
  const toast = useToast()
  const [cost, setCost] = useState(agent.maxCostUsd?.toString() ?? '')
  const [tokens, setTokens] = useState(agent.maxTokens?.toString() ?? '')
  const [checkpoints, setCheckpoints] = useState<string>(agent.checkpoints ?? '')
  const change: SessionChange = {
    ...(cost !== '' && Number(cost) !== agent.maxCostUsd ? { maxCostUsd: Number(cost) } : {}),
    ...(tokens !== '' && Number(tokens) !== agent.maxTokens ? { maxTokens: Number(tokens) } : {}),
    ...(checkpoints !== '' && checkpoints !== agent.checkpoints
      ? { checkpoints: checkpoints as NonNullable<SessionChange['checkpoints']> }
      : {}),
  }
  const isChanged = Object.keys(change).length > 0
  const update = useMutation({
    mutationFn: () => sessionOf(session).update(change),
    onSuccess: async () => {
      toast({ tone: 'good', text: 'The limits are changed.' })
      await queries.invalidateQueries({ queryKey: sessionKey(id) })
    },
  })
  const faults = faultsOf(update.error, ['agent_config.max_cost_usd', 'agent_config.max_tokens'])
  return (
    <Panel title="Limits of the session">
      <form
        className="flex flex-col gap-3"
        onSubmit={(event) => {
          event.preventDefault()
          update.mutate()
        }}
      >
        <TextField
          label="Cost at most"
          hint="US dollars, for the whole session. Needs a model with a price."
          error={faults.fields['agent_config.max_cost_usd']}
          type="number"
          min="0"
          step="any"
          value={cost}
          onChange={({ target }) => setCost(target.value)}
        />
        <TextField
          label="Tokens at most"
          hint="Input and output of all calls together."
          error={faults.fields['agent_config.max_tokens']}
          type="number"
          min="1"
          step="1"
          value={tokens}
          onChange={({ target }) => setTokens(target.value)}
        />
        <SelectField
          label="Kept after each turn"
          hint="What a turn can be gone back to with."
          value={checkpoints}
          onChange={({ target }) => setCheckpoints(target.value)}
        >
          {agent.checkpoints === undefined && <option value="">as the server keeps it</option>}
          <option value="turn">disk and memory</option>
          <option value="disk">the disk</option>
          <option value="none">nothing</option>
        </SelectField>
        {faults.rest !== undefined && <ErrorNote error={faults.rest} />}
        <div className="flex items-center gap-2">
          <Button type="submit" look="primary" isBusy={update.isPending} disabled={!isChanged}>
            Change the limits
          </Button>
          <CommandHint
            commands={{
              cli: `atoll session set ${id}${flagsOf(change)}`,
              curl: {
                method: 'PATCH',
                path: `/v1/sessions/${id}`,
                json: { user_id: userId, agent_config: asSent(change) },
              },
              sdk: `await session.update(${JSON.stringify(change)})`,
            }}
          />
        </div>
      </form>
    </Panel>
  )
}

function flagsOf({ maxCostUsd, maxTokens, checkpoints }: SessionChange): string {
  const flag = (name: string, value: string | number | undefined) => (value === undefined ? '' : ` --${name} ${value}`)
  return flag('max-cost-usd', maxCostUsd) + flag('max-tokens', maxTokens) + flag('checkpoints', checkpoints)
}

function asSent({ maxCostUsd, maxTokens, checkpoints }: SessionChange) {
  return { max_cost_usd: maxCostUsd, max_tokens: maxTokens, checkpoints }
}
