import type { ReactNode } from 'react'
import type { Scope } from '../../../account/account.tsx'
import { Button } from '../../../ui/button.tsx'
import { CheckField } from '../../../ui/field.tsx'
import { allScopes, scopeTexts } from './scope-texts.ts'

/** What a new key may do. */
export function ScopesField({
  offered,
  canHaveAll,
  isAll,
  onAll,
  chosen,
  onChoose,
  isWithoutWhole,
}: {
  offered: readonly Scope[]
  /** The maker may do all, those of later versions too. */
  canHaveAll: boolean
  isAll: boolean
  onAll: (isAll: boolean) => void
  chosen: readonly Scope[]
  onChoose: (scopes: readonly Scope[]) => void
  /** A name prefix takes the scopes of the whole organisation away. */
  isWithoutWhole: boolean
}): ReactNode {
  const toggle = (scope: Scope) => onChoose(allScopes.filter((one) => chosen.includes(one) !== (one === scope)))
  return (
    <fieldset className="flex flex-col gap-2">
      <legend className="mb-1 font-medium">What it may do</legend>
      {canHaveAll && (
        <>
          <Choice
            label={isWithoutWhole ? 'All that a name prefix can bound' : 'All, that of later versions too'}
            isChosen={isAll}
            onChoose={() => onAll(true)}
          />
          <Choice label="Only what is chosen" isChosen={!isAll} onChoose={() => onAll(false)} />
        </>
      )}
      {!isAll && (
        <div className="flex flex-col gap-1.5 rounded-md border p-3">
          <div className="flex gap-2">
            <Button size="small" onClick={() => onChoose(offered)}>
              Choose all
            </Button>
            <Button size="small" onClick={() => onChoose(offered.filter((scope) => scope.endsWith(':read')))}>
              Only reading
            </Button>
            <Button size="small" onClick={() => onChoose([])}>
              None
            </Button>
          </div>
          {offered.map((scope) => (
            <CheckField
              key={scope}
              label={scope}
              hint={scopeTexts[scope]}
              checked={chosen.includes(scope)}
              onChange={() => toggle(scope)}
            />
          ))}
          {chosen.length === 0 && <p className="text-[13px] text-soft">Choose at least one.</p>}
        </div>
      )}
      {isWithoutWhole && (
        <p className="text-[13px] text-soft">
          A key with a name prefix has no scope that shows or changes the whole organisation.
        </p>
      )}
    </fieldset>
  )
}

function Choice({ label, isChosen, onChoose }: { label: string; isChosen: boolean; onChoose: () => void }): ReactNode {
  return (
    <label className="flex items-center gap-2">
      <input
        type="radio"
        name="key-scopes"
        className="size-4 accent-accent"
        checked={isChosen}
        onChange={() => onChoose()}
      />
      {label}
    </label>
  )
}
