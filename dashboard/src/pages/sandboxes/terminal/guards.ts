import type { Terminal } from '@xterm/xterm'

/** Lines and columns of a screen are fewer. xterm repeats some sequences as often as their number says, which may be two thousand million. */
const repeatsMax = 4096
/** Sequences that do something so often: tabs, lines inserted, deleted and scrolled, the last character repeated. */
const repeating = ['I', 'L', 'M', 'S', 'T', 'Z', 'b'] as const
/** A longer address of a link is no address. */
const linkCharsMax = 2048
/** Titles and icon names: the page shows none. */
const titles = [0, 1, 2] as const
const link = 8

/** Has a screen pass over sequences that cost more than they show. The clipboard (OSC 52) and the size of the window are beyond programs anyway. */
export function guardScreen(screen: Terminal): void {
  const { parser } = screen
  for (const final of repeating) {
    parser.registerCsiHandler({ final }, ([count = 0]) => Number(count) > repeatsMax)
  }
  for (const title of titles) parser.registerOscHandler(title, () => true)
  parser.registerOscHandler(link, (data) => {
    const address = data.slice(data.indexOf(';') + 1)
    return data.length > linkCharsMax || (address !== '' && safeLink(address) === undefined)
  })
}

/** The address that a link of a program leads to, if it may be opened from here. */
export function safeLink(address: string): string | undefined {
  if (!URL.canParse(address)) return undefined
  const { protocol, href } = new URL(address)
  return protocol === 'http:' || protocol === 'https:' ? href : undefined
}

/**
 * Whether input is an answer of the screen to a question of a program, such as for the place of the cursor. When kept output is shown again, its
 * questions were answered long ago: the answers would be typed at the prompt.
 */
export function isAnswer(input: string): boolean {
  // eslint-disable-next-line no-control-regex
  return /^\x1b(?:\[[?>=]?[\d;]*(?:[cnRt]|\$y)|[P\]][^]*)$/.test(input)
}

/** Pasted text without the sequences by which it could end the brackets around it and go on as if it were typed. */
export function pasteText(text: string): string {
  // eslint-disable-next-line no-control-regex
  return text.replaceAll(/[\0-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]/g, '')
}
