import { useBlocker } from '@tanstack/react-router'
import type { FileInfo, Files } from 'atoll-sdk'
import { useRef, useState, type KeyboardEvent, type ReactNode } from 'react'
import { formatCount } from '../../../lib/format.ts'
import { Button } from '../../../ui/button.tsx'
import { cx } from '../../../ui/cx.ts'
import { Confirm } from '../../../ui/dialog.tsx'
import { ConflictDialog } from './conflict-dialog.tsx'
import { fileReason } from './file-reason.ts'
import { lineHeightPx, LineNumbers } from './line-numbers.tsx'
import type { Place } from './place.ts'
import { conflictOf, type FileConflict, type TextBase, writeText } from './save-text.ts'

interface TextEditorProps {
  files: Files
  place: Place
  /** What was read. Another needs another `key`. */
  read: TextBase
  mayWrite: boolean
  awake: () => Promise<boolean>
  onReadAgain: () => void
  onSaved: (info: FileInfo) => void
}

/** Browsers become slow with a longer line that does not wrap. */
const lineCharactersMax = 5000
const directions = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/

/** A text with line numbers. It is not written over what somebody else has written since it was read. */
export function TextEditor({ files, place, read, mayWrite, awake, onReadAgain, onSaved }: TextEditorProps): ReactNode {
  const field = useRef<HTMLTextAreaElement>(null)
  const [base, setBase] = useState(read)
  const [isDirty, setDirty] = useState(false)
  const [lines, setLines] = useState(() => lineCountOf(read.content.text))
  const [isSaved, setSaved] = useState(false)
  const [isSaving, setSaving] = useState(false)
  const [error, setError] = useState<unknown>()
  const [conflict, setConflict] = useState<FileConflict>()
  const [wraps] = useState(() => longestLine(read.content.text) > lineCharactersMax)
  const blocker = useBlocker({
    shouldBlockFn: ({ current, next }) =>
      isDirty &&
      (current.pathname !== next.pathname ||
        pick(current.search, 'tab') !== pick(next.search, 'tab') ||
        pick(current.search, 'path') !== pick(next.search, 'path')),
    enableBeforeUnload: () => isDirty,
    withResolver: true,
  })
  const onInput = () => {
    const text = field.current?.value ?? ''
    setDirty(text !== base.content.text)
    setLines(lineCountOf(text))
  }
  const save = async (isAgreed: boolean) => {
    const text = field.current?.value
    if (text === undefined || isSaving || !(await awake())) return
    setSaving(true)
    setError(undefined)
    setConflict(undefined)
    try {
      const found = isAgreed ? undefined : await conflictOf(files, place, base)
      if (found !== undefined) return setConflict(found)
      const saved = await writeText(files, place, text, base)
      setBase(saved)
      setDirty(field.current?.value !== text)
      setSaved(true)
      onSaved(saved.info)
    } catch (reason) {
      setError(reason)
    } finally {
      setSaving(false)
    }
  }
  const onKey = (event: KeyboardEvent) => {
    if (event.key !== 's' || !(event.ctrlKey || event.metaKey)) return
    event.preventDefault()
    if (mayWrite && isDirty) void save(false)
  }
  return (
    <div className="flex min-h-0 flex-1 flex-col" onKeyDown={onKey}>
      <div
        className="flex min-h-0 flex-1 font-mono text-[13px] -outline-offset-2 focus-within:outline-2 focus-within:outline-accent"
        style={{ lineHeight: `${lineHeightPx}px` }}
      >
        {!wraps && <LineNumbers field={field} count={lines} />}
        <textarea
          ref={field}
          aria-label="Text of the file"
          className={cx(
            'min-w-0 flex-1 resize-none bg-transparent px-2 py-2 outline-none',
            wraps ? 'break-all whitespace-pre-wrap' : 'overflow-auto whitespace-pre',
          )}
          wrap={wraps ? 'soft' : 'off'}
          spellCheck={false}
          autoCapitalize="off"
          autoComplete="off"
          dir="ltr"
          readOnly={!mayWrite}
          defaultValue={read.content.text}
          onInput={onInput}
        />
      </div>
      <footer className="flex min-h-10 flex-wrap items-center gap-x-3 gap-y-1 border-t px-3 py-1 text-[13px] text-soft">
        <span>
          {formatCount(lines)} {lines === 1 ? 'line' : 'lines'}
        </span>
        {base.content.lineEnds === 'crlf' && <span>CRLF</span>}
        {base.content.lineEnds === 'mixed' && <span className="text-warn">Mixed line ends: saving makes them LF</span>}
        {directions.test(base.content.text) && (
          <span className="text-warn">It has characters that show text in another order</span>
        )}
        {error !== undefined && (
          <span role="alert" className="text-bad">
            Not saved: {fileReason(error)}
          </span>
        )}
        <span role="status" className="ml-auto">
          {isDirty ? 'Not saved' : isSaved && 'Saved'}
        </span>
        {mayWrite && (
          <Button
            size="small"
            look="primary"
            title="Ctrl S"
            disabled={!isDirty}
            isBusy={isSaving}
            onClick={() => void save(false)}
          >
            Save
          </Button>
        )}
      </footer>
      {conflict !== undefined && (
        <ConflictDialog
          conflict={conflict}
          onCancel={() => setConflict(undefined)}
          onReadAgain={onReadAgain}
          onOverwrite={() => void save(true)}
        />
      )}
      <Confirm
        isOpen={blocker.status === 'blocked'}
        onOpenChange={(isOpen) => !isOpen && blocker.reset?.()}
        title="Leave without saving?"
        action="Leave"
        onConfirm={async () => blocker.proceed?.()}
      >
        What you have changed in this file is lost.
      </Confirm>
    </div>
  )
}

function lineCountOf(text: string): number {
  let count = 1
  for (let index = text.indexOf('\n'); index !== -1; index = text.indexOf('\n', index + 1)) count += 1
  return count
}

function longestLine(text: string): number {
  let [longest, start] = [0, 0]
  for (let end = text.indexOf('\n'); ; end = text.indexOf('\n', start)) {
    longest = Math.max(longest, (end === -1 ? text.length : end) - start)
    if (end === -1) return longest
    start = end + 1
  }
}

function pick(search: object, name: string): unknown {
  return (search as Record<string, unknown>)[name]
}
