import { Link } from '@tanstack/react-router'
import { Boxes, Cpu, MessagesSquare } from 'lucide-react'
import { useState, type FormEvent, type ReactNode } from 'react'
import { useMay } from '../../account/account.tsx'
import { Button } from '../../ui/button.tsx'
import { type Commands, CommandLines } from '../../ui/commands.tsx'
import { Field, inputLook } from '../../ui/field.tsx'
import { cx } from '../../ui/cx.ts'
import { Page } from '../../ui/page.tsx'
import { EmptyState, ErrorNote } from '../../ui/states.tsx'
import { imageCommands, sandboxCommands, sessionCommands, useBeginSandbox, useBeginSession } from './use-begin.ts'

/** Three things to do, each one click from something alive. */
export function FirstMinute(): ReactNode {
  const may = useMay()
  const isOffered = may('sandbox:write') || may('session:write') || may('image')
  return (
    <Page title="Begin here" lead="There is nothing yet. Each of these takes one click, or one line elsewhere.">
      {!isOffered && (
        <EmptyState title="This key makes nothing">
          It has none of the scopes sandbox:write, session:write and image. What others make will be shown here.
        </EmptyState>
      )}
      <div className="grid grid-cols-1 items-stretch gap-4 lg:grid-cols-3">
        {may('sandbox:write') && <BeginSandbox />}
        {may('session:write') && <BeginSession />}
        {may('image') && <BeginImage />}
      </div>
    </Page>
  )
}

function Begin({
  icon,
  title,
  text,
  commands,
  children,
}: {
  icon: ReactNode
  title: string
  text: string
  commands: Commands
  children: ReactNode
}): ReactNode {
  return (
    <section className="flex min-w-0 flex-col gap-3 rounded-lg border bg-raised p-4">
      <h2 className="flex items-center gap-2 text-base font-semibold">
        {icon}
        {title}
      </h2>
      <p className="text-soft">{text}</p>
      {children}
      <div className="mt-auto pt-2">
        <CommandLines commands={commands} />
      </div>
    </section>
  )
}

const iconLook = 'size-5 text-accent'
const beginLook =
  'inline-flex h-8 shrink-0 items-center justify-center gap-1.5 rounded-md border border-transparent bg-accent px-3 font-medium whitespace-nowrap text-accent-ink hover:opacity-90'

function BeginSandbox(): ReactNode {
  const { mutate, isPending, error } = useBeginSandbox()
  return (
    <Begin
      icon={<Boxes aria-hidden="true" className={iconLook} />}
      title="A sandbox"
      text="A Linux machine of your own, there in a moment. It sleeps when nobody uses it and wakes with its processes."
      commands={sandboxCommands}
    >
      <Button look="primary" className="self-start" isBusy={isPending} onClick={() => mutate()}>
        Create it and open a terminal
      </Button>
      {error !== null && <ErrorNote error={error} />}
    </Begin>
  )
}

function BeginSession(): ReactNode {
  const [prompt, setPrompt] = useState('A page about coral reefs')
  const { mutate, isPending, error } = useBeginSession()
  const given = prompt.trim()
  const submit = (event: FormEvent) => {
    event.preventDefault()
    if (given !== '') mutate(given)
  }
  return (
    <Begin
      icon={<MessagesSquare aria-hidden="true" className={iconLook} />}
      title="A session"
      text="An agent that works on what you ask, in a sandbox of its own, with a preview of what it builds."
      commands={sessionCommands(given)}
    >
      <form onSubmit={submit} className="flex flex-col gap-3">
        <Field label="What shall it make?">
          {(ids) => (
            <textarea
              {...ids}
              rows={2}
              required
              className={cx(inputLook, 'h-auto resize-y py-1.5')}
              value={prompt}
              onChange={({ target }) => setPrompt(target.value)}
            />
          )}
        </Field>
        <Button look="primary" type="submit" className="self-start" isBusy={isPending} disabled={given === ''}>
          Start the session
        </Button>
      </form>
      {error !== null && <ErrorNote error={error} />}
    </Begin>
  )
}

function BeginImage(): ReactNode {
  return (
    <Begin
      icon={<Cpu aria-hidden="true" className={iconLook} />}
      title="An image"
      text="What sandboxes start from: built once from a Dockerfile, a registry or steps, started any number of times."
      commands={imageCommands}
    >
      <Link to="/images" search={{ new: 'image' }} className={cx(beginLook, 'self-start')}>
        Build an image
      </Link>
    </Begin>
  )
}
