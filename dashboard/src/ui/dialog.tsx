import { X } from 'lucide-react'
import { AlertDialog as RadixAlert, Dialog as Radix } from 'radix-ui'
import { useState, type ReactNode } from 'react'
import { Button, IconButton } from './button.tsx'
import { cx } from './cx.ts'
import { ErrorNote } from './states.tsx'
import { useSubmit } from './use-submit.ts'

const veil = 'fixed inset-0 z-40 bg-black/40'
const sheet =
  'fixed top-1/2 left-1/2 z-50 flex max-h-[90dvh] w-[calc(100vw-2rem)] -translate-x-1/2 -translate-y-1/2 flex-col rounded-lg border bg-raised shadow-xl'

interface DialogProps {
  title: string
  /** One sentence for screen readers and people; absent where the title says all. */
  description?: string
  isOpen: boolean
  onOpenChange: (isOpen: boolean) => void
  children: ReactNode
  size?: 'normal' | 'wide'
  /** A click beside it does not close it, since it holds what was typed, or a secret. */
  isKept?: boolean
}

export function Dialog({
  title,
  description,
  isOpen,
  onOpenChange,
  children,
  size = 'normal',
  isKept = false,
}: DialogProps): ReactNode {
  return (
    <Radix.Root open={isOpen} onOpenChange={onOpenChange}>
      <Radix.Portal>
        <Radix.Overlay className={veil} />
        <Radix.Content
          className={cx(sheet, size === 'wide' ? 'max-w-4xl' : 'max-w-lg')}
          onInteractOutside={(event) => isKept && event.preventDefault()}
          {...(description === undefined ? { 'aria-describedby': undefined } : {})}
        >
          <header className="flex items-start gap-2 border-b px-4 py-3">
            <div className="min-w-0 flex-1 self-center">
              <Radix.Title className="font-semibold break-words">{title}</Radix.Title>
              {description !== undefined && <Radix.Description className="text-soft">{description}</Radix.Description>}
            </div>
            <Radix.Close asChild>
              <IconButton label="Close" icon={<X className="size-4" />} />
            </Radix.Close>
          </header>
          <div className="min-h-0 overflow-y-auto p-4">{children}</div>
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  )
}

interface ConfirmProps {
  /** The button that opens it. Without one the caller says when it is open. */
  trigger?: ReactNode
  isOpen?: boolean
  onOpenChange?: (isOpen: boolean) => void
  title: string
  /** What is lost, and what is kept. */
  children: ReactNode
  /** Names the act: `Delete 3 sandboxes`. */
  action: string
  /** The dialog stays open with the reason when this fails. */
  onConfirm: () => Promise<unknown>
}

/** Asks before an act that cannot be undone. */
export function Confirm({ trigger, title, children, action, onConfirm, ...opened }: ConfirmProps): ReactNode {
  const [isOpenByTrigger, setOpenByTrigger] = useState(false)
  const { isOpen = isOpenByTrigger, onOpenChange: setOpen = setOpenByTrigger } = opened
  const { run, isBusy, error } = useSubmit(async () => {
    await onConfirm()
    setOpen(false)
  })
  return (
    <RadixAlert.Root open={isOpen} onOpenChange={setOpen}>
      {trigger !== undefined && <RadixAlert.Trigger asChild>{trigger}</RadixAlert.Trigger>}
      <RadixAlert.Portal>
        <RadixAlert.Overlay className={veil} />
        <RadixAlert.Content className={cx(sheet, 'max-w-md gap-3 p-4')}>
          <RadixAlert.Title className="font-semibold break-words">{title}</RadixAlert.Title>
          <RadixAlert.Description asChild>
            <div className="text-soft">{children}</div>
          </RadixAlert.Description>
          {error !== undefined && <ErrorNote error={error} />}
          <div className="flex justify-end gap-2">
            <RadixAlert.Cancel asChild>
              <Button>Cancel</Button>
            </RadixAlert.Cancel>
            <Button look="danger" isBusy={isBusy} onClick={() => void run()}>
              {action}
            </Button>
          </div>
        </RadixAlert.Content>
      </RadixAlert.Portal>
    </RadixAlert.Root>
  )
}
