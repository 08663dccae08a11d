import { Toast as Radix } from 'radix-ui'
import { createContext, useContext, useState, type ReactNode } from 'react'
import { cx } from './cx.ts'
import type { Tone } from './badge.tsx'

interface Toast {
  text: string
  tone?: Tone
}

const shownMax = 4
const shownMs = 6000
const ToastContext = createContext<(toast: Toast) => void>(() => undefined)

/** Tells the outcome of an act that has left the place where it began. */
export function useToast(): (toast: Toast) => void {
  return useContext(ToastContext)
}

export function ToastProvider({ children }: { children: ReactNode }): ReactNode {
  const [toasts, setToasts] = useState<(Toast & { id: number })[]>([])
  const show = (toast: Toast) =>
    setToasts((shown) => [...shown.slice(1 - shownMax), { ...toast, id: (shown.at(-1)?.id ?? 0) + 1 }])
  return (
    <Radix.Provider duration={shownMs}>
      <ToastContext value={show}>{children}</ToastContext>
      {toasts.map(({ id, text, tone }) => (
        <Radix.Root
          key={id}
          onOpenChange={(isOpen) => !isOpen && setToasts((shown) => shown.filter((toast) => toast.id !== id))}
          className={cx('rounded-md border bg-raised px-4 py-3 shadow-lg', tone === 'bad' && 'border-bad text-bad')}
        >
          <Radix.Description className="break-words">{text}</Radix.Description>
        </Radix.Root>
      ))}
      <Radix.Viewport className="fixed right-4 bottom-4 z-50 flex w-[min(24rem,calc(100vw-2rem))] flex-col gap-2 outline-none" />
    </Radix.Provider>
  )
}
