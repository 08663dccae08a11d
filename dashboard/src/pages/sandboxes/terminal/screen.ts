import '@xterm/xterm/css/xterm.css'
import { FitAddon } from '@xterm/addon-fit'
import { Terminal } from '@xterm/xterm'
import type { TerminalSize } from 'atoll-sdk'
import { guardScreen, pasteText, safeLink } from './guards.ts'
import { ScreenText } from './screen-text.ts'
import { installSpanStyles } from './span-styles.ts'
import { screenTheme } from './themes.ts'

installSpanStyles()

const scrollbackLines = 5000
/** What the screen has not taken of what it was given. More at a time makes no difference to its speed. */
const pendingBytesMax = 512 * 1024
const fontFamily = 'ui-monospace, SFMono-Regular, Menlo, Consolas, monospace'

export interface ScreenOptions {
  isDark: boolean
  isForScreenReader: boolean
  /** What is typed and pasted, and what the screen answers to programs. */
  onInput: (input: string | Uint8Array) => void
  onSize: (size: TerminalSize) => void
  onBell: () => void
  /** The address of the link under the pointer, and undefined when it has left. */
  onLink: (address: string | undefined) => void
  /** The keys that lead out of the screen were pressed. */
  onLeave: () => void
  /** The browser lets the page not read or write its clipboard. */
  onClipboardRefused: () => void
}

/** An xterm that bounds what hostile output can do, in an element of the page. */
export class Screen {
  readonly #terminal: Terminal
  readonly #fit = new FitAddon()
  readonly #options: ScreenOptions
  #text = new ScreenText()
  #pendingBytes = 0
  #taken: (() => void)[] = []

  constructor(options: ScreenOptions) {
    this.#options = options
    this.#terminal = new Terminal({
      fontFamily,
      fontSize: 13,
      lineHeight: 1.15,
      cursorBlink: false,
      scrollback: scrollbackLines,
      minimumContrastRatio: 4.5,
      macOptionIsMeta: true,
      screenReaderMode: options.isForScreenReader,
      theme: screenTheme(options.isDark),
      linkHandler: {
        activate: (_event, address) => this.#openLink(address),
        hover: (_event, address) => options.onLink(safeLink(address)),
        leave: () => options.onLink(undefined),
      },
    })
    guardScreen(this.#terminal)
    this.#terminal.loadAddon(this.#fit)
    this.#terminal.onData(options.onInput)
    this.#terminal.onBinary((input) => options.onInput(Uint8Array.from(input, (char) => char.charCodeAt(0))))
    this.#terminal.onResize(options.onSize)
    this.#terminal.onBell(options.onBell)
    this.#terminal.attachCustomKeyEventHandler((event) => this.#onKey(event))
  }

  open(element: HTMLElement): void {
    // xterm pastes without a look at what is in the text.
    const onPaste = (event: ClipboardEvent) => {
      event.preventDefault()
      event.stopPropagation()
      this.#paste(event.clipboardData?.getData('text/plain') ?? '')
    }
    element.addEventListener('paste', onPaste, { capture: true })
    this.#terminal.open(element)
    this.fit()
  }

  /** Takes the size of its element, unless that is not seen. */
  fit(): void {
    const size = this.#fit.proposeDimensions()
    if (size !== undefined && size.cols >= 2 && size.rows >= 1) this.#fit.fit()
  }

  get size(): TerminalSize {
    const { cols, rows } = this.#terminal
    return { cols, rows }
  }

  /** Shows output. Resolves when more may be given. */
  async write(bytes: Uint8Array): Promise<void> {
    const { length } = bytes
    this.#pendingBytes += length
    this.#terminal.write(this.#text.take(bytes), () => {
      this.#pendingBytes -= length
      if (this.#pendingBytes > pendingBytesMax) return
      for (const resolve of this.#taken.splice(0)) resolve()
    })
    if (this.#pendingBytes > pendingBytesMax) await new Promise<void>((resolve) => this.#taken.push(resolve))
  }

  /** Resolves when all that was written is shown. */
  async drain(): Promise<void> {
    await new Promise<void>((resolve) => this.#terminal.write('', resolve))
  }

  /** Empties it, and ends whatever a program has left on: the other screen, colors, reports of the mouse. */
  reset(): void {
    this.#text = new ScreenText()
    this.#terminal.reset()
  }

  focus(): void {
    this.#terminal.focus()
  }

  set isDark(isDark: boolean) {
    this.#terminal.options.theme = screenTheme(isDark)
  }

  set isForScreenReader(isOn: boolean) {
    this.#terminal.options.screenReaderMode = isOn
  }

  /** As if a key had sent this; arrows are sent in the form that the program asked for. */
  press(input: string): void {
    const isArrow = this.#terminal.modes.applicationCursorKeysMode && input.startsWith('\x1b[')
    this.#terminal.input(isArrow ? input.replace('[', 'O') : input)
    this.#terminal.focus()
  }

  async copy(): Promise<void> {
    const text = this.#terminal.getSelection()
    if (text === '') return
    try {
      // Absent at an address without TLS that is not this machine.
      await navigator.clipboard.writeText(text)
    } catch {
      this.#options.onClipboardRefused()
    }
  }

  async paste(): Promise<void> {
    try {
      this.#paste(await navigator.clipboard.readText())
    } catch {
      this.#options.onClipboardRefused()
    }
  }

  dispose(): void {
    this.#terminal.dispose()
    for (const resolve of this.#taken.splice(0)) resolve()
  }

  #paste(text: string): void {
    const safe = pasteText(text)
    if (safe !== '') this.#terminal.paste(safe)
    this.#terminal.focus()
  }

  #openLink(address: string): void {
    const link = safeLink(address)
    if (link !== undefined) window.open(link, '_blank', 'noopener,noreferrer')
  }

  /** False keeps a key from the programs. */
  #onKey(event: KeyboardEvent): boolean {
    if (event.type !== 'keydown') return true
    const { code, ctrlKey, shiftKey, altKey, metaKey } = event
    if (!ctrlKey || altKey || metaKey) return true
    if (shiftKey && code === 'ArrowUp') {
      event.preventDefault()
      this.#options.onLeave()
      return false
    }
    // The browser pastes and copies by events, which work at any address; here the key is only kept from programs.
    if (shiftKey && code === 'KeyV') return false
    if (code !== 'KeyC') return true
    if (shiftKey) {
      // It means something else to browsers.
      event.preventDefault()
      void this.copy()
      return false
    }
    if (!this.#terminal.hasSelection()) return true
    setTimeout(() => this.#terminal.clearSelection(), 0)
    return false
  }
}
