import { Check, Copy } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { IconButton } from './button.tsx'
import { cx } from './cx.ts'
import { useToast } from './toasts.tsx'

const copiedMs = 1500

export function CopyButton({ text, label = 'Copy' }: { text: string; label?: string }): ReactNode {
  const [isCopied, setCopied] = useState(false)
  const toast = useToast()
  const copy = async () => {
    try {
      // Absent at an address without TLS that is not this machine.
      await navigator.clipboard.writeText(text)
      setCopied(true)
      setTimeout(() => setCopied(false), copiedMs)
    } catch {
      toast({ tone: 'bad', text: 'The browser does not let this page copy. Select the text instead.' })
    }
  }
  return (
    <IconButton
      label={isCopied ? 'Copied' : label}
      icon={isCopied ? <Check className="size-4 text-good" /> : <Copy className="size-4" />}
      onClick={() => void copy()}
    />
  )
}

/** A line of text in a fixed width that can be copied. */
export function CodeLine({ text, label, className }: { text: string; label?: string; className?: string }): ReactNode {
  return (
    <div className={cx('flex min-w-0 items-start gap-1 rounded-md border bg-panel py-0.5 pr-0.5 pl-3', className)}>
      {/* What scrolls must be reached by the keyboard. */}
      <code
        tabIndex={0}
        className="min-w-0 flex-1 self-center overflow-x-auto py-1 font-mono text-[13px] whitespace-pre"
      >
        {text}
      </code>
      <CopyButton text={text} {...(label === undefined ? {} : { label })} />
    </div>
  )
}
