import type { OrganisationInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { TextField } from '../../../ui/field.tsx'
import { boundOf, type LimitDraft, limitFacts, limitNames } from '../limits.ts'

export function LimitFields({
  draft,
  onChange,
  defaults,
}: {
  draft: LimitDraft
  onChange: (draft: LimitDraft) => void
  /** Of an organisation that is there: what is in force now. */
  defaults?: OrganisationInfo | undefined
}): ReactNode {
  return (
    <fieldset>
      <legend className="font-medium">Limits</legend>
      <p className="mb-3 text-[13px] text-soft">
        Empty: the default of the installation. A limit below what is there ends nothing; it refuses what comes.
      </p>
      <div className="grid items-start gap-3 sm:grid-cols-2 lg:grid-cols-3">
        {limitNames.map((name) => {
          const { label, unit, format } = limitFacts[name]
          const text = draft[name] ?? ''
          const isOwn = defaults?.limits[name] !== undefined && defaults.limits[name] !== null
          const inForce = defaults === undefined || isOwn ? undefined : boundOf(defaults.effectiveLimits, name)
          return (
            <TextField
              key={name}
              label={unit === undefined ? label : `${label} (${unit})`}
              type="number"
              min={0}
              step={name === 'budgetUsdPerMonth' ? '0.01' : name === 'cpuCountMax' ? 'any' : 1}
              value={text}
              placeholder={inForce === undefined ? 'default' : `default: ${inForce}`}
              onChange={({ target }) => onChange({ ...draft, [name]: target.value })}
              {...(text === '' || Number.isNaN(Number(text)) || unit === undefined
                ? {}
                : { hint: format(Number(text)) })}
            />
          )
        })}
      </div>
    </fieldset>
  )
}
