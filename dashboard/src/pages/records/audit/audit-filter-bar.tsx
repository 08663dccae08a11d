import { type ComponentProps, type FormEvent, type ReactNode, useState } from 'react'
import { Button } from '../../../ui/button.tsx'
import { cx } from '../../../ui/cx.ts'
import { inputLook } from '../../../ui/field.tsx'
import type { ActorNames } from './actors.ts'
import type { AuditFilters } from './entries.ts'

const statuses = ['400', '401', '403', '404', '409', '410', '413', '422', '429', '500', '502', '503', '507']
const suggestionsMax = 200

/** The filters of an audit. They count when the form is sent; a choice counts at once. */
export function AuditFilterBar({
  filters,
  names,
  operations,
  onChange,
}: {
  filters: AuditFilters
  names: ActorNames
  operations: readonly string[]
  onChange: (filters: AuditFilters) => void
}): ReactNode {
  const [draft, setDraft] = useState(filters)
  const isChanged = JSON.stringify(clean(draft)) !== JSON.stringify(clean(filters))
  const set = (name: keyof AuditFilters) => (value: string) => setDraft({ ...draft, [name]: value })
  const submit = (event: FormEvent) => {
    event.preventDefault()
    onChange(clean(draft))
  }
  return (
    <form
      role="search"
      aria-label="Filter of the audit"
      onSubmit={submit}
      className="grid grid-cols-2 items-end gap-2 md:grid-cols-4 2xl:grid-cols-[repeat(6,minmax(0,1fr))_auto]"
    >
      <Filter
        label="Who"
        placeholder="key_…, session_…, sb-…"
        list="audit-actors"
        value={draft.actor}
        onChange={set('actor')}
      />
      <datalist id="audit-actors">
        {[...names].slice(0, suggestionsMax).map(([id, name]) => (
          <option key={id} value={id}>
            {name}
          </option>
        ))}
      </datalist>
      <Filter
        label="Call"
        placeholder="runCommand"
        list="audit-operations"
        value={draft.operation}
        onChange={set('operation')}
      />
      <datalist id="audit-operations">
        {operations.slice(0, suggestionsMax).map((operation) => (
          <option key={operation} value={operation} />
        ))}
      </datalist>
      <Filter label="About" placeholder="An id, name or path" value={draft.subject} onChange={set('subject')} />
      <label className="flex min-w-0 flex-col gap-1 text-[13px]">
        Result
        <select
          className={inputLook}
          value={draft.status ?? ''}
          onChange={({ target }) => onChange(clean({ ...draft, status: target.value }))}
        >
          <option value="">any</option>
          <option value="ok">let in</option>
          {[...new Set([...statuses, ...(filters.status === undefined ? [] : [filters.status])])]
            .filter((status) => status !== 'ok')
            .map((status) => (
              <option key={status} value={status}>
                {status}
              </option>
            ))}
        </select>
      </label>
      <Filter
        label="Not before"
        type="datetime-local"
        value={localOf(draft.from)}
        onChange={(text) => set('from')(isoOf(text))}
      />
      <Filter
        label="Before"
        type="datetime-local"
        value={localOf(draft.to)}
        onChange={(text) => set('to')(isoOf(text))}
      />
      <div className="flex gap-2 max-md:col-span-2">
        <Button type="submit" look="primary" disabled={!isChanged}>
          Apply
        </Button>
        <Button onClick={() => onChange({})} disabled={Object.keys(filters).length === 0 && !isChanged}>
          Clear
        </Button>
      </div>
    </form>
  )
}

function Filter({
  label,
  value = '',
  onChange,
  ...input
}: {
  label: string
  value: string | undefined
  onChange: (value: string) => void
} & Omit<ComponentProps<'input'>, 'value' | 'onChange'>): ReactNode {
  return (
    <label className="flex min-w-0 flex-col gap-1 text-[13px]">
      {label}
      <input
        autoComplete="off"
        spellCheck={false}
        maxLength={500}
        {...input}
        value={value}
        onChange={({ target }) => onChange(target.value)}
        className={cx(inputLook, 'text-sm')}
      />
    </label>
  )
}

function clean(filters: AuditFilters): AuditFilters {
  return Object.fromEntries(
    Object.entries(filters)
      .map(([name, value]: [string, string | undefined]) => [name, value?.trim()] as const)
      .filter(([, value]) => value !== undefined && value !== '')
      .toSorted(([one], [other]) => (one < other ? -1 : 1)),
  )
}

/** `2026-01-15T10:30` of the reader's zone. */
function localOf(iso: string | undefined): string {
  if (iso === undefined || iso === '') return ''
  const date = new Date(iso)
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16)
}

function isoOf(local: string): string {
  const date = new Date(local)
  return Number.isNaN(date.getTime()) ? '' : date.toISOString()
}
