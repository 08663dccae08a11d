import { onExit } from './interrupt.ts'

const barColumns = 30
const drawMs = 100
const units = ['B', 'kB', 'MB', 'GB', 'TB']

/** How far a transfer is, in one line of standard error where that is a terminal. */
export class Progress {
  readonly #label: string
  readonly #total: number | undefined
  readonly #isShown: boolean
  #bytes = 0
  #drawnAt = 0
  #forget: () => void = () => undefined

  constructor(label: string, total?: number, isShown = process.stderr.isTTY) {
    this.#label = label
    this.#total = total
    this.#isShown = isShown
    if (isShown) this.#forget = onExit(() => process.stderr.write('\r\x1b[K'))
  }

  get bytes(): number {
    return this.#bytes
  }

  add(bytes: number): void {
    this.#bytes += bytes
    if (!this.#isShown || Date.now() - this.#drawnAt < drawMs) return
    this.#drawnAt = Date.now()
    process.stderr.write(`\r${barOf(this.#label, this.#bytes, this.#total)}\x1b[K`)
  }

  end(): void {
    if (this.#isShown) process.stderr.write('\r\x1b[K')
    this.#forget()
  }
}

export function barOf(label: string, bytes: number, total: number | undefined): string {
  if (total === undefined || total === 0) return `${label}  ${sizeText(bytes)}`
  const share = Math.min(1, bytes / total)
  const filled = Math.round(share * barColumns)
  const bar = '#'.repeat(filled) + '.'.repeat(barColumns - filled)
  return `${label}  ${bar}  ${Math.floor(share * 100)} %  ${sizeText(bytes)} of ${sizeText(total)}`
}

export function sizeText(bytes: number): string {
  let value = bytes
  let unit = 0
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000
    unit += 1
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`
}
