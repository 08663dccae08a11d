import { bold, printable, when, writeJson, writeLine } from './output.ts'
import { sizeText } from './units.ts'

/** Prints an object of the API, a field a line, or as JSON. Times and sizes are for people on a terminal alone. */
export async function writeFields(
  info: object,
  { json: isJson = false }: { json?: boolean | undefined },
): Promise<void> {
  if (isJson) return await writeJson(info)
  const fields = Object.entries(info).filter(([, value]) => value !== undefined)
  const width = Math.max(...fields.map(([name]) => name.length))
  for (const [name, value] of fields)
    await writeLine(`${bold(name.padEnd(width))}  ${printable(fieldText(name, value))}`)
}

function fieldText(name: string, value: unknown): string {
  if (typeof value === 'string') return name.endsWith('At') ? timeText(value) : value
  if (typeof value === 'number' && name.endsWith('Bytes') && process.stdout.isTTY) return sizeText(value)
  if (value === null && process.stdout.isTTY) return '-'
  if (!process.stdout.isTTY || typeof value !== 'object' || value === null) return JSON.stringify(value)
  const parts = Array.isArray(value) ? value.map(String) : Object.entries(value).map(([key, one]) => `${key}=${one}`)
  if (parts.length === 0) return '-'
  return Object.values(value).some((one) => typeof one === 'object') ? JSON.stringify(value) : parts.join('  ')
}

function timeText(time: string): string {
  const shown = when(time)
  return shown === undefined || shown === time ? time : `${time} (${shown})`
}
