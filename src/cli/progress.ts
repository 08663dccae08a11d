import { onExit } from './interrupt.ts'
import { clearStatus, drawStatus } from './output.ts'
import { durationText, sizeText } from './units.ts'

const barColumns = 30
const drawMs = 100
/** What ends sooner is not told. */
const quietMs = 300
const secondMs = 1000

/** How far a transfer is, in one line of standard error where that is a terminal. */
export class Progress {
  readonly #label: string
  readonly #isShown: boolean
  #drawnAt = 0
  #forget: () => void = () => undefined

  constructor(label: string, isShown = process.stderr.isTTY) {
    this.#label = label
    this.#isShown = isShown
    if (isShown) this.#forget = onExit(clearStatus)
  }

  update(bytes: number, total?: number): void {
    this.#draw(() => barOf(this.#label, bytes, total))
  }

  /** What is done before bytes can be counted. */
  tell(text: string): void {
    this.#draw(() => `${this.#label}  ${text}`)
  }

  #draw(text: () => string): void {
    if (!this.#isShown || Date.now() - this.#drawnAt < drawMs) return
    this.#drawnAt = Date.now()
    drawStatus(text())
  }

  end(): void {
    if (this.#isShown) clearStatus()
    this.#forget()
  }
}

/** The same bytes, and how many of them have passed by then. */
export async function* counted(
  input: AsyncIterable<Uint8Array>,
  passed: (bytes: number) => void,
): AsyncGenerator<Uint8Array> {
  let bytes = 0
  for await (const data of input) {
    bytes += data.length
    passed(bytes)
    yield data
  }
}

/** Says on a terminal what is waited for and since when, until the work ends. */
export async function waiting<Result>(text: string, work: Promise<Result>): Promise<Result> {
  if (!process.stderr.isTTY) return await work
  const start = Date.now()
  const draw = () => drawStatus(`${text} … ${durationText((Date.now() - start) / 1000)}`)
  const first = setTimeout(draw, quietMs)
  const next = setInterval(draw, secondMs)
  const forget = onExit(clearStatus)
  try {
    return await work
  } finally {
    clearTimeout(first)
    clearInterval(next)
    clearStatus()
    forget()
  }
}

export function barOf(label: string, bytes: number, total: number | undefined): string {
  if (total === undefined || total === 0) return `${label}  ${sizeText(bytes)}`
  const share = Math.min(1, bytes / total)
  const filled = Math.round(share * barColumns)
  const bar = '#'.repeat(filled) + '.'.repeat(barColumns - filled)
  return `${label}  ${bar}  ${Math.floor(share * 100)} %  ${sizeText(bytes)} of ${sizeText(total)}`
}
