import { styled, widthOf } from './output.ts'

/** How the lines of a tree or a timeline are drawn. */
export interface Drawing {
  /** Cells of a line. Default: as many as it needs. */
  widthMax?: number
  hasColors?: boolean
  /** For programs: times as they are, in place of ages and clocks, and ids besides names. */
  isExact?: boolean
  nowMs?: number
}

/** Between two columns. */
export const gap = '  '

/** The cells that the widest of these takes. */
export function widthOfAll(texts: readonly string[]): number {
  return texts.reduce((most, text) => Math.max(most, widthOf(text)), 0)
}

/** Styles a text (SGR), if there are colours, a style and a text. */
export function painter(hasColors: boolean): (style: string, text: string) => string {
  return (style, text) => (hasColors && style !== '' && text !== '' ? styled(style, text) : text)
}

/** Of the lines that lead to a deep node the nearest alone. */
export function shortened(lead: string, width: number): string {
  return lead.length <= width ? lead : `…${lead.slice(lead.length - Math.max(0, width - 1))}`
}
