import type { SecretInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { CheckField, TextField } from '../../../ui/field.tsx'

type Place = SecretInfo['in'][number]

export interface Rules {
  places: Place[]
  placeholder: string
  isSigning: boolean
  /** Empty: `AWS_ACCESS_KEY_ID`. */
  accessKeyId: string
}

const places: readonly (readonly [place: Place, hint: string])[] = [
  ['header', 'Headers of the request'],
  ['basic', 'User and password of Basic authentication, as git over HTTPS sends them'],
  ['body', 'The body'],
  ['query', 'The query of the URL, which servers write into logs'],
  ['path', 'The path of the URL, which servers write into logs'],
]
const shapes = [
  ...['sealed', 'openai', 'anthropic', 'github', 'github-pat', 'gitlab', 'npm', 'slack', 'stripe', 'google'],
  ...['aws-access-key', 'aws-secret-key', 'jwt', 'uuid'],
]

/** The rules of a secret, or those of a new one. */
export function rulesOf(secret: SecretInfo | undefined): Rules {
  return {
    places: secret?.in ?? ['header', 'basic', 'body'],
    placeholder: secret?.placeholder ?? 'sealed',
    isSigning: secret?.sign !== undefined,
    accessKeyId: secret?.sign?.accessKeyId ?? '',
  }
}

/** Where the value is put, and how its placeholder looks. */
export function SecretRules({
  rules,
  onChange,
  isOpen,
}: {
  rules: Rules
  onChange: (rules: Rules) => void
  isOpen: boolean
}): ReactNode {
  const change = (part: Partial<Rules>) => onChange({ ...rules, ...part })
  const toggle = (place: Place) =>
    change({
      places: places.map(([one]) => one).filter((one) => rules.places.includes(one) !== (one === place)),
    })
  return (
    <details open={isOpen} className="rounded-md border px-3 py-2">
      <summary className="cursor-pointer font-medium">How it is used</summary>
      <div className="mt-3 flex flex-col gap-4">
        <TextField
          label="Placeholder"
          list="secret-shapes"
          maxLength={256}
          value={rules.placeholder}
          onChange={({ target }) => change({ placeholder: target.value })}
          hint="A known shape, or a pattern of your own such as key-{32} or {hex:40}, for clients that check the form of a key."
        />
        <datalist id="secret-shapes">
          {shapes.map((shape) => (
            <option key={shape} value={shape} />
          ))}
        </datalist>
        <fieldset className="flex flex-col gap-1.5">
          <legend className="mb-1.5 font-medium">Parts of a request in which it is put</legend>
          {places.map(([place, hint]) => (
            <CheckField
              key={place}
              label={place}
              hint={hint}
              checked={rules.places.includes(place)}
              onChange={() => toggle(place)}
            />
          ))}
          {rules.places.length === 0 && <p className="text-[13px] text-bad">Choose at least one.</p>}
        </fieldset>
        <CheckField
          label="It signs requests and is not sent"
          hint="Signature Version 4 of AWS. The id of the access key is another secret."
          checked={rules.isSigning}
          onChange={({ target }) => change({ isSigning: target.checked })}
        />
        {rules.isSigning && (
          <TextField
            label="Secret with the id of the access key"
            maxLength={64}
            placeholder="AWS_ACCESS_KEY_ID"
            value={rules.accessKeyId}
            onChange={({ target }) => change({ accessKeyId: target.value })}
          />
        )}
      </div>
    </details>
  )
}
