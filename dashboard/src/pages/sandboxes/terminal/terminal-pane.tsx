import type { Sandbox } from 'atoll-sdk'
import {
  useEffect,
  useEffectEvent,
  useImperativeHandle,
  useRef,
  useState,
  type KeyboardEvent,
  type ReactNode,
  type Ref,
} from 'react'
import { useTheme } from '../../../lib/theme.ts'
import { useEvents, useMissed } from '../../../live/live.tsx'
import { cx } from '../../../ui/cx.ts'
import { useToast } from '../../../ui/toasts.tsx'
import { TerminalConnection, type ConnectionState } from './connection.ts'
import { KeyBar } from './key-bar.tsx'
import { Screen } from './screen.ts'
import { SleepNote } from './sleep-note.tsx'
import { StateLine } from './state-line.tsx'

/** What buttons outside of a pane do with it. */
export interface TerminalPaneHandle {
  copy: () => void
  paste: () => void
  reset: () => void
  focus: () => void
}

interface TerminalPaneProps {
  sandbox: Sandbox
  terminalId: string
  isNew: boolean
  isShown: boolean
  isForScreenReader: boolean
  ref: Ref<TerminalPaneHandle>
  onState: (state: ConnectionState) => void
  onBell: () => void
  onLeave: () => void
}

const fitMs = 80

/** The screen of one terminal and its connection. */
export function TerminalPane(props: TerminalPaneProps): ReactNode {
  const { sandbox, terminalId, isNew, isShown, isForScreenReader, ref } = props
  const { isDark } = useTheme()
  const toast = useToast()
  const place = useRef<HTMLDivElement>(null)
  const screen = useRef<Screen>(undefined)
  const connection = useRef<TerminalConnection>(undefined)
  const [state, setState] = useState<ConnectionState>({ type: 'connecting' })
  const [link, setLink] = useState<string>()
  const [hasSkipped, setSkipped] = useState(false)
  const onState = useEffectEvent((next: ConnectionState) => {
    setState(next)
    props.onState(next)
  })
  const onBell = useEffectEvent(() => props.onBell())
  const onLeave = useEffectEvent(() => props.onLeave())
  const onClipboardRefused = useEffectEvent(() =>
    toast({ tone: 'bad', text: 'The browser does not let this page use the clipboard. Use its own menu or keys.' }),
  )
  const begin = useEffectEvent((element: HTMLElement) => {
    const made = new Screen({
      isDark,
      isForScreenReader,
      onInput: (input) => {
        setSkipped(false)
        connection.current?.type(input)
      },
      onSize: () => connection.current?.resize(),
      onBell,
      onLink: setLink,
      onLeave,
      onClipboardRefused,
    })
    made.open(element)
    if (isNew) made.focus()
    screen.current = made
    connection.current = new TerminalConnection({
      sandbox,
      terminalId,
      isNew,
      screen: made,
      onState,
      onSkip: () => setSkipped(true),
    })
  })
  useEffect(() => {
    const element = place.current
    if (element === null) return undefined
    begin(element)
    let timer: ReturnType<typeof setTimeout>
    const observer = new ResizeObserver(() => {
      clearTimeout(timer)
      timer = setTimeout(() => screen.current?.fit(), fitMs)
    })
    observer.observe(element)
    return () => {
      clearTimeout(timer)
      observer.disconnect()
      connection.current?.close()
      screen.current?.dispose()
      connection.current = undefined
      screen.current = undefined
    }
  }, [sandbox, terminalId])
  useImperativeHandle(ref, () => ({
    copy: () => void screen.current?.copy(),
    paste: () => void screen.current?.paste(),
    reset: () => screen.current?.reset(),
    focus: () => screen.current?.focus(),
  }))
  useEffect(() => {
    if (screen.current !== undefined) screen.current.isDark = isDark
  }, [isDark])
  useEffect(() => {
    if (screen.current !== undefined) screen.current.isForScreenReader = isForScreenReader
  }, [isForScreenReader])
  useEffect(() => {
    if (isShown) screen.current?.fit()
  }, [isShown])
  useEvents(({ type, sandboxId }) => {
    if (type === 'sandbox.resumed' && sandboxId === sandbox.id) connection.current?.check()
  })
  useMissed(() => connection.current?.check())
  const wake = () => void connection.current?.wake()
  const isAsleep = state.type === 'asleep'
  const onKey = (event: KeyboardEvent) => {
    if (!isAsleep || !isTyped(event)) return
    event.preventDefault()
    event.stopPropagation()
    wake()
  }
  return (
    <div
      className={cx('absolute inset-0 flex flex-col', !isShown && 'invisible')}
      aria-hidden={!isShown || undefined}
      data-terminal={state.type}
      onKeyDownCapture={onKey}
    >
      <div className="relative min-h-0 flex-1">
        <div ref={place} className={cx('absolute inset-0 top-2 left-3 overflow-hidden', isAsleep && 'opacity-40')} />
        {(isAsleep || state.type === 'waking') && <SleepNote state={state} onWake={wake} />}
      </div>
      <StateLine state={state} link={link} hasSkipped={hasSkipped} />
      <KeyBar onKey={(key) => screen.current?.press(key)} onPaste={() => void screen.current?.paste()} />
    </div>
  )
}

/** A key that writes something; those that move through the page do not wake a sandbox. */
function isTyped({ key, ctrlKey, altKey, metaKey, target }: KeyboardEvent): boolean {
  if (target instanceof HTMLButtonElement || ctrlKey || altKey || metaKey) return false
  return key.length === 1 || key === 'Enter' || key === 'Backspace'
}
