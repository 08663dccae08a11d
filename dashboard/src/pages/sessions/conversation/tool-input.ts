import { plainText } from './plain-text.ts'

/** Characters of a call in one line. */
const briefMax = 300

/** Arguments of a call by what a person reads first. */
export interface ToolInput {
  /** In one line. */
  brief: string
  parts: readonly { label: string; text: string }[]
}

/** Reads the JSON of the arguments, which come from the model and can be anything. */
export function toolInputOf(tool: string, json: string): ToolInput {
  const input: unknown = JSON.parse(json)
  const fields = typeof input === 'object' && input !== null ? (input as Record<string, unknown>) : {}
  const text = (name: string) => {
    const value = fields[name]
    return typeof value === 'string' ? plainText(value) : undefined
  }
  const path = text('path') ?? text('file_path')
  const parts = partsOf(tool.toLowerCase(), text)
  const brief = text('command') ?? path ?? text('pattern') ?? plainText(json)
  return {
    brief: inOneLine(brief),
    parts: parts.length > 0 ? parts : [{ label: 'Input', text: plainText(JSON.stringify(input, undefined, 2)) }],
  }
}

function partsOf(tool: string, text: (name: string) => string | undefined) {
  const named = (label: string, value: string | undefined) => (value === undefined ? [] : [{ label, text: value }])
  if (tool === 'bash') return named('Command', text('command'))
  if (tool === 'write') return named('Content', text('content'))
  if (tool === 'edit') {
    const before = text('old_string') ?? text('oldText')
    const after = text('new_string') ?? text('newText')
    if (before !== undefined && after !== undefined) return [...named('Before', before), ...named('After', after)]
  }
  return []
}

export function inOneLine(text: string): string {
  return text
    .slice(0, 4 * briefMax)
    .replaceAll(/\s+/g, ' ')
    .trim()
    .slice(0, briefMax)
}
