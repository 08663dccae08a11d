import { isIP } from 'node:net'
import { domainToASCII } from 'node:url'

const nameLengthMax = 253
const labelPattern = /^(?!-)[a-z0-9_-]{1,63}(?<!-)$/

/**
 * A host name, `*.name` for any depth below it, or `*`, in the form in which it is compared: lower case, punycode, without the dot at the end.
 * Undefined for anything else, such as a URL, an address or a port.
 */
export function hostPattern(text: string): string | undefined {
  if (text === '*') return text
  if (/[\s/?#@:\\%[\]<>^|{}"]/.test(text)) return undefined
  const isBelow = text.startsWith('*.')
  const given = (isBelow ? text.slice(2) : text).replace(/\.$/, '')
  // `domainToASCII` would read a number as an address, and does not take an underscore.
  const name = /^[\w.-]+$/.test(given) ? given.toLowerCase() : domainToASCII(given)
  const labels = name.split('.')
  const isName = name.length <= nameLengthMax && labels.every((label) => labelPattern.test(label)) && isIP(name) === 0
  if (!isName || /^\d+$/.test(labels.at(-1) ?? '')) return undefined
  return isBelow ? `*.${name}` : name
}
